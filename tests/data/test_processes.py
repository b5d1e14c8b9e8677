"""Other processes: sources travel without data and open where they arrive; writing needs constant memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpdist
from dpdist.data import Dataset

READ = """
import pickle, sys
import numpy as np
source, verify = pickle.load(open(sys.argv[1], "rb"))
verify(source, 100, 900)
np.save(sys.argv[2], source.read(150, 750))
"""

WRITE = """
import re, sys
kind, place, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "generated":
    from dpdist.problems.linear_problems import logit
    logit(n, 50, store=place, partition_rows=8192)
else:
    import dask.array as da
    from dpdist.data import Dataset
    X = da.random.default_rng(0).standard_normal((n, 50), chunks=(10_000, 50))
    Dataset.from_arrays(place, X=X, y=X[:, 0], partition_rows=8192, compression=kind)
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def run(script: str, *arguments: object, cwd: Path) -> str:
    """Run a script in a process of its own, elsewhere."""
    paths = [str(Path(dpdist.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True).stdout


def test_sources_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(5).standard_normal((1000, 100))
    from dpdist.data import verify_rows

    Dataset.from_arrays(tmp_path / "data", X=X, partition_rows=200)
    monkeypatch.chdir(tmp_path)
    for source, limit in [
        (Dataset.open("data").source("X"), 1500),  # a relative path, read from elsewhere
        (Dataset.from_arrays(X=X[:, :2]).source("X"), 100_000),
    ]:
        sent = pickle.dumps((source, verify_rows))
        assert len(sent) < limit, len(sent)
        (tmp_path / "source.pickle").write_bytes(sent)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        run(READ, tmp_path / "source.pickle", tmp_path / "rows.npy", cwd=elsewhere)
        np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), X[150:750, : source.spec.shape[1]])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.parametrize("kind", ["generated", "none", "zstd"])
def test_writing_needs_constant_memory(tmp_path: Path, kind: str) -> None:
    peaks = [int(run(WRITE, kind, tmp_path / str(n), n, cwd=tmp_path)) for n in (60_000, 480_000)]
    # 8 times the rows are 168 MB more of data; the peak may move by some partitions of 3.3 MB.
    assert peaks[1] < peaks[0] + 20_000, peaks
