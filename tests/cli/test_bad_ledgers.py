"""Ledgers that are none, or damaged: one error or success each, nothing charged twice and nothing forgotten."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.errors import LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger.location import is_there
from tests.cli.command import call
from tests.postgres import PostgresServer

JOB = """
method: dp-gd
data: {path: rows.zarr}
params: {classes: [0, 1], row_norm: 1.0, solver: {n_rounds: 2}}
budget: {epsilon: 1.0, delta: 1.0e-6}
cluster: threads
ledger: ledger.sqlite
"""
REMEDIES = "[Rr]estore|name (another|a|the|that) |make room|upgrade dpdist"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset with a limit, one run of it, and the ledger kept aside in good.sqlite."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "ledger.sqlite"))
    return tmp_path


@pytest.fixture
def limited(place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The account of a stored dataset with a limit and one run."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    data = Dataset.from_arrays("rows.zarr", X=X, y=(X[:, 0] > 0).astype(int))
    Path("job.yaml").write_text(JOB)
    assert call(capsys, "budget", "set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5").code == 0
    assert call(capsys, "run", "job.yaml", "--output", "first", "--quiet").code == 0
    assert call(capsys, "budget", "backup", "good.sqlite").code == 0
    return data.account


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["files", "a server"])
def elsewhere(request, place) -> str:
    """Where a ledger may be made, and none is."""
    if request.param == "files":
        return str(place / "new.sqlite")
    server = request.getfixturevalue("server")
    server.forget()
    return server.address


def spoil(kind: str, ledger: Path) -> None:
    good = Path("good.sqlite").read_bytes()
    for file in ledger.parent.glob("ledger.sqlite*"):
        file.rmdir() if file.is_dir() else file.unlink()
    match kind:
        case "a directory":
            ledger.mkdir()
        case "another program's":
            with contextlib.closing(sqlite3.connect(ledger)) as other:
                other.execute("CREATE TABLE songs (name)")
        case "zero bytes":
            ledger.touch()
        case "half":
            ledger.write_bytes(good[: len(good) // 2])
        case "a text":
            ledger.write_text("what was spent: nothing. " * 400)
        case "newer":
            ledger.write_bytes(good)
            with contextlib.closing(sqlite3.connect(ledger)) as newer:
                newer.execute("UPDATE dpdist_ledger_version SET version = 99")
                newer.commit()


def test_a_flipped_byte_is_one_error_or_changes_nothing_that_counts(place):
    """In the rows of the last run, the limit, the head and the ledger's name, and in the header of every page."""
    path = place / "ledger.sqlite"
    with contextlib.closing(Ledger(path)) as book:
        book.set_limit("d", Budget(50.0))
        for i in range(3):
            book.open_run("d", f"r{i}", "p", Charge(0.5), user="u", label="x", journal=book.journal)
        head = book.head()
    whole, page = path.read_bytes(), 4096
    words = [b"r2", b'"mu_squared"', b"replace-one", head.token.encode(), head.ledger.encode()]
    starts = [match.start() for word in words for match in re.finditer(re.escape(word), whole)]
    near = {i for at in starts for i in range(at - 40, at + 100) if whole[i]}
    near |= {at + i for at in range(page, len(whole), page) for i in range(14)}  # where a page says what is on it
    said: set[str] = set()
    for number, i in enumerate(sorted(near)):
        for file in place.glob("ledger.sqlite*"):
            file.unlink()
        path.write_bytes(whole[:i] + bytes([whole[i] ^ (0x01, 0x80, 0xFF)[number % 3]]) + whole[i + 1 :])
        try:
            with contextlib.closing(Ledger(path)) as book:
                book.check_remembered(head, "the dataset")
                book.history("d")
                assert book.spent("d").epsilon == 1.5
                book.open_run("d", "r3", "p", Charge(0.5))
                assert book.spent("d").epsilon == 2.0 and book.limit("d") is not None
        except LedgerError as refused:
            said.add(str(refused))
            assert re.search(REMEDIES, str(refused)), refused
    assert len(near) > 500 and any("cannot be read as what was written" in text for text in said)


DAMAGES = [
    ("dpdist_runs", "total = 'x'"),
    ("dpdist_runs", "total = NULL"),
    ("dpdist_runs", "epsilon = 0.25"),
    ("dpdist_runs", "neighbours = 'nobody'"),
    ("dpdist_limits", "epsilon = -1"),
    ("dpdist_limits", "composition = 'none'"),
    ("dpdist_heads", "token = 'x'"),
    ("dpdist_ledger", "id = 'x'"),
]


@pytest.mark.parametrize(("table", "change"), DAMAGES)
def test_an_entry_that_was_changed_is_one_error(table, change, elsewhere):
    """Whoever is charged notices, by what is on file or by what a dataset remembers."""
    with contextlib.closing(Ledger(elsewhere)) as book:
        book.set_limit("d", Budget(50.0))
        for i in range(3):
            book.open_run("d", f"r{i}", "p", Charge(0.5))
        head = book.head()
        book._db.write(lambda db: db.execute(f"UPDATE {table} SET {change}"))
    with contextlib.closing(Ledger(elsewhere)) as book:
        with pytest.raises(LedgerError) as refused:
            book.check_remembered(head, "the dataset")
            book.open_run("d", "r3", "p", Charge(0.5))
        assert re.search(REMEDIES, str(refused.value))
        count = book._db.read(lambda db: db.execute("SELECT COUNT(*) FROM dpdist_runs").fetchone()[0])
        assert count == 3


@pytest.mark.parametrize("name", ["", " survey", "a/b", "two\nlines", "x" * 201])
def test_an_account_name_that_is_none(name, place, capsys):
    np.save("X.npy", np.zeros((10, 2)))
    for words in (
        ["ingest", "X.npy", "rows.zarr", "--account", name],
        ["budget", "set", name, "--new", "--epsilon", "1", "--delta", "0"],
        ["budget", "show", name],
    ):
        said = call(capsys, *words)
        assert said.code == 2 and "Traceback" not in said.err, (words, said)
        assert len(re.findall("dpdist: |Error: ", said.err)) == 1, said.err
    assert not Path("rows.zarr").exists()
    with contextlib.closing(Ledger()) as book:
        assert book.accounts() == []


@pytest.mark.parametrize(
    "kind", ["a directory", "another program's", "zero bytes", "half", "a text", "newer", "nothing"]
)
def test_a_ledger_that_is_none_is_one_error_for_every_command(kind, limited, place, capsys):
    ledger = place / "ledger.sqlite"
    for number, words in enumerate(
        (
            ["run", "job.yaml", "--output", "second", "--quiet"],
            ["run", "job.yaml", "--output", "first", "--resume", "--quiet"],
            ["budget", "set", "rows.zarr", "--epsilon", "9", "--delta", "1e-5"],
            ["budget", "show", "rows.zarr"],
            ["budget", "history", "rows.zarr"],
            ["budget", "backup", "other.sqlite"],
            ["budget", "restore", "--nothing-since"],
            ["budget", "move", "rows.zarr", "--to", "other.sqlite"],
        )
    ):
        spoil(kind, ledger)
        before = ledger.read_bytes() if ledger.is_file() else None
        said = call(capsys, *words)
        assert said.code in (2, 3), (words, said)
        assert said.err.count("dpdist: ") == 1 and "Traceback" not in said.err, (words, said.err)
        assert re.search(REMEDIES, said.err), said.err
        assert before is None or ledger.read_bytes() == before or not before, (number, "the file was changed")
        assert not Path("other.sqlite").exists()
    if ledger.is_dir():
        ledger.rmdir()
    shutil.copyfile("good.sqlite", ledger)
    with contextlib.closing(Ledger()) as book:
        assert book.spent(limited).epsilon == pytest.approx(1.0) and len(book.history(limited)) == 1
    assert call(capsys, "run", "job.yaml", "--output", "second", "--resume", "--quiet").code == 0
    with contextlib.closing(Ledger()) as book:
        assert book.spent(limited).epsilon == pytest.approx(2.0) and len(book.history(limited)) == 2


def test_a_refused_limit_or_move_makes_no_ledger(elsewhere, limited, place, capsys):
    terms = ("--epsilon", "3", "--delta", "0")
    np.save("X.npy", np.zeros((10, 2)))
    assert call(capsys, "ingest", "X.npy", "free.zarr").code == 0
    for code, words, why in (
        (3, ["budget", "set", "rows.zarr", *terms, "--ledger", elsewhere], "is limited by the ledger"),
        (2, ["budget", "set", "nobody", *terms, "--ledger", elsewhere], "no account of that name"),
        (2, ["budget", "set", "free.zarr", *terms, "--composition", "gaussian", "--ledger", elsewhere], "delta > 0"),
        (2, ["budget", "move", "rows.zarr", "--to", elsewhere, "--dataset", "free.zarr"], "another account"),
        (2, ["budget", "move", "free.zarr", "--to", elsewhere], "nothing to move"),
    ):
        said = call(capsys, *words)
        assert said.code == code and why in said.err and "memory" not in said.err, (words, said)
        assert not is_there(elsewhere) and not list(place.glob("new.sqlite*")), words
    assert call(capsys, "budget", "move", "rows.zarr", "--to", elsewhere).code == 0
    assert call(capsys, "budget", "set", "free.zarr", *terms, "--ledger", elsewhere).code == 0
    with contextlib.closing(Ledger(elsewhere)) as book:
        assert book.spent(limited).epsilon == pytest.approx(1.0) and len(book.accounts()) == 2


def test_the_doctor_says_that_a_dataset_belongs_to_another_ledger(elsewhere, limited, place, capsys, kept_folder):
    def examined(ledger: object) -> tuple[int, str]:
        said = call(capsys, "doctor", "job.yaml", "--set", f"ledger={ledger}", "--json")
        return said.code, " ".join(one["says"] for one in json.loads(said.out)["findings"] if one["check"] == "account")

    _, says = examined("ledger.sqlite")
    assert "is limited by this ledger" in says
    code, says = examined(elsewhere)
    assert code == 2 and "is limited by the ledger with the id" in says and "there is no ledger at" in says
    with contextlib.closing(Ledger(elsewhere)) as other:
        other.open_run("d", "r", "p", Charge(0.5))
    code, says = examined(elsewhere)
    assert code == 2 and "belongs to the ledger with the id" in says and "and put" not in says
    shutil.copyfile("good.sqlite", "older.sqlite")
    assert call(capsys, "run", "job.yaml", "--output", "second", "--quiet").code == 0
    code, says = examined("older.sqlite")
    assert code == 2 and "is older than what the dataset" in says
    assert call(capsys, "budget", "move", "rows.zarr", "--to", place / "moved.sqlite").code == 0
    assert "is limited by this ledger" in examined("moved.sqlite")[1]


def test_a_ledger_that_has_forgotten_nothing_is_not_restored(limited, place, capsys):
    with contextlib.closing(Ledger()) as book:
        before = book.head()
    for words in (["--nothing-since"], ["--dataset", "rows.zarr"], ["--runs", "first", "--nothing-since"]):
        said = call(capsys, "budget", "restore", *words)
        assert said.code == 2 and "there is nothing to restore" in said.err, said
    with contextlib.closing(Ledger()) as book:
        assert book.head() == before and book.events() == []
    assert call(capsys, "run", "job.yaml", "--output", "first", "--resume", "--quiet").code == 0


def test_a_copy_or_a_ledger_without_a_name(limited, capsys):
    for words in (["backup", ""], ["backup", "c.sqlite", "--ledger", ""], ["restore", "", "--nothing-since"],
                  ["restore", "good.sqlite", "--nothing-since", "--ledger", ""]):  # fmt: skip
        said = call(capsys, "budget", *words)
        assert said.code == 2 and 'got ""' in said.err, (words, said)
    assert not Path("c.sqlite").exists()
