"""`dpdist budget`: what an officer reads is what the ledger holds, and reading changes nothing."""

from __future__ import annotations

import contextlib
import csv
import getpass
import io
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result

from dpdist import Budget, Dataset, Ledger, Neighbours
from dpdist.cli import main
from dpdist.cli.account_tables import account_of
from dpdist.cli.output import as_csv
from dpdist.data.dataset_schema import ATTRIBUTE
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.closed_forms import gdp_mu

ADD = Neighbours.ADD_OR_REMOVE_ONE


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory whose default ledger does not exist yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "ledger.sqlite"))
    return tmp_path


def budget(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["budget", *words])
    assert done.exit_code == code, done.output
    return done


def fill() -> None:
    ledger = Ledger()
    ledger.set_limit("survey", Budget(3.0, 1e-5))
    ledger.open_run("survey", "monday", "p", Charge(1.0, 1e-6, mu=0.25), user="ann@node1", label="31 x gradient")
    for i in range(2):
        ledger.record_release("monday", f"m{i}", i, "gradient", "Gaussian", 13.5, 2.0, "gaussian 0.17")
    ledger.open_run("survey", "tuesday", "p", Charge(0.5), user="bob@node2")
    ledger.close()


def store(path: str = "rows.zarr") -> str:
    return Dataset.from_arrays(path, X=np.zeros((10, 2))).id


# -- show ---------------------------------------------------------------------------------------------------------


def test_show_in_words(place: Path) -> None:
    fill()
    text = budget("show", "survey").stdout
    for words in (
        "Limit       epsilon 3, delta 1e-05; set 20",
        "Spent       epsilon 1.5, delta 1e-06, by 2 runs, the last 20",
        "Left        epsilon 1.5, delta 9e-06\n",
        "basic: the epsilons, and the deltas, of all runs are added",
        f"Ledger      {place / 'ledger.sqlite'}\n",
        "at most a factor e^1.5 = 4.482, up to a probability of 1e-06",
    ):
        assert words in text, text


def test_show_as_json_and_csv() -> None:
    fill()
    one = json.loads(budget("show", "survey", "--format", "json").stdout)
    assert one["limit"] == {"epsilon": 3.0, "delta": 1e-5} and one["spent"] == {"epsilon": 1.5, "delta": 1e-6}
    assert one["left"]["epsilon"] == 1.5 and one["left"]["delta"] == pytest.approx(9e-6, rel=1e-12)
    assert (one["account"], one["runs"], one["composition"], one["neighbours"]) == ("survey", 2, "basic", "replace-one")
    Ledger().open_run("another", "x", "p", Charge(7.0, neighbours=ADD))
    whole = json.loads(budget("show", "--json").stdout)
    assert [account["account"] for account in whole["accounts"]] == ["another", "survey"]
    assert whole["accounts"][1] == {key: value for key, value in one.items() if key != "ledger"}
    rows = list(csv.DictReader(io.StringIO(budget("show", "--format", "csv").stdout)))
    assert rows[0]["account"] == "another" and rows[0]["limit_epsilon"] == rows[0]["left_epsilon"] == ""
    assert rows[0]["neighbours"] == "add-or-remove-one" and float(rows[0]["spent_epsilon"]) == 7.0
    assert float(rows[1]["left_epsilon"]) == 1.5 and rows[1]["runs"] == "2"
    table = budget("show").stdout.splitlines()
    assert len(table) == 3 and table[2].split()[:2] == ["survey", "2"]
    assert "none: spending is recorded and not limited" in budget("show", "another").stdout


def test_what_a_listing_asks_of_the_ledger_does_not_grow_with_the_runs() -> None:
    counts = []
    with contextlib.closing(Ledger()) as ledger:
        for i in range(12):
            ledger.open_run("survey", f"{i}", "p", Charge(0.5))
            for j in range(2):
                ledger.record_release(f"{i}", f"{i}/{j}", j, "sum", "Laplace", 1.0, 1.0, "pure 0.25")
            if i in (1, 11):
                asked: list[str] = []
                ledger._db._connection.set_trace_callback(asked.append)
                shown, history = account_of(ledger, "survey"), ledger.history("survey")
                ledger._db._connection.set_trace_callback(None)
                assert shown["runs"] == len(history) == i + 1 and shown["last_run"] == history[-1].when
                assert [[release.release_id for release in run.releases] for run in history] == [
                    [f"{k}/0", f"{k}/1"] for k in range(i + 1)
                ]
                counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_the_gaussian_rule_shows_its_own_sum() -> None:
    budget("set", "d", "--new", "--epsilon", "3", "--delta", "1e-5", "--composition", "gaussian")
    ledger = Ledger()
    for i in range(4):
        ledger.open_run("d", f"r{i}", "p", Charge(1.0, 1e-6, mu=gdp_mu(1.0, 1e-6)))
    shown = json.loads(budget("show", "d", "--json").stdout)
    assert shown["spent"]["epsilon"] == ledger.spent("d").epsilon < 3
    assert shown["left"]["epsilon"] == ledger.remaining("d").epsilon > 0  # type: ignore[union-attr]
    assert "gaussian: the squared Gaussian parameters" in budget("show", "d").stdout


# -- history ------------------------------------------------------------------------------------------------------


def test_history_in_words() -> None:
    fill()
    lines = budget("history", "survey").stdout.splitlines()
    assert lines[2].split() == ["When", "By", "Run", "Epsilon", "Delta", "Releases", "Label"]
    assert "ann@node1  monday" in lines[3] and lines[3].endswith("2  31 x gradient")
    assert "bob@node2  tuesday" in lines[4]
    assert lines[6].startswith("Limit set") and "basic  replace-one" in lines[7]
    detailed = budget("history", "survey", "--releases").stdout
    assert detailed.count("gaussian 0.17") == 2 and "No release was made." in detailed


def test_history_as_json() -> None:
    fill()
    plain = json.loads(budget("history", "survey", "--json").stdout)
    assert [run["run"] for run in plain["runs"]] == ["monday", "tuesday"] and plain["limits"][0]["epsilon"] == 3.0
    assert plain["runs"][0]["n_releases"] == 2 and "releases" not in plain["runs"][0]
    full = json.loads(budget("history", "survey", "--releases", "--format", "json").stdout)
    first, second = full["runs"][0]["releases"]
    assert (first["index"], second["index"]) == (0, 1)
    assert (first["name"], first["mechanism"], first["noise_std"], first["sensitivity"], first["cost"]) == (
        "gradient", "Gaussian", 13.5, 2.0, "gaussian 0.17",
    )  # fmt: skip
    assert full["runs"][1]["releases"] == []


FORMULAS = {
    "=1+1": "'=1+1",
    "+1": "'+1",
    "-1+1": "'-1+1",
    "@SUM(A1)": "'@SUM(A1)",
    " =1+1": "' =1+1",
    "\uff1d1+1": "'\uff1d1+1",
    '=HYPERLINK("http://x","y")': '\'=HYPERLINK("http://x","y")',
    "\t=1": "?=1",
    "\r=1": "?=1",
    "x\r=1\n=1": "x?=1?=1",
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(formula: str) -> None:
    """Names of runs, users and labels are anybody's; a spreadsheet would compute what they begin with."""
    ledger = Ledger()
    ledger.open_run("survey", formula, "p", Charge(1.0), user=formula, label=formula)
    ledger.record_release(formula, f"{formula}0", 0, formula, "Gaussian", 13.5, 2.0, formula)
    ledger.open_run(formula, "other", "p", Charge(1.0))
    ledger.close()
    for words in (("history", "survey"), ("history", "survey", "--releases"), ("show",), ("show", formula)):
        text = budget(words[0], "--format", "csv", *words[2:], *(("--", words[1]) if len(words) > 1 else ())).stdout
        cells = [cell for line in re.split("[\r\n]", text) for row in csv.reader([line]) for cell in row]
        assert FORMULAS[formula] in cells
        assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\uff1d")) for cell in cells)


def test_numbers_of_a_csv_stay_numbers() -> None:
    assert as_csv([{"a": -1.5, "b": "-1.5", "c": None, "d": "a=b"}], ["a", "b", "c", "d"]) == "a,b,c,d\n-1.5,'-1.5,,a=b"


def test_history_as_csv_into_a_file(place: Path) -> None:
    fill()
    done = budget("history", "survey", "--format", "csv", "--output", "runs.csv")
    assert done.output == ""
    runs = list(csv.DictReader((place / "runs.csv").open()))
    assert [(run["run"], run["by"], float(run["epsilon"])) for run in runs] == [
        ("monday", "ann@node1", 1.0),
        ("tuesday", "bob@node2", 0.5),
    ]
    assert runs[0]["mu"] == "0.25" and runs[1]["mu"] == "" and runs[1]["label"] == ""
    text = budget("history", "survey", "--format", "csv", "--releases").stdout
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [(line["run"], line["index"], line["noise_std"]) for line in lines] == [
        ("monday", "0", "13.5"),
        ("monday", "1", "13.5"),
        ("tuesday", "", ""),  # a run without a release is not lost
    ]
    budget("history", "survey", "--output", "no/such/dir/runs.csv", code=2)


def test_who_ran_is_recorded() -> None:
    ledger = Ledger()
    ledger.open_run("d", "r", "p", Charge(1.0))
    assert ledger.history("d")[0].user == f"{getpass.getuser()}@{socket.gethostname()}"
    with sqlite3.connect(ledger.path) as connection:  # as runs were recorded before
        connection.execute("UPDATE dpdist_runs SET user_name = NULL")
    assert "not recorded" in budget("history", "d").stdout
    assert json.loads(budget("history", "d", "--json").stdout)["runs"][0]["by"] is None


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    ledger = Ledger(":memory:")
    ledger.open_run("d", "r", "p", Charge(1.0))
    assert (ledger.history("d")[0].user or "").startswith("uid")
    fill()
    budget("backup", "copy.sqlite")
    budget("restore", "copy.sqlite", "--nothing-since", "--ledger", "put-back.sqlite")
    budget("move", "survey", "--ledger", "put-back.sqlite", "--to", "new.sqlite")
    events = json.loads(budget("history", "survey", "--ledger", "put-back.sqlite", "--json").stdout)["events"]
    assert [event["why"].startswith("uid") for event in events] == [True, True]


def test_names_cannot_act_on_the_terminal() -> None:
    Ledger().open_run("d", "r\x1b[2J\n", "p", Charge(1.0), label="a\tb")
    assert "\x1b" not in budget("history", "d").stdout and "r?[2J?" in budget("history", "d").stdout


# -- set ----------------------------------------------------------------------------------------------------------


def test_set_makes_the_ledger_and_the_limit(place: Path) -> None:
    dataset_id = store()
    done = budget("set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5")
    assert "Limit       epsilon 3, delta 1e-05" in done.stdout
    limit = Ledger(place / "ledger.sqlite").limit(dataset_id)
    assert limit is not None and limit.budget == Budget(3.0, 1e-5) and limit.composition == "basic"


def test_set_keeps_rule_and_relation_and_says_what_a_change_means() -> None:
    words = ("set", "d", "--delta", "1e-5")
    budget(*words, "--new", "--epsilon", "2", "--composition", "gaussian", "--neighbours", "add-or-remove-one")
    Ledger().open_run("d", "r", "p", Charge(1.0, 1e-6, ADD, mu=0.25))
    raised = budget(*words, "--epsilon", "3").stdout
    assert "raised (it was epsilon 2, delta 1e-05)" in raised and "weaker" in raised
    limit = Ledger().limit("d")
    assert limit is not None and (limit.composition, limit.neighbours) == ("gaussian", ADD)
    lowered = budget(*words, "--epsilon", "0.5").stdout
    assert "every further run will be refused" in lowered and "The limit was epsilon 3, delta 1e-05 from 20" in lowered
    refused = budget(*words, "--epsilon", "1", "--composition", "basic", code=2)
    assert "one account keeps one rule" in refused.output
    assert [each["epsilon"] for each in json.loads(budget("history", "d", "--json").stdout)["limits"]] == [2, 3, 0.5]


@pytest.mark.parametrize(
    ("words", "message"),
    (
        (("--epsilon", "0", "--delta", "0"), "epsilon must be a positive"),
        (("--epsilon", "1", "--delta", "1"), "delta must lie in [0, 1)"),
        (("--epsilon", "one", "--delta", "0"), "'one' is not a valid float"),
        (("--epsilon", "1"), "Missing option '--delta'"),
        (("--epsilon", "1", "--delta", "0", "--composition", "sum"), "'basic', 'gaussian'"),
    ),
)
def test_a_limit_that_makes_no_sense_makes_no_file(place: Path, words: tuple[str, ...], message: str) -> None:
    assert message in budget("set", "d", "--new", *words, code=2).output
    assert not (place / "ledger.sqlite").exists()


def test_set_needs_new_for_an_id_that_nobody_knows() -> None:
    fill()
    done = budget("set", "survei", "--epsilon", "1", "--delta", "0", code=2)
    assert "did you mean 'survey'?" in done.output and "--new" in done.output
    assert Ledger().accounts() == ["survey"]


def test_set_gives_a_store_of_others_its_id() -> None:
    zarr.create_array("foreign.zarr/X", data=np.zeros((10, 2)))
    zarr.open_group("foreign.zarr", mode="a")
    budget("set", "foreign.zarr", "--epsilon", "1", "--delta", "1e-6")
    assert Ledger().accounts() == [Dataset.open("foreign.zarr").id]


# -- which account ------------------------------------------------------------------------------------------------


def test_an_account_by_path_by_copy_and_by_id(place: Path) -> None:
    dataset_id = store()
    Ledger().open_run(dataset_id, "r", "p", Charge(0.25))
    shutil.copytree("rows.zarr", "copy.zarr")
    for name in ("rows.zarr", "./copy.zarr", str(place / "rows.zarr"), f"file://{place}/rows.zarr", dataset_id):
        assert json.loads(budget("show", name, "--json").stdout)["spent"]["epsilon"] == 0.25


def test_a_store_that_was_never_charged() -> None:
    fill()
    dataset_id = store()
    assert "epsilon 0, delta 0, by 0 runs" in budget("show", "rows.zarr").stdout
    assert f"No run was ever charged to {dataset_id}" in budget("history", "rows.zarr").stdout


def test_reading_gives_no_id_to_a_store() -> None:
    fill()
    zarr.create_array("foreign.zarr/X", data=np.zeros((10, 2)))
    zarr.open_group("foreign.zarr", mode="a")
    assert "carries no id yet" in budget("show", "foreign.zarr", code=2).output
    assert ATTRIBUTE not in zarr.open_group("foreign.zarr", mode="r").attrs


def test_names_that_lead_nowhere(place: Path) -> None:
    fill()
    assert "did you mean 'survey'?" in budget("show", "surwey", code=2).output
    assert "'dpdist budget show' lists the accounts" in budget("history", "zzz.zarr", code=2).output
    (place / "notes.txt").write_text("no store")
    assert "notes.txt is a file, and a stored dataset is expected" in budget("show", "notes.txt", code=2).output


def test_a_name_that_means_two_things() -> None:
    fill()
    (Path("survey")).mkdir()
    assert "by 2 runs" in budget("show", "survey").stdout  # a folder, but no store: the id is meant
    shutil.rmtree("survey")
    dataset_id = store("survey")
    refused = budget("show", "survey", code=2).output
    assert "write ./survey for the store" in refused and dataset_id in refused
    assert "by 0 runs" in budget("show", "./survey").stdout


# -- files that are no ledger, exit codes of the real process -----------------------------------------------------


def process(*words: str, busy: float = 0.2) -> subprocess.CompletedProcess[str]:
    code = f"""
from dpdist.privacy.ledger import sqlite
sqlite.BUSY_TIMEOUT = {busy}
from dpdist.cli import main
main({list(words)!r})
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("words", (("show",), ("show", "d"), ("history", "d")))
def test_reading_makes_no_ledger(place: Path, words: tuple[str, ...]) -> None:
    done = process("budget", *words)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert f"dpdist: there is no ledger at {place / 'ledger.sqlite'}" in done.stderr
    assert list(place.iterdir()) == []


def test_a_locked_ledger(place: Path) -> None:
    fill()
    holder = sqlite3.connect(place / "ledger.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    for words in (["show"], ["set", "survey", "--epsilon", "9", "--delta", "0"]):
        done = process("budget", *words)
        assert done.returncode == 75 and done.stdout == ""
        assert "another process kept it locked" in done.stderr and "Traceback" not in done.stderr
    holder.execute("ROLLBACK")
    assert process("budget", "show").returncode == 0


def test_a_corrupt_ledger_and_files_that_are_none(place: Path) -> None:
    fill()
    damaged = bytearray((place / "ledger.sqlite").read_bytes())
    damaged[100:] = b"\xff" * (len(damaged) - 100)
    (place / "damaged").write_bytes(damaged)
    (place / "text").write_text("not a database, but long enough to have a header " * 9)
    (place / "empty").touch()
    with sqlite3.connect(place / "other") as other:
        other.execute("CREATE TABLE mine (x)")
    for name, message in (
        ("damaged", "it is damaged: restore a backup"),
        ("text", "it is not an SQLite file, or damaged"),
        ("empty", "no ledger of dpdist"),
        ("other", "no ledger of dpdist"),
    ):
        before = (place / name).read_bytes()
        done = budget("show", "--ledger", name, code=2)
        assert message in done.output, done.output
        assert (place / name).read_bytes() == before
    assert process("budget", "show", "--ledger", "damaged").returncode == 2
    assert process("budget", "show", "--ledger", str(place)).returncode == 2


def test_a_ledger_elsewhere(place: Path) -> None:
    fill()
    (place / "sub dir?").mkdir()
    shutil.copy("ledger.sqlite", "sub dir?/book#1.sqlite")
    Path("ledger.sqlite").unlink()
    assert "by 2 runs" in budget("show", "survey", "--ledger", "sub dir?/book#1.sqlite").stdout
