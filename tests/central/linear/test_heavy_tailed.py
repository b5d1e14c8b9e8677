"""Robust gradients: accuracy with defaults, the course that public numbers choose, and references without noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import Dataset, LinearRegression, LogisticRegression, Minimizer
from dpdist.central import GradientDescent, Sample
from dpdist.central.linear.heavy_tailed import RobustDescent, trimmed_count
from dpdist.constraints import ElasticNet, L2Ball
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.outlook import nobody_asks
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.truncation import SmoothTruncation, SoftTruncation
from dpdist.losses import Squared
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.queries.coordinate_gradient_sums import CoordinateGradientSum
from dpdist.queries.robust_sums import TrimmedGradientSum
from tests.central.linear.objects import objects


def heavy(n: int, d: int, seed: int, skewed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Linear regression with centred log-normal noise; skewed features are exponential minus 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_exponential((n, d)) - 1 if skewed else rng.normal(size=(n, d))
    w = rng.normal(size=d)
    w /= np.linalg.norm(w)
    return X, X @ w + rng.lognormal(1, 1, n) - math.exp(1.5), w


def error(n: int, seed: int, skewed: bool, **options) -> float:
    X, y, w = heavy(n, 10, seed, skewed)
    model = Minimizer(
        "squared", constraint=L2Ball(2.0), epsilon=1.0, delta=1 / n, second_moment=40.0, fit_intercept=skewed,
        random_state=seed, cluster="threads", **objects(solver="gradient", **options),
    )  # fmt: skip
    with nobody_asks():  # delta is 1/n, as it was where the bands were measured
        model.fit(X, y)
    return math.hypot(np.linalg.norm(model.coef_ - w), model.intercept_)


BANDS = [
    ("truncate", True, {}, 0.23),
    ("smooth-truncate", True, {}, 0.23),
    ("trim", False, {}, 0.17),
    ("norm", False, {}, 0.32),
    ("truncate", False, {"rows": "sample"}, 0.12),
]


@pytest.mark.parametrize(("gradient", "skewed", "options", "most"), BANDS[:4])
def test_errors_of_two_seeds_are_within_their_bands(gradient, skewed, options, most):
    assert np.mean([error(100_000, seed, skewed, gradient=gradient, **options) for seed in range(2)]) <= most


@pytest.mark.slow
@pytest.mark.parametrize(("gradient", "skewed", "options", "most"), BANDS)
def test_errors_of_six_seeds_are_within_their_bands(gradient, skewed, options, most):
    assert np.mean([error(100_000, seed, skewed, gradient=gradient, **options) for seed in range(6)]) <= most


def test_sampled_rounds_are_averaged():
    assert error(20_000, 0, False, gradient="truncate", rows=Sample(0.05), n_rounds=60) <= 0.5


def reference(X, y, n_rounds, step, bound) -> np.ndarray:
    """Projected gradient descent without noise: the same graph in NumPy."""
    w = np.zeros(X.shape[1])
    for _ in range(n_rounds):
        gradients = (X @ w - y)[:, None] * X
        w = L2Ball(2.0).project(w - step * bound(gradients))
    return w


def model(gradient: str, **options) -> Minimizer:
    options = {"epsilon": 1.0, "delta": 1e-5, "n_rounds": 3, **options}
    return Minimizer(
        "squared", constraint=L2Ball(2.0), fit_intercept=False, random_state=0, cluster="threads",
        **objects(solver="gradient", gradient=gradient, **options),
    )  # fmt: skip


@pytest.mark.parametrize("gradient", ["truncate", "smooth-truncate", "trim", "norm"])
def test_without_noise_it_is_plain_gradient_descent(gradient):
    X, y, _ = heavy(3000, 4, 0, False)
    y[5], X[6, 0], y[7] = np.nan, np.inf, 1e300
    good = np.isfinite(y) & np.isfinite(X).all(axis=1)
    clean_X, clean_y = np.where(good[:, None], X, 0.0), np.where(good, y, 0.0)
    # next to no noise
    options = {"epsilon": 1e5, "delta": 0.01} if gradient != "trim" else {"epsilon": 3000.0, "delta": 0.01}
    options |= {"scale": 20.0} if gradient != "norm" else {"second_moment": 1e6}
    private = model(gradient, **options)
    query = private._method_for(3000, 4).query

    def bound(g: np.ndarray) -> np.ndarray:
        if gradient == "norm":
            return clip_l2(g, query.clip_norm).mean(axis=0)
        if gradient == "trim":
            m = query.n_trimmed
            return np.sort(np.clip(g, -20, 20), axis=0)[m : 3000 - m].mean(axis=0)
        return query.bounded(g).mean(axis=0)

    expected = reference(clean_X, clean_y, 3, 0.8, bound)
    found = []
    for rows in (None, 700):
        with nobody_asks():  # delta is large here
            found.append(private.fit(Dataset.from_arrays(X=X, y=y, partition_rows=rows)).coef_)
    assert np.allclose(found[0], expected, atol=0.02) and np.array_equal(*found)
    assert len(private.history_) == 3 and private.solver_ == "gradient" and private.n_iter_ == 3


def chosen(**options) -> RobustDescent:
    return model(**{"second_moment": 40.0, **options})._method_for(100_000, 10)


def test_the_scale_and_the_clip_are_those_of_the_formulas():
    mu, v, n, d, T = gdp_mu(1.0, 1e-5), 40.0, 100_000, 10, 3
    K = math.log(2 / 0.05) + 4 * math.sqrt(2) / 3 * math.sqrt(d * T) / mu
    found = chosen(gradient="truncate")
    assert isinstance(found.query.bounded, SoftTruncation) and found.step == 0.8
    assert found.query.bounded.scale == pytest.approx(0.5 * math.sqrt(n * v / (2 * K)))
    assert isinstance(chosen(gradient="smooth-truncate").query.bounded, SmoothTruncation)
    assert chosen(gradient="truncate", scale=7.0, second_moment=None).query.bounded.scale == 7.0
    clip = chosen(gradient="norm").query.clip_norm
    assert clip == pytest.approx(0.5 * math.sqrt(d * v) * math.sqrt(n * mu / math.sqrt(T * d)))
    trimmed = chosen(gradient="trim")
    each = trimmed.mechanism
    assert trimmed.query.limit == math.sqrt(v * n) and each.size == d
    m = trimmed_count(n, trimmed.query.t)
    assert trimmed.query.n_trimmed == m and trimmed._divisor == n - 2 * m


def test_a_clip_norm_or_a_row_norm_alone_is_plain_gradient_descent():
    for second_moment in (None, 2.0):
        stated = model("norm", row_norm=1.0, clip_norm=3.0, second_moment=second_moment)
        method = stated._decided(stated._public(1000, 3))
        assert not isinstance(method, RobustDescent)


def test_more_rounds_read_less_of_each_row_and_more_rows_more():
    scales = [chosen(gradient="truncate", n_rounds=T).query.bounded.scale for T in (3, 30)]
    assert scales[0] > scales[1]
    sampled = chosen(gradient="truncate", rows="sample", n_rounds=None)
    assert sampled.n_rounds == 200 and sampled.tail == 0.5 and sampled.query.bounded.scale < scales[0]


def test_the_constant_feature_is_as_large_as_a_usual_one():
    """With features of size 10 and a bound of 30, the intercept comes back in the units of the labels."""
    X, y, w = heavy(50_000, 3, 0, False)
    options = {"feature_bound": 30.0, "second_moment": 4000.0, "epsilon": 50.0, "delta": 1e-5}
    found = LinearRegression(
        alpha=0.0, solver="gradient", gradient="truncate", random_state=0, cluster="threads", **options
    ).fit(X * 10, y + 2.0)
    assert found.intercept_ == pytest.approx(2.0, abs=0.3) and np.allclose(found.coef_ * 10, w, atol=0.3)


def test_logistic_regression_with_heavy_features():
    rng = np.random.default_rng(0)
    X = rng.standard_t(4, (30_000, 5)) / math.sqrt(2)
    w = np.array([1.2, -1.2, 0.9, 0.0, 0.0])
    y = (rng.random(30_000) < 1 / (1 + np.exp(-X @ w))).astype(int)
    options = {"classes": [0, 1], "solver": GradientDescent(n_rounds=10), "epsilon": 1.0, "delta": 1e-6, "alpha": 1e-3}
    for gradient, extra in (("truncate", {"second_moment": 0.2}), ("trim", {"second_moment": 0.2})):
        found = LogisticRegression(gradient=gradient, random_state=0, cluster="threads", **options, **extra).fit(X, y)
        assert found.score(X, y) > 0.72  # the truth: 0.75


def test_predictions_are_near_what_happens():
    predicted = model("truncate", second_moment=40.0, n_rounds=5).outlook(100_000, 10).predicted_error
    distance = math.sqrt(2 * predicted)
    assert 0.5 * distance < error(100_000, 3, False, gradient="truncate") < 2 * distance
    for options in ({"gradient": "norm"}, {"gradient": "trim"}, {"gradient": "truncate", "rows": "sample"}):
        look = model(**options, second_moment=40.0, n_rounds=None).outlook(100_000, 10)
        assert 1e-4 < look.predicted_error < 0.2
    assert model("trim", scale=9.0).outlook(100_000, 10).predicted_error is None


@pytest.mark.parametrize(
    ("options", "exception"),
    [
        ({"gradient": "truncate"}, MissingBound),
        ({"gradient": "trim"}, MissingBound),
        ({"gradient": "trim", "scale": 1.0, "rows": "sample"}, BudgetError),
        ({"gradient": "trim", "scale": 1.0, "neighbours": "add-or-remove-one", "n_public": 9}, BudgetError),
        ({"gradient": "trim", "scale": 1.0, "n_public": 9}, BudgetError),
        ({"gradient": "truncate", "scale": 1.0, "delta": 0.0}, BudgetError),
        ({"gradient": "huber", "second_moment": 1.0}, BudgetError),
        ({"gradient": "truncate", "scale": 1.0, "rows": "split"}, BudgetError),
    ],
)
def test_what_cannot_be_is_refused(options, exception):
    with pytest.raises(exception):
        model(**options).fit(np.zeros((20, 2)), np.zeros(20))


def test_queries_are_of_the_kind_that_was_asked_for():
    assert isinstance(chosen(gradient="trim").query, TrimmedGradientSum)
    query = chosen(gradient="truncate").query
    assert isinstance(query, CoordinateGradientSum) and query.loss == Squared()
    assert chosen(gradient="truncate").problem.penalty is None
    options = {"solver": "gradient", "gradient": "truncate", "second_moment": 1.0, "delta": 1e-6}
    assert Minimizer("squared", ElasticNet(1.0), **options)._method_for(1000, 3).step == 0.4
