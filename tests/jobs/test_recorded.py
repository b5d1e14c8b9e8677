"""Seeded results of every registered method are what they were when it was recorded (`tests.jobs.recorded`)."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dpdist.jobs.registry import METHODS
from tests.jobs.recorded import FILE, recorded

RECORD = json.loads(FILE.read_text())
RTOL = 1e-6
"""Processors differ in the last bits of a sum of floats; noise differs in all of them, or in none."""


def differences(here: Any, there: Any, at: str = "") -> list[str]:
    """Where two records differ, beyond rounding."""
    if isinstance(here, list) and isinstance(there, list):
        here, there = dict(enumerate(here)), dict(enumerate(there))
    if isinstance(here, dict) and isinstance(there, dict) and set(here) == set(there):
        return [found for key in there for found in differences(here[key], there[key], f"{at}.{key}")]
    numbers = isinstance(here, float) and isinstance(there, float)
    same = math.isclose(here, there, rel_tol=RTOL, abs_tol=1e-9) if numbers else here == there
    return [] if same else [f"{at}: {there!r} became {here!r}"]


def test_every_method_is_recorded():
    assert set(RECORD) == set(METHODS), "record a new method with `python -m tests.jobs.recorded ID`"


@pytest.mark.parametrize("name", METHODS)
def test_seeded_results_are_what_they_were(name):
    assert differences(recorded(name), RECORD[name]) == []


def test_a_difference_is_seen():
    name = "dp-gd"
    changed = json.loads(json.dumps(RECORD[name]))
    changed["results"]["coef_"]["first"][0] *= 1 + 1e-4
    changed["releases"][1]["name"] = "another"
    assert len(differences(RECORD[name], changed)) == 2
    assert len(differences(RECORD[name], {**RECORD[name], "n_releases": 1})) == 1
    assert differences(RECORD[name], RECORD[name]) == []
