"""`local.Mean`: every domain and method, what is promised of it, and how it fares on the acceptance tables."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dpdist import Dataset
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.local import DensityQueries, Mean, RiskSurface
from dpdist.local.mean.mean_methods import (
    GaussianProjected,
    GaussianReports,
    HybridReports,
    OneBitReports,
    SampledCoordinates,
)
from dpdist.local.mean.small_l1_norm import Projected, denoise, n_projections
from dpdist.privacy.ledger.ledger import Ledger

D6 = {"delta": 1e-6}
KINDS = {
    "interval/hybrid": ("interval", "auto", 1, {"low": -1.0, "high": 3.0}),
    "interval/one-bit": ("interval", "one-bit", 1, {"low": -1.0, "high": 3.0}),
    "interval/piecewise": ("interval", "piecewise", 1, {"low": -1.0, "high": 3.0}),
    "interval/laplace": ("interval", "laplace", 1, {"low": -1.0, "high": 3.0}),
    "interval/gaussian": ("interval", "gaussian", 1, {"low": -1.0, "high": 3.0, **D6}),
    "box": ("box", "auto", 5, {"low": -1.0, "high": 3.0}),
    "box/one column": ("box", "auto", 1, {"low": -1.0, "high": 3.0}),
    "box/one-bit": ("box", "one-bit", 5, {"low": -1.0, "high": 3.0}),
    "box/two": ("box", SampledCoordinates(n_sampled=2), 5, {"low": -1.0, "high": 3.0}),
    "l2": ("l2", "auto", 5, {"radius": 6.0}),
    "l2/one column": ("l2", "auto", 1, {"radius": 3.0}),
    "l2/many": ("l2", "auto", 60, {"radius": 20.0}),
    "l2/privunitg": ("l2", "privunitg", 5, {"radius": 6.0}),
    "l2/hemisphere": ("l2", "hemisphere", 5, {"radius": 6.0}),
    "l2/gaussian": ("l2", "gaussian", 5, {"radius": 6.0, **D6}),
    "heavy-tailed": ("heavy-tailed", HybridReports(scale=30.0), 1, {}),
    "heavy-tailed/vector": ("heavy-tailed", HybridReports(scale=30.0), 5, {}),
    "heavy-tailed/one-bit": ("heavy-tailed", OneBitReports(scale=30.0), 5, {}),
    "heavy-tailed/gaussian": ("heavy-tailed", GaussianReports(scale=30.0), 5, D6),
}


def rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 2.5, size=(n, d))


def sparse(n: int, d: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of norm 1 about a mean of k entries 1/k."""
    mean = np.zeros(d)
    mean[:k] = 1 / k
    rng = np.random.default_rng(seed)
    spread = math.sqrt(max(0.5 - mean @ mean, 0.0) / d)
    X = mean + spread * rng.normal(size=(n, d)) if spread else np.tile(mean, (n, 1))
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None], mean


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_within_the_stated_error(kind):
    """Six standard errors of every entry, and a mean square over 8 fits that is as stated."""
    domain, method, d, public = KINDS[kind]
    n = 20_000
    X = rows(n, d)
    errors = []
    for seed in range(8):
        model = Mean(domain, method, **public, epsilon=3.0, random_state=seed, cluster="threads").fit(X)
        errors.append(model.mean_ - X.mean(axis=0))
    bias = 5e-3 if domain == "heavy-tailed" else 0.0  # of phi(x / 30), for x up to 2.5
    assert np.abs(errors).max() < 6 * model.standard_error_ + bias
    assert math.sqrt(np.mean(np.square(errors))) < model.standard_error_ * (1 + 6 / math.sqrt(16 * d)) + bias
    assert model.method_ != "auto" and model.method_reason_
    assert model.guarantee_.epsilon == pytest.approx(3.0) and model.guarantee_.delta == public.get("delta", 0.0)
    assert model.mean_.shape == (d,) and model.n_features_in_ == d and model.fidelity_ == "report"


@pytest.mark.parametrize("kind", [k for k in KINDS if "gaussian" in k])
def test_sums_instead_of_reports(kind):
    domain, method, d, public = KINDS[kind]
    X = rows(20_000, d)
    model = Mean(domain, method, **public, fidelity="sum", random_state=0, cluster="threads").fit(X)
    assert np.abs(model.mean_ - X.mean(axis=0)).max() < 6 * model.standard_error_ + 5e-3 and model.fidelity_ == "sum"


@pytest.mark.parametrize("kind", ["interval/hybrid", "box", "l2"])
def test_sums_are_refused_where_their_law_is_not_known(kind):
    domain, method, d, public = KINDS[kind]
    with pytest.raises(BudgetError, match="fidelity"):
        Mean(domain, method, **public, fidelity="sum").fit(rows(100, d))


@pytest.mark.parametrize("kind", ["interval/hybrid", "box", "l2", "l2/many", "heavy-tailed/vector"])
def test_bad_records_change_nothing_but_their_own_report(kind):
    domain, method, d, public = KINDS[kind]
    X = rows(20_000, d)
    spoiled = X.copy()
    spoiled[:100] = np.nan
    spoiled[100:150, 0] = np.inf
    spoiled[150:200] = 1e300
    spoiled[200:250, -1] = -np.inf
    fits = []
    for data in (X, spoiled):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fits.append(Mean(domain, method, **public, random_state=1, cluster="threads").fit(data))
    assert np.isfinite(fits[1].mean_).all()
    assert np.abs(fits[0].mean_ - fits[1].mean_).max() < 250 / 20_000 * 50 * fits[0].standard_error_ * math.sqrt(20_000)


def test_a_stored_dataset_in_any_partitions_gives_the_same_bits(tmp_path):
    X = rows(9000, 6)
    found = set()
    for i, partition_rows in enumerate((900, 4096, 9000)):
        stored = Dataset.from_arrays(tmp_path / f"{i}.zarr", X=X, partition_rows=partition_rows)
        model = Mean("l2", radius=5.0, random_state=3, ledger=Ledger(":memory:")).fit(stored)
        found.add(model.mean_.tobytes())
    assert len(found) == 1


def test_a_user_is_charged_for_one_report(tmp_path):
    stored = Dataset.from_arrays(tmp_path / "a.zarr", X=rows(2000, 3))
    ledger = Ledger(tmp_path / "ledger")
    model = Mean("box", low=-1.0, high=3.0, epsilon=0.7, n_groups=4, ledger=ledger).fit(stored)
    assert model.guarantee_.epsilon == pytest.approx(0.7) and len(model.releases_) == 4
    assert model.plan(2000, 3).spent.epsilon == pytest.approx(0.7)


def test_the_device_runs_the_protocol_of_the_fit():
    model = Mean("box", low=0.0, high=1.0, epsilon=6.0)
    protocol = model.protocol(n_rows=10_000, n_features=9)
    assert protocol.randomiser.k == 2 and protocol.cost.parameter == 6.0
    heavy = Mean("heavy-tailed", second_moment=4.0).protocol(10_000, 1)
    noise = heavy.statistic.radius * heavy.noise_std / math.sqrt(10_000)
    assert noise == pytest.approx(4.0 / (2 * heavy.statistic.scale))  # as much as the bias can be


def test_wrong_parameters_are_refused_before_any_row_is_read():
    X = rows(50, 3)
    wrong = [
        ({"domain": "sphere"}, BudgetError),
        ({"domain": "box", "method": "privunit", "low": 0.0, "high": 1.0}, BudgetError),
        ({"domain": "box"}, MissingBound),
        ({"domain": "box", "low": 1.0, "high": 0.0}, MissingBound),
        ({"domain": "box", "low": math.nan, "high": 0.0}, BudgetError),
        ({"domain": "box", "low": 0.0, "high": 1.0, "method": SampledCoordinates(n_sampled=7)}, BudgetError),
        ({"domain": "box", "low": 0.0, "high": 1.0, "method": OneBitReports(scale=1.0)}, BudgetError),
        ({"domain": "box", "low": 0.0, "high": 1.0, "epsilon": 0.0}, BudgetError),
        ({"domain": "interval", "low": 0.0, "high": 1.0}, DataError),
        ({"domain": "l2"}, MissingBound),
        ({"domain": "l2", "radius": -1.0}, MissingBound),
        ({"domain": "l2", "method": "gaussian", "radius": 1.0}, BudgetError),
        ({"domain": "l1", "method": "projected", "radius": 1.0}, MissingBound),
        ({"domain": "heavy-tailed"}, MissingBound),
        ({"domain": "l2", "radius": 1.0, "n_groups": 0}, BudgetError),
        ({"domain": "l2", "radius": 1.0, "n_groups": 51}, BudgetError),
        ({"domain": "l2", "method": "hybrid", "radius": 1.0}, BudgetError),
        ({"domain": "l1", "method": "projected", "radius": 1.0, "l1_radius": 1.0, "epsilon": math.inf}, BudgetError),
        ({"domain": "l2", "radius": 1.0, "fidelity": "mood"}, BudgetError),
    ]
    for parameters, error in wrong:
        with pytest.raises(error):
            Mean(**parameters).fit(X)
    with pytest.warns(UserWarning, match="delta"):
        Mean("l2", "gaussian", radius=1.0, delta=0.1, random_state=0).fit(X)


def test_scikit_learn_conventions():
    model = Mean("l2", radius=1.0, epsilon=2.0)
    again = clone(model)
    assert again.get_params() == model.get_params() and again is not model
    assert again.set_params(epsilon=3.0).epsilon == 3.0


# -- small l1 norm -----------------------------------------------------------------------------------------------------


def test_projections_are_unit_length_on_average_and_never_longer_than_their_bound():
    statistic = Projected(300, 40, radius=2.0, seed=5)
    X = np.random.default_rng(0).normal(size=(2000, 300))
    X *= 2.0 / np.linalg.norm(X, axis=1)[:, None]
    values = statistic.values({"X": X})
    exact = X @ statistic.matrix.T
    inside = np.linalg.norm(exact, axis=1) <= statistic.unit * (1 - 1e-6)
    assert inside.mean() > 0.95
    assert np.allclose(statistic.restore(values)[inside], exact[inside], atol=1e-4)
    worst = np.linalg.svd(statistic.matrix)[2][0] * 2.0  # the vector that knows G
    assert np.linalg.norm(statistic.matrix @ worst) > 2 * statistic.unit
    assert np.linalg.norm(statistic.values({"X": worst[None]})) <= 1.0


def test_projections_do_not_depend_on_how_many_rows_are_taken_together():
    statistic = Projected(700, 50, seed=1)
    X = np.random.default_rng(0).normal(size=(64, 700))
    whole = statistic.values({"X": X})
    assert all((statistic.values({"X": X[i : i + m]}) == whole[i : i + m]).all() for i, m in ((0, 1), (3, 7), (10, 33)))
    assert not (Projected(700, 50, seed=2).matrix == statistic.matrix).any()
    assert (Projected(500, 50, seed=1).matrix * 1.0 == statistic.matrix[:, :500]).all()


def test_how_many_projections():
    assert n_projections(20_000, 500, 1.0, 1.0) == 142 and n_projections(50_000, 2000, 1.0, 2.0) == 448
    assert n_projections(10**6, 500, 1.0, 1.0) == 500


def test_denoising_keeps_what_sticks_out():
    mean = np.array([0.5, -0.4, 0.02, -0.01, 0.0])
    assert (np.flatnonzero(denoise(mean, None, 0.02)) == [0, 1]).all()
    assert np.abs(denoise(mean * 2, 1.0, 0.02)).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["direct", "projected", "projected-gaussian"])
def test_sparse_means(method):
    X, mean = sparse(20_000, 300, 2, seed=0)
    delta = 1e-6 if method == "projected-gaussian" else None
    model = Mean("l1", method, radius=1.0, l1_radius=1.0, epsilon=4.0, delta=delta, random_state=0).fit(X)
    assert np.linalg.norm(model.mean_ - mean) < (0.15 if delta else 0.05)
    assert np.abs(model.mean_).sum() <= 1 + 1e-9


def test_groups_that_lie_do_not_move_the_mean():
    """A third of the users poison their records; the mean of all follows them, the group in the middle does not."""
    X = rows(60_000, 4)
    X[:18_000] = 2.9
    plain, groups = (
        Mean("box", low=-1.0, high=3.0, epsilon=4.0, n_groups=m, random_state=0).fit(X).mean_ for m in (1, 9)
    )
    assert np.abs(plain - 1.0).max() > 0.4 and np.abs(groups - 1.0).max() < 0.2


# -- acceptance tables -------------------------------------------------------------------------------------------------


def heavy_error(method: str, seeds: int, **options: float) -> float:
    errors = []
    for seed in range(seeds):
        X = np.random.default_rng(seed).normal(0.5, 1.0, size=(100_000, 1))
        model = Mean("heavy-tailed", method, second_moment=1.25, epsilon=1.0, random_state=seed, **options).fit(X)
        errors.append(model.mean_[0] - 0.5)
    return math.sqrt(np.mean(np.square(errors)))


def test_heavy_tailed_means_are_as_good_as_in_the_tables():
    """Normal numbers of which only the second moment is told: root mean square over 8 fits, as published + 50 %."""
    assert heavy_error("auto", 8) < 0.11
    assert heavy_error("gaussian", 8, delta=1e-6) < 0.18


def test_sparse_means_are_as_good_as_in_the_tables():
    errors = []
    for seed in range(5):
        X, mean = sparse(20_000, 500, 2, seed)
        model = Mean("l1", radius=1.0, l1_radius=1.0, epsilon=1.0, random_state=seed).fit(X)
        errors.append(np.linalg.norm(model.mean_ - mean))
    assert np.mean(errors) < 0.072  # 0 is off by 0.71


@pytest.mark.slow
def test_projected_means_are_as_good_as_in_the_tables():
    errors = []
    X, mean = sparse(50_000, 2000, 2, 0)  # without spread, so it is the same for all seeds
    for seed in range(5):
        model = Mean(
            "l1", GaussianProjected(seed=seed), radius=1.0, l1_radius=1.0, epsilon=2.0, delta=1e-6, random_state=seed
        ).fit(X)
        errors.append(np.linalg.norm(model.mean_ - mean))
    assert np.mean(errors) < 0.14


# -- many users --------------------------------------------------------------------------------------------------------

STREAM = """
import resource, sys
import numpy as np, zarr
from dpdist.data import Dataset
from dpdist.local import Mean
from dpdist.privacy.ledger.ledger import Ledger

path, out = sys.argv[1:]
model = Mean("box", low=-1.0, high=1.0, epsilon=1.0, random_state=0, ledger=Ledger(":memory:"), cluster="threads")
import dpdist.engine.coordinator as coordinator
coordinator.RESIDENT_SHARE = 0.0  # read from the store, as if it did not fit into memory
model.fit(Dataset.open(path))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, *model.mean_)
"""


# -- many users --------------------------------------------------------------------------------------------------------


def write_users(store: str, n: int) -> None:
    """n users with 50 signs each, positive with probabilities from 0.2 to 0.8, in partitions of 65 536 rows."""
    import dask.array as da

    chance = np.linspace(0.2, 0.8, 50, dtype=np.float32)

    def signs(block_info: dict) -> np.ndarray:
        place = block_info[None]
        draws = np.random.default_rng(place["chunk-location"][0]).random(place["chunk-shape"], dtype=np.float32)
        return np.where(draws < chance, np.float32(1), np.float32(-1))

    chunks = (da.core.normalize_chunks(65_536, (n,))[0], (50,))
    Dataset.from_arrays(store, X=da.map_blocks(signs, chunks=chunks, dtype=np.float32), partition_rows=65_536)


def fit_and_print_peak(store: str, **options: object) -> None:
    """Read from the store in two threads, as if it did not fit into memory."""
    import resource
    import time

    import dask

    import dpdist.engine.coordinator as engine

    engine.RESIDENT_SHARE = 0.0
    model = Mean(**options, epsilon=1.0, random_state=0, ledger=Ledger(":memory:"), cluster="threads")
    start = time.perf_counter()
    with dask.config.set(num_workers=2):
        model.fit(Dataset.open(store))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    error = np.abs(model.mean_ - np.linspace(-0.6, 0.6, 50)).max() / model.standard_error_
    print(json.dumps({"peak": peak, "error": error, "seconds": seconds}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"domain": "box", "low": -1.0, "high": 1.0}, {"domain": "l2", "radius": 8.0}], ids=lambda o: o["domain"]
)
def test_ten_million_users_in_constant_memory(options, tmp_path):
    """50 means, every report drawn; four times as many users take no more memory."""
    found = {}
    for n in (2_500_000, 10_000_000):
        store = str(tmp_path / "users.zarr")
        for step in (f"write_users({store!r}, {n})", f"fit_and_print_peak({store!r}, **{options!r})"):
            code = f"from tests.local.mean.test_columns import *; {step}"
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        found[n] = json.loads(done.stdout.splitlines()[-1])
        shutil.rmtree(store)
    print(found)
    assert found[10_000_000]["peak"] < 1.1 * found[2_500_000]["peak"] + 20
    assert max(run["error"] for run in found.values()) < 6


@pytest.mark.parametrize("kind", [Mean, RiskSurface, DensityQueries])
@pytest.mark.parametrize("low", [[18, 0], (0.0,), np.zeros(2)], ids=repr)
def test_a_range_for_each_column_is_declared_with_the_table(kind, low):
    with pytest.raises(BudgetError, match=r"low is one number for all columns.*dpdist ingest --range"):
        kind(low=low, high=65.0).plan(1000, 2)
    with pytest.raises(BudgetError, match=r"high is one number for all columns.*low=-1\.0, high=1\.0"):
        kind(low=0.0, high=list(low)).plan(1000, 2)
