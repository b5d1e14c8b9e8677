"""What one worker thread holds: a group of partitions, resident in memory or streamed from the store.

Functions here run inside tasks. They never raise: an exception could carry a row's value, and whether it occurs could
depend on one. They return a `Failure` with a public sentence instead.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.data import ArraySpec
from dpdist.data.mapped_files import MappedFiles
from dpdist.data.plain_chunks import Buffers
from dpdist.data.sources import NumpySource, Source
from dpdist.engine.disks import OWN, bytes_read, mount_of
from dpdist.engine.query import Block, Query
from dpdist.engine.sampling import Batch
from dpdist.engine.unchanged import Unchanged
from dpdist.errors import DataError, DataUnavailable
from dpdist.kernels.grid import fits_int64

Prepare = Callable[[NDArray[Any]], NDArray[Any]]
"""A public row-wise map applied to an array as it is read (dtype, encoding of labels)."""

AHEAD_BYTES = 64 * 2**20
"""A remote store answers late, so several requests are under way: for as many ranges as have this size together."""
MAX_AHEAD = 8


def ahead(partition_bytes: int, remote: bool) -> int:
    """How many partitions a worker thread reads while it computes with one: of a disk one, which keeps it busy."""
    return max(1, min(MAX_AHEAD, AHEAD_BYTES // max(1, partition_bytes))) if remote else 1


def streamed_bytes(partition_bytes: int, remote: bool) -> int:
    """The most rows, in bytes, that a worker thread holds when it reads them again in every round.

    Examples
    --------
    >>> streamed_bytes(16 * 2**20, remote=False) // 2**20, streamed_bytes(16 * 2**20, remote=True) // 2**20
    (32, 80)
    """
    return (1 + ahead(partition_bytes, remote)) * partition_bytes


def kept_row_bytes(prepare: Mapping[str, Prepare], arrays: Mapping[str, ArraySpec]) -> int:
    """Bytes of one row as the maps leave it in memory: bits that become float64 fill eight times what is stored.

    Seen by what they make of one made-up row.

    Examples
    --------
    >>> arrays = {"X": ArraySpec("uint8", (1000, 50)), "y": ArraySpec("str", (1000,))}
    >>> kept_row_bytes({"X": np.asarray}, arrays), kept_row_bytes({"X": np.float64, "y": np.asarray}, arrays)
    (50, 416)
    """
    total = 0
    for name, of in prepare.items():
        spec = arrays[name]
        dtype = np.dtypes.StringDType() if spec.dtype == "str" else np.dtype(spec.dtype)
        kept = of(np.zeros((1, *spec.shape[1:]), dtype))
        total += spec.row_bytes if kept.dtype == dtype else kept.nbytes
    return total


@dataclass(frozen=True)
class Failure:
    """A task that could not be done, described without a word about the data; ``away``: as its store is away."""

    message: str
    away: bool = False


@dataclass(frozen=True)
class Round:
    """What the coordinator asks of every shard in one round."""

    query: Query
    state: Any
    start: int
    stop: int
    n_rows: int
    batch: Batch | None = None
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def wide(self) -> bool:
        """Whether 64 bits might not hold the sum over all rows; a function of public numbers only."""
        return not fits_int64(self.n_rows, self.query.row_units)


@dataclass(frozen=True)
class ShardPlan:
    """Which rows a shard has, where they come from, and whether they stay in memory.

    ``first`` is what will be asked first: rows that do not stay are read once to be sure of them, and answer it then.
    """

    ranges: tuple[tuple[int, int], ...]
    prepare: Mapping[str, Prepare]
    resident: bool
    first: Round | None = None


@dataclass(eq=False)
class Shard:
    """The partitions of one worker thread. Not a value: compared and hashed by identity only."""

    plan: ShardPlan
    sources: Mapping[str, Sequence[Any]]
    blocks: list[tuple[int, Block]] = field(default_factory=list, repr=False)
    unchanged: Unchanged = field(default_factory=Unchanged, repr=False)
    buffers: Buffers = field(default_factory=Buffers, repr=False)
    early: NDArray[Any] | None = field(default=None, repr=False)
    n_ahead: int = field(init=False)
    partition_bytes: int = field(init=False)
    leased: frozenset[str] = field(init=False)
    cached: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        longest = max((stop - start for start, stop in self.plan.ranges), default=0)
        stored = [column[0] for column in self.sources.values() if not isinstance(column[0], np.ndarray | NumpySource)]
        self.partition_bytes = longest * sum(source.spec.row_bytes for source in stored)
        self.n_ahead = ahead(self.partition_bytes, any(source.remote for source in stored)) if stored else 0
        streamed = {} if self.plan.resident else self.sources
        folders = {name: getattr(column[0], "plain_files", None) for name, column in streamed.items()}
        self.leased = frozenset(name for name, folder in folders.items() if folder and mount_of(folder)[0] in OWN)

    def blocks_in(self, start: int, stop: int) -> Iterator[tuple[int, Block]]:
        """The blocks that hold some of the rows ``start:stop``, each with the number of its first row."""
        touched = self._touched(start, stop)
        if self.plan.resident:
            yield from (self.blocks[i] for i in touched)
        else:
            yield from self._stream(touched, "read")

    def load(self) -> None:
        """Read every range once, with all checks; keep the rows if they are to stay, else sum what is asked first."""
        asked = self.plan.first
        with self._watched():
            for first, block in self._stream(range(len(self.plan.ranges)), "verify"):
                if self.plan.resident:
                    self.blocks.append((first, block))
                elif asked is not None and first < asked.stop and asked.start < first + _n_rows(block):
                    self.early = _added(self.early, _summary(first, block, asked), asked)
                del block  # before the next one is waited for
        if self.plan.resident:
            self.sources = {}

    def answer(self, ask: Round) -> NDArray[Any] | None:
        """The sum over the asked rows, of those that were read for it already if that is so; once."""
        early, self.early = self.early, None
        if early is not None and self.plan.first is not None and self.plan.first.name == ask.name:
            return early
        total: NDArray[Any] | None = None
        if self.cached and self.leased:
            with self._watched():
                for i in self._touched(ask.start, ask.stop):
                    total = _added(total, self._sum_in_place(i, ask), ask)
            return total
        with self._watched():
            for first, block in self.blocks_in(ask.start, ask.stop):
                total = _added(total, _summary(first, block, ask), ask)
                del block  # before the next one is waited for
        return total

    def _touched(self, start: int, stop: int) -> list[int]:
        return [i for i, (first, last) in enumerate(self.plan.ranges) if first < stop and start < last]

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Find out whether the rows are in memory: then nothing is gained by reading ahead, or by copying."""
        before = bytes_read()
        yield
        self.cached = bytes_read() - before < self.partition_bytes

    def _sum_in_place(self, i: int, ask: Round) -> NDArray[Any]:
        """What a range adds, without copying its rows where nobody wrote to them meanwhile."""
        first = self.plan.ranges[i][0]
        with MappedFiles() as files:
            block = self._block(i, "read", files)
            summary = _summary(first, block, ask)
            del block
            if files.end():
                return summary
        return _summary(first, self._block(i, "read"), ask)

    def _stream(self, numbers: Sequence[int], how: Literal["read", "verify"]) -> Iterator[tuple[int, Block]]:
        """These ranges in turn; the next ones are read while the caller computes with one, unless all are in memory."""
        if not self.n_ahead:
            for i in numbers:
                yield self.plan.ranges[i][0], self._block(i, how)
            return
        asked: deque[tuple[int, Future[Block]]] = deque()
        with ThreadPoolExecutor(self.n_ahead) as readers:
            for i in numbers:
                asked.append((i, readers.submit(self._block, i, how)))
                if len(asked) > self.n_ahead:
                    yield self._first(asked)
            while asked:
                yield self._first(asked)

    def _first(self, asked: deque[tuple[int, Future[Block]]]) -> tuple[int, Block]:
        i, block = asked.popleft()
        return self.plan.ranges[i][0], block.result()

    def _block(self, i: int, how: Literal["read", "verify"], files: MappedFiles | None = None) -> Block:
        """The i-th range; rows that were sent here are there already, others are read, or looked at in ``files``."""
        start, stop = self.plan.ranges[i]
        columns = {name: self.sources[name][i] for name in self.plan.prepare}
        sent = {name for name, column in columns.items() if isinstance(column, np.ndarray)}
        rows = {n: c if n in sent else self._rows(n, c, how, start, stop, files) for n, c in columns.items()}
        with np.errstate(all="ignore"):  # of its own: a thread starts without that of its maker
            return {name: prepare(rows[name]) for name, prepare in self.plan.prepare.items()}

    def _rows(
        self,
        name: str,
        source: Source,
        how: Literal["read", "verify"],
        start: int,
        stop: int,
        files: MappedFiles | None,
    ) -> NDArray[Any]:
        """Rows of a source; those of a stream are compared with what they were."""
        if self.plan.resident:
            return source.verify(start, stop)
        place, here = source.location(start, stop), (start - source.first, stop - source.first)
        if how == "read" and (stored := self._as_stored(name, source, here, files)):
            rows, number = stored
            try:
                self.unchanged.compare(name, start, stop, number, place)
            except DataError:
                source.verify(start, stop)  # says what is wrong with damaged ones
                raise
            return rows
        rows = source.verify(start, stop) if how == "verify" else source.read(start, stop)
        self.unchanged.check(name, start, stop, rows, place)
        return rows

    def _as_stored(
        self, name: str, source: Source, here: tuple[int, int], files: MappedFiles | None
    ) -> tuple[NDArray[Any], int] | None:
        """Rows as they stand in a file, and their number; mapped where they can be, otherwise copied."""
        if files is not None and name in self.leased and (rows := source.mapped(*here, files)) is not None:
            return rows, self.unchanged.number(rows, 1, False)
        return source.as_stored(*here, self.buffers.empty, self.unchanged.number)


def load_shard(plan: ShardPlan, sources: Mapping[str, Sequence[Any]]) -> Shard | Failure:
    """A shard whose every partition was read once, before anything is charged."""
    shard = Shard(plan, sources)
    with np.errstate(all="ignore"):  # whether a warning appears would depend on the data
        try:
            shard.load()
        except DataError as error:
            return Failure(str(error), isinstance(error, DataUnavailable))
        except Exception as error:
            return Failure(_unexpected("reading", error))
    return shard


def summarise_shard(shard: Shard | Failure, ask: Round) -> NDArray[Any] | Failure | None:
    """The exact sum of one shard's contributions; None when none of its partitions lies in the asked rows."""
    if isinstance(shard, Failure):
        return shard
    with np.errstate(all="ignore"):  # whether a warning appears would depend on the data
        try:
            return shard.answer(ask)
        except DataError as error:
            return Failure(str(error), isinstance(error, DataUnavailable))
        except Exception as error:
            return Failure(_unexpected("reading", error))


def _added(total: NDArray[Any] | None, summary: NDArray[Any], ask: Round) -> NDArray[Any]:
    """The total so far and the sum over what is asked of one block."""
    try:
        return ask.query.combine(total, summary, ask.wide)
    except DataError:
        raise
    except Exception as error:
        raise _failed(ask.query, error) from None


def _summary(first: int, block: Block, ask: Round) -> NDArray[Any]:
    """The sum over what is asked of one block."""
    try:
        return _summarise_block(first, block, ask)
    except DataError:
        raise
    except Exception as error:
        raise _failed(ask.query, error) from None


def _failed(query: Query, error: Exception) -> DataError:
    return DataError(_unexpected(f"summarising for {type(query).__name__}", error))


def _n_rows(block: Block) -> int:
    return len(next(iter(block.values())))


def _summarise_block(first: int, block: Block, ask: Round) -> NDArray[np.int64]:
    n = _n_rows(block)
    start, stop = max(ask.start - first, 0), min(ask.stop - first, n)
    if (start, stop) != (0, n):
        block = {name: rows[start:stop] for name, rows in block.items()}
    rows = None if ask.batch is None else ask.batch.rows(first + start, first + stop)
    return ask.query.summarise_at(first + start, block, ask.state, rows)


def _unexpected(doing: str, error: Exception) -> str:
    # the exception's own text may quote a value: only its type is public
    return f"{doing} a shard failed with {type(error).__name__}; this is a fault of the program or of the machine."
