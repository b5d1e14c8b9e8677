"""Runs in real pods, through the real operator: they succeed, lose a worker, lose their runner, are refused."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.engine import waits
from dpdist.runs.storage import result_store
from tests.faults.page import came_to
from tests.kubernetes.cluster import USER, Node, for_old_api, tls_secret
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kustomize import build, documents, identity, merged
from tests.kubernetes.place import Place, ended, write_rows

pytestmark = pytest.mark.kubernetes

N_ROUNDS = 160
MANY = 6 * N_ROUNDS  # enough for what happens to the run to happen before its end
LONG = ("--set", f"params.solver.n_rounds={MANY}")
JOB = f"""
method: dp-gd
data: {{path: /data/rows.zarr}}
params: {{classes: [0, 1], row_norm: 1.0, solver: {{n_rounds: {N_ROUNDS}}}}}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
"""


class Stored(Place):
    """A dataset, results and an SQLite ledger on claims: the overlay "laptop"."""

    def __init__(self, node: Node, folder: Path) -> None:
        super().__init__(node, folder, JOB)
        self.runs, self.data = node.volume("dpdist-runs"), node.volume("dpdist-data")
        write_rows(str(self.data / "rows.zarr"))
        for path in (self.data, *self.data.rglob("*")):
            os.chown(path, USER, USER)

    def output(self, name: str) -> str:
        return f"/runs/{name}"

    def record(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.runs / name / "run.json").read_text())
        return found

    def released(self, name: str) -> dict[str, np.ndarray]:
        return result_store(str(self.runs / name)).read_arrays("released.zarr")

    def values(self) -> dict[str, bytes]:
        path = self.runs / "ledger.sqlite"
        if not path.exists():
            return {}
        with closing(sqlite3.connect(path, timeout=30)) as db:
            try:
                return dict(db.execute("SELECT release_id, bytes FROM dpdist_values"))
            except sqlite3.OperationalError:  # not made yet
                return {}

    def charged(self) -> dict[str, int]:
        """Number of releases of every run on file."""
        if not (self.runs / "ledger.sqlite").exists():  # made here it would not be the pods'
            return {}
        with closing(Ledger(str(self.runs / "ledger.sqlite"))) as ledger:
            return {run.run_id: len(run.releases) for run in ledger.history(self.dataset_id())}

    def dataset_id(self) -> str:
        return Dataset.open(self.data / "rows.zarr").id


@pytest.fixture(scope="module")
def place(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    yield Stored(node, tmp_path_factory.mktemp("jobs"))


def test_a_job_succeeds(place, numbers):
    began = time.monotonic()
    code, out, err = ended(place.submit("plain"))
    numbers["submit to result (s)"] = round(time.monotonic() - began, 1)
    assert code == 0 and "plain: done after 1 attempt" in out, err
    record = place.record("plain")
    numbers["of which dpdist run (s)"] = record["seconds"]
    assert record["status"] == "done" and place.charged() == {record["run_id"]: N_ROUNDS + 1}
    [attempt] = place.attempts("plain")
    assert (attempt["state"], attempt["exit_code"], attempt["run_id"]) == ("done", 0, record["run_id"])
    assert "Released" in place.node.run(*place.dpdist("logs", "plain")).stdout
    give_up = time.monotonic() + 60
    while place.node.get("daskclusters", "-n", "dpdist")["items"]:
        assert time.monotonic() < give_up
        time.sleep(0.5)


def test_throughput(place, numbers):
    """Rows per second in the median round: the first ones read the data and compile."""
    n, rounds = 3_000_000, 60
    write_rows(str(place.data / "many.zarr"), n, 20, 24)
    for path in (place.data / "many.zarr", *(place.data / "many.zarr").rglob("*")):
        os.chown(path, USER, USER)
    size = ("--set", f"params.solver.n_rounds={rounds}", "--set")
    code, _, err = ended(place.submit("many", *size, "data.path=/data/many.zarr"))
    assert code == 0, err
    local = place.job.parent / "local.sqlite"
    # with the pods' share of a machine on which others work as well
    group = Path("/sys/fs/cgroup/cpu", (place.node.folder / "cgroup").read_text().strip(), "tasks")
    run = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', group, sys.executable, "-m", "dpdist.cli"]
    run += ["run", place.job, *size, f"data.path={place.data / 'many.zarr'}"]
    run += ["--set", f"ledger={local}", "--output", place.job.parent / "local"]
    subprocess.run(list(map(str, run)), check=True, capture_output=True)
    seconds = []
    for path in (local, place.runs / "ledger.sqlite"):
        with closing(Ledger(str(path))) as ledger:
            [mine] = ledger.history(Dataset.open(place.data / "many.zarr").id)
        times = [datetime.fromisoformat(release.when).timestamp() for release in mine.releases]
        seconds.append(float(np.median(np.diff(times))))
    here, there = (n / each for each in seconds)
    numbers["million rows a second, threads here, two worker pods, ratio"] = [
        round(here / 1e6, 1), round(there / 1e6, 1), round(there / here, 2)
    ]  # fmt: skip
    assert there > here / 4, "the README says half of it; other work on the machine may cost half of that"


# until nothing listens there any more
GONE = """
import socket, sys, time
try:
    while True:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()
        time.sleep(0.05)
except OSError:
    pass
"""


def lose(place: Stored, name: str, component: str, port: int) -> tuple[float, int]:
    """Run a job and kill a pod of it in the middle; returns the longest time without a release, and the attempts."""
    before = set(place.charged())
    process = place.submit(name, "--retries", 2, *LONG)
    place.until(30)
    label = f"dpdist/run={name},dask.org/component={component}"
    pod = place.node.get("pods", "-n", "dpdist", "-l", label)["items"][0]
    # it runs as nobody in particular and cannot write beside /tmp
    shell = ("sh", "-c", "id -u; mkdir /opt/x || mkdir /tmp/x && echo writes to /tmp only")
    said = place.node.kubectl("exec", "-n", "dpdist", pod["metadata"]["name"], "--", *shell)
    assert said.split("\n", 1) == [str(USER), "writes to /tmp only\n"]
    times: list[float] = []

    def watch() -> None:
        seen = 0
        while process.poll() is None:
            if (now := len(place.values())) != seen:
                seen = now
                times.append(time.monotonic())
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    place.kill(pod["metadata"]["name"])
    place.node.run(sys.executable, "-c", GONE, pod["status"]["podIP"], port)
    released = len(place.values())
    code, _, err = ended(process)
    watcher.join()
    assert code == 0, err
    assert len(place.values()) - released > N_ROUNDS  # the pod was gone in the middle of the run
    [mine] = set(place.charged()) - before
    assert place.charged()[mine] == MANY + 1
    return round(float(np.diff(times).max()), 1), len(place.attempts(name))


def test_a_lost_worker(place, numbers):
    stall, attempts = lose(place, "worker", "worker", 8788)
    numbers["stall after a worker was killed (s)"] = stall
    assert attempts == 1


def test_a_lost_scheduler(place, numbers):
    numbers["stall after the scheduler was killed (s), attempts"] = lose(place, "scheduler", "scheduler", 8786)


SEEDED = (*LONG, "--set", "params.random_state=1")
AWAY = 30  # seconds without workers: longer than it takes a run to notice


@pytest.fixture(scope="module")
def undisturbed(place) -> dict[str, np.ndarray]:
    """What a seeded run releases in whose pods nothing happens."""
    code, _, err = ended(place.submit("undisturbed", *SEEDED))
    assert code == 0, err
    return place.released("undisturbed")


def workers(place: Stored, name: str) -> list[str]:
    """Worker pods of a run that are there, and not on their way out."""
    pods = place.node.get("pods", "-n", "dpdist", "-l", f"dpdist/run={name},dask.org/component=worker")["items"]
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def others_run(place: Stored, name: str, gone: list[str], number: int = 2, patience: float = 60) -> None:
    """Wait for so many workers that run and are none of these."""
    give_up = time.monotonic() + patience
    while True:
        pods = place.node.get("pods", "-n", "dpdist", "-l", f"dpdist/run={name},dask.org/component=worker")["items"]
        fresh = [pod for pod in pods if pod["metadata"]["name"] not in gone and pod["status"]["phase"] == "Running"]
        if len(fresh) >= number:
            return
        assert time.monotonic() < give_up, place.node.kubectl("get", "pods", "-n", "dpdist")
        time.sleep(0.5)


def delete(place: Stored, *pods: str) -> None:
    place.node.kubectl("delete", "pod", "-n", "dpdist", *pods)  # returns when they are gone


def delete_both(place: Stored, name: str) -> None:
    delete(place, *workers(place, name))


def delete_both_by_force(place: Stored, name: str) -> None:
    for pod in workers(place, name):
        place.kill(pod)


def evict_one_after_another(place: Stored, name: str) -> None:
    """Each new one is there before the next old one goes; nobody is left of the first ones."""
    first = workers(place, name)
    for i, pod in enumerate(first):
        delete(place, pod)
        others_run(place, name, first, i + 1)


def scale(place: Stored, name: str, replicas: int) -> None:
    """Every worker is a Deployment of its own; the operator's way to fewer leads through a dashboard's port."""
    which = f"dpdist/run={name},dask.org/component=worker"
    place.node.kubectl("scale", "deployment", "-n", "dpdist", "-l", which, f"--replicas={replicas}")


def scale_to_zero(place: Stored, name: str) -> None:
    scale(place, name, 0)
    give_up = time.monotonic() + 60
    while workers(place, name):
        assert time.monotonic() < give_up
        time.sleep(0.5)


def scale_to_zero_and_back(place: Stored, name: str) -> None:
    scale_to_zero(place, name)
    time.sleep(AWAY)
    scale(place, name, 1)


STRIKES = {
    "deleted": ("both workers are deleted", delete_both),
    "forced": ("both workers are deleted by force", delete_both_by_force),
    "evicted": ("both workers are deleted, one after another", evict_one_after_another),
    "scaled": (f"the workers are scaled to zero, and back after {AWAY} s", scale_to_zero_and_back),
}


@pytest.mark.parametrize("what", STRIKES)
def test_a_run_outlives_all_its_workers(place, undisturbed, what):
    fault, strike = STRIKES[what]
    name, before = f"workers-{what}", set(place.charged())
    process = place.submit(name, "--retries", 1, *SEEDED)
    place.until(30)
    first = workers(place, name)
    assert len(first) == 2
    struck = time.monotonic()
    strike(place, name)
    assert not set(workers(place, name)) & set(first)
    released = len(place.values())
    place.until(1)  # in the middle of the run
    took = time.monotonic() - struck
    code, out, err = ended(process)
    assert code == 0 and "done after 1 attempt" in out, err
    assert len(place.values()) - released > 1
    [mine] = set(place.charged()) - before
    assert place.charged()[mine] == MANY + 1
    found = place.released(name)
    assert found.keys() == undisturbed.keys()
    assert all(np.array_equal(found[array], undisturbed[array]) for array in undisturbed)
    came_to("Pods", fault, "survived: the same values", took)


def test_workers_that_stay_away_end_an_attempt_and_the_next_one_goes_on(place, undisturbed):
    before = set(place.charged())
    process = place.submit("zero", "--retries", 1, *SEEDED)
    place.until(30)
    scale_to_zero(place, "zero")
    gone, seen = time.monotonic(), place.values()
    place.until(1, waits.PATIENCE + 90)
    took = time.monotonic() - gone
    code, out, err = ended(process)
    assert code == 0 and "done after 2 attempts" in out, err
    given_up, done = place.attempts("zero")
    assert (given_up["exit_code"], done["exit_code"]) == (75, 0)
    assert "has no workers" in given_up["reason"] and "\n" not in given_up["reason"]
    [mine] = set(place.charged()) - before
    assert place.charged()[mine] == MANY + 1 and place.values().items() >= seen.items()
    found = place.released("zero")
    assert all(np.array_equal(found[array], undisturbed[array]) for array in undisturbed)
    came_to("Pods", "the workers are scaled to zero for good", "exit code 75; the next attempt goes on", took)


def test_a_killed_runner_is_resumed_with_the_same_releases(place, numbers):
    before, values = set(place.charged()), place.values()
    rng = np.random.default_rng()
    began = time.monotonic()
    process = place.submit("runner", "--retries", 9, *LONG)
    seen: dict[str, bytes] = {}
    kills, stalls = 3, []
    for kill in range(kills):
        place.until(int(rng.integers(1, N_ROUNDS // (kills + 1))))
        time.sleep(rng.uniform(0, 0.2))
        place.kill(f"runner-{kill + 1}-runner")
        killed = time.monotonic()
        time.sleep(2)  # until the process is gone for certain
        now = {key: value for key, value in place.values().items() if key not in values}
        assert all(now[key] == value for key, value in seen.items())
        seen = now
        place.until(1)
        stalls.append(round(time.monotonic() - killed, 1))
    code, out, err = ended(process)
    numbers["submit to result with 3 killed runners (s)"] = round(time.monotonic() - began, 1)
    numbers["stalls after a runner was killed (s)"] = stalls
    assert code == 0 and f"done after {kills + 1} attempts" in out, err
    [mine] = set(place.charged()) - before  # one charge
    assert mine == place.record("runner")["run_id"] and place.charged()[mine] == MANY + 1
    last = {key: value for key, value in place.values().items() if key not in values}
    assert len(last) == MANY + 1 and all(last[key] == value for key, value in seen.items())
    states = [attempt["state"] for attempt in place.attempts("runner")]
    assert states == ["lost"] * kills + ["done"]


def test_a_terminated_runner_keeps_its_run(place):
    """An evicted pod gets SIGTERM first, and dpdist run then tidies up."""
    before = set(place.charged())
    process = place.submit("evicted", "--retries", 2, *LONG)
    place.until(20)
    place.node.kubectl("delete", "pod", "-n", "dpdist", "--wait=false", "evicted-1-runner")
    code, out, err = ended(process)
    assert code == 0 and "done after 2 attempts" in out, err
    assert len(set(place.charged()) - before) == 1
    # the operator does not see that such a pod ended, and would keep its cluster
    assert not place.node.get("daskclusters", "-n", "dpdist", "-l", "dpdist/run=evicted,dpdist/attempt=1")["items"]


FILL = """
import os, time
for _ in range(40):  # each smaller than the runner: the kernel ends the largest process
    if os.fork() == 0:
        x = bytearray(b"1") * (100 << 20)
        time.sleep(60)
        os._exit(0)
    time.sleep(0.05)
time.sleep(60)
"""


def test_a_runner_that_runs_out_of_memory_is_tried_again(place):
    process = place.submit("memory", "--retries", 1, *LONG)
    place.until(5)
    place.node.run("kubectl", "exec", "-n", "dpdist", "memory-1-runner", "--", "python", "-c", FILL, check=False)
    code, out, err = ended(process)
    assert code == 0 and "done after 2 attempts" in out and "OOMKilled" in err, out + err


def test_a_job_that_fails_says_so_and_is_not_tried_again(place, numbers):
    place.job.write_text(JOB.replace("rows.zarr", "missing.zarr"))
    began = time.monotonic()
    code, _, err = ended(place.submit("wrong", "--retries", 3))
    numbers["submit to the report of a failure (s)"] = round(time.monotonic() - began, 1)
    place.job.write_text(JOB)
    assert code == 2 and "missing.zarr" in err, err
    [attempt] = place.attempts("wrong")
    assert (attempt["state"], attempt["exit_code"]) == ("failed", 2) and "missing.zarr" in attempt["reason"]
    status = place.node.kubectl("get", "daskjob", "-n", "dpdist", "wrong-1", "-o", "jsonpath={.status.jobStatus}")
    assert status == "Failed"


def test_a_nightly_run(place, numbers):
    """A Job of the CronJob submits with the rights of its service account, and what it made goes with it."""
    cron = ("create", "job", "-n", "dpdist", "night", "--from=cronjob/dpdist-nightly")
    began = time.monotonic()
    place.node.kubectl(*cron)
    place.node.kubectl("wait", "-n", "dpdist", "--for=condition=complete", "--timeout=240s", "job/night")
    numbers["nightly Job to result (s)"] = round(time.monotonic() - began, 1)
    assert place.record("night")["status"] == "done"
    assert [attempt["state"] for attempt in place.attempts("night")] == ["done"]
    place.node.kubectl("delete", "job", "-n", "dpdist", "night")
    give_up = time.monotonic() + 60
    while place.node.get("daskjobs,configmaps,pods", "-n", "dpdist", "-l", "dpdist/run=night")["items"]:
        assert time.monotonic() < give_up
        time.sleep(0.5)


def test_cancel(place):
    # so long that it is under way however slowly the command starts that is to end it
    process = place.submit("cancelled", "--retries", 3, "--set", f"params.solver.n_rounds={20 * MANY}")
    place.until(5)
    assert "cancelled attempt 1" in place.node.run(*place.dpdist("cancel", "cancelled")).stdout
    code, _, err = ended(process)
    assert code == 2 and "was cancelled" in err


def test_what_the_ledger_refuses(place):
    charged = place.charged()
    with closing(Ledger(str(place.runs / "ledger.sqlite"))) as ledger:
        ledger.set_limit(place.dataset_id(), Budget(len(charged) + 0.5, 1e-3))
    code, _, err = ended(place.submit("refused", "--retries", 3))
    with closing(Ledger(str(place.runs / "ledger.sqlite"))) as ledger:
        ledger.set_limit(place.dataset_id(), Budget(100, 1e-3))
    assert code == 3 and len(place.attempts("refused")) == 1, err
    assert place.charged() == charged and not (place.runs / "refused").exists()


def test_with_tls(place):
    """The production overlay's certificates on this node."""
    objects = build(DEPLOY / "overlays/laptop")
    for change in documents(DEPLOY / "overlays/production/tls.yaml"):
        [target] = [each for each in objects if identity(each) == identity(change)]
        objects[objects.index(target)] = merged(target, change)
    place.node.apply([tls_secret(place.job.parent), *for_old_api(objects)])
    process = place.submit("tls", *LONG)
    place.until(20)
    log = place.node.kubectl("logs", "-n", "dpdist", "deployment/tls-1-scheduler")
    assert "tls://" in log and "tcp://" not in log
    [pod] = place.node.get("pods", "-n", "dpdist", "-l", "dpdist/run=tls,dask.org/component=scheduler")["items"]
    client = f"from distributed import Client; Client('tcp://{pod['status']['podIP']}:8786', timeout=4)"
    refused = place.node.run(sys.executable, "-c", client, check=False)
    assert refused.returncode != 0
    code, out, err = ended(process)
    assert code == 0 and "done after 1 attempt" in out, err
