"""``dpdist submit``, ``status``, ``logs`` and ``cancel`` against a pretended API server; a real one is in
``tests/kubernetes``."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dpdist.cli import exit_codes, runner
from dpdist.cluster import kubernetes
from dpdist.cluster.attempt import attempt_of
from dpdist.cluster.submission import ATTEMPT, OUTCOME, RUN
from dpdist.errors import ClusterError
from tests.cli.command import call
from tests.kubernetes.kustomize import build
from tests.kubernetes.pretend import PretendAPI

LAPTOP = Path(__file__).parents[2] / "deploy/overlays/laptop"
JOB = """
method: dp-gd
data: {path: /data/rows.zarr}
params: {classes: [0, 1], row_norm: 1.0}
budget: {epsilon: 1.0, delta: 1.0e-6}
"""


@pytest.fixture(scope="module")
def server():  # one for all: kr8s keeps a client for every set of arguments, whatever the environment says
    server = PretendAPI()
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def kubeconfig(server, tmp_path_factory):  # of the module: a client that is kept reads its file again after an error
    return server.kubeconfig(tmp_path_factory.mktemp("kube") / "kubeconfig")


@pytest.fixture
def api(server, kubeconfig, tmp_path, monkeypatch):
    server.objects.clear()
    server.fail = None
    for each in build(LAPTOP):
        if each["kind"] == "PodTemplate":
            server.add("podtemplates", each)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(kubernetes, "POLL", 0.02)
    (tmp_path / "job.yaml").write_text(JOB)
    return server


@pytest.fixture
def job(tmp_path):
    return tmp_path / "job.yaml"


def moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def dask_job(status=None, age=0.0, **annotations):
    meta = {"name": "r-2", "labels": {ATTEMPT: "2"}, "creationTimestamp": moment(-age), "annotations": annotations}
    return {"metadata": meta, "status": {"jobStatus": status} if status else {}}


def pod(phase, code=None, age=0.0, reason=None, message="", waiting=None, deleted=None, why=None):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": moment(0)}}
    if code is None:
        state = {"waiting": {"reason": waiting, "message": "no such image"}} if waiting else {"running": {}}
    meta = {"name": "r-2-runner", "creationTimestamp": moment(-age)}
    if deleted is not None:
        meta["deletionTimestamp"] = moment(-deleted)
    return {"metadata": meta, "status": {"phase": phase, "containerStatuses": [{"state": state}], "reason": why}}


NOW = time.time()  # of the table, which is made when the module is imported
TABLE = {
    # what the API says: state, and whether to try again
    "operator is slow": (dask_job(), None, "waiting", False),
    "operator is not there": (dask_job(age=90), None, "waiting", False),
    "runs": (dask_job("Running"), pod("Running"), "running", False),
    "status is behind": (dask_job("Running"), pod("Succeeded", 0), "done", False),
    "status never came": (dask_job("ClusterCreated"), pod("Failed", 137), "failed", True),
    "killed": (dask_job("Failed"), pod("Failed", 137, reason="OOMKilled"), "failed", True),
    "terminated": (dask_job("Failed"), pod("Failed", 143), "failed", True),
    "cluster failed it": (dask_job("Failed"), pod("Failed", exit_codes.TRY_AGAIN), "failed", True),
    "evicted": (dask_job("Failed"), pod("Failed", why="Evicted"), "failed", True),
    "wrong setting": (dask_job("Failed"), pod("Failed", 2), "failed", False),
    "refused": (dask_job("Failed"), pod("Failed", 3), "failed", False),
    "bug": (dask_job("Failed"), pod("Failed", 1), "failed", False),
    "pod deleted, status stuck": (dask_job("Running"), None, "lost", True),
    "pod deleted before it ran": (dask_job("ClusterCreated"), None, "lost", True),
    "pod being deleted": (dask_job("Running"), pod("Running", deleted=1), "running", False),
    "pod deleted with grace": (dask_job("Running"), pod("Failed", 143, deleted=1), "lost", True),
    "node gone": (dask_job("Running"), pod("Running", deleted=90), "lost", True),
    "pod collected after the end": (dask_job("Successful"), None, "done", False),
    "failed and collected": (dask_job("Failed"), None, "failed", False),
    "pulling again": (dask_job("ClusterCreated"), pod("Pending", waiting="ErrImagePull"), "waiting", False),
    "no such image": (dask_job("ClusterCreated"), pod("Pending", waiting="ErrImagePull", age=200), "failed", False),
    "creating": (dask_job("ClusterCreated"), pod("Pending", waiting="ContainerCreating", age=200), "waiting", False),
    "cancelled": (dask_job("Running", **{OUTCOME: "cancelled"}), None, "cancelled", False),
    "noted as lost": (dask_job("Running", **{OUTCOME: "the node"}), None, "lost", True),
    "noted as lost, but done": (dask_job("Running", **{OUTCOME: "x"}), pod("Succeeded", 0), "done", False),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_became_of_an_attempt(case):
    found, its_pod, state, again = TABLE[case]
    attempt = attempt_of(found, its_pod, NOW)
    assert (attempt.state, attempt.again, attempt.number) == (state, again, 2), attempt
    assert attempt.over == (state not in ("waiting", "running"))


def test_a_missing_operator_and_last_words_are_told():
    assert "operator run" in attempt_of(dask_job(age=90), None, time.time()).reason
    words = json.dumps({"error": "the ledger refuses"})
    attempt = attempt_of(dask_job("Failed"), pod("Failed", 3, reason="Error", message=words), time.time())
    assert attempt.reason == "the ledger refuses" and attempt.exit_code == 3
    attempt = attempt_of(dask_job("Failed"), pod("Failed", 137, reason="OOMKilled"), time.time())
    assert attempt.reason == "OOMKilled"


def test_submit_makes_a_daskjob(api, job, capsys):
    done = call(capsys, "submit", job, "--name", "monday", "--output", "/runs/monday", "--workers", 5,
                "--image", "example.org/d:2", "--set", "params.solver.n_rounds=7",
                "--set", "budget.epsilon=0.5")  # fmt: skip
    assert (done.code, done.out) == (0, "monday\n"), done.err
    [made] = api.objects["daskjobs"].values()
    assert made["metadata"]["name"] == "monday-1" and made["metadata"]["labels"][RUN] == "monday"
    [owner] = made["metadata"]["ownerReferences"]
    stored = api.objects["configmaps"][owner["name"]]
    assert stored["data"]["job.yaml"] == JOB and stored["immutable"] and owner["uid"] == stored["metadata"]["uid"]
    spec = made["spec"]["cluster"]["spec"]
    assert spec["worker"]["replicas"] == 5
    pods = made["spec"]["job"]["spec"], spec["worker"]["spec"], spec["scheduler"]["spec"]
    assert {each["containers"][0]["image"] for each in pods} == {"example.org/d:2"}
    args = pods[0]["containers"][0]["args"]
    assert args[-6:] == ["--set", "params.solver.n_rounds=7", "--set", "budget.epsilon=0.5", "--output", "/runs/monday"]
    # again: the same run, nothing new
    again = ("submit", job, "--name", "monday", "--output", "/runs/monday")
    done = call(capsys, *again, "--set", "params.solver.n_rounds=7", "--set", "budget.epsilon=0.5")
    assert done.code == 0 and len(api.objects["daskjobs"]) == 1
    done = call(capsys, *again)
    assert done.code == 2 and "choose another --name" in done.err


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"output: /tmp/x": ""}, "output /tmp/x would be lost with the pod"),
        ({"output: runs/x": ""}, "output runs/x would be lost"),
        ({"output: /runs/../tmp/x": ""}, "would be lost"),
        ({"": ""}, "output is missing"),
        ({"output: /runs/x\nledger: /tmp/ledger.sqlite": ""}, "ledger /tmp/ledger.sqlite would be lost"),
        ({"output: /data/x": "", "/data/": "/elsewhere/"}, "data.path /elsewhere/rows.zarr is on no claim"),
        ({"output: /runs/x": "", "/rows.zarr": "/rows.zarr, storage_options: {secret_access_key: s3cr3t}"}, "secret"),
        ({"output: s3://user:s3cr3t@bucket/x": ""}, "password"),
        ({"output: /runs/x\njournal: /tmp/j.sqlite": ""}, "journal /tmp/j.sqlite would be lost"),
        ({"output: /runs/x\njournal: s3://user:s3cr3t@bucket/j": ""}, "password"),
        ({"output: s3://b/x": "", "{path: /data/rows.zarr}": "{generate: logit}"}, "ledger is missing, and a store"),
    ],
)
def test_what_would_be_lost_or_told_is_refused(api, job, capsys, change, problem):
    text = JOB
    for new, old in ((n, o) for n, o in change.items() if not o):
        text += new + old
    for old, new in ((o, n) for o, n in change.items() if n):
        text = text.replace(old, new)
    job.write_text(text)
    done = call(capsys, "submit", job)
    assert done.code == 2 and problem in done.err, done.err
    assert "s3cr3t" not in done.err and "daskjobs" not in api.objects and "configmaps" not in api.objects


def test_results_and_journal_may_be_in_a_store(api, job, capsys):
    job.write_text(f"{JOB}journal: s3://bucket/journal\nledger: postgresql://dpdist@db/ledger\n")
    done = call(capsys, "submit", job, "--name", "stored", "--output", "s3://bucket/runs/stored")
    assert done.code == 0, done.err
    [made] = api.objects["daskjobs"].values()
    runner = made["spec"]["job"]["spec"]["containers"][0]
    assert runner["args"][-2:] == ["--output", "s3://bucket/runs/stored"]
    [stored] = api.objects["configmaps"].values()
    assert "journal: s3://bucket/journal" in stored["data"]["job.yaml"]


def play(api, *outcomes):
    """Let attempts end as told, one after the other."""

    def operator():
        for number, outcome in enumerate(outcomes, start=1):
            name = f"night-{number}"
            while name not in api.objects.get("daskjobs", {}):
                time.sleep(0.01)
            found = api.objects["daskjobs"][name]
            found["status"] = {"jobStatus": "Running"}
            api.add("daskclusters", {"metadata": {"name": name}})
            if outcome is not None:
                body = outcome
                labels = {
                    **found["metadata"]["labels"],
                    "dask.org/cluster-name": name,
                    "dask.org/component": "job-runner",
                }
                body["metadata"] |= {"name": f"{name}-runner", "labels": labels}
                api.add("pods", body)

    threading.Thread(target=operator, daemon=True).start()


WAIT = ("--name", "night", "--output", "/runs/night", "--wait")


def test_waiting_retries_until_it_is_done(api, job, capsys):
    play(api, pod("Failed", 137, reason="OOMKilled"), None, pod("Succeeded", 0))
    done = call(capsys, "submit", job, *WAIT, "--retries", 3)
    assert done.code == 0 and "done after 3 attempts" in done.out, done.err
    assert "night-1: failed, OOMKilled" in done.err and "night-2: lost, the runner pod was deleted" in done.err
    assert sorted(api.objects["daskjobs"]) == ["night-1", "night-2", "night-3"]
    assert "night-2" not in api.objects["daskclusters"]  # the operator would have kept it for ever
    shown = call(capsys, "status", "night", "--json")
    assert [row["state"] for row in json.loads(shown.out)] == ["failed", "lost", "done"]
    assert call(capsys, "status").out.splitlines()[1].split()[:3] == ["night", "3", "done"]


def test_retries_end(api, job, capsys):
    play(api, pod("Failed", 137), pod("Failed", 137))
    done = call(capsys, "submit", job, *WAIT, "--retries", 1)
    assert done.code == 2 and "failed in attempt 2" in done.err and len(api.objects["daskjobs"]) == 2


@pytest.mark.parametrize(("code", "status"), [(2, 2), (3, 3), (1, 2)])
def test_what_would_fail_again_is_not_tried_again(api, job, capsys, code, status):
    play(api, pod("Failed", code, message='{"error": "because"}'))
    done = call(capsys, "submit", job, *WAIT, "--retries", 3)
    assert done.code == status and "because" in done.err and len(api.objects["daskjobs"]) == 1


def test_a_waiting_client_that_was_killed_is_taken_up(api, job, capsys):
    play(api, pod("Failed", 137), pod("Succeeded", 0))
    call(capsys, "submit", job, "--name", "night", "--output", "/runs/night")
    done = call(capsys, "submit", job, *WAIT, "--retries", 1)
    assert done.code == 0 and len(api.objects["daskjobs"]) == 2, done.err


def test_cancel_ends_the_waiting(api, job, capsys):
    play(api, pod("Running"))
    call(capsys, "submit", job, "--name", "night", "--output", "/runs/night")
    while not api.objects.get("pods"):
        time.sleep(0.01)
    done = call(capsys, "cancel", "night")
    assert done.code == 0 and "cancelled attempt 1" in done.out, done.err
    assert not api.objects["pods"] and not api.objects["daskclusters"]
    done = call(capsys, "submit", job, *WAIT, "--retries", 3)
    assert done.code == 2 and "was cancelled" in done.err and len(api.objects["daskjobs"]) == 1
    assert "nothing is under way" in call(capsys, "cancel", "night").out


def test_logs(api, job, capsys):
    play(api, pod("Succeeded", 0))
    call(capsys, "submit", job, *WAIT)
    api.logs["night-1-runner"] = "one\ntwo\n"
    assert call(capsys, "logs", "night").out == "one\ntwo\n"
    missing = call(capsys, "logs", "night", "--attempt", 2)
    assert missing.code == 2 and "there are: 1" in missing.err
    assert "no run tuesday" in call(capsys, "logs", "tuesday").err


def test_an_api_server_that_is_away_for_a_moment(api, job, capsys):
    play(api, pod("Succeeded", 0))
    call(capsys, "submit", job, "--name", "night", "--output", "/runs/night")
    place = kubernetes.Namespace()
    asked, answer = [], place.attempts

    def attempts(run):
        """Nothing is wrong any more when it is asked for the third time."""
        asked.append(run)
        api.fail = 503 if len(asked) < 3 else None
        return answer(run)

    place.attempts = attempts
    told = []
    assert kubernetes.follow(place, "night", lambda number: None, 0, told.append).state == "done" and told
    assert len(asked) >= 3


@pytest.mark.parametrize(("status", "words"), [(403, "rbac.yaml"), (500, "answered 500")])
def test_what_the_api_server_refuses(api, job, capsys, status, words):
    api.fail = status
    done = call(capsys, "submit", job, "--output", "/runs/x")
    assert done.code == 2 and words in done.err, done.err


def test_a_namespace_that_is_not_prepared(api, job, capsys):
    api.objects.clear()
    done = call(capsys, "submit", job, "--output", "/runs/x")
    assert done.code == 2 and "kubectl apply -k" in done.err


def test_words_that_make_no_sense(api, job, capsys):
    assert "--wait" in call(capsys, "submit", job, "--retries", 1).err
    assert "cannot name a run" in call(capsys, "submit", job, "--name", "Monday!").err


def test_the_runner_tells_whether_to_try_again(tmp_path, monkeypatch, capsys):
    message = tmp_path / "message"
    message.touch()
    monkeypatch.setattr(runner, "MESSAGE", message)
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9")
    assert runner.run(["--workers", "1", "--patience", "0.3", "--", "job.yaml"]) == exit_codes.TRY_AGAIN
    assert "no scheduler" in json.loads(message.read_text())["error"]
    monkeypatch.setattr("dpdist.engine.waiting.wait_for_workers", lambda *_: 1)
    assert runner.run(["--workers", "1", "--", "missing.yaml", "--output", str(tmp_path)]) == 2
    assert "missing.yaml" in json.loads(message.read_text())["error"]


def test_waiting_for_workers():
    from distributed import LocalCluster

    from dpdist.engine.waiting import wait_for_workers

    with LocalCluster(n_workers=1, processes=False, dashboard_address=None, protocol="tcp") as cluster:
        assert wait_for_workers(cluster.scheduler_address, 1, 10) == 1
        assert wait_for_workers(cluster.scheduler_address, 2, 0.3) == 1  # goes on with what there is
        cluster.scale(0)
        while cluster.scheduler_info["workers"]:
            time.sleep(0.05)
        with pytest.raises(ClusterError, match="no workers"):
            wait_for_workers(cluster.scheduler_address, 1, 0.3)
