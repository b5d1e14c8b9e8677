"""Damage of stored chunks that decoding them does not notice.

Zarr reads a chunk that does not exist as fill values, and an empty shard file likewise. Blosc trusts the length in the
header of its frame, so a file that was cut short by a few bytes decodes to whatever memory follows. Lengths
are checked here, without reading the chunks.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.sync import sync

_BLOSC_HEADER = 16


def chunk_problem(
    array: zarr.Array, grid: tuple[int, ...], start: int, stop: int, *, complete: bool, lengths: bool
) -> tuple[int, int, str] | None:
    """First and last row of the first damaged chunk among those that hold rows ``start:stop``, and what is wrong.

    Parameters
    ----------
    array : zarr.Array
    grid : tuple of int
        Shape of one stored object: the shard or, without shards, the chunk.
    start, stop : int
    complete : bool
        Whether a chunk that does not exist is damage (the writer stored every chunk) or stands for fill values.
    lengths : bool
        Look at the lengths too, not only at the existence.
    """
    rows = range(start // grid[0], -(-stop // grid[0]))
    columns = [range(-(-length // size)) for length, size in zip(array.shape[1:], grid[1:], strict=True)]
    chunks = list(itertools.product(rows, *columns))
    for chunk, problem in zip(chunks, sync(_problems(array, chunks, complete, lengths)), strict=True):
        if problem:
            first = chunk[0] * grid[0]
            return first, min(first + grid[0], array.shape[0]), problem
    return None


async def _problems(
    array: zarr.Array, chunks: list[tuple[int, ...]], complete: bool, lengths: bool
) -> list[str | None]:
    blosc = _outermost_codec(array.metadata).endswith("blosc")
    return await asyncio.gather(*(_problem(array, chunk, complete, lengths, blosc) for chunk in chunks))


async def _problem(array: zarr.Array, chunk: tuple[int, ...], complete: bool, lengths: bool, blosc: bool) -> str | None:
    path = array.store_path / array.metadata.encode_chunk_key(chunk)
    if not await path.exists():
        return "its chunk is missing, and this store was written with all" if complete else None
    if not lengths:
        return None
    size = await path.store.getsize(path.path)
    if size == 0:
        return "its chunk is empty"
    if blosc:
        header = await path.get(byte_range=RangeByteRequest(0, _BLOSC_HEADER))
        if header is None or int.from_bytes(header.to_bytes()[12:], "little") != size:
            return "its chunk has not the length that its header says"
    return None


def _outermost_codec(metadata: Any) -> str:
    """Name of the codec that makes the stored bytes, in either format ("" for none)."""
    if hasattr(metadata, "codecs"):
        return str(metadata.codecs[-1].to_dict().get("name", ""))
    return str(getattr(metadata.compressor, "codec_id", ""))
