"""Releases of symmetric matrices: the same bits however they are made, one charge, and refusals before it."""

from __future__ import annotations

import json
import os
import signal
import time
import tracemalloc
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger
from dpdist.engine.query import Query
from dpdist.errors import BudgetError
from dpdist.estimators.row_maps import ClassCodes, features
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Logistic, Sigmoid
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import HessianSum, SecondMomentSum
from tests.processes import PROCESSES, worker_processes

ARRAYS = {"X": features, "y": ClassCodes((0, 1))}
W = np.array([1.0, -1.0, 0.5, 2.0, 0.0])
QUERIES: dict[str, tuple[Query, Any]] = {
    "moments": (SecondMomentSum(5, 1.0), None),
    "joined": (SecondMomentSum(5, 1.0, label_bound=1.0), None),
    "pairs": (SecondMomentSum(5, 1.0, paired=True), None),
    "hessian": (HessianSum(Sigmoid(), 1.0), W),
}


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_001, 5)) / 2 + 0.3
    X[7, 2], X[8000] = np.nan, 1e308
    return {"X": X, "y": (X[:, 0] > 0).astype(int)}


def releases(dataset: Dataset, ledger: Ledger | None = None, **options: Any) -> dict[str, np.ndarray]:
    options = {"cluster": "threads", "random_state": 5, "align": 2, **options}
    found = {}
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, ledger=ledger, **options) as run:
        plan = run.plan([Item(name, SymmetricGaussian()) for name in QUERIES])
        for name, (query, state) in QUERIES.items():
            found[name] = run.release(query, plan[name], state)
    return found


@pytest.fixture(scope="module")
def reference(rows) -> dict[str, np.ndarray]:
    return releases(Dataset.from_arrays(**rows))


def alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("partition_rows", [999, 4096, 20_001])
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("kept", ["resident", "streamed"])
def test_workers_chunks_and_streaming(rows, reference, tmp_path, monkeypatch, partition_rows, threads, kept):
    if kept == "streamed":
        monkeypatch.setattr("dpdist.engine.coordinator.RESIDENT_SHARE", 0.0)
        dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=partition_rows, **rows)
    else:
        dataset = Dataset.from_arrays(partition_rows=partition_rows, **rows)
    with dask.config.set(num_workers=threads):
        assert alike(releases(dataset), reference)


def test_worker_processes(rows, reference, tmp_path):
    dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=999, **rows)
    with worker_processes(2) as cluster:
        assert alike(releases(dataset, cluster=cluster), reference)


def test_the_values_are_those_of_numpy_with_noise(rows, reference):
    X = rows["X"][np.isfinite(rows["X"]).all(axis=1) & (abs(rows["X"]) < 1e300).all(axis=1)]
    clipped = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    found = unpack_symmetric(reference["moments"])
    assert abs(found - clipped.T @ clipped).max() < 6 * 2 * 4.3 * np.sqrt(2) + 2  # a quarter of mu^2 each
    assert unpack_symmetric(reference["joined"]).shape == (6, 6)


def test_a_fold_that_begins_in_the_middle_of_a_pair(rows):
    query = QUERIES["pairs"][0]

    def asked(partition_rows: int) -> np.ndarray:
        dataset = Dataset.from_arrays(partition_rows=partition_rows, **rows)
        fold = next(fold for fold in dataset.split(7) if fold.start % 2)
        options = {"cluster": "threads", "random_state": 5, "align": 2}
        with Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, **options) as run:
            plan = run.plan([Item("pairs", SymmetricGaussian(), fold=(fold.split_id, fold.index))])
            return run.release(query, plan["pairs"], rows=fold)

    assert np.array_equal(asked(1000), asked(3333))


REFUSED = {
    "a vector with symmetric noise": (GradientSum(Logistic(), 1.0, 1.0), SymmetricGaussian(), {}, "Frobenius norm"),
    "a matrix with noise of a vector": (HessianSum(Logistic(), 1.0), Gaussian(), {}, "bounds the Frobenius norm"),
    "pairs without alignment": (QUERIES["pairs"][0], SymmetricGaussian(), {"align": 1}, "align=2"),
    "pairs with an odd alignment": (QUERIES["pairs"][0], SymmetricGaussian(), {"align": 3}, "align=2"),
    "pairs where rows are added": (
        QUERIES["pairs"][0], SymmetricGaussian(), {"neighbours": Neighbours.ADD_OR_REMOVE_ONE}, "replace-one",
    ),
    "a sample of second moments": (QUERIES["moments"][0], SymmetricGaussian(), {"rate": 0.1}, "SecondMomentSum is not"),
    "a sample of a Hessian": (HessianSum(Logistic(), 1.0), SymmetricGaussian(), {"rate": 0.1}, "sampled=True"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_charged_or_read(rows, tmp_path, case):
    query, mechanism, options, message = REFUSED[case]
    options = {"align": 2, **options}
    sampling = Poisson(options.pop("rate")) if "rate" in options else None
    ledger, dataset = Ledger(tmp_path / "ledger.sqlite"), Dataset.from_arrays(tmp_path / "rows.zarr", **rows)
    reads: list[str] = []

    def noted(values: np.ndarray) -> np.ndarray:
        reads.append("read")
        return values

    arrays = {"X": noted, "y": noted}
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays=arrays, ledger=ledger, cluster="threads", **options) as run:
        plan = run.plan([Item("asked", mechanism, sampling=sampling)])
        with pytest.raises(BudgetError, match=message):
            run.release(query, plan["asked"], W)
    assert not ledger.history(dataset.id) and not reads


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_plan_where_another_question_comes_first(rows, tmp_path, case):
    query, mechanism, options, message = REFUSED[case]
    options = {"align": 2, **options}
    sampling = Poisson(options.pop("rate")) if "rate" in options else None
    ledger, dataset = Ledger(tmp_path / "ledger.sqlite"), Dataset.from_arrays(tmp_path / "rows.zarr", **rows)
    items = [Item("first", Gaussian()), Item("asked", mechanism, sampling=sampling)]
    options = {"arrays": ARRAYS, "ledger": ledger, "cluster": "threads", **options}
    with Coordinator(dataset, Budget(1.0, 1e-6), **options) as run, pytest.raises(BudgetError, match=message):
        run.plan(items, {"first": GradientSum(Logistic(), 1.0, 1.0), "asked": query})
    assert not ledger.history(dataset.id)


def test_a_hessian_of_a_sample(rows):
    dataset = Dataset.from_arrays(**rows)
    values = []
    for partition_rows in (999, 20_001):
        dataset = Dataset.from_arrays(partition_rows=partition_rows, **rows)
        with Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, cluster="threads", random_state=1) as run:
            plan = run.plan([Item("hessian", SymmetricGaussian(), sampling=Poisson(0.1))])
            values.append(run.release(HessianSum(Sigmoid(), 1.0, sampled=True), plan["hessian"], W))
    assert np.array_equal(*values)


def test_entries_that_nobody_expects_change_no_message(rows, tmp_path, capfd):
    """A NaN, an infinity or a huge number anywhere: no warning, no output, the same shapes."""
    shapes = set()
    for value in (0.1, np.nan, np.inf, -1e308, 5e-324):
        X = rows["X"].copy()
        X[17, 1] = value
        found = releases(Dataset.from_arrays(X=X, y=rows["y"]))
        shapes.add(tuple(v.shape for v in found.values()))
    assert len(shapes) == 1 and capfd.readouterr() == ("", "")


# --- killed between charge and journal ---------------------------------------------------------------------------


def matrix_job(store: str, ledger: str, stop_before_commit: str | None) -> None:
    """A seeded run; it stops for good right before it would commit its second release, if that is asked."""
    from dpdist.privacy.ledger.paid_run import PaidRun

    if stop_before_commit is not None:
        commit, count = PaidRun.commit, [0]

        def stopping(self: Any, release_id: str, value: Any) -> Any:
            count[0] += 1
            if count[0] == 2:
                Path(stop_before_commit).write_text("charged, drawn, not committed")
                time.sleep(600)
            return commit(self, release_id, value)

        PaidRun.commit = stopping  # type: ignore[method-assign]
    book = Ledger(ledger)
    found = releases(Dataset.open(store), book, run_id="matrices")
    book.close()
    Path(ledger).with_suffix(".json").write_text(json.dumps({k: v.tolist() for k, v in found.items()}))


def test_kill_9_between_charge_and_journal(rows, reference, tmp_path):
    store, ledger, sign = (str(tmp_path / name) for name in ("rows.zarr", "ledger.sqlite", "stopped"))
    dataset = Dataset.from_arrays(store, partition_rows=999, **rows)
    job = PROCESSES.Process(target=matrix_job, args=(store, ledger, sign))
    job.start()
    give_up = time.monotonic() + 240
    while not Path(sign).exists():
        assert job.is_alive() and time.monotonic() < give_up
        time.sleep(0.05)
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    job.join()
    book = Ledger(ledger)
    (run,) = book.history(dataset.id)
    before = book.spent(dataset.id)
    book.close()
    matrix_job(store, ledger, None)
    found = {k: np.array(v) for k, v in json.loads(Path(ledger).with_suffix(".json").read_text()).items()}
    assert alike(found, releases(dataset, Ledger(str(tmp_path / "other.sqlite")), run_id="matrices"))
    book = Ledger(ledger)
    assert book.spent(dataset.id) == before
    (run,) = book.history(dataset.id)
    assert [release.index for release in run.releases] == [0, 1, 2, 3]
    book.close()


def test_the_memory_of_a_large_matrix(tmp_path):
    """Of the whole release: sum, noise, journal. The rows are few."""
    d = 999
    n_entries = d * (d + 1) // 2
    X = np.random.default_rng(0).normal(size=(40, d))
    dataset = Dataset.from_arrays(tmp_path / "wide.zarr", X=X)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays={"X": features}, ledger=ledger, cluster="threads") as run:
        plan = run.plan([Item("warm", SymmetricGaussian()), Item("moments", SymmetricGaussian())])
        run.release(SecondMomentSum(d, 30.0, unit=True), plan["warm"])
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        value = run.release(SecondMomentSum(d, 30.0), plan["moments"])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert value.shape == (n_entries,)
    assert peak - before < 200 * n_entries, f"{(peak - before) / n_entries:.0f} bytes an entry"
