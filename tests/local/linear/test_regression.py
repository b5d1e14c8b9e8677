"""`local.LinearRegression`: what is promised of every method, and how it fares on the acceptance tables."""

from __future__ import annotations

import math
import pickle
import warnings
from contextlib import closing

import numpy as np
import pytest
from sklearn.base import clone

from dpdist import Dataset
from dpdist.errors import BudgetError, BudgetExceeded, DataError, MissingBound
from dpdist.local import LinearRegression
from dpdist.local.linear.regression import ProjectedRecords
from dpdist.local.statistics.feature_maps import Mapped
from dpdist.local.statistics.labelled import LabelledRow
from dpdist.privacy.accounting.closed_forms import gdp_delta
from dpdist.privacy.budget import Budget
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.randomness.draws import SystemDraws

KINDS = {
    "public-covariance": {},
    "statistics": {},
    "projected": {"delta": 1e-7},
    "projected/few": {"delta": 1e-7, "method": ProjectedRecords(n_projections=3)},
}


def problem(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of norm 1 whose first two columns are three times as large, coefficients (1/2, -1/2, 0, ...)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, :2] *= 3
    X /= np.linalg.norm(X, axis=1)[:, None]
    w = np.zeros(d)
    w[:2] = 0.5, -0.5
    return X, X @ w + 0.05 * rng.normal(size=n), w


def model(kind: str, **changes):
    options = {"row_norm": 1.0, "label_bound": 1.0, "epsilon": 2.0, "random_state": 0, **KINDS[kind], **changes}
    return LinearRegression(**{"method": kind, **options})


def excess(fitted: LinearRegression, w: np.ndarray, seed: int = 1000) -> float:
    X, _, _ = problem(20_000, len(w), seed)
    return float(0.5 * np.mean((X @ (fitted.coef_ - w)) ** 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partition_rows", [1000, 5000, 9000])
def test_coefficients_do_not_depend_on_the_partitions(kind, partition_rows, tmp_path):
    X, y, _ = problem(9000, 5, 0)
    stored = Dataset.from_arrays(tmp_path / "a.zarr", X=X, y=y, partition_rows=partition_rows)
    ours = model(kind, ledger=Ledger(":memory:")).fit(stored, public_X=X[:50])
    assert (ours.coef_ == model(kind).fit(X, y, public_X=X[:50]).coef_).all()


@pytest.mark.parametrize("kind", KINDS)
def test_any_record_sends_a_valid_report(kind):
    d = 5
    X = np.ones((8, d))
    X[0, 0], X[1, 1], X[2], X[3], X[4] = np.nan, np.inf, 1e300, 0.0, 5e-324
    y = np.array([1.0, 1.0, -1e300, 1.0, 1.0, np.nan, -np.inf, 3.0])
    protocol = model(kind).protocol(1000, d)
    with np.errstate(all="raise", under="ignore"):
        values = protocol.statistic.values({"X": X, "y": y})
        reports = protocol.randomise({"X": X, "y": y}, SystemDraws())
    assert protocol.randomiser.valid(reports).all() and reports.dtype.itemsize
    assert (np.linalg.norm(values, axis=1) <= 1 + 1e-9).all() and not values[[0, 1, 5, 6]].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        delta = 1e-3 if "delta" in KINDS[kind] else None
        assert np.isfinite(model(kind, delta=delta).fit(X, y, public_X=np.ones((3, d))).coef_).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_guarantee_is_that_of_the_method(kind, tmp_path):
    X, y, _ = problem(2000, 4, 0)
    data = Dataset.from_arrays(tmp_path / "a.zarr", X=X, y=y)
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        ledger.set_limit(data.id, Budget(3.0, 1e-6))
        fitted = model(kind, random_state=None, ledger=ledger).fit(data, public_X=X[:20])
        assert fitted.guarantee_.epsilon == 2.0 and fitted.guarantee_.model == "local"
        assert fitted.guarantee_.delta == (KINDS[kind].get("delta", 0.0))
        with pytest.raises(BudgetExceeded):
            model(kind, random_state=None, ledger=ledger).fit(data, public_X=X[:20])
        again = pickle.loads(pickle.dumps(fitted))
        assert (again.predict(X) == X @ fitted.coef_).all() and again.intercept_ == 0


def test_a_projection_that_stretches_a_row_is_cut():
    """A row that knows the public matrix would be longer than its noise hides (seed 001, Algorithms 2 and 3)."""
    protocol = model("projected/few").protocol(1000, 200)
    statistic = protocol.statistic
    assert isinstance(statistic, Mapped)
    projected = statistic.features.projected
    longest = np.linalg.svd(projected.matrix, full_matrices=False)[2][0]
    assert np.linalg.norm(projected.matrix @ longest) > 1.5 * projected.unit
    values = statistic.values({"X": longest[None], "y": np.ones(1)})
    assert np.linalg.norm(values) <= 1
    assert gdp_delta(2.0, 2 / protocol.randomiser.copy_std) <= 1e-7 * (1 + 1e-9)


def test_the_sums_can_be_drawn_where_their_law_is_known():
    X, y, _ = problem(20_000, 5, 0)
    assert model("projected", fidelity="sum", epsilon=50.0).fit(X, y).score(X, y) > 0.5
    for kind in ("public-covariance", "statistics"):
        with pytest.raises(BudgetError, match="fidelity='report'"):
            model(kind, fidelity="sum").fit(X, y, public_X=X)
    # the same problem, drawn both ways: entries of the estimate within the noise of each other
    protocol = model("projected").protocol(20_000, 5)
    found = []
    for fidelity in ("report", "sum"):
        fits = [model("projected", fidelity=fidelity, random_state=s, l1_radius=50.0, alpha=0.0) for s in range(40)]
        found.append([np.abs(fit.fit(X, y).coef_).sum() for fit in fits])
    assert protocol.has_sums
    spread = math.hypot(np.std(found[0]), np.std(found[1])) / math.sqrt(40)
    assert abs(np.mean(found[0]) - np.mean(found[1])) < 6 * spread


def test_without_noise_all_methods_find_the_coefficients():
    X, y, w = problem(40_000, 6, 3)
    public = problem(40_000, 6, 4)[0]
    for kind in ("public-covariance", "statistics", "projected"):
        fitted = model(kind, epsilon=500.0, alpha=0.0).fit(X, y, public_X=public)
        assert np.abs(fitted.coef_ - w).max() < 0.05, kind
    # in other units of features and labels
    fitted = model("statistics", epsilon=500.0, alpha=0.0, row_norm=10.0, label_bound=3.0, l1_radius=0.3)
    assert np.abs(fitted.fit(10 * X, 3 * y).coef_ - 0.3 * w).max() < 0.02


def test_auto_goes_by_public_rows_and_says_why():
    X, y, _ = problem(3000, 4, 0)
    with_rows = LinearRegression(row_norm=1.0, label_bound=1.0, random_state=0).fit(X, y, public_X=X[:99])
    without = LinearRegression(row_norm=1.0, label_bound=1.0, random_state=0).fit(X, y)
    assert (with_rows.method_, without.method_) == ("public-covariance", "statistics")
    assert with_rows.method_reason_ != without.method_reason_
    assert isinstance(model("public-covariance").protocol(9, 4).statistic, LabelledRow)
    assert with_rows.alpha_ == pytest.approx(with_rows.standard_error_ * math.sqrt(2 * math.log(8)))
    assert clone(with_rows).get_params() == with_rows.get_params()
    assert LinearRegression(row_norm=1.0, label_bound=1.0).plan(100, 4)


def test_errors_name_what_is_missing():
    X, y, _ = problem(100, 4, 0)
    with pytest.raises(MissingBound, match="row_norm is missing"):
        LinearRegression(label_bound=1.0).fit(X, y)
    with pytest.raises(MissingBound, match="label_bound is missing"):
        LinearRegression(row_norm=1.0).fit(X, y)
    with pytest.raises(DataError, match="public_X=rows"):
        model("public-covariance").fit(X, y)
    with pytest.raises(DataError, match="4 features"):
        model("public-covariance").fit(X, y, public_X=X[:, :3])
    with pytest.raises(DataError, match="not finite"):
        model("public-covariance").fit(X, y, public_X=X * np.nan)
    with pytest.raises(BudgetError, match="delta > 0"):
        model("projected", delta=None).fit(X, y)
    with pytest.raises(BudgetError, match="'auto', 'public-covariance'"):
        LinearRegression("gram", row_norm=1.0, label_bound=1.0).fit(X, y)
    with pytest.raises(BudgetError, match="alpha"):
        model("statistics", alpha=-1.0).fit(X, y)


def test_few_seeds_of_the_acceptance_table():
    """l1-linreg-gram at a larger epsilon and fewer features, to be quick; trivial .034 at d = 40, more at d = 10."""
    found = []
    for seed in range(3):
        X, y, w = problem(30_000, 10, seed)
        found.append(excess(model("statistics", epsilon=4.0, random_state=seed).fit(X, y), w))
    assert np.mean(found) < 0.1 * excess_of_zero(10)


def excess_of_zero(d: int) -> float:
    X, _, w = problem(20_000, d, 1000)
    return float(0.5 * np.mean((X @ w) ** 2))


@pytest.mark.slow
def test_public_covariance_on_the_acceptance_table():
    plain, default = [], []
    for seed in range(5):
        X, y, w = problem(200_000, 100, seed)
        public = problem(20_000, 100, 100 + seed)[0]
        fits = [
            model("public-covariance", epsilon=1.0, random_state=seed, alpha=a).fit(X, y, public_X=public)
            for a in (0.0, None)
        ]
        plain.append(excess(fits[0], w))
        default.append(excess(fits[1], w))
    assert np.mean(plain) < 0.0051
    assert np.mean(default) < 0.0080 < 0.5 * excess_of_zero(100)  # reported .0053


@pytest.mark.slow
def test_public_covariance_with_too_few_users_is_not_worse_than_zeros():
    for seed in range(5):
        X, y, w = problem(20_000, 100, seed)
        public = problem(20_000, 100, 100 + seed)[0]
        fitted = model("public-covariance", epsilon=1.0, random_state=seed).fit(X, y, public_X=public)
        assert excess(fitted, w) < 1.1 * excess_of_zero(100)


@pytest.mark.slow
def test_statistics_on_the_acceptance_table():
    found = []
    for seed in range(10):
        X, y, w = problem(100_000, 40, seed)
        found.append(excess(model("statistics", random_state=seed).fit(X, y), w))
    assert np.mean(found) < 0.0027


@pytest.mark.slow
def test_projections_are_no_better_than_zeros():
    """Reported .018 to .020, where zeros have .0175; the printed method is kept for comparison."""
    found = []
    for seed in range(5):
        X, y, w = problem(200_000, 100, seed)
        found.append(excess(model("projected", epsilon=4.0, random_state=seed, fidelity="sum").fit(X, y), w))
    assert 0.5 * excess_of_zero(100) < np.mean(found) < 1.2 * excess_of_zero(100)
