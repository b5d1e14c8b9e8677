"""A public function of rows, applied block by block where the rows are: no query, no release, no noise.

For predictions: what comes out is as private as the rows that went in, and nothing of it is shown or charged. Tasks are
named by chance, because names that Dask makes are hashes of what the tasks read.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import dask
import numpy as np
from dask.delayed import delayed
from distributed import Client
from numpy.typing import NDArray

from dpdist.data import Dataset
from dpdist.errors import ClusterUnavailable

Rows = NDArray[Any]


def of_dataset(dataset: Dataset, name: str, function: Callable[[Rows], Rows], like: Rows) -> Any:
    """A Dask array with ``function`` of every partition of one array; ``like`` is what it gives for one row."""
    source, key = dataset.source(name), f"{name}-{secrets.token_hex(16)}"
    read = delayed(_read, pure=False)
    blocks = [
        _block(read(function, source, a, b, dask_key_name=f"{key}-{i}"), (b - a, *like.shape[1:]), like, f"{key}-{i}-a")
        for i, (a, b) in enumerate(dataset.partitions)
    ]
    return _array().concatenate(blocks, axis=0)


def of_dask(rows: Any, function: Callable[[Any], Rows], like: Rows) -> Any:
    """The same of a Dask array, or of a Dask frame, whose numbers of rows stay unknown."""
    key = f"rows-{secrets.token_hex(16)}"
    if not hasattr(rows, "chunks"):
        apply = delayed(function, pure=False)
        blocks = [
            _block(apply(part, dask_key_name=f"{key}-{i}"), (math.nan, *like.shape[1:]), like, f"{key}-{i}-a")
            for i, part in enumerate(rows.to_delayed())
        ]
        return _array().concatenate(blocks, axis=0, allow_unknown_chunksizes=True)
    rows = rows.rechunk({1: -1})
    meta = np.empty((0,) * like.ndim, like.dtype)
    if like.ndim == 1:
        return rows.map_blocks(function, drop_axis=1, dtype=like.dtype, meta=meta, name=key)
    chunks = (rows.chunks[0], like.shape[1:])
    return rows.map_blocks(function, chunks=chunks, dtype=like.dtype, meta=meta, name=key)


def totals(dataset: Dataset, names: Sequence[str], function: Callable[..., Rows]) -> Rows:
    """The sum of ``function`` of the arrays over all partitions."""
    sources, key = [dataset.source(name) for name in names], f"totals-{secrets.token_hex(16)}"
    part = delayed(_part, pure=False)
    parts = [part(function, sources, a, b, dask_key_name=f"{key}-{i}") for i, (a, b) in enumerate(dataset.partitions)]
    found: Rows = reduce(np.add, dask.compute(*parts))
    return found


@contextmanager
def computing_at(scheduler: str | None) -> Iterator[None]:
    """Compute at the Dask scheduler of that address, by default with the threads of this process."""
    if scheduler is None:
        yield
        return
    try:
        client = Client(scheduler)
    except (OSError, TimeoutError, ValueError) as error:
        problem = type(error).__name__
    else:
        with client:
            yield
        return
    raise ClusterUnavailable(f"no Dask scheduler answers at {scheduler} ({problem}): check the address")


def _array() -> Any:
    """Dask's arrays: a tenth of the time in which a first model is made, for answers that few ask for."""
    import dask.array

    return dask.array


def _block(value: Any, shape: tuple[float, ...], like: Rows, name: str) -> Any:
    return _array().from_delayed(value, shape=shape, dtype=like.dtype, name=name)


def _read(function: Callable[[Rows], Rows], source: Any, start: int, stop: int) -> Rows:
    return function(source.read(start, stop))


def _part(function: Callable[..., Rows], sources: Sequence[Any], start: int, stop: int) -> Rows:
    return function(*(source.read(start, stop) for source in sources))


def in_turn(lazy: Any, at_once: int = 8) -> Iterator[Rows]:
    """The blocks of a Dask array one after another, of which some are computed at a time."""
    blocks = [lazy.blocks[i] for i in range(lazy.numblocks[0])]
    for start in range(0, len(blocks), at_once):
        yield from dask.compute(*blocks[start : start + at_once])
