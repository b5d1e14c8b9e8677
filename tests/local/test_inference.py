"""How sure means and regressions of the local model are."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.errors import NoIntervals
from dpdist.local import GeneralizedLinearModel, Histogram, LinearRegression, Mean
from dpdist.local.linear.regression import ProjectedRecords
from tests.estimators.quick_oracle import quick_fit

N = 20_000
W = np.array([0.5, -0.2, 0.1])


def rows(rng, n=N):
    return rng.uniform(-1, 1, (n, 3)) / np.sqrt(3)


def box(seed, rng):
    model = Mean("box", low=-1.0, high=1.0, epsilon=1.0, random_state=seed)
    return model.fit(rng.uniform(-0.5, 1.0, (N, 3))), np.full(3, 0.25)


def sphere(seed, rng):
    return Mean("l2", radius=1.0, epsilon=1.0, random_state=seed).fit(rows(rng) / 2 + 0.1), np.full(3, 0.1)


def least_squares(seed, rng, **kwargs):
    X = rows(rng, 2 * N)
    known = {"row_norm": 1.0, "label_bound": 1.0, "l1_radius": 20.0, "alpha": 0.0, "epsilon": 2.0}
    model = LinearRegression(**{**known, **kwargs}, random_state=seed)
    return model.fit(X, X @ W + 0.1 * rng.normal(size=len(X)), public_X=rows(rng)), W


def logistic(seed, rng, **kwargs):
    X = rng.normal(size=(2 * N, 3))
    y = np.where(X @ (2 * W) + 0.3 + rng.logistic(size=len(X)) > 0, 1, -1)
    model = GeneralizedLinearModel("logistic", **{"epsilon": 2.0, **kwargs}, random_state=seed)
    return model.fit(X, y, public_X=rng.normal(size=(8000, 3))), np.append(2 * W, 0.3)


@pytest.mark.parametrize("fitted", [box, sphere, least_squares, logistic])
def test_intervals_contain_the_truth(fitted):
    """Of 12 fits with fixed seeds; where the errors are a third of what they should be, three of ten do."""
    z = []
    for seed in range(12):
        model, truth = fitted(seed, np.random.default_rng(seed))
        table = model.summary().rows
        z += [(row["coefficient"] - true) / row["standard_error"] for row, true in zip(table, truth, strict=True)]
        assert model.standard_errors_.shape == (3,)
    assert (np.abs(z) < 1.96).mean() > 0.85 and 0.6 < np.std(z) < 1.35


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"alpha": None}, r"the l1 penalty alpha=.* With alpha=0 there would be"),
        ({"l1_radius": 0.3}, r"edge of the ball of l1_radius=0\.3"),
        ({"method": ProjectedRecords(n_projections=2), "delta": 1e-6}, "With method='statistics' there would be"),
    ],
)
def test_a_regression_that_moves_its_coefficients_says_so(kwargs, says):
    model, _ = least_squares(0, np.random.default_rng(0), **kwargs)
    with pytest.raises(NoIntervals, match=says):
        model.confidence_intervals()


def test_a_direction_has_no_intervals_and_a_mean_of_groups_has_none():
    X = rows(np.random.default_rng(0))
    model = GeneralizedLinearModel("logistic", radius=3.0, row_norm=1.0, epsilon=2.0, random_state=0)
    with pytest.raises(NoIntervals, match=r"With method='statistics' or 'public-covariance', of .* there would be"):
        model.fit(X, np.where(X[:, 0] > 0, 1, -1)).summary()
    with pytest.raises(NoIntervals, match="With n_groups=1"):
        Mean("box", low=-1.0, high=1.0, n_groups=3, random_state=0).fit(X).standard_errors_  # noqa: B018
    with pytest.raises(NoIntervals, match="With domain='l2'"):
        Mean("l1", radius=1.0, l1_radius=1.0, random_state=0).fit(X).standard_errors_  # noqa: B018


def test_a_direction_that_is_mostly_noise_has_no_intervals():
    model, _ = logistic(0, np.random.default_rng(0), epsilon=0.05)
    with pytest.raises(NoIntervals, match="With more users, or a larger epsilon, there would be"):
        model.summary()


def test_a_single_sign_varies_by_no_more_than_its_size():
    X = np.full((N, 1), 0.999)
    model = Mean("interval", method="one-bit", low=-1.0, high=1.0, epsilon=4.0, random_state=0).fit(X)
    assert model.standard_errors_[0] < 0.5 * model.standard_error_


SHARES = np.array([0.6, 0.3, 0.08, 0.02])


def votes(rng, n, **kwargs):
    model = Histogram(4, epsilon=3.0, **kwargs)
    return quick_fit(model, rng.choice(4, size=n, p=SHARES), None, rng)


@pytest.mark.parametrize("method", ["krr", "oue", "hadamard-response", "subset-selection"])
def test_intervals_of_frequencies_cover_the_shares_of_the_law(method):
    """Of 250 fits of fixed seeds; over fresh ones 1000 intervals leave .95 by .04 with less than 1e-6.

    The control counts the noise of reports alone: at epsilon 3 users vary as much.
    """
    rng, z, bare = np.random.default_rng(5), [], []
    for _ in range(250):
        model = votes(rng, 2000, method=method)
        off = model.unbiased_frequencies_ - SHARES
        z.append(off / model.standard_errors_)
        bare.append(off / model.standard_error_)
    assert abs((np.abs(z) < 1.96).mean() - 0.95) < 0.03
    if method == "krr":
        assert (np.abs(bare) < 1.96).mean() < 0.92


def test_frequencies_are_tested_one_by_one_and_few_reports_are_refused():
    rng = np.random.default_rng(0)
    model = votes(rng, 3000)
    assert model.wald_test([1, 0, 0, 0], [0.6]).p_value > 1e-4 > model.wald_test([1, 0, 0, 0], [0.3]).p_value
    with pytest.raises(NoIntervals, match="test them one by one"):
        model.wald_test([1, -1, 0, 0])
    assert [row["name"] for row in model.summary().rows] == ["0", "1", "2", "3"]
    rare = Histogram(categories=["a", "b", "c"], epsilon=9.0, random_state=0).fit(["a", "b"] * 500)
    with pytest.raises(NoIntervals, match=r"support the rarest category.* With more users or a smaller epsilon"):
        rare.summary()


def test_levels_of_privacy_count_by_their_weights():
    rng, z = np.random.default_rng(2), []
    for seed in range(60):
        model = Histogram(4, epsilon_levels=[1.0, 4.0], random_state=seed)
        model.fit(rng.choice(4, size=3000, p=SHARES), rng.choice([1.0, 4.0], size=3000))
        z.append((model.unbiased_frequencies_ - SHARES) / model.standard_errors_)
    assert 0.8 < np.std(z) < 1.2
