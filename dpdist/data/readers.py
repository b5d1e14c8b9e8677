"""Where rows come from: readers that go through a source once, in batches, and can start again at any of them.

A reader knows nothing of what becomes of the rows. It reads in constant memory and promises that the rows after a
`Batch.position` are the same whoever asks, so that an ingestion that was killed continues as if it had not been.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpdist.data.ingestion_spec import IngestionSpec, Layout
from dpdist.data.rows import Rows, as_kind, table_rows
from dpdist.data.sources import TARGET_BYTES
from dpdist.errors import DataError

Position = list[int]
_BATCH_BYTES = TARGET_BYTES // 2


@dataclass
class Batch:
    """Consecutive rows of a source.

    Attributes
    ----------
    rows : Rows
    position : list of int
        Where the next batch begins, for `Reader.batches`; the first number is that of the file.
    name : str
        Of the file, without its directory.
    bytes_done : int
        Of the source, after this batch.
    line_of : function
        Line in the file of the i-th row of the batch; None where the source has no lines.
    """

    rows: Rows
    position: Position
    name: str
    bytes_done: int
    line_of: Callable[[int], int] | None = None

    def location(self, row: int, rows_before: int) -> str:
        """Say where a row is, counting from 1, if ``rows_before`` rows of the file came before this batch."""
        line = "" if self.line_of is None else f" (line {self.line_of(row)})"
        return f"{self.name} row {rows_before + row + 1}{line}"


class Reader(ABC):
    """Reads one source; ``layout`` says what its columns become, ``bytes_total`` how large it is.

    ``stored_bytes`` is how large its features may be once they are stored, which can be a hundred times as much: files
    are packed, values are short, and a level becomes a column.
    """

    layout: Layout
    named: bool = True
    bytes_total: int
    stored_bytes: int

    @abstractmethod
    def batches(self, position: Position | None) -> Iterator[Callable[[], Batch]]:
        """All rows from a position of an earlier batch on (None: from the first).

        Each item is the rest of the work for one batch, which may be done in another thread.
        """

    @abstractmethod
    def identity(self) -> list[Any]:
        """Plain JSON that changes when the source does, without looking at its rows."""


def file_identity(path: Path) -> list[Any]:
    """Name, size and time of change of a file."""
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]


class TableReader(Reader):
    """Several files of the same columns, one after the other."""

    def __init__(self, files: list[Path], spec: IngestionSpec) -> None:
        self.files = files
        self.sizes = [path.stat().st_size for path in files]
        self.bytes_total = sum(self.sizes)
        self.columns = [self._columns(path) for path in files]
        layouts = [spec.layout(names, path.name) for path, names in zip(files, self.columns, strict=True)]
        self.layout = layouts[0]
        for path, layout in zip(files, layouts, strict=True):
            if layout != self.layout:
                raise DataError(f"{path.name} gives other features than {files[0].name}; name each with --features")

    @abstractmethod
    def _columns(self, path: Path) -> list[str]:
        """Return the names of the columns of one file."""

    def identity(self) -> list[Any]:
        return [file_identity(path) for path in self.files]


class ParquetReader(TableReader):
    """Parquet files, row group by row group. A position is: file, row group, rows of the group."""

    def __init__(self, files: list[Path], spec: IngestionSpec) -> None:
        super().__init__(files, spec)
        self.stored_bytes = 0
        for path in files:
            with _open_parquet(path) as file:
                self.stored_bytes += file.metadata.num_rows * self.layout.row_bytes
                for name, kind in self.layout.kinds.items():
                    _check_type(path.name, name, file.schema_arrow.field(name).type, kind)

    def _columns(self, path: Path) -> list[str]:
        with _open_parquet(path) as file:
            return [str(name) for name in file.schema_arrow.names]

    def batches(self, position: Position | None) -> Iterator[Callable[[], Batch]]:
        first_file, group, skip = position or [0, 0, 0]
        for index in range(first_file, len(self.files)):
            yield from self._file_batches(index, group, skip)
            group = skip = 0

    def _file_batches(self, index: int, first_group: int, skip: int) -> Iterator[Callable[[], Batch]]:
        path = self.files[index]
        rows = max(1024, min(2**17, _BATCH_BYTES // (8 * len(self.layout.kinds))))
        before = sum(self.sizes[:index])
        with _open_parquet(path) as file:
            total = max(1, file.metadata.num_rows)
            lengths = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            for group in range(first_group, file.num_row_groups):
                done = 0
                for batch in file.iter_batches(rows, row_groups=[group], columns=list(self.layout.kinds)):
                    done += batch.num_rows
                    if done <= skip:
                        continue
                    bytes_done = before + self.sizes[index] * (sum(lengths[:group]) + done) // total
                    yield partial(self._batch, batch, [index, group, done], path.name, bytes_done)
                skip = 0

    def _batch(self, batch: pa.RecordBatch, position: Position, name: str, bytes_done: int) -> Batch:
        return Batch(table_rows(self._typed(batch), self.layout, []), position, name, bytes_done)

    def _typed(self, batch: pa.RecordBatch) -> pa.Table:
        return pa.table({name: as_kind(batch.column(name), kind) for name, kind in self.layout.kinds.items()})


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        problem = type(error).__name__
    raise DataError(f"{path.name} is not a Parquet file that can be read ({problem}); check it or give --format")


def _check_type(file: str, name: str, stored: pa.DataType, kind: str) -> None:
    plain = stored.value_type if pa.types.is_dictionary(stored) else stored
    number = (
        pa.types.is_integer(plain)
        or pa.types.is_floating(plain)
        or pa.types.is_decimal(plain)
        or pa.types.is_boolean(plain)
    )
    text = number or pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_temporal(plain)
    if not (number if kind == "number" else text):
        hint = "give its levels with --levels, or convert it" if text and kind == "number" else "convert it first"
        raise DataError(f"column {name!r} of {file} has the type {stored}; expected a {kind}: {hint}")
