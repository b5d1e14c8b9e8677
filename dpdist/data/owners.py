"""Rows from wherever their owners have them in a source, to the same number of rows of each owner, side by side.

This is what makes a guarantee per owner true for whatever depends on positions and counts (`dpdist.data.units`). Three
decisions, and why:

**Every owner gets all of its places.** Storing as many rows as an owner has would make the number of rows private, and
with it everything that is computed from it, down to the sizes of files. The price is storage: ``max_rows`` rows for
every owner, whatever it owns. Whoever minds lowers ``max_rows``; what would be absurd is refused (`check_size`).

**Places that are left over get copies of the owner's rows**, not null rows: in turns, which begin with any of them, so
that first rows do not weigh more. Sums are then divided by the number of places, which is public, and not by a number
of rows that is private and would have to be guessed or bought. An owner counts as the mean of its rows, whether these
are one or twenty: once, as it does in the guarantee. The noise on a sum grows with the number of places as the sum
does, so that a mean has the noise that it has with one row per owner; with null rows it would be ``max_rows`` over the
mean number of rows times as large.

**Owners stand in an order that follows from their names alone**, by a hash of the name and the dataset's id: owners in
one block or fold have nothing in common. Where somebody's rows stood in the source, how many there were and which of
them were bad then moves nobody else's. An owner without a good row keeps its places, with null rows. A line of too few
or too many values names nobody, since it is not known which of them are where: who has no other line is no owner.

Constant memory: rows are put aside by ranges of that order while the source is read, as Arrow messages, and each range
is arranged by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.data.dataset_schema import ArraySpec
from dpdist.data.rows import Mask, Rows
from dpdist.errors import DataError

BUCKET_BYTES = 4 * 2**20
"""Of rows as they are stored, for one bucket: what is arranged at a time is a small multiple of it."""
MOST_BUCKETS = 1024
"""Of larger sources the buckets are larger: a batch falls into all of them, and its parts should not be tiny."""
MOST_BYTES = 128 * 2**20
"""Of the rows that one owner gets: they are arranged together, and so they are read where blocks are of owners."""
LENGTH_BYTES = 4
"""Of a stored string, at least: its length stands before it."""
_FEWEST_ROWS = 2**14
_ARRANGED_BYTES = 4 * 2**20


def check_size(unit: str, max_rows: int, row_bytes: int) -> None:
    """Refuse a number of rows for each owner that would fill memory or disk, before anything is read."""
    if max_rows * row_bytes > MOST_BYTES:
        raise DataError(
            f"--max-rows {max_rows} (max_rows=) would write {max_rows * row_bytes:,} bytes for every {unit}, whatever "
            f"it owns: {max_rows:,} rows of {row_bytes} bytes. Expected at most {MOST_BYTES // row_bytes:,} rows, "
            f"which are {MOST_BYTES // 2**20} MiB"
        )


@dataclass(frozen=True)
class OwnerBuckets:
    """Where owners stand: ``n_buckets`` ranges of the order, the same for the same id and the same source."""

    dataset_id: str
    n_buckets: int

    @classmethod
    def of(cls, dataset_id: str, stored_bytes: int) -> OwnerBuckets:
        """Enough buckets for a source whose rows take so many bytes as they are stored."""
        return cls(dataset_id, max(1, min(MOST_BUCKETS, stored_bytes // BUCKET_BYTES)))

    def positions(self, names: list[str]) -> NDArray[np.uint64]:
        """A number for each name: owners stand in the order of these."""
        key = hashlib.sha256(self.dataset_id.encode()).digest()
        hashes = (hashlib.blake2b(name.encode(), digest_size=8, key=key).digest() for name in names)
        return np.frombuffer(b"".join(hashes), ">u8").astype(np.uint64)

    def numbers(self, positions: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The range that each position is in."""
        return (((positions >> np.uint64(32)) * np.uint64(self.n_buckets)) >> np.uint64(32)).astype(np.int64)


def put_aside(rows: Rows, good: Mask, buckets: OwnerBuckets) -> Iterator[tuple[int, bytes]]:
    """The rows that have an owner, cut into buckets; ``good`` ones may be written, of others the owner is kept."""
    assert rows.unit is not None
    width = rows.X.dtype.itemsize * rows.X.shape[1]
    columns = {
        "owner": rows.unit,
        "good": pa.array(good),
        "X": pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width), len(rows.X), [None, pa.py_buffer(np.ascontiguousarray(rows.X))]
        ),
    }
    if rows.y is not None:
        columns["y"] = pa.array(rows.y, pa.string() if rows.y.dtype.kind == "O" else pa.float64())
    table = pa.table(columns).filter(rows.unit.is_valid())
    owners = table.column("owner").combine_chunks().dictionary_encode()
    bucket = buckets.numbers(buckets.positions(owners.dictionary.to_pylist()))[owners.indices.to_numpy()]
    order = np.argsort(bucket, kind="stable")
    table = table.take(pa.array(order))
    numbers, starts = np.unique(bucket[order], return_index=True)
    for number, start, stop in zip(numbers, starts, [*starts[1:], len(order)], strict=True):
        yield int(number), _message(table.slice(start, stop - start))


def _message(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def arrange(
    messages: Iterable[bytes],
    buckets: OwnerBuckets,
    max_rows: int,
    arrays: Mapping[str, ArraySpec],
    null: float = np.nan,
) -> tuple[int, Iterator[dict[str, NDArray[Any]]]]:
    """The owners of one bucket with ``max_rows`` rows each.

    Parameters
    ----------
    messages : iterable of bytes
        Of this bucket, from `put_aside`, in the order of the source.
    buckets : OwnerBuckets
    max_rows : int
        The first good ones of each owner are taken.
    arrays : mapping of str to ArraySpec
        What is written; the numbers of rows do not matter.
    null : float
        The entries of a null row.

    Returns
    -------
    (int, iterator of dict)
        How many good rows were left out because their owner had its rows already, and the rows, a few owners at a time.
    """
    table, left_out = _first_rows(messages, max_rows)
    if table is None:
        return 0, iter(())
    owners = table.column("owner").combine_chunks().dictionary_encode()
    names = owners.dictionary.to_pylist()
    standing = buckets.positions(names)
    order = sorted(range(len(names)), key=lambda i: (standing[i], names[i]))
    numbers = np.empty(len(names), np.int64)
    numbers[order] = np.arange(len(names))
    owner_of, good = numbers[owners.indices.to_numpy()], _good(table)
    table = table.take(pa.array(np.flatnonzero(good)[np.argsort(owner_of[good], kind="stable")]))
    owned = np.bincount(owner_of[good], minlength=len(names))
    turns = (standing[order] % np.maximum(owned, 1).astype(np.uint64)).astype(np.int64)
    return left_out, _filled(table, owned, turns, max_rows, arrays, null)


def n_owners(messages: Iterable[bytes]) -> int:
    """How many owners one bucket has."""
    names: set[str] = set()
    for message in messages:
        names.update(pa.ipc.open_stream(message).read_all().column("owner").unique().to_pylist())
    return len(names)


def _first_rows(messages: Iterable[bytes], max_rows: int) -> tuple[pa.Table | None, int]:
    """The first good rows of each owner, one bad row of owners without any, and how many good ones are left out.

    None if there is nobody in the bucket. Every now and then what is not needed is dropped, so that memory does not
    grow with the rows of one owner.
    """
    tables: list[pa.Table] = []
    left_out = waiting = settled = 0
    for message in messages:
        tables.append(pa.ipc.open_stream(message).read_all())
        waiting += len(tables[-1])
        if waiting > settled + _FEWEST_ROWS:
            tables, dropped = _pruned(tables, max_rows)
            left_out, waiting, settled = left_out + dropped, 0, len(tables[0])
    if not tables:
        return None, 0
    tables, dropped = _pruned(tables, max_rows)
    return tables[0], left_out + dropped


def _pruned(tables: list[pa.Table], max_rows: int) -> tuple[list[pa.Table], int]:
    table = pa.concat_tables(tables).combine_chunks()
    owner = table.column("owner").combine_chunks().dictionary_encode().indices.to_numpy()
    good = _good(table)
    keep = np.zeros(len(table), bool)
    keep[np.unique(owner, return_index=True)[1]] = True
    # an owner's first row may be a bad one that it needs no more
    keep[~good & np.isin(owner, owner[good])] = False
    keep[good] = _ranks(owner[good]) < max_rows
    return [table.filter(pa.array(keep))], int(np.count_nonzero(good & ~keep))


def _good(table: pa.Table) -> Mask:
    return np.asarray(table.column("good").to_numpy(), dtype=bool)


def _filled(
    table: pa.Table,
    owned: NDArray[np.int64],
    turns: NDArray[np.int64],
    max_rows: int,
    arrays: Mapping[str, ArraySpec],
    null_entry: float,
) -> Iterator[dict[str, NDArray[Any]]]:
    """``max_rows`` rows for each owner: its ``owned`` ones of ``table``, where owners follow one another, in turns."""
    starts = np.concatenate([[0], np.cumsum(owned)])
    step = max(1, _ARRANGED_BYTES // (max_rows * arrays["X"].row_bytes))
    for first in range(0, len(owned), step):
        owner = np.arange(first, min(first + step, len(owned)))[:, None]
        # whoever owns none takes any row, which is made null
        source = (starts[owner] + (turns[owner] + np.arange(max_rows)) % np.maximum(owned[owner], 1)).ravel()
        null = np.repeat(owned[owner.ravel()] == 0, max_rows)
        found = np.flatnonzero(~null)
        rows = table.take(pa.array(source[found]))
        yield {name: _placed(rows.column(name), found, len(source), spec, null_entry) for name, spec in arrays.items()}


def _placed(
    column: pa.ChunkedArray, places: NDArray[np.int64], n_rows: int, spec: ArraySpec, null: float
) -> NDArray[Any]:
    """The values of a column in their places, and null rows in the others."""
    if spec.dtype == "str":
        out = np.full(n_rows, "", dtype=object)
        out[places] = column.to_numpy()
        return out
    out = np.full((n_rows, *spec.shape[1:]), null, dtype=spec.dtype)
    if len(spec.shape) == 1:
        out[places] = column.to_numpy()
    elif len(places):
        out[places] = np.concatenate([_numbers(chunk, spec) for chunk in column.chunks])
    return out


def _numbers(values: pa.FixedSizeBinaryArray, spec: ArraySpec) -> NDArray[Any]:
    stop = values.offset + len(values)
    rows = np.frombuffer(values.buffers()[1], spec.dtype, stop * spec.shape[1]).reshape(stop, -1)
    return rows[values.offset :]


def _ranks(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many equal codes stand before each.

    >>> _ranks(np.array([2, 1, 2, 2, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))[:-1]])
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - starts[codes[order]]
    return ranks
