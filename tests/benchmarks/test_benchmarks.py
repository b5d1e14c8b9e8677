"""That benchmarks can be run by name and read by programs; how fast anything is, they say themselves."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import measure

FIELDS = {"name": str, "ratio": float, "goal": str, "holds": bool, "detail": str}


def check(printed: str, name: str) -> None:
    (line,) = printed.splitlines()
    found = json.loads(line)
    assert {field: type(value) for field, value in found.items()} == FIELDS
    assert found["name"] == name and found["detail"]
    relation, bound = found["goal"].split()
    assert found["holds"] == (found["ratio"] >= float(bound) if relation == ">=" else found["ratio"] <= float(bound))


@pytest.mark.parametrize("ratio", [0.5, np.float64(50.0), np.float32(0.5), np.median([1, 2])], ids=lambda r: repr(r))
@pytest.mark.parametrize("name", measure.BENCHMARKS)
def test_whatever_numbers_a_benchmark_finds_are_json(name, ratio, monkeypatch, capsys):
    goal, _ = measure.BENCHMARKS[name]
    monkeypatch.setitem(measure.BENCHMARKS, name, (goal, lambda: (ratio, "as measured")))
    monkeypatch.setattr(sys, "argv", ["benchmarks", name, "--json"])
    holds = benchmarks.main() == 0
    printed = capsys.readouterr().out
    check(printed, name)
    assert json.loads(printed)["holds"] is holds


QUICK = "gradient-vs-numpy"


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in measure.BENCHMARKS if n != QUICK)]
)
def test_the_command_prints_one_object(name):
    done = subprocess.run([sys.executable, "-m", "tests.benchmarks", name, "--json"], capture_output=True, text=True)
    if "No module named" in done.stderr:
        pytest.skip(f"{name} compares with a library of the extra bench: pip install '.[bench]'")
    assert done.returncode in (0, 1), done.stderr  # whether the goal is reached depends on the machine
    check(done.stdout, name)
