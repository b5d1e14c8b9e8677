"""Arrays of Python objects in stores of others: one `DataError`, no foreign traceback, and nothing is unpickled."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.core.array import AsyncArray
from zarr.core.dtype import Float64
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.storage import StorePath

from dpdist import LogisticRegression
from dpdist.data import Dataset, ingest
from dpdist.data.messages import open_messages
from dpdist.data.sources import ZarrSource
from dpdist.errors import DataError
from tests.cli.command import call


class Trap:
    """Whoever unpickles it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.mark, "w")


PLAIN: dict[str, Any] = {
    "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|O", "compressor": None, "fill_value": None, "order": "C",
    "filters": None,
}  # fmt: skip
PICKLE = {"id": "pickle", "protocol": 5}
ARRAYS = {
    "pickled objects": {"filters": [PICKLE]},
    "pickled numbers": {"dtype": "<f8", "filters": [PICKLE]},
    "pickled and compressed": {"dtype": "<f8", "filters": [{"id": "zlib", "level": 1}, PICKLE]},
    "pickled by the compressor": {"dtype": "<f8", "compressor": PICKLE},
    "a pickled fill value": {"filters": [PICKLE], "fill_value": "pickled"},
    "json": {"filters": [{"id": "json2"}]},
    "msgpack": {"filters": [{"id": "msgpack2"}]},
    "ragged arrays": {"filters": [{"id": "vlen-array", "dtype": "<i4"}]},
    "ragged bytes": {"filters": [{"id": "vlen-bytes"}]},
    "categories": {"filters": [{"id": "categorize", "labels": ["a"], "dtype": "|O", "astype": "|u1"}]},
    "objects of no codec": {},
    "strings that are none": {"filters": [{"id": "vlen-utf8"}], "fill_value": ""},
    "an unknown codec": {"dtype": "<f8", "filters": [{"id": "nonsense"}]},
    "an unknown type": {"dtype": "<q9"},
    "records": {"dtype": [["a", "<i4"], ["b", "<f8"]]},
    "moments": {"dtype": "<M8[ns]", "fill_value": 0},
    "raw bytes": {"dtype": "|V8"},
}


@pytest.fixture(autouse=True)
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with versions of numcodecs that unpickle whatever they are given."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)


@pytest.fixture(params=ARRAYS)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A group of format 2 with such an array, whose chunk is a pickle that would run code."""
    trap = np.full(4, Trap(tmp_path / "sprung"), dtype=object)
    chunk = numcodecs.Pickle().encode(trap)
    metadata = {**PLAIN, **ARRAYS[request.param]}
    if metadata["fill_value"] == "pickled":
        metadata["fill_value"] = pickle.dumps(trap[0]).hex()
    place = tmp_path / "foreign.zarr"
    (place / "X").mkdir(parents=True)
    (place / ".zgroup").write_text('{"zarr_format": 2}')
    (place / "X" / ".zarray").write_text(json.dumps(metadata))
    (place / "X" / "0").write_bytes(chunk)
    return place


WAYS: dict[str, Callable[[Path], Any]] = {
    "open": lambda place: Dataset.open(place, dataset_id="x").read(0, 4),
    "open by name": lambda place: Dataset.open(place, arrays=["X"], dataset_id="x").verify(),
    "fit": lambda place: LogisticRegression(classes=[0, 1], row_norm=1.0, epsilon=1.0, delta=1e-6).fit(
        Dataset.open(place, dataset_id="x").select(X="X", y="X")
    ),
    "ingest": lambda place: ingest(place, place.parent / "dest.zarr", features=["X"]),
    "reports": lambda place: open_messages(place, 8).read(0, 4),
}


@pytest.mark.parametrize("way", WAYS)
def test_arrays_of_objects_are_refused_and_not_unpickled(foreign: Path, way: str) -> None:
    with pytest.raises(DataError) as refused:
        WAYS[way](foreign)
    assert not (foreign.parent / "sprung").exists()
    chain = refused.value.__cause__ or refused.value.__context__
    assert chain is None or refused.value.__suppress_context__


def test_the_commands_say_so_in_a_sentence(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = call(capsys, "info", foreign, "--verify")
    assert said.code == 2 and said.out == "" and said.err.startswith("dpdist: ") and "Traceback" not in said.err
    assert not (foreign.parent / "sprung").exists()


def pickling_array(tmp_path: Path) -> zarr.Array:
    """What older versions of Zarr make of an array of format 2 with this filter."""
    metadata = ArrayV2Metadata(
        shape=(4,), dtype=Float64(), chunks=(4,), fill_value=0.0, order="C", filters=(numcodecs.Pickle(),)
    )
    store = zarr.storage.LocalStore(tmp_path / "old.zarr")
    (tmp_path / "old.zarr").mkdir()
    chunk = numcodecs.Pickle().encode(np.full(4, Trap(tmp_path / "sprung"), dtype=object))
    (tmp_path / "old.zarr" / "0").write_bytes(chunk)
    return zarr.Array(AsyncArray(metadata, StorePath(store)))


def test_a_pickle_that_zarr_would_open_is_not_read(tmp_path: Path) -> None:
    array = pickling_array(tmp_path)
    with pytest.raises(DataError, match="pickled objects"):
        ZarrSource("X", array)
    assert not (tmp_path / "sprung").exists()
    with pytest.raises(TypeError, match="TextIOWrapper"):  # the file that the trap has opened
        array[:]
    assert (tmp_path / "sprung").exists(), "else there was no trap"


def test_pickles_in_numpy_files_are_not_read(tmp_path: Path) -> None:
    trap = np.full((4, 1), Trap(tmp_path / "sprung"), dtype=object)
    np.save(tmp_path / "X.npy", trap)
    np.savez(tmp_path / "both.npz", X=np.zeros((4, 1)), y=trap[:, 0])
    for name in ("X.npy", "both.npz"):
        with pytest.raises(DataError, match="object"):
            ingest(tmp_path / name, tmp_path / "dest.zarr")
    assert not (tmp_path / "sprung").exists()
