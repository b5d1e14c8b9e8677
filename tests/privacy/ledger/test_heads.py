"""A ledger that is another one, or has forgotten what somebody saw of it, is noticed; with real copies and servers."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import Dataset
from dpdist.engine.memory import DatasetMemory, noted_head
from dpdist.errors import Fenced, Forgotten, LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.totals import decoded
from dpdist.privacy.budget import Budget
from dpdist.privacy.ledger.heads import Head, common_until
from dpdist.privacy.ledger.journal import AnyJournal, Journal
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.object_journal import ObjectJournal
from dpdist.privacy.ledger.paid_run import PaidRun
from dpdist.privacy.ledger.recall import Memory, recall
from dpdist.runs.directory import RunDirectory
from tests.postgres import PostgresServer
from tests.privacy.ledger.recovery_databases import take_back
from tests.s3 import BUCKET


def charged(path: object, *run_ids: str) -> Head:
    with contextlib.closing(Ledger(str(path))) as ledger:
        for run_id in run_ids:
            ledger.open_run("d", run_id, "plan", Charge(0.5))
        return ledger.head()


def test_every_write_that_counts_advances_the_head_once() -> None:
    ledger = Ledger(":memory:")
    heads = [ledger.head()]
    for act in (
        lambda: ledger.set_limit("d", Budget(9.0)),
        lambda: ledger.open_run("d", "r", "p", Charge(1.0)),
        lambda: ledger.set_limit("d", Budget(8.0)),
    ):
        act()
        act()  # again: nothing changes
        heads.append(ledger.head())
    assert [head.number for head in heads] == [0, 1, 2, 3]
    assert len({head.token for head in heads}) == 4 and {head.ledger for head in heads} == {ledger.id}
    for head in heads:
        ledger.check_remembered(head, "somebody")
        assert Head.from_dict(json.loads(json.dumps(head.to_dict()))) == head


def test_where_two_pasts_part_is_known_from_a_few_heads(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with contextlib.closing(Ledger(path)) as ledger:
        for i in range(300):
            ledger.open_run("other" if i % 3 else "d", f"{i}", "plan", Charge(0.5))
        past = ledger.past("d", ledger.head())
        assert len(past) < 45 and past[0] == (0, past[0][1]) and past[-1][0] == 298
        numbers = [number for number, _ in past]
        assert numbers[-32:] == [*range(205, 300, 3)], "the newest are all there"
        assert ledger._db.read(lambda db: common_until(db, past)) == 298
        for until in (297, 205, 204, 100, 5):
            ledger._db.write(lambda db, until=until: db.execute("DELETE FROM dpdist_heads WHERE number > ?", (until,)))
            common = ledger._db.read(lambda db: common_until(db, past))
            assert common <= until and (common >= until - 2 if until >= 205 else until - common <= 300 - until)
        ledger._db.write(lambda db: db.execute("UPDATE dpdist_heads SET token = 'of another ledger'"))
        assert ledger._db.read(lambda db: common_until(db, past)) == -1


def test_a_ledger_restored_from_a_copy_is_noticed_by_whoever_saw_more(tmp_path: Path) -> None:
    path, copy = tmp_path / "l.sqlite", tmp_path / "copy.sqlite"
    early = charged(path, "a")
    shutil.copyfile(path, copy)
    late = charged(path, "b", "c")
    shutil.copyfile(copy, path)
    ledger = Ledger(path)
    ledger.check_remembered(early, "the journal J")
    with pytest.raises(LedgerError, match=r"is older than what the journal J remembers.*entry 1, and entry 3 was seen"):
        ledger.check_remembered(late, "the journal J")


def test_a_copy_that_was_written_to_since_has_another_history(tmp_path: Path) -> None:
    path, copy = tmp_path / "l.sqlite", tmp_path / "copy.sqlite"
    charged(path, "a")
    shutil.copyfile(path, copy)
    seen = charged(path, "b")
    for run_id in ("b", "c"):  # the very same run, too
        other = charged(copy, run_id)
        assert other.ledger == seen.ledger
    with pytest.raises(LedgerError, match="another history than what the run out remembers"):
        Ledger(copy).check_remembered(seen, "the run out")


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_new_ledger_in_the_place_of_a_lost_one_is_another_one(tmp_path: Path, left: str) -> None:
    path = tmp_path / "l.sqlite"
    seen = charged(path, "a")
    path.unlink()
    if left == "an empty file":
        path.touch()
    with pytest.raises(LedgerError, match=f"the run out belongs to the ledger with the id {seen.ledger}"):
        Ledger(path).check_remembered(seen, "the run out")


def test_a_database_server_restored_from_a_copy_of_its_disk_is_noticed(postgres_server: PostgresServer) -> None:
    charged(postgres_server.address, "a")
    postgres_server.back_up()
    seen = charged(postgres_server.address, "b")
    postgres_server.restore()
    with contextlib.closing(Ledger(postgres_server.address)) as ledger:
        with pytest.raises(LedgerError, match="is older than"):
            ledger.check_remembered(seen, "the dataset rows.zarr")
        # taken back while it is in use, as by a failover to a copy that lags behind
        for run_id in ("b", "c"):
            ledger.open_run("d", run_id, "plan", Charge(0.5))
        postgres_server.restore()
        for _ in range(2):
            with pytest.raises(LedgerError, match="is older than what this process remembers"):
                ledger.open_run("d", "c", "plan", Charge(0.5))
        assert [run.run_id for run in ledger.history("d")] == ["a"]


@pytest.mark.parametrize("apart", [False, True])
def test_a_value_whose_commitment_was_not_told_is_told_by_whoever_uses_it(tmp_path: Path, apart: bool) -> None:
    """Ended between the commitment and the telling, gone on with, and then ledger and journal are taken back."""
    files = [tmp_path / name for name in ("l.sqlite", *(["j.sqlite"] if apart else []))]

    @contextlib.contextmanager
    def going_on() -> Iterator[tuple[Ledger, PaidRun]]:
        with contextlib.closing(Ledger(files[0], journal=files[-1])) as ledger:
            asked = {"asked": {}, "budget": {"ledger": None, "journal": None}}
            place = RunDirectory(f"{tmp_path}/out", asked, resume=True)
            run = PaidRun(ledger, ledger.journal, "d", place.run_id, witnesses=[place])
            run.open("plan", Charge(0.5))
            yield ledger, run
            run.close()

    announced = ("r/0", 0, "sum", "Gaussian", 1.0, 1.0, "gaussian 1")
    with going_on() as (_, run):
        run.charge("label")
    for file in files:
        shutil.copyfile(file, f"{file}.copy")
    with going_on() as (ledger, run):
        run.announce(*announced)
        ledger.commit(ledger.journal.open(run.run_id), "r/0", np.ones(1))  # and nobody is told
    with going_on() as (_, run):
        assert run.value("r/0") == np.ones(1)
    for file in files:
        shutil.copyfile(f"{file}.copy", file)
    with pytest.raises(LedgerError, match=r"is older than what the run in .* remembers"), going_on() as (_, run):
        run.announce(*announced)


@pytest.mark.parametrize("when", ["between opening and asking", "between value and record", "while it waits"])
def test_a_ledger_that_is_taken_back_while_a_run_looks_at_it_is_refused(tmp_path: Path, when: str) -> None:
    """Also where others have written to it since, and its newest head is newer than what was seen."""
    path, kept = tmp_path / "l.sqlite", tmp_path / "kept.sqlite"
    announced = ("r/0", 0, "sum", "Gaussian", 1.0, 1.0, "gaussian 1")

    def keep() -> None:
        with contextlib.closing(sqlite3.connect(path)) as live, contextlib.closing(sqlite3.connect(kept)) as copy:
            live.backup(copy)

    def taken_back() -> None:
        take_back(path, kept.read_bytes())
        for name in "xyz":
            charged(path, name)

    with contextlib.closing(Ledger(path)) as ledger:
        asked = {"asked": {}, "budget": {"ledger": None, "journal": None}}
        place = RunDirectory(f"{tmp_path}/out", asked, resume=True)
        run = PaidRun(ledger, ledger.journal, "d", place.run_id, witnesses=[place])
        if when == "between opening and asking":
            charged(path, "a")
            keep()
            seen = charged(path, "b")
            ledger.check_remembered(seen, "the dataset rows.zarr")
            taken_back()
            with pytest.raises(Forgotten, match="this process remembers"):
                run.open("plan", Charge(0.5))
            return
        run.open("plan", Charge(0.5))
        run.charge("label")
        run.announce(*announced)
        keep()
        known = place.head
        if when == "between value and record":
            tell = run._tell
            run._tell = lambda *what: (taken_back(), tell(*what))  # type: ignore[method-assign, func-returns-value]
            with pytest.raises(Forgotten, match="this process remembers"):
                run.commit("r/0", np.ones(1))
        else:
            run.commit("r/0", np.ones(1))
            known = place.head
            taken_back()
            with pytest.raises(Forgotten, match="this process remembers"):
                ledger.head()
        assert place.head == known


def test_who_was_taken_over_does_not_write_over_what_the_newer_one_has_told(tmp_path: Path) -> None:
    """Both loaded rows, and the newer one was done first."""
    asked = {"asked": {}, "budget": {"ledger": None, "journal": None}}
    with contextlib.ExitStack() as opened:
        both = []
        for _ in range(2):
            ledger = opened.enter_context(contextlib.closing(Ledger(tmp_path / "l.sqlite")))
            place = RunDirectory(f"{tmp_path}/out", asked, resume=True)
            both.append((PaidRun(ledger, ledger.journal, "d", place.run_id, witnesses=[place]), place))
            both[-1][0].open("plan", Charge(0.5))
        (old, _), (new, place) = both
        new.charge("label")
        place.finish({**place._record, "status": "done"}, {})
        with pytest.raises(Fenced, match="taken over by a newer process"):
            old.charge("label")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "done"


def test_a_run_that_is_open_while_its_ledger_is_restored_goes_on_no_more(tmp_path: Path) -> None:
    with contextlib.closing(Ledger(tmp_path / "l.sqlite")) as ledger:
        run = PaidRun(ledger, ledger.journal, "d", "r")
        run.open("plan", Charge(0.5))
        run.charge("label")
        missed = Memory("a journal", (Head(ledger.id, 1000, "x"),))
        ledger._db.write(lambda db: recall(db, ledger.path, [missed], "ann"))
        with pytest.raises(Forgotten, match="charged before the ledger was restored"):
            run.announce("r/0", 0, "sum", "Gaussian", 1.0, 1.0, "gaussian 1")


@pytest.fixture(params=["file", "bucket"])
def journal(request, tmp_path) -> Iterator[AnyJournal]:
    if request.param == "file":
        yield Journal(tmp_path / "j.sqlite")
    else:
        request.getfixturevalue("s3_account")
        yield ObjectJournal(f"s3://{BUCKET}/{secrets.token_hex(8)}")


def test_a_journal_has_a_name_and_remembers_the_newest_head_of_every_ledger(journal: AnyJournal) -> None:
    again = type(journal)(journal.path)
    assert journal.id == again.id and len(journal.id) == 32
    heads = [Head("one", number, f"token {number}") for number in (3, 12, 7)]
    assert journal.remembered("one") is None
    for head in heads:
        journal.remember(head)
        journal.remember(head)
    journal.remember(Head("two", 1, "other"))
    assert again.remembered("one") == heads[1]
    assert again.remembered("two") == Head("two", 1, "other")
    run = journal.open("r")
    assert not journal.holds("r")
    run.put("r/0", np.ones(1))
    assert journal.holds("r") and not journal.holds("s")


def test_a_dataset_that_two_runs_tell_at_once_remembers_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run is charged and tells the dataset just before the first one writes what it knows."""
    store, note = tmp_path / "rows.zarr", Dataset.note
    Dataset.from_arrays(store, X=np.ones((4, 2)), dataset_id="d")
    with contextlib.closing(Ledger(tmp_path / "l.sqlite")) as ledger:
        ledger.set_limit("d", Budget(3.0))
        runs = []
        for name in ("first", "second"):
            memory = DatasetMemory(Dataset.open(store), "d", ledger)
            runs.append(PaidRun(ledger, ledger.journal, "d", name, witnesses=[memory]))
            runs[-1].open("plan", Charge(0.5))

        def overtaken(self: Dataset, name: str, public: Mapping[str, Any]) -> bool:
            monkeypatch.setattr(Dataset, "note", note)
            runs[1].charge("second")
            return note(self, name, public)

        monkeypatch.setattr(Dataset, "note", overtaken)
        runs[0].charge("first")
        known = noted_head(Dataset.open(store))
        assert known is not None and known[0] == ledger.head()
        assert decoded(known[1]["spent"]).epsilon == 1
