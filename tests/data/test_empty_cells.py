"""Empty cells by declaration, clipping, and the declarations that travel with a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpdist.data import Dataset
from dpdist.data.encoding import Encoding
from dpdist.data.ingestion import ingest
from dpdist.data.ingestion_spec import IngestionSpec
from dpdist.errors import DataError

TABLE = pd.DataFrame(
    {
        "age": [20.0, np.nan, 80.0, 130.0],
        "town": ["A", "B", None, "A"],
        "kids": [1.0, 2.0, np.nan, 0.0],
        "price": [10.0, 20.0, 30.0, 99.0],
    }
)
ASKED: dict[str, Any] = {
    "features": ["age", "kids"],
    "levels": {"town": ["A", "B"]},
    "ranges": {"age": (0, 100), "price": (0, 50)},
    "missing": {"age": "indicator", "town": "level", "kids": "0"},
    "label": "price",
}
NAMES = ("age", "age is missing", "kids", "town=A", "town=B", "town is missing")
ROWS = [[-0.6, 0, 1, 1, 0, 0], [0, 1, 2, 0, 1, 0], [0.6, 0, 0, 0, 0, 1], [1, 0, 0, 1, 0, 0]]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_empty_cells_become_what_was_declared_and_no_row_is_lost(tmp_path: Path, kind: str) -> None:
    source = tmp_path / f"t.{kind}"
    TABLE.to_csv(source, index=False) if kind == "csv" else TABLE.to_parquet(source)
    done = ingest(source, tmp_path / "x.zarr", **ASKED)
    opened = Dataset.open(tmp_path / "x.zarr")
    stored = opened.read(0, 4)
    assert opened.schema.columns["X"] == NAMES and not done.bad
    np.testing.assert_allclose(stored["X"], ROWS, atol=1e-15)
    np.testing.assert_allclose(stored["y"], [-0.6, -0.2, 0.2, 1.0])
    encoding = opened.schema.encoding
    assert encoding is not None and encoding.names == NAMES
    for table in (TABLE, pa.Table.from_pandas(TABLE), TABLE[["price", "kids", "town", "age"]]):
        np.testing.assert_array_equal(encoding.encode(table), stored["X"])
    assert encoding.described()["age"] == "from 0 to 100, as -1 to 1; empty cells have a column of their own"
    assert encoding.described()["kids"] == "empty cells count as 0"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_category_that_says_na_is_empty_unless_that_is_a_level(tmp_path: Path, kind: str) -> None:
    """As numbers that say NA are: R writes empty cells so."""
    source, table = tmp_path / f"t.{kind}", TABLE.assign(town=["A", "NA", None, "null"])
    table.to_csv(source, index=False) if kind == "csv" else table.to_parquet(source)
    done = ingest(source, tmp_path / "x.zarr", **ASKED)
    X = Dataset.open(tmp_path / "x.zarr").read(0, 4)["X"]
    assert not done.bad and X[:, 3:].tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    named = {**ASKED, "levels": {"town": ["A", "NA"]}, "missing": {**ASKED["missing"], "town": "A"}}
    ingest(source, tmp_path / "named.zarr", **named)
    assert Dataset.open(tmp_path / "named.zarr").read(0, 4)["X"][:, 3:].tolist() == [[1, 0], [0, 1], [1, 0], [1, 0]]
    told = ingest(source, tmp_path / "told.zarr", **{**ASKED, "missing": {"age": "0", "kids": "0"}, "on_bad": "drop"})
    assert dict(told.bad) == {"town is missing": 3}


REFERRED = [[-0.6, 0, 1, 0, 0], [0, 1, 2, 1, 0], [0.6, 0, 0, 0, 1], [1, 0, 0, 0, 0]]


def test_the_level_to_compare_with_has_no_column_and_is_a_level_all_the_same(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    asked = {**ASKED, "reference": {"town": "A"}}
    done = ingest(tmp_path / "t.csv", tmp_path / "x.zarr", **asked)
    opened = Dataset.open(tmp_path / "x.zarr")
    encoding = opened.schema.encoding
    assert done.schema.columns["X"] == (*NAMES[:3], "town=B", "town is missing") and not done.bad
    np.testing.assert_allclose(opened.read(0, 4)["X"], REFERRED, atol=1e-15)
    assert encoding is not None and Encoding.from_attributes(encoding.to_attributes()) == encoding
    np.testing.assert_array_equal(encoding.encode(TABLE), opened.read(0, 4)["X"])
    assert encoding.described()["town"].startswith("2 levels: A, B; against A, which has no column")
    asked["missing"] = {**ASKED["missing"], "town": "A"}
    done = ingest(tmp_path / "t.csv", tmp_path / "y.zarr", **asked)
    assert Dataset.open(tmp_path / "y.zarr").read(2, 3)["X"].tolist() == [[pytest.approx(0.6), 0, 0, 0]]
    # the first of three, so that columns and positions of levels are not the same
    (tmp_path / "s.csv").write_text("c\nu\nv\nw\nx\n")
    levels: Any = {"levels": {"c": ["u", "v", "w"]}, "reference": {"c": "u"}, "on_bad": "drop"}
    done = ingest(tmp_path / "s.csv", tmp_path / "z.zarr", **levels)
    assert dict(done.bad) == {"c is not one of the declared levels": 1}
    assert Dataset.open(tmp_path / "z.zarr").read(0, 3)["X"].tolist() == [[0, 0], [1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("reference", "match"),
    [
        ({"town": "C"}, "--reference town=C: expected one of the at least two declared levels of town, A, B"),
        ({"age": "A"}, "'age', which has no declared levels: declare them with --levels age=A,"),
        ({"twon": "A"}, "'twon', which has no declared levels .did you mean 'town'"),
    ],
)
def test_a_level_that_is_none_cannot_be_compared_with(tmp_path: Path, reference: Any, match: str) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=match):
        ingest(tmp_path / "t.csv", tmp_path / "x", **ASKED, reference=reference)


def test_kept_cells_are_described_as_empty() -> None:
    spec = IngestionSpec(features=("age",), missing={"age": "keep"})
    assert Encoding(spec).described() == {"age": "empty cells stay empty"}


def test_without_clipping_values_leave_their_range(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    ingest(tmp_path / "t.csv", tmp_path / "x.zarr", clip=False, **ASKED)
    assert Dataset.open(tmp_path / "x.zarr").read(3, 4)["X"][0, 0] == pytest.approx(1.6)


def test_an_infinite_value_is_bad_whether_it_is_clipped_or_not(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\ninf\n")
    for clip in (True, False):
        done = ingest(
            tmp_path / "t.csv", tmp_path / f"{clip}", features=["a"], ranges={"a": (0, 2)}, clip=clip, on_bad="drop"
        )
        assert dict(done.bad) == {"a is not a finite float64 number": 1}


def test_what_is_no_number_stays_bad_beside_declared_empty_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,u\n,u\nword,u\n2,\n3,w\n")
    asked: Any = {"features": ["a"], "levels": {"b": ["u", "v"]}, "on_bad": "drop"}
    done = ingest(tmp_path / "t.csv", tmp_path / "x", missing={"a": "7", "b": "v"}, **asked)
    assert dict(done.bad) == {"a is not a number": 1, "b is not one of the declared levels": 1}
    np.testing.assert_array_equal(Dataset.open(tmp_path / "x").read(0, 3)["X"], [[1, 1, 0], [7, 1, 0], [2, 0, 1]])
    asked["on_bad"] = "stop"
    with pytest.raises(DataError, match=r"(?s)row 3.*a is not a number.*--levels COLUMN=a,b,c.*--label-levels"):
        ingest(tmp_path / "t.csv", tmp_path / "y", missing={"a": "7", "b": "v"}, **asked)
    with pytest.raises(DataError, match=r"(?s)a is missing.*--missing COLUMN=indicator"):
        ingest(tmp_path / "t.csv", tmp_path / "y", **asked)


@pytest.mark.parametrize(
    ("missing", "match"),
    [
        ({"price": "0"}, "a label or an owner has to be there"),
        ({"aeg": "0"}, "is no feature.*did you mean"),
        ({"age": "level"}, "expected indicator"),
        ({"age": "inf"}, "expected indicator"),
        ({"town": "C"}, "one of the declared levels A, B"),
    ],
)
def test_what_an_empty_cell_cannot_stand_for_is_refused(tmp_path: Path, missing: Any, match: str) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=match):
        ingest(tmp_path / "t.csv", tmp_path / "x", **{**ASKED, "missing": missing})
    np.save(tmp_path / "X.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"--missing COLUMN=level.* is for tables"):
        ingest(tmp_path / "X.npy", tmp_path / "x", missing={"0": "1"})


def test_a_table_that_cannot_be_encoded_is_refused_by_columns_and_rows_not_by_values() -> None:
    known = Encoding(IngestionSpec(features=("age", "town"), levels={"town": ("A", "B")}))
    assert Encoding.from_attributes(known.to_attributes()) == known
    with pytest.raises(DataError, match="no column 'town'"):
        known.encode(TABLE[["age"]])
    with pytest.raises(DataError, match=r"2 rows .*positions 0, 1.*age is missing; town is not one of") as refused:
        known.encode(pd.DataFrame({"age": [None, 5.0], "town": ["A", "SECRET"]}))
    assert "SECRET" not in str(refused.value)
    with pytest.raises(DataError, match="'age' cannot be read as numbers") as refused:
        known.encode(pd.DataFrame({"age": ["SECRET"], "town": ["A"]}))
    assert "SECRET" not in str(refused.value) and refused.value.__context__ is None


def test_a_level_with_a_comma_is_quoted_on_the_command_line(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from dpdist.cli.ingest import command

    (tmp_path / "t.csv").write_text('a,b\n1,"x, y"\n,z\n')
    asked = ["--features", "a", "--levels", 'b="x, y",z', "--missing", "a=indicator", "--json"]
    result = CliRunner().invoke(command, [str(tmp_path / "t.csv"), str(tmp_path / "x.zarr"), *asked])
    assert result.exit_code == 0, result.output
    assert Dataset.open(tmp_path / "x.zarr").schema.columns["X"] == ("a", "a is missing", "b=x, y", "b=z")
