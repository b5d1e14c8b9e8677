"""Rows that change while a run reads them again and again: noticed by whoever has read them before."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dpdist import Budget, Coordinator, Dataset, Ledger
from dpdist.data import plain_chunks
from dpdist.data.mapped_files import CAN_LEASE
from dpdist.engine import coordinator as engine
from dpdist.engine import shards
from dpdist.engine.disks import OWN, mount_of
from dpdist.engine.shards import Failure, Round, ShardPlan, load_shard, summarise_shard
from dpdist.engine.unchanged import Unchanged
from dpdist.errors import DataError
from dpdist.estimators.row_maps import ClassCodes
from dpdist.kernels.truncation import HardClip
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.robust_sums import ColumnSum
from tests.processes import worker_processes

N, D, ROWS = 1000, 3, 200
SECRET = 987654.321
QUERY = ColumnSum(HardClip(1.0), D)
ARRAYS = {"X": np.asarray, "y": ClassCodes(("no", "yes"))}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)), np.array(["no", "yes"])[rng.integers(0, 2, N)]
    Dataset.from_arrays(tmp_path / "rows.zarr", X=X, y=y, partition_rows=ROWS, dataset_id="survey")
    return tmp_path / "rows.zarr"


def change_number(place: Path) -> None:
    """One valid value in place of another, with a valid checksum."""
    zarr.open_group(place, mode="r+")["X"][617, 1] = SECRET


def change_label(place: Path) -> None:
    array = zarr.open_group(place, mode="r+")["y"]
    array[617] = "yes" if array[617] == "no" else "no"


CHANGES = {"X": change_number, "y": change_label}


def rounds(place: Path, ledger: Ledger, changes: Any, n: int = 4, **options: Any) -> list[list[float]]:
    """The releases of a run of n rounds; ``changes[i]`` happens before round i."""
    dataset = Dataset.open(place)
    values = []
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, ledger=ledger, run_id="monday", **options) as run:
        item = run.plan([Item("sum", Gaussian(), count=n)])["sum"]
        for i in range(n):
            changes.get(i, lambda place: None)(place)
            values.append(run.release(QUERY, item).tolist())
    return values


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The same, as they are used."""
    X = np.random.default_rng(0).normal(size=(N, D))
    Dataset.from_arrays(tmp_path / "plain.zarr", X=X, y=np.zeros(N), partition_rows=ROWS, compression="none")
    return tmp_path / "plain.zarr"


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RESIDENT_SHARE", 0.0)


@pytest.mark.parametrize("array", CHANGES)
def test_a_chunk_that_changes_between_rounds_ends_a_streamed_run(array, place, streamed, tmp_path):
    ledger = Ledger(tmp_path / "l.sqlite")
    with pytest.raises(DataError) as noticed:
        rounds(place, ledger, {2: CHANGES[array]}, cluster="threads")
    text = str(noticed.value)
    assert f"array '{array}', rows 600:800 have changed" in text and "run_id" in text
    assert str(SECRET) not in text and "yes" not in text and not any(c in text for c in ("digest", "fingerprint"))
    (record,) = ledger.history("survey")
    stored = ledger.journal._db._connection.execute("SELECT count(*) FROM dpdist_values").fetchone()[0]
    assert stored == 2 and len(record.releases) == 3, "what was announced is on file; no value of the changed rows is"


def spoil(place: Path) -> None:
    chunk = place / "X" / "c" / "3" / "0"
    data = bytearray(chunk.read_bytes())
    data[100] ^= 1
    chunk.write_bytes(data)


def shorten(place: Path) -> None:
    chunk = place / "X" / "c" / "3" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1])


def remove(place: Path) -> None:
    (place / "X" / "c" / "3" / "0").unlink()


@pytest.mark.parametrize("damage", [spoil, shorten, remove])
def test_a_chunk_that_is_damaged_between_rounds_is_called_damaged(damage, place, streamed, tmp_path):
    with pytest.raises(DataError, match="array 'X', rows 600:800 are damaged"):
        rounds(place, Ledger(tmp_path / "l.sqlite"), {2: damage}, cluster="threads")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_stream_releases_what_rows_in_memory_release(compression, monkeypatch, tmp_path):
    """Whether chunks are read as they stand, decoded or kept: the same integers, so the same seeded releases."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)), rng.integers(0, 2, N)
    place = tmp_path / "rows.zarr"
    Dataset.from_arrays(place, X=X, y=y, partition_rows=ROWS, dataset_id="survey", compression=compression)
    monkeypatch.setitem(ARRAYS, "y", ClassCodes((0, 1)))
    kept = rounds(place, Ledger(tmp_path / "a.sqlite"), {}, cluster="threads", random_state=1)
    monkeypatch.setattr(engine, "RESIDENT_SHARE", 0.0)
    assert rounds(place, Ledger(tmp_path / "b.sqlite"), {}, cluster="threads", random_state=1) == kept


def test_the_run_goes_on_when_the_rows_are_restored(place, streamed, tmp_path):
    before = zarr.open_group(place, mode="r")["X"][617, 1]
    expected = rounds(place, Ledger(tmp_path / "a.sqlite"), {}, cluster="threads", random_state=1)
    ledger = Ledger(tmp_path / "b.sqlite")
    with pytest.raises(DataError):
        rounds(place, ledger, {2: change_number}, cluster="threads", random_state=1)
    zarr.open_group(place, mode="r+")["X"][617, 1] = before
    assert rounds(place, ledger, {}, cluster="threads", random_state=1) == expected


def test_rows_that_stay_in_memory_are_those_that_were_loaded(place, tmp_path):
    expected = rounds(place, Ledger(tmp_path / "a.sqlite"), {}, cluster="threads", random_state=1)
    changed = rounds(place, Ledger(tmp_path / "b.sqlite"), {2: change_number}, cluster="threads", random_state=1)
    assert changed == expected


def test_writing_the_same_values_again_is_no_change(place, streamed, tmp_path):
    def rewrite(place: Path) -> None:
        array = zarr.open_group(place, mode="r+")["X"]
        array[...] = array[...]

    assert len(rounds(place, Ledger(tmp_path / "l.sqlite"), {1: rewrite, 2: rewrite}, cluster="threads")) == 4


def test_workers_of_a_cluster_notice_it_too(place, streamed, tmp_path):
    with (
        worker_processes(2) as cluster,
        pytest.raises(DataError, match=r"'X', rows 600:800 have changed"),
    ):
        rounds(place, Ledger(tmp_path / "l.sqlite"), {2: change_number}, cluster=cluster.scheduler_address)


class Meddling(ColumnSum):
    """A query in the midst of which somebody may write to the store."""

    def summarise(self, block: Any, state: Any, rows: Any) -> Any:
        assert block["X"].flags.writeable != self.in_place.pop(0), "rows in place are not to be written to"
        self.meddle()
        return super().summarise(block, state, rows)


@pytest.fixture
def meddling(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A shard of chunks that are mapped wherever that is possible, and a query that is told what to do meanwhile."""
    monkeypatch.setattr(shards, "OWN", {mount_of("/tmp")[0], *OWN, "tmpfs", "overlay"})
    monkeypatch.setattr(plain_chunks, "LEAST_MAPPED", 0)
    monkeypatch.setattr(shards, "bytes_read", lambda: 0)
    query = Meddling(HardClip(1.0), D)

    def asked(shard: Any, in_place: list[bool], meddle: Any = lambda: None) -> Any:
        object.__setattr__(query, "in_place", in_place)
        object.__setattr__(query, "meddle", meddle)
        return summarise_shard(shard, Round(query, None, 0, N, N))

    return asked


leased = pytest.mark.skipif(not CAN_LEASE, reason="leases are there on Linux only")
PLACES = N // ROWS


@leased
def test_rows_in_place_have_the_sum_of_their_copies(plain, meddling, monkeypatch):
    shard = shard_of(plain)
    found = meddling(shard, [True] * PLACES)
    assert not isinstance(found, Failure), found
    monkeypatch.setattr(shards, "bytes_read", iter(range(0, 10**9, 10**8)).__next__)  # as if from a disk
    assert (meddling(shard, [True] * PLACES) == found).all()
    assert (meddling(shard, [False] * PLACES) == found).all(), "read ahead, into memory of its own"


def test_rows_that_stay_in_memory_are_those_that_were_read(plain, meddling):
    """Of what file system they came from does not matter then, and nothing is looked up in a source any more."""
    expected = ask(shard_of(plain))
    shard = shard_of(plain, resident=True)
    change_number(plain)
    assert (meddling(shard, [False] * PLACES) == expected).all()


@leased
def test_a_chunk_that_is_on_another_file_system_is_copied(plain, meddling):
    """Its writers may be on another machine, and wait for nobody here."""
    if os.stat(plain).st_dev == os.stat("/tmp").st_dev:
        pytest.skip("the folder of the test and /tmp are on one file system")
    expected = ask(shard_of(plain))
    first = min(path for path in (plain / "X" / "c").rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory(dir="/tmp") as elsewhere:
        shutil.move(first, elsewhere)
        first.symlink_to(Path(elsewhere, first.name))
        assert (meddling(shard_of(plain), [False] + [True] * (PLACES - 1)) == expected).all()


@leased
def test_a_sum_under_which_somebody_waits_to_write_is_formed_again_of_a_copy(plain, meddling):
    """The writer writes once the lease has ended: here what is there already, so that the copy has the same sum."""
    shard = shard_of(plain)
    expected = meddling(shard, [True] * PLACES)
    chunk, waited = plain / "X" / "c" / "0" / "0", []
    data = chunk.read_bytes()

    def write() -> None:
        with open(chunk, "r+b") as file:
            file.write(data)

    writer = threading.Thread(target=write)

    def meddle() -> None:
        if not waited:
            writer.start()
            writer.join(0.2)
            waited.append(writer.is_alive())

    assert (meddling(shard, [True, False] + [True] * PLACES, meddle) == expected).all()
    assert waited == [True]
    writer.join()
    assert (meddling(shard, [True] * PLACES) == expected).all()


@leased
def test_rows_in_place_that_have_changed_are_noticed(plain, meddling):
    shard = shard_of(plain)
    change_number(plain)
    found = meddling(shard, [True] * PLACES)
    assert isinstance(found, Failure) and "rows 600:800 have changed" in found.message
    assert str(SECRET) not in found.message


@leased
@pytest.mark.parametrize("damage", [spoil, shorten, remove])
def test_rows_in_place_that_are_damaged_are_called_damaged(damage, plain, meddling):
    shard = shard_of(plain)
    damage(plain)
    found = meddling(shard, [True] * PLACES)
    assert isinstance(found, Failure) and "rows 600:800 are damaged" in found.message


@leased
def test_rows_that_somebody_has_open_for_writing_are_copied(plain, meddling):
    shard = shard_of(plain)
    expected = meddling(shard, [True] * PLACES)
    with open(plain / "X" / "c" / "2" / "0", "r+b"):
        assert (meddling(shard, [True, True, False, True, True]) == expected).all()


def shard_of(place: Path, resident: bool = False) -> Any:
    source = Dataset.open(place).source("X")
    ranges = tuple((start, start + ROWS) for start in range(0, N, ROWS))
    return load_shard(ShardPlan(ranges, {"X": np.asarray}, resident), {"X": [source] * len(ranges)})


def ask(shard: Any) -> Any:
    return summarise_shard(shard, Round(QUERY, None, 0, N, N))


def test_what_a_worker_remembers_goes_nowhere(place):
    """Not with a shard that is sent to another worker or written to a disk, and not into words."""
    shard = shard_of(place)
    memory = shard.unchanged
    assert len(memory._known) == 5
    sent = pickle.dumps(shard)
    known = [number.to_bytes(8, order) for number in memory._known.values() for order in ("little", "big")]
    assert not any(secret in sent for secret in (*known, memory._key.words[:4].tobytes()))
    assert not any(str(number) in repr(shard) + repr(memory) for number in memory._known.values())
    other = pickle.loads(sent).unchanged
    assert isinstance(other, Unchanged) and not other._known
    assert (other._key.words != memory._key.words).any()


def test_who_takes_over_reads_for_the_first_time(place):
    """What holds where a worker was lost: the next one knows the rows from its own first reading on."""
    shard = shard_of(place)
    change_number(place)
    assert isinstance(ask(shard), Failure)
    successor = pickle.loads(pickle.dumps(shard))
    first = ask(successor)
    assert (first == ask(successor)).all()
    zarr.open_group(place, mode="r+")["X"][0, 0] = SECRET
    assert isinstance(ask(successor), Failure)


def test_two_shards_have_two_keys(place):
    one, other = shard_of(place).unchanged, shard_of(place).unchanged
    assert set(one._known) == set(other._known) and not set(one._known.values()) & set(other._known.values())
