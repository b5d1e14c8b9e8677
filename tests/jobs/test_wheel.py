"""A wheel of this source, installed where nothing of the source can be seen, has every job and runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from dpdist.jobs.registry import METHODS
from dpdist.jobs.shipped import figures

ROOT = Path(__file__).parents[2]
SOURCES = ("dpdist", "pipelines", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """The ``bin`` of an environment with the wheel; its dependencies are those of this one, without this dpdist."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    for name in SOURCES:  # a copy: building leaves files beside the source
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", place, source]
    subprocess.run([*PIP, *build], check=True, timeout=300)
    shutil.rmtree(source)
    (wheel,) = place.glob("*.whl")
    venv.create(place / "env", symlinks=True)
    python = place / "env" / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", wheel], check=True, timeout=300)
    (packages,) = (place / "env" / "lib").glob("python*/site-packages")
    # a folder named in a .pth comes after the environment's own, and no .pth in it is read: an editable dpdist is not
    # seen from there
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others))
    return python.parent


@pytest.fixture
def call(installed, tmp_path):
    """Run a program of that environment in an empty folder."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    environment = {**kept, "XDG_DATA_HOME": str(tmp_path / "data")}
    (tmp_path / "empty").mkdir()

    def run(*words: object) -> str:
        program, *rest = map(str, words)
        done = subprocess.run(
            [installed / program, *rest],
            cwd=tmp_path / "empty",
            env=environment,
            capture_output=True,
            text=True,
            timeout=3000,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


PLANS = """
import json, dpdist
from dpdist.jobs.job import load_job
from dpdist.jobs.planning import plan_job
from dpdist.jobs.registry import METHODS
from dpdist.figures.figure_file import load_figure
from dpdist.jobs.shipped import figures
plans = {name: plan_job(load_job(name))["id"] for name in METHODS}
drawn = {name: len(load_figure(name).cells) for name in figures()}
print(json.dumps({"package": dpdist.__file__, "plans": plans, "figures": drawn}))
"""


def test_every_job_and_figure_is_found_and_every_job_plans(call, installed):
    found = json.loads(call("python", "-c", PLANS))
    assert Path(found["package"]).is_relative_to(installed.parent), "this is not the wheel"
    assert found["plans"] == {name: name for name in METHODS}
    assert set(found["figures"]) == set(figures()) and all(found["figures"].values())


@pytest.mark.parametrize("name", ["dp-gd", "mean-dp", "oue"])
def test_a_job_runs_by_its_name(call, name):
    record = json.loads(call("dpdist", "run", name, "--json", "--set", "data.n=20000", "--output", "here"))
    assert record["metrics"]["error"] < record["metrics"]["trivial_error"]


def test_a_job_that_is_printed_is_one(call, tmp_path):
    mine = tmp_path / "empty" / "mine.yaml"
    mine.write_text(call("dpdist", "methods", "dp-gd", "--job"))
    assert mine.read_text() == (ROOT / "pipelines" / "dp-gd.yaml").read_text()
    assert json.loads(call("dpdist", "plan", "mine.yaml", "--json"))["id"] == "dp-gd"


def test_a_figure_is_drawn_by_its_name(call, tmp_path):
    words = ("exp-scaling", "--seeds", "1", "--set", "data.n=2000", "--set", "data.d=8")
    record = json.loads(call("dpdist", "figures", *words, "--json"))
    assert record["figures"][0]["rows"] and (tmp_path / "empty" / "figures" / "exp-scaling.svg").is_file()


def test_an_audit_by_name(call):
    assert not json.loads(call("dpdist", "audit", "dp-gd", "--runs", "50", "--json"))["contradicted"]


RUNS = """
import json, traceback
from dpdist.jobs.job import load_job
from dpdist.jobs.registry import METHODS
from dpdist.jobs.run import run_job
runs = {}
for name in METHODS:
    try:
        record = run_job(load_job(name))
        runs[name] = [record["id"], record["metrics"]["error"] >= 0]
    except Exception:
        runs[name] = traceback.format_exc()
print(json.dumps(runs))
"""


@pytest.mark.slow
def test_every_job_runs(call):
    """As it is shipped, in one process: kernels are compiled once."""
    assert json.loads(call("python", "-W", "ignore", "-c", RUNS)) == {name: [name, True] for name in METHODS}
