"""A world in which runs are charged, killed, copied, restored and exchanged, beside a plain model of what may be drawn.

`World` acts on real files and databases: a ledger, its journal (in it or beside it), the records of runs, and a dataset
that remembers the ledger once it is limited. `tests.privacy.ledger.recovery_model` holds what each of them knows, and
says what a run may do: use a value, draw one, or nothing. After every act the two must agree.

Whatever the model says, four things hold. A value that was used is never drawn a second time as long as the ledger,
the journal, the record of its run or the dataset is there that knows of it. What is spent is the sum of the distinct
runs on file. Whoever is told where the ledger stands knows just that. A refusal names what to restore.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpdist import Budget, Dataset, Ledger
from dpdist.engine.memory import NOTE, DatasetMemory, noted_head
from dpdist.errors import Fenced, Forgotten, LedgerError
from dpdist.jobs.account import open_ledger
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger import records as ledger_records
from dpdist.privacy.ledger.backup import back_up, put_back
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.ledger.location import is_there
from dpdist.privacy.ledger.paid_run import PaidRun
from dpdist.runs.directory import FORMAT, RunDirectory
from dpdist.runs.remembered import gather
from tests.postgres import PostgresServer
from tests.privacy.ledger.recovery_databases import Databases, take_back
from tests.privacy.ledger.recovery_model import (
    BETWEEN,
    EPSILON,
    N_RELEASES,
    Book,
    Kept,
    Mark,
    Model,
    Paid,
    Point,
    Record,
    Told,
)
from tests.privacy.ledger.test_migrations import left_by_the_first

Act = Callable[[], object]


class Killed(BaseException):
    """The process ends here."""


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
        self._n_processes = 0
        self._words: dict[int, tuple[str, int, str]] = {}
        """The real head of every mark of the model that was seen."""
        self._draws = itertools.count(10)
        if early:
            self._begin_early()
        elif limited:
            self.begin()

    def begin(self) -> None:
        """Make a ledger, if there is none, and limit the account."""
        with contextlib.closing(Ledger(self.ledger)) as ledger:
            ledger.set_limit("d", Budget(2000.0))
        book = self.model.book or self.model.begin()
        book.limited = True
        self.model.advance(book)

    def _begin_early(self) -> None:
        for place in filter(None, (self.ledger, self.journal)):
            left_by_the_first(place)
        book, kept = self.model.begin(2), self.model.journal()
        book.limited = True
        book.runs["r"] = Paid(None, "plan", None)
        book.announced.add(("r", 0))
        kept.values["r", 0] = self.used["r", 0] = 1.0
        kept.epochs["r"] = 1
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

    def live(
        self, directory: str, end: Point | None = None, plan: str = "plan", meanwhile: tuple[Point, Act] | None = None
    ) -> Told:
        """A process starts the run of a directory, or goes on with it; everybody must agree with the model.

        Parameters
        ----------
        directory : str
        end : tuple of int and str, optional
            The process is killed at this point of that release.
        plan : str
        meanwhile : tuple of a point and a function, optional
            What happens at that point, while the process waits.
        """
        known = {(run, index) for run, index in self.used if self.model.knows(run, index, directory)}
        told, run, process = Told("done"), "", _Process(end, meanwhile)
        self._n_processes += 1
        try:
            with contextlib.ExitStack() as opened:
                head = {"asked": {}, "budget": {"ledger": self.ledger, "journal": self.journal}}
                place = RunDirectory(str(self.folder / directory), head, resume=True)
                run = place.run_id
                process.expected = self.model.live(directory, run, plan, process.told, process.drawn)
                ledger = opened.enter_context(contextlib.closing(open_ledger(self.ledger, self.journal, place)))
                memory = DatasetMemory(Dataset.open(self.rows), "d", ledger)
                paid = PaidRun(ledger, ledger.journal, "d", run, witnesses=(*ledger.witnesses, memory))
                self._releases(paid, ledger, run, plan, told, process)
        except Killed:
            told.end = process.told.end = "killed"
        except Forgotten as refused:
            self.refusals.append(str(refused))
            told.end = "refused"
            assert "estore" in str(refused), f"it does not say what to restore: {refused}"
            assert any(name in str(refused) for name in (self.ledger, str(self.journal), str(self.rows), run)), refused
        except Fenced:
            told.end = "fenced"
        except LedgerError as refused:
            self.refusals.append(str(refused))
            told.end = "other version" if "which planned it: this is dpdist" in str(refused) else "other plan"
            if "restore a backup" in str(refused):  # of a database that was taken back to before it had such tables
                told.end = "refused"
        finally:
            self._n_processes -= 1
        process.ends()
        expected = process.told
        assert told == expected, f"{run} came to {told}, and the model to {expected}; {self.refusals[-1:]}"
        for index, value, is_new in told.seen:
            assert not (is_new and (run, index) in known), f"release {index} of {run} was drawn a second time"
            self.used[run, index] = value
        self.check()
        return told

    def _releases(self, paid: PaidRun, ledger: Ledger, run: str, plan: str, told: Told, process: _Process) -> None:
        paid.open(plan, Charge(EPSILON))
        process.at(0, "opened")
        charged = False
        for index in range(N_RELEASES):
            name, is_new = f"{run}/{index}", False
            with process.dying(paid, "_tell", index, "confirmed"):
                value = paid.value(name)
            if value is None:
                if not charged:
                    charged = True
                    with process.dying(paid, "_tell", index, "charged"):
                        paid.charge("2 x sum")
                    process.at(index, "told")
                paid.announce(name, index, "sum", "Laplace", 2.0, 1.0, "pure 0.5")
                process.at(index, "announced")
                paid.check()
                process.drawn.append(float(next(self._draws)))
                drawn = np.array([process.drawn[-1]] * 2)
                process.at(index, "drawn")
                # in one database the two are one transaction, and nothing ends in between
                not_yet = process.dying(ledger, "confirm", index, "stored")
                with not_yet, process.dying(paid, "_tell", index, "committed"):
                    value = paid.commit(name, drawn)
                is_new = bool(value[0] == drawn[0])
                process.at(index, "remembered")
            told.seen.append((index, float(value[0]), is_new))
            process.at(index, "used")
        paid.close()

    # -- what has to hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """What is on file, and what everybody remembers, is what the model says."""
        model, book = self.model, self.model.book
        assert (book is not None) == is_there(self.ledger), "a refusal leaves no ledger in the place of a lost one"
        note, records = noted_head(Dataset.open(self.rows)), {}
        for directory in model.records:
            path = self._path(directory)
            records[directory] = json.loads(path.read_text())["budget"].get("head") if path.exists() else None
        self._check_mark(model.note and model.note.mark, note and note[0].to_dict())
        for directory, record in model.records.items():
            self._check_mark(record.mark, records[directory])
        if book is None:
            return
        with contextlib.closing(Ledger(self.ledger)) as ledger:
            self._check_sums(ledger, book)
            self._check_mark(book.at, ledger.head().to_dict())
            if self.apart and model.kept is not None:
                with contextlib.closing(Journal(str(self.journal))) as journal:
                    told = journal.remembered(ledger.id)
                    self._check_mark(model.kept.marks.get(book.at.ledger), told and told.to_dict())
                    self._check_values(journal._db)
            elif model.kept is not None and model.kept.values:
                self._check_values(ledger._db)

    def _check_mark(self, mark: Mark | None, head: dict[str, Any] | None) -> None:
        """A head is where the model says that the ledger stood."""
        assert (mark is None) == (head is None), f"{head} is remembered, and by the model {mark}"
        if mark is not None and head is not None:
            word = self._words.setdefault(mark.token, (head["ledger"], head["number"], head["token"]))
            assert word == (head["ledger"], mark.number, head["token"]), f"{head} is remembered instead of {word}"

    def _check_sums(self, ledger: Ledger, book: Book) -> None:
        """What is spent is the sum of the distinct runs, and these are the ones that were charged."""
        history = ledger.history("d")
        runs = [run.run_id for run in history]
        assert len(set(runs)) == len(runs)
        bound = {run.run_id: run.journal is not None for run in history if not run.run_id.startswith("recalled-")}
        assert bound == {run: paid.journal is not None for run, paid in book.runs.items()}
        assert ledger.spent("d").epsilon == book.spent
        assert ledger._db.read(ledger_records.check_sums) == len(runs)
        assert (ledger.limit("d") is not None) == book.limited
        assert [what for _, what, _ in ledger.events()] == ["restore"] * book.restores
        releases = {(release.run_id, release.index): release.committed for run in history for release in run.releases}
        assert releases == dict.fromkeys(book.announced) | book.committed

    def _check_values(self, db: Any) -> None:
        found = db.read(lambda db: db.execute("SELECT release_id, bytes FROM dpdist_values").fetchall())
        values = {tuple(name.split("/")): float(np.frombuffer(data)[0]) for name, data in found}
        assert self.model.kept is not None
        assert values == {(run, str(index)): value for (run, index), value in self.model.kept.values.items()}

    # -- what happens to files and databases ----------------------------------------------------------------------

    def parts(self) -> list[str]:
        return ["ledger", *(["journal"] if self.apart else []), "note", *self.model.records]

    def copy(self) -> None:
        """Keep a copy of everything, as it is now."""
        self.moments.append({part: (self._read(part), copy.deepcopy(self._model(part))) for part in self.parts()})

    def copied(self) -> str:
        """A plain copy of the ledger, to be used beside it."""
        if self._databases is not None:
            return self.ledger.replace("/world", f"/{self._databases.copy()}")
        copied = f"{self.ledger}.copy"
        Path(copied).write_bytes(self._read("ledger"))
        return copied

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

    def put_back(self, source: int | str) -> None:
        """``dpdist budget restore`` with all that is there.

        Parameters
        ----------
        source : int or str
            Which backup; the ledger was lost. Or ``"memories"``: there is none. Or ``"in place"``: the ledger was put
            back by other means.
        """
        backup = None
        source = "memories" if self.model.book is None and source == "in place" else source
        if source != "in place":
            self.lose(["ledger"])
        if isinstance(source, int):
            backup, book, kept = self.backups[source]
            self._set("ledger", (copy.deepcopy(book), copy.deepcopy(kept)))
        memories = self.model.remembered()
        if source == "memories" and len(ledgers := {mark.ledger for mark in memories}) == 1:
            self.model.begin(ledger=ledgers.pop())
        book = self.model.book
        forgotten = book is not None and (
            source != "in place" or any(mark.token not in book.tokens for mark in memories)
        )
        # a record of a run that has told nobody anything is a memory of nothing
        runs = [str(self.folder / name) for name in self.model.records]
        journals = [self.journal] if self.journal is not None and self.model.kept is not None else []
        refused = None
        knows_all = book is not None and (self.model.note is None or self.model.note.life == book.life)
        accepted = forgotten and self.model.recall()
        if not accepted and source != "in place":
            self.lose(["ledger"])
        try:
            put_back(backup, self.ledger, gather([str(self.rows)], runs, journals), "a test")
        except LedgerError as error:
            refused = error
        if accepted:
            assert refused is None, refused
            if not knows_all:
                self._make_up()
        else:
            assert refused is not None, "nothing to restore, or another ledger, or a run that nobody can charge"
        self.check()

    def _make_up(self) -> None:
        """A dataset that saw another life of the ledger cannot tell which runs it saw: what is unclear counts twice."""
        book, note = self.model.book, self.model.note
        assert book is not None and note is not None
        with contextlib.closing(Ledger(self.ledger)) as ledger:
            extra = round((ledger.spent("d").epsilon - book.spent) / EPSILON)
            assert 0 <= extra <= len(note.runs), "something is missing, or more than what was seen was made up"
            if extra:
                assert ledger.history("d")[-1].run_id.startswith("recalled-")
                book.made_up |= {f"{ledger.head().token} {number}" for number in range(extra)}
            if ledger.head().number > book.at.number:
                self.model.advance(book)

    def upgrade(self) -> None:
        """From now on another version of the library runs."""
        self.model.version = str(int(self.model.version) + 1)

    @contextlib.contextmanager
    def as_version(self) -> Iterator[None]:
        """The library says that it is the model's version."""
        real = ledger_records.version
        try:
            ledger_records.version = lambda _: self.model.version
            ledger_records.library.cache_clear()
            yield
        finally:
            ledger_records.version = real
            ledger_records.library.cache_clear()

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
            known["attributes"].pop(NOTE, None)
            content = json.dumps(known).encode()
        if content is None:
            path.unlink(missing_ok=True)
        elif self._n_processes and part in ("ledger", "journal"):
            take_back(path, content)
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


class _Process:
    """A process of a run, and where the model's is meanwhile."""

    def __init__(self, end: Point | None, meanwhile: tuple[Point, Act] | None) -> None:
        self.told = Told("done")
        """What the model says that it came to."""
        self.drawn: list[float] = []
        self.expected: Iterator[Point] = iter(())
        self._end = end
        self._meanwhile = meanwhile

    def at(self, *point: Any) -> None:
        """It comes to a point, with the model; perhaps it ends there, or something else happens."""
        self._model_comes_to(point)
        if self._end == point:
            raise Killed
        if self._meanwhile is not None and self._meanwhile[0] == point:
            self._meanwhile[1]()

    @contextlib.contextmanager
    def dying(self, owner: object, name: str, *point: Any) -> Iterator[None]:
        """If it ends at a point, then in the place of the next call of a method."""

        def dies(*_: Any, **__: Any) -> None:
            self._model_comes_to(point)
            raise Killed

        if self._end == point:
            setattr(owner, name, dies)
        try:
            yield
        finally:
            vars(owner).pop(name, None)

    def ends(self) -> None:
        """The model goes on to its own end, unless it was killed, too."""
        if self.told.end != "killed":
            for _ in self.expected:
                pass

    def _model_comes_to(self, point: Point) -> None:
        for reached in self.expected:
            if reached == point:
                return
            assert reached[1] not in BETWEEN, f"the run is at {point}, and the model at {reached}"
        raise AssertionError(f"the run has come to {point}, and in the model it was {self.told.end} before")
