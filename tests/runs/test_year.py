"""A year of nightly runs, most of which are killed, on ledgers and journals that are restored and exchanged."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.ledger.records import check_sums
from tests.runs import nights

EPSILON = 0.5
JOB = """
method: dp-gd
data: {path: rows.zarr}
params: {classes: [0, 1], row_norm: 1.0, solver: {n_rounds: 3}}
budget: {epsilon: 0.5, delta: 1.0e-9}
cluster: threads
ledger: ledger.sqlite
"""


class Year:
    """One dataset with a limit, a ledger, a journal (with it or apart), and a run a night.

    Parameters
    ----------
    folder : Path
    apart : bool
        Whether the journal is a file of its own.
    n_nights, n_mishaps : int
        Every mishap is a kill, and two in three of them a restore or an exchange besides: never of all who remember.
    seed : int
    """

    def __init__(self, folder: Path, apart: bool, n_nights: int, n_mishaps: int, seed: int) -> None:
        self.folder, self.apart, self.chance = folder, apart, random.Random(seed)
        X = np.random.default_rng(0).normal(size=(200, 2))
        self.account = Dataset.from_arrays(folder / "rows.zarr", X=X, y=(X[:, 0] > 0).astype(int)).account
        (folder / "job.yaml").write_text(JOB + ("journal: journal.sqlite\n" if apart else ""))
        self.files = ["ledger.sqlite", "rows.zarr/zarr.json", *(["journal.sqlite"] if apart else [])]
        with contextlib.closing(Ledger(folder / "stranger")) as stranger, contextlib.closing(Journal(folder / "other")):
            stranger.open_run("d", "r", "p", Charge(EPSILON))
        self.strange = {"ledger.sqlite": "stranger", "journal.sqlite": "other"}
        self.strange_note = self._read("rows.zarr/zarr.json")
        with contextlib.closing(Ledger(folder / "ledger.sqlite")) as ledger:
            ledger.set_limit(self.account, Budget(EPSILON * 2 * n_nights, 1e-5))
        self.moments: list[dict[str, dict[str, bytes]]] = []
        self.kills = self.changes = self.length = self.mistaken = 0
        self.refusals: list[str] = []
        unlucky = set(self.chance.sample(range(1, n_nights), n_mishaps))
        for number in range(n_nights):
            self._night(f"night-{number}", number in unlucky)

    def _night(self, directory: str, unlucky: bool) -> None:
        if unlucky:
            code, said = nights.night(self.folder, directory, self.chance.randrange(1, self.length))
            assert code in (-9, 0), said
            self.kills += code == -9
            if self.chance.random() < 2 / 3:
                self._mishap(directory)
        code, said = nights.night(self.folder, directory)
        assert code == 0, said
        self.length = self.length or nights.steps(self.folder)
        if not self.moments or self.chance.random() < 0.3:
            self.moments.append({name: self._read(name) for name in (*self.files, f"{directory}/run.json")})

    def _mishap(self, directory: str) -> None:
        """Something is put in the place of what is newest; if that is refused, it is put right."""
        record = f"{directory}/run.json"
        choices = [[name] for name in (*self.files, record)] + [["ledger.sqlite", record], [self.files[-1], record]]
        touched = self.chance.choice(choices)
        newest = {name: self._read(name) for name in touched}
        moment = self.chance.choice(self.moments)
        exchanged = self.chance.random() < 0.5
        for name in touched:
            if name == record:  # lost, or that of another night
                other = [known for known in moment if known.endswith("run.json")]
                self._put(name, moment[other[0]] if exchanged else {})
            elif not exchanged:
                self._put(name, moment[name])
            else:
                self._put(name, self._read(self.strange[name]) if name in self.strange else self.strange_note)
        self.changes += 1
        code, said = nights.night(self.folder, directory)
        if code == 0:  # it was harmless; a night that was not charged yet and is given another's record is that other
            own = json.loads((self.folder / record).read_text())["run_id"]
            self.mistaken += any(
                json.loads(path.read_text())["run_id"] == own
                for path in self.folder.glob("night-*/run.json")
                if path != self.folder / record
            )
            return
        self.refusals.append(said)
        assert code == 3 and "Traceback" not in said and len(re.findall("^dpdist: ", said, re.M)) == 1, said
        assert re.search("[Rr]estore", said) and any(name in said for name in (*self.files, directory)), said
        for name, content in newest.items():
            self._put(name, content)

    def _read(self, name: str) -> dict[str, bytes]:
        """A file, with its write-ahead log."""
        paths = {end: self.folder / f"{name}{end}" for end in ("", "-wal")}
        return {end: path.read_bytes() for end, path in paths.items() if path.exists()}

    def _put(self, name: str, content: dict[str, bytes]) -> None:
        for end in ("", "-wal", "-shm"):
            (self.folder / f"{name}{end}").unlink(missing_ok=True)
        for end, data in content.items():
            path = self.folder / f"{name}{end}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)

    def check(self) -> int:
        """What has to hold in the end; returns how many runs there were."""
        used = nights.used(self.folder)
        values: dict[str, set[str]] = {}
        for _, release, value in used:
            values.setdefault(release, set()).add(value)
        twice = [release for release, seen in values.items() if len(seen) > 1]
        assert twice == [], f"{len(twice)} of {len(values)} releases were drawn again"
        with contextlib.closing(Ledger(self.folder / "ledger.sqlite")) as ledger:
            history = ledger.history(self.account)
            runs = [run.run_id for run in history]
            assert len(set(runs)) == len(runs) and {run for run, _, _ in used} <= set(runs)
            assert ledger.spent(self.account).epsilon == math.fsum(run.epsilon for run in history)
            assert math.fsum(run.epsilon for run in history) == pytest.approx(EPSILON * len(runs))
            assert ledger._db.read(check_sums) == len(runs)
        finished = [json.loads(path.read_text()) for path in self.folder.glob("night-*/run.json")]
        assert {run["run_id"] for run in finished} <= set(runs) and {run["status"] for run in finished} == {"done"}
        return len(runs)


def test_a_few_nightly_runs(tmp_path):
    few = Year(tmp_path, apart=True, n_nights=5, n_mishaps=4, seed=3)
    assert few.check() + few.mistaken >= 5 and few.kills


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_a_month_of_nightly_runs(tmp_path, apart):
    month = Year(tmp_path, apart, n_nights=30, n_mishaps=25, seed=3)
    assert month.check() + month.mistaken >= 30 and month.kills > 15 and month.refusals


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_year_of_nightly_runs(tmp_path):
    year = Year(tmp_path, True, n_nights=365, n_mishaps=300, seed=1)
    runs = year.check()
    print(f"{runs} runs, {year.kills} kills, {year.changes} restores and exchanges, {len(year.refusals)} refusals")
    assert runs + year.mistaken >= 365 and year.kills > 200 and len(year.refusals) > 50
