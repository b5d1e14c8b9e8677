"""A plain model of what ledger, journal, records of runs and dataset know, and of what a run may do.

Everything is a set or a dictionary. A process of a run is a generator that stops where a process can end, so that
anything can happen in between; `tests.privacy.ledger.recovery` lets the real thing go the same steps beside it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

EPSILON = 0.5
N_RELEASES = 2
BETWEEN = ("opened", "told", "announced", "drawn", "remembered", "used")
"""Where something else can happen while a process waits."""
POINTS = (
    "opened", "confirmed", "charged", "told", "announced", "drawn", "stored", "committed", "remembered", "used",
)  # fmt: skip
"""Where a process can end; all but the first four: in a release."""
Point = tuple[int, str]


@dataclass(frozen=True)
class Mark:
    """Where a ledger stood."""

    ledger: int
    number: int
    token: int


@dataclass
class Paid:
    journal: int | None
    plan: str
    version: str | None


@dataclass
class Book:
    """What a ledger knows."""

    at: Mark
    tokens: set[int]
    life: int
    """Another one since it was put back."""
    limited: bool = False
    runs: dict[str, Paid] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    announced: set[tuple[str, int]] = field(default_factory=set)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    """The number of the head with which a value began to count."""
    restores: int = 0
    made_up: set[str] = field(default_factory=set)
    """Runs that were charged again without their names: a dataset saw what they cost."""

    @property
    def spent(self) -> float:
        return EPSILON * (len(self.runs) + len(self.made_up))


@dataclass
class Kept:
    """What a journal knows."""

    name: int
    values: dict[tuple[str, int], float] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)
    receipts: dict[str, tuple[int, Paid]] = field(default_factory=dict)

    def has(self, run: str) -> bool:
        return any(of == run for of, _ in self.values)


@dataclass
class Record:
    """What the record of a run knows."""

    run: str
    mark: Mark | None = None
    receipt: tuple[int, Paid] | None = None
    early: bool = False
    """Of a version that wrote down nothing, so that the ledger has to have its charge."""


@dataclass
class Note:
    """What a dataset knows: where the ledger stood, and the runs that it had charged."""

    mark: Mark
    runs: frozenset[str]
    life: int


@dataclass
class Told:
    """What a life of a run came to."""

    end: str
    """"done", "killed", "refused", "fenced", "other plan" or "other version"."""
    seen: list[tuple[int, float, bool]] = field(default_factory=list)
    """The releases that it used, their values, and whether they were drawn."""


class Refused(Exception):
    """The run may not go on; says how."""


@dataclass
class Life:
    """What a process of a run has in its memory."""

    directory: str
    record: Record
    seen: Mark | None = None
    """Where the ledger stood when it last looked."""
    told: int = -1
    """The number of the newest head that the record knows."""
    epoch: int = 0
    has_told_dataset: bool = False


class Model:
    """What everybody knows, and what a run may do."""

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self.book: Book | None = None
        self.kept: Kept | None = None
        self.note: Note | None = None
        self.records: dict[str, Record] = {}
        self.version = "1"
        self.known_at: dict[int, frozenset[tuple[str, int]]] = {}
        self._new = itertools.count(1)

    def begin(self, number: int = 0, ledger: int | None = None) -> Book:
        """A new ledger, perhaps under the name of one that was lost."""
        self.book = Book(Mark(ledger or next(self._new), number, next(self._new)), set(), next(self._new))
        self._stand(self.book, self.book.at)
        return self.book

    def advance(self, book: Book, past: int = 0) -> int:
        self._stand(book, Mark(book.at.ledger, max(book.at.number, past) + 1, next(self._new)))
        return book.at.number

    def _stand(self, book: Book, mark: Mark) -> None:
        book.at = mark
        book.tokens.add(mark.token)
        self.known_at[mark.token] = frozenset(book.committed)

    def journal(self) -> Kept:
        if self.kept is None:
            self.kept = Kept(next(self._new))
        return self.kept

    def knows(self, run: str, index: int, directory: str) -> bool:
        """Whether anybody who is asked can tell that a release has had a value that counts."""
        record = self.records.get(directory)
        marks = [record and record.mark, self.note and self.note.mark, *(self.kept.marks.values() if self.kept else ())]
        return (
            (self.book is not None and (run, index) in self.book.committed)
            or (self.kept is not None and (run, index) in self.kept.values)
            or any(mark is not None and (run, index) in self.known_at[mark.token] for mark in marks)
        )

    # -- a process ------------------------------------------------------------------------------------------------

    def live(self, directory: str, run: str, plan: str, told: Told, drawn: list[float]) -> Iterator[Point]:
        """One process of a run, from point to point; the last of ``drawn`` is what it draws."""
        try:
            yield from self._live(directory, run, plan, told, drawn)
        except Refused as refused:
            told.end = refused.args[0]

    def _live(self, directory: str, run: str, plan: str, told: Told, drawn: list[float]) -> Iterator[Point]:
        self.records.setdefault(directory, Record(run))
        life = Life(directory, copy.deepcopy(self.records[directory]))
        self._open(life, run, plan)
        yield 0, "opened"
        charged = False
        for index in range(N_RELEASES):
            release, is_new = (run, index), False
            if self.kept is None:
                raise Refused("refused")
            value = self.kept.values.get(release)
            if value is not None:
                if self._confirm(life, release) > life.told:
                    yield index, "confirmed"
                    self._tell_record(life)
            else:
                if not charged:
                    charged = True
                    self._charge(life, run, plan)
                    self._check(life, run)
                    yield index, "charged"
                    self._tell_everybody(life, run)
                    yield index, "told"
                self._announce(life, release)
                yield index, "announced"
                value = yield from self._draw(life, release, drawn)
                is_new = value == drawn[-1]
                yield index, "committed"
                self._tell_record(life)
                yield index, "remembered"
            told.seen.append((index, value, is_new))
            yield index, "used"

    def _open(self, life: Life, run: str, plan: str) -> None:
        record = life.record
        if self.book is None and (record.early or record.mark is not None):
            raise Refused("refused")
        book = self.book or self.begin()
        if record.early and record.mark is None and run not in book.runs:
            raise Refused("refused")
        kept = self.journal()
        self._ask(life)
        if self.apart and not book.runs and set(kept.marks) - {book.at.ledger}:
            raise Refused("refused")
        if run in book.runs:
            paid = book.runs[run]
            if paid.plan != plan:
                raise Refused("other plan" if paid.version in (None, self.version) else "other version")
            if run in book.blocked or paid.journal not in (None, kept.name):
                raise Refused("refused")
            if paid.journal is None and run not in kept.epochs:
                raise Refused("refused")
            paid.journal = kept.name
        elif kept.has(run):
            raise Refused("refused")
        life.seen = book.at
        life.told = record.mark.number if record.mark is not None else -1
        kept.epochs[run] = life.epoch = kept.epochs.get(run, 0) + 1

    def _ask(self, life: Life) -> None:
        """Everybody must have seen nothing else than what the ledger has."""
        book = self.book
        assert book is not None
        witnesses = [life.record.mark, self.note and self.note.mark]
        witnesses += [self.journal().marks.get(book.at.ledger)] if self.apart else []
        if any(mark is not None and mark.token not in book.tokens for mark in witnesses):
            raise Refused("refused")

    def _write(self, life: Life) -> Book:
        """The ledger, which must not have forgotten what this process saw."""
        book = self.book
        assert book is not None
        if life.seen is not None and life.seen.token not in book.tokens:
            raise Refused("refused")
        return book

    def _charge(self, life: Life, run: str, plan: str) -> None:
        self._ask(life)
        book = self._write(life)
        if run not in book.runs:
            book.runs[run] = Paid(self.journal().name, plan, self.version)
            self.advance(book)
        life.seen = book.at

    def _announce(self, life: Life, release: tuple[str, int]) -> None:
        book = self._write(life)
        if release in book.committed:
            self._check(life, release[0])
            raise Refused("refused")
        book.announced.add(release)
        life.seen = book.at

    def _check(self, life: Life, run: str) -> None:
        epoch = self.journal().epochs.get(run)
        if epoch != life.epoch:
            raise Refused("refused" if epoch is None else "fenced")

    def _draw(self, life: Life, release: tuple[str, int], drawn: list[float]) -> Iterator[Point]:
        """Draw a value and commit it; gives back the one that counts."""
        self._check(life, release[0])
        yield release[1], "drawn"
        if not self.apart:
            self._write(life)
        self._check(life, release[0])
        values = self.journal().values
        value = values.setdefault(release, drawn[-1])
        if self.apart:
            yield release[1], "stored"
        self._confirm(life, release)
        return value

    def _confirm(self, life: Life, release: tuple[str, int]) -> int:
        book = self.book
        assert book is not None
        if release not in book.committed:
            self._write(life)
            if release not in book.announced:
                raise Refused("refused")
            book.committed[release] = book.at.number + 1
            self.advance(book)
            life.seen = book.at
        return book.committed[release]

    def _tell_record(self, life: Life, receipt: tuple[int, Paid] | None = None) -> None:
        book, known = self.book, life.record.mark
        assert book is not None
        life.told = book.at.number
        if known is not None and known.ledger == book.at.ledger and known.number >= book.at.number:
            return
        life.record = replace(life.record, mark=book.at, receipt=receipt or life.record.receipt)
        self.records[life.directory] = copy.deepcopy(life.record)

    def _tell_everybody(self, life: Life, run: str) -> None:
        book, kept = self.book, self.journal()
        assert book is not None
        receipt = (book.at.ledger, copy.copy(book.runs[run]))
        self._tell_record(life, receipt)
        if book.limited and not life.has_told_dataset:
            life.has_told_dataset = True
            if self.note is None or self.note.mark.number < book.at.number:
                self.note = Note(book.at, frozenset(book.runs) | frozenset(book.made_up), book.life)
        if self.apart:
            known = kept.marks.get(book.at.ledger)
            if known is None or known.number < book.at.number:
                kept.marks[book.at.ledger] = book.at
            kept.receipts[run] = receipt

    # -- putting a ledger back ------------------------------------------------------------------------------------

    def remembered(self) -> list[Mark]:
        """Where the ledger stood for those who are asked."""
        marks = [record.mark for record in self.records.values() if record.mark is not None]
        marks += [] if self.note is None else [self.note.mark]
        if self.apart and self.kept is not None:
            named = {ledger for ledger, _ in self.kept.receipts.values()}
            marks += [mark for ledger, mark in self.kept.marks.items() if ledger in named]
        return marks

    def recall(self) -> bool:
        """Charge again what everybody remembers; False where it is refused, and nothing changes."""
        book = self.book
        assert book is not None
        ours = book.at.ledger
        charged: dict[str, tuple[int, Paid] | None] = {}
        for record in self.records.values():
            if record.mark is not None or record.early:
                charged[record.run] = charged.get(record.run) or record.receipt
                if record.mark is not None and record.mark.ledger != ours:
                    return False
        if self.note is not None and self.note.mark.ledger != ours:
            return False
        if self.apart and self.kept is not None:
            named = {ledger for ledger, _ in self.kept.receipts.values()}
            if named and ours not in named:
                return False
            for run in {of for of, _ in self.kept.values} | set(self.kept.receipts):
                known = charged.get(run)
                charged[run] = known if known and known[0] == ours else self.kept.receipts.get(run)
        marks = [mark for mark in self.remembered() if mark.ledger == ours]
        lost = {run: told[1] for run, told in charged.items() if told and told[0] == ours and run not in book.runs}
        if any(told is None and run not in book.runs for run, told in charged.items()):
            return False
        before = set(book.runs)
        book.restores += 1
        self.advance(book, max((mark.number for mark in marks), default=0))
        for run, paid in lost.items():
            book.runs[run] = copy.copy(paid)
            self.advance(book)
        book.blocked |= before | set(lost)
        if self.note is not None:
            book.limited = True
            if missing := self.note.runs - set(book.runs) - book.made_up:
                book.made_up |= missing
                self.advance(book)
        book.tokens |= {mark.token for mark in marks}
        book.life = next(self._new)
        return True
