"""A release id has one value for ever, whoever dies or wakes up late."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dpdist.errors import Fenced, LedgerError
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.ledger.ledger import Charge, Ledger
from tests.processes import PROCESSES


@pytest.mark.parametrize(
    "value",
    [
        np.array(3.25),
        np.zeros((0, 4)),
        np.array([0.0, -0.0, 5e-324, 1e308, -np.inf, 1 / 3]),
        np.frombuffer(np.uint64([0x7FF8000000000001, 0xFFF0000000000123]).tobytes()),  # NaNs with a payload
        np.arange(24, dtype=np.int64).reshape(2, 3, 4).T,
        np.array([2**63 - 1, -(2**63)]),
        np.arange(6.0)[::2],
        np.arange(4, dtype=">f8").astype(np.float64),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}",
)
def test_values_come_back_bit_by_bit(tmp_path: Path, value: np.ndarray) -> None:
    path = tmp_path / "j.sqlite"
    put = Journal(path).open("run").put("run/0", value)
    got = Journal(path).open("run").get("run/0")
    for back in (put, got):
        assert back.dtype == value.dtype and back.shape == value.shape
        assert back.tobytes() == value.tobytes()
        assert back.flags.writeable


@pytest.mark.parametrize("value", [np.zeros(2, np.float32), np.array([True]), np.array(["a"]), np.array([2**70])])
def test_other_dtypes_are_refused_and_not_converted(value: np.ndarray) -> None:
    run = Journal(":memory:").open("run")
    with pytest.raises(LedgerError, match="float64 or int64"):
        run.put("run/0", value)
    assert run.get("run/0") is None


def test_the_first_value_stays(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    run = Journal(path).open("run")
    assert run.get("run/0") is None
    assert run.put("run/0", np.array([1.0])) == 1
    assert run.put("run/0", np.array([2.0])) == 1
    assert Journal(path).open("run").put("run/0", np.array([3.0])) == 1


def test_what_was_put_does_not_follow_later_changes() -> None:
    run = Journal(":memory:").open("run")
    mine = np.array([1.0, 2.0])
    put = run.put("run/0", mine)
    mine[0] = put[1] = 9
    np.testing.assert_array_equal(run.get("run/0"), [1.0, 2.0])


def test_the_newest_opener_wins() -> None:
    journal = Journal(":memory:")
    old, other = journal.open("run"), journal.open("another run")
    old.put("run/0", np.array([1.0]))
    old.check()
    new = journal.open("run")
    assert new.epoch == old.epoch + 1
    for act in (old.check, lambda: old.put("run/1", np.array([1.0])), lambda: old.put("run/0", np.array([1.0]))):
        with pytest.raises(Fenced, match="newer process"):
            act()
    assert new.get("run/1") is None  # the late value was not stored
    assert new.get("run/0") == 1
    assert new.put("run/1", np.array([2.0])) == 2
    new.check()
    other.check()
    assert old.get("run/1") == 2  # reading what was released is free


def test_a_release_id_belongs_to_one_run() -> None:
    journal = Journal(":memory:")
    journal.open("a").put("0", np.array([1.0]))
    run = journal.open("b")
    for act in (lambda: run.get("0"), lambda: run.put("0", np.array([2.0]))):
        with pytest.raises(LedgerError, match="belongs to run 'a'"):
            act()


def test_a_closed_run_writes_no_more() -> None:
    journal = Journal(":memory:")
    run, other = journal.open("run"), journal.open("other")
    run.close()
    for act in (run.check, lambda: run.put("run/0", np.array([1.0]))):
        with pytest.raises(LedgerError, match="closed here"):
            act()
    other.check()
    journal.close()
    with pytest.raises(LedgerError, match="closed"):
        other.get("other/0")


def test_it_can_share_the_ledgers_file(tmp_path: Path) -> None:
    path = tmp_path / "both.sqlite"
    ledger, run = Ledger(path), Journal(path).open("run")
    ledger.open_run("d", "run", "plan", Charge(1.0))
    run.put("run/0", np.array([1.0]))
    ledger.record_release("run", "run/1", 1, "sum", "Laplace", 1.0, 1.0, "laplace 1")
    assert Journal(path).open("run").get("run/0") == 1
    assert Ledger(path).spent("d").epsilon == 1


def test_threads_agree_on_one_value() -> None:
    run = Journal(":memory:").open("run")
    seen: list[tuple[int, float]] = []

    def write(thread: int) -> None:
        for i in range(20):
            seen.append((i, float(run.put(f"run/{i}", np.array(thread * 100.0 + i)))))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 120 and len(set(seen)) == 20


# -- processes ----------------------------------------------------------------------------------------------------


def write_until_fenced(path: Path, seed: float, last: bool, parent, results) -> None:
    """A coordinator: take the run over, then release 0, 1, 2 ...; what `put` returns is what the world sees."""
    parent.recv()
    run = Journal(path).open("run")
    parent.send(run.epoch)
    seen, own = [], 0
    with contextlib.suppress(Fenced):
        while not (last and own == 20):
            release_id = f"run/{len(seen)}"
            value = run.get(release_id)
            if value is None:
                run.check()
                own += 1
                value = run.put(release_id, np.array(seed + own))
            seen.append(float(value))
        results.put((run.epoch, False, seen))
        return
    results.put((run.epoch, True, seen))


def test_of_several_coordinators_the_newest_goes_on_and_all_saw_the_same(tmp_path: Path) -> None:
    path, n = tmp_path / "j.sqlite", 5
    results = PROCESSES.Queue()
    processes, pipes = [], []
    for i in range(n):
        ours, theirs = PROCESSES.Pipe()
        pipes.append(ours)
        processes.append(
            PROCESSES.Process(target=write_until_fenced, args=(path, 1e6 * i, i == n - 1, theirs, results))
        )
        processes[-1].start()
    for i, pipe in enumerate(pipes):
        pipe.send("go")  # while the one before is writing
        assert pipe.recv() == i + 1
    lives = sorted(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert [fenced for _, fenced, _ in lives] == [True] * (n - 1) + [False]
    final = lives[-1][2]
    for _, _, seen in lives:
        assert seen == final[: len(seen)]


def put_for_ever(path: Path, seed: int, told) -> None:
    run = Journal(path).open("run")
    for i in range(10**6):
        value = run.put(f"run/{i}", np.full(500, 1000.0 * seed + i))
        told.send((i, float(value[0])))


def test_a_killed_writer_leaves_whole_values_that_stay(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    chance = random.Random(21)
    published: dict[int, float] = {}
    for life in range(8):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=put_for_ever, args=(path, life, theirs))
        process.start()
        theirs.close()
        shown = [ours.recv()]
        time.sleep(chance.uniform(0, 0.02))
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        with contextlib.suppress(EOFError):
            while True:
                shown.append(ours.recv())
        for i, value in shown:
            assert published.setdefault(i, value) == value  # what was seen once is what every later life sees
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            (stored,) = connection.execute("SELECT COUNT(*) FROM dpdist_values").fetchone()
        run = Journal(path).open("run")
        values = [run.get(f"run/{i}") for i in range(stored)]
        assert all(value is not None and value.shape == (500,) and np.ptp(value) == 0 for value in values)
        assert all(values[i][0] == value for i, value in published.items())
        assert run.epoch == 2 * life + 2
