"""The production overlay on the node: TLS, a real object store, a real PostgreSQL server, keys from its Secrets."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from dpdist import Ledger
from tests.kubernetes.cluster import ADDRESS, IMAGE, ROOT, Node, for_old_api, secret, tls_secret
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kustomize import build, documents, identity, merged
from tests.kubernetes.place import Place, ended
from tests.postgres import PostgresServer
from tests.s3 import BUCKET, KEY, SECRET, S3Server

pytestmark = pytest.mark.kubernetes

N_ROUNDS = 960
DATA = f"s3://{BUCKET}/rows.zarr"
PASSWORD = "of-the-ledger-4711"
JOB = f"""
method: dp-gd
data: {{path: "{DATA}"}}
params: {{classes: [0, 1], row_norm: 1.0, solver: {{n_rounds: {N_ROUNDS}}}}}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
"""


class Remote(Place):
    """A dataset and results in the object store, ledger and journal in PostgreSQL."""

    def __init__(self, node: Node, folder: Path, s3: S3Server, postgres: PostgresServer) -> None:
        super().__init__(node, folder, JOB)
        self.s3, self.postgres = s3, postgres
        self.ledger = f"postgresql://tester@127.0.0.1:{postgres.port}/dpdist"
        self.dataset_id = self.python("from tests.kubernetes.place import write_rows; print(write_rows(url).id)", DATA)

    def python(self, code: str, url: str) -> str:
        """What a few lines that have the keys of the store print; a process, as threads of this one are elsewhere."""
        keys = {"AWS_ENDPOINT_URL": self.s3.address, **store_keys(self.s3)}
        words = ("env", f"PYTHONPATH={ROOT}", *(f"{name}={value}" for name, value in keys.items()))
        return self.node.run(*words, sys.executable, "-c", f"url = {url!r}\n{code}").stdout.strip()

    def output(self, name: str) -> str:
        return f"s3://{BUCKET}/runs/{name}"

    def record(self, name: str) -> dict[str, Any]:
        code = "import obstore; from dpdist.objects import object_store as store\n"
        code += "print(bytes(obstore.get(store(url), 'run.json').bytes()).decode())"
        found: dict[str, Any] = json.loads(self.python(code, self.output(name)))
        return found

    def values(self) -> dict[str, bytes]:
        with self.node.network(), psycopg.connect(self.ledger) as db:
            try:
                return dict(db.execute("SELECT release_id, bytes FROM dpdist_values").fetchall())
            except psycopg.errors.UndefinedTable:
                return {}

    def charged(self) -> dict[str, int]:
        """Number of releases of every run on file."""
        if not self.values():  # tables that are made here would not be the pods'
            return {}
        with self.node.network(), closing(Ledger(self.ledger)) as ledger:
            return {run.run_id: len(run.releases) for run in ledger.history(self.dataset_id)}


def store_keys(s3: S3Server) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "r"}


def production(port: int) -> list[dict[str, Any]]:
    """The overlay with everything that says CHANGE changed, and small; the claim is there already."""
    objects = [each for each in build(DEPLOY / "overlays/production") if each["kind"] != "PersistentVolumeClaim"]
    for change in documents(DEPLOY / "overlays/laptop/small.yaml"):
        [target] = [each for each in objects if identity(each) == identity(change)]
        objects[objects.index(target)] = merged(target, change)
    text = yaml.safe_dump_all(objects)
    for old, new in {
        "registry.example.org/dpdist:0.1.0": IMAGE,
        # the server that tests have knows no TLS
        "ledger.example.org:5432/dpdist?sslmode=verify-full&sslrootcert=system": f"{ADDRESS}:{port}/dpdist",
    }.items():
        assert old in text
        text = text.replace(old, new)
    return list(yaml.safe_load_all(text))


@pytest.fixture(scope="module")
def place(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with ExitStack() as stack:
        with node.network():
            postgres = PostgresServer()
            stack.callback(postgres.remove)
            with open(postgres.data / "pg_hba.conf", "a") as rules:  # pods need the password
                rules.write("host dpdist dpdist 10.88.0.0/16 scram-sha-256\n")
            postgres.start()
            s3 = S3Server()
            stack.callback(s3.remove)
            with psycopg.connect(postgres.address, autocommit=True) as db:
                db.execute(f"CREATE ROLE dpdist LOGIN PASSWORD '{PASSWORD}'")
                db.execute("CREATE DATABASE dpdist OWNER dpdist")
        for server in (postgres, s3):
            node.publish(server.port)
        folder = tmp_path_factory.mktemp("stores")
        store = {**store_keys(s3), "AWS_ENDPOINT_URL": f"http://{ADDRESS}:{s3.port}"}
        del store["AWS_REGION"]  # stands in the overlay
        secrets = [secret("dpdist-store", store), secret("dpdist-ledger", {"password": PASSWORD}), tls_secret(folder)]
        node.apply([*secrets, *for_old_api(production(postgres.port))])
        yield Remote(node, folder, s3, postgres)
        node.apply(for_old_api(build(DEPLOY / "overlays/laptop")))


def test_a_killed_runner_is_resumed_from_the_stores(place, numbers):
    began = time.monotonic()
    process = place.submit("stores", "--retries", 3)
    place.until(20)
    place.kill("stores-1-runner")
    killed = time.monotonic()
    time.sleep(2)  # until the process is gone for certain
    seen = place.values()
    assert 20 <= len(seen) <= N_ROUNDS
    place.until(1)
    numbers["stores: stall after a runner was killed (s)"] = round(time.monotonic() - killed, 1)
    code, out, err = ended(process)
    numbers["stores: submit to result with a killed runner (s)"] = round(time.monotonic() - began, 1)
    assert code == 0 and "done after 2 attempts" in out, err
    assert [attempt["state"] for attempt in place.attempts("stores")] == ["lost", "done"]
    record, values = place.record("stores"), place.values()
    assert record["status"] == "done" and place.charged() == {record["run_id"]: N_ROUNDS + 1}  # one charge
    assert len(values) == N_ROUNDS + 1 and all(values[key] == value for key, value in seen.items())
    for told in (
        json.dumps(record),
        place.node.kubectl("get", "daskjobs,configmaps,pods", "-n", "dpdist", "-o", "yaml"),
    ):
        assert PASSWORD not in told and SECRET not in told


def test_a_ledger_that_crashes_and_comes_back(place, numbers):
    """It is waited for, and a transaction that was lost is repeated: the attempt goes on."""
    before, values = set(place.charged()), place.values()
    process = place.submit("restart", "--retries", 2)
    place.until(20)
    for pod in place.node.get("pods", "-n", "dpdist", "-l", "dpdist/run=restart")["items"]:
        component = pod["metadata"]["labels"]["dask.org/component"]
        given = place.node.kubectl("exec", "-n", "dpdist", pod["metadata"]["name"], "--", "env")
        assert (PASSWORD in given) == (component == "job-runner")
        assert (SECRET in given) == (component != "scheduler")
    with place.node.network():
        place.postgres.stop("immediate")
        crashed = time.monotonic()
        time.sleep(3)
        place.postgres.start()
    seen = place.values()
    place.until(1)  # it was in the middle of the run
    stall = round(time.monotonic() - crashed, 1)
    code, _, err = ended(process)
    assert code == 0, err
    assert [attempt["state"] for attempt in place.attempts("restart")] == ["done"]
    numbers["stores: stall after the ledger crashed for 3 s (s)"] = stall
    [mine] = set(place.charged()) - before
    last = place.values()
    assert place.charged()[mine] == N_ROUNDS + 1 == len(last) - len(values)
    assert all(last[key] == value for key, value in seen.items())
