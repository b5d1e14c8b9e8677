"""Sparse text lines as LIBSVM and SVMlight write them, ``label index:value index:value ...``, into dense rows.

Indices count from 1 and ascend; what is not named is 0. How many features there are is declared (``features=["54"]``),
never read off the largest index, which would tell of a row. A block is taken apart by arrays of positions, not line by
line: a piece is what stands between blanks, colons and ends of lines, and its place in its line says what it has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpdist.data import readers
from dpdist.data.delimited import TextFile, converted
from dpdist.data.ingestion_spec import IngestionSpec
from dpdist.data.readers import Batch, Position, Reader, file_identity
from dpdist.data.rows import Problem, array_rows
from dpdist.errors import DataError

LABEL = "label"
"""What the options call the number before the features."""
_COLON, _COMMENT, _NEWLINE = 58, 35, 10
_BLANK = np.zeros(256, bool)
_BLANK[[9, 10, 13, 32]] = True
_GAP = _BLANK.copy()
_GAP[_COLON] = True


class LibsvmReader(Reader):
    """Files of sparse lines, plain or gzipped. A position is: file, byte."""

    named = False

    def __init__(self, files: list[Path], spec: IngestionSpec) -> None:
        self.files = files
        self.sizes = [path.stat().st_size for path in files]
        self.bytes_total = sum(self.sizes)
        width = _width(spec, files[0].name)
        if spec.unit is not None:
            raise DataError(f"--unit needs a column of owners, and a line of {files[0].name} has none; ingest a table")
        if spec.label not in (None, LABEL):
            raise DataError(f"the label is the first number of a line: leave --label out, or call it {LABEL!r}")
        self.layout = spec.array_layout(width, tuple(map(str, range(1, width + 1))), LABEL)
        self.stored_bytes = 0  # sizes the buckets of owners, of whom there are none

    def identity(self) -> list[Any]:
        return [file_identity(path) for path in self.files]

    def batches(self, position: Position | None) -> Iterator[Callable[[], Batch]]:
        first_file, offset = position or [0, 0]
        most = max(1, readers._BATCH_BYTES // (8 * self.layout.width))  # a line of text may be a thousand times wider
        for index in range(first_file, len(self.files)):
            before = sum(self.sizes[:index])
            with TextFile(self.files[index]) as stream:
                for start, block in stream.blocks(offset if index == first_file else 0, quotes=False):
                    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)[most - 1 :: most] + 1
                    cuts = [0, *ends.tolist(), *([len(block)] if not len(ends) or ends[-1] < len(block) else [])]
                    for low, high in pairwise(cuts):
                        yield partial(self._batch, index, start + low, block[low:high], before + stream.done())

    def _batch(self, index: int, start: int, block: bytes, bytes_done: int) -> Batch:
        path, parsed = self.files[index], _Lines(block)
        problems: list[Problem] = []
        arrays = {"X": parsed.features(self.layout.width, problems)}
        arrays["y"] = parsed.text_labels(problems) if self.layout.text_label else parsed.labels(problems)
        rows = array_rows(arrays, self.layout)
        rows.problems = problems + rows.problems
        return Batch(rows, [index, start + len(block)], path.name, bytes_done, _LineOf(path, start, parsed.lines))


def _width(spec: IngestionSpec, name: str) -> int:
    given = spec.features[0] if len(spec.features) == 1 else ""
    if given.isascii() and given.isdecimal() and int(given) > 0:
        return int(given)
    got = f", got {','.join(spec.features)!r}" if spec.features else ""
    raise DataError(
        f"how many features there are is a public decision, not the largest index of {name}: say so with --features "
        f"54 (features=['54']){got}"
    )


class _Lines:
    """Lines of a block that are not blank, each a row: its pieces, and what is wrong with it."""

    def __init__(self, block: bytes) -> None:
        data = _without_comments(np.frombuffer(block, np.uint8))
        gap = _GAP[data]
        edges = np.diff(np.concatenate([[True], gap, [True]]).astype(np.int8))
        starts, ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)
        newlines, colons = np.flatnonzero(data == _NEWLINE), np.flatnonzero(data == _COLON)
        line, colon_line = np.searchsorted(newlines, starts), np.searchsorted(newlines, colons)
        self.lines: NDArray[np.int64] = np.union1d(line, colon_line)
        """Of the rows: their lines in the block, from 0."""
        self._data, self._starts, self._ends = data, starts, ends
        self._row = np.searchsorted(self.lines, line)
        counts = np.bincount(self._row, minlength=self.n_rows)
        place = np.arange(len(starts)) - (np.cumsum(counts) - counts)[self._row]
        padded = np.concatenate([[0], data, [0]])
        after, before = padded[starts] == _COLON, padded[ends + 1] == _COLON
        self._is_label, self._is_index = place == 0, place % 2 == 1
        self._is_value = ~(self._is_label | self._is_index)
        good = np.where(self._is_label, ~(after | before), np.where(self._is_index, before & ~after, after & ~before))
        pairs = np.bincount(np.searchsorted(self.lines, colon_line), minlength=self.n_rows)
        self._ragged = (counts != 1 + 2 * pairs) | self._rows_with(~good, np.arange(len(starts)))
        # the pieces without what is between them, as one array of texts
        offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[~gap])]
        self._pieces = pa.Array.from_buffers(pa.binary(), len(starts), buffers)

    @property
    def n_rows(self) -> int:
        return len(self.lines)

    def features(self, width: int, problems: list[Problem]) -> NDArray[np.float64]:
        """The rows in full; those that cannot be read are zero, and among the problems."""
        _add(problems, self._ragged, "an entry is not index:value")
        sound = ~self._ragged[self._row]
        at = np.flatnonzero(self._is_index & sound)
        row, index, value = self._row[at], _floats(self._numbers(at)), self._numbers(at + 1)
        _add(problems, self._rows_with(~(index == np.trunc(index)), at), "an index is not a whole number")
        _add(problems, self._rows_with(index < 1, at), "an index is below 1; indices count from 1")
        descends = np.zeros(len(at), bool)
        descends[1:] = (row[1:] == row[:-1]) & ~(index[1:] > index[:-1])
        _add(problems, self._rows_with(descends, at), "indices do not ascend")
        _add(
            problems, self._rows_with(index > width, at), f"an index is above {width}, the declared number of features"
        )
        _add(problems, self._rows_with(_is_null(value), at), "a value is not a number")
        bad = np.logical_or.reduce([np.zeros(self.n_rows, bool), *(mask for mask, _ in problems)])
        X = np.zeros((self.n_rows, width))
        kept = ~bad[row]
        X[row[kept], index[kept].astype(np.int64) - 1] = _floats(value)[kept]
        return X

    def labels(self, problems: list[Problem]) -> NDArray[np.float64]:
        """The first numbers of the lines."""
        y = np.zeros(self.n_rows)
        at = np.flatnonzero(self._is_label)
        numbers = self._numbers(at)
        _add(problems, self._rows_with(_is_null(numbers), at), f"{LABEL} is not a number")
        y[self._row[at]] = _floats(pc.fill_null(numbers, 0.0))
        return y

    def text_labels(self, problems: list[Problem]) -> NDArray[Any]:
        """The same as they are written."""
        y = np.full(self.n_rows, "", dtype=object)
        at = np.flatnonzero(self._is_label)
        texts = converted(self._pieces.take(pa.array(at)), pa.string())
        _add(problems, self._rows_with(_is_null(texts), at), f"{LABEL} is not UTF-8 text")
        y[self._row[at]] = pc.fill_null(texts, "").to_numpy(zero_copy_only=False)
        return y

    def _numbers(self, at: NDArray[np.int64]) -> pa.Array:
        """Some pieces as numbers; null where one is none."""
        return converted(self._pieces.take(pa.array(at)), pa.float64())

    def _rows_with(self, found: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows have one of these pieces."""
        mask = np.zeros(self.n_rows, bool)
        mask[self._row[at[found]]] = True
        return mask


def _floats(numbers: pa.Array) -> NDArray[np.float64]:
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def _is_null(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(pc.is_null(values).to_numpy(zero_copy_only=False), dtype=bool)


def _add(problems: list[Problem], mask: NDArray[np.bool_], text: str) -> None:
    if mask.any():
        problems.append((mask, text))


def _without_comments(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What stands between # and the end of its line becomes blank."""
    if not (data == _COMMENT).any():
        return data
    place = np.arange(len(data))
    begun, ended = (np.maximum.accumulate(np.where(data == sign, place, -1)) for sign in (_COMMENT, _NEWLINE))
    return np.where(begun > ended, np.uint8(32), data)


class _LineOf:
    """The line of a file that became a row of a batch; the file is read again when somebody asks."""

    def __init__(self, path: Path, offset: int, numbers: NDArray[np.int64]) -> None:
        self._path, self._offset, self._numbers = path, offset, numbers

    def __call__(self, row: int) -> int:
        return self._before + 1 + int(self._numbers[row])

    @cached_property
    def _before(self) -> int:
        with TextFile(self._path) as stream:
            return stream.lines(self._offset)
