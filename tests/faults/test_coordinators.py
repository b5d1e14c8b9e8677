"""Two coordinators with one run id: the older stops before it draws, nobody pays twice, nobody sees a second noise."""

from __future__ import annotations

import os
import secrets as random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpdist import Dataset, Ledger
from tests.faults import jobs
from tests.faults.cluster import ROOT
from tests.s3 import BUCKET


@pytest.fixture(params=["postgresql", "s3"])
def shared(request, place) -> tuple[str, ...]:
    """A ledger, and a journal if it is elsewhere."""
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.forget()
        return (server.address,)
    request.getfixturevalue("s3_account")
    return (str(place / "ledger.sqlite"), f"s3://{BUCKET}/{random.token_hex(8)}")


class Coordinator:
    """A process of its own with real noise, which tells what it sees."""

    def __init__(self, place: Path, shared: tuple[str, ...], name: str, seconds: float) -> None:
        self.log = place / "logs" / f"{name}.log"
        self.errors = place / "logs" / f"{name}.err"
        words = [str(place / "rows.zarr"), shared[0], "run", "threads", str(seconds), *shared[1:]]
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.jobs", *words], cwd=ROOT, env=dict(os.environ), text=True,
                stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.lines: list[str] = []

    def until(self, line: str) -> None:
        assert self.process.stdout is not None
        for told in self.process.stdout:
            self.lines.append(told.strip())
            if told.startswith(line):
                return

    def end(self) -> list[str]:
        """Read to the end; the values that it saw."""
        self.until("never")
        self.process.wait(60)
        self.log.write_text("\n".join(self.lines))
        return [line for line in self.lines if line.startswith("value")]

    @property
    def fenced(self) -> bool:
        return "dpdist.errors.Fenced: run 'run' was taken over by a newer process" in self.errors.read_text()


def check(place: Path, shared: tuple[str, ...], secrets) -> None:
    ledger = Ledger(shared[0])
    (run,) = ledger.history(Dataset.open(str(place / "rows.zarr")).id)
    assert run.charge.epsilon <= 1 + 1e-9
    assert [release.index for release in run.releases] == list(range(jobs.N_ROUNDS)), "each release is on file once"
    ledger.close()
    assert secrets.found_in(place, skip=[place / "rows.zarr"]) == []


def test_the_older_stops_before_it_draws(place, shared, secrets):
    old = Coordinator(place, shared, "old", 0.2)
    old.until("Released 2")
    time.sleep(0.3)  # in the middle of the next round, between two transactions
    old.process.send_signal(signal.SIGSTOP)
    new = Coordinator(place, shared, "new", 0.0)
    values = new.end()
    old.process.send_signal(signal.SIGCONT)
    assert old.end() == [] and old.process.returncode == 1 and old.fenced
    assert len(values) == jobs.N_ROUNDS and new.process.returncode == 0
    check(place, shared, secrets)


def test_both_at_once(place, shared, secrets):
    """Whoever comes through, all that anybody saw is one set of values."""
    several = [Coordinator(place, shared, f"c{i}", 0.02) for i in range(2)]
    ends = [one.end() for one in several]
    finished = [values for one, values in zip(several, ends, strict=True) if one.process.returncode == 0]
    assert finished, "one goes on"
    assert all(values == finished[0] and len(values) == jobs.N_ROUNDS for values in finished)
    assert all(one.process.returncode == 0 or one.fenced for one in several)
    again = Coordinator(place, shared, "again", 0.0)
    assert again.end() == finished[0], "a resume sees the same, and draws nothing"
    check(place, shared, secrets)
