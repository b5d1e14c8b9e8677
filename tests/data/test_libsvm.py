"""Sparse lines: what scikit-learn writes is read back; each bad line is named, by its line and its reason."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets

from dpdist.data import Dataset, delimited, ingest, readers
from dpdist.errors import DataError

RNG = np.random.default_rng(5)
X = np.where(RNG.random((500, 7)) < 0.3, RNG.standard_normal((500, 7)), 0.0)
Y = RNG.choice([-1.0, 1.0], 500)


def written() -> bytes:
    out = io.BytesIO()
    sklearn.datasets.dump_svmlight_file(X, Y, out, zero_based=False, comment="two lines\nof comment")
    return out.getvalue()


@pytest.mark.parametrize("size", [1, 300, 2**22])
@pytest.mark.parametrize("kind", ["plain", "windows", "gz", "two files", "odd blanks"])
def test_what_another_tool_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", size)
    monkeypatch.setattr(readers, "_BATCH_BYTES", 8 * 7 * 90)
    text, source = written(), tmp_path / "t.libsvm"
    if kind == "two files":
        lines = text.splitlines(keepends=True)
        (tmp_path / "t1.svm").write_bytes(b"".join(lines[:100]))
        (tmp_path / "t2.svm").write_bytes(b"".join(lines[100:]))
        source = tmp_path / "t*.svm"
    elif kind == "gz":
        source = tmp_path / "t.libsvm.gz"
        source.write_bytes(gzip.compress(text))
    elif kind == "odd blanks":
        source.write_bytes(text.replace(b" ", b"\t ").replace(b"\n", b"  # 9:nine\n\n").removesuffix(b"\n\n"))
    else:
        source.write_bytes(text.replace(b"\n", b"\r\n") if kind == "windows" else text)
    done = ingest(source, tmp_path / "out", features=["7"], partition_rows=64)
    stored = Dataset.open(tmp_path / "out").read(0, 500)
    theirs, labels = sklearn.datasets.load_svmlight_file(io.BytesIO(text), n_features=7)  # it wrote 16 digits
    np.testing.assert_array_equal(stored["X"], theirs.toarray())
    np.testing.assert_array_equal(stored["y"], labels)
    np.testing.assert_allclose(stored["X"], X, rtol=1e-15)
    assert done.rows_read == 500 and not done.bad and done.schema.columns == {}


BAD = """1 1:1 3:.5
1 0:1
1 -1:1
1 3:1 2:2
1 2:1 2:2
1 5:1
1 1:a
1 1.5:1

1 1:1:1
1 1
1 :1
1 1: 2
:
1::2
2
no 1:1
1,2 1:1
nan 1:1
1 2:inf
1 qid:3 1:1
+1 4:-2e1 # 1:1
"""
ASCENDING = "indices do not ascend"
RAGGED = "an entry is not index:value"
REASONS = {
    2: (2, "an index is below 1; indices count from 1"),
    3: (3, "an index is below 1; indices count from 1"),
    4: (4, ASCENDING),
    5: (5, ASCENDING),
    6: (6, "an index is above 4, the declared number of features"),
    7: (7, "a value is not a number"),
    8: (8, "an index is not a whole number"),
    9: (10, RAGGED),
    10: (11, RAGGED),
    11: (12, RAGGED),
    12: (13, RAGGED),
    13: (14, RAGGED),
    14: (15, RAGGED),
    16: (17, "label is not a number"),
    17: (18, "label is not a number"),
    18: (19, "label is not a finite number"),
    19: (20, "2 is not a finite float64 number"),
    20: (21, "an index is not a whole number"),
}
GOOD = np.array([[1, 0, 0.5, 0, 1], [0, 0, 0, 0, 2], [0, 0, 0, -20, 1]])


@pytest.mark.parametrize("size", [1, 40, 2**22])
def test_bad_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", size)
    monkeypatch.setattr("dpdist.data.copying._SHOWN_ROWS", 50)
    (tmp_path / "t.svm").write_text(BAD)
    source, asked = tmp_path / "t.svm", {"features": ["4"]}
    with pytest.raises(DataError, match="bad rows; nothing was written") as caught:
        ingest(source, tmp_path / "out", **asked)
    found = str(caught.value).splitlines()[1:-1]
    expected = [f"  t.svm row {row} (line {line}): {reason}" for row, (line, reason) in REASONS.items()]
    assert found == (expected if size > 1000 else expected[: len(found)]) and found
    assert not list(tmp_path.glob("out*"))

    done = ingest(source, tmp_path / "out", on_bad="drop", **asked)
    stored = Dataset.open(tmp_path / "out").read(0, 3)
    np.testing.assert_array_equal(np.column_stack([stored["X"], stored["y"]]), GOOD)
    assert done.rows_read == 21 and set(done.bad) == {reason for _, reason in REASONS.values()}

    ingest(source, tmp_path / "zero", on_bad="zero", **asked)
    stored = Dataset.open(tmp_path / "zero").read(0, 21)
    bad = np.isin(np.arange(1, 22), list(REASONS))
    assert np.isnan(stored["X"][bad]).all() and np.isnan(stored["y"][bad]).all()
    np.testing.assert_array_equal(np.column_stack([stored["X"], stored["y"]])[~bad], GOOD)


def test_ranges_and_labels(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("+1 1:0.5\n-1 2:3\n")
    asked: dict[str, Any] = {"features": ["2"], "label": "label"}
    ingest(tmp_path / "t.svm", tmp_path / "a", ranges={"1": (0, 1), "label": (0, 2)}, clip=False, **asked)
    stored = Dataset.open(tmp_path / "a").read(0, 2)
    np.testing.assert_array_equal(stored["X"], [[0, 0], [-1, 3]])  # what is not named is 0, which a range maps as well
    np.testing.assert_array_equal(stored["y"], [0, -2])
    ingest(tmp_path / "t.svm", tmp_path / "b", label_levels=["-1", "+1"], **asked)
    assert list(Dataset.open(tmp_path / "b").read(0, 2)["y"]) == ["+1", "-1"]
    with pytest.raises(DataError, match=r"row 1 \(line 1\): label is not one of the declared levels"):
        ingest(tmp_path / "t.svm", tmp_path / "c", label_levels=["-1", "1"], **asked)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({}, "public decision.*--features 54"),
    ({"features": ["0"]}, "got '0'"),
    ({"features": ["a", "b"]}, "got 'a,b'"),
    ({"features": ["2"], "label": "y"}, "leave --label out"),
    ({"features": ["2"], "unit": "who", "max_rows": 2}, "a line of t.svm has none"),
    ({"features": ["2"], "ranges": {"3": (0, 1)}}, "range was given for '3'"),
    ({"features": ["2"], "levels": {"1": ["0", "1"]}}, "--levels is for tables"),
]


@pytest.mark.parametrize(("asked", "match"), ERRORS, ids=range(len(ERRORS)))
def test_decisions_that_cannot_be(tmp_path: Path, asked: dict[str, Any], match: str) -> None:
    (tmp_path / "t.svm").write_text("1 1:1\n")
    with pytest.raises(DataError, match=match):
        ingest(tmp_path / "t.svm", tmp_path / "out", **asked)


def test_files_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 64)
    monkeypatch.setattr(delimited, "MAX_RECORD_BYTES", 256)
    (tmp_path / "long.svm").write_bytes(b"1 1:1\n" + b"1" * 1000)
    with pytest.raises(DataError, match="after line 1 there is a line of more than"):
        ingest(tmp_path / "long.svm", tmp_path / "out", features=["2"])
    (tmp_path / "cut.libsvm.gz").write_bytes(gzip.compress(written())[:200])
    with pytest.raises(DataError, match="not a whole gzip file"):
        ingest(tmp_path / "cut.libsvm.gz", tmp_path / "out", features=["7"])
    (tmp_path / "empty.svm").write_text("# nothing\n\n")
    with pytest.raises(DataError, match="no rows to write"):
        ingest(tmp_path / "empty.svm", tmp_path / "out", features=["2"])
