"""The scanner finds what it looks for: without that, finding nothing would mean nothing."""

from __future__ import annotations

import pickle

import numpy as np

from dpdist import Ledger
from tests.faults import jobs
from tests.faults.cluster import RealCluster


def test_planted_numbers_are_found(tmp_path, secrets):
    query, X = jobs.SlowSum(), jobs.data()
    total = query.summarise({"X": X}, None, None)
    part = query.summarise({"X": X[: jobs.PARTITION]}, None, None)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    plants = {
        "total.bin": total.tobytes(),
        "deep/part.pickle": pickle.dumps(part),
        "deep/er/float.bin": b"xx" + (total * query.grid).tobytes(),
        "float.txt": f"loss {total[1] * query.grid}".encode(),
        "units.log": f"shard returned {total.tolist()}".encode(),
        "mean.log": f"mean = {float(total[2] * query.grid / jobs.N_ROWS):.9g} ...".encode(),
        "row.npy": X[0].tobytes(),
    }
    for name, content in plants.items():
        (tmp_path / name).write_bytes(content)
        assert secrets.found_in(tmp_path), name
        (tmp_path / name).unlink()
    (tmp_path / "innocent.log").write_bytes(np.random.default_rng(0).bytes(2_000_000) + b"0.1234567 17 of 20 done")
    assert secrets.found_in(tmp_path) == []


def test_a_cluster_that_may_spill_does(place, secrets, expected):
    """A control of what the settings are for: with Dask's own, rows lie on the workers' disks, readable."""
    spill = {f"DASK_DISTRIBUTED__WORKER__MEMORY__{name}": "1e-9" for name in ("TARGET", "SPILL")}
    spill |= {
        "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL_COMPRESSION": "False",
    }
    with RealCluster(place, 1, env=spill, worker=["--memory-limit", "1GB"]) as cluster:
        cluster.ready()
        hits: list[str] = []
        with jobs.at_release(3, lambda: hits.extend(secrets.found_in(place / "local"))):
            values = jobs.run(place / "rows.zarr", Ledger(place / "ledger.sqlite"), "run", cluster.address)
    assert any("a row" in hit for hit in hits)
    assert np.array_equal(values, expected)
