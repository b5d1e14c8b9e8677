"""``dpdist run``: what it prints, how it exits, and what it says when it is interrupted."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.jobs.json_schema import schema
from tests.cli.command import call, start
from tests.jobs.stored import stored_job

PIPELINES = Path(__file__).parents[2] / "pipelines"
SMALL = ("run", PIPELINES / "dp-gd.yaml", "--set", "data.n=3000", "--set", "data.d=4")


@pytest.fixture
def stored(tmp_path):
    """The words that run a job on a stored dataset."""
    stored_job(tmp_path)
    return ("run", tmp_path / "job.yaml", "--output", tmp_path / "out")


def test_json_is_the_record_and_nothing_else(capsys, tmp_path):
    said = call(capsys, *SMALL, "--json", "--output", tmp_path / "out")
    record = json.loads(said.out)
    jsonschema.validate(record, schema("run"))
    assert record == json.loads((tmp_path / "out" / "run.json").read_text())
    assert {"id", "guarantee", "simulation", "metrics", "seconds", "rounds", "passes"} <= set(record)
    assert said.code == 0 and "round" in said.err, "progress goes to stderr"


def test_the_result_for_people(capsys, tmp_path):
    said = call(capsys, *SMALL, "--output", tmp_path / "out", "--quiet")
    assert said.code == 0 and said.err == ""
    words = " ".join(said.out.split())
    for part in (
        "dp-gd",
        "generated: logit, 3,000 rows",
        "after epsilon 1, delta 1e-06; no limit",
        "coef (1 x 4), intercept (1)",
        f"{tmp_path}/out: run.json, released.zarr, report.html",
        "Error ",
        "Replacing all data of any one row by any other",
    ):
        assert part in words, part


def test_the_result_shows_how_sure_it_is_where_that_is_known(capsys, tmp_path):
    wide = ("--set", "data.n=5000", "--set", "data.d=25", "--set", "data.random_state=1")
    said = call(capsys, "run", PIPELINES / "dp-adassp.yaml", *wide, "--output", tmp_path / "out", "--quiet")
    rows = json.loads((tmp_path / "out" / "run.json").read_text())["inference"]["rows"]
    largest = sorted(rows, key=lambda row: -abs(row["coefficient"]))[:20]
    shown = [line.split() for line in said.out.splitlines() if re.match(r"(x\d+|intercept) ", line)]
    assert "(the 20 largest of 26):" in said.out
    assert [name for name, *_ in shown] == [row["name"] for row in rows if row in largest]
    assert [float(low) for _, _, low, _ in shown] == pytest.approx(
        [row["low"] for row in rows if row in largest], rel=1e-4
    )
    without = call(capsys, "run", PIPELINES / "dp-sgd.yaml", *wide, "--quiet")
    assert without.code == 0 and "lower end" not in without.out and "No intervals: " in without.out


def test_a_run_on_stored_data_shows_no_error(capsys, stored):
    said = call(capsys, *stored, "--quiet")
    assert said.code == 0 and "Error" not in said.out


def test_the_output_of_the_option_wins_and_may_have_any_name(capsys, tmp_path):
    odd = tmp_path / "1e3: {run}"
    assert call(capsys, *SMALL, "--set", f"output={tmp_path}/no", "--output", odd).code == 0
    assert (odd / "report.html").exists() and not (tmp_path / "no").exists()


def test_a_dry_run_for_people_and_programs(capsys, stored, tmp_path):
    said = call(capsys, *stored, "--dry-run")
    assert said.code == 0 and said.err == "" and not (tmp_path / "out").exists()
    for part in (
        "Noise (std)",
        "smoothness",
        "rows kept in memory",
        "after epsilon 1",
        str(tmp_path / "ledger.sqlite"),
    ):
        assert part in said.out, part
    assert json.loads(call(capsys, *stored, "--dry-run", "--json").out)["format"] == "dpdist-plan/1"


def test_what_the_ledger_refuses_exits_with_3(capsys, stored, tmp_path):
    Ledger(tmp_path / "ledger.sqlite").set_limit(Dataset.open(tmp_path / "rows.zarr").id, Budget(0.5, 1e-5))
    dry = call(capsys, *stored, "--dry-run", "--json")
    assert dry.code == 3 and json.loads(dry.out)["budget"]["affordable"] is False and "limit" in dry.err
    said = call(capsys, *stored)
    assert said.code == 3 and said.out == "" and said.err.count("Nothing was charged") == 1
    away = call(capsys, *stored, "--set", "budget.epsilon=0.1", "--set", "cluster=tcp://127.0.0.1:9")
    assert away.code == 75 and away.err.count("Nothing was charged") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "method=dp-gdd"), "unknown method 'dp-gdd'.*dp-gd"),
        (("--set", "params.row_nrom=1"), "no such parameter.*row_norm"),
        (("--set", "params.row_norm=null"), "row_norm is missing"),
        (("--set", "data.path=nowhere.zarr"), "cannot open a Zarr group at .*nowhere.zarr: there is nothing"),
        (("--set", "ledger=/proc/nowhere/ledger.sqlite"), "name a directory this account may write"),
        (("--output", "/proc/nowhere/out"), "cannot be written to.*Nothing was charged"),
        (("--set", "output=null"), "output is missing"),
    ],
)
def test_user_errors_exit_with_2_and_one_message(words, message, capsys, stored):
    given = stored[:2] if "output=null" in words else stored
    said = call(capsys, *given, *words)
    assert said.code == 2 and said.out == "", said.err
    assert re.search(message, said.err, re.DOTALL), said.err
    assert "Traceback" not in said.err


def test_a_finished_run_is_not_overwritten_but_resumed(capsys, stored, tmp_path):
    assert call(capsys, *stored).code == 0
    said = call(capsys, *stored)
    assert said.code == 2 and "finished run" in said.err
    assert "To go on" not in said.err
    again = call(capsys, *stored, "--resume")
    assert again.code == 0 and "to be charged" not in again.err and "goes on, charged before" in again.err
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert len(ledger.history(Dataset.open(tmp_path / "rows.zarr").id)) == 1
    ledger.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_what_it_charged_and_goes_on(number, code, stored, tmp_path):
    process = start(*stored, "--set", "params.solver.n_rounds=600", "--set", "cluster=threads")
    assert process.stderr is not None
    for line in process.stderr:
        if "charged: epsilon" in line and "to be" not in line:
            break
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == code, rest
    assert (
        "Charged to the dataset" in rest
        and "epsilon 1, delta 1e-06" in rest
        and str(tmp_path / "ledger.sqlite") in rest
    )
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "started"
    again = shlex.split(rest.strip().splitlines()[-1])
    assert again[:2] == ["dpdist", "run"] and again[-1] == "--resume"
    done = subprocess.run(
        [sys.executable, "-m", "dpdist.cli", *again[1:], "--json", "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    )
    ledger = Ledger(tmp_path / "ledger.sqlite")
    (run,) = ledger.history(Dataset.open(tmp_path / "rows.zarr").id)
    ledger.close()
    assert json.loads(done.stdout)["run_id"] == run.run_id and len(run.releases) == 601
