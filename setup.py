"""What ``pyproject.toml`` cannot say: the folder ``pipelines`` is installed as ``dpdist/pipelines``.

The pages are installed as ``dpdist/site`` if they were built before, to ``deploy/site/_build/html``.
"""

from pathlib import Path

from setuptools import find_namespace_packages, setup

folders = {"dpdist.pipelines": "pipelines"}
if Path("deploy/site/_build/html/index.html").exists():
    folders["dpdist.site"] = "deploy/site/_build/html"

setup(packages=[*find_namespace_packages(include=["dpdist*"]), *folders], package_dir=folders)
