"""What is expected of a fit to chosen columns, before it and after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpdist import LogisticRegression
from dpdist.central import HardThresholding
from dpdist.central.linear.column_prediction import COLUMNS_UNKNOWN, ColumnFit
from dpdist.solvers.filtered_newton import Solution
from dpdist.solvers.margins import Curvature

FLAT = Curvature(1.0, lambda margins: 1.0)
FIT = ColumnFit(10_000, 4, 4, 1.0, 2.0, 1.0, 4, choice=30.0, hidden=80.0)


def ended(weights, noise=1e-4, curvature=500.0):
    d = len(weights)
    eye = np.eye(d)
    return Solution(np.array(weights), noise * eye, 0 * eye, curvature * eye, 5.0 * eye, np.inf, 10_000, 0.0)


def test_columns_that_were_chosen_for_noise_may_stand_for_others_that_matter():
    """Each by a third of ``hidden^2 / 2 h``, the mean over parts of the gradient below what is hidden."""
    assert FIT.missed(ended([1.0, 1.0, 1.0, 1.0])) == 0.0
    assert FIT.missed(ended([1.0, 1.0, 0.001, 0.0])) == pytest.approx(2 * 80.0**2 / 500 / 6)
    far = replace(FIT, hidden=1e6)
    assert far.missed(ended([1.0, 1.0, 0.001, 0.0])) == pytest.approx(2 * 500 * 5.0 / 2)


def test_the_range_begins_where_all_are_found_and_ends_where_none_is_or_one_hides():
    found = FIT.expected((0.5, 2.0), FLAT, lambda row: (30.0 * row, 30.0 * row))
    assert 0 < found.low < found.typical < found.high
    alone = replace(FIT, hidden=0.0, choice=1e-3).expected((0.5, 2.0), FLAT, lambda row: (1e-3, 1e-3))
    assert alone.low < 1e-6 and alone.high == pytest.approx(2.0**2 / 2 / 4, rel=0.05)
    assert alone.unknown in COLUMNS_UNKNOWN[2:]
    lost = replace(FIT, hidden=1e6).expected((0.5, 2.0), FLAT, lambda row: (1e-3, 1e-3))
    assert lost.low == pytest.approx(0.5**2 / 2, rel=0.01) and lost.least_share == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_range_contains_the_error_of_rows_that_no_rule_was_made_on(epsilon):
    rng = np.random.default_rng(3)
    X = np.minimum(rng.exponential(0.3, size=(26_000, 20)), 1.0)
    u = X[:, :4] @ np.array([4.0, -4.0, 3.0, 3.0])
    u = u - u.mean()
    y = (rng.random(len(u)) < 1 / (1 + np.exp(-u))).astype(int)
    options = {"classes": [0, 1], "feature_bound": 1.0, "alpha": 0.0, "epsilon": epsilon, "delta": 1e-6}

    def loss(margins):
        return np.mean(np.logaddexp(0, margins) - y[6000:] * margins)

    fits = [
        LogisticRegression(**options, solver=HardThresholding(n_nonzero=5), random_state=s).fit(X[:6000], y[:6000])
        for s in range(3)
    ]
    measured = np.mean([loss(fit.decision_function(X[6000:])) for fit in fits]) - loss(u[6000:])
    look = fits[0].outlook(6000, 20)
    assert look.low < measured < look.high
    assert 1 / 5 < np.mean([fit.expected_error_ for fit in fits]) / measured < 5
