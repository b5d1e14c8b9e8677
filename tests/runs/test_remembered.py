"""``--resume`` where the ledger was lost, emptied, exchanged or restored: refused, and nothing is drawn twice."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from dpdist import Budget, Dataset, Ledger
from dpdist.cli import main, runner
from dpdist.errors import LedgerError
from dpdist.jobs.job import load_job
from dpdist.jobs.json_schema import schema
from dpdist.jobs.run import run_job
from dpdist.privacy.accounting.charge import Charge
from tests.cli.command import call
from tests.faults.jobs import at_release, on_file
from tests.jobs.stored import stored_job
from tests.jobs.test_run import account as charges
from tests.jobs.test_run import contents
from tests.s3 import BUCKET


@pytest.fixture(params=["a directory", "a bucket"])
def out(request, tmp_path) -> str:
    if request.param == "a directory":
        return f"{tmp_path}/out"
    request.getfixturevalue("s3_account")
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


@pytest.fixture
def job_file(tmp_path, monkeypatch, out) -> Path:
    monkeypatch.delenv("DPDIST_LEDGER", raising=False)
    return stored_job(tmp_path, "cluster: threads", f"output: {out}")


@pytest.fixture
def job(job_file) -> Callable[..., Any]:
    return lambda *settings: load_job(job_file, settings)


in_a_directory = pytest.mark.parametrize("out", ["a directory"], indirect=True)


def copied(source: Path, target: Path) -> None:
    """An online copy: what a plain copy of a file in use would miss is in its write-ahead log."""
    with (
        contextlib.closing(sqlite3.connect(source)) as live,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        live.backup(copy)


def restore(copy: Path, ledger: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{ledger}{suffix}").unlink(missing_ok=True)
    ledger.write_bytes(copy.read_bytes())


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("left", ["nothing", "an empty file", "another ledger"])
@pytest.mark.parametrize("finished", [True, False])
def test_a_ledger_that_was_lost_is_not_a_new_one(left, finished, job, tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    if finished:
        run_job(job())
    else:
        with pytest.raises(KeyboardInterrupt), at_release(3, stop):
            run_job(job())
    copied(ledger, tmp_path / "copy.sqlite")
    ledger.unlink()
    if left == "an empty file":
        ledger.touch()
    elif left == "another ledger":
        with contextlib.closing(Ledger(ledger)) as other:
            other.open_run(Dataset.open(tmp_path / "rows.zarr").id, "r", "p", Charge(0.25))
    before = len(charges(ledger)) if left == "another ledger" else 0
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"restore") as refused:
            run_job(job(), resume=True)
    assert "ledger.sqlite" in str(refused.value)
    assert ledger.exists() == (left != "nothing"), "nothing was made in its place"
    assert left == "nothing" or len(charges(ledger)) == before
    restore(tmp_path / "copy.sqlite", ledger)
    values = on_file(ledger)
    assert run_job(job(), resume=True)["status"] == "done" and values.items() <= on_file(ledger).items()
    assert len(charges(ledger)) == 1


@pytest.mark.parametrize("copied_at", [0, 2, 5])
@pytest.mark.parametrize("stopped_at", [6, 99])
def test_a_ledger_restored_from_a_copy_draws_nothing_again(copied_at, stopped_at, job, tmp_path):
    """The journal is in it, so the two agree with each other: the run's record has seen more."""
    ledger, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    with contextlib.closing(Ledger(ledger)):
        copied(ledger, copy)
    stopping = at_release(stopped_at, stop)
    with contextlib.suppress(KeyboardInterrupt), at_release(copied_at, lambda: copied(ledger, copy)), stopping:
        run_job(job())
    newest = tmp_path / "newest.sqlite"
    copied(ledger, newest)
    seen = on_file(ledger)
    restore(copy, ledger)
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"is older than what the run in .* remembers"):
            run_job(job(), resume=True)
    assert len(on_file(ledger) if copied_at else {}) == copied_at, "nothing was drawn"
    restore(newest, ledger)
    assert run_job(job(), resume=True)["status"] == "done"
    assert seen.items() <= on_file(ledger).items() and len(charges(ledger)) == 1


@in_a_directory
@pytest.mark.parametrize("back_to", ["the charge", "before the charge"])
def test_a_ledger_that_is_taken_back_during_a_run_ends_it_and_its_record_stays(back_to, job, tmp_path, out):
    ledger = tmp_path / "ledger.sqlite"

    def take_back() -> None:
        with contextlib.closing(sqlite3.connect(ledger)) as other:
            tables = ["dpdist_values", "dpdist_releases"]
            for table in tables if back_to == "the charge" else [*tables, "dpdist_epochs", "dpdist_runs"]:
                other.execute(f"DELETE FROM {table}")
            other.execute(f"DELETE FROM dpdist_heads WHERE number > {int(back_to == 'the charge')}")
            other.commit()

    forgot = "is older than what this process remembers|the journal has forgotten the run"
    with pytest.raises(LedgerError, match=forgot), at_release(3, take_back):
        run_job(job())
    record = json.loads(Path(out, "run.json").read_text())
    assert record["budget"]["head"]["number"] == 4 and record["budget"]["receipt"]["run_id"] == record["run_id"]
    with pytest.raises(LedgerError, match=r"is older than what the run in .* remembers"):
        run_job(job(), resume=True)
    assert not on_file(ledger)


@in_a_directory
@pytest.mark.parametrize("what", ["moved to another ledger", "restored in place", "taken back", "deleted"])
def test_who_loses_the_ledger_during_a_run_is_told_the_truth(what, job_file, tmp_path, capsys, out):
    ledger, copy, words = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite", []

    def act() -> None:
        if what == "moved to another ledger":
            words.extend(["move", str(tmp_path / "rows.zarr"), "--to", str(tmp_path / "new.sqlite")])
        elif what == "deleted":
            ledger.unlink()
        else:
            copied(copy, ledger)
        if what == "restored in place":
            words.extend(["restore", "--runs", out, "--dataset", str(tmp_path / "rows.zarr")])
        if words:
            done = CliRunner().invoke(main, ["budget", *words, "--ledger", str(ledger)])
            assert done.exit_code == 0, done.output

    with contextlib.closing(Ledger(ledger)) as book:
        book.set_limit(Dataset.open(tmp_path / "rows.zarr").account, Budget(10.0, 1e-4))
    copied(ledger, copy)
    with at_release(3, act):
        said = call(capsys, "run", job_file)
    assert said.code in (2, 3) and "Traceback" not in said.err
    assert "\nNothing was charged." not in said.err and "epsilon 1, delta 1e-06" in said.err
    assert ("To go on" in said.err) == (what in ("taken back", "deleted")), said.err
    again = call(capsys, "run", job_file, "--resume")
    assert again.code == 3 and ("cannot go on" in again.err) == bool(words), again.err


def test_a_copy_that_went_on_is_noticed(job, tmp_path, out):
    ledger, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    with at_release(2, lambda: copied(ledger, copy)):
        run_job(job())
    restore(copy, ledger)
    for number in range(20):  # another run, on the copy
        with contextlib.closing(Ledger(ledger)) as book:
            book.open_run("other", f"r{number}", "p", Charge(0.25))
    with pytest.raises(LedgerError, match="another history than what the run in"):
        run_job(job(), resume=True)


def test_a_finished_run_is_shown_again_and_changes_nothing(job, tmp_path, out):
    record = run_job(job())
    jsonschema.validate(record, schema("run"))
    head = record["budget"]["head"]
    with contextlib.closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        assert head["ledger"] == ledger.id and head["number"] <= ledger.head().number
        ledger.open_run("other", "r", "p", Charge(0.25))
    assert run_job(job(), resume=True) == record


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


@in_a_directory
@pytest.mark.parametrize("status", ["done", "started"])
def test_a_run_of_an_earlier_version_has_to_be_in_its_ledger(status, job, tmp_path, out):
    """Its record remembers no head; that a charge is missing is noticed all the same."""
    ledger = tmp_path / "ledger.sqlite"
    with contextlib.suppress(KeyboardInterrupt), at_release(99 if status == "done" else 3, stop):
        run_job(job())
    rewrite(tmp_path / "out" / "run.json", lambda record: record["budget"].pop("head"))
    ledger.rename(tmp_path / "there.sqlite")
    with pytest.raises(LedgerError, match=r"there is no ledger at .*restore"):
        run_job(job(), resume=True)
    with contextlib.closing(Ledger(ledger)) as other:
        other.open_run("other", "r", "p", Charge(0.25))
    with pytest.raises(LedgerError, match=r"has no charge .*[Rr]estore"):
        run_job(job(), resume=True)
    (tmp_path / "there.sqlite").rename(ledger)
    done = run_job(job(), resume=True)
    assert done["status"] == "done" and done["budget"]["head"]["number"] > 0


@in_a_directory
def test_a_run_that_was_never_charged_may_be_started_with_any_ledger(job, tmp_path, monkeypatch, out):
    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpdist.privacy.ledger.paid_run.PaidRun.charge", fails)
        patch.setattr(
            "dpdist.runs.directory.RunDirectory.withdraw", lambda self, with_ledger: None
        )  # as if it had been killed
        with pytest.raises(KeyboardInterrupt):
            run_job(job())
    (tmp_path / "ledger.sqlite").unlink()
    assert run_job(job(), resume=True)["status"] == "done"


@in_a_directory
def test_a_ledger_in_the_output_is_restored_with_it(tmp_path, out):
    path = tmp_path / "job.yaml"
    path.write_text(
        "method: dp-gd\ndata: {generate: logit, n: 3000, d: 4}\nparams: {classes: [0, 1], row_norm: 1.0}\n"
        f"budget: {{epsilon: 1.0, delta: 1.0e-6}}\noutput: {tmp_path}/out\n"
    )
    run_job(load_job(path))
    released = contents(tmp_path / "out" / "released.zarr")
    (tmp_path / "out" / "ledger.sqlite").unlink()
    with pytest.raises(LedgerError, match="there is no ledger at"):
        run_job(load_job(path), resume=True)
    assert contents(tmp_path / "out" / "released.zarr") == released


@in_a_directory
def test_the_command_says_it_and_no_pod_tries_again(job_file, job, tmp_path, capsys, monkeypatch, out):
    run_job(job())
    (tmp_path / "ledger.sqlite").unlink()
    refused = call(capsys, "run", job_file, "--resume")
    assert refused.code == 3 and "there is no ledger at" in refused.err and "Traceback" not in refused.err

    def refuses(*_: Any, **__: Any) -> None:
        run_job(job(), resume=True)

    monkeypatch.setattr(runner._command, "invoke", refuses)
    assert runner.run(["--workers", "1", "--", str(job_file)]) == 3


@in_a_directory
@pytest.mark.parametrize("head", ['"x"', '{"ledger": "a"}', "[]", '{"ledger": "a", "number": "x", "token": "b"}'])
def test_a_damaged_record_is_named(head, job, tmp_path, out):
    run_job(job())
    rewrite(tmp_path / "out" / "run.json", lambda record: record["budget"].update(head=json.loads(head)))
    with pytest.raises(Exception, match=r"run.json cannot be read as a run of this version"):
        run_job(job(), resume=True)
