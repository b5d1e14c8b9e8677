"""Nothing that is shown, logged or written outside the store tells how many bytes the chunks take.

Two datasets with the same public description: in one, the rows and the labels compress to nearly nothing, in the other
they do not. All rows of both are null rows, so that seeded fits release the same values: then whatever else can be seen
has to be the same as well, to the letter.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpdist import Dataset
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.shards import Shard
from dpdist.errors import DataError
from tests.cli.command import call

N = 4000
JOB = """
method: dp-gd
data: {path: rows.zarr}
params: {classes: ["no", "yes"], row_norm: 1.0, solver: {GradientDescent: {n_rounds: 3}}, random_state: 1}
budget: {epsilon: 1.0, delta: 1.0e-6}
ledger: ledger.sqlite
"""
COMMANDS = (
    ("info", "rows.zarr"),
    ("info", "rows.zarr", "--json"),
    ("info", "rows.zarr", "--verify"),
    ("plan", "job.yaml"),
    ("plan", "job.yaml", "--json"),
    ("run", "job.yaml", "--dry-run"),
    ("run", "job.yaml", "--dry-run", "--json"),
    ("doctor", "--data", "rows.zarr", "--json"),
    ("run", "job.yaml", "--set", "output=done"),
    ("report", "done"),
    ("budget", "history", "rows.zarr", "--ledger", "ledger.sqlite", "--json"),
)


def small() -> tuple[np.ndarray, np.ndarray]:
    return np.full((N, 5), np.nan), np.full(N, "n")


def large() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    words = rng.integers(97, 123, (N, 40)).astype(np.uint32).view("<U40")[:, 0]
    payloads = rng.integers(1, 2**51, (N, 5)) | 0x7FF8 << 48  # there are many NaNs
    return payloads.view(np.float64), words


def without_times(text: str) -> str:
    """Random names, moments and durations are different in two runs of the same data, too."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z| UTC)?", "MOMENT", text)
    text = re.sub(r"\b\d+(\.\d+)? ?(ms|s|seconds)\b", "DURATION", text)
    text = re.sub(r"(seconds</dt><dd>)[\d.]+", r"\1DURATION", text)
    text = re.sub(r", [\d.]+[kM]? rows/s(, about DURATION left)?", "", text)
    text = re.sub(r'("[a-z_]*seconds": )[\d.e-]+', r"\1DURATION", text)
    return re.sub(r"\b([0-9a-f]{32}|[0-9a-f]{64})\b", "RANDOM", text)


def seen(place: Path, rows: tuple[np.ndarray, np.ndarray], monkeypatch, capsys, caplog) -> dict[str, object]:
    place.mkdir()
    monkeypatch.chdir(place)
    X, y = rows
    dataset = Dataset.from_arrays("rows.zarr", X=X, y=y, partition_rows=1000, dataset_id="survey", compression="zstd")
    (place / "job.yaml").write_text(JOB)
    decided: list[object] = []
    planned, counted = Coordinator._shard_plans, Shard.__post_init__

    def plans(self, workers):
        found = planned(self, workers)
        decided.append([(plan.ranges, plan.resident) for plan, _ in found])
        return found

    def ahead(self):
        counted(self)
        decided.append(self.n_ahead)

    monkeypatch.setattr(Coordinator, "_shard_plans", plans)
    monkeypatch.setattr(Shard, "__post_init__", ahead)
    found: dict[str, object] = {"repr": repr(dataset), "html": dataset._repr_html_(), "bytes": dataset.nbytes}
    with caplog.at_level(logging.DEBUG):
        for words in COMMANDS:
            said = call(capsys, *words)
            assert said.code == 0, said
            found[" ".join(words)] = without_times(said.out), without_times(said.err)
    said_by = [r for r in caplog.records if not r.name.startswith("numba")]  # it compiles once in a process
    found["log"] = [without_times(record.getMessage()) for record in said_by]
    found["decided"] = decided
    found["partitions"] = Dataset.open("rows.zarr").partitions
    for path in sorted((place / "done").rglob("*")):
        if path.is_file() and path.suffix in (".json", ".html"):
            found[str(path.relative_to(place))] = without_times(path.read_text(encoding="utf-8"))
    found["stored"] = sum(path.stat().st_size for path in (place / "rows.zarr").rglob("*") if path.is_file())
    shutil.rmtree(place)  # for the other dataset, in the same place
    return found


def test_whatever_can_be_seen_is_the_same_for_chunks_of_other_sizes(tmp_path, monkeypatch, capsys, caplog):
    both = []
    for rows in (small(), large()):
        caplog.clear()
        with monkeypatch.context() as patch:
            both.append(seen(tmp_path / "place", rows, patch, capsys, caplog))
    one, other = both
    assert other.pop("stored") > 20 * one.pop("stored"), "else there is nothing to tell"
    assert set(one) == set(other)
    for name, value in one.items():
        assert other[name] == value, name


def test_messages_do_not_tell_how_long_the_longest_string_is(tmp_path):
    for words in (["n", "y"], ["n", "undecided"]):
        with pytest.raises(DataError) as refused:
            Dataset.from_arrays(X=np.array([words, words]))
        assert "has dtype str;" in str(refused.value) and "<U" not in str(refused.value)
