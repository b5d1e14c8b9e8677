"""Ledgers that are none, or damaged: one error or success each, nothing charged twice and nothing forgotten."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.errors import LedgerError
from dpdist.privacy.accounting.charge import Charge
from tests.cli.command import call

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
