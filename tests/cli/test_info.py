"""`dpdist info`: the public description, no more; and damage is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result

from dpdist import Dataset
from dpdist.cli import main

X = np.arange(3000.0).reshape(1000, 3) + 0.123


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def info(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["info", *words])
    assert done.exit_code == code, done.output
    return done


def write(grouped: bool = True) -> Dataset:
    return Dataset.from_arrays(
        "rows.zarr",
        X=X,
        y=np.array(["yes", "no"] * 500),
        partition_rows=300,
        unit="patient",
        max_rows_per_unit=4,
        grouped=grouped,
        row_order="arrival",
    )


def snapshot(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_the_description_in_words() -> None:
    dataset = write()
    text = info("rows.zarr").stdout
    for words in (
        f"Id            {dataset.id}\n",
        f"Edition       {dataset.schema.edition}\n",
        "Rows          1,000, of 250 units\n",
        "Privacy unit  patient, with 4 rows each\n",
        "Row order     arrival\n",
        "Partitions    4, of up to 11.7 KiB\n",
        "X      float64  1,000 x 3\n",
        "y      str      1,000\n",
    ):
        assert words in text, text
    assert "Columns" not in text and "Verified" not in text
    assert "0.123" not in text and "yes" not in text  # no value


def test_the_description_as_json() -> None:
    dataset = write()
    facts = json.loads(info("rows.zarr", "--json").stdout)
    assert (facts["id"], facts["n_rows"], facts["unit"], facts["max_rows_per_unit"]) == (dataset.id, 1000, "patient", 4)
    assert facts["edition"] == dataset.schema.edition
    assert facts["arrays"]["X"]["dtype"] == "float64" and facts["arrays"]["X"]["shape"] == [1000, 3]
    assert facts["arrays"]["X"]["bytes"] == X.nbytes and facts["bytes"] == dataset.nbytes
    assert facts["partitions"] == 4 and facts["row_order"] == "arrival" and facts["columns"] == {}
    assert "verified" not in facts


def test_a_private_number_of_rows_is_not_told() -> None:
    """One patient may have more rows than in a neighbouring dataset: neither their number nor what follows from it."""
    write(grouped=False)
    text = info("rows.zarr").stdout
    for words in (
        "Rows          private\n",
        "Privacy unit  patient, with at most 4 rows each\n",
        "Partitions    private\n",
        "Size          private\n",
        "X      float64  private x 3\n",
    ):
        assert words in text, text
    facts = json.loads(info("rows.zarr", "--json").stdout)
    assert facts["grouped"] is False and facts["arrays"]["X"]["shape"] == [None, 3]
    told = {**facts, **facts["arrays"]["X"], **facts["arrays"]["y"]}
    assert {told[name] for name in ("n_rows", "partitions", "partition_bytes", "bytes")} == {None}


def test_the_names_of_columns() -> None:
    write()
    group = zarr.open_group("rows.zarr", mode="r+")
    attributes = dict(group.attrs["dpdist"])
    attributes["columns"] = {"X": ["height", "weight", "age"]}
    group.update_attributes({"dpdist": attributes})
    assert "Columns of X, in order:\n  height, weight, age" in info("rows.zarr").stdout
    assert json.loads(info("rows.zarr", "--json").stdout)["columns"] == {"X": ["height", "weight", "age"]}


def test_a_store_of_others_is_left_as_it_is() -> None:
    group = zarr.open_group("foreign.zarr", mode="w")
    group.create_array("a", data=X)
    before = snapshot("foreign.zarr")
    text = info("foreign.zarr", "--verify").stdout
    assert "Id            none yet" in text and "Edition" not in text
    assert json.loads(info("foreign.zarr", "--json").stdout)["id"] is None
    assert snapshot("foreign.zarr") == before


def test_verify_reads_every_chunk(place: Path) -> None:
    write()
    assert "Verified      every chunk can be read" in info("rows.zarr", "--verify").stdout
    assert json.loads(info("rows.zarr", "--verify", "--json").stdout)["verified"] is True
    chunk = place / "rows.zarr" / "X" / "c" / "2" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert info("rows.zarr").exit_code == 0  # the description needs no chunk
    done = subprocess.run(
        [sys.executable, "-m", "dpdist.cli", "info", "rows.zarr", "--verify"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert "'X'" in done.stderr and "600:900" in done.stderr
    chunk.unlink()
    assert "missing" in info("rows.zarr", "--verify", code=2).output


@pytest.mark.parametrize(
    ("name", "message"),
    (
        ("no.zarr", "dpdist: no.zarr: there is no such file or directory"),
        ("notes.txt", "dpdist: notes.txt is a file, and a stored dataset is expected: 'dpdist ingest notes.txt DEST"),
        ("folder", "dpdist: folder is not a dataset"),
        ("rows.zarr/X", "not a file, nor one array of a group"),
        ("unfinished.zarr", "was never finished"),
        ("s4://key:secret@bucket/x", "dpdist: s4://bucket/x is not a dataset"),
    ),
)
def test_what_is_no_dataset(place: Path, name: str, message: str) -> None:
    write()
    (place / "notes.txt").write_text("x")
    (place / "folder").mkdir()
    zarr.open_group("unfinished.zarr", mode="w").update_attributes({"dpdist": {"version": 1, "unfinished": True}})
    done = info(name, code=2)
    assert message in done.output and done.stdout == "" and "secret" not in done.output
