"""CSV in blocks of whole records, parsed by pyarrow; a position is a byte offset, so reading can start again anywhere.

A block in which everything converts is parsed in one go. A block with a ragged line, a value of another type or bytes
that are not UTF-8 is parsed again as raw bytes and converted piece by piece, with the same converters, so that the good
rows of it are the same and the bad ones are known by number.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dpdist.data.ingestion_spec import IngestionSpec
from dpdist.data.readers import Batch, Position, TableReader
from dpdist.data.rows import EMPTY, Problem, table_rows
from dpdist.errors import DataError

BLOCK_BYTES = 4 * 2**20
_FEWEST_CHARACTERS = 2
"""Of a value: a digit and what divides it from the next one."""
_UNPACKED = 10
"""Times the size of a packed file is about the most that its text has."""
MAX_RECORD_BYTES = 64 * 2**20
RECODE = "Convert it, for example with: iconv -f ISO-8859-1 -t UTF-8 OLD.csv > NEW.csv"
RAGGED = "the line has another number of values than the header"
_QUOTE, _NEWLINE, _RETURN = 34, 10, 13
_NUMBER_LIKE = r"^[ \t]*[+-]?([0-9.][0-9.eE+-]*|[iI][nN][fF][a-zA-Z]*|[nN][aA][nN])[ \t]*$"
_UNPACKING = (EOFError, zlib.error, gzip.BadGzipFile)
_BOM = b"\xef\xbb\xbf"


class CsvReader(TableReader):
    """CSV files, plain or gzipped, with a header. A position is: file, byte."""

    def __init__(self, files: list[Path], spec: IngestionSpec, delimiter: str) -> None:
        if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
            raise DataError(f"the delimiter must be one ASCII character, got {delimiter!r}")
        self.delimiter = delimiter
        self._starts: dict[Path, int] = {}
        super().__init__(files, spec)
        text = sum(size * (_UNPACKED if packed(path) else 1) for path, size in zip(files, self.sizes, strict=True))
        self.stored_bytes = text * self.layout.row_bytes // (_FEWEST_CHARACTERS * len(self.layout.kinds))

    def _columns(self, path: Path) -> list[str]:
        with TextFile(path) as stream:
            header = stream.header()
        try:
            text = header.removeprefix(_BOM).decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path.name} is not UTF-8 text (line 1). {RECODE}") from None
        names = next(csv.reader([text.rstrip("\r\n")], delimiter=self.delimiter), [])
        if not names or "\0" in text:
            raise DataError(f"{path.name} has no header; expected the names of the columns in the first line")
        self._starts[path] = len(header)
        return names

    def batches(self, position: Position | None) -> Iterator[Callable[[], Batch]]:
        first_file, offset = position or [0, self._starts[self.files[0]]]
        for index in range(first_file, len(self.files)):
            path = self.files[index]
            before = sum(self.sizes[:index])
            with TextFile(path) as stream:
                for start, block in stream.blocks(self._starts[path] if index > first_file else offset):
                    yield partial(self._batch, index, start, block, before + stream.done())

    def _batch(self, index: int, start: int, block: bytes, bytes_done: int) -> Batch:
        table, problems = self._parse(index, block)
        rows = table_rows(table, self.layout, problems)
        path = self.files[index]
        return Batch(rows, [index, start + len(block)], path.name, bytes_done, _LineOf(path, start, block))

    def _parse(self, index: int, block: bytes) -> tuple[pa.Table, list[Problem]]:
        try:
            types = {name: pa.float64() if kind == "number" else pa.string() for name, kind in self._kinds()}
            return self._read(index, block, types), []
        except pa.ArrowInvalid:
            return self._parse_carefully(index, block)

    def _kinds(self) -> list[tuple[str, str]]:
        return list(self.layout.kinds.items())

    def _read(self, index: int, block: bytes, types: dict[str, Any], ragged: list[int] | None = None) -> pa.Table:
        # Columns are called by their place, so that names that repeat elsewhere in the header do not matter.
        places = {name: str(self.columns[index].index(name)) for name in types}

        def note(line: Any) -> str:
            cast("list[int]", ragged).append(line.number - 1)
            return "skip"

        table = pacsv.read_csv(
            pa.BufferReader(block),
            # Blocks are parsed side by side, each by one thread; with more, ragged lines have no numbers.
            pacsv.ReadOptions(
                column_names=list(map(str, range(len(self.columns[index])))),
                use_threads=False,
                block_size=len(block) + 1,
            ),
            pacsv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=b'"' in block,
                invalid_row_handler=None if ragged is None else note,
            ),
            pacsv.ConvertOptions(
                column_types={places[name]: kind for name, kind in types.items()},
                include_columns=list(places.values()),
                check_utf8=True,
            ),
        )
        return table.rename_columns(list(types))

    def _parse_carefully(self, index: int, block: bytes) -> tuple[pa.Table, list[Problem]]:
        ragged: list[int] = []
        raw = self._read(index, block, {name: pa.binary() for name, _ in self._kinds()}, ragged)
        n_rows = len(raw) + len(ragged)
        odd = np.zeros(n_rows, bool)
        odd[ragged] = True
        problems: list[Problem] = [(odd, RAGGED)] if ragged else []
        places = np.where(odd, 0, np.cumsum(~odd) - 1)
        columns = {}
        for name, kind in self._kinds():
            values = raw.column(name).combine_chunks()
            converted, wrong = _numbers(values) if kind == "number" else _texts(values)
            columns[name] = converted.take(pa.array(places, mask=odd))
            if wrong.any():
                mask = np.zeros(n_rows, bool)
                mask[~odd] = wrong
                problems.append((mask, f"{name} is not {'a number' if kind == 'number' else 'UTF-8 text'}"))
        return pa.table(columns), problems


def _numbers(values: pa.BinaryArray) -> tuple[pa.Array, np.ndarray]:
    """Parse numbers; null where there is none, and a mask of those that are there but are no numbers."""
    absent = pc.is_in(values, value_set=pa.array([text.encode() for text in EMPTY], pa.binary()))
    likely = pc.and_(pc.match_substring_regex(values, _NUMBER_LIKE), pc.invert(absent))
    text = pc.if_else(likely, values, pa.scalar(None, pa.binary())).cast(pa.string())
    numbers = converted(pc.ascii_trim(text, characters=" \t"), pa.float64())
    wrong = pc.and_(pc.is_null(numbers), pc.invert(absent))
    return numbers, wrong.to_numpy(zero_copy_only=False)


def _texts(values: pa.BinaryArray) -> tuple[pa.Array, np.ndarray]:
    texts = converted(values, pa.string())
    return texts, pc.is_null(texts).to_numpy(zero_copy_only=False)


def converted(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast; what does not convert becomes null. Halving finds a few bad values in few casts."""
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, target)
    half = len(values) // 2
    return pa.concat_arrays([converted(values[:half], target), converted(values[half:], target)])


def packed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


class TextFile:
    """The bytes of a file, unpacked, in blocks that end where a record ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = open(path, "rb")  # noqa: SIM115 (closed by __exit__)
        self._file: IO[bytes] = cast("IO[bytes]", gzip.GzipFile(fileobj=self._raw)) if packed(path) else self._raw

    def __enter__(self) -> TextFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()

    def done(self) -> int:
        """Bytes of the file that were read."""
        return self._raw.tell()

    def header(self) -> bytes:
        """Return the first record with its end of line."""
        try:
            record = self._file.readline(MAX_RECORD_BYTES)
            while record.count(b'"') % 2:
                line = self._file.readline(MAX_RECORD_BYTES)
                if not line or len(record) > MAX_RECORD_BYTES:
                    raise self._unclosed(0)
                record += line
            return record
        except _UNPACKING:
            raise self._damaged() from None

    def blocks(self, offset: int, *, quotes: bool = True) -> Iterator[tuple[int, bytes]]:
        """Blocks from an offset on, each with its own offset; ``quotes``: a newline inside of quotes ends no record."""
        rest = b""
        try:
            self._file.seek(offset)
            while True:
                data = self._file.read(BLOCK_BYTES)
                last = len(data) < BLOCK_BYTES
                rest += data
                end = len(rest) if last else record_end(rest) if quotes else rest.rfind(b"\n") + 1
                if (quotes and last and rest.count(b'"') % 2) or (not end and len(rest) > MAX_RECORD_BYTES):
                    raise self._unclosed(offset) if quotes else self._endless(offset)
                if end:
                    block, rest = rest[:end], rest[end:]
                    if block.lstrip(b"\r\n"):
                        yield offset, block
                    offset += end
                if last:
                    return
        except _UNPACKING:
            raise self._damaged() from None

    def lines(self, offset: int) -> int:
        """Count the lines before an offset."""
        self._file.seek(0)
        sizes = [BLOCK_BYTES] * (offset // BLOCK_BYTES) + [offset % BLOCK_BYTES]
        return sum(self._file.read(size).count(b"\n") for size in sizes)

    def _damaged(self) -> DataError:
        return DataError(f"{self.path.name} is not a whole gzip file; it was cut or damaged. Copy it again")

    def _endless(self, offset: int) -> DataError:
        line = self.lines(offset)
        return DataError(
            f"{self.path.name}: after line {line} there is a line of more than {MAX_RECORD_BYTES // 2**20} MiB; is it "
            "a text file?"
        )

    def _unclosed(self, offset: int) -> DataError:
        line = self.lines(offset)
        return DataError(
            f"{self.path.name}: after line {line} there is a quotation mark that is never closed, or a line of more "
            f"than {MAX_RECORD_BYTES // 2**20} MiB. A value with a quotation mark in it must be quoted and the mark "
            "doubled"
        )


def record_end(data: bytes) -> int:
    """One past the last newline that is not inside quotes; 0 if there is none.

    Quotes inside a quoted value are doubled, so a newline ends a record if the number of quotes before it is even.

    Examples
    --------
    >>> record_end(b'1,2' + bytes([10]) + b'3,"4' + bytes([10]) + b'5'), record_end(b'1,2')
    (4, 0)
    """
    end = data.rfind(b"\n") + 1
    if data.find(b'"', 0, end) < 0:
        return end
    inside = data.count(b'"', 0, end) % 2
    while inside and end:
        before = data.rfind(b"\n", 0, data.rfind(b'"', 0, end)) + 1
        inside ^= data.count(b'"', before, end) % 2
        end = before
    return end


class _LineOf:
    """The line of a file in which a record of a block begins; the file is read again when somebody asks."""

    def __init__(self, path: Path, offset: int, block: bytes) -> None:
        self._path = path
        self._offset = offset
        self._block = block

    def __call__(self, row: int) -> int:
        data = np.frombuffer(self._block, np.uint8)
        newlines = np.flatnonzero(data == _NEWLINE)
        quotes = np.flatnonzero(data == _QUOTE)
        ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        starts = np.concatenate([[0], ends + 1])
        lengths = np.append(ends, len(data)) - starts
        firsts = data[np.minimum(starts, len(data) - 1)]
        blank = (lengths <= 0) | ((lengths == 1) & (firsts == _RETURN))
        return self._before + 1 + int(np.searchsorted(newlines, starts[~blank][row]))

    @cached_property
    def _before(self) -> int:
        with TextFile(self._path) as stream:
            return stream.lines(self._offset)
