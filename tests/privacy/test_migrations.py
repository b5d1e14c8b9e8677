"""Versions of the tables, on a real SQLite file and a real PostgreSQL server: made, adopted, migrated once, refused."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from dpdist.engine.doctor_places import examine_journal, examine_ledger
from dpdist.errors import LedgerError
from dpdist.privacy import journal, ledger, migrations, sqlite
from dpdist.privacy.budget import Budget
from dpdist.privacy.filter import Charge
from dpdist.privacy.journal import Journal
from dpdist.privacy.ledger import Ledger
from tests.postgres import PostgresServer

PROCESSES = multiprocessing.get_context("spawn")
FIRST = ledger.SCHEMA
SECOND = migrations.Schema(
    FIRST.part,
    FIRST.table,
    (
        *FIRST.migrations,
        (
            "CREATE TABLE dpdist_owners (dataset_id TEXT PRIMARY KEY NOT NULL, weight REAL NOT NULL, photo BLOB)",
            "INSERT INTO dpdist_owners (dataset_id, weight) SELECT DISTINCT dataset_id, 1.5 FROM dpdist_runs",
            "CREATE INDEX dpdist_runs_of ON dpdist_runs (dataset_id)",
        ),
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["file", "server"])
def place(request, tmp_path) -> str:
    """Where a ledger may be made."""
    if request.param == "file":
        return str(tmp_path / "ledger.sqlite")
    server = request.getfixturevalue("server")
    server.forget()
    return server.address


def use_second(monkeypatch) -> None:
    """From here on this is a newer program."""
    monkeypatch.setattr(ledger, "SCHEMA", SECOND)


def charged(path: str, run_id: str = "r") -> None:
    with contextlib.closing(Ledger(path)) as account:
        account.set_limit("d", Budget(2.0))
        account.open_run("d", run_id, "plan", Charge(0.5))


def spent(path: str) -> list[tuple[str, float]]:
    with contextlib.closing(Ledger(path)) as account:
        assert account.limit("d").budget == Budget(2.0)
        return [(run.run_id, run.epsilon) for run in account.history("d")]


def look(path: str, schema: migrations.Schema = FIRST) -> tuple[int, bool]:
    """The version that is there, and whether it is recorded; changes nothing."""
    with contextlib.closing(sqlite.open_store(path, None)) as store:
        return store.read(lambda db: migrations.found_version(store, db, schema))


def execute(path: str, *statements: str) -> None:
    with contextlib.closing(sqlite.open_store(path, None)) as store:
        store.write(lambda db: [db.execute(statement) for statement in statements])


def test_a_new_ledger_and_a_new_journal_record_their_versions(place):
    charged(place)
    assert look(place) == (1, True) and look(place, journal.SCHEMA) == (0, False)
    Journal(place).close()
    assert look(place, journal.SCHEMA) == (1, True)


def test_what_a_program_without_versions_left_is_adopted(place):
    charged(place)
    Journal(place).open("r").put("r/0", np.ones(2))
    execute(place, "DROP TABLE dpdist_ledger_version", "DROP TABLE dpdist_journal_version")
    assert look(place) == (1, False) and look(place, journal.SCHEMA) == (1, False)
    assert spent(place) == [("r", 0.5)] and look(place) == (1, True)
    assert (Journal(place).open("r").get("r/0") == 1.0).all() and look(place, journal.SCHEMA) == (1, True)


@pytest.mark.parametrize("recorded", [True, False])
def test_an_older_ledger_is_migrated_and_keeps_every_charge(place, monkeypatch, recorded):
    charged(place)
    if not recorded:
        execute(place, "DROP TABLE dpdist_ledger_version")
    use_second(monkeypatch)
    assert spent(place) == [("r", 0.5)] and look(place) == (2, True)
    charged(place, "s")
    assert spent(place) == [("r", 0.5), ("s", 0.5)]
    with contextlib.closing(sqlite.open_store(place, None)) as store:
        owners = store.read(lambda db: db.execute("SELECT dataset_id, weight FROM dpdist_owners").fetchall())
    assert owners == [("d", 1.5)]


def test_a_new_ledger_gets_all_migrations(place, monkeypatch):
    use_second(monkeypatch)
    charged(place)
    assert spent(place) == [("r", 0.5)] and look(place) == (2, True)


def test_a_newer_ledger_is_refused_before_anything_is_charged(place, monkeypatch):
    charged(place)
    with monkeypatch.context() as newer:
        use_second(newer)
        charged(place, "s")
    with pytest.raises(LedgerError, match=r"has version 2, and this dpdist knows versions up to 1: upgrade dpdist"):
        charged(place, "t")
    use_second(monkeypatch)
    assert spent(place) == [("r", 0.5), ("s", 0.5)]


def test_a_program_that_has_the_ledger_open_stops_when_a_newer_one_migrates_it(place, monkeypatch):
    charged(place)
    old = Ledger(place)
    with monkeypatch.context() as newer:
        use_second(newer)
        Ledger(place).close()
    with pytest.raises(LedgerError, match="upgrade dpdist"):
        old.open_run("d", "s", "plan", Charge(0.5))
    use_second(monkeypatch)
    assert spent(place) == [("r", 0.5)]


def open_newer(path: str, start, results) -> None:
    ledger.SCHEMA = SECOND
    start.wait()
    try:
        results.put([run.run_id for run in Ledger(path).history("d")])
    except LedgerError as error:
        results.put(str(error))


def test_of_several_openers_one_migrates(place):
    charged(place)
    results, start = PROCESSES.Queue(), PROCESSES.Event()
    processes = [PROCESSES.Process(target=open_newer, args=(place, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    start.set()
    assert [results.get(timeout=60) for _ in processes] == [["r"]] * 3  # a second CREATE TABLE would fail
    for process in processes:
        process.join(60)
    assert look(place) == (2, True)


def die_in_migration(path: str) -> None:
    ledger.SCHEMA = SECOND
    for kind in (sqlite.Database, sqlite.PostgresDatabase):
        real = kind.define

        def define(self, db, statement, real=real):
            if statement.startswith("CREATE INDEX"):  # the statements before it have been executed
                os.kill(os.getpid(), signal.SIGKILL)
            real(self, db, statement)

        kind.define = define
    Ledger(path)


def test_a_migration_that_is_killed_leaves_the_old_version(place, monkeypatch):
    charged(place)
    process = PROCESSES.Process(target=die_in_migration, args=(place,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert look(place) == (1, True) and spent(place) == [("r", 0.5)]
    use_second(monkeypatch)
    assert spent(place) == [("r", 0.5)] and look(place) == (2, True)


def test_the_doctor_says_the_version(place, monkeypatch):
    charged(place)
    Journal(place).close()
    assert any("its tables have version 1, a trial charge" in one.says for one in examine_ledger(place))
    monkeypatch.setattr("dpdist.engine.doctor_places.LEDGER", SECOND)
    (old,) = [one for one in examine_ledger(place) if one.check == "ledger version"]
    assert old.status == "warn" and "version 1; the next run changes it to 2" in old.says
    monkeypatch.setattr("dpdist.engine.doctor_places.LEDGER", FIRST)
    assert look(place) == (1, True) and spent(place) == [("r", 0.5)]
    use_second(monkeypatch)
    Ledger(place).close()
    for examine in (examine_ledger, examine_journal):
        (newer,) = [one for one in examine(place) if one.status == "fail" and "upgrade dpdist" in one.says]
        assert "version 2" in newer.says


# -- accounts of a server that may use the tables and make none ---------------------------------------------------


@pytest.fixture
def runner(server) -> Iterator[str]:
    """The address of an account that may use the tables that are there, and may not create; the ledger's as well."""
    server.forget()
    charged(server.address)
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("CREATE ROLE runner LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA public TO runner")
        for table in ("runs", "limits", "releases"):
            connection.execute(f"GRANT SELECT, INSERT, UPDATE ON dpdist_{table} TO runner")
        yield server.address.replace("tester@", "runner@")
        connection.execute("DROP OWNED BY runner")
        connection.execute("DROP ROLE runner")


def test_an_account_without_the_right_to_create_uses_what_is_there(runner):
    charged(runner, "s")
    assert spent(runner) == [("r", 0.5), ("s", 0.5)]


def test_such_an_account_uses_tables_without_a_version_and_after_their_adoption(runner, server):
    execute(server.address, "DROP TABLE dpdist_ledger_version")
    charged(runner, "s")
    assert look(runner) == (1, False)
    charged(server.address, "t")
    assert look(runner) == (1, True)
    charged(runner, "u")
    assert [run_id for run_id, _ in spent(runner)] == ["r", "s", "t", "u"]


def test_such_an_account_is_told_who_migrates(runner, server, monkeypatch):
    use_second(monkeypatch)
    with pytest.raises(LedgerError, match="their owner opens them once after an upgrade"):
        Ledger(runner)
    assert look(runner) == (1, True)
    Ledger(server.address).close()
    charged(runner, "s")
    assert look(runner) == (2, True)
