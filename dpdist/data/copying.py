"""One source on its way to one dataset: in constant memory, and continued where a crash stopped it.

Chunks become durable before the notes that count on them (`dpdist.data.checkpoint`), and the dataset gets its id last:
until then it is no dataset, and only the same ingestion continues it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dpdist.data.checkpoint import Checkpoint
from dpdist.data.dataset_schema import ArraySpec, Schema
from dpdist.data.delimited import RECODE
from dpdist.data.growing import GrowingGroup, attribute_at, id_at, kind_of, schema_at
from dpdist.data.ingestion_spec import IngestionSpec
from dpdist.data.owners import LENGTH_BYTES, OwnerBuckets, arrange, n_owners, put_aside
from dpdist.data.readers import Batch, Reader
from dpdist.data.rows import Rows, null_of
from dpdist.data.writing import Compression, rows_of_chunks
from dpdist.errors import DataError

INGESTED = "dpdist-ingested"
"""Group attribute that says how a dataset was made: public decisions only."""
CHECKPOINT_SECONDS = 5.0
"""Time between two checkpoints: what a crash can cost, and seldom enough to cost nothing."""
_SHOWN_ROWS = 10
_MOST_REASONS = 5
_MOST_WORKERS = 4
T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """How far an ingestion is.

    Attributes
    ----------
    rows : int
        Read so far, those before an interruption included.
    bytes_done, bytes_total : int
        Of the source.
    seconds, rows_now : float, int
        Since this process began, and the rows it has read.
    """

    rows: int
    bytes_done: int
    bytes_total: int
    seconds: float
    rows_now: int


@dataclass(frozen=True)
class Ingested:
    """What an ingestion did. For the curator: the counts depend on the values and are not stored.

    Attributes
    ----------
    path : str
    schema : Schema
        Of the dataset that was written.
    rows_read : int
    bad : mapping of str to int
        Rows that were dropped, or made null rows, by reason.
    over_bound : int
        Good rows that were left out because their unit had its rows already.
    """

    path: str
    schema: Schema
    rows_read: int
    bad: Mapping[str, int]
    over_bound: int


class Ingestion:
    """One source on its way to one place."""

    def __init__(
        self,
        place: Path,
        reader: Reader,
        schema: Schema,
        compression: Compression,
        public: Mapping[str, Any],
        request: dict[str, Any],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.place, self.reader, self.schema, self.public, self.request = place, reader, schema, public, request
        self.spec = reader.layout.spec
        self.compression, self.tell = compression, progress
        rows = rows_of_chunks(schema)
        partition = {name: ArraySpec(s.dtype, (rows, *s.shape[1:])) for name, s in schema.arrays.items()}
        self.group = GrowingGroup(place, partition, compression)
        self.rows_read = self.file_rows = self.over_bound = 0
        self.bad: Counter[str] = Counter()
        self.position: list[int] | None = None
        self.bucket: int | None = None
        """Where a unit owns several rows: how many buckets are written, once all of the source is read."""

    def run(self, restart: bool) -> Ingested:
        """Begin or continue, and finish."""
        try:
            self.place.parent.mkdir(parents=True, exist_ok=True)
            self.state = Checkpoint(state_path(self.place))
            try:
                if not self._prepare(restart):
                    self._copy()
                self._finish()
            finally:
                self.state.close()
        except OSError as error:
            raise DataError(
                f"cannot write {self.place}: {error.strerror or type(error).__name__}. Check the directory, the "
                "permissions and the free space, then run the same command again; it continues where it stopped"
            ) from None
        return Ingested(str(self.place), self.schema, self.rows_read, dict(self.bad), self.over_bound)

    @property
    def buckets(self) -> OwnerBuckets:
        """Where the owners of rows stand; known once the id is."""
        return OwnerBuckets.of(self.schema.id, self.reader.stored_bytes)

    def _prepare(self, restart: bool) -> bool:
        """Take up an unfinished ingestion or begin one; whether all rows are copied already."""
        saved, kind = self.state.read(), kind_of(self.place)
        request: dict[str, Any] | None = saved.get("request")
        finished = request is not None and kind == "taken" and id_at(self.place) == request["id"]
        if kind == "taken" and not (request is not None and finished and not self._changed(request)):
            if finished or not saved:
                self.state.delete()
            raise already_there(self.place, self.public)
        if restart and not finished:
            request = None
        if request is None:
            if kind == "unfinished" and not restart:
                self.state.delete()
                raise DataError(
                    f"{self.place} is an unfinished dataset and the notes to continue it are gone; delete it with "
                    "--restart (restart=True), which starts again"
                )
            self._begin()
            return False
        if changed := self._changed(request):
            raise DataError(
                f"an unfinished ingestion to {self.place} was started differently; changed: {', '.join(changed)}. "
                "Run the command as it was to continue it, or add --restart (restart=True) to delete what it wrote "
                "and start again"
            )
        self.schema = replace(self.schema, id=request["id"])
        progress = saved.get("progress")
        if progress is None:
            self._begin()
            return False
        self.position = progress["position"]
        self.rows_read, self.file_rows = progress["rows_read"], progress["file_rows"]
        self.bad, self.over_bound = Counter(progress["bad"]), progress["over_bound"]
        self.bucket = progress.get("bucket")
        if not finished:
            self.group.resume(progress["stored"], {name: saved[f"carry/{name}"] for name in self.schema.arrays})
        return finished

    def _begin(self) -> None:
        """Start from nothing; the notes first, so that a crash in between is followed by a start from nothing."""
        self.state.clear()
        self.state.commit({"request": {**self.request, "id": self.schema.id}})
        self.group.delete()
        self.group.begin()

    def _changed(self, before: Mapping[str, Any]) -> list[str]:
        """Names of the options that are not what they were."""
        now = self.request["options"]
        changed = [name for name in now if before["options"].get(name) != now[name]]
        if before["source"] != self.request["source"] and "source" not in changed:
            changed.append("the content of the source (its size or time of change)")
        return changed

    def _copy(self) -> None:
        self._started = self._last = time.monotonic()
        self._before = self.rows_read
        if self.bucket is None:
            for batch in self._read():
                if self.position is not None and self.position[0] != batch.position[0]:
                    self.file_rows = 0
                self._take(batch)
                self.rows_read += len(batch.rows.X)
                self.file_rows += len(batch.rows.X)
                self.position = batch.position
                self._tick(batch.bytes_done)
            try:
                unchanged = self.reader.identity() == self.request["source"]
            except OSError:
                unchanged = False
            if not unchanged:
                self._discard()
                raise DataError(
                    f"{self.public['source']} changed while it was read. Run again when nobody writes to it"
                )
        if self.spec.unit is not None:
            self._arrange()
        if not self.group.n_rows:
            self._discard()
            # the curator's side, as the account of bad rows at the end
            why = "".join(f"; {text} ({count:,})" for text, count in self.bad.most_common(_MOST_REASONS))
            raise DataError(
                f"{self.public['source']} has no rows to write; {self.rows_read} were read, none is good{why}"
            )

    def _take(self, batch: Batch) -> None:
        """Write the rows of a batch that may be written, or put them aside if their owners may have more."""
        rows, good = batch.rows, self._good(batch)
        if rows.unit is not None:
            for bucket, message in put_aside(rows, good, self.buckets):
                self.state.put_aside(bucket, message)
            return
        arrays = {"X": rows.X} if rows.y is None else {"X": rows.X, "y": rows.y}
        self.group.append(arrays if good.all() else {name: array[good] for name, array in arrays.items()})

    def _arrange(self) -> None:
        """Write what was put aside, owner by owner."""
        assert self.spec.max_rows is not None
        anybody = sum(self.bad.values()) < self.rows_read or self.spec.on_bad == "zero"
        if anybody and self.compression == "none":  # how many bytes compressed rows take is known once they are written
            self._check_room()
        for bucket in range(self.bucket or 0, self.buckets.n_buckets if anybody else 0):
            left_out, parts = arrange(
                self.state.aside(bucket), self.buckets, self.spec.max_rows, self.schema.arrays,
                null_of(self.reader.layout),
            )  # fmt: skip
            self.over_bound += left_out
            for arrays in parts:
                self.group.append(arrays)
            self.bucket = bucket + 1
            self._tick(self.reader.bytes_total)

    def _check_room(self) -> None:
        """Refuse rows that do not fit on the disk before it is full; what was read is kept for the next attempt."""
        assert self.spec.max_rows is not None
        row_bytes = sum(LENGTH_BYTES if s.dtype == "str" else s.row_bytes for s in self.schema.arrays.values())
        each = self.spec.max_rows * row_bytes
        room = shutil.disk_usage(self.place.parent).free + self.group.stored * row_bytes
        if self.rows_read * each <= room:  # there are no more owners than rows
            return
        owners = sum(n_owners(self.state.aside(bucket)) for bucket in range(self.buckets.n_buckets))
        if owners * each > room:
            self._checkpoint()
            raise DataError(
                f"{self.place} would take {owners * each:,} bytes, {each // row_bytes:,} rows for each of {owners:,} "
                f"owners, and there is room for {room:,}: make room and run the same command again, it continues; or "
                "ask for fewer rows with --max-rows (max_rows=) and --restart (restart=True)"
            )

    def _tick(self, bytes_done: int) -> None:
        """Make a checkpoint if it is time for one, and tell how far it is."""
        now = time.monotonic()
        if now - self._last >= CHECKPOINT_SECONDS:
            self._checkpoint()
            self._last = time.monotonic()
        if self.tell is not None:
            total, seconds = self.reader.bytes_total, now - self._started
            self.tell(Progress(self.rows_read, bytes_done, total, seconds, self.rows_read - self._before))

    def _read(self) -> Iterator[Batch]:
        """Batches of the reader; a source that is not what it should be leaves nothing behind."""
        name = self.public["source"]
        try:
            yield from _ahead(self.reader.batches(self.position))
            return
        except OSError as error:
            problem = f"{name} cannot be read: {error.strerror or type(error).__name__}. Check it and run again"
        except DataError:
            self._discard()
            raise
        except (pa.ArrowException, UnicodeDecodeError) as error:
            self._discard()
            problem = f"{name} is damaged: {type(error).__name__} after {self.rows_read} rows. Write or copy it again"
        raise DataError(problem)

    def _good(self, batch: Batch) -> np.ndarray:
        """Which rows of a batch may be written; bad ones are refused, counted or made null first."""
        rows: Rows = batch.rows
        good = np.ones(len(rows.X), bool)
        bad = rows.bad
        if bad is not None:
            if self.spec.on_bad == "stop":
                self._discard()
                raise _bad_rows(batch, bad, self.file_rows, self.spec)
            self.bad += rows.tally()
            if self.spec.on_bad == "drop":
                good = ~bad
            else:
                rows.make_null(bad)
        return good

    def _checkpoint(self) -> None:
        """Make everything so far durable: chunks before the notes that count on them."""
        self.group.sync()
        progress = {
            "position": self.position,
            "stored": self.group.stored,
            "rows_read": self.rows_read,
            "file_rows": self.file_rows,
            "bad": self.bad,
            "over_bound": self.over_bound,
            "bucket": self.bucket,
        }
        carry = {f"carry/{name}": rows for name, rows in self.group.carry().items()}
        self.state.commit({"progress": progress, **carry})

    def _finish(self) -> None:
        if id_at(self.place) is None:
            self._checkpoint()
            self.schema = self.group.finish(self.schema, {INGESTED: self.public})
        else:
            self.schema = schema_at(self.place)
        self.state.delete()

    def _discard(self) -> None:
        self.state.clear()
        self.state.commit({"request": self.request})
        self.group.delete()
        self.state.delete()


def _ahead(tasks: Iterator[Callable[[], T]]) -> Iterator[T]:
    """Results of tasks in their order, a few of them worked on at a time."""
    workers = min(os.cpu_count() or 1, _MOST_WORKERS)
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_HINTS = {
    "is not a number": "A column of words needs its levels: --levels COLUMN=a,b,c for a feature, --label-levels a,b "
    "for the label ('dpdist levels SOURCE COLUMN' proposes them). A date, an amount with its currency or a decimal "
    "comma has to become a number in the source first: a date, for example, the days since a fixed day.",
    "is missing": "What an empty cell stands for can be declared: --missing COLUMN=indicator (numbers), level "
    "(categories), or the value that takes its place.",
    "is not UTF-8 text": RECODE,
}
_NOT_FEATURES = "A row without its label teaches nothing, and one without its owner is nobody's: leave it out."


def _bad_rows(batch: Batch, bad: np.ndarray, before: int, spec: IngestionSpec) -> DataError:
    found = np.flatnonzero(bad)
    lines = [f"  {batch.location(row, before)}: {batch.rows.blame(row)}" for row in found[:_SHOWN_ROWS]]
    if len(found) > _SHOWN_ROWS:
        lines.append("  and more")
    reasons = batch.rows.tally()
    gone = {f"{name} is missing" for name in (spec.label, spec.unit)}
    hints = [hint for reason, hint in _HINTS.items() if any(text.endswith(reason) for text in reasons.keys() - gone)]
    hints += [_NOT_FEATURES] if reasons.keys() & gone else []
    return DataError(
        f"bad rows; nothing was written:\n{chr(10).join(lines)}\n"
        "Repair them, or say what to do with such rows: --on-bad drop leaves them out, --on-bad zero keeps their "
        f"places as null rows (on_bad=). {' '.join(hints)}".rstrip()
    )


def state_path(place: Path) -> Path:
    return place.with_name(place.name + ".ingesting")


def already_there(place: Path, asked: Mapping[str, Any]) -> DataError:
    """The error for a place that is taken. A command that was killed just before it could say so hears that it is done.

    Only what is public is remembered of a finished ingestion, so not which rows the source had.
    """
    made = attribute_at(place, INGESTED) or {}
    if all(name in made and made[name] == value for name, value in asked.items()):
        return DataError(
            f"{place} exists already and is finished, with the id {id_at(place)}: it was made from {asked['source']} "
            "with the same columns and bounds, so there is nothing to continue. If the source has changed since, "
            "choose another place: a dataset is never overwritten, as its ledger belongs to it"
        )
    return DataError(
        f"{place} exists already, and a dataset is never overwritten: its ledger belongs to it. Choose another "
        "place, or delete it yourself if nobody needs it any more"
    )
