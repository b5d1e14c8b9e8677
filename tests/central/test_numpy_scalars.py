"""Bounds and budgets that are NumPy's numbers are the same as Python's; a query refuses what would wrap."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import Budget, LinearRegression, Minimizer
from dpdist.central import ClipLabel
from dpdist.engine.checks import check_numbers
from dpdist.errors import BudgetError
from dpdist.losses import Huber, Logistic
from dpdist.queries.gradient_sums import GradientSum

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
OPTIONS = {"epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
SMALL = [np.uint8(200), np.int32(100_000), np.int64(2**32), np.float16(200), np.float32(200)]


@pytest.mark.parametrize("number", SMALL, ids=repr)
@pytest.mark.parametrize(
    "fit",
    [
        lambda number, **options: Minimizer("logistic", solver="newton", row_norm=number, **options),
        lambda number, **options: Minimizer("logistic", solver="gradient", row_norm=number, **options),
        lambda number, **options: Minimizer("huber", solver="robust-newton", row_norm=number, **options),
        lambda number, **options: LinearRegression(row_norm=1.0, gradient=ClipLabel(number), **options),
    ],
    ids=["newton", "gradient", "robust-newton", "labels"],
)
def test_a_bound_whose_square_may_wrap_is_that_of_python(fit, number):
    def released(bound):
        return fit(bound, random_state=0, **OPTIONS).fit(X, Y).coef_

    np.testing.assert_array_equal(released(number), released(number.item()))


@pytest.mark.parametrize("number", SMALL, ids=repr)
def test_a_query_with_such_a_bound_is_refused_before_anything_is_charged(number):
    with pytest.raises(BudgetError, match=r"row_norm=float\(\.\.\.\)"):
        check_numbers(GradientSum(Logistic(), row_norm=number, clip_norm=1.0))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("solver", ["auto", "newton", "gradient"])
def test_an_epsilon_of_numpys_is_that_of_python(kind, solver):
    options = {"delta": 1e-6, "row_norm": 1.0, "solver": solver, "cluster": "threads", "random_state": 0}
    found, same = (Minimizer(epsilon=epsilon, **options).fit(X, Y) for epsilon in (kind(1), 1.0))
    np.testing.assert_array_equal(found.coef_, same.coef_)
    assert type(Budget(kind(1)).epsilon) in (int, float)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_threshold_of_numpys_is_that_of_python(kind):
    options = {**OPTIONS, "row_norm": 2.0, "solver": "robust-newton", "random_state": 0}
    found, same = (Minimizer(Huber(h), **options).fit(X, Y) for h in (kind(1.5), 1.5))
    np.testing.assert_array_equal(found.coef_, same.coef_)
