"""Results in a real S3 server: what a directory does, and what a reader sees when the store or the run fails."""

from __future__ import annotations

import http.server
import json
import secrets
import threading

import jsonschema
import numpy as np
import pytest
from obstore.store import from_url

from dpdist import Budget, Dataset, Ledger
from dpdist.cli import exit_codes, runner
from dpdist.errors import BudgetExceeded
from dpdist.jobs.job import load_job
from dpdist.jobs.json_schema import schema
from dpdist.jobs.run import run_job
from dpdist.objects import Objects
from dpdist.reports.report import write_report
from dpdist.runs.directory import OutputError, OutputUnavailable, RunDirectory
from dpdist.runs.storage import ResultStoreError, result_store
from tests.cli.command import call, start
from tests.jobs.stored import stored_job
from tests.jobs.test_run import account as charges
from tests.jobs.test_run import contents
from tests.s3 import BUCKET, KEY


@pytest.fixture(autouse=True)
def account(s3_account):
    """All tests here may use the s3_server."""


@pytest.fixture
def out() -> str:
    return f"s3://{BUCKET}/runs/{secrets.token_hex(8)}"


@pytest.fixture
def job_file(tmp_path, out):
    return stored_job(tmp_path, "cluster: threads", f"output: {out}")


@pytest.fixture
def job(job_file):
    return lambda *settings: load_job(job_file, settings)


def objects(url: str, endpoint: str) -> dict[str, bytes]:
    """All objects below an address, past any proxy."""
    store = from_url(url, endpoint=endpoint, client_options={"allow_http": True})
    return {each["path"]: bytes(store.get(each["path"]).bytes()) for page in store.list() for each in page}


def status(out: str, endpoint: str) -> str:
    return json.loads(objects(out, endpoint)["run.json"])["status"]


def ended(*words: object) -> tuple[int, str]:
    process = start(*words)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


# -- a run ----------------------------------------------------------------------------------------------------------


def test_a_run_in_a_store_has_the_files_of_a_run_in_a_directory(job, out, s3_server, tmp_path):
    seeded = "params.random_state=1"
    record = run_job(job(seeded))
    jsonschema.validate(record, schema("run"))
    there = objects(out, s3_server.address)
    assert json.loads(there["run.json"]) == record and there["report.html"].startswith(b"<!DOCTYPE html>")
    run_job(job(seeded, f"output={tmp_path}/out", f"ledger={tmp_path}/other.sqlite"))
    arrays = contents(tmp_path / "out" / "released.zarr")
    assert {name: there[f"released.zarr/{name}"] for name in arrays} == arrays, "byte for byte"
    assert len(there) == len(arrays) + 2, "and nothing else"


def test_a_resumed_run_is_the_same_run(job, out, s3_server, tmp_path):
    first, before = run_job(job()), objects(out, s3_server.address)
    assert run_job(job(), resume=True) == first
    assert objects(out, s3_server.address) == before
    assert len(charges(tmp_path / "ledger.sqlite")) == 1


@pytest.mark.filterwarnings("ignore:Object at .* is not recognized")  # this server keeps an empty folder
def test_what_another_version_left_among_the_arrays_goes(job, out, s3_server):
    run_job(job())
    before = objects(out, s3_server.address)
    Objects(out).put("released.zarr/old/zarr.json", b"{}")
    run_job(job(), resume=True)
    assert objects(out, s3_server.address) == before


def test_a_killed_run_goes_on(job_file, job, out, s3_server, tmp_path):
    """A process, kill -9 in the middle, and the next one: the same run, one charge, what was drawn stays."""
    words = ("run", job_file, "--set", "params.solver.n_rounds=400")
    process = start(*words)
    assert process.stderr is not None
    for line in process.stderr:
        if "charged: epsilon" in line and "to be" not in line:
            break
    while len(drawn := values(tmp_path / "ledger.sqlite")) < 20:
        assert process.poll() is None
    process.kill()
    process.communicate()
    assert set(objects(out, s3_server.address)) == {"run.json"} and status(out, s3_server.address) == "started"
    code, said = ended(*words)
    assert code == 2 and "started and not finished" in said and "--resume" in said
    code, said = ended(*words, "--resume", "--quiet")
    assert code == 0, said
    assert status(out, s3_server.address) == "done"
    (run,) = charges(tmp_path / "ledger.sqlite")
    assert json.loads(objects(out, s3_server.address)["run.json"])["run_id"] == run.run_id
    now = values(tmp_path / "ledger.sqlite")
    assert len(now) > 400 and drawn.items() <= now.items()


def values(path: object) -> dict[str, bytes]:
    """What a journal in a file holds."""
    import sqlite3

    with sqlite3.connect(str(path)) as db:
        return dict(db.execute("SELECT release_id, bytes FROM dpdist_values").fetchall())


def test_of_two_processes_that_start_in_one_place_one_goes_on(job_file, out, s3_server, tmp_path):
    processes = [start("run", job_file, "--quiet") for _ in range(2)]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 2], said
    (refused,) = (text for text in said if text)
    assert "not finished" in refused or "holds a finished run" in refused
    assert len(charges(tmp_path / "ledger.sqlite")) == 1 and status(out, s3_server.address) == "done"


def test_of_many_that_start_at_the_same_moment_one_goes_on(out):
    """All of them have seen that nothing is there."""
    places = [result_store(out) for _ in range(8)]
    assert [place.names() for place in places] == [[]] * 8
    made: list[bool] = []
    threads = [
        threading.Thread(target=lambda i=i, place=place: made.append(place.create("run.json", str(i).encode())))
        for i, place in enumerate(places)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]


def test_the_loser_of_a_race_is_told_the_same(out, monkeypatch):
    head = {"asked": {}, "budget": {"ledger": None, "journal": None}}
    winner = RunDirectory(out, head, resume=False)
    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "_found", lambda self: None)  # it looked before the winner was there
        with pytest.raises(OutputError, match=r"started and not finished.*--resume"):
            RunDirectory(out, head, resume=False)
    assert winner.run_id in str(result_store(out).read("run.json"))


# -- refused for free -----------------------------------------------------------------------------------------------


def test_a_place_that_is_taken(job, out, s3_server, tmp_path):
    Objects(out).put("photos/cat.jpg", b"")
    with pytest.raises(OutputError, match=r"other files \(photos\)"):
        run_job(job())
    assert run_job(job(f"output={out}/photos/cat"))["status"] == "done", "a longer name is another place"
    Objects(f"{out}/old").put("run.json", b'{"format": "something/9"}')
    with pytest.raises(OutputError, match="dpdist-run/1"):
        run_job(job(f"output={out}/old"), resume=True)
    with pytest.raises(OutputError, match="holds a finished run"):
        run_job(job(f"output={out}/photos/cat"))
    with pytest.raises(OutputError, match=r"something else .different: budget"):
        run_job(job(f"output={out}/photos/cat", "budget.epsilon=0.5"), resume=True)
    assert len(charges(tmp_path / "ledger.sqlite")) == 1


def test_a_run_that_the_limit_cannot_pay_for_leaves_no_trace(job, out, s3_server, tmp_path):
    Ledger(tmp_path / "ledger.sqlite").set_limit(Dataset.open(tmp_path / "rows.zarr").id, Budget(0.5, 1e-5))
    with pytest.raises(BudgetExceeded):
        run_job(job())
    assert objects(out, s3_server.address) == {}
    assert run_job(job("budget.epsilon=0.25"))["status"] == "done", "the place can be used after all"


def test_what_ended_a_run_is_said_also_if_its_trace_cannot_be_removed(
    job, out, s3_faults, s3_server, tmp_path, impatient
):
    Ledger(tmp_path / "ledger.sqlite").set_limit(Dataset.open(tmp_path / "rows.zarr").id, Budget(0.5, 1e-5))
    s3_faults.spoil = lambda method, path: None if method in ("GET", "HEAD", "PUT") else "503"
    with pytest.raises(BudgetExceeded):
        run_job(job("budget.epsilon=0.75"))
    assert s3_faults.spoiled == 1 and status(out, s3_server.address) == "started"
    s3_faults.spoil = lambda method, path: None
    Ledger(tmp_path / "ledger.sqlite").set_limit(Dataset.open(tmp_path / "rows.zarr").id, Budget(1.0, 1e-5))
    assert run_job(job("budget.epsilon=0.75"), resume=True)["status"] == "done", "it charged nothing, and goes on"


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_store_cannot_hold_the_ledger(job, out, s3_server, dry_run):
    generated = "data={generate: logit, n: 300, d: 4}"
    with pytest.raises(OutputError, match=r"cannot hold the ledger.*key ledger.*postgresql://"):
        run_job(job(generated, "ledger=null"), dry_run=dry_run)
    assert objects(out, s3_server.address) == {}
    assert run_job(job(generated), dry_run=dry_run)["id"] == "dp-gd"


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("bucket", "there is no such bucket.*make the bucket"),
        ("rights", "access was refused.*credentials"),
        ("gone", "does not answer.*endpoint"),
    ],
)
def test_a_store_that_cannot_be_used_is_named_for_free(problem, said, job, tmp_path, monkeypatch, impatient):
    settings = ()
    match problem:
        case "bucket":
            settings = ("output=s3://no-such-bucket/out",)
        case "rights":
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "open-sesame")
        case "gone":
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for resume in (False, True):
        with pytest.raises(OutputError, match=said) as refused:
            run_job(job(*settings), resume=resume)
        assert isinstance(refused.value, OutputUnavailable) is (problem == "gone")
        assert "sesame" not in str(refused.value) and KEY not in str(refused.value)
    if problem != "bucket":  # to a reader, what is not there is not there
        with pytest.raises(OutputError, match=said):
            write_report(job(*settings).output)
    assert not (tmp_path / "ledger.sqlite").exists()


class Careless(http.server.BaseHTTPRequestHandler):
    """A store that makes an object as often as it is asked to."""

    deleted: list[str]

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        listing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        self._answer(*((200, listing) if "list-type" in self.path else (404, b"")))

    def do_HEAD(self) -> None:
        self._answer(404)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.deleted.append(asked)
        key = asked.partition("<Key>")[2].partition("</Key>")[0]
        self._answer(200, f"<DeleteResult><Deleted><Key>{key}</Key></Deleted></DeleteResult>".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_a_store_that_makes_an_object_twice_is_refused(job, tmp_path, monkeypatch):
    Careless.deleted = []
    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.server_port}")
    try:
        with pytest.raises(OutputError, match=r"does not enforce put-if-absent.*Nothing was charged"):
            run_job(job())
    finally:
        store.shutdown()
        store.server_close()
    assert len(Careless.deleted) == 1 and "run.json</Key>" in Careless.deleted[0]
    assert not (tmp_path / "ledger.sqlite").exists()


# -- a store that fails ---------------------------------------------------------------------------------------------


def test_a_store_that_answers_503_for_a_while_changes_nothing(job, out, s3_faults, s3_server, tmp_path):
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def spoil(method: str, path: str) -> str | None:
        with lock:
            seen[method + path] = seen.get(method + path, 0) + 1
            return "503" if seen[method + path] <= 2 else None

    s3_faults.spoil = spoil
    assert run_job(job())["status"] == "done"
    assert s3_faults.spoiled > 10 and status(out, s3_server.address) == "done"
    assert len(charges(tmp_path / "ledger.sqlite")) == 1


def test_a_record_that_was_made_by_a_request_whose_answer_was_lost_is_ours(job, out, s3_faults, s3_server):
    """The server keeps the first PUT and says 503: the second finds the record there, and it is no other run's."""
    left = [1]

    def spoil(method: str, path: str) -> str | None:
        if method == "PUT" and path.endswith("run.json") and left[0]:
            left[0] -= 1
            return "late 503"
        return None

    s3_faults.spoil = spoil
    assert run_job(job())["status"] == "done" and s3_faults.spoiled == 1


@pytest.mark.parametrize("told", [1, 2, 7])
def test_a_store_that_is_gone_when_the_record_is_told_stops_the_run_before_the_value_is_used(
    told, job, out, s3_faults, s3_server, tmp_path, impatient
):
    puts = []

    def spoil(method: str, path: str) -> str | None:
        puts.extend([path] if method == "PUT" and path.endswith("run.json") else [])
        return "503" if method == "PUT" and path.endswith("run.json") and len(puts) > 1 + told else None

    s3_faults.spoil = spoil
    with pytest.raises(OutputUnavailable, match=r"cannot be written to .* Whatever was charged is on file"):
        run_job(job())
    drawn = values(tmp_path / "ledger.sqlite")
    assert len(charges(tmp_path / "ledger.sqlite")) == 1 and len(drawn) == told - 1
    s3_faults.spoil = lambda method, path: None
    assert run_job(job(), resume=True)["status"] == "done"
    assert drawn.items() <= values(tmp_path / "ledger.sqlite").items() and len(charges(tmp_path / "ledger.sqlite")) == 1


@pytest.mark.parametrize("part", ["released.zarr/coef", "released.zarr/zarr.json", "run.json", "report.html"])
def test_a_store_that_is_gone_at_the_end_costs_nothing(part, job, out, s3_faults, s3_server, tmp_path, impatient):
    arrays = []

    def spoil(method: str, path: str) -> str | None:
        arrays.extend([path] if method == "PUT" and "released.zarr" in path else [])
        return "503" if method == "PUT" and part in path and arrays else None

    s3_faults.spoil = spoil
    with pytest.raises(OutputUnavailable, match=r"results could not be written.*--resume|report cannot be written"):
        run_job(job())
    assert status(out, s3_server.address) == ("done" if part == "report.html" else "started")
    drawn = values(tmp_path / "ledger.sqlite")
    s3_faults.spoil = lambda method, path: None
    record = run_job(job(), resume=True)
    there = objects(out, s3_server.address)
    assert json.loads(there["run.json"]) == record and "report.html" in there
    assert values(tmp_path / "ledger.sqlite") == drawn and len(charges(tmp_path / "ledger.sqlite")) == 1


def test_a_reader_of_a_finished_run_finds_it_whole_while_it_is_written_again(job, out, s3_faults, s3_server):
    run_job(job())
    whole = objects(out, s3_server.address)
    seen = []

    def look(method: str, path: str) -> str | None:
        if method != "GET":
            seen.append(
                {name: data for name, data in objects(out, s3_server.address).items() if name in whole} == whole
            )
        return None

    s3_faults.spoil = look
    run_job(job(), resume=True)
    assert len(seen) > 8 and all(seen)


def test_arrays_come_before_the_record(job, out, s3_faults, s3_server):
    order = []

    def look(method: str, path: str) -> str | None:
        if method == "PUT":
            order.append(path.partition(out.rpartition("/")[2] + "/")[2].partition("?")[0])
        return None

    s3_faults.spoil = look
    run_job(job())
    assert order[0] == order[1] == "run.json", "made, and tried a second time"
    assert order[-3:] == ["released.zarr/zarr.json", "run.json", "report.html"]
    told = [name for name in order[2:-2] if name == "run.json"]
    assert len(told) == 1 + 11, "of the charge and of every value"
    rest = [name for name in order[2:-3] if name != "run.json"]
    arrays = {name.split("/")[1] for name in rest}
    for name in arrays:
        mine = [i for i, each in enumerate(rest) if each.startswith(f"released.zarr/{name}/")]
        assert rest[mine[-1]] == f"released.zarr/{name}/zarr.json", "what says that an array is there comes last"


# -- the report -----------------------------------------------------------------------------------------------------


def test_a_report_is_rendered_again_from_the_store(job, out, s3_server, capsys):
    run_job(job())
    before = objects(out, s3_server.address)
    Objects(out).delete(["report.html"])
    done = call(capsys, "report", out)
    assert done.code == 0 and done.out == f"{out}/report.html\n"
    assert objects(out, s3_server.address) == before
    assert json.loads(call(capsys, "report", f"{out}/", "--json").out) == {"report": f"{out}/report.html"}
    lost = call(capsys, "report", f"{out}-2")
    assert lost.code == 2 and "no run at" in lost.err and "output directory of dpdist run" in lost.err
    Objects(out).delete([name for name in before if name.startswith("released.zarr")])
    lost = call(capsys, "report", out)
    assert lost.code == 2 and "released arrays" in lost.err and "--resume" in lost.err


def test_a_run_that_is_not_done_has_a_report_that_says_so(out, capsys, s3_server):
    head = {"id": "dp-gd", "title": "t", "estimator": "e", "asked": {}, "budget": {"ledger": "l", "journal": None}}
    RunDirectory(out, head, resume=False)
    assert call(capsys, "report", out).code == 0
    assert b"Not finished." in objects(out, s3_server.address)["report.html"]


def test_the_result_for_people_names_the_store(job_file, out, capsys):
    done = call(capsys, "run", job_file, "--quiet")
    assert done.code == 0 and f"{out}: run.json, released.zarr, report.html" in done.out


def test_the_runner_of_a_pod_tries_again_and_tells_the_run(
    job_file, out, s3_faults, s3_server, tmp_path, monkeypatch, impatient
):
    from distributed import LocalCluster

    message = tmp_path / "message"
    message.touch()
    monkeypatch.setattr(runner, "MESSAGE", message)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None, protocol="tcp") as cluster:
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", cluster.scheduler_address)
        words = ["--workers", "1", "--", str(job_file), "--output", out]
        s3_faults.spoil = lambda method, path: "503" if method == "PUT" and "released.zarr" in path else None
        assert runner.run(words) == exit_codes.TRY_AGAIN
        assert "--resume" in json.loads(message.read_text())["error"]
        s3_faults.spoil = lambda method, path: None
        assert runner.run(words) == 0
    (run,) = charges(tmp_path / "ledger.sqlite")
    assert json.loads(message.read_text()) == {"run_id": run.run_id} and status(out, s3_server.address) == "done"


# -- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Object at .* is not recognized")  # this server keeps an empty folder
@pytest.mark.parametrize("kind", ["folder", "store"])
def test_both_places_keep_the_same_promises(kind, out, tmp_path):
    place = result_store(out if kind == "store" else tmp_path / "a" / "b")
    assert place.names() == [] and place.read("x") is None
    assert place.create("x", b"one") and not place.create("x", b"two") and place.read("x") == b"one"
    place.replace("x", b"three")
    place.replace("y", b"four")
    assert sorted(place.names()) == ["x", "y"] and (place.read("x"), place.read("y")) == (b"three", b"four")
    for arrays in ({"a": np.arange(6.0).reshape(2, 3), "b": np.zeros(3)}, {"b": np.array([1, 2])}):
        place.write_arrays("z", arrays)
        found = place.read_arrays("z")
        assert found.keys() == arrays.keys() and all((found[name] == arrays[name]).all() for name in arrays)
    place.discard(["x", "y", "never was"])
    assert place.names() == ["z"]


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultStoreError, match="Not a directory"):
        result_store(tmp_path / "file" / "inside").create("x", b"")
    with pytest.raises(ResultStoreError):
        result_store(tmp_path / "file").names()
