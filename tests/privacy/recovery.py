"""A world in which runs are charged, killed, copied, restored and exchanged, beside a plain model of what may be drawn.

`World` acts on real files and databases: a ledger, its journal (in it or beside it), the records of runs, and a dataset
that remembers the ledger once it is limited. `Model` holds what each of them knows, as sets and dictionaries, and says
what a run may do: use a value, draw one, or nothing. After every act the two must agree.

Whatever the model says, three things hold. A value that was used is never drawn a second time as long as the ledger,
the journal, the record of its run or the dataset is there that knows of it. What is spent is the sum of the distinct
runs on file. A refusal names what to restore.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from dpdist import Budget, Dataset, Ledger
from dpdist.engine.memory import DatasetMemory
from dpdist.errors import Forgotten, LedgerError
from dpdist.pipeline.account import open_ledger
from dpdist.pipeline.remembered import gather
from dpdist.pipeline.rundir import FORMAT, RunDirectory
from dpdist.privacy import ledger as ledger_module
from dpdist.privacy import ledger_records, resumption
from dpdist.privacy.copies import back_up, put_back
from dpdist.privacy.filter import Charge
from dpdist.privacy.ledger_place import is_there
from dpdist.privacy.paid_run import PaidRun
from tests.postgres import PostgresServer
from tests.privacy.test_migrations import left_by_the_first

EPSILON = 0.5
N_RELEASES = 2
POINTS = ("opened", "charged", "told", "announced", "stored", "committed", "remembered", "used")
"""Where a process can end; all but the first three: in a release."""
End = tuple[int, str] | None


class Killed(BaseException):
    """The process ends here."""


# -- the plain model ----------------------------------------------------------------------------------------------


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
    limited: bool = False
    runs: dict[str, Paid] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    announced: set[tuple[str, int]] = field(default_factory=set)
    committed: set[tuple[str, int]] = field(default_factory=set)
    made_up: int = 0
    """How many runs were charged that nobody knows by name."""

    @property
    def spent(self) -> float:
        return EPSILON * (len(self.runs) + self.made_up)


@dataclass
class Kept:
    """What a journal knows."""

    name: int
    values: dict[tuple[str, int], float] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
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
    """What a dataset knows."""

    mark: Mark
    spent: float


@dataclass
class Told:
    """What a life of a run came to."""

    end: str
    """"done", "killed", "refused" or "other plan"."""
    seen: list[tuple[int, float, bool]] = field(default_factory=list)
    """The releases that it used, their values, and whether they were drawn."""


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

    def begin(self, number: int = 0) -> Book:
        self.book = Book(Mark(next(self._new), number, next(self._new)), set())
        self._stand(self.book, self.book.at)
        return self.book

    def advance(self, book: Book, past: int = 0) -> None:
        self._stand(book, Mark(book.at.ledger, max(book.at.number, past) + 1, next(self._new)))

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

    def live(self, directory: str, run: str, plan: str, end: End, drawn: Sequence[float]) -> Told:
        """One process of a run; ``drawn`` are the values that it would draw."""
        told, draws = Told("done"), iter(drawn)
        try:
            self._live(directory, run, plan, end, told, draws)
        except (_Refused, _Ended) as outcome:
            told.end = outcome.args[0]
        return told

    def _live(self, directory: str, run: str, plan: str, end: End, told: Told, draws: Iterator[float]) -> None:
        record = self.records.setdefault(directory, Record(run))
        if self.book is None and (record.early or record.mark is not None):
            raise _Refused("refused")
        book = self.book or self.begin()
        if record.early and record.mark is None and run not in book.runs:
            raise _Refused("refused")
        kept = self.journal()
        witnesses = [record.mark, self.note and self.note.mark]
        witnesses += [kept.marks.get(book.at.ledger)] if self.apart else []
        if any(mark is not None and mark.token not in book.tokens for mark in witnesses):
            raise _Refused("refused")
        if self.apart and not book.runs and set(kept.marks) - {book.at.ledger}:
            raise _Refused("refused")
        if run in book.runs:
            paid = book.runs[run]
            if paid.plan != plan:
                raise _Refused("other plan" if paid.version in (None, self.version) else "other version")
            if run in book.blocked or paid.journal not in (None, kept.name):
                raise _Refused("refused")
            if paid.journal is None and run not in kept.opened:
                raise _Refused("refused")
            paid.journal = kept.name
        elif kept.has(run):
            raise _Refused("refused")
        kept.opened.add(run)
        _perhaps(end, 0, "opened")
        charged = False
        for index in range(N_RELEASES):
            release, is_new = (run, index), False
            if release in kept.values:
                if release not in book.announced:
                    raise _Refused("refused")
                self._commit(book, release)
            else:
                if not charged:
                    charged = True
                    if run not in book.runs:
                        book.runs[run] = Paid(kept.name, plan, self.version)
                        self.advance(book)
                    _perhaps(end, index, "charged")
                    self._remember(record, book, kept, run)
                    _perhaps(end, index, "told")
                if release in book.committed:
                    raise _Refused("refused")
                book.announced.add(release)
                _perhaps(end, index, "announced")
                kept.values[release], is_new = next(draws), True
                if self.apart:
                    _perhaps(end, index, "stored")
                self._commit(book, release)
                _perhaps(end, index, "committed")
                record.mark = book.at
                _perhaps(end, index, "remembered")
            told.seen.append((index, kept.values[release], is_new))
            _perhaps(end, index, "used")

    def _commit(self, book: Book, release: tuple[str, int]) -> None:
        if release not in book.committed:
            book.committed.add(release)
            self.advance(book)

    def _remember(self, record: Record, book: Book, kept: Kept, run: str) -> None:
        receipt = (book.at.ledger, copy.copy(book.runs[run]))
        if record.mark != book.at:
            record.mark, record.receipt = book.at, receipt
        if book.limited and (self.note is None or self.note.mark.number < book.at.number):
            self.note = Note(book.at, book.spent)
        if self.apart:
            known = kept.marks.get(book.at.ledger)
            if known is None or known.number < book.at.number:
                kept.marks[book.at.ledger] = book.at
            kept.receipts[run] = receipt

    def recall(self) -> bool:
        """Charge again what everybody remembers; False where it is refused, and nothing changes."""
        book = self.book
        assert book is not None
        ours = book.at.ledger
        marks: list[Mark] = []
        charged: dict[str, tuple[int, Paid] | None] = {}
        for record in self.records.values():
            if record.mark is not None or record.early:
                marks += [] if record.mark is None else [record.mark]
                charged[record.run] = charged.get(record.run) or record.receipt
                if record.mark is not None and record.mark.ledger != ours:
                    return False
        if self.note is not None:
            marks.append(self.note.mark)
            if self.note.mark.ledger != ours:
                return False
        if self.apart and self.kept is not None:
            named = {ledger for ledger, _ in self.kept.receipts.values()}
            told = [mark for ledger, mark in self.kept.marks.items() if ledger in named]
            if told and ours not in named:
                return False
            marks += told
            for run in {of for of, _ in self.kept.values} | set(self.kept.receipts):
                known = charged.get(run)
                charged[run] = known if known and known[0] == ours else self.kept.receipts.get(run)
        marks = [mark for mark in marks if mark.ledger == ours]
        lost = {run: told[1] for run, told in charged.items() if told and told[0] == ours and run not in book.runs}
        if any(told is None and run not in book.runs for run, told in charged.items()):
            return False
        before = set(book.runs)
        self.advance(book, max((mark.number for mark in marks), default=0))
        for run, paid in lost.items():
            book.runs[run] = copy.copy(paid)
            self.advance(book)
        book.blocked |= before | set(lost)
        if self.note is not None:
            book.limited = True
            if self.note.spent > book.spent:
                book.made_up += round((self.note.spent - book.spent) / EPSILON)
                self.advance(book)
        book.tokens |= {mark.token for mark in marks}
        return True


class _Refused(Exception):
    """The run may not go on."""


class _Ended(Exception):
    """The process was killed."""


def _perhaps(end: End, index: int, point: str) -> None:
    if end == (index, point):
        raise _Ended("killed")


# -- the real things ----------------------------------------------------------------------------------------------


class World:
    """A ledger, its journal, the records of runs and a dataset, in a folder and perhaps on a server.

    Parameters
    ----------
    folder : Path
    server : PostgresServer or None
        Keeps the ledger; None: a file.
    apart : bool
        Whether the journal is a file of its own.
    limited : bool
        Whether the account has a limit, so that the dataset remembers the ledger.
    early : bool
        Whether there is a ledger of the first version, with one run.
    """

    def __init__(self, folder: Path, server: PostgresServer | None, apart: bool, limited: bool, early: bool) -> None:
        self.folder, self.apart = folder, apart
        self._databases = None if server is None else Databases(server)
        self.ledger = str(folder / "ledger.sqlite") if self._databases is None else self._databases.address
        self.journal = str(folder / "journal.sqlite") if apart else None
        self.rows = folder / "rows.zarr"
        Dataset.from_arrays(self.rows, X=np.zeros((2, 1)), dataset_id="d")
        self.model = Model(apart)
        self.used: dict[tuple[str, int], float] = {}
        self.moments: list[dict[str, tuple[Any, Any]]] = []
        self.backups: list[tuple[str, Book, Kept | None]] = []
        self.refusals: list[str] = []
        self._draws = itertools.count(10)
        if early:
            self._begin_early()
        if limited:
            with contextlib.closing(Ledger(self.ledger)) as ledger:
                ledger.set_limit("d", Budget(2000.0))
            book = self.model.book or self.model.begin()
            book.limited = True
            self.model.advance(book)

    def _begin_early(self) -> None:
        left_by_the_first(self.ledger)
        book, kept = self.model.begin(2), self.model.journal()
        book.limited = True
        book.runs["r"] = Paid(None, "plan", None)
        book.announced.add(("r", 0))
        kept.values["r", 0] = self.used["r", 0] = 1.0
        kept.opened.add("r")
        self.model.records["early"] = Record("r", early=True)
        place = self.folder / "early"
        place.mkdir()
        budget = {"ledger": self.ledger, "journal": self.journal}
        record = {"format": FORMAT, "run_id": "r", "status": "started", "started": "2026-01-01", "budget": budget}
        (place / "run.json").write_text(json.dumps({**record, "asked": {}}))
        with contextlib.closing(Ledger(self.ledger)) as ledger:  # the upgrade: from now on it has one name
            ledger.set_limit("d", Budget(2000.0))
        self.model.advance(book)

    # -- a run ----------------------------------------------------------------------------------------------------

    def live(self, directory: str, end: End = None, plan: str = "plan") -> Told:
        """A process starts the run of a directory, or goes on with it; everybody must agree with the model."""
        known = {(run, index) for run, index in self.used if self.model.knows(run, index, directory)}
        told, run, drawn = Told("done"), "", []
        try:
            with contextlib.ExitStack() as opened:
                head = {"asked": {}, "budget": {"ledger": self.ledger, "journal": self.journal}}
                place = RunDirectory(str(self.folder / directory), head, resume=True)
                run = place.run_id
                ledger = opened.enter_context(contextlib.closing(open_ledger(self.ledger, self.journal, place)))
                memory = DatasetMemory(Dataset.open(self.rows), "d", ledger)
                paid = PaidRun(ledger, ledger.journal, "d", run, witnesses=(*ledger.witnesses, memory))
                self._releases(paid, ledger, run, plan, end, told, drawn)
        except Killed:
            told.end = "killed"
        except Forgotten as refused:
            self.refusals.append(str(refused))
            told.end = "refused"
            assert "estore" in str(refused), f"it does not say what to restore: {refused}"
            assert any(name in str(refused) for name in (self.ledger, str(self.journal), str(self.rows), run)), refused
        except LedgerError as refused:
            told.end = "other version" if "which planned it: this is dpdist" in str(refused) else "other plan"
            assert plan != "plan" or self.model.book.runs[run].plan != "plan", refused
        expected = self.model.live(directory, run, plan, end, drawn)
        assert told == expected, f"{run} came to {told}, and the model to {expected}; {self.refusals[-1:]}"
        for index, value, is_new in told.seen:
            assert not (is_new and (run, index) in known), f"release {index} of {run} was drawn a second time"
            self.used[run, index] = value
        assert (self.model.book is not None) == is_there(self.ledger), (
            "a refusal leaves no ledger in the place of a lost one"
        )
        if self.model.book is not None:
            self.check_sums()
        return told

    def _releases(
        self, paid: PaidRun, ledger: Ledger, run: str, plan: str, end: End, told: Told, drawn: list[float]
    ) -> None:
        paid.open(plan, Charge(EPSILON))
        _die(end, 0, "opened")
        charged = False
        for index in range(N_RELEASES):
            name, is_new = f"{run}/{index}", False
            value = paid.value(name)
            if value is None:
                if not charged:
                    charged = True
                    with _dying(paid, "_tell", end == (index, "charged")):
                        paid.charge("2 x sum")
                    _die(end, index, "told")
                paid.announce(name, index, "sum", "Laplace", 2.0, 1.0, "pure 0.5")
                _die(end, index, "announced")
                drawn.append(float(next(self._draws)))
                dies_stored = _dying(ledger, "confirm", end == (index, "stored") and self.apart)
                with dies_stored, _dying(paid, "_tell", end == (index, "committed")):
                    value, is_new = paid.commit(name, np.array([drawn[-1]] * 2)), True
                _die(end, index, "remembered")
            told.seen.append((index, float(value[0]), is_new))
            _die(end, index, "used")
        paid.close()

    def check_sums(self) -> None:
        """What is spent is the sum of the distinct runs, and these are the ones that were charged."""
        book = self.model.book
        assert book is not None
        with contextlib.closing(Ledger(self.ledger)) as ledger:
            runs = [run.run_id for run in ledger.history("d")]
            named = [run for run in runs if not run.startswith("recalled-")]
            assert len(set(runs)) == len(runs) and set(named) == set(book.runs)
            assert len(runs) - len(named) <= book.made_up
            assert ledger.spent("d").epsilon == book.spent
            assert ledger._db.read(ledger_records.check_sums) == len(runs)

    # -- what happens to files and databases ----------------------------------------------------------------------

    def parts(self) -> list[str]:
        return ["ledger", *(["journal"] if self.apart else []), "note", *self.model.records]

    def copy(self) -> None:
        """Keep a copy of everything, as it is now."""
        self.moments.append({part: (self._read(part), copy.deepcopy(self._model(part))) for part in self.parts()})

    def restore(self, moment: int, parts: Sequence[str]) -> None:
        """Put some of it back as it was then."""
        then = self.moments[moment]
        for part in parts:
            real, model = then.get(part, (None, None))
            self._write(part, real)
            self._set(part, copy.deepcopy(model))

    def exchange(self, one: str, other: str) -> None:
        """The records of two runs change places."""
        real, model = (self._read(one), self._read(other)), (self._model(one), self._model(other))
        for part, content, known in zip((other, one), real, model, strict=True):
            self._write(part, content)
            self._set(part, known)

    def lose(self, parts: Sequence[str]) -> None:
        for part in parts:
            self._write(part, None)
            self._set(part, None)

    def back_up(self) -> None:
        if self.model.book is None:
            return
        target = str(self.folder / f"backup-{len(self.backups)}")
        back_up(self.ledger, target)
        model = (copy.deepcopy(self.model.book), copy.deepcopy(self._model("ledger")[1]))
        self.backups.append((target, *model))

    def put_back(self, which: int) -> None:
        """``dpdist budget restore`` with all that is there; the ledger was lost."""
        target, book, kept = self.backups[which]
        self.lose(["ledger"])
        self.model.book = copy.deepcopy(book)
        if not self.apart:
            self.model.kept = copy.deepcopy(kept)
        # a record of a run that has told nobody anything is a memory of nothing
        runs = [str(self.folder / name) for name in self.model.records]
        journals = [self.journal] if self.journal is not None and self.model.kept is not None else []
        if self.model.recall():
            put_back(target, self.ledger, gather([str(self.rows)], runs, journals), "a test")
            self.check_sums()
            return
        self.lose(["ledger"])
        refused = None
        try:
            put_back(target, self.ledger, gather([str(self.rows)], runs, journals), "a test")
        except LedgerError as error:
            refused = error
        assert refused is not None, "somebody remembers another ledger, or a run that nobody can charge"

    def upgrade(self) -> None:
        """From now on another version of the library runs."""
        self.model.version = str(int(self.model.version) + 1)

    @contextlib.contextmanager
    def as_version(self) -> Iterator[None]:
        """The library says that it is the model's version."""
        real = ledger_records.library
        try:
            ledger_module.library = resumption.library = lambda: self.model.version
            yield
        finally:
            ledger_module.library = resumption.library = real

    def _path(self, part: str) -> Path:
        special = {"ledger": self.ledger, "journal": str(self.journal), "note": str(self.rows / "zarr.json")}
        return Path(special.get(part, str(self.folder / part / "run.json")))

    def _read(self, part: str) -> Any:
        if part == "ledger" and self._databases is not None:
            return None if self.model.book is None else self._databases.copy()
        path = self._path(part)
        return path.read_bytes() if path.exists() else None

    def _write(self, part: str, content: Any) -> None:
        if part == "ledger" and self._databases is not None:
            self._databases.restore(content)
            return
        path = self._path(part)
        if content is None and part == "note":
            known = json.loads(path.read_text())
            known["attributes"].pop("dpdist-ledger", None)
            content = json.dumps(known).encode()
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    def _model(self, part: str) -> Any:
        model = self.model
        match part:
            case "ledger":
                return model.book, None if self.apart else model.kept
            case "journal":
                return model.kept
            case "note":
                return model.note
            case _:
                return model.records.get(part)

    def _set(self, part: str, known: Any) -> None:
        model = self.model
        match part:
            case "ledger":
                model.book, kept = known or (None, None)
                if not self.apart:
                    model.kept = kept
            case "journal":
                model.kept = known
            case "note":
                model.note = known
            case _ if known is None:
                model.records.pop(part, None)
            case _:
                model.records[part] = known

    def close(self) -> None:
        if self._databases is not None:
            self._databases.close()


class Databases:
    """The database of a ledger, on a real server, and copies of it."""

    def __init__(self, server: PostgresServer) -> None:
        self.address = server.address.replace("/postgres", "/world")
        self._server = server.address
        self._count = 0
        self._copies: list[str] = []
        self.restore(None)

    def copy(self) -> str:
        self._copies.append(f"copy{len(self._copies)}")
        self._make(self._copies[-1], "world")
        return self._copies[-1]

    def restore(self, source: str | None) -> None:
        self._make("world", source or "template0")

    def close(self) -> None:
        for name in ("world", *self._copies):
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _make(self, name: str, source: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for _ in range(100):  # a connection that was closed can still be there for a moment
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                return self._execute(f"CREATE DATABASE {name} TEMPLATE {source}")
            time.sleep(0.05)
        raise AssertionError(f"{source} stays in use")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]


def _die(end: End, index: int, point: str) -> None:
    if end == (index, point):
        raise Killed


@contextlib.contextmanager
def _dying(owner: object, name: str, now: bool) -> Iterator[None]:
    """The process ends in the place of the next call of a method."""

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    if now:
        setattr(owner, name, dies)
    try:
        yield
    finally:
        if now:
            delattr(owner, name)
