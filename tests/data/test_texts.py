"""Chunks of texts with a count that is not theirs: refused before there is room made for what they promise."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs.vlen import VLenUTF8

from dpdist import Dataset
from dpdist.errors import DataError

WORDS = np.array(["ay", "bee", "", "d\u00e9"], dtype=object)
STORED: dict[str, tuple[int, dict[str, Any]]] = {
    "format 2": (2, {"compressors": None}),
    "format 3": (3, {"compressors": None}),
    "compressed": (3, {}),
    "shards": (3, {"compressors": None, "shards": (4,)}),
}


def store(folder: Path, stored: tuple[int, dict[str, Any]]) -> Path:
    zarr_format, options = stored
    group = zarr.open_group(folder / "t.zarr", mode="w", zarr_format=zarr_format)
    array = group.create_array(name="y", shape=(4,), chunks=(4,), dtype=str, **options)
    array[:] = WORDS
    return folder / "t.zarr"


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_texts_are_read_as_they_were_written(stored, tmp_path):
    data = Dataset.open(store(tmp_path, stored), dataset_id="d")
    assert data.read(0, 4)["y"].tolist() == WORDS.tolist()


@pytest.mark.parametrize("count", [2**24, 2**32 - 1, 5, None], ids=str)
@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_a_count_that_is_not_theirs_takes_no_memory(stored, count, tmp_path, monkeypatch):
    encoded = VLenUTF8.encode

    def lying(self: VLenUTF8, values: Any) -> bytes:
        whole = bytes(encoded(self, values))
        return b"\x04\x00" if count is None else count.to_bytes(4, "little") + whole[4:]

    if stored[0] == 2:
        place = store(tmp_path, stored)
        (place / "y" / "0").write_bytes(lying(VLenUTF8(), WORDS))
    else:

        class Lying(VLenUTF8):
            encode = lying

        with monkeypatch.context() as hostile:
            hostile.setattr("zarr.codecs.vlen_utf8._vlen_utf8_codec", Lying())
            place = store(tmp_path, stored)
    data = Dataset.open(place, dataset_id="d")
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            data.read(0, 4)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()
