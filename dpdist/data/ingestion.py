"""Tables and arrays into a dataset: the curator's side, before any guarantee, where bad rows are refused loudly.

Everything here may look at the data. What it writes into the store besides the rows is public and decided by names:
columns, levels, ranges, bounds. How many rows were read, were bad or exceeded the bound of their unit depends on the
values; it goes to the curator who called, and nowhere else.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dpdist.data.checkpoint import Checkpoint
from dpdist.data.growing import GrowingGroup, id_at, kind_of, schema_at
from dpdist.data.opening import Format, open_source
from dpdist.data.readers import Batch, Reader
from dpdist.data.recipe import FeatureType, LabelType, OnBad, Recipe
from dpdist.data.rows import Rows
from dpdist.data.schema import ArraySpec, RowOrder, Schema, new_id
from dpdist.data.sources import aligned_rows
from dpdist.data.writing import Compression, resolved
from dpdist.errors import DataError

INGESTED = "dpdist-ingested"
"""Group attribute that says how a dataset was made: public decisions only."""
CHECKPOINT_SECONDS = 5.0
"""Time between two checkpoints: what a crash can cost, and seldom enough to cost nothing."""
_SHOWN_ROWS = 10
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


def ingest(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    features: Sequence[str] = (),
    label: str | None = None,
    label_type: LabelType = "float",
    label_levels: Sequence[str] = (),
    levels: Mapping[str, Sequence[str]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    on_bad: OnBad = "stop",
    dtype: FeatureType = "float64",
    format: Format | None = None,
    delimiter: str = ",",
    dataset_id: str | None = None,
    row_order: RowOrder = "unknown",
    partition_rows: int | None = None,
    compression: Compression = "none",
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Ingested:
    """Write a source to a new dataset at ``dest``, in constant memory; the same call continues after a crash.

    Arrays ``X`` (``features`` in order, then what ``levels`` adds) and ``y`` (``label``) are written. A row is bad if
    one of the values it needs is missing, NaN, infinite, no number, no UTF-8 text or not one of the declared levels, or
    if its line is ragged.

    The guarantee of a later fit is between datasets as they are written. With ``on_bad="drop"`` that means sources of
    which equally many rows are good; with ``"zero"`` and without a unit, any two sources of equally many rows. With a
    unit, at most ``max_rows`` rows of each owner are written, the first of the source, and the guarantee is per owner.

    Parameters
    ----------
    source : path or str
        CSV (also gzipped), Parquet, ``.npy``, ``.npz`` or a Zarr group; several CSV or Parquet files by a shell
        pattern, or a directory of Parquet files.
    dest : path
        A directory that does not exist yet. ``dest`` + ``.ingesting`` beside it remembers how far it is.
    features, label, label_type, label_levels, levels, ranges, unit, max_rows, dtype
        See `dpdist.data.recipe.Recipe`. Nothing of it should be chosen by looking at the data, except by the curator.
    on_bad : {"stop", "drop", "zero"}
        Raise, leave the row out, or keep its place as a null row, which contributes zero to every sum.
    format : {"csv", "parquet", "numpy", "zarr"}, optional
        By default what the suffix says.
    delimiter : str
        Of CSV.
    dataset_id, row_order, partition_rows, compression
        As in `Dataset.from_arrays`.
    restart : bool
        Delete an unfinished ingestion to ``dest`` first. A finished dataset is never overwritten.
    progress : function of `Progress`, optional
        Called after every batch.

    Raises
    ------
    DataError
        What cannot be read, written or understood; under ``on_bad="stop"`` with the numbers of the first bad rows.
    MissingBound
        A unit without ``max_rows``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dpdist.data import Dataset
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> lines = ["delay,origin,late", "10,EWR,yes", "NA,JFK,no", "20,JFK,no"]
    >>> _ = (folder / "flights.csv").write_text(chr(10).join(lines))
    >>> done = ingest(folder / "flights.csv", folder / "flights.zarr", features=["delay"], ranges={"delay": (0, 20)},
    ...     levels={"origin": ["EWR", "JFK"]}, label="late", label_levels=["no", "yes"], on_bad="drop")
    >>> done.schema.columns["X"], dict(done.bad)
    (('delay', 'origin=EWR', 'origin=JFK'), {'delay is missing': 1})
    >>> Dataset.open(folder / "flights.zarr").read(0, 2)["X"]
    array([[0., 1., 0.],
           [1., 0., 1.]])
    """
    recipe = Recipe(
        features=tuple(features),
        label=label,
        label_type=label_type,
        label_levels=tuple(label_levels),
        levels={name: tuple(allowed) for name, allowed in (levels or {}).items()},
        ranges={name: (float(low), float(high)) for name, (low, high) in (ranges or {}).items()},
        unit=unit,
        max_rows=max_rows,
        on_bad=on_bad,
        dtype=dtype,
    )
    place = _place(dest)
    if kind_of(place) == "taken" and not _state_path(place).exists():
        raise _exists(place)
    try:
        kind, reader = open_source(os.fspath(source), recipe, format, delimiter)
        identity = reader.identity()
    except OSError as error:
        raise DataError(f"cannot read {os.fspath(source)}: {error.strerror or type(error).__name__}") from None
    specs = {"X": ArraySpec(dtype, (1, reader.layout.width))}
    if reader.layout.label is not None:
        specs["y"] = ArraySpec("str" if reader.layout.text_label else "float64", (1,))
    columns = {"X": reader.layout.names, "y": (str(reader.layout.label),)} if reader.named else {}
    schema = Schema(
        id=new_id() if dataset_id is None else dataset_id,
        arrays=specs,
        unit="row" if unit is None else unit,
        max_rows_per_unit=max_rows or 1,
        row_order=row_order,
        partition_rows=partition_rows,
        columns=columns,
    )
    public = {"source": os.path.basename(os.fspath(source).rstrip("/")), "format": kind, **recipe.to_attributes()}
    others = {
        "dataset_id": dataset_id,
        "row_order": row_order,
        "partition_rows": partition_rows,
        "compression": compression,
        "delimiter": delimiter,
    }
    request = {"source": identity, "options": {**public, **others}, "id": schema.id}
    return _Ingestion(place, reader, schema, compression, public, request, progress).run(restart)


class _Ingestion:
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
        self.recipe = reader.layout.recipe
        self.tell = progress
        rows = schema.partition_rows or aligned_rows(max(spec.row_bytes for spec in schema.arrays.values()))
        partition = {name: ArraySpec(s.dtype, (rows, *s.shape[1:])) for name, s in schema.arrays.items()}
        self.group = GrowingGroup(place, partition, compression)
        self.rows_read = self.file_rows = self.over_bound = 0
        self.bad: Counter[str] = Counter()
        self.position: list[int] | None = None

    def run(self, restart: bool) -> Ingested:
        """Begin or continue, and finish."""
        try:
            self.place.parent.mkdir(parents=True, exist_ok=True)
            self.state = Checkpoint(_state_path(self.place))
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

    def _prepare(self, restart: bool) -> bool:
        """Take up an unfinished ingestion or begin one; whether all rows are copied already."""
        saved, kind = self.state.read(), kind_of(self.place)
        request: dict[str, Any] | None = saved.get("request")
        finished = request is not None and kind == "taken" and id_at(self.place) == request["id"]
        if kind == "taken" and not (request is not None and finished and not self._changed(request)):
            if finished or not saved:
                self.state.delete()
            raise _exists(self.place)
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
        started = last = time.monotonic()
        before = self.rows_read
        for batch in self._read():
            rows = batch.rows
            if self.position is not None and self.position[0] != batch.position[0]:
                self.file_rows = 0
            kept = self._kept(batch)
            arrays = {"X": rows.X} if rows.y is None else {"X": rows.X, "y": rows.y}
            self.group.append(arrays if kept.all() else {name: array[kept] for name, array in arrays.items()})
            self.rows_read += len(kept)
            self.file_rows += len(kept)
            self.position = batch.position
            now = time.monotonic()
            if now - last >= CHECKPOINT_SECONDS:
                self._checkpoint()
                last = time.monotonic()
            if self.tell is not None:
                done, total = batch.bytes_done, self.reader.bytes_total
                self.tell(Progress(self.rows_read, done, total, now - started, self.rows_read - before))
        try:
            unchanged = self.reader.identity() == self.request["source"]
        except OSError:
            unchanged = False
        if not unchanged:
            self._discard()
            raise DataError(f"{self.public['source']} changed while it was read. Run again when nobody writes to it")
        if not self.group.n_rows:
            self._discard()
            raise DataError(f"{self.public['source']} has no rows to write; {self.rows_read} were read, none is good")

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

    def _kept(self, batch: Batch) -> np.ndarray:
        """Which rows of a batch are written; bad ones are refused, counted or made null first."""
        rows: Rows = batch.rows
        kept = np.ones(len(rows.X), bool)
        bad = rows.bad
        if bad is not None:
            if self.recipe.on_bad == "stop":
                self._discard()
                raise _bad_rows(batch, bad, self.file_rows)
            self.bad += rows.tally()
            if self.recipe.on_bad == "drop":
                kept = ~bad
            else:
                rows.make_null(bad)
        if rows.unit is not None and self.recipe.max_rows is not None:
            candidates, kept = kept, self.state.keep(rows.unit, kept, self.recipe.max_rows)
            self.over_bound += int(np.count_nonzero(candidates & ~kept))
        return kept

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


def _bad_rows(batch: Batch, bad: np.ndarray, before: int) -> DataError:
    found = np.flatnonzero(bad)
    lines = [f"  {batch.place(row, before)}: {batch.rows.blame(row)}" for row in found[:_SHOWN_ROWS]]
    if len(found) > _SHOWN_ROWS:
        lines.append("  and more")
    return DataError(
        f"bad rows; nothing was written:\n{chr(10).join(lines)}\n"
        "Repair them, or say what to do with such rows: --on-bad drop leaves them out, --on-bad zero keeps their "
        "places as null rows (on_bad=)"
    )


def _place(dest: str | os.PathLike[str]) -> Path:
    if "://" in os.fspath(dest) or "::" in os.fspath(dest):
        raise DataError(f"{os.fspath(dest)} is a URL; expected a local directory. Ingest to a local disk, then copy it")
    path: Path = resolved(os.fspath(dest))
    return path


def _state_path(place: Path) -> Path:
    return place.with_name(place.name + ".ingesting")


def _exists(place: Path) -> DataError:
    return DataError(
        f"{place} exists already, and a dataset is never overwritten: its ledger belongs to it. Choose another "
        "place, or delete it yourself if nobody needs it any more"
    )
