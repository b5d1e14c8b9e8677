"""The server's side: real reports as they arrived, checked one by one, added up where they lie, and decoded.

Nothing here is charged to anybody: the reports are private already. Bad ones (malformed, of another survey or version,
impossible, duplicated) are counted by kind and left out.

Duplicates are found by a hash of 8 bytes of every id, under a secret key that is drawn for each aggregation (tabulation
hashing, Zobrist 1970: two ids collide with a chance of exactly 2**-64). So ``n`` reports have a chance of ``n**2 /
2**65`` that any honest one is taken for a duplicate: 3e-8 for a million, 3e-4 for a hundred million. The hashes of at
most 2**25 reports are held at a time (256 MiB, three times that while they are sorted); more reports are read several
times, once for each part of the hashes. Of reports with one id the first in the store counts.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Dataset
from dpdist.data.messages import NAME, open_messages, write_messages
from dpdist.engine import progress
from dpdist.engine.coordinator import RESIDENT_SHARE
from dpdist.engine.pieces import cut, pieces_of
from dpdist.engine.query import Block, Query
from dpdist.engine.shards import Round, ShardPlan
from dpdist.engine.workers import Workers, connect
from dpdist.errors import DataError
from dpdist.kernels.grid import add_units
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.simulation import Collected
from dpdist.local.survey.wire import (
    _ID,
    ID_BYTES,
    Bytes,
    Verdict,
    checked,
    counted,
    decode,
    packed,
    repeated,
    report_bytes,
)
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.budget import Budget
from dpdist.privacy.mechanisms.reported import Reported

HASHES = 2**25
"""Of so many reports the hashes are held at a time."""
_NONE = np.empty(0, np.int64)

Store = str | os.PathLike[str] | Bytes | Sequence[bytes] | Dataset


@dataclass(frozen=True, eq=False)
class Aggregated(Collected):
    """What real reports say.

    Attributes
    ----------
    received : int
        Reports that came in.
    rejected : mapping of str to int
        How many were left out, by kind: "length", "version", "round", "survey", "domain", "duplicate".

    Examples
    --------
    >>> from dpdist.local import Histogram
    >>> from dpdist.local.survey.wire import encode
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> protocol = Histogram(categories=["no", "yes"], epsilon=4.0).protocol(20_000, 1)
    >>> answers = np.repeat(["no", "yes"], [6000, 14_000])
    >>> sent = encode(Survey(protocol), protocol.randomise({"X": answers}, SystemDraws()))
    >>> found = aggregate(protocol, [*map(bytes, sent), b"rubbish"])
    >>> found.received, found.n_users, found.rejected["length"]
    (20001, 20000, 1)
    >>> found.estimate.round(1), round(found.standard_error, 3)
    (array([0.3, 0.7]), 0.001)
    """

    received: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    _store: Callable[[], NDArray[Any]] | None = field(default=None, repr=False)

    def one_by_one(self) -> NDArray[Any]:
        """The reports that were counted, one row for each user, in the order of the store; read again, into memory."""
        return super().one_by_one() if self._store is None else self._store()

    def poisoned(self, fraction: float) -> float:
        """How far dishonest users can move a coordinate of the estimate, if they sent this part of the reports.

        ``fraction`` times the influence of one report (`dpdist.local.survey.protocol.Randomiser.influence`), whatever
        they sent: everything else was rejected. In the units of the statistic's bounded values.
        """
        if not 0 <= fraction <= 1:
            raise DataError(f"fraction must be a number in [0, 1], got {fraction!r}")
        return fraction * self.protocol.randomiser.influence


def aggregate(survey: Survey | LocalProtocol, reports: Store, *, cluster: Any = None) -> Aggregated:
    """Check, add up and decode reports.

    Parameters
    ----------
    survey : Survey or LocalProtocol
        What was asked.
    reports : path, URL, Dataset, array of uint8, or sequence of bytes
        See `dpdist.data.messages.open_messages`; a dataset has the array "reports".
    cluster : str, distributed.Client or cluster object, optional
        As in `dpdist.engine.workers.connect`.

    Raises
    ------
    DataError
        If the store cannot be read, or holds no valid report.

    Examples
    --------
    >>> from dpdist.local.statistics.bounded_values import Box
    >>> from dpdist.local.randomisers.scalars import OneBit
    >>> from dpdist.local.survey.wire import encode
    >>> survey = Survey(LocalProtocol(Box(1), OneBit(1, epsilon=1.0)))
    >>> sent = encode(survey, np.repeat(np.array([1, -1], dtype=np.int8), [700, 300]))
    >>> found = aggregate(survey, [*map(bytes, sent), bytes(sent[0]), b"rubbish"])
    >>> found.n_users, {kind: n for kind, n in found.rejected.items() if n}
    (1000, {'length': 1, 'duplicate': 1})
    >>> round(float(found.estimate[0]), 3), round(found.standard_error, 3), round(found.poisoned(0.01), 3)
    (0.866, 0.068, 0.043)
    """
    survey = survey if isinstance(survey, Survey) else Survey(survey)
    dataset = _opened(survey, reports)
    workers = connect(cluster)
    try:
        sums = _Server(survey, dataset, workers).collect()
    finally:
        workers.close()
    protocol = survey.protocol
    n_users = sums.verdicts.pop("valid")
    if n_users == 0:
        kinds = ", ".join(f"{kind}: {n}" for kind, n in sums.verdicts.items() if n)
        raise DataError(f"none of the {dataset.n_rows} reports is a valid answer to this survey ({kinds})")
    cost = Budget(protocol.randomiser.epsilon, protocol.randomiser.delta)
    plan = calibrate([Item(NAME, Reported(protocol.cost))], cost, protects=protocol.protects)
    guarantee = plan.guarantee(simulation=False, unit="user")
    total = np.asarray(sums.total).astype(np.float64) * protocol.grid
    again = functools.partial(_valid, survey, dataset, n_users)
    return Aggregated(protocol, total, n_users, guarantee, None, dataset.n_rows, sums.verdicts, again)


def write_reports(path: str | os.PathLike[str], batches: Iterable[Bytes]) -> int:
    """Write encoded reports (`dpdist.local.survey.wire.encode`) to a new Zarr store, batch after batch, in constant
    memory.

    Returns
    -------
    int
        How many.

    Examples
    --------
    >>> import os, tempfile
    >>> from dpdist.local import Mean
    >>> from dpdist.local.survey.wire import encode
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> protocol = Mean(low=0.0, high=1.0, epsilon=1.0).protocol(1000, 1)
    >>> batches = (protocol.randomise({"X": np.full((500, 1), 0.3)}, SystemDraws()) for _ in range(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "reports.zarr")
    ...     written = write_reports(path, (encode(Survey(protocol), batch) for batch in batches))
    ...     print(written, aggregate(protocol, path).n_users)
    1000 1000
    """
    return write_messages(path, batches)


def _valid(survey: Survey, dataset: Dataset, n_users: int) -> NDArray[Any]:
    found = decode(survey, dataset.read(0, dataset.n_rows)[NAME]).reports
    if len(found) != n_users:
        raise DataError(
            f"{n_users} reports were counted and now there are {len(found)}: the store was changed in between; "
            "aggregate it again"
        )
    return found


def _opened(survey: Survey, reports: Store) -> Dataset:
    if isinstance(reports, str | os.PathLike):
        return open_messages(reports, report_bytes(survey))
    if isinstance(reports, Dataset):
        return reports
    table = reports if isinstance(reports, np.ndarray) else packed(survey, reports)
    if table.dtype != np.uint8 or table.ndim != 2 or len(table) == 0:
        raise DataError("reports must be rows of bytes (uint8), at least one; see dpdist.local.encode")
    return Dataset.from_arrays(dataset_id=NAME, reports=table)


@dataclass
class _Part:
    """What became of the reports of one partition whose hashes belong to the asked part."""

    first: int
    verdicts: Mapping[str, int]
    total: NDArray[Any]
    hashes: NDArray[np.uint64]


@dataclass(frozen=True)
class _Ask:
    """Which part of the hashes is asked, under which key; and what is to be left out, by first row of a partition."""

    key: NDArray[np.uint64] = field(repr=False)
    part: int
    n_parts: int
    repeats: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Arrivals(Query):
    """The valid reports among the rows of a store."""

    tag: ClassVar[str] = "Arrivals"

    survey: Survey

    is_sum = False

    @property
    def reported(self) -> Cost:
        return self.survey.protocol.cost

    @property
    def bound(self) -> float:
        return float(self.row_units)

    @property
    def grid(self) -> float:
        return 1.0

    @property
    def row_units(self) -> int:
        return self.survey.protocol.units

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> Any:
        return self.summarise_at(0, block, state, rows)

    def summarise_at(self, first: int, block: Block, state: _Ask, rows: NDArray[np.int64] | None) -> Any:
        """One `_Part`; asked again because of repeated reports, it leaves them out."""
        repeats = state.repeats.get(first, _NONE)
        if state.repeats and len(repeats) == 0:
            return []
        table, reports, verdicts = checked(self.survey, block[NAME])
        chosen = np.flatnonzero(verdicts == Verdict.VALID)
        hashes = hashed(table[chosen, _ID], state.key)
        if state.n_parts > 1:
            mine = hashes % np.uint64(state.n_parts) == state.part
            hashes, reports = hashes[mine], reports[mine]
        if len(repeats):
            hashes, reports = np.delete(hashes, repeats), np.delete(reports, repeats, axis=0)
        kinds = counted(verdicts)
        kinds = {kind: n if state.part == 0 else 0 for kind, n in kinds.items()}  # the others were counted with part 0
        counts = {**kinds, "valid": len(reports), "duplicate": len(repeats)}
        return [_Part(first, counts, self.survey.protocol.accumulate(reports, self.survey.public), hashes)]

    def combine(self, total: Any, summary: Any, wide: bool) -> Any:
        return summary if total is None else total + summary


@dataclass
class _Sums:
    total: Any = None
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, part: _Part, wide: bool) -> None:
        self.total = add_units(self.total, part.total, wide)
        self.verdicts.update(part.verdicts)


class _Server:
    """Asks the partitions of a store."""

    def __init__(self, survey: Survey, dataset: Dataset, workers: Workers) -> None:
        self._query = _Arrivals(survey)
        self._workers = workers
        self._n = dataset.n_rows
        self._ranges = cut(dataset.partitions, 1, workers.n_threads)
        n_shards = min(workers.n_threads, len(self._ranges))
        resident = dataset.in_memory or dataset.nbytes <= RESIDENT_SHARE * workers.memory
        plans = []
        for i in range(n_shards):
            ranges = tuple(self._ranges[i::n_shards])
            plan = ShardPlan(ranges, {NAME: np.asarray}, resident)
            plans.append((plan, {NAME: [dataset.source(NAME)] * len(ranges)}))
        workers.place(plans)

    def collect(self) -> _Sums:
        """All parts of the hashes, one after another."""
        key = np.frombuffer(secrets.token_bytes(ID_BYTES * 256 * 8), np.uint64).reshape(ID_BYTES, 256)
        n_parts = -(-self._n // HASHES)
        sums = _Sums()
        for part in range(n_parts):
            self._collect(_Ask(key, part, n_parts), sums)
        sums.verdicts = Counter({verdict.name.lower(): sums.verdicts[verdict.name.lower()] for verdict in Verdict})
        return sums

    def _collect(self, ask: _Ask, sums: _Sums) -> None:
        """Ask all partitions, and those that repeat reports once more."""
        wide = self._round(ask, 0, self._n).wide
        pieces = pieces_of(self._ranges, 0, self._n)
        parts: list[_Part] = []
        for start, stop in pieces:
            parts += sorted(self._ask(ask, start, stop), key=lambda part: part.first)
            if len(pieces) > 1:
                progress.tell(progress.Asked(ask.part * self._n + stop, ask.n_parts * self._n))
        repeats = _repeats(parts)
        for part in parts:
            if part.first not in repeats:
                sums.add(part, wide)
        for start, stop in pieces:
            if here := {first: rows for first, rows in repeats.items() if start <= first < stop}:
                for part in self._ask(replace(ask, repeats=here), start, stop):
                    sums.add(part, wide)

    def _ask(self, ask: _Ask, start: int, stop: int) -> list[_Part]:
        return [part for parts in self._workers.map(self._round(ask, start, stop)) for part in parts]

    def _round(self, ask: _Ask, start: int, stop: int) -> Round:
        return Round(self._query, ask, start, stop, self._n)


def _repeats(parts: Sequence[_Part]) -> dict[int, NDArray[np.int64]]:
    """By first row of a partition: which of its reports (their positions among its hashes) were there before."""
    again = np.flatnonzero(repeated(np.concatenate([part.hashes for part in parts])))
    edges = np.cumsum([0, *(len(part.hashes) for part in parts)])
    owners = np.searchsorted(edges, again, side="right") - 1
    return {parts[i].first: again[owners == i] - edges[i] for i in np.unique(owners)}


def hashed(ids: Bytes, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """8 bytes for each id: the exclusive or of one random word per byte of it."""
    hashes = np.zeros(len(ids), np.uint64)
    for column, words in zip(ids.T, key, strict=True):
        hashes ^= words[column]
    return hashes
