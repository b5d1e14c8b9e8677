"""An exception takes no un-noised sum and no undelivered draw with it, wherever a release fails."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger, local
from dpdist.engine import progress
from dpdist.engine.query import Ask
from dpdist.errors import ClusterError, DpdistError, Fenced, LedgerError
from dpdist.kernels.truncation import HardClip
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.tracebacks import forgetful
from dpdist.queries.robust_sums import ColumnSum
from tests.engine import remains as walk
from tests.engine.remains import remains
from tests.postgres import PostgresServer

N, D = 120, 700  # a value takes more than one page of a database
HALF = N // 2


def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, D))


Hook = Callable[[str], None]
HOOK: list[Hook] = []  # what is to go wrong; asked at every place of a release


def at(place: str) -> None:
    for hook in HOOK:
        hook(place)


@dataclass(frozen=True)
class Sum(ColumnSum):
    """A sum with places where something can go wrong while un-noised totals are in hand."""

    tag: ClassVar[str] = "Sum"

    def combine(self, total: Any, summary: Any, wide: bool) -> Any:
        combined = super().combine(total, summary, wide)
        if sys._getframe(1).f_code.co_name == "ask":  # of the coordinator, not within a shard
            at("combine")
        return combined

    def explore(self, ask: Ask, state: Any, mechanism: Any, bits: Bits) -> Any:
        total = ask(state)
        at("explore")
        return total

    def statistic(self, total: Any) -> Any:
        found = super().statistic(total)
        at("statistic")
        return found


@dataclass(frozen=True)
class Noise(Gaussian):
    """The same for the noise."""

    tag: ClassVar[str] = "Noise"

    name: ClassVar[str] = "noise"

    def release(self, units: Any, sensitivity_units: float, bits: Bits) -> Any:
        at("before the draw")
        private = super().release(units, sensitivity_units, bits)
        at("drawn")
        return private


QUERY = Sum(HardClip(1.0), D)


def release(ledger: Ledger, cluster: Any = "threads", seed: int | None = 7) -> np.ndarray:
    dataset = Dataset.from_arrays(X=rows(), dataset_id="survey", partition_rows=HALF)
    options = {"arrays": {"X": np.asarray}, "ledger": ledger, "cluster": cluster, "run_id": "monday"}
    with Coordinator(dataset, Budget(1.0, 1e-6), random_state=seed, **options) as coordinator:
        item = coordinator.plan([Item("sum", Noise())])["sum"]
        return coordinator.release(QUERY, item)


def secrets() -> list[np.ndarray]:
    """The sum, those of the partitions, what is released, in units and in numbers, and the noise."""
    quiet, HOOK[:] = list(HOOK), []
    ledger = Ledger(":memory:")
    value = release(ledger)
    ledger.close()
    HOOK[:] = quiet
    parts = [QUERY.summarise({"X": part}, None, None) for part in (rows()[:HALF], rows()[HALF:])]
    drawn = (value / QUERY.grid).astype(np.int64)
    total = parts[0] + parts[1]
    units = [*parts, total, drawn, drawn - total]
    return [*units, *(each.astype(np.float64) for each in units), total * QUERY.grid, value]


@contextlib.contextmanager
def going_wrong(*hooks: Hook) -> Iterator[None]:
    HOOK[:] = hooks
    try:
        yield
    finally:
        HOOK.clear()


@pytest.fixture(autouse=True)
def nothing_else_goes_wrong() -> Iterator[None]:
    yield
    HOOK.clear()


def failure(run: Callable[[], Any], *hooks: Hook) -> BaseException:
    """The exception with which a release ends."""
    with going_wrong(*hooks):
        try:
            run()
        except BaseException as error:
            return error
    raise AssertionError("nothing went wrong")


def assert_empty(error: BaseException) -> None:
    held = remains(error, secrets())
    assert not held, held
    if isinstance(error, DpdistError):  # its own sentence says all; a foreign one may quote a value
        assert error.__cause__ is None and error.__context__ is None


def raising(place: str, error: BaseException) -> Hook:
    def hook(here: str) -> None:
        if here == place:
            raise error

    return hook


def interrupting(place: str) -> Hook:
    def hook(here: str) -> None:
        if here == place:
            signal.raise_signal(signal.SIGINT)

    return hook


PLACES = ("combine", "explore", "statistic", "before the draw", "drawn")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


def holding(total: np.ndarray) -> None:
    kept = [{"of all rows": total + 0}]
    try:
        raise ValueError("somewhere below")
    except ValueError as error:
        raise LedgerError("above", len(kept)) from error


def test_the_walk_finds_what_is_there() -> None:
    """The control: exceptions that hold a sum in a frame, in that of a cause, or as bytes."""
    error = failure(lambda: holding(secrets()[2]))
    assert len(remains(error, secrets())) >= 2
    error.__traceback__ = None
    assert remains(error, secrets())
    assert remains(failure(lambda: encoded_and_lost(secrets()[-1])), secrets())


def encoded_and_lost(value: np.ndarray) -> None:
    data = b"head" + value.tobytes()
    raise MemoryError(len(data))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [MemoryError, ValueError, LedgerError, "interrupt"])
def test_a_failure_while_sums_are_in_hand(ledger: Ledger, place: str, kind: Any) -> None:
    hook = interrupting(place) if kind == "interrupt" else raising(place, kind("no value in here"))
    error = failure(lambda: release(ledger), hook)
    assert isinstance(error, KeyboardInterrupt if kind == "interrupt" else kind)
    assert_empty(error)


def test_the_traceback_still_says_where_it_was(ledger: Ledger) -> None:
    error = failure(lambda: release(ledger), raising("statistic", ValueError("a bug")))
    names = [frame.f_code.co_name for frame in walk.frames_of(error)]
    assert names[-4:] == ["_draw", "statistic", "at", "hook"]


def test_failures_that_come_together_are_emptied_one_by_one() -> None:
    """Those of a group of tasks have frames of their own."""

    @forgetful
    def several() -> None:
        errors: list[Exception] = []
        for total in secrets()[:2]:
            try:
                holding(total)
            except LedgerError as error:
                errors.append(error)
        raise ExceptionGroup("two of them", [ExceptionGroup("inside", errors)])

    def control() -> None:
        several.__wrapped__()  # type: ignore[attr-defined]

    assert remains(failure(control), secrets())
    assert_empty(failure(several))


def test_what_the_caller_was_handling_already_keeps_its_own() -> None:
    @forgetful
    def later() -> None:
        raise DpdistError("another")

    mine = np.arange(3)
    earlier = failure(lambda: holding(mine))
    try:
        raise earlier
    except LedgerError:
        error = failure(later)
    frames = [frame for frame in walk.frames_of(earlier) if frame.f_code is holding.__code__]
    assert error.__context__ is earlier and frames and all("kept" in frame.f_locals for frame in frames)


def journal_of(ledger: Ledger) -> sqlite3.Connection:
    return ledger.journal._db._connection  # type: ignore[union-attr]


def full_disk(ledger: Ledger) -> Hook:
    """SQLite's own fault, from the moment at which the value is there."""

    def hook(place: str) -> None:
        if place == "drawn":
            db = journal_of(ledger)
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages}")

    return hook


def read_only(ledger: Ledger) -> Hook:
    def hook(place: str) -> None:
        if place == "drawn":
            journal_of(ledger).execute("PRAGMA query_only = ON")

    return hook


def gone(ledger: Ledger) -> Hook:
    def hook(place: str) -> None:
        if place == "drawn":
            os.unlink(ledger.path)

    return hook


def fenced(when: str) -> Callable[[Ledger], Hook]:
    def fault(ledger: Ledger) -> Hook:
        def hook(place: str) -> None:
            if place == when:
                ledger.journal.open("monday")

        return hook

    return fault


SQLITE = {
    "full": (full_disk, LedgerError, "full"),
    "read-only": (read_only, LedgerError, "read-only"),
    "gone": (gone, LedgerError, "deleted or replaced"),
    "fenced before the draw": (fenced("statistic"), Fenced, "taken over"),
    "fenced before the value is kept": (fenced("drawn"), Fenced, "taken over"),
}


@pytest.mark.parametrize("fault", SQLITE)
@pytest.mark.parametrize("apart", [False, True])
def test_a_journal_in_a_file_that_fails(fault: str, apart: bool, tmp_path: Path) -> None:
    """Beside the ledger, and in a file of its own."""
    break_it, kind, says = SQLITE[fault]
    ledger = Ledger(tmp_path / "l.sqlite", journal=tmp_path / "j.sqlite" if apart and fault != "gone" else None)
    error = failure(lambda: release(ledger), break_it(ledger))
    assert isinstance(error, kind) and says in str(error)
    assert_empty(error)


def test_a_value_that_is_handed_to_a_journal_is_forgotten_when_that_fails(tmp_path: Path) -> None:
    """Whoever calls it; here nothing but the frames of the journal are looked at."""
    journal = Journal(tmp_path / "j.sqlite")
    older = journal.open("monday")
    journal.open("monday")
    error = failure(lambda: older.put("v", np.random.default_rng(1).normal(size=D)))
    assert isinstance(error, Fenced)
    assert not remains(error, [np.random.default_rng(1).normal(size=D)])


# -- other journals -----------------------------------------------------------------------------------------------


def psql(server: PostgresServer, *statements: str) -> None:
    import psycopg

    with psycopg.connect(server.address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


POSTGRES = {
    # a trigger on the server: its message quotes the row that it refuses, as those of constraints do
    "refused": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'disk full' USING DETAIL = NEW::text, ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER refused BEFORE INSERT ON dpdist_values FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "read-only": ("ALTER TABLE dpdist_values RENAME TO taken_away",),
    "a constraint": ("ALTER TABLE dpdist_values ADD CHECK (length(bytes) < 5)",),
}


@pytest.mark.parametrize("fault", POSTGRES)
def test_a_journal_in_postgres_that_fails(fault: str, postgres_server: PostgresServer) -> None:
    ledger = Ledger(postgres_server.address)

    def hook(place: str) -> None:
        if place == "drawn":
            psql(postgres_server, *POSTGRES[fault])

    error = failure(lambda: release(ledger), hook)
    assert isinstance(error, LedgerError)
    assert_empty(error)
    drawn = secrets()[-1].tobytes().hex()
    assert not any(drawn in text for text in (str(error), repr(error), *getattr(error, "__notes__", ())))
    ledger.close()


def test_a_run_in_postgres_that_is_taken_over(postgres_server: PostgresServer) -> None:
    ledger = Ledger(postgres_server.address)
    for when in ("statistic", "drawn"):
        error = failure(lambda: release(ledger), fenced(when)(ledger))
        assert isinstance(error, Fenced)
        assert_empty(error)
    ledger.close()


def test_a_journal_in_an_object_store_that_fails(s3_faults: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("dpdist.objects.RETRIES", {"max_retries": 0})
    ledger = Ledger(tmp_path / "l.sqlite", journal=f"s3://dpdist/{os.urandom(8).hex()}")

    def hook(place: str) -> None:
        if place == "drawn":
            s3_faults.spoil = lambda method, path: "503" if method == "PUT" else None

    error = failure(lambda: release(ledger), hook)
    assert isinstance(error, LedgerError) and s3_faults.spoiled
    assert_empty(error)
    s3_faults.spoil = lambda method, path: None
    for when in ("statistic", "drawn"):
        error = failure(lambda: release(ledger), fenced(when)(ledger))
        assert isinstance(error, Fenced)
        assert_empty(error)


def survey(ledger: Ledger) -> np.ndarray:
    answers = np.arange(N) % 40
    dataset = Dataset.from_arrays(X=answers, dataset_id="answers")
    options = {"ledger": ledger, "cluster": "threads", "run_id": "monday", "random_state": 7}
    fitted = local.Histogram(categories=list(range(40)), epsilon=1.0, method="oue", **options).fit(dataset)
    return fitted.releases_[0].value


def test_a_sum_of_reports_that_is_not_kept_is_forgotten(tmp_path: Path) -> None:
    """It would be drawn again: two draws about the same users say more than one."""
    drawn = survey(Ledger(":memory:"))
    ledger = Ledger(tmp_path / "l.sqlite")

    def break_journal(event: progress.Event) -> None:
        if isinstance(event, progress.Charged):
            journal_of(ledger).execute("PRAGMA query_only = ON")

    with progress.watching(break_journal):
        error = failure(lambda: survey(ledger))
    assert isinstance(error, LedgerError) and "read-only" in str(error)
    assert not remains(error, [drawn, drawn.astype(np.int64)])
    ledger.close()


# -- the map stage ------------------------------------------------------------------------------------------------


def test_workers_that_are_lost_in_a_round(ledger: Ledger) -> None:
    """The scheduler is closed between two rounds: the sums of the first shards have been gathered before."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:

        def hook(place: str) -> None:
            if place == "combine":
                raise ClusterError("the connection was lost")

        error = failure(lambda: release(ledger, cluster.scheduler_address), hook)
        assert isinstance(error, ClusterError)
        assert_empty(error)
        error = failure(lambda: release(ledger, cluster.scheduler_address), interrupting("combine"))
        assert isinstance(error, KeyboardInterrupt)
        assert_empty(error)


class Everywhere:
    """Ctrl-C at the n-th line that runs in some files during a release."""

    def __init__(self, n: int, where: str) -> None:
        self.left, self.where = n, where

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if self.where not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def traced(ledger: Ledger, n: int, where: str) -> None:
    dataset = Dataset.from_arrays(X=rows(), dataset_id="survey", partition_rows=HALF)
    options = {"arrays": {"X": np.asarray}, "ledger": ledger, "cluster": "threads", "random_state": 7}
    with Coordinator(dataset, Budget(1.0, 1e-6), **options) as coordinator:
        item = coordinator.plan([Item("sum", Noise())])["sum"]
        sys.settrace(Everywhere(n, where))
        try:
            coordinator.release(QUERY, item)
        finally:
            sys.settrace(None)


def test_ctrl_c_at_any_line_of_a_release(tmp_path: Path) -> None:
    """At every seventh, until a release comes to its end."""
    known, n, met = secrets(), 1, set()
    while True:
        ledger = Ledger(tmp_path / f"{n}.sqlite")
        try:
            error = failure(lambda ledger=ledger, n=n: traced(ledger, n, f"{os.sep}dpdist{os.sep}"))
        except AssertionError:
            break
        assert isinstance(error, KeyboardInterrupt)
        kept = journal_of(ledger).execute("SELECT count(*) FROM dpdist_values").fetchone()[0]
        held = remains(error, known[:3] if kept else known)  # a value that is in the journal is released
        assert not held, (n, held)
        met |= {frame.f_code.co_name for frame in walk.frames_of(error)}
        ledger.close()
        n += 7
    assert {"_draw", "ask", "map", "put_within", "rounded_gaussian", "_transaction"} <= met, met


@pytest.mark.parametrize("place", ["statistic", "drawn"])
def test_ctrl_c_while_a_failure_is_being_emptied(place: str, tmp_path: Path) -> None:
    """At every line of the module that empties it."""
    n, interrupted = 1, True
    while interrupted:
        ledger = Ledger(tmp_path / f"{n}.sqlite")
        error = failure(
            lambda ledger=ledger, n=n: traced(ledger, n, f"{os.sep}tracebacks.py"),
            raising(place, MemoryError("no value in here")),
        )
        interrupted = isinstance(error, KeyboardInterrupt)
        held = remains(error, secrets())
        assert not held, (n, held)
        ledger.close()
        n += 1
    assert isinstance(error, MemoryError) and n > 20
