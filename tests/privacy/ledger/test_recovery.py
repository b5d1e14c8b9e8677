"""Random sequences of charges, commits, kills, copies, restores, exchanges and upgrades, against a plain model.

On files and on a real PostgreSQL server; what the model is, and what holds whatever it says, is in
`tests.privacy.ledger.recovery`.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from dpdist import Dataset, Ledger
from dpdist.engine.memory import DatasetMemory
from dpdist.errors import Forgotten
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger.paid_run import PaidRun
from tests.postgres import PostgresServer
from tests.privacy.ledger.recovery import World
from tests.privacy.ledger.recovery_model import BETWEEN, N_RELEASES, POINTS, Point

ends = some.none() | some.tuples(some.integers(0, N_RELEASES - 1), some.sampled_from(POINTS))


class Machine(RuleBasedStateMachine):
    """What a scheduler, an operator and bad luck do."""

    server: ClassVar[PostgresServer | None] = None
    world: World

    @initialize(apart=some.booleans(), limited=some.booleans(), past=some.sampled_from(["none", "early", "strange"]))
    def begin(self, apart: bool, limited: bool, past: str) -> None:
        self.stack = contextlib.ExitStack()
        self.world = self.stack.enter_context(made(self.server, apart, limited, past == "early"))
        if past == "strange":  # nothing is left of it but copies
            self.world.live("monday")
            self.world.copy()
            self.world.lose(self.world.parts())

    def directory(self, data: Any) -> str:
        """Of a run that was started before, or of a new one."""
        known = list(self.world.model.records)
        return data.draw(some.sampled_from([*known, f"night {len(known)}"]))

    def live(self, directory: str, end: Point | None = None, plan: str = "plan", **more: Any) -> None:
        with self.world.as_version():
            self.world.live(directory, end, plan, **more)

    def moment(self, data: Any) -> int:
        """One of the copies; the newest one as often as all others."""
        return data.draw(some.just(-1) | some.integers(0, len(self.world.moments) - 1))

    @rule(data=some.data(), end=ends)
    def night(self, data: Any, end: tuple[int, str] | None) -> None:
        self.live(self.directory(data), end)

    @rule(
        data=some.data(),
        end=ends,
        how=some.sampled_from(["lost", "as it was in the middle", "as it was once"]),
        mended=some.booleans(),
    )
    def disaster(self, data: Any, end: tuple[int, str] | None, how: str, mended: bool) -> None:
        """Something is lost or restored after a run; somebody runs, and perhaps puts the newest state back."""
        world, directory = self.world, self.directory(data)
        self.live(directory, end)
        world.copy()
        self.live(directory)
        world.copy()
        around = ["ledger", "note", directory, *(["journal"] if world.apart else [])]
        parts = data.draw(some.lists(some.sampled_from(around), min_size=1, max_size=3, unique=True))
        newest = len(world.moments) - 1
        if how == "lost":
            world.lose(parts)
        else:
            world.restore(newest - 1 if how.endswith("middle") else data.draw(some.integers(0, newest)), parts)
        self.live(directory if data.draw(some.booleans()) else self.directory(data))
        if mended:
            world.restore(newest, parts)
            self.live(directory)

    @rule(data=some.data(), end=ends, index=some.integers(0, N_RELEASES - 1), point=some.sampled_from(BETWEEN))
    def while_it_waits(self, data: Any, end: Point | None, index: int, point: str) -> None:
        """Another process goes on with the run, or another run comes, or a database is taken back while it is used."""
        world, directory = self.world, self.directory(data)
        then = (0 if point == "opened" else index, point)
        what = data.draw(some.sampled_from(["another process", "another run", "taken back"]))
        if what == "another process":
            self.live(directory, end, meanwhile=(then, lambda: world.live(directory)))
        elif what == "another run":
            other = self.directory(data)
            self.live(directory, end, meanwhile=(then, lambda: world.live(other)))
        else:
            if data.draw(some.booleans()) or not world.moments:
                world.copy()
                self.live(directory, data.draw(ends))
            moment = self.moment(data)
            parts = data.draw(some.sampled_from([["ledger"], ["journal"], ["ledger", "journal"]]))
            parts = [part for part in parts if world.moments[moment].get(part, (None,))[0] is not None]
            self.live(directory, end, meanwhile=(then, lambda: world.restore(moment, parts)))
            self.live(directory)

    @precondition(lambda self: len(self.world.model.records) > 1)
    @rule(data=some.data())
    def exchange_and_run(self, data: Any) -> None:
        names = some.lists(some.sampled_from(list(self.world.model.records)), min_size=2, max_size=2, unique=True)
        self.world.exchange(*data.draw(names))
        self.live(self.directory(data))

    @rule(data=some.data(), end=ends)
    def back_up_and_run(self, data: Any, end: tuple[int, str] | None) -> None:
        self.world.back_up()
        self.live(self.directory(data), end)

    @rule(data=some.data())
    def put_back_and_run(self, data: Any) -> None:
        source = data.draw(some.sampled_from(["in place", "memories", *range(len(self.world.backups))]))
        with self.world.as_version():
            self.world.put_back(source)
        self.live(self.directory(data))

    @rule(data=some.data())
    def upgrade_and_run(self, data: Any) -> None:
        self.world.upgrade()
        self.live(self.directory(data), plan=data.draw(some.sampled_from(["plan", "plan of another version"])))

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()


@contextlib.contextmanager
def made(server: PostgresServer | None, apart: bool, limited: bool = True, early: bool = False) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="dpdist-world-", dir=_memory()))
    world = World(folder, server, apart, limited, early)
    try:
        yield world
    finally:
        world.close()
        shutil.rmtree(folder)


def _memory() -> str | None:
    """A disk in memory, where there is one: what is waited for is not the disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def play(server: PostgresServer | None, examples: int, steps: int, anew: bool = False) -> None:
    """The same sequences each time, or new ones."""
    machine = type("Machine", (Machine,), {"server": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not anew,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", _memory())
        server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["files", "a server"])
def place(request) -> PostgresServer | None:
    return None if request.param == "files" else request.getfixturevalue("server")


@pytest.mark.parametrize("apart", [False, True])
def test_a_ledger_that_is_taken_back_between_the_opening_of_a_run_and_its_charge_is_refused(place, apart):
    with made(place, apart) as world:
        world.live("monday")
        world.copy()
        world.live("tuesday")
        waiting = world.live("wednesday", meanwhile=((0, "opened"), lambda: world.restore(0, ["ledger"])))
        assert waiting.end == "refused" and "this process" in world.refusals[-1]


@pytest.mark.parametrize("taken_back", [["ledger"], ["ledger", "journal"], ["ledger", "night"]])
def test_a_value_that_was_stored_and_not_committed_is_never_drawn_twice(place, taken_back):
    with made(place, apart=True) as world:
        world.live("night", end=(1, "stored"))
        world.copy()
        assert [is_new for _, _, is_new in world.live("night").seen] == [False, False]
        world.restore(0, taken_back)
        assert world.live("night").end == ("done" if "night" in taken_back else "refused")


def test_a_run_of_the_first_version_goes_on_in_the_journal_that_it_was_started_with(place):
    with made(place, apart=True, early=True) as world:
        world.copy()
        world.lose(["journal"])
        assert world.live("early").end == "refused" and "has never heard of it" in world.refusals[-1]
        world.restore(0, ["journal"])
        world.live("early", end=(1, "announced"))
        world.lose(["journal"])
        assert world.live("early").end == "refused" and "another one" in world.refusals[-1]


@pytest.mark.parametrize("apart", [False, True])
def test_two_copies_of_a_ledger_are_noticed_by_whoever_is_charged_in_both(place, apart, tmp_path):
    """By a dataset, or by a journal that both have; two datasets that are each charged in one notice nothing."""
    with made(place, apart=False) as world:
        ledgers = [world.ledger, world.copied()]
        names = itertools.count()
        for name in ("a", "b"):
            Dataset.from_arrays(tmp_path / name, X=np.zeros((2, 1)), account="d")

        def charge(path: str, name: str) -> None:
            store, run = Dataset.open(tmp_path / name), f"{next(names)}"
            with contextlib.closing(Ledger(path, journal=tmp_path / "journal" if apart else None)) as ledger:
                memory = DatasetMemory(store, "d", ledger)
                paid = PaidRun(ledger, ledger.journal, store.id, run, account="d", witnesses=[memory])
                paid.open("plan", Charge(0.5))
                paid.charge("1 x sum")

        charge(ledgers[0], "a")
        with pytest.raises(Forgotten, match="journal") if apart else contextlib.nullcontext():
            charge(ledgers[1], "b")
        charge(ledgers[0], "a")
        with pytest.raises(Forgotten, match=r"journal|the dataset .* remembers"):
            charge(ledgers[1], "a")
        with contextlib.nullcontext() if apart else pytest.raises(Forgotten, match=r"the dataset .* remembers"):
            charge(ledgers[0], "b")


@pytest.mark.parametrize("apart", [False, True])
def test_two_copies_of_a_ledger_that_are_charged_at_once_are_noticed_before_anything_is_drawn(place, apart, tmp_path):
    """By whoever both were going to tell: a dataset that is limited, or the journal that both have."""
    with made(place, apart=False, limited=not apart) as world, contextlib.ExitStack() as opened:
        if apart:
            Ledger(world.ledger).close()
        waiting = []
        for name, path in (("first", world.ledger), ("second", world.copied())):
            ledger = opened.enter_context(contextlib.closing(Ledger(path, journal=tmp_path / "j" if apart else None)))
            data = Dataset.open(world.rows)
            waiting.append(PaidRun(ledger, ledger.journal, "d", name, witnesses=[DatasetMemory(data, "d", ledger)]))
        for run in waiting:
            run.open("plan", Charge(0.5))
        waiting[0].charge("1 x sum")
        with pytest.raises(Forgotten, match="journal .* remembers" if apart else r"the dataset .* remembers"):
            waiting[1].charge("1 x sum")
        assert ledger.is_empty()


def every_loss(world: World, limited: bool, some_of_all: int = 1) -> int:
    """Whatever is lost or restored, each alone and together, and then a new run, the one that was cut off, all runs.

    Returns how many such cases there were; of ``some_of_all`` one is played.
    """
    world.live("early" if "early" in world.model.records else "monday")
    world.copy()  # of another ledger
    world.lose(world.parts())
    if limited:
        world.begin()
    world.live("monday")
    world.copy()
    world.live("tuesday", end=(0, "opened"))
    world.copy()
    world.live("tuesday", end=(1, "stored" if world.apart else "announced"))
    world.copy()
    world.live("tuesday")
    world.live("monday")
    world.copy()
    now, count = len(world.moments) - 1, 0
    around = ["ledger", "note", "tuesday", *(["journal"] if world.apart else [])]
    parts = [few for size in range(1, len(around) + 1) for few in itertools.combinations(around, size)]
    for number, (lost, moment) in enumerate(itertools.product(parts, (None, *range(now)))):
        if number % some_of_all:
            continue
        count += 1
        world.lose(lost) if moment is None else world.restore(moment, lost)
        for directory in ("wednesday", "thursday", "tuesday", "monday", "wednesday"):
            world.live(directory)
        world.restore(now, lost)
        for directory in ("tuesday", "thursday"):
            world.live(directory)
        world.lose(world.parts())
        world.restore(now, list(world.moments[now]))
    return count


@pytest.mark.parametrize("apart", [False, True])
def test_a_run_goes_on_wherever_it_was_killed(place, apart):
    with made(place, apart) as world:
        for end in itertools.product(range(N_RELEASES if place is None else 1), POINTS):
            world.live("-".join(map(str, end)), end=end)
            world.live("-".join(map(str, end)), end=(end[0], "confirmed"))
            assert world.live("-".join(map(str, end))).end == "done"


def test_values_are_not_used_in_a_ledger_that_never_charged_for_them(place):
    with made(place, apart=True, limited=False) as world:
        world.live("monday")
        world.copy()
        world.lose(world.parts())
        world.live("night", end=(0, "opened"))
        world.copy()
        world.live("night")
        world.restore(1, ["night"])  # which was told of nothing
        world.restore(0, ["ledger"])
        assert world.live("night").end == "refused" and "has no charge for it" in world.refusals[-1]


def every_restore(world: World) -> None:
    """Whatever a ledger is put back from, and then all runs."""
    world.live("monday")
    world.back_up()
    world.live("tuesday", end=(0, "used"))
    world.back_up()
    world.live("tuesday", end=(1, "announced"))
    world.live("wednesday")
    world.copy()
    for source in (0, 1, "memories", "in place"):
        world.put_back(source)
        for directory in ("tuesday", "monday", "wednesday", "thursday"):
            world.live(directory)
        world.put_back("in place")
        world.lose(world.parts())
        world.restore(0, list(world.moments[0]))


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_whatever_a_ledger_is_put_back_from(place, apart, limited):
    with made(place, apart, limited) as world:
        every_restore(world)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("point", BETWEEN)
def test_of_two_processes_of_a_run_the_newer_one_goes_on(point, apart):
    with made(None, apart) as world:
        first = world.live("night", meanwhile=((0, point), lambda: world.live("night")))
        assert first.end == ("done" if point in ("opened", "remembered", "used") else "fenced")


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_whatever_is_lost_or_restored(place, apart, limited):
    with made(place, apart, limited) as world:
        assert every_loss(world, limited, 1 if place is None else 29) > 1


def test_whatever_happens_on_files() -> None:
    play(None, examples=100, steps=8)


def test_whatever_happens_on_a_server(server) -> None:
    play(server, examples=6, steps=6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "a server"])
def test_whatever_happens_many_times(kind, request) -> None:
    if kind == "files":
        play(None, examples=2000, steps=20, anew=True)
    else:
        play(request.getfixturevalue("server"), examples=100, steps=12, anew=True)
