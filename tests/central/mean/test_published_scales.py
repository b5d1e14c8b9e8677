"""Means with published scales: what they are, and what they cost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import Mean
from dpdist.central import ClippedColumns, SmoothTruncatedMean, TruncatedMean
from dpdist.errors import BudgetError
from tests.estimators.quick_oracle import QuickOracle

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "second_moment": 1.25}
BANDS = {"optimal": 0.026, "journal": 0.036}


def error(scale, runs=60):
    """Root mean square, of normal numbers around 1/2."""
    method = Mean(TruncatedMean(scale), **BUDGET).decided(10_000, 1)
    squares = []
    for seed in range(runs):
        X = np.random.default_rng(seed).normal(0.5, 1.0, size=(10_000, 1))
        found = method.solve(QuickOracle(method, {"X": X}, np.random.default_rng(1000 + seed)))["mean"]
        squares.append((found[0] - 0.5) ** 2)
    return math.sqrt(np.mean(squares))


@pytest.mark.parametrize("scale", BANDS)
def test_errors_are_in_their_bands(scale):
    assert error(scale) <= BANDS[scale]


def test_the_scale_of_the_thesis_is_worse():
    assert error("thesis") > 1.5 * error("journal")


@pytest.mark.parametrize("kind", [TruncatedMean, SmoothTruncatedMean])
def test_scales_are_as_published(kind):
    level = math.log(20)
    scale = {name: Mean(kind(name), **BUDGET).decided(10_000, 1).query.bounded.scale for name in ("thesis", "journal")}
    assert scale["thesis"] == pytest.approx(math.sqrt(10_000 * 1.25 / (2 * level)))
    assert scale["journal"] == pytest.approx(math.sqrt(10_000 * 1.25) / (level * math.log(1e6) ** 0.25))
    named, default = (Mean(kind(scale), **BUDGET).decided(10_000, 1).query for scale in ("optimal", None))
    assert named == default


def test_what_cannot_be_is_refused():
    with pytest.raises(BudgetError, match="scale='thesis' is not known; choose one of 'optimal'"):
        ClippedColumns("thesis")
    with pytest.raises(BudgetError, match="scale='journal' has delta in it: pass delta"):
        Mean(TruncatedMean("journal"), epsilon=1.0, delta=0.0, second_moment=1.0).plan(1000, 1)
