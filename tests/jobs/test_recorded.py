"""Seeded results of every registered method are what they were when it was recorded (`tests.jobs.recorded`).

The fits they come from say as well which parameters a fit reads.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dpdist.jobs.registry import METHODS
from tests.jobs.recorded import FILE, recorded, seeded_fit

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


@pytest.fixture(scope="module", params=METHODS)
def fit(request):
    """One for all that is asked of it."""
    return seeded_fit(request.param)


def test_seeded_results_are_what_they_were(fit):
    assert differences(recorded(fit), RECORD[fit.job.method.id]) == []


def test_what_counts_as_read_is_read_in_a_fit(fit):
    """`Method.solves_with` vouches for parameters that no plan reads: every job sets some, and its fit reads all."""
    statement = fit.method.statement
    stated = {name for name in fit.method.solves_with if name in getattr(statement, "__dataclass_fields__", ())}
    asked = {name for kind, name in fit.read if kind is type(statement)}
    # read by the estimator: for which labels and methods there are, and for predictions
    unvouched = {"classes", "domain", "loss"}
    assert stated - asked <= unvouched


def test_a_difference_is_seen():
    name = "dp-gd"
    changed = json.loads(json.dumps(RECORD[name]))
    changed["results"]["coef_"]["first"][0] *= 1 + 1e-4
    changed["releases"][1]["name"] = "another"
    assert len(differences(RECORD[name], changed)) == 2
    assert len(differences(RECORD[name], {**RECORD[name], "n_releases": 1})) == 1
    assert differences(RECORD[name], RECORD[name]) == []
