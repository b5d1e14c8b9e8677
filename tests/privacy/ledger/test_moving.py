"""An account that moves to another ledger takes its limit and all that was spent along, whatever ends the move.

Files and a real PostgreSQL server, either way, with real kills.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dpdist import Budget, Dataset, Ledger, LogisticRegression
from dpdist.central import GradientDescent
from dpdist.cli import main
from dpdist.data import Dataset as StoredDataset
from dpdist.engine.memory import noted_head
from dpdist.errors import BudgetExceeded, Forgotten, LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger import moving
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.ledger.records import check_sums
from tests.processes import PROCESSES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["file to file", "file to server", "server to file"])
def places(request, folder: Path) -> tuple[str, str]:
    """The old ledger and the new one."""
    old, new = str(folder / "old.sqlite"), str(folder / "new.sqlite")
    if "server" in request.param:
        postgres_server = request.getfixturevalue("postgres_server")
        old, new = (
            (old, postgres_server.address) if request.param == "file to server" else (postgres_server.address, new)
        )
    return old, new


def dpdist(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done


def flat(done: Result) -> str:
    return " ".join(done.output.split())


def move(old: str, new: str, *more: str, account: str = "survey", code: int = 0) -> str:
    return flat(dpdist("budget", "move", account, "--ledger", old, "--to", new, *more, code=code))


def filled(path: str, limit: float | None = 3.0) -> list[Any]:
    """Two datasets, a split with folds, a release that has a value, a lowered limit, and an account that stays."""
    with contextlib.closing(Ledger(path)) as ledger:
        if limit is not None:
            ledger.set_limit("survey", Budget(limit + 1, 1e-5), unit="row")
            ledger.set_limit("survey", Budget(limit, 1e-5), unit="row")
        ledger.set_limit("other", Budget(1.0))
        ledger.open_run(
            "a", "one", "p", Charge(0.5, 1e-7, mu=0.1), account="survey", journal=ledger.journal, user="ann"
        )
        ledger.open_run("other", "else", "p", Charge(0.25))
        ledger.open_run("b", "two", "p", Charge(0.25, 0.0, split="s", fold=0), account="survey", named=False)
        ledger.open_run("b", "three", "p", Charge(0.375, 0.0, split="s", fold=1), account="survey")
        ledger.record_release("one", "one/0", 0, "sum", "Laplace", 1.0, 1.0, "pure 0.5")
        run = ledger.journal.open("one")
        ledger.commit(run, "one/0", np.ones(2))
        ledger.record_release("one", "one/1", 1, "sum", "Laplace", float("inf"), 1.0, "pure 0.5")
        return contents(ledger)


def contents(ledger: Ledger, account: str = "survey") -> list[Any]:
    state = ledger.account(account)
    return [
        (state.limit, state.neighbours, state.total, state.unit),
        ledger.limits(account),
        ledger.history(account),
        ledger.datasets(account),
        ledger.has_unnamed(),
    ]


def of(path: str, account: str = "survey") -> list[Any]:
    with contextlib.closing(Ledger(path)) as ledger:
        ledger._db.read(check_sums)
        return contents(ledger, account)


def chargeable(path: str, account: str = "survey") -> bool:
    """Whether a new run can be charged; a refusal has to name the command that goes on."""
    with contextlib.closing(Ledger(path)) as ledger:
        try:
            ledger.can_afford(account, Charge(1e-6))
        except Forgotten as refused:
            assert re.search(f"'dpdist budget move {account} --ledger .* --to .*' finishes it", str(refused))
            return False
        return True


def typed_from(message: str) -> list[str]:
    """The command that a refusal names."""
    found = re.search(r"[\"'](dpdist budget move .*?)[\"'](?: finishes it|\. Nothing)", message)
    assert found, message
    return shlex.split(found[1])[1:]


# -- what goes along ---------------------------------------------------------------------------------------------


def test_all_of_an_account_goes_along_and_the_old_ledger_refuses_it(places):
    old, new = places
    before = filled(old)
    with contextlib.closing(Ledger(new)) as ledger:  # the new ledger has accounts of its own
        ledger.set_limit("mine", Budget(2.0))
        ledger.open_run("mine", "mine-1", "p", Charge(0.125))
    assert "with 3 runs" in move(old, new)
    assert of(new) == before and of(old) == before  # what is on file in the old one stays readable
    with contextlib.closing(Ledger(new)) as ledger:
        assert ledger.spent("mine").epsilon == 0.125
        ledger.open_run("a", "four", "p", Charge(1.0), account="survey")
        assert ledger.spent("survey").epsilon == 0.5 + 0.375 + 1.0
        with pytest.raises(BudgetExceeded):
            ledger.open_run("a", "five", "p", Charge(1.5), account="survey")
        assert [what for _, what, _ in ledger.events()] == ["move", "move"]
    with contextlib.closing(Ledger(old)) as ledger:
        assert [what for _, what, _ in ledger.events()] == ["move"]
        for refused in (
            lambda: ledger.open_run("a", "six", "p", Charge(0.1), account="survey"),
            lambda: ledger.open_run("a", "one", "p", Charge(0.5, 1e-7, mu=0.1), account="survey"),
            lambda: ledger.resume("a", "one", "p", Charge(0.5, 1e-7, mu=0.1), ledger.journal),
            lambda: ledger.can_afford("survey", Charge(0.1)),
            lambda: ledger.set_limit("survey", Budget(9.0)),
            lambda: ledger.record_release("one", "one/2", 2, "sum", "Laplace", 1.0, 1.0, "pure 0.5"),
            lambda: ledger.confirm("one", "one/1"),
            lambda: ledger.commit(ledger.journal.open("one"), "one/1", np.ones(2)),
        ):
            with pytest.raises(Forgotten, match=f"moved from {re.escape(old)} to the ledger {re.escape(new)}"):
                refused()
        assert ledger.journal.open("one").get("one/1") is None
        ledger.open_run("other", "still", "p", Charge(0.25))  # other accounts stay
    assert new in flat(dpdist("budget", "show", "survey", "--ledger", old))
    assert f"survey from {old}" in flat(dpdist("budget", "history", "survey", "--ledger", new, "--json"))


def test_a_run_from_before_does_not_go_on_in_the_new_ledger(places):
    old, new = places
    filled(old)
    move(old, new)
    with contextlib.closing(Ledger(new, journal=old)) as ledger, contextlib.closing(Journal(old)) as journal:
        for asked in (
            lambda: ledger.resume("a", "one", "p", Charge(0.5, 1e-7, mu=0.1), journal),
            lambda: ledger.open_run("a", "one", "p", Charge(0.5, 1e-7, mu=0.1), account="survey"),
        ):
            with pytest.raises(Forgotten, match="charged in another ledger, before the account 'survey' was moved"):
                asked()
        assert journal.open("one").get("one/0").tolist() == [1.0, 1.0]  # what was released is where it was


def test_an_account_can_come_back_and_brings_what_was_charged_meanwhile(places):
    old, new = places
    filled(old)
    move(old, new)
    with contextlib.closing(Ledger(new)) as ledger:
        ledger.open_run("c", "four", "p", Charge(0.75), account="survey")
        ledger.set_limit("survey", Budget(2.5, 1e-5), unit="row")
        there = contents(ledger)
    move(new, old)
    assert of(old) == there and chargeable(old) and not chargeable(new)
    move(old, new)  # and go again
    assert of(new) == there and chargeable(new) and not chargeable(old)


def test_moves_in_a_row(folder):
    before = filled("a.sqlite")
    for old, new in (("a.sqlite", "b.sqlite"), ("b.sqlite", "c.sqlite")):
        move(old, new)
    assert of("c.sqlite") == before
    assert [chargeable(f"{name}.sqlite") for name in "abc"] == [False, False, True]
    assert "was moved from a.sqlite to the ledger" in move("a.sqlite", "c.sqlite", code=2)


def test_an_account_with_a_limit_and_no_runs(places):
    old, new = places
    with contextlib.closing(Ledger(old)) as ledger:
        ledger.set_limit("survey", Budget(1.0))
        limits = ledger.limits("survey")
    move(old, new)
    with contextlib.closing(Ledger(new)) as ledger:
        assert ledger.limits("survey") == limits


# -- a dataset ---------------------------------------------------------------------------------------------------


def table(path: str, **options: Any) -> Dataset:
    X = np.random.default_rng(0).normal(size=(300, 2))
    return Dataset.from_arrays(path, X=X, y=(X[:, 0] > 0).astype(int), **options)


def fit(data: Dataset, ledger: str, **options: Any) -> LogisticRegression:
    fixed: dict[str, Any] = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6}
    with contextlib.closing(Ledger(ledger)) as book:
        return LogisticRegression(
            **fixed, solver=GradientDescent(n_rounds=2), cluster="threads", ledger=book, **options
        ).fit(data)


def test_datasets_follow_their_account(places):
    old, new = places
    told = table("told.zarr", account="survey")
    later = table("later.zarr", account="survey")
    dpdist("budget", "set", "told.zarr", "--epsilon", "3", "--delta", "1e-5", "--ledger", old)
    fit(told, old)
    fit(later, old)
    with pytest.raises(Forgotten, match="is limited by the ledger with the id") as refused:
        fit(told, new)
    assert typed_from(str(refused.value)) == ["budget", "move", "survey", "--ledger", old, "--to", new]
    said = move(old, new, account="told.zarr")
    assert f"Not told: {later.id}. " in said
    with contextlib.closing(Ledger(new)) as ledger, contextlib.closing(Ledger(old)) as left:
        head, note = noted_head(StoredDataset.open("told.zarr"))
        assert head == ledger.head() and note["moved_from"] == left.id
        assert noted_head(StoredDataset.open("later.zarr"))[0].ledger == left.id  # nobody named it
    fit(StoredDataset.open("told.zarr"), new)
    Path("later.yaml").write_text(
        "method: dp-gd\nestimator: LogisticRegression\ndata: {path: later.zarr}\noutput: runs/later\n"
        "params: {classes: [-1, 1], row_norm: 1.0}\nbudget: {epsilon: 0.01, delta: 1.0e-7}\n"
    )
    # the dataset still remembers the old ledger; refused is the charge, as the fit will be, and not the ledger
    refused = flat(dpdist("run", "later.yaml", "--dry-run", "--set", f"ledger={new}", code=3))
    assert "does not fit into the limit" in refused and "another one" not in refused
    with pytest.raises(BudgetExceeded):
        fit(StoredDataset.open("later.zarr"), new)
    dpdist("budget", "set", "later.zarr", "--epsilon", "5", "--delta", "1e-5", "--ledger", new)
    fit(StoredDataset.open("later.zarr"), new)
    for name in ("told.zarr", "later.zarr"):
        with pytest.raises(Forgotten, match=r"was moved|is limited by"):
            fit(StoredDataset.open(name), old)
    with contextlib.closing(Ledger(new)) as ledger:
        assert ledger.spent("survey").epsilon == pytest.approx(4.0)


def test_a_dataset_whose_account_has_left_is_moved_from_where_it_went(folder):
    table("rows.zarr", account="survey")
    dpdist("budget", "set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5", "--ledger", "old.sqlite")
    move("old.sqlite", "new.sqlite", account="rows.zarr")
    refused = move("old.sqlite", "third.sqlite", account="rows.zarr", code=2)
    assert f"to the ledger {os.path.abspath('new.sqlite')}" in refused and "already: move it from there" in refused
    refused = move("old.sqlite", "third.sqlite", "--nothing-since", account="rows.zarr", code=3)  # it knows better
    assert "belongs to the ledger with the id" in refused
    move("old.sqlite", "new.sqlite", account="rows.zarr")
    move("new.sqlite", "third.sqlite", account="rows.zarr")
    assert chargeable("third.sqlite")


def test_a_dataset_that_last_saw_the_first_of_three_ledgers_follows(folder):
    rows = table("rows.zarr", account="survey")
    dpdist("budget", "set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5", "--ledger", "a.sqlite")
    fit(rows, "a.sqlite")
    move("a.sqlite", "b.sqlite")  # by the name of the account: the dataset is told of none of it
    move("b.sqlite", "c.sqlite")
    fit(StoredDataset.open("rows.zarr"), "c.sqlite")
    for left in ("a.sqlite", "b.sqlite"):
        with pytest.raises(Forgotten):
            fit(StoredDataset.open("rows.zarr"), left)
    with contextlib.closing(Ledger("c.sqlite")) as ledger:
        assert ledger.spent("survey").epsilon == pytest.approx(2.0)


def test_a_dataset_does_not_follow_another_account(folder):
    filled("old.sqlite")
    data = table("other.zarr", account="other")
    dpdist("budget", "set", "other.zarr", "--epsilon", "1", "--delta", "0", "--ledger", "old.sqlite")
    move("old.sqlite", "new.sqlite")
    with pytest.raises(Forgotten, match="is limited by the ledger"):
        fit(data, "new.sqlite")


def test_a_ledger_that_was_restored_before_it_was_moved_is_noticed_by_the_dataset(folder):
    data = table("rows.zarr", account="survey")
    dpdist("budget", "set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5", "--ledger", "old.sqlite")
    shutil.copyfile("old.sqlite", "copy.sqlite")
    fit(data, "old.sqlite")
    for file in Path().glob("old.sqlite*"):
        file.unlink()
    shutil.copyfile("copy.sqlite", "old.sqlite")
    assert "is older than what the dataset" in move("old.sqlite", "new.sqlite", account="rows.zarr", code=3)
    assert (chargeable("old.sqlite") and not os.path.exists("new.sqlite")) or chargeable("new.sqlite")
    move("old.sqlite", "new.sqlite")  # by its name, without the dataset
    with pytest.raises(Forgotten, match="with another past than what the dataset"):
        fit(StoredDataset.open("rows.zarr"), "new.sqlite")
    dpdist("budget", "restore", "--dataset", "rows.zarr", "--ledger", "new.sqlite")  # as the refusal says
    fit(StoredDataset.open("rows.zarr"), "new.sqlite")
    with contextlib.closing(Ledger("new.sqlite")) as ledger:
        assert ledger.spent("survey").epsilon == pytest.approx(2.0)


# -- what is refused ---------------------------------------------------------------------------------------------


def test_what_is_refused_changes_nothing(places):
    old, new = places
    before = filled(old)

    def refused(expected: str, *words: str, code: int = 2) -> None:
        assert expected in move(old, *words, code=code)
        assert of(old) == before and chargeable(old)

    refused("or a copy of it", old)
    with contextlib.closing(Ledger(new)) as ledger:
        ledger.open_run("a", "own", "p", Charge(0.5), account="survey")
    refused("has charged the account 'survey' itself (1 run)", new)
    assert chargeable(new)
    assert "no account" in move(old, new, account="nobody", code=2)
    with contextlib.closing(Ledger("ids.sqlite")) as ledger:
        ledger.open_run("x", "two", "p", Charge(0.5))
    refused("for a run with the id 'two'", "ids.sqlite")
    with contextlib.closing(Ledger("datasets.sqlite")) as ledger:
        ledger.open_run("b", "x", "p", Charge(0.5))
    refused("the dataset 'b' is charged to the account 'b'", "datasets.sqlite")
    with contextlib.closing(Ledger("unit.sqlite")) as ledger:
        ledger.set_limit("survey", Budget(1.0), unit="label")
    refused("is about one label, and it is about one row", "unit.sqlite")
    os.mkdir("folder.sqlite")
    refused("cannot be used", "folder.sqlite")
    Path("text.sqlite").write_text("no ledger\n" * 200)
    refused("cannot be used", "text.sqlite")
    assert "there is no ledger at" in move("gone.sqlite", new, code=2) and not os.path.exists("gone.sqlite")


def test_a_limit_that_was_set_in_the_new_ledger_before_gives_way(folder):
    before = filled("old.sqlite")
    with contextlib.closing(Ledger("new.sqlite")) as ledger:
        ledger.set_limit("survey", Budget(50.0), unit="row")
    move("old.sqlite", "new.sqlite")
    state, limits, *rest = of("new.sqlite")
    assert state == before[0] and limits[0][1].budget == Budget(50.0) and limits[1:] == before[1] and rest == before[2:]


def test_a_target_that_was_lost_before_the_account_arrived(folder):
    filled("old.sqlite")
    killed_at("old.sqlite", "new.sqlite", 2, "after")
    for file in Path().glob("new.sqlite*"):
        file.unlink()
    assert "--nothing-since" in move("old.sqlite", "newer.sqlite", code=2)
    move("old.sqlite", "newer.sqlite", "--nothing-since")
    assert chargeable("newer.sqlite") and not chargeable("old.sqlite")
    assert "who answers for it" in flat(dpdist("budget", "history", "survey", "--ledger", "newer.sqlite"))
    arrived = move("old.sqlite", "third.sqlite", "--nothing-since", code=2)
    assert "has arrived: move it from there" in arrived


# -- kills -------------------------------------------------------------------------------------------------------


def _moves_and_dies(old: str, new: str, step: int, when: str) -> None:
    """Move, and be killed at a transaction: before it, before its COMMIT, or after it."""
    source, target = Ledger(old), Ledger(new)
    count = 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    for ledger in (source, target):

        def write(work, wrapped=ledger._db.write):
            nonlocal count
            count += 1
            if count != step:
                return wrapped(work)
            if when == "before":
                die()
            if when == "inside":
                wrapped(lambda db: (work(db), die()))
            wrapped(work)
            return die()

        ledger._db.write = write
    moving.move(source, "survey", target, "ann")


def killed_at(old: str, new: str, step: int, when: str) -> None:
    process = PROCESSES.Process(target=_moves_and_dies, args=(old, new, step, when))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_move_that_is_killed_never_leaves_two_accounts_and_is_finished_by_the_same_command(places, step, when):
    old, new = places
    before = filled(old)
    killed_at(old, new, step, when)
    done = step - 1 + (when == "after")
    assert of(old) == before
    open_in = [path for path in places if chargeable(path)]
    assert open_in == [[old, new], [old], [], [new]][done]
    if done == 0:  # nothing was begun: the new ledger knows nothing of the account, and its datasets refuse it
        assert of(new)[1:3] == [[], []]
    if done == 2:
        for path in places:
            with contextlib.closing(Ledger(path)) as ledger, pytest.raises(Forgotten) as refused:
                ledger.can_afford("survey", Charge(0.1))
            assert typed_from(str(refused.value)) == ["budget", "move", "survey", "--ledger", old, "--to", new]
        dpdist(*typed_from(str(refused.value)))
    else:
        move(old, new)
    assert of(new) == before and chargeable(new) and not chargeable(old)
    move(old, new)  # again: nothing more
    assert of(new) == before and [run.run_id for run in of(new)[2]] == ["one", "two", "three"]


def _charges(path: str, said: Any) -> None:
    with contextlib.closing(Ledger(path)) as ledger:
        for number in range(10_000):
            try:
                ledger.open_run("a", f"n{number}", "p", Charge(0.001), account="survey")
            except LedgerError:
                break
            said.send(number)
    said.close()


def test_a_charge_that_was_made_while_the_account_moves_is_in_the_new_ledger(places):
    old, new = places
    filled(old, limit=300.0)
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_charges, args=(old, theirs))
    process.start()
    theirs.close()
    made = [ours.recv() for _ in range(5)]
    move(old, new)
    with contextlib.suppress(EOFError):
        while True:
            made.append(ours.recv())
    process.join(60)
    assert process.exitcode == 0
    assert [run.run_id for run in of(new)[2]][3:] == [f"n{number}" for number in made] and of(new) == of(old)


def _moves(old: str, new: str) -> None:
    with contextlib.closing(Ledger(old)) as source, contextlib.closing(Ledger(new)) as target:
        moving.move(source, "survey", target, "ann")


def test_several_who_move_it_at_once_move_it_once(places):
    old, new = places
    before = filled(old)
    processes = [PROCESSES.Process(target=_moves, args=(old, new)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert of(new) == before and chargeable(new) and not chargeable(old)
