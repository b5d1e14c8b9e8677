"""Datasets and journals in a real S3 server, whole and behind a proxy that fails."""

from __future__ import annotations

import json
import pickle
import re
import secrets
import socketserver
import sys
import threading
import time
from datetime import timedelta

import numpy as np
import pytest
import zarr
from distributed import LocalCluster

from dpdist import Dataset, Ledger, LogisticRegression, objects
from dpdist.central import GradientDescent
from dpdist.data.stores import zarr_arguments
from dpdist.engine import coordinator
from dpdist.engine.progress import Released, watching
from dpdist.errors import DataError, Fenced, LedgerError, LedgerUnavailable, Unavailable
from dpdist.objects import Objects, StoreError, StoreUnavailable, object_store
from dpdist.privacy.ledger.object_journal import ObjectJournal
from dpdist.runs.remembered import of_dataset
from tests import outages
from tests.cli.command import call
from tests.s3 import BUCKET, SECRET


@pytest.fixture
def place() -> str:
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


X = np.random.default_rng(0).normal(size=(20_000, 4))
Y = (X[:, 0] > 0).astype(int)


def fitted(data: object, **parameters: object) -> np.ndarray:
    """Coefficients of a short seeded fit."""
    model = LogisticRegression(
        classes=[0, 1], row_norm=2.0, epsilon=1.0, delta=1e-6, random_state=0, solver=GradientDescent(4), **parameters
    )
    return (model.fit(data) if isinstance(data, Dataset) else model.fit(X, Y)).coef_


# -- datasets -----------------------------------------------------------------------------------------------------


def test_a_dataset_in_a_bucket_is_a_dataset(s3_account, place):
    written = Dataset.from_arrays(place, X=X, y=Y, partition_rows=4096)
    opened = Dataset.open(place)
    assert (opened.id, opened.n_rows, opened.partitions) == (written.id, 20_000, written.partitions)
    opened.verify()
    assert (opened.read(4000, 9000)["X"] == X[4000:9000]).all()
    assert (pickle.loads(pickle.dumps(opened)).read(0, 10)["y"] == Y[:10]).all()
    assert (fitted(opened, ledger=Ledger(":memory:")) == fitted(None)).all()
    with pytest.raises(DataError, match="already stored"):
        Dataset.from_arrays(place, X=X, y=Y)


def test_worker_processes_read_the_bucket_themselves(s3_account, place):
    Dataset.from_arrays(place, X=X, y=Y, partition_rows=4096)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        found = fitted(Dataset.open(place), ledger=Ledger(":memory:"), cluster=cluster)
    assert (found == fitted(None)).all()


def test_secrets_are_in_no_pickle_and_no_message(s3_account, place, monkeypatch):
    data = Dataset.from_arrays(place, X=X, y=Y)
    assert SECRET.encode() not in pickle.dumps(data)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-sesame")
    with pytest.raises(DataError, match=r"credentials|permissions") as refused:
        Dataset.open(place)
    assert "sesame" not in str(refused.value)
    with pytest.raises(DataError, match="nonsense") as refused:
        object_store(place, {"nonsense": "sesame"})
    assert "sesame" not in str(refused.value)


def test_what_is_not_there_is_named(s3_account, place):
    with pytest.raises(DataError, match="cannot open a Zarr group at s3://"):
        Dataset.open(place)


def test_whoever_lacks_obstore_is_told(monkeypatch, place):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    for use in (lambda: Dataset.open(place), lambda: Dataset.from_arrays(place, X=X)):
        with pytest.raises(DataError, match=r"pip install 'dpdist\[s3\]'"):
            use()


# -- a store that fails -------------------------------------------------------------------------------------------


WRONG = {
    "secret": ({"AWS_SECRET_ACCESS_KEY": "open-sesame"}, "access was refused.*credentials"),
    "key": ({"AWS_ACCESS_KEY_ID": "nobody"}, "access was refused.*credentials"),
    "no credentials": ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "no credentials were found"),
    "bucket": ({}, "no such bucket.*make the bucket"),
    "no TLS": ({"AWS_ALLOW_HTTP": "false"}, "AWS_ALLOW_HTTP=true"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("part", ["data", "journal", "output"])
def test_what_no_patience_cures_is_said_at_once(s3_account, place, tmp_path, monkeypatch, capsys, what, part):
    settings, said = WRONG[what]
    local = tmp_path / "rows.zarr"
    Dataset.from_arrays(local, X=X[:100], y=Y[:100])
    address = place.replace(BUCKET, "no-such-bucket") if what == "bucket" else place
    for name, value in settings.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    path = tmp_path / "job.yaml"
    path.write_text(
        "method: dp-gd\nparams: {classes: [0, 1], row_norm: 1.0}\nbudget: {epsilon: 1.0, delta: 1.0e-6}\n"
        f"data: {{path: '{address if part == 'data' else local}'}}\nledger: {tmp_path}/ledger.sqlite\n"
        f"output: {address if part == 'output' else tmp_path / 'out'}\ncluster: threads\n"
        + (f"journal: {address}\n" if part == "journal" else "")
    )
    began = time.monotonic()
    done = call(capsys, "run", path, "--quiet")
    assert time.monotonic() - began < 5
    assert done.code == 2 and re.search(said, done.err) and "sesame" not in done.err
    assert not (tmp_path / "ledger.sqlite").exists() or Ledger(tmp_path / "ledger.sqlite").accounts() == []


@pytest.mark.parametrize("moment", outages.MOMENTS)
def test_a_store_that_stays_away_is_another_error_than_a_damaged_one(
    s3_faults, place, tmp_path, monkeypatch, capsys, moment
):
    """Exit code 75, within the patience; and 2 for a chunk that is there, and wrong."""
    monkeypatch.setitem(objects.RETRIES, "retry_timeout", timedelta(seconds=0.3))
    monkeypatch.setattr("dpdist.patience.PATIENCE", 2.0)
    monkeypatch.setattr(coordinator, "RESIDENT_SHARE", 0.0)
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(outages.job(tmp_path, moment, place)))
    with outages.struck(s3_faults, moment, "503", 600):
        began = time.monotonic()
        away = call(capsys, "run", path, "--quiet")
    assert away.code == 75 and "cannot be reached" in away.err and time.monotonic() - began < 20
    s3_faults.spoil = lambda method, path: None
    assert call(capsys, "run", path, "--quiet", "--resume").code == 0
    ledger = Ledger(tmp_path / "ledger.sqlite")
    (run,) = ledger.history(ledger.accounts()[0])
    assert len(run.releases) == outages.N_ROUNDS + 1


def times(n: int, fault: str, kind: str = "/c/"):
    """Spoil the first ``n`` requests for chunks."""
    left, lock = [n], threading.Lock()

    def spoil(method: str, path: str) -> str | None:
        with lock:
            if method == "GET" and kind in path and left[0]:
                left[0] -= 1
                return fault
        return None

    return spoil


@pytest.mark.parametrize("kind", outages.KINDS)
@pytest.mark.parametrize("moment", outages.MOMENTS)
def test_a_store_that_is_away_in_the_middle_of_a_run_is_waited_for(
    s3_faults, place, tmp_path, monkeypatch, kind, moment
):
    """For longer than obstore tries by itself; the tests of faults take 20 s and the time that is set."""
    monkeypatch.setitem(objects.RETRIES, "retry_timeout", timedelta(seconds=0.3))
    monkeypatch.setattr(coordinator, "RESIDENT_SHARE", 0.0)  # so that rounds read the store
    outages.go_through(s3_faults, tmp_path, place, kind, moment, seconds=1.5)


@pytest.mark.parametrize("kind", outages.KINDS)
def test_a_group_that_is_away_when_it_is_read_again_is_waited_for(s3_faults, place, monkeypatch, kind):
    """Whoever gives a dataset as a Zarr group has opened it; what is noted in it is read as it is at the time."""
    monkeypatch.setitem(objects.RETRIES, "retry_timeout", timedelta(seconds=0.3))
    Dataset.from_arrays(place, X=X, y=Y, partition_rows=4096)
    data = Dataset.open(zarr.open_group(**zarr_arguments(place), mode="r+"))
    data.note("kept", {"here": True})
    s3_faults.be_away(kind, 1.5)
    assert data.noted("kept") == {"here": True}
    s3_faults.be_away(kind, 1.5)
    with pytest.raises(DataError, match="there is no dataset at"):
        of_dataset(f"{place}/nothing")


@pytest.mark.parametrize("fault", ["503", "slow", "cut"])
def test_a_store_that_fails_for_a_moment_changes_nothing(s3_faults, place, fault):
    Dataset.from_arrays(place, X=X, y=Y, partition_rows=4096)
    s3_faults.spoil = times(3, fault)
    assert (fitted(Dataset.open(place), ledger=Ledger(":memory:")) == fitted(None)).all()
    assert s3_faults.spoiled == 3


def test_a_page_that_asks_to_log_in_is_no_answer_of_a_store(s3_faults, place, impatient):
    kept = Objects(place)
    kept.put("key", b"what is kept")
    s3_faults.spoil = lambda method, path: "page"
    asked = [kept.listed, lambda: kept.get("key"), lambda: kept.put("key", b""), lambda: kept.create("other", b"")]
    for ask in [*asked, lambda: kept.delete(["key"])]:
        with pytest.raises(StoreUnavailable):
            ask()
    s3_faults.come_back()
    assert kept.listed() == ["key"] and kept.get("key") == b"what is kept" and kept.get("other") is None
    kept.put("page.html", b"<html></html>")
    assert kept.get("page.html") == b"<html></html>"


def test_a_truncated_chunk_stops_the_run_before_it_is_charged(s3_faults, place):
    data = Dataset.from_arrays(place, X=X, y=Y, partition_rows=4096)
    s3_faults.spoil = times(10**6, "short")
    ledger = Ledger(":memory:")
    with pytest.raises(DataError, match=r"array .[Xy]., rows .* are damaged") as found:
        fitted(Dataset.open(place), ledger=ledger)
    assert not isinstance(found.value, Unavailable)
    assert ledger.history(data.id) == []
    s3_faults.spoil = times(0, "")
    assert (fitted(Dataset.open(place), ledger=ledger) == fitted(None)).all()


# -- journals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.array([1.5, -0.0, np.nan, 5e-324]), np.arange(6).reshape(2, 3) - 2**60])
def test_values_come_back_bit_by_bit(s3_account, place, value):
    run = ObjectJournal(place).open("a run/with any name")
    assert run.get("r/0") is None
    run.put("r/0", value)
    again = ObjectJournal(place).open("a run/with any name").get("r/0")
    assert again.dtype == value.dtype and again.shape == value.shape and again.tobytes() == value.tobytes()


def test_the_newest_opener_of_a_run_is_its_only_writer(s3_account, place):
    old, other = ObjectJournal(place).open("r"), ObjectJournal(place).open("another run")
    new = ObjectJournal(place).open("r")
    with pytest.raises(Fenced, match="newer process"):
        old.check()
    with pytest.raises(Fenced):
        old.put("r/0", np.zeros(1))
    assert new.put("r/0", np.ones(1)) == 1.0
    other.check()


def test_the_first_value_stays_even_if_two_writers_slip_through_together(s3_account, place):
    first, second = ObjectJournal(place).open("r"), ObjectJournal(place).open("r")
    first.check = second.check = lambda: None  # both looked before the other came
    values = [first.put("r/0", np.array([1.0])), second.put("r/0", np.array([2.0]))]
    assert values == [1.0, 1.0]


def test_openers_at_once_get_epochs_of_their_own(s3_account, place):
    runs = []
    threads = [threading.Thread(target=lambda: runs.append(ObjectJournal(place).open("r"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run.epoch for run in runs) == [1, 2, 3, 4, 5, 6]
    alive = []
    for run in runs:
        try:
            run.check()
            alive.append(run.epoch)
        except Fenced:
            pass
    assert alive == [6]


def test_a_damaged_value_is_refused(s3_account, place):
    import obstore

    run = ObjectJournal(place).open("r")
    run.put("v", np.arange(3.0))
    store = object_store(place)
    data = bytes(obstore.get(store, "r/value-v").bytes())
    obstore.put(store, "r/value-v", data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(LedgerError, match="damaged"):
        run.get("v")


def test_a_run_with_its_journal_in_a_bucket_resumes_there(s3_account, place, tmp_path):
    data = Dataset.from_arrays(X=X, y=Y, dataset_id="bucket-journal")

    class Stop(Exception):
        pass

    def stop(event: object) -> None:
        if isinstance(event, Released) and event.done == 2:
            raise Stop

    with pytest.raises(Stop), watching(stop):
        fitted(data, ledger=Ledger(tmp_path / "l.sqlite", journal=place), run_id="a")
    replayed = []
    with watching(lambda event: replayed.append(event.replayed) if isinstance(event, Released) else None):
        coef = fitted(data, ledger=Ledger(tmp_path / "l.sqlite", journal=place), run_id="a")
    assert replayed[:2] == [True, True] and not any(replayed[2:])
    assert (coef == fitted(None)).all()
    assert len(Ledger(tmp_path / "l.sqlite").history("bucket-journal")) == 1


def test_a_journal_nobody_can_reach_charges_nothing(s3_account, place, monkeypatch, tmp_path, impatient):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    data = Dataset.from_arrays(X=X, y=Y, dataset_id="no-journal")
    ledger = Ledger(tmp_path / "l.sqlite", journal=place)
    with pytest.raises(LedgerUnavailable, match="check the address"):
        fitted(data, ledger=ledger)
    assert ledger.history("no-journal") == []


ANSWERS = {
    "too many requests": (b"429 Too Many Requests\r\nContent-Length: 0\r\n\r\n", StoreUnavailable, "status 429"),
    "behind a network": (b"522 Timed Out\r\nContent-Length: 0\r\n\r\n", StoreUnavailable, "status 522"),
    "a wrong length": (b"200 OK\r\nContent-Length: x\r\n\r\nabc", StoreUnavailable, "does not answer as it should"),
    "too short, also when asked for the rest": (
        b'200 OK\r\nContent-Length: 50\r\nLast-Modified: Wed, 18 Nov 2026 00:00:00 GMT\r\nETag: "x"\r\n\r\nabc',
        StoreUnavailable,
        "does not answer as it should",
    ),
    "full": (b"507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n", StoreError, "is full"),
    "not understood": (b"416 No\r\nContent-Length: 0\r\n\r\n", StoreError, "refuses the request"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_a_server_answers_is_waited_for_or_said_at_once(monkeypatch, answer):
    said, kind, words = ANSWERS[answer]
    monkeypatch.setattr("dpdist.patience.PATIENCE", 0.5)
    monkeypatch.setitem(objects.RETRIES, "retry_timeout", timedelta(milliseconds=200))

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"HTTP/1.1 " + said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {"endpoint": f"http://127.0.0.1:{server.server_address[1]}", "allow_http": True, "region": "x"}
        store = objects.Objects("s3://bucket/p", options | {"skip_signature": True})
        with pytest.raises(StoreError, match=words) as error:
            store.get("key")
        server.shutdown()
    assert type(error.value) is kind
