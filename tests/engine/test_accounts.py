"""One account for the people in the data: copies, several tables and arrays about them pay from one limit."""

from __future__ import annotations

import csv
import json
import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.model_selection import GridSearchCV

from dpdist import Budget, Dataset, Ledger, LogisticRegression
from dpdist.central import GradientDescent
from dpdist.cli import main
from dpdist.data.ingestion import ingest
from dpdist.errors import BudgetError, BudgetExceeded, DataError, LedgerError
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.privacy.accounting.charge import Charge
from tests.postgres import PostgresServer


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory whose default ledger does not exist yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "ledger.sqlite"))
    return tmp_path


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["a file", "a server"])
def shared(request, place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The default ledger."""
    if request.param == "a server":
        server = request.getfixturevalue("server")
        server.forget()
        monkeypatch.setenv("DPDIST_LEDGER", server.address)
    return os.environ["DPDIST_LEDGER"]


def fit(data: Dataset, **options) -> LogisticRegression:
    fixed = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
    fixed["solver"] = GradientDescent(2)
    return LogisticRegression(**fixed, **options).fit(data)


def table(seed: int, path: str | None = None, **options) -> Dataset:
    X = np.random.default_rng(seed).normal(size=(300, 2))
    return Dataset.from_arrays(path, X=X, y=(X[:, 0] > 0).astype(int), **options)


def dpdist(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done


# -- who pays -----------------------------------------------------------------------------------------------------


def test_a_dataset_pays_from_its_own_account_unless_it_names_one(place):
    own, shared = table(0, "own.zarr"), table(1, "shared.zarr", account="survey-2026")
    assert own.account == own.id and shared.account == "survey-2026" != shared.id
    for opened in (Dataset.open("shared.zarr"), Dataset.open("shared.zarr", account="survey-2026")):
        assert opened.account == opened.select(X="X").account == "survey-2026"
    assert "account='survey-2026'" in repr(shared) and "account=" not in repr(own)
    assert "survey-2026" in shared._repr_html_()
    with pytest.raises(DataError, match=r"account 'survey-2026', not 'other'.*stays where it is"):
        Dataset.open("shared.zarr", account="other")
    with pytest.raises(DataError, match="pays from the account"):
        Dataset.open("own.zarr", account="survey-2026")
    assert Dataset.open("own.zarr", account=own.id).account == own.id


def test_tables_copies_and_arrays_of_one_account_share_its_limit(shared):
    ledger = Ledger()
    ledger.set_limit("survey-2026", Budget(3.0, 1e-5))
    several = [
        table(0, "first.zarr", account="survey-2026"),
        table(1, "second.zarr", account="survey-2026"),
        table(2, account="survey-2026", dataset_id="arrays"),
    ]
    for i, data in enumerate(several):
        fit(data, ledger=ledger, run_id=f"r{i}")
    assert ledger.spent("survey-2026").epsilon == pytest.approx(3.0)
    assert ledger.accounts() == ["survey-2026"]
    assert ledger.datasets("survey-2026") == sorted(data.id for data in several)
    for data in (*several, table(0, "again.zarr", account="survey-2026"), table(3, account="survey-2026")):
        with pytest.raises(BudgetExceeded, match="'survey-2026'"):
            fit(data, ledger=ledger)
    assert fit(several[2], ledger=ledger, run_id="r2").coef_ is not None  # a resume is free


def test_arrays_that_only_name_an_account_are_charged_to_the_default_ledger(place):
    fit(table(0, account="survey-2026"))
    fit(table(0, account="survey-2026"))
    assert Ledger().spent("survey-2026").epsilon == pytest.approx(2.0)


def test_a_dataset_cannot_change_its_account_behind_the_ledgers_back(place):
    ledger = Ledger()
    fit(table(0, dataset_id="d"), ledger=ledger)
    with pytest.raises(LedgerError, match="is charged to the account 'd' and cannot be charged to 'new' as well"):
        fit(table(0, dataset_id="d", account="new"), ledger=ledger)
    assert ledger.spent("d").epsilon == pytest.approx(1.0) and ledger.accounts() == ["d"]


@pytest.mark.parametrize("name", ["", " ", " a", "a ", "a/b", "a\\b", "a\nb", "a\x00b", "e\u0301", "x" * 201, 7, b"a"])
def test_names_that_are_none(place, name):
    def message(act) -> str:
        with pytest.raises(BudgetError, match="cannot be the name of an account") as refused:
            act()
        return str(refused.value)

    message(lambda: table(0, account=name))
    message(lambda: table(0, "rows.zarr", account=name))
    assert not Path("rows.zarr").exists()
    message(lambda: Ledger(":memory:").open_run("d", "r", "p", Charge(1.0), account=name))


# -- from files, jobs and commands --------------------------------------------------------------------------------


def write_csv(path: str) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "late"])
        writer.writerows([i % 7, i % 3, i % 2] for i in range(200))


def test_a_table_that_is_ingested_again_goes_on_with_its_account(shared):
    write_csv("t.csv")
    options = ["--features", "a,b", "--label", "late"]
    for name in ("monday", "tuesday"):
        done = json.loads(dpdist("ingest", "t.csv", name, *options, "--account", "survey-2026", "--json").stdout)
        assert done["account"] == "survey-2026" != done["id"]
    assert "survey-2026" in dpdist("info", "monday").stdout
    dpdist("budget", "set", "monday", "--epsilon", "1.5", "--delta", "1e-5")
    fit(Dataset.open("monday"))
    with pytest.raises(BudgetExceeded):
        fit(Dataset.open("tuesday"))
    first, second = (Dataset.open(name).id for name in ("monday", "tuesday"))
    for name in ("survey-2026", "monday", "tuesday", first):
        shown = json.loads(dpdist("budget", "show", name, "--json").stdout)
        assert (shown["account"], shown["spent"]["epsilon"]) == ("survey-2026", pytest.approx(1.0))
        assert shown["datasets"] == [first]
    assert first in dpdist("budget", "show", "survey-2026").stdout
    with pytest.raises(BudgetError, match="cannot be the name of an account"):
        ingest("t.csv", "wednesday", features=["a"], account="a/b")
    assert not Path("wednesday").exists() and second != first


JOB = """
method: dp-gd
data: {path: rows.zarr, id: rows, account: %s}
params: {classes: [0, 1], row_norm: 1.0, solver: {GradientDescent: {n_rounds: 2}}}
budget: {epsilon: 1.0, delta: 1.0e-6}
output: %s
"""


def test_a_job_names_the_account_of_a_store_of_others_and_its_record_says_who_paid(place):
    import zarr

    X = np.random.default_rng(0).normal(size=(300, 2))
    group = zarr.open_group("rows.zarr", mode="w")
    group.create_array("X", data=X)
    group.create_array("y", data=(X[:, 0] > 0).astype(int))
    Path("job.yaml").write_text(JOB % ("survey-2026", "out"))
    assert "survey-2026" in dpdist("plan", "job.yaml").stdout
    record = run_job(load_job("job.yaml"))
    assert record["dataset"]["account"] == "survey-2026" and record["dataset"]["id"] == "rows"
    assert record["budget"]["after"]["epsilon"] == pytest.approx(1.0)
    assert Ledger().spent("survey-2026").epsilon == pytest.approx(1.0)
    assert Dataset.open("rows.zarr").account == "survey-2026", "kept beside the id"
    assert "survey-2026" in Path("out/report.html").read_text()
    told = dpdist("run", "job.yaml", "--output", "out2", "--quiet").stdout
    assert "survey-2026" in told
    Path("job.yaml").write_text(JOB % ("a/b", "out3"))
    refused = dpdist("run", "job.yaml", code=2)
    assert "job.yaml, line 3: data.account: 'a/b' cannot be the name of an account" in refused.stderr


def test_a_limit_is_set_on_a_name_before_there_is_any_data(place):
    dpdist("budget", "set", "survey-2026", "--new", "--epsilon", "1", "--delta", "1e-5")
    refused = dpdist("budget", "set", "a/b", "--new", "--epsilon", "1", "--delta", "1e-5", code=2)
    assert "cannot be the name of an account" in refused.stderr
    fit(table(0, "rows.zarr", account="survey-2026"))
    with pytest.raises(BudgetExceeded):
        fit(Dataset.open("rows.zarr"))


# -- arrays without a name ----------------------------------------------------------------------------------------


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(300, 2))
    return X, (X[:, 0] > 0).astype(int)


def model(**options) -> LogisticRegression:
    return LogisticRegression(
        classes=[0, 1],
        row_norm=1.0,
        epsilon=1.0,
        delta=1e-6,
        cluster="threads",
        **{"solver": GradientDescent(2), **options},
    )


UNNAMED = r"nothing adds up what is learned about the same people.*Dataset\.from_arrays\(X=X, y=y, account="


def test_repeated_fits_of_unnamed_arrays_on_one_ledger_warn_and_say_how_they_would_be_added_up(shared):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            model().fit(*rows())  # a ledger each, in memory
        model(ledger=shared).fit(*rows())  # the first one
    with pytest.warns(UserWarning, match=UNNAMED):
        model(ledger=shared).fit(*rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(table(0, account="survey-2026"), ledger=shared)
        fit(table(0, dataset_id="d"), ledger=shared)


def test_a_grid_search_warns_unless_its_ledger_names_the_account(shared):
    grid = {"solver__n_rounds": [2, 3]}
    with pytest.warns(UserWarning, match=r"as in a grid search, ledger=Ledger\(path, account='survey-2026'\)"):
        GridSearchCV(model(ledger=Ledger(shared)), grid, cv=2).fit(*rows())
    ledger = Ledger(shared, account="survey-2026")
    ledger.set_limit("survey-2026", Budget(5.0, 1e-4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        GridSearchCV(model(ledger=ledger), grid, cv=2).fit(*rows())  # 2 x 2 fits, and one of all rows
    assert len(ledger.accounts()) == 6 and ledger.spent("survey-2026").epsilon == pytest.approx(5.0)
    with pytest.raises(BudgetExceeded):
        model(ledger=ledger).fit(*rows())
    with pytest.raises(BudgetError, match="cannot be the name"):
        Ledger("other.sqlite", account="a/b")


def test_a_ledger_is_sent_to_other_processes_with_the_account_that_it_names(place):
    again = pickle.loads(pickle.dumps(model(ledger=Ledger("l.sqlite", account="survey-2026"))))
    again.fit(*rows())
    assert Ledger("l.sqlite").spent("survey-2026").epsilon == pytest.approx(1.0)
    with pytest.raises(LedgerError, match="give it a file"):
        pickle.dumps(Ledger(":memory:"))


def test_a_dataset_that_names_its_account_pays_from_that_one(place):
    fit(table(0, account="survey-2026"), ledger=Ledger("l.sqlite", account="other"))
    fit(table(0, dataset_id="d"), ledger=Ledger("l.sqlite", account="other"))
    assert Ledger("l.sqlite").accounts() == ["d", "survey-2026"]
