"""Rows that are read again in every round: how many partitions are under way, and how many are held."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.data.dataset_schema import ArraySpec
from dpdist.data.sources import Source
from dpdist.engine import shards
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.shards import Failure, Round, ShardPlan, ahead, load_shard, streamed_bytes, summarise_shard
from dpdist.errors import DataError
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Laplace

WIDTH = 4


class Slow(Source):
    """A store that answers late, and notes how many reads are under way, and how many blocks are or will be held."""

    def __init__(self, n_rows: int, remote: bool, broken: tuple[int, ...] = ()) -> None:
        self.name = "X"
        self.spec = ArraySpec.of("X", np.dtype(float), (n_rows, WIDTH))
        self.remote = remote
        self.broken = broken
        self.under_way = self.most_under_way = self.alive = self.most_alive = 0
        self._lock = threading.RLock()

    def _read(self, start: int, stop: int) -> np.ndarray:
        with self._lock:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            self.alive += 1
            self.most_alive = max(self.most_alive, self.alive)
        time.sleep(0.02 if start % 200 else 0.03)  # they do not end in the order in which they were asked
        with self._lock:
            self.under_way -= 1
        if start in self.broken:
            raise DataError(f"rows {start}:{stop} are damaged")
        rows = np.full((stop - start, WIDTH), float(start))
        weakref.finalize(rows, self._gone)
        return rows

    def _gone(self) -> None:
        with self._lock:
            self.alive -= 1

    def boundaries(self) -> list[int]:
        return [*range(0, self.spec.n_rows + 1, 100)]


class Starts:
    """A query that adds up the numbers of rows of what it is shown, and notes in which order it came."""

    row_units = 1.0
    seen: list[int]

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.seen = []

    def summarise_at(self, first: int, block: Any, state: Any, rows: Any) -> np.ndarray:
        assert (block["X"] == first - first % 100).all()
        self.seen.append(first)
        time.sleep(self.seconds)
        return np.array([len(block["X"])])

    def combine(self, total: Any, part: np.ndarray, wide: bool) -> np.ndarray:
        return part if total is None else total + part


def shard_of(source: Slow, prepare: Any = np.asarray) -> Any:
    n = source.spec.n_rows
    ranges = tuple((start, start + 100) for start in range(0, n, 100))
    return load_shard(ShardPlan(ranges, {"X": prepare}, resident=False), {"X": [source] * len(ranges)})


def test_how_far_ahead():
    MiB = 2**20
    assert [ahead(size * MiB, True) for size in (0, 1, 16, 30, 64, 500)] == [8, 8, 4, 2, 1, 1]
    assert {ahead(size * MiB, False) for size in (0, 1, 16, 500)} == {1}
    assert streamed_bytes(30 * MiB, True) == 90 * MiB


@pytest.mark.parametrize("seconds", [0.0, 0.04], ids=["reading is slower", "computing is slower"])
@pytest.mark.parametrize(("remote", "n_ahead"), [(False, 1), (True, 3)])
def test_partitions_are_read_ahead_in_order_and_only_so_many_are_held(monkeypatch, remote, n_ahead, seconds):
    monkeypatch.setattr(shards, "AHEAD_BYTES", 3 * 100 * WIDTH * 8 + 1)
    source = Slow(2000, remote)
    shard = shard_of(source)
    assert source.most_under_way == n_ahead and source.most_alive <= n_ahead + 1
    query = Starts(seconds)
    source.most_under_way = source.most_alive = 0
    total = summarise_shard(shard, Round(query, None, 150, 1850, 2000))
    assert total == 1700 and query.seen == [150, *range(200, 1900, 100)]
    assert source.most_under_way == n_ahead and source.most_alive <= n_ahead + 1
    assert source.alive == 0


def test_of_several_damaged_partitions_the_first_is_named():
    failed = shard_of(Slow(2000, True, broken=(400, 500, 1500)))
    assert failed == Failure("rows 400:500 are damaged")


def test_what_a_row_looks_like_makes_no_warning():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        shard = shard_of(Slow(200, True), prepare=lambda rows: rows / 0.0 * 0.0)
    assert not isinstance(shard, Failure) and not seen


@pytest.mark.parametrize("stored", ["rows of this process", "a store"])
@pytest.mark.parametrize("of, stays", [(np.asarray, True), (np.float64, False)], ids=["bytes", "numbers"])
def test_bytes_that_become_numbers_are_counted_as_numbers(tmp_path, stored, of, stays):
    """8e5 bytes fit into half of 4 MB; as float64 they would fill 6.4 MB, and are prepared piece by piece."""
    X = np.random.default_rng(0).integers(0, 2, (100_000, 8)).astype(np.uint8)
    place = () if stored == "rows of this process" else (str(tmp_path / "bits.zarr"),)
    dataset = Dataset.from_arrays(*place, X=X, partition_rows=10_000)
    workers = SimpleNamespace(n_threads=2, memory=4e6)
    with Coordinator(dataset, Budget(1.0), arrays={"X": of}, ledger=Ledger(":memory:"), random_state=0) as coordinator:
        coordinator.plan([Item("noise", Laplace())])
        plans = coordinator._shard_plans(workers)
        assert {plan.resident for plan, _ in plans} == {stays}
        shards = [load_shard(plan, sources) for plan, sources in plans]
        seen = [block["X"] for shard in shards for _, block in shard.blocks_in(0, 100_000)]
        assert sum(int(rows.sum()) for rows in seen) == X.sum() and {rows.dtype for rows in seen} == {of(X[:1]).dtype}
