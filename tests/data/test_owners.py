"""Rows of one owner side by side: what one owner has moves nobody else's rows, whatever it is."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import zarr

from dpdist import Dataset
from dpdist.data import Units, copying, ingest, owners
from dpdist.data.dataset_schema import ATTRIBUTE
from dpdist.data.folds import split_slots
from dpdist.engine.sampling import Batch
from dpdist.errors import BudgetError, DataError, MissingBound

RNG = np.random.default_rng(5)
OTHERS = [f"p{i},{RNG.normal():.4f},{RNG.choice(['no', 'yes'])}" for i in range(40) for _ in range(1 + i % 5)]
OF_ONE: dict[str, tuple[list[str], int]] = {
    "one row in front": (["100,no"], 0),
    "two rows at the end": (["200,no", "300,yes"], len(OTHERS)),
    "as many as are kept": (["400,no"] * 3, 17),
    "many more": ([f"{500 + i},yes" for i in range(40_000)], 60),
    "a good one after bad ones": (["x,no", "nan,yes", "900,no"], 3),
    "bad ones only": (["x,no", "1,maybe"], 90),
}
"""Rows of the owner u, and before which row of the others they stand."""


def written(folder: Path, name: str, on_bad: str = "drop") -> tuple[Dataset, dict[str, np.ndarray]]:
    """The others' rows with those of u among them, as the program writes them."""
    rows, at = OF_ONE[name]
    lines = [*OTHERS[:at], *(f"u,{row}" for row in rows), *OTHERS[at:]]
    folder.mkdir(exist_ok=True)
    (folder / "t.csv").write_text("\n".join(["who,a,late", *lines, ""]))
    asked: Any = {"features": ["a"], "label": "late", "label_levels": ["no", "yes"], "unit": "who", "max_rows": 3}
    ingest(folder / "t.csv", folder / name, on_bad=on_bad, dataset_id="one", partition_rows=7, **asked)
    dataset = Dataset.open(folder / name)
    return dataset, dataset.read(0, dataset.n_rows)


@pytest.mark.parametrize("on_bad", ["drop", "zero"])
def test_whatever_one_owner_has_only_its_places_differ(tmp_path: Path, on_bad: str) -> None:
    first, rows = written(tmp_path, "one row in front", on_bad)
    assert first.n_rows == 41 * 3 and first.schema.units == Units("who", 3, grouped=True)
    own = rows["X"][:, 0] == 100
    start = int(own.argmax())
    assert start % 3 == 0 and np.flatnonzero(own).tolist() == [start, start + 1, start + 2]
    seen = {}
    for name in OF_ONE:
        dataset, other = (first, rows) if name == "one row in front" else written(tmp_path, name, on_bad)
        assert replace(dataset.schema, edition=None) == replace(first.schema, edition=None)
        for array in ("X", "y"):
            np.testing.assert_array_equal(other[array][~own], rows[array][~own], err_msg=name)
        seen[name] = sorted({f"{x:g} {label}" for x, label in zip(other["X"][own, 0], other["y"][own], strict=True)})
    assert seen == {
        "one row in front": ["100 no"],
        "two rows at the end": ["200 no", "300 yes"],
        "as many as are kept": ["400 no"],
        "many more": ["500 yes", "501 yes", "502 yes"],
        "a good one after bad ones": ["900 no"] if on_bad == "drop" else ["900 no", "nan "],
        "bad ones only": ["nan "],
    }


def test_the_size_of_the_source_shows_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger source is arranged in more parts, and the rows of one owner can make it larger."""
    for name in ("two rows at the end", "bad ones only"):
        stored = []
        for size in (10, 100, 1000, 2**22):
            monkeypatch.setattr(owners, "BUCKET_BYTES", size)
            stored.append(written(tmp_path / f"{size} {name}", name)[1])
        for rows in stored[1:]:
            np.testing.assert_array_equal(rows["X"], stored[0]["X"])
            np.testing.assert_array_equal(rows["y"], stored[0]["y"])


def test_who_has_most_of_the_rows_does_not_take_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0

    def watched(tables: Any, max_rows: int) -> Any:
        nonlocal longest
        longest = max(longest, sum(map(len, tables)))
        return pruned(tables, max_rows)

    pruned = owners._pruned
    monkeypatch.setattr(owners, "_pruned", watched)
    monkeypatch.setattr(owners, "_FEWEST_ROWS", 1000)
    monkeypatch.setattr("dpdist.data.delimited.BLOCK_BYTES", 2**12)
    _, rows = written(tmp_path, "many more")
    assert longest < 3000 and sorted(rows["X"][rows["X"][:, 0] >= 500, 0]) == [500, 501, 502]


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "levels", "npz"])
def test_a_source_that_is_packed_is_arranged_in_parts_as_small(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is arranged at a time is in memory: its size is that of the rows as they are stored, not as they came."""
    n, part, real, sizes = 40_000, 2**17, copying.arrange, []
    X, who = (np.arange(n)[:, None] % np.arange(2, 22) == 0).astype(np.int8), np.arange(n) // 4
    columns = pa.table({"who": who, **{f"x{j}": X[:, j] for j in range(20)}})
    source, asked = tmp_path / f"t.{kind}", {"features": ["x*"]}
    if kind == "parquet":
        pq.write_table(columns, source, compression="zstd")
    elif kind == "npz":
        np.savez_compressed(source, X=X, who=who)
        asked = {}
    else:
        if kind == "levels":
            columns, source = pa.table({"who": who, "a": np.arange(n) % 20}), tmp_path / "t.csv"
            asked = {"levels": {"a": [str(level) for level in range(20)]}}
        with gzip.open(source, "wb") if kind == "csv.gz" else open(source, "wb") as out:
            pyarrow.csv.write_csv(columns, out)

    def watched(messages: Any, *others: Any) -> Any:
        messages = list(messages)
        sizes.append(sum(map(len, messages)))
        return real(messages, *others)

    monkeypatch.setattr(owners, "BUCKET_BYTES", part)
    monkeypatch.setattr(copying, "arrange", watched)
    done = ingest(source, tmp_path / "out", unit="who", max_rows=4, **asked)
    assert done.schema.n_rows == n and done.schema.arrays["X"].shape[1] == 20 and max(sizes) < 2 * part, sizes


@pytest.mark.parametrize("kind", ["npz", "zarr"])
@pytest.mark.parametrize("n_owners", [1, 1000])
def test_arrays_that_name_their_owners(kind: str, n_owners: int, tmp_path: Path) -> None:
    n, place = 3 * n_owners, tmp_path / f"t.{kind}"
    X, y = np.arange(n * 3, dtype=np.float32).reshape(n, 3), np.arange(n, dtype=np.float64)
    arrays = {"X": X, "y": y, "who": RNG.permutation(np.arange(n) % n_owners)}
    np.savez(place, **arrays) if kind == "npz" else Dataset.from_arrays(place, **arrays)
    ingest(place, tmp_path / "out", label="y", unit="who", max_rows=4, dtype="float32")
    dataset = Dataset.open(tmp_path / "out")
    stored = dataset.read(0, 4 * n_owners)
    assert dataset.n_rows == 4 * n_owners and stored["X"].dtype == np.float32
    np.testing.assert_array_equal(stored["X"][:, 0], 3 * stored["y"])
    places = stored["y"].astype(int).reshape(n_owners, 4)
    owner = arrays["who"][places]
    assert (owner == owner[:, :1]).all() and {len(set(rows)) for rows in places.tolist()} == {3}
    assert set(places.ravel().tolist()) == set(range(n))


def test_a_row_without_an_owner_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,a\nu,1\n,2\nv,3,4\nv,5\n")
    for on_bad in ("drop", "zero"):
        done = ingest(tmp_path / "t.csv", tmp_path / on_bad, features=["a"], unit="who", max_rows=2, on_bad=on_bad)
        stored = Dataset.open(tmp_path / on_bad).read(0, 4)["X"].ravel()
        assert done.rows_read == 4 and sum(done.bad.values()) == 2 and sorted(stored) == [1, 1, 5, 5]


@pytest.mark.parametrize("nth", [2, 4, 9])
def test_killed_while_it_arranges(nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bucket is written once, and the source is not read again."""
    monkeypatch.setattr(owners, "BUCKET_BYTES", 100)
    monkeypatch.setattr(copying, "CHECKPOINT_SECONDS", 0.0)
    _, whole = written(tmp_path, "two rows at the end")
    calls, real = [], copying.arrange

    def killed(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == nth:
            raise SystemExit
        return real(*arguments)

    again = tmp_path / "again"
    with monkeypatch.context() as patch:
        patch.setattr(copying, "arrange", killed)
        with pytest.raises(SystemExit):
            written(again, "two rows at the end")
    source = again / "t.csv"
    changed = source.stat()
    with monkeypatch.context() as patch:
        patch.setattr(copying.Ingestion, "_read", None)
        patch.setattr(Path, "write_text", lambda *_: None)  # the file stays as it is
        _, stored = written(again, "two rows at the end")
    assert source.stat() == changed and not list(again.glob("*.ingesting"))
    for name in ("X", "y"):
        np.testing.assert_array_equal(stored[name], whole[name])


@pytest.mark.parametrize("label", [None, "b"])
def test_more_rows_for_each_than_anybody_wants_are_refused_before_a_row_is_read(
    label: str | None, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("who,a,b\nann,bad,bad\n")
    row_bytes = 8 if label is None else 16
    most = 128 * 2**20 // row_bytes
    asked: Any = {"features": ["a"], "label": label, "unit": "who", "on_bad": "stop"}
    for max_rows in (most + 1, 10**15):
        with pytest.raises(
            DataError, match=f"would write {max_rows * row_bytes:,} bytes for every who, .* {most:,} rows"
        ):
            ingest(tmp_path / "t.csv", tmp_path / "out", max_rows=max_rows, **asked)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]
    with pytest.raises(DataError, match="bad rows"):
        ingest(tmp_path / "t.csv", tmp_path / "out", max_rows=most, **asked)


def test_owners_with_many_rows_are_not_refused_for_the_room_of_many_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the disk had room for three owners of fifty rows in the source."""
    (tmp_path / "t.csv").write_text("who,a\n" + "".join(f"p{i % 3},{i}\n" for i in range(150)))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * 100 * 8))
    asked: Any = {"features": ["a"], "unit": "who"}
    assert ingest(tmp_path / "t.csv", tmp_path / "out", max_rows=100, **asked).schema.n_rows == 300
    with pytest.raises(DataError, match=r"would take 2,424 bytes, .* there is room for 2,400"):
        ingest(tmp_path / "t.csv", tmp_path / "more", max_rows=101, **asked)


@pytest.mark.parametrize("on_bad", ["drop", "zero"])
def test_who_has_ragged_lines_only_is_no_owner(on_bad: Any, tmp_path: Path) -> None:
    """As the text says: such a line names nobody, while a bad value stands beside the name of an owner."""
    (tmp_path / "t.csv").write_text("who,a\nann,1\nbob,x\ncid,1,2\ncid\n")
    done = ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], unit="who", max_rows=2, on_bad=on_bad)
    assert done.schema.n_rows == 2 * len(["ann", "bob"])


def test_first_rows_of_owners_do_not_weigh_more(tmp_path: Path) -> None:
    """Of two rows in three places either has two as often as the other."""
    (tmp_path / "t.csv").write_text("who,a\n" + "".join(f"p{i},0\np{i},1\n" for i in range(200)))
    ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], unit="who", max_rows=3, dataset_id="one")
    assert abs(Dataset.open(tmp_path / "out").read(0, 600)["X"].mean() - 0.5) < 0.06


def test_nothing_but_bad_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,a\nu,x\nv,y\n")
    with pytest.raises(DataError, match="none is good"):
        ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], unit="who", max_rows=2, on_bad="drop")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.ingesting"))


def test_an_ingestion_that_began_under_the_old_layout_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("who,a\nu,1\nv,2\n")
    asked: Any = {"features": ["a"], "unit": "who", "max_rows": 2}

    def killed(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("dpdist.data.copying.GrowingGroup.finish", killed)
        with pytest.raises(SystemExit):
            ingest(tmp_path / "t.csv", tmp_path / "out", **asked)
    from dpdist.data.checkpoint import Checkpoint

    notes = Checkpoint(tmp_path / "out.ingesting")
    request = notes.read()["request"]
    del request["options"]["layout"]
    notes.commit({"request": request})
    notes.close()
    with pytest.raises(DataError, match=r"changed: layout\. .*--restart"):
        ingest(tmp_path / "t.csv", tmp_path / "out", **asked)
    assert ingest(tmp_path / "t.csv", tmp_path / "out", restart=True, **asked).schema.n_rows == 4


def test_a_schema_says_whether_rows_come_unit_by_unit(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(6, 2)
    Dataset.from_arrays(tmp_path / "rows", X=X, unit="patient", max_rows_per_unit=3, grouped=True)
    opened = Dataset.open(tmp_path / "rows")
    assert opened.schema.units == Units("patient", 3, grouped=True) and opened.schema.units.counted
    with pytest.raises(DataError, match="multiple of it"):
        Dataset.from_arrays(X=X, unit="patient", max_rows_per_unit=4, grouped=True)
    # as versions wrote it that did not know of it
    group = zarr.open_group(tmp_path / "rows", mode="r+")
    group.update_attributes({ATTRIBUTE: {k: v for k, v in group.attrs[ATTRIBUTE].items() if k != "grouped"}})
    old = Dataset.open(tmp_path / "rows")
    assert not old.schema.grouped and not old.schema.units.counted
    np.testing.assert_array_equal(old.read(0, 6)["X"], X)
    assert repr(old).splitlines()[1] == "  X: float64 (private, 2)" and "n_rows=private" in repr(old)
    assert "private x 2" in old._repr_html_() and old._repr_html_().count("private</") == 2
    with pytest.raises(BudgetError, match=r"folds are ranges of rows; .* 0 to 3 rows .*dpdist ingest --unit"):
        old.split(2)


def test_arrays_of_owners_have_to_say_how_many_rows_one_may_own() -> None:
    X = np.zeros((4, 1))
    with pytest.raises(MissingBound, match=r"'patient' may own several rows: declare .* max_rows_per_unit="):
        Dataset.from_arrays(X=X, unit="patient")
    assert Dataset.from_arrays(X=X, unit="patient", max_rows_per_unit=1).schema.units == Units("patient")
    assert Dataset.from_arrays(X=X).schema.units == Units()


def test_folds_and_samples_hold_all_rows_of_a_unit_or_none() -> None:
    data = Dataset.from_arrays(X=np.zeros((21, 1)), unit="patient", max_rows_per_unit=3, grouped=True)
    assert [(fold.start, fold.stop) for fold in data.split(3)] == [(0, 6), (6, 12), (12, 21)]
    with pytest.raises(DataError, match="from 1 to 7, the number of units"):
        split_slots(21, 8, rows_per_unit=3)

    one, several = (Batch(bytes(range(16)), 0.3, k) for k in (1, 3))
    drawn = several.rows(0, 30_000)
    np.testing.assert_array_equal(drawn.reshape(-1, 3), one.rows(0, 10_000)[:, None] * 3 + np.arange(3))
    for size in (1000, 4097, 12_288):
        parts = [several.rows(a, min(a + size, 30_000)) + a for a in range(0, 30_000, size)]
        np.testing.assert_array_equal(np.concatenate(parts), drawn)


def test_the_order_of_owners_follows_from_the_id(tmp_path: Path) -> None:
    """Whoever knows the names, and where they stand in one dataset, does not know it of the next one."""
    (tmp_path / "t.csv").write_text("who,a\n" + "".join(f"p{i},{i}\n" for i in range(20)))
    stored = []
    for name in ("one", "two"):
        ingest(tmp_path / "t.csv", tmp_path / name, features=["a"], unit="who", max_rows=1, dataset_id=name)
        stored.append(Dataset.open(tmp_path / name).read(0, 20)["X"][:, 0])
    assert sorted(stored[0]) == sorted(stored[1]) == list(range(20)) and (stored[0] != stored[1]).any()


def test_rows_that_are_left_out_are_counted_whenever_they_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good rows of an owner that has its rows, and no bad ones, also where some are dropped before all are read."""
    monkeypatch.setattr(owners, "_FEWEST_ROWS", 10)
    monkeypatch.setattr("dpdist.data.delimited.BLOCK_BYTES", 64)
    lines = [f"u,{'x' if i % 4 == 0 else i}\n" for i in range(100)]
    (tmp_path / "t.csv").write_text("who,a\nv,1\n" + "".join(lines))
    done = ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], unit="who", max_rows=5, on_bad="drop")
    assert done.bad == {"a is not a number": 25} and done.over_bound == 75 - 5
