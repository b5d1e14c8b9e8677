"""Copies of a ledger that is in use, and what a restore means: nothing is forgotten, nothing is charged twice.

On a real file and a real PostgreSQL server, with journals in both and in a bucket, and with real runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dpdist import Budget, Dataset, Ledger, LogisticRegression, Neighbours
from dpdist.central import GradientDescent
from dpdist.cli import main
from dpdist.errors import BudgetExceeded, DpdistError, Forgotten, LedgerError
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.filter import Limit
from dpdist.privacy.accounting.totals import Sums
from dpdist.privacy.ledger import backup as copies
from dpdist.privacy.ledger import journal, sqlite
from dpdist.privacy.ledger.heads import Head
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.ledger.recall import Memory, Seen
from dpdist.privacy.ledger.records import check_sums
from tests.postgres import PostgresServer
from tests.processes import PROCESSES
from tests.s3 import BUCKET


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["file", "server"])
def place(request, folder, monkeypatch) -> str:
    """Where the ledger is."""
    path = str(folder / "ledger.sqlite")
    if request.param == "server":
        postgres_server = request.getfixturevalue("postgres_server")
        path = postgres_server.address
    monkeypatch.setenv("DPDIST_LEDGER", path)
    return path


def lose(place: str, postgres_server: PostgresServer) -> None:
    """The disk of the ledger is gone."""
    if place == postgres_server.address:
        postgres_server.forget()
    else:
        for file in Path(place).parent.glob("ledger.sqlite*"):
            file.unlink()


def dpdist(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done


def backup(copy: str = "copy.sqlite", code: int = 0) -> Result:
    return dpdist("budget", "backup", copy, code=code)


def restore(*words: str, code: int = 0) -> Result:
    return dpdist("budget", "restore", *words, code=code)


def table(path: str | None, **options) -> Dataset:
    X = np.random.default_rng(0).normal(size=(300, 2))
    return Dataset.from_arrays(path, X=X, y=(X[:, 0] > 0).astype(int), **options)


def fit(data: Dataset, **options) -> LogisticRegression:
    fixed = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
    fixed["solver"] = GradientDescent(2)
    return LogisticRegression(**fixed, **options).fit(data)


def spent(account: str) -> float:
    with contextlib.closing(Ledger()) as ledger:
        return ledger.spent(account).epsilon


JOB = """
method: dp-gd
data: {{path: {data}}}
params: {{classes: [0, 1], row_norm: 1.0, solver: {{GradientDescent: {{n_rounds: 2}}}}}}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
output: {output}
"""


def run(data: str, output: str, journal: str | None = None, resume: bool = False) -> dict:
    Path("job.yaml").write_text(JOB.format(data=data, output=output) + (f"journal: {journal}\n" if journal else ""))
    return run_job(load_job("job.yaml"), resume=resume)


# -- a copy ------------------------------------------------------------------------------------------------------


def test_a_copy_of_a_ledger_in_use_holds_all_of_it(place, postgres_server):
    ledger = Ledger()
    ledger.set_limit("d", Budget(9.0, 1e-4), composition="gaussian")
    ledger.open_run("d", "a", "p", Charge(0.5, 1e-7, mu=0.1), user="ann", label="x", journal=ledger.journal)
    ledger.record_release("a", "a/0", 0, "sum", "Gaussian", 1.0, 2.0, "gaussian 0.1")
    value = np.array([1.5, -0.0, np.nan])
    run = ledger.journal.open("a")
    ledger.commit(run, "a/0", value)
    told = backup().stdout
    assert "with 1 run, the last entry of 20" in told
    assert [name for name in os.listdir() if name.startswith("copy")] == ["copy.sqlite"]
    copy = Ledger("copy.sqlite")  # the ledger is open meanwhile, and was not checkpointed
    assert copy.history("d") == ledger.history("d") and copy.limits("d") == ledger.limits("d")
    assert copy.spent("d") == ledger.spent("d") and (copy.id, copy.head()) == (ledger.id, ledger.head())
    assert copy.journal.open("a").get("a/0").tobytes() == value.tobytes()


def test_every_table_is_copied(place):
    with contextlib.closing(Ledger()) as ledger:
        assert ledger.journal.id
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        if place.startswith("postgresql"):
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        found = ledger._db.read(lambda db: db.execute(tables).fetchall())
    versions = {"dpdist_ledger_version", "dpdist_journal_version"}
    assert {name for (name,) in found} == {*copies.TABLES["ledger"], *copies.TABLES["journal"], *versions}


def test_what_a_plain_copy_of_a_live_file_holds(folder, monkeypatch):
    """Why there is a command: the write-ahead log is not in the file."""
    monkeypatch.setenv("DPDIST_LEDGER", "ledger.sqlite")
    ledger = Ledger()
    ledger.open_run("d", "a", "p", Charge(0.5))
    shutil.copyfile("ledger.sqlite", "plain")
    with contextlib.closing(sqlite3.connect("plain")) as plain, pytest.raises(sqlite3.OperationalError):
        plain.execute("SELECT * FROM dpdist_runs").fetchall()
    backup()
    assert [run.run_id for run in Ledger("copy.sqlite").history("d")] == ["a"]


def charge_on(path: str, told) -> None:
    ledger = Ledger(path)
    for i in range(10**6):
        ledger.open_run("d", f"{i}", "p", Charge(0.125))
        told.send(i)


def test_copies_that_are_made_while_a_process_charges_are_each_a_moment_of_the_ledger(place):
    Ledger().close()
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=charge_on, args=(place, theirs))
    process.start()
    counts = []
    try:
        for i in range(6):
            while ours.recv() < 3 * i:
                pass
            before = ours.recv()
            backup(f"copy{i}")
            with contextlib.closing(Ledger(f"copy{i}")) as copy:
                counts.append(copy._db.read(check_sums))
            assert counts[-1] > before
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
    assert counts == sorted(counts) and len(set(counts)) > 3


def test_a_backup_that_is_killed_leaves_no_copy(place):
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "a", "p", Charge(0.5))
    process = PROCESSES.Process(target=die_in_backup, args=(place, "copy.sqlite"))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL and not os.path.exists("copy.sqlite")
    backup()


def die_in_backup(path: str, copy: str) -> None:
    copies.check_sums = lambda db: os.kill(os.getpid(), signal.SIGKILL)
    copies.back_up(path, copy)


def test_one_error_each(place, folder):
    assert "no ledger at" in backup(code=2).stderr or "no tables" in backup(code=2).stderr
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "a", "p", Charge(0.5))
    Path("taken").write_text("mine")
    assert "never overwritten" in backup("taken", code=2).stderr and Path("taken").read_text() == "mine"
    (folder / "directory").mkdir()
    assert backup("directory", code=2).stderr
    assert "cannot be written" in backup("/proc/nowhere/copy", code=2).stderr
    with contextlib.closing(sqlite.open_store(place, None)) as store:
        store.write(lambda db: db.execute("UPDATE dpdist_runs SET epsilon = 0.25"))
    assert "do not add up" in backup(code=2).stderr and not os.path.exists("copy.sqlite")
    assert not list(folder.glob("*unfinished*"))


def test_where_else_values_are_kept_is_told(folder, monkeypatch):
    monkeypatch.setenv("DPDIST_LEDGER", "ledger.sqlite")
    table("rows.zarr")
    run("rows.zarr", "here")
    assert "elsewhere" not in backup("a").stdout
    run("rows.zarr", "there", journal="journal.sqlite")
    assert "kept elsewhere; copy that now: " in backup("b").stdout


# -- a restore ---------------------------------------------------------------------------------------------------


def test_a_restore_asks_what_was_charged_since(place, postgres_server):
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "a", "p", Charge(0.5))
    backup()
    lose(place, postgres_server)
    assert "say what was charged since" in restore("copy.sqlite", code=2).stderr
    with pytest.raises(LedgerError):
        Ledger.existing()
    told = restore("copy.sqlite", "--nothing-since").stdout
    assert "is in use again" in told and spent("d") == 0.5
    with contextlib.closing(Ledger()) as ledger:
        subjects = "SELECT subject FROM dpdist_heads WHERE what = 'restore'"
        (why,) = ledger._db.read(lambda db: db.execute(subjects).fetchall())
        assert why[0].endswith("from copy.sqlite; nothing was charged since") and "@" in why[0]


@pytest.mark.parametrize("kept", ["with the ledger", "a file", "a bucket"])
def test_what_runs_datasets_and_journals_remember_is_charged_again(place, postgres_server, request, kept):
    """Before the copy: monday. After it: tuesday, and wednesday on another table of the same account."""
    where = None
    if kept == "a file":
        where = "journal.sqlite"
    elif kept == "a bucket":
        request.getfixturevalue("s3_account")
        where = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    for name in ("first.zarr", "second.zarr"):
        table(name, account="survey")
    dpdist("budget", "set", "first.zarr", "--epsilon", "4", "--delta", "1e-5")
    run("first.zarr", "runs/monday", where)
    backup()
    done = {
        name: run(data, f"runs/{name}", where)
        for name, data in (("tuesday", "first.zarr"), ("wednesday", "second.zarr"))
    }
    lose(place, postgres_server)

    witnesses: dict[str, list[str]] = {
        "runs": ["--runs", "runs"],
        "datasets": ["--dataset", "first.zarr", "--dataset", "second.zarr"],
        "journal": [] if where is None else ["--journal", where],
    }
    for chosen in (words for words in witnesses.values() if words):
        restore("copy.sqlite", *chosen)
        assert spent("survey") == pytest.approx(3.0)
        with contextlib.closing(Ledger()) as ledger:
            runs = [r.run_id for r in ledger.history("survey")]
            assert len(set(runs)) == len(runs) and ledger.limit("survey").budget == Budget(4.0, 1e-5)
            ledger._db.read(check_sums)
            if "--dataset" not in chosen:
                assert {done["tuesday"]["run_id"], done["wednesday"]["run_id"]} < set(runs)
        lose(place, postgres_server)

    restore("copy.sqlite", *(word for words in witnesses.values() for word in words))
    assert spent("survey") == pytest.approx(3.0)
    run("first.zarr", "runs/thursday", where)
    with pytest.raises(BudgetExceeded):
        run("second.zarr", "runs/friday", where)
    for name in ("monday", "tuesday"):
        with pytest.raises(Forgotten, match="before the ledger was restored"):
            run("first.zarr", f"runs/{name}", where, resume=True)
    assert spent("survey") == pytest.approx(4.0)


def test_whoever_was_not_asked_still_refuses_and_is_asked_later(place, postgres_server):
    first, second = table("first.zarr", account="survey"), table("second.zarr", account="survey")
    dpdist("budget", "set", "survey", "--new", "--epsilon", "9", "--delta", "1e-5")
    fit(first)
    backup()
    fit(second)
    fit(first, run_id="third")
    lose(place, postgres_server)
    restore("copy.sqlite", "--dataset", "second.zarr")
    assert spent("survey") == pytest.approx(2.0)
    fit(second)
    with pytest.raises(Forgotten, match=r"another history|is older than") as refused:
        fit(first)
    assert "first.zarr" in str(refused.value) and "dpdist budget restore" in str(refused.value)
    told = restore("--dataset", "first.zarr").stdout
    assert "is in use again" in told
    assert spent("survey") == pytest.approx(4.0)  # 1 + 1 + 1 seen by the first, and one more that it has not seen
    fit(first)
    fit(second)
    assert "forgotten nothing" in restore("--dataset", "first.zarr", code=2).stderr


def test_what_was_charged_in_another_way_since_does_not_make_up_for_what_was_lost(place, postgres_server):
    first, second = table("first.zarr", account="survey"), table("second.zarr", account="survey")
    dpdist("budget", "set", "survey", "--new", "--epsilon", "9", "--delta", "1e-5")
    fit(first)
    fit(second)
    backup()
    fit(first)
    lose(place, postgres_server)
    restore("copy.sqlite", "--nothing-since")
    fit(second)  # before the first dataset is asked
    assert spent("survey") == pytest.approx(3.0)
    restore("--dataset", "first.zarr")
    assert spent("survey") == pytest.approx(4.0)


def test_what_is_known_of_later_runs_does_not_make_up_for_earlier_ones(place, postgres_server):
    first, _ = table("first.zarr", account="survey"), table("second.zarr", account="survey")
    dpdist("budget", "set", "survey", "--new", "--epsilon", "9", "--delta", "1e-5")
    fit(first)
    backup()
    fit(first)  # its dataset alone remembers it
    run("second.zarr", "out")
    lose(place, postgres_server)
    restore("copy.sqlite", "--runs", "out", "--dataset", "first.zarr")
    assert spent("survey") == pytest.approx(3.0)
    restore("--dataset", "second.zarr")
    assert spent("survey") == pytest.approx(3.0)


def test_what_one_dataset_makes_up_is_not_made_up_for_another(place, postgres_server):
    first, second = table("first.zarr", account="survey"), table("second.zarr", account="survey")
    dpdist("budget", "set", "survey", "--new", "--epsilon", "9", "--delta", "1e-5")
    backup()
    fit(second)
    fit(first)  # has seen both
    lose(place, postgres_server)
    restore("copy.sqlite", "--dataset", "first.zarr")
    assert spent("survey") == pytest.approx(2.0)
    restore("--dataset", "second.zarr")
    assert spent("survey") == pytest.approx(2.0)


def test_an_unfinished_run_cannot_draw_again_what_was_seen(place, postgres_server):
    """Its record is named, so that its charge is known; its values since the copy are not."""
    table("rows.zarr")
    Path("job.yaml").write_text(JOB.format(data="rows.zarr", output="out"))
    from dpdist.engine.progress import Released, watching

    def stop_after(n: int) -> Callable:
        def tell(event) -> None:
            if isinstance(event, Released) and event.done == n:
                if n == 1:
                    backup()
                raise KeyboardInterrupt

        return tell

    with watching(stop_after(1)), pytest.raises(KeyboardInterrupt):
        run_job(load_job("job.yaml"))
    with watching(stop_after(2)), pytest.raises(KeyboardInterrupt):
        run_job(load_job("job.yaml"), resume=True)
    lose(place, postgres_server)
    restore("copy.sqlite", "--runs", "out")
    with pytest.raises(Forgotten, match="which of its values were seen"):
        run_job(load_job("job.yaml"), resume=True)
    account = Dataset.open("rows.zarr").account
    assert spent(account) == pytest.approx(1.0)


def test_a_ledger_is_made_of_what_is_remembered_where_all_copies_are_lost(place, postgres_server):
    data = table("rows.zarr")
    dpdist("budget", "set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5", "--composition", "gaussian")
    before = fit(data), fit(data)
    assert before
    with contextlib.closing(Ledger()) as ledger:
        name, amount = ledger.id, ledger.spent(data.account)
    lose(place, postgres_server)
    assert "remember none" in restore("--nothing-since", code=2).stderr
    restore("--dataset", "rows.zarr")
    with contextlib.closing(Ledger()) as ledger:
        assert ledger.limit(data.account).composition == "gaussian"
        now = ledger.spent(data.account)
        assert now.mu >= amount.mu and now.mu == pytest.approx(amount.mu)
        assert ledger.id == name
    fit(data)


def test_a_restore_replaces_no_ledger(place):
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "a", "p", Charge(0.5))
    backup()
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "b", "p", Charge(0.5))
    refused = restore("copy.sqlite", "--nothing-since", code=2).stderr
    assert "may know of charges that the copy does not" in refused and spent("d") == 1.0


def test_a_ledger_that_was_made_while_a_copy_was_put_back_stays(folder, monkeypatch):
    """Renamed over it, the copy would be mixed with its write-ahead log, and both would be forgotten."""
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        ledger.open_run("d", "a", "p", Charge(0.5))
    backup_of, real = ("ledger.sqlite", "copy.sqlite"), copies.recall
    copies.back_up(*backup_of)
    Path("ledger.sqlite").unlink()

    def meanwhile(*what):
        live = Ledger("ledger.sqlite")
        live.open_run("e", "b", "p", Charge(0.25))
        monkeypatch.setattr(copies, "recall", real)
        return real(*what)

    monkeypatch.setattr(copies, "recall", meanwhile)
    with pytest.raises(LedgerError, match=r"something was made at ledger\.sqlite meanwhile"):
        copies.put_back("copy.sqlite", "ledger.sqlite", [], "ann")
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        assert ledger.spent("e").epsilon == 0.25
    assert not list(folder.glob("*unfinished*"))


def charge_and_die(path: str) -> None:
    ledger = Ledger(path)
    for i in range(5):
        ledger.open_run("d", f"late {i}", "p", Charge(0.5))
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_log_of_a_ledger_that_was_moved_away_is_not_read_into_another_one(folder, monkeypatch):
    """A process that is killed leaves its last charges in the write-ahead log, beside the file."""
    monkeypatch.setenv("DPDIST_LEDGER", str(folder / "ledger.sqlite"))
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "a", "p", Charge(0.5))
    backup()
    killed = PROCESSES.Process(target=charge_and_die, args=(str(folder / "ledger.sqlite"),))
    killed.start()
    killed.join(60)
    os.rename("ledger.sqlite", "moved.sqlite")
    log = Path("ledger.sqlite-wal").read_bytes()
    for refused in (
        restore("copy.sqlite", "--nothing-since", code=2),
        dpdist("budget", "set", "d", "--new", "--epsilon", "3", "--delta", "0", code=2),
        dpdist("budget", "show", code=2),
        dpdist("budget", "backup", "ledger.sqlite", "--ledger", "copy.sqlite", code=2),
    ):
        assert "its write-ahead log" in refused.stderr and "move the log after it" in refused.stderr
    Path("ledger.sqlite").touch()
    with pytest.raises(LedgerError, match="its write-ahead log"):
        Ledger()
    Path("ledger.sqlite").unlink()
    assert Path("ledger.sqlite-wal").read_bytes() == log
    os.rename("ledger.sqlite-wal", "moved.sqlite-wal")
    with contextlib.closing(Ledger("moved.sqlite")) as moved:
        assert moved.spent("d").epsilon == 3.0
    restore("copy.sqlite", "--nothing-since")
    assert spent("d") == 0.5


def damaged(name: str) -> str:
    """A copy that is none."""
    data = bytearray(Path("copy.sqlite").read_bytes())
    match name:
        case "zero bytes":
            data = bytearray()
        case "half":
            data = data[: len(data) // 2]
        case "flipped bytes":
            for i in range(5000, len(data), 997):
                data[i] ^= 0xFF
        case "text":
            data = bytearray(b"this is no database" * 100)
        case "another program's":
            with contextlib.closing(sqlite3.connect("bad")) as other:
                other.execute("CREATE TABLE t (a)")
            return "bad"
        case "a directory":
            os.mkdir("bad")
            return "bad"
        case "nothing":
            return "bad"
        case "newer":
            shutil.copyfile("copy.sqlite", "bad")
            with contextlib.closing(sqlite3.connect("bad")) as other:
                other.execute("UPDATE dpdist_ledger_version SET version = 99")
                other.commit()
            return "bad"
    Path("bad").write_bytes(data)
    return "bad"


@pytest.mark.parametrize(
    "name",
    ["zero bytes", "half", "flipped bytes", "text", "another program's", "a directory", "nothing", "newer"],
)
def test_a_copy_that_is_none_is_one_error_and_restores_nothing(place, postgres_server, folder, name):
    with contextlib.closing(Ledger()) as ledger:
        for i in range(50):
            ledger.open_run("d", f"{i}", "p", Charge(0.5), label="x" * 500)
    backup()
    lose(place, postgres_server)
    refused = restore(damaged(name), "--nothing-since", code=2)
    assert "Traceback" not in refused.stderr and len([*re.finditer("dpdist: |Error: ", refused.stderr)]) == 1
    with pytest.raises(LedgerError):
        Ledger.existing()
    assert not list(folder.glob("*unfinished*"))
    restore("copy.sqlite", "--nothing-since")
    assert spent("d") == 25.0


@pytest.mark.parametrize("address", ["postgresql://ann@host/copies", "s3://bucket/copy.sqlite"])
def test_a_copy_is_a_file(folder, monkeypatch, address):
    monkeypatch.setenv("DPDIST_LEDGER", "ledger.sqlite")
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
    assert "expected a file for the copy" in backup(address, code=2).stderr
    backup()
    put = restore("copy.sqlite", "--nothing-since", "--ledger", "s3://bucket/ledger", code=2)
    assert "expected a file or postgresql://" in put.stderr
    assert sorted(path.name for path in folder.glob("*:")) == []


def in_place_of(values: dict, path: str, value: object) -> dict:
    """The same with another value, or without it (None), at a path like ``limit.epsilon``."""
    name, _, rest = path.partition(".")
    if rest:
        return {**values, name: in_place_of(values[name], rest, value)}
    return {key: known for key, known in values.items() if key != name} | ({} if value is None else {name: value})


@pytest.mark.parametrize("value", [None, "x", -1, [], {}, 10**400, "9" * 400])
def test_damaged_memories_are_one_error_and_restore_nothing(folder, monkeypatch, value):
    monkeypatch.setenv("DPDIST_LEDGER", str(folder / "ledger.sqlite"))
    table("rows.zarr")
    dpdist("budget", "set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5")
    backup()
    run("rows.zarr", "out")
    for file in folder.glob("ledger.sqlite*"):
        file.unlink()
    for name, where, damaged_at in (
        ("rows.zarr/zarr.json", "attributes.dpdist-ledger", ["number", "limit", "limit.epsilon", "spent", "past"]),
        ("out/run.json", "budget", ["head.number", "receipt.number", "receipt.epsilon", "receipt.neighbours"]),
    ):
        whole = Path(name).read_text()
        for path in damaged_at:
            if (path, value) in [("past", None), ("past", []), ("limit.epsilon", 10**400), ("past", {})]:
                continue
            Path(name).write_text(json.dumps(in_place_of(json.loads(whole), f"{where}.{path}", value)))
            refused = restore("copy.sqlite", "--dataset", "rows.zarr", "--runs", "out", code=2).stderr
            assert "damaged" in refused, (path, value)
            assert not Path("ledger.sqlite").exists()
        Path(name).write_text(whole)
    restore("copy.sqlite", "--dataset", "rows.zarr", "--runs", "out")
    assert spent(Dataset.open("rows.zarr").account) == pytest.approx(1.0)


def test_memories_of_another_ledger_and_unknown_charges_are_refused(place, postgres_server):
    data = table("rows.zarr")
    fit(data, run_id="a")
    backup()
    other = table("other.zarr")
    dpdist("budget", "set", "other.zarr", "--epsilon", "3", "--delta", "1e-5", "--ledger", "other.sqlite")
    fit(other, ledger="other.sqlite")
    lose(place, postgres_server)
    (empty := Path("empty")).mkdir()
    refused = restore("copy.sqlite", "--dataset", "other.zarr", code=2).stderr
    assert "the dataset other.zarr belongs to the ledger with the id" in refused
    run_ = Journal("strange.sqlite").open("lost run")
    run_.put("lost run/0", np.ones(1))
    refused = restore("copy.sqlite", "--journal", "strange.sqlite", code=2).stderr
    assert "has the run 'lost run', and nobody who was asked knows what this ledger charged" in refused
    for words in (["--journal", "none.sqlite"], ["--runs", "nowhere"], ["--dataset", "nowhere"]):
        assert restore("copy.sqlite", *words, code=2).stderr
    with pytest.raises(LedgerError):
        Ledger.existing()
    refused = restore("copy.sqlite", "--dataset", "rows.zarr", code=2).stderr
    assert "remembers anything of a ledger" in refused and "--nothing-since" in refused
    assert "no run in the directory empty" in restore("copy.sqlite", "--runs", str(empty), code=2).stderr
    with pytest.raises(LedgerError):
        Ledger.existing()
    told = restore("copy.sqlite", "--dataset", "rows.zarr", "--nothing-since").stdout
    assert "Remembered nothing: the dataset rows.zarr" in told and spent(data.account) == pytest.approx(1.0)


@pytest.mark.parametrize("other", [{"epsilon": 0.25}, {"digest": "q"}, {"dataset_id": "e"}])
def test_a_receipt_that_contradicts_the_copy_is_refused(folder, other):
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
        head, receipt = ledger.head(), ledger.receipt("r")
    copies.back_up("ledger.sqlite", "copy.sqlite")
    with pytest.raises(LedgerError, match=r"'r' is on file in new\.sqlite with another charge, plan or dataset"):
        copies.put_back("copy.sqlite", "new.sqlite", [Memory("the run", (head,), {"r": {**receipt, **other}})], "ann")
    assert not list(folder.glob("new.sqlite*"))
    assert copies.put_back("copy.sqlite", "new.sqlite", [Memory("the run", (head,), {"r": receipt})], "ann").runs == ()


@pytest.mark.parametrize("other", [{"epsilon": 1e-6}, {"digest": "q"}, {"dataset_id": "e"}])
@pytest.mark.parametrize("changed_is", ["first", "last"])
def test_receipts_that_contradict_each_other_are_refused(folder, other, changed_is):
    """Somebody has made a charge small in the record of a run, and the journal knows better."""
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        copies.back_up("ledger.sqlite", "copy.sqlite")
        ledger.open_run("d", "r", "p", Charge(0.5))
        head, receipt = ledger.head(), ledger.receipt("r")
    memories = [Memory(by, (head,), {"r": what}) for by, what in (("x", {**receipt, **other}), ("y", receipt))]
    with pytest.raises(LedgerError, match="remember different charges, plans or datasets of the run 'r'"):
        copies.put_back("copy.sqlite", "new.sqlite", memories[:: 1 if changed_is == "first" else -1], "ann")
    assert not list(folder.glob("new.sqlite*"))


@pytest.mark.parametrize("changed", [{"mu": 1e200}, {"group_size": 2**70}, {"fold": 2**70, "split": "s"}])
def test_a_receipt_that_no_ledger_can_keep_is_one_error(folder, changed):
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
        head, receipt = ledger.head(), ledger.receipt("r")
    other = {**receipt, "run_id": "s", **changed}
    later = Head(head.ledger, head.number + 1, "x")
    with pytest.raises(DpdistError):
        copies.put_back(None, "ledger.sqlite", [Memory("the run", (later,), {"s": other})], "ann")
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        assert [run.run_id for run in ledger.history("d")] == ["r"]


def test_a_ledger_goes_on_from_the_largest_number_that_is_believed(folder):
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
        believed = Head.from_dict({"ledger": ledger.id, "number": 2**62, "token": "x"})
    with pytest.raises(ValueError, match="a head has a number"):
        Head.from_dict({"ledger": believed.ledger, "number": 2**62 + 1, "token": "x"})
    copies.put_back(None, "ledger.sqlite", [Memory("the run", (believed,))], "ann")
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        for run_id in "stu":
            ledger.open_run("d", run_id, "p", Charge(0.5))
        assert ledger.head().number > 2**62


@pytest.mark.parametrize("mu_squared", [Fraction(1, 7), None])
def test_what_is_made_up_is_never_less_than_what_was_seen(folder, mu_squared):
    limit = Limit(Budget(1e3, 0.5), Neighbours.REPLACE_ONE, "basic")
    for i in range(1, 9):
        path = f"{i}.sqlite"
        with contextlib.closing(Ledger(path)) as ledger:
            ledger.open_run("d", "kept", "p", Charge(0.1, 1e-9, mu=0.1))
            ledger.open_run("e", "kept too", "p", Charge(i / 3, 1e-9 * i, mu=0.1))
            head = ledger.head()
        for account, extra in (("d", Fraction(i, 7)), ("e", Fraction(0))):
            with contextlib.closing(Ledger(path)) as ledger:
                kept = ledger.account(account).total
            mu = None if mu_squared is None else kept.mu_squared + extra * mu_squared
            seen = Sums(kept.epsilon + extra, kept.delta + extra / 1000, mu)
            later = Head(head.ledger, head.number + 10, f"{account}")
            memory = Memory("the dataset", (later,), seen=Seen(account, seen, limit, "row", later, None))
            done = copies.put_back(None, path, [memory], "ann")
            assert done.accounts == ((account,) if extra or mu is None else ())
            with contextlib.closing(Ledger(path)) as ledger:
                total = ledger.account(account).total
            assert total.epsilon >= seen.epsilon and total.delta >= seen.delta
            assert (total.mu_squared is None) if mu is None else total.mu_squared >= mu
            assert float(total.epsilon - seen.epsilon) < 1e-12 and float(total.delta - seen.delta) < 1e-12


def test_runs_that_are_charged_again_keep_their_order(folder):
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        copies.back_up("ledger.sqlite", "copy.sqlite")
        for name in ("first", "second", "third"):
            ledger.open_run("d", name, "p", Charge(0.5))
        head, receipts = ledger.head(), {name: ledger.receipt(name) for name in ("third", "first", "second")}
    copies.put_back("copy.sqlite", "new.sqlite", [Memory("the runs", (head,), receipts)], "ann")
    with contextlib.closing(Ledger("new.sqlite")) as ledger:
        assert [run.run_id for run in ledger.history("d")] == ["first", "second", "third"]


@pytest.mark.parametrize("links", [{}, {"": "plain.sqlite"}, {"": "of-the-file", "-wal": "of-the-log"}])
def test_a_plain_copy_is_put_back_with_its_log(folder, links):
    """Also where its name is a symbolic link to it, or file and log are links to what is called by its content."""
    with contextlib.closing(Ledger("ledger.sqlite")) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
        Path("kept").mkdir()
        for end in ("", "-wal"):
            shutil.copyfile(f"ledger.sqlite{end}", Path("kept", links.get(end, f"plain.sqlite{end}")))
    for end, name in links.items():
        Path(f"linked.sqlite{end}").symlink_to(Path("kept", name))
    restore("linked.sqlite" if links else "kept/plain.sqlite", "--nothing-since", "--ledger", "new.sqlite")
    with contextlib.closing(Ledger("new.sqlite")) as ledger:
        assert ledger.n_runs("d") == 1


def test_an_older_journal_in_the_ledgers_database_is_copied_too(folder, monkeypatch):
    monkeypatch.setenv("DPDIST_LEDGER", "ledger.sqlite")
    with contextlib.closing(Ledger()) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
        kept = ("r/0", "r", 1, *journal.encoded(np.ones(2)), sqlite.utc_now())

        def write(db):
            for statement in journal.SCHEMA.migrations[0]:
                db.execute(statement)
            db.execute("INSERT INTO dpdist_epochs VALUES ('r', 1)")
            db.execute("INSERT INTO dpdist_values VALUES (?, ?, ?, ?, ?, ?, ?)", kept)

        ledger._db.write(write)
    backup()
    assert (Journal("copy.sqlite").open("r").get("r/0") == 1.0).all()
