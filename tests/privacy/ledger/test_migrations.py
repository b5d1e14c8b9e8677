"""Versions of the tables, on a real SQLite file and a real PostgreSQL server: made, adopted, migrated once, refused."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from dpdist.engine.doctor_stores import examine_journal, examine_ledger
from dpdist.errors import LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.budget import Budget
from dpdist.privacy.ledger import journal, ledger, migrations, sqlite
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.records import check_sums
from tests.processes import PROCESSES

PRESENT = ledger.SCHEMA
VERSION = PRESENT.version
NEWER = migrations.Schema(
    PRESENT.part,
    PRESENT.table,
    (
        *PRESENT.migrations,
        (
            "CREATE TABLE dpdist_owners (dataset_id TEXT PRIMARY KEY NOT NULL, weight REAL NOT NULL, photo BLOB)",
            "INSERT INTO dpdist_owners (dataset_id, weight) SELECT DISTINCT dataset_id, 1.5 FROM dpdist_runs",
            "CREATE INDEX dpdist_runs_of ON dpdist_runs (dataset_id)",
        ),
    ),
)


@pytest.fixture(params=["file", "server"])
def place(request, tmp_path) -> str:
    """Where a ledger may be made."""
    if request.param == "file":
        return str(tmp_path / "ledger.sqlite")
    postgres_server = request.getfixturevalue("postgres_server")
    return postgres_server.address


def use_newer(monkeypatch) -> None:
    """From here on this is a newer program."""
    monkeypatch.setattr(ledger, "SCHEMA", NEWER)


def charged(path: str, run_id: str = "r") -> None:
    with contextlib.closing(Ledger(path)) as account:
        account.set_limit("d", Budget(2.0))
        account.open_run("d", run_id, "plan", Charge(0.5))


def left_by_the_first(path: str, recorded: bool = True) -> None:
    """What the first program wrote: a limit, a charged run with one release, and its value; it knew no versions."""

    def write(db: Any) -> None:
        for schema in (ledger.SCHEMA, journal.SCHEMA):
            for statement in schema.migrations[0]:
                store.define(db, statement)
            if recorded:
                store.define(db, f"CREATE TABLE {schema.record} (version INTEGER NOT NULL)")
                db.execute(f"INSERT INTO {schema.record} VALUES (1)")
                store.let_read(db, schema.record)
        now = sqlite.utc_now()
        db.execute(
            "INSERT INTO dpdist_limits VALUES (?, ?, ?, ?, ?, ?, ?)", ("d", 1, now, 2.0, 0.0, "replace-one", "basic")
        )
        run = ("r", "d", 1, "plan", 0.5, 0.0, "replace-one", None, None, None, now, "ann@node1", "1 x sum")
        db.execute("INSERT INTO dpdist_runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", run)
        release = ("r/0", "r", 0, "sum", "Laplace", 2.0, 1.0, "pure 0.5", now)
        db.execute("INSERT INTO dpdist_releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", release)
        db.execute("INSERT INTO dpdist_epochs VALUES ('r', 1)")
        value = ("r/0", "r", 1, *journal.encoded(np.ones(2)), now)
        db.execute("INSERT INTO dpdist_values VALUES (?, ?, ?, ?, ?, ?, ?)", value)

    with contextlib.closing(sqlite.open_store(path, None)) as store:
        store.write(write)


def spent(path: str) -> list[tuple[str, float]]:
    with contextlib.closing(Ledger(path)) as account:
        assert account.limit("d").budget == Budget(2.0)
        return [(run.run_id, run.epsilon) for run in account.history("d")]


def look(path: str, schema: migrations.Schema = PRESENT) -> tuple[int, bool]:
    """The version that is there, and whether it is recorded; changes nothing."""
    with contextlib.closing(sqlite.open_store(path, None)) as store:
        return store.read(lambda db: migrations.found_version(store, db, schema))


def select(path: str, statement: str) -> list[tuple]:
    with contextlib.closing(sqlite.open_store(path, None)) as store:
        return store.read(lambda db: [tuple(row) for row in db.execute(statement).fetchall()])


def test_a_new_ledger_and_a_new_journal_record_their_versions(place):
    charged(place)
    assert look(place) == (VERSION, True) and look(place, journal.SCHEMA) == (0, False)
    Journal(place).close()
    assert look(place, journal.SCHEMA) == (journal.SCHEMA.version, True)


@pytest.mark.parametrize("recorded", [True, False])
def test_an_older_ledger_is_migrated_and_keeps_every_charge(place, recorded):
    left_by_the_first(place, recorded)
    assert look(place) == (1, recorded) and look(place, journal.SCHEMA) == (1, recorded)
    assert spent(place) == [("r", 0.5)] and look(place) == (VERSION, True)
    assert (Journal(place).open("r").get("r/0") == 1.0).all()
    assert look(place, journal.SCHEMA) == (journal.SCHEMA.version, True)
    charged(place, "s")
    charged(place, "s")
    assert spent(place) == [("r", 0.5), ("s", 0.5)]
    with contextlib.closing(Ledger(place)) as account:
        assert account.spent("d").epsilon == 1.0 and account.accounts() == ["d"]
        assert account.open_run("d", "r", "plan", Charge(0.5)).resumed


def test_a_migrated_ledger_has_an_id_a_head_accounts_and_exact_totals(place):
    left_by_the_first(place)
    with contextlib.closing(Ledger(place)) as account:
        name, head = account.id, account.head()
        assert (head.ledger, head.number) == (name, 2) and len(name) == len(head.token) == 32
        assert len(account.journal.id) == 32
    assert select(place, "SELECT account, unit FROM dpdist_accounts") == [("d", None)]
    assert select(place, "SELECT dataset_id, account FROM dpdist_datasets") == [("d", "d")]
    charged(place, "s")
    with contextlib.closing(sqlite.open_store(place, None)) as store:
        assert store.read(check_sums) == 2
    with contextlib.closing(Ledger(place)) as account:
        account.check_remembered(head, "somebody")
        assert [float(run.total.epsilon) for run in account.history("d")] == [0.5, 1.0]
        assert (account.id, account.head().number) == (name, 3)
    assert select(place, "SELECT number, what, subject FROM dpdist_heads ORDER BY number") == [
        (2, "begin", ""),
        (3, "charge", "s"),
    ]


def tables(store: Any) -> list[tuple[Any, ...]]:
    """How the tables of an SQLite database are defined, and what is in them beside names and times."""
    found = store._connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
    names = [name for kind, name, *_ in found if kind == "table"]
    counts = [(name, store._connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]) for name in names]
    versions = [store._connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if "version" in name]
    return [*found, *counts, *versions]


def test_a_ledger_in_memory_is_one_on_disk_with_a_name_of_its_own(tmp_path):
    """Its tables are copied; what makes a ledger this one and no other is not."""
    with contextlib.ExitStack() as opened:
        paths = (tmp_path / "a", ":memory:", ":memory:")
        made = [opened.enter_context(contextlib.closing(Ledger(path))) for path in paths]
        journals = [one.journal.id for one in made]  # in the same databases
        assert tables(made[0]._db) == tables(made[1]._db) == tables(made[2]._db)
        heads = [one.head() for one in made]
        assert len({head.ledger for head in heads}) == len({head.token for head in heads}) == len(set(journals)) == 3
        alone = opened.enter_context(contextlib.closing(journal.Journal(":memory:")))
        assert alone.id not in journals


def test_a_newer_program_migrates_further(place, monkeypatch):
    charged(place)
    use_newer(monkeypatch)
    assert spent(place) == [("r", 0.5)] and look(place) == (VERSION + 1, True)
    charged(place, "s")
    assert spent(place) == [("r", 0.5), ("s", 0.5)]
    assert select(place, "SELECT dataset_id, weight FROM dpdist_owners") == [("d", 1.5)]


def test_a_new_ledger_gets_all_migrations(place, monkeypatch):
    use_newer(monkeypatch)
    charged(place)
    assert spent(place) == [("r", 0.5)] and look(place) == (VERSION + 1, True)


def test_a_newer_ledger_is_refused_before_anything_is_charged(place, monkeypatch):
    charged(place)
    with monkeypatch.context() as newer:
        use_newer(newer)
        charged(place, "s")
    known = f"has version {VERSION + 1}, and this dpdist knows versions up to {VERSION}: upgrade dpdist"
    with pytest.raises(LedgerError, match=known):
        charged(place, "t")
    use_newer(monkeypatch)
    assert spent(place) == [("r", 0.5), ("s", 0.5)]


def test_a_program_that_has_the_ledger_open_stops_when_a_newer_one_migrates_it(place, monkeypatch):
    charged(place)
    old = Ledger(place)
    with monkeypatch.context() as newer:
        use_newer(newer)
        Ledger(place).close()
    with pytest.raises(LedgerError, match="upgrade dpdist"):
        old.open_run("d", "s", "plan", Charge(0.5))
    use_newer(monkeypatch)
    assert spent(place) == [("r", 0.5)]


def open_it(path: str, start, results) -> None:
    start.wait()
    try:
        with contextlib.closing(Ledger(path)) as account:
            results.put((account.id, [run.run_id for run in account.history("d")]))
    except LedgerError as error:
        results.put(str(error))


def test_of_several_openers_one_migrates(place):
    left_by_the_first(place)
    results, start = PROCESSES.Queue(), PROCESSES.Event()
    processes = [PROCESSES.Process(target=open_it, args=(place, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    start.set()
    found = [results.get(timeout=60) for _ in processes]
    assert found == [(found[0][0], ["r"])] * 3  # a second CREATE TABLE would fail
    for process in processes:
        process.join(60)
    assert look(place) == (VERSION, True)


def die_in_migration(path: str) -> None:
    for kind in (sqlite.Database, sqlite.PostgresDatabase):
        real = kind.define

        def define(self, db, statement, real=real):
            if statement.startswith("CREATE INDEX"):  # the statements before it have been executed
                os.kill(os.getpid(), signal.SIGKILL)
            real(self, db, statement)

        kind.define = define
    Ledger(path)


def test_a_migration_that_is_killed_leaves_the_old_version(place):
    left_by_the_first(place)
    process = PROCESSES.Process(target=die_in_migration, args=(place,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert look(place) == (1, True)
    assert select(place, "SELECT run_id, epsilon FROM dpdist_runs") == [("r", 0.5)]
    assert spent(place) == [("r", 0.5)] and look(place) == (VERSION, True)


def test_the_doctor_says_the_version(place, monkeypatch):
    left_by_the_first(place)
    (old,) = [one for one in examine_ledger(place) if "the ledger has version 1" in one.says]
    assert old.status == "warn" and f"version 1; the next run changes it to {VERSION}" in old.says
    assert look(place) == (1, True)
    Ledger(place).close()
    Journal(place).close()
    assert any(f"its tables have version {VERSION}, a trial charge" in one.says for one in examine_ledger(place))
    assert spent(place) == [("r", 0.5)]
    use_newer(monkeypatch)
    Ledger(place).close()
    for examine in (examine_ledger, examine_journal):
        (newer,) = [one for one in examine(place) if one.status == "fail" and "upgrade dpdist" in one.says]
        assert f"version {VERSION + 1}" in newer.says


# -- accounts of a server that may use the tables and make none ---------------------------------------------------


@pytest.fixture
def runner(postgres_server) -> Iterator[str]:
    """The address of an account that may use the first program's tables, and may not create; the ledger's as well."""
    left_by_the_first(postgres_server.address)
    with psycopg.connect(postgres_server.address, autocommit=True) as connection:
        connection.execute('CREATE ROLE "the runner" LOGIN')
        connection.execute('GRANT USAGE ON SCHEMA public TO "the runner"')
        for table in ("runs", "limits", "releases", "epochs", "values"):
            connection.execute(f'GRANT SELECT, INSERT, UPDATE ON dpdist_{table} TO "the runner"')
        yield postgres_server.address.replace("tester@", "the%20runner@")
        connection.execute('DROP OWNED BY "the runner"')
        connection.execute('DROP ROLE "the runner"')


def test_an_account_without_the_right_to_create_is_told_who_migrates(runner):
    for part in (Ledger, Journal):
        with pytest.raises(LedgerError, match="their owner opens them once after an upgrade"):
            part(runner)
    assert look(runner) == (1, True)


def test_such_an_account_may_use_what_the_owner_has_migrated(runner, postgres_server):
    with contextlib.closing(Ledger(postgres_server.address)) as account:
        assert account.journal.id
    assert look(runner) == (VERSION, True)
    charged(runner, "s")
    assert spent(runner) == [("r", 0.5), ("s", 0.5)]
    with contextlib.closing(Ledger(runner)) as account:
        account.journal.open("s").put("s/0", np.ones(2))
        account.journal.remember(account.head())
        assert account.journal.remembered(account.id) == account.head()


def test_an_account_that_is_shown_some_of_the_runs_only_is_refused(runner, postgres_server):
    """It would not see what others have spent, and the limit would be there for each."""
    with contextlib.closing(Ledger(postgres_server.address)) as owner:
        owner.set_limit("limited", Budget(1.0))
        owner.open_run("limited", "of the owner", "p", Charge(1.0))
        with psycopg.connect(postgres_server.address, autocommit=True) as connection:
            connection.execute("ALTER TABLE dpdist_runs ENABLE ROW LEVEL SECURITY")
            connection.execute("CREATE POLICY own ON dpdist_runs USING (user_name = 'the runner')")
        with contextlib.closing(Ledger(runner)) as account, pytest.raises(LedgerError, match="it needs BYPASSRLS"):
            account.open_run("limited", "s", "p", Charge(1.0), user="the runner")
        assert owner.spent("limited").epsilon == 1.0
