"""The key ``journal`` of a job: where released values are kept, and that a resumed run finds them there."""

from __future__ import annotations

import json
import secrets

import jsonschema
import pytest

from dpdist import Ledger
from dpdist.errors import DpdistError
from dpdist.jobs.job import JobError, load_job
from dpdist.jobs.json_schema import schema
from dpdist.jobs.planning import plan_job
from dpdist.jobs.run import run_job
from dpdist.objects import Objects
from dpdist.privacy.ledger.sqlite import open_store
from dpdist.runs.directory import OutputError
from tests.cli.command import call, start
from tests.jobs.stored import stored_job
from tests.jobs.test_run import account as charges
from tests.jobs.test_run import contents
from tests.s3 import BUCKET


@pytest.fixture
def bucket(s3_account) -> str:
    """A prefix of somebody who may use the s3_server."""
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


@pytest.fixture
def job_file(tmp_path, monkeypatch):
    monkeypatch.delenv("DPDIST_LEDGER", raising=False)
    return stored_job(tmp_path, "cluster: threads", f"output: {tmp_path}/out")


@pytest.fixture
def job(job_file):
    return lambda *settings: load_job(job_file, settings)


def in_store(journal: str) -> dict[str, bytes]:
    objects = Objects(journal)
    return {key: objects.get(key) or b"" for key in objects.listed() if "/value-" in key}


def in_file(path: object) -> dict[str, bytes]:
    values = "SELECT release_id, bytes FROM dpdist_values"
    return open_store(str(path), None).read(lambda db: dict(db.execute(values).fetchall()))


def test_released_values_are_kept_in_the_journal_and_the_charge_in_the_ledger(job, tmp_path):
    record = run_job(job(f"journal={tmp_path}/journal.sqlite"))
    jsonschema.validate(record, schema("run"))
    assert record["budget"]["journal"] == record["asked"]["journal"] == f"{tmp_path}/journal.sqlite"
    assert len(in_file(tmp_path / "journal.sqlite")) == len(record["releases"])
    assert len(charges(tmp_path / "ledger.sqlite")) == 1
    with pytest.raises(Exception, match="dpdist_values"):
        in_file(tmp_path / "ledger.sqlite")
    assert f"Journal: {tmp_path}/journal.sqlite" in (tmp_path / "out" / "report.html").read_text()


def test_a_killed_run_finds_its_values_in_the_store(job_file, job, bucket, tmp_path):
    """kill -9 in the middle, resumed: what was drawn stays, the rest is drawn, and another resume changes nothing."""
    journal = f"{bucket}/journal"
    words = ("run", job_file, "--set", "params.solver.n_rounds=150", "--set", f"journal={journal}")
    process = start(*words)
    while len(drawn := in_store(journal)) < 5:
        assert process.poll() is None
    process.kill()
    process.communicate()
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["status"] == "started" and record["budget"]["journal"] == journal
    process = start(*words, "--resume", "--quiet")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    values, arrays = in_store(journal), contents(tmp_path / "out" / "released.zarr")
    assert len(values) > 150 and drawn.items() <= values.items()
    assert run_job(job("params.solver.n_rounds=150", f"journal={journal}"), resume=True)["run_id"] == record["run_id"]
    assert in_store(journal) == values and contents(tmp_path / "out" / "released.zarr") == arrays
    (run,) = charges(tmp_path / "ledger.sqlite")
    assert run.run_id == record["run_id"]


@pytest.mark.parametrize(("before", "after"), [("one", "two"), ("one", None), (None, "two")])
def test_a_run_is_not_resumed_with_another_journal(before, after, job, tmp_path):
    first, other = (f"journal={'null' if name is None else tmp_path / name}" for name in (before, after))
    done = run_job(job(first))
    with pytest.raises(OutputError, match="different: journal"):
        run_job(job(other), resume=True)
    assert run_job(job(first), resume=True) == done
    assert not (tmp_path / "two").exists() and len(charges(tmp_path / "ledger.sqlite")) == 1


def test_the_same_name_elsewhere_is_another_journal(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_job(job("journal=journal.sqlite"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(
        OutputError, match=r"kept in .*/journal.sqlite, and in .*/elsewhere/journal.sqlite.*second time"
    ):
        run_job(job("journal=journal.sqlite"), resume=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_run_of_an_earlier_version_is_resumed_in_its_ledger(job, tmp_path):
    """Its record says nothing of journals."""
    done = run_job(job())
    path = tmp_path / "out" / "run.json"
    record = json.loads(path.read_text())
    del record["asked"]["journal"], record["budget"]["journal"]
    jsonschema.validate(record, schema("run"))
    path.write_text(json.dumps(record))
    assert run_job(job(), resume=True) == done


def test_all_that_is_kept_is_kept_by_servers(job, bucket, postgres_server, tmp_path):
    """What a pod needs: nothing of its own disk. A dry run reads the account there, too."""
    settings = (f"ledger={postgres_server.address}", f"journal={bucket}/journal", f"output={bucket}/out")
    assert run_job(job(*settings), dry_run=True)["budget"]["before"]["epsilon"] == 0
    record = run_job(job(*settings))
    assert run_job(job(*settings), resume=True) == record
    dry = run_job(job(*settings), dry_run=True)["budget"]
    assert dry["before"]["epsilon"] == pytest.approx(1.0) and dry["after"]["epsilon"] == pytest.approx(2.0)
    assert (dry["ledger"], dry["journal"]) == (postgres_server.address, f"{bucket}/journal")
    ledger = Ledger(postgres_server.address)
    assert len(ledger.history(record["dataset"]["id"])) == 1
    ledger.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "rows.zarr"]


# -- what the keys may hold -----------------------------------------------------------------------------------------

HUSH = ("s3://me:hush@bucket/x", "postgresql://me:hush@h/d", "postgresql://h/d?user=me&password=hush")
WRONG = {
    "ledger": (*HUSH, "s3://bucket/ledger", "https://host/ledger"),
    "journal": (*HUSH, "https://host/journal"),
    "output": (*HUSH, "az://store/x?sig=hush", "postgresql://h/d", "file:///tmp/out"),
}
RIGHT = {
    "ledger": ("l.sqlite", "/srv/l.sqlite", "postgresql://me@h/d?sslmode=verify-full", None),
    "journal": ("j.sqlite", "s3://b/j", "gs://b/j", "az://b/j", "postgres://me@h/d", None),
    "output": ("runs/a:b@c", "s3://bucket/a b", "gs://b", "az://b/x", None),
}


@pytest.mark.parametrize("key", WRONG)
def test_addresses_are_what_they_can_be_and_have_no_password(key, job):
    """The loader and the published schema agree; the environment's ledger is held to the same."""
    published = jsonschema.Draft202012Validator(schema("job"))
    for address in WRONG[key]:
        with pytest.raises(JobError, match=f"--set {key}=.* {key}: (has a password|expected a)") as refused:
            job(f"{key}={json.dumps(address)}")
        assert "hush" not in str(refused.value)
        assert not published.is_valid({**job().asked, key: address})
    for address in RIGHT[key]:
        assert job(f"{key}={json.dumps(address)}").asked[key] == address
        published.validate({**job().asked, key: address})


@pytest.mark.parametrize("address", WRONG["ledger"])
def test_the_ledger_of_the_environment_is_held_to_the_same(address, job, tmp_path, monkeypatch):
    monkeypatch.setenv("DPDIST_LEDGER", address)
    with pytest.raises(DpdistError, match="DPDIST_LEDGER cannot be used") as refused:
        run_job(job("ledger=null"))
    assert "hush" not in str(refused.value) and not (tmp_path / "out").exists()


# -- the commands ---------------------------------------------------------------------------------------------------


def test_commands_show_the_journal(job_file, job, bucket, capsys):
    journal = f"{bucket}/journal"
    assert plan_job(job(f"journal={journal}"))["asked"]["journal"] == journal
    dry = call(capsys, "run", job_file, "--set", f"journal={journal}", "--dry-run")
    assert dry.code == 0 and f"Journal {journal}" in " ".join(dry.out.split())
    assert in_store(journal) == {}


def test_doctor_examines_the_journal_of_a_job(job_file, bucket, capsys, monkeypatch):
    done = call(capsys, "doctor", job_file, "--set", f"journal={bucket}/journal", "--json")
    (found,) = (each for each in json.loads(done.out)["findings"] if each["check"] == "journal")
    assert found["status"] == "ok" and f"{bucket}/journal" in found["says"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    done = call(capsys, "doctor", job_file, "--set", f"journal={bucket}/journal", "--json")
    (found,) = (each for each in json.loads(done.out)["findings"] if each["check"] == "journal")
    assert done.code == 2 and found["status"] == "fail" and "credentials" in found["fix"]
    other = call(capsys, "doctor", job_file, "--set", "journal=s3://none/x", "--journal", "j.sqlite", "--json")
    assert {"journal"} == {each["check"] for each in json.loads(other.out)["findings"] if "journal" in each["check"]}
    assert "s3://none" not in other.out
