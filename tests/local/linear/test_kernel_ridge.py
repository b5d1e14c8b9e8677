"""`local.KernelRidge`: what is promised of every method, and how it fares on the acceptance tables."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dpdist import Dataset
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.local import KernelRidge
from dpdist.local.statistics.feature_maps import Fourier
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.randomness.draws import SystemDraws

KINDS = {"public-covariance": {}, "statistics": {}, "vector": {"delta": 1e-7}}


def curve(X: np.ndarray) -> np.ndarray:
    return 0.7 * np.sin(3 * X[:, 0]) * np.cos(2 * X[:, -1])


def problem(n: int, seed: int, d: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d))
    return X, curve(X) + 0.1 * rng.normal(size=n)


def model(kind: str, **changes):
    options = {
        "bandwidth": 0.7,
        "label_bound": 1.0,
        "epsilon": 2.0,
        "random_state": 0,
        **KINDS.get(kind, {}),
        **changes,
    }
    return KernelRidge(kind, **options)


def error(fitted: KernelRidge, seed: int = 1000) -> float:
    """Mean squared error for the curve without noise; zeros have .0805."""
    X, _ = problem(20_000, seed, fitted.n_features_in_)
    return float(np.mean((fitted.predict(X) - curve(X)) ** 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partition_rows", [1000, 9000])
def test_coefficients_do_not_depend_on_the_partitions(kind, partition_rows, tmp_path):
    X, y = problem(9000, 0, d=2)
    stored = Dataset.from_arrays(tmp_path / "a.zarr", X=X, y=y, partition_rows=partition_rows)
    ours = model(kind, n_components=6, ledger=Ledger(":memory:")).fit(stored, public_X=X[:50])
    assert (ours.coef_ == model(kind, n_components=6).fit(X, y, public_X=X[:50]).coef_).all()


@pytest.mark.parametrize("kind", KINDS)
def test_any_record_sends_a_valid_report(kind):
    X = np.ones((9, 2))
    X[0, 0], X[1, 1], X[2], X[3], X[4], X[5] = np.nan, np.inf, 1e300, 0.0, 5e-324, 1.7e308
    y = np.array([1.0, 1.0, -1e300, 1.0, 1.0, 1.0, np.nan, -np.inf, 3.0])
    protocol = model(kind).protocol(1000, 2)
    with np.errstate(all="raise", under="ignore"):
        values = protocol.statistic.values({"X": X, "y": y})
        assert protocol.randomiser.valid(protocol.randomise({"X": X, "y": y}, SystemDraws())).all()
    assert (np.linalg.norm(values, axis=1) <= 1 + 1e-9).all() and not values[[0, 1, 6, 7]].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        delta = 1e-3 if "delta" in KINDS[kind] else None
        assert np.isfinite(model(kind, delta=delta).fit(X, y, public_X=np.ones((3, 2))).coef_).all()


def test_features_are_public_and_their_number_follows_the_noise():
    def size(n: int, d: int, epsilon: float) -> int:
        return model("statistics", epsilon=epsilon).protocol(n, d).statistic.features.n_components

    assert size(200_000, 1, 1.0) == 20 and size(200_000, 2, 4.0) == 40 and size(10**9, 50, 4.0) == 100
    assert size(50_000, 1, 1.0) == 16 and size(10, 1, 0.1) == 2
    X, y = problem(3000, 0)
    fitted = model("statistics", feature_seed=7).fit(X, y)
    assert fitted.features_ == Fourier(1, 2, 0.7, 7) or fitted.features_.seed == 7
    other = model("statistics", feature_seed=8).fit(X, y)
    assert (fitted.features_(X) != other.features_(X)).any()
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict(X[:9]) == fitted.predict(X[:9])).all()
    assert clone(fitted).get_params() == fitted.get_params()


def test_without_noise_it_is_kernel_ridge_regression():
    X, y = problem(30_000, 0)
    public = problem(30_000, 1)[0]
    phi = Fourier(1, 10, 0.7, 3)(X)
    expected = np.linalg.solve(phi.T @ phi / len(X) + 0.01 * np.eye(10), phi.T @ y / len(X))
    for kind in KINDS:
        fitted = model(kind, epsilon=2000.0, n_components=10, alpha=0.01, feature_seed=3).fit(X, y, public_X=public)
        ours = Fourier(1, 10, 0.7, 3)(public) @ fitted.coef_
        assert np.abs(ours - Fourier(1, 10, 0.7, 3)(public) @ expected).max() < 0.05, kind


def test_auto_and_errors():
    X, y = problem(3000, 0)
    assert model("auto").fit(X, y, public_X=X[:99]).method_ == "public-covariance"
    assert model("auto").fit(X, y).method_ == "statistics"
    with pytest.raises(MissingBound, match="label_bound is missing"):
        KernelRidge().fit(X, y)
    with pytest.raises(DataError, match="public_X=rows"):
        model("public-covariance").fit(X, y)
    with pytest.raises(BudgetError, match="delta > 0"):
        model("vector", delta=None).fit(X, y)
    with pytest.raises(BudgetError, match="even"):
        model("statistics", n_components=7).fit(X, y)
    with pytest.raises(BudgetError, match="fidelity='report'"):
        model("statistics", fidelity="sum").fit(X, y)
    assert model("vector", fidelity="sum").fit(X, y).guarantee_.delta == 1e-7


def average(kind: str, n: int, epsilon: float, seeds: int, **options) -> float:
    found = []
    for seed in range(seeds):
        X, y = problem(n, seed)
        fitted = model(kind, epsilon=epsilon, feature_seed=seed, random_state=seed, **options)
        found.append(error(fitted.fit(X, y, public_X=problem(20_000, 100 + seed)[0])))
    return float(np.mean(found))


def test_public_covariance_on_the_acceptance_table():
    assert average("public-covariance", 200_000, 1.0, seeds=6) < 0.057


@pytest.mark.slow
def test_statistics_on_the_acceptance_table():
    assert average("statistics", 200_000, 1.0, seeds=6) < 0.07


@pytest.mark.slow
def test_the_printed_kind_of_report_needs_more():
    """Reported .055 at epsilon = 4; with the sums drawn directly."""
    found = average("vector", 200_000, 4.0, seeds=6, fidelity="sum", delta=1e-6)
    assert average("public-covariance", 200_000, 4.0, seeds=3) < found < 0.075
