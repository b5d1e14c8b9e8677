"""What ``pyproject.toml`` cannot say: the folder ``pipelines`` is installed as ``dpdist/pipelines``."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["dpdist*"]), "dpdist.pipelines"],
    package_dir={"dpdist.pipelines": "pipelines"},
)
