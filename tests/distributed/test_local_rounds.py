"""Rounds of reports on real workers: the same bits wherever they are drawn, and nobody ever draws two."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

from dpdist import Dataset
from dpdist.engine import pieces, progress
from dpdist.errors import BudgetError
from dpdist.local import simulate
from dpdist.local.randomisers.frequency import OUE
from dpdist.local.statistics.categories import Category
from dpdist.local.survey.protocol import LocalProtocol
from tests.distributed.recorded import Rounds, notes, recorded
from tests.local.survey.surveys import PROTOCOLS
from tests.processes import worker_processes

BLOCK = 4096
N = 40 * BLOCK + 100


def people(n: int) -> np.ndarray:
    """One different number in [-1, 1] for each, so that notes tell who was asked."""
    return np.random.default_rng(0).permutation(np.linspace(-1, 1, n))[:, None]


@pytest.fixture(scope="module")
def cluster():
    with worker_processes(2) as cluster:
        yield cluster


@pytest.mark.parametrize("name", ["krr", "olh", "sample-coordinates", "privunitg", "joint-statistics"])
def test_threads_processes_partitions_and_pieces(name, cluster, tmp_path, monkeypatch):
    n, protocol = 30_000, PROTOCOLS[name]
    rng = np.random.default_rng(0)
    size = getattr(protocol.statistic, "n_features", 1)
    X = rng.integers(0, 11, (n, 1)) if protocol.statistic.domain == "category" else rng.uniform(-1, 1, (n, size))
    rows = {"X": X.astype(float), "y": rng.uniform(-1, 1, n)}

    def bits(population, **options):
        return simulate(protocol, population, random_state=5, **options).total

    whole = bits(rows, cluster="threads")
    for threads, partition_rows in ((1, 1000), (3, 4096), (2, 7777)):
        dataset = Dataset.from_arrays(tmp_path / f"{partition_rows}.zarr", partition_rows=partition_rows, **rows)
        with dask.config.set(num_workers=threads):
            assert np.array_equal(bits(dataset, cluster="threads"), whole)
        assert np.array_equal(bits(dataset, cluster=cluster), whole)
    assert np.array_equal(bits(rows, cluster=cluster), whole)
    lazy = {key: da.from_array(a, chunks=(5000, *a.shape[1:])) for key, a in rows.items()}
    assert np.array_equal(bits(lazy, cluster=cluster), whole)
    monkeypatch.setattr(pieces, "LONG", 5000)
    events = []
    with progress.watching(events.append):
        assert np.array_equal(bits(dataset, cluster=cluster), whole)
        assert np.array_equal(bits(rows, cluster="threads"), whole)
    asked = [event for event in events if isinstance(event, progress.Asked)]
    assert len(asked) > 8 and asked[-1] == progress.Asked(n, n)


def test_a_long_round_tells_how_far_it_is(monkeypatch):
    """About 20 times, the same whatever the rows hold, and never in the central model's rounds."""
    protocol = LocalProtocol(Category(4), OUE(4, epsilon=1.0))
    n, seen = 3 * 2**20, []
    for X in (np.zeros(n), np.full(n, np.nan)):
        events = []
        with progress.watching(events.append):
            simulate(protocol, {"X": X[:, None]}, random_state=0, fidelity="sum", cluster="threads")
        seen.append([event for event in events if isinstance(event, progress.Asked)])
    assert seen[0] == seen[1] and 15 <= len(seen[0]) <= 20
    assert [event.n_rows for event in seen[0]] == [n] * len(seen[0])
    steps = np.diff([0, *(event.done_rows for event in seen[0])])
    assert (steps > 0).all() and steps.max() < 0.1 * n and seen[0][-1].done_rows == n


@pytest.mark.parametrize(("random_state", "stored"), [(3, True), (None, False)], ids=["seeded", "secret"])
def test_a_worker_killed_in_the_middle_of_a_simulation(tmp_path, monkeypatch, random_state, stored):
    """Its blocks are drawn again elsewhere, by the same streams: the draws are counted."""
    monkeypatch.setattr("dpdist.engine.coordinator.RESIDENT_SHARE", 0.0)
    X = people(N)
    population = Dataset.from_arrays(tmp_path / "people.zarr" if stored else None, X=X, partition_rows=BLOCK)
    calm, struck = tmp_path / "calm", tmp_path / "struck"
    calm.mkdir(), struck.mkdir()
    slow = recorded(struck, 0.02)  # the whole question is part of the streams' key: both runs need the same
    if random_state is not None:
        whole = simulate(slow, population, random_state=random_state, cluster="threads")
        undisturbed = notes(struck)
        for path in struck.iterdir():
            path.rename(calm / path.name)
    with (
        worker_processes(2) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        killed: list[int] = []

        def strike() -> None:
            """Kill the first worker that has drawn four blocks."""
            deadline = time.monotonic() + 60
            while not killed and time.monotonic() < deadline:
                owners = Counter(int(path.stem.split("-")[2]) for path in struck.glob("*.npz"))
                if owners and max(owners.values()) >= 4:
                    os.kill(victim := max(owners, key=owners.__getitem__), signal.SIGKILL)
                    killed.append(victim)
                time.sleep(0.002)

        killer = threading.Thread(target=strike)
        killer.start()
        found = simulate(slow, population, random_state=random_state, cluster=client)
        killer.join()
        assert killed and killed[0] not in client.run(os.getpid, on_error="ignore").values()

    drawn = notes(struck)
    assert len({key for key, _ in drawn}) == 1, "one round has one key, also after the loss of a worker"
    assert {block for _, block in drawn} == set(range(-(-N // BLOCK)))
    for times in drawn.values():
        assert len(set(times)) == 1, "a block that is drawn again is the same"
    assert max(len(times) for times in drawn.values()) > 1, "the kill must have made some blocks be drawn twice"
    report = slow.randomiser.report
    reports = np.concatenate([np.frombuffer(times[0][1], report) for _, times in sorted(drawn.items())])
    assert len(reports) == N and found.total[0] == slow.accumulate(reports)[0] * slow.grid
    if random_state is not None:
        assert np.array_equal(found.total, whole.total)
        assert {k: set(v) for k, v in drawn.items()} == {k: set(v) for k, v in undisturbed.items()}


def test_every_user_of_a_sequence_of_rounds_answers_once(tmp_path):
    X = people(3 * BLOCK + 17)
    model = Rounds(str(tmp_path), n_rounds=3, cluster="threads").fit(X)
    drawn = notes(tmp_path)
    assert len({key for key, _ in drawn}) == 3, "every round has its own key"
    asked = np.concatenate([np.frombuffer(values) for times in drawn.values() for values, _ in times])
    assert np.array_equal(np.sort(asked), np.sort(X[:, 0])), "everybody once"
    assert model.guarantee_.epsilon == 1.0


def test_a_group_that_is_asked_twice_is_refused_before_anybody_answers_again(tmp_path):
    with pytest.raises(BudgetError, match=r"allows 1 releases .* all of them are spent"):
        Rounds(str(tmp_path), n_rounds=2, ask_twice=True, cluster="threads").fit(people(2 * BLOCK))
    drawn = notes(Path(tmp_path))
    assert len({key for key, _ in drawn}) == 1 and all(len(times) == 1 for times in drawn.values())
