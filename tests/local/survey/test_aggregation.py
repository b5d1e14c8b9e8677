"""The server's side: real reports from any store, with everything bad counted and left out."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from dpdist import Dataset
from dpdist.engine import progress
from dpdist.errors import DataError
from dpdist.local import aggregate, encode, write_reports
from dpdist.local.randomisers.frequency import KRR
from dpdist.local.statistics.categories import Category
from dpdist.local.survey import aggregation
from dpdist.local.survey.aggregation import hashed
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.wire import decode, new_ids
from dpdist.privacy.randomness.draws import SystemDraws
from tests.local.survey.surveys import SURVEYS, records
from tests.processes import worker_processes

SURVEY = Survey(LocalProtocol(Category(5), KRR(5, epsilon=2.0)))


def arrivals(survey: Survey, n: int = 3000):
    return encode(survey, survey.protocol.randomise(records(survey, n), SystemDraws()))


@pytest.mark.parametrize("name", SURVEYS)
def test_the_estimate_is_that_of_the_reports(name):
    survey = SURVEYS[name]
    data = arrivals(survey)
    found = aggregate(survey, data)
    protocol = survey.protocol
    total = protocol.accumulate(decode(survey, data).reports) * protocol.grid
    assert np.array_equal(found.estimate, protocol.estimate(total, 3000)) and found.n_users == found.received == 3000
    assert found.fidelity is None and set(found.rejected.values()) == {0}
    assert found.guarantee.epsilon == protocol.randomiser.epsilon and found.guarantee.model == "local"
    assert not found.guarantee.simulation
    assert found.standard_error == pytest.approx(protocol.noise_std / np.sqrt(3000))
    assert found.poisoned(0.1) == pytest.approx(0.1 * protocol.randomiser.influence)


@pytest.fixture(scope="module")
def mixed():
    """Good reports, in disorder with bad ones and repeated ones, and what should come of them."""
    rng = np.random.default_rng(0)
    good = encode(SURVEY, SURVEY.protocol.randomise({"X": rng.integers(0, 5, 5000)}, SystemDraws()))
    bad = good[:40].copy()
    bad[:10, 0] = 1
    bad[10:20, 2] = 1
    bad[20:25, 7] ^= 255
    bad[25:40, -1] = 77
    bad[:, 14:30] = new_ids(40)
    again = good[rng.integers(0, 5000, 300)]  # some of them three times
    data = np.concatenate([good, bad, again])[rng.permutation(5340)]
    expected = np.bincount(good[:, -1], minlength=5)
    rejected = {"length": 0, "version": 10, "round": 10, "survey": 5, "domain": 15, "duplicate": 300}
    return data, expected, rejected


def check(found, mixed):
    _, expected, rejected = mixed
    assert dict(found.rejected) == rejected and found.n_users == 5000 and found.received == 5340
    assert np.array_equal(found.total, expected)


@pytest.mark.parametrize("partition_rows", [7, 77, 5340])
def test_partitions(mixed, partition_rows):
    check(aggregate(SURVEY, Dataset.from_arrays(reports=mixed[0], partition_rows=partition_rows)), mixed)


def test_stores(mixed, tmp_path):
    data = mixed[0]
    batches = [data[:1], data[1:4000], data[4000:]]
    assert write_reports(tmp_path / "group.zarr", batches) == 5340
    zarr.save_array(tmp_path / "array.zarr", data)
    column = pa.array([bytes(row) for row in data], pa.binary())
    pq.write_table(pa.table({"reports": column, "when": np.arange(5340)}), tmp_path / "one.parquet", row_group_size=700)
    (tmp_path / "many").mkdir()
    for i, (start, stop) in enumerate(itertools.pairwise([0, 1000, 1001, 5340])):
        kind = [pa.binary(), pa.large_binary(), pa.binary(data.shape[1])][i]
        table = pa.table({"any": column[start:stop].cast(kind)})
        pq.write_table(table, tmp_path / "many" / f"{i}.parquet", row_group_size=999)
    for name in ("group.zarr", "array.zarr", "one.parquet", "many"):
        check(aggregate(SURVEY, tmp_path / name), mixed)
    assert zarr.open_array(tmp_path / "array.zarr").attrs.asdict() == {}, "nothing is written to the stores of others"


def test_two_processes(mixed, tmp_path):
    write_reports(tmp_path / "reports.zarr", [mixed[0]])
    with worker_processes(2) as cluster:
        check(aggregate(SURVEY, tmp_path / "reports.zarr", cluster=cluster), mixed)
        check(aggregate(SURVEY, mixed[0], cluster=cluster), mixed)


def test_more_reports_than_hashes_are_held(mixed, monkeypatch):
    monkeypatch.setattr(aggregation, "HASHES", 700)
    monkeypatch.setattr("dpdist.engine.pieces.LONG", 1000)
    seen = []
    with progress.watching(seen.append):
        check(aggregate(SURVEY, Dataset.from_arrays(reports=mixed[0], partition_rows=100)), mixed)
    assert len(seen) >= 8 and seen[-1] == progress.Asked(8 * 5340, 8 * 5340)
    assert all(a.done_rows < b.done_rows for a, b in itertools.pairwise(seen))


def test_messages_of_other_lengths(tmp_path):
    good = [bytes(row) for row in arrivals(SURVEY, 10)]
    messages = [good[0], None, b"", *good[1:5], good[5] + b"x", *good[6:]]
    pq.write_table(pa.table({"reports": pa.array(messages, pa.binary())}), tmp_path / "r.parquet", row_group_size=3)
    for found in (aggregate(SURVEY, tmp_path / "r.parquet"), aggregate(SURVEY, [m or b"" for m in messages])):
        assert found.n_users == 9 and found.rejected["length"] == 3 and found.received == 12


def test_of_reports_with_one_id_the_first_counts():
    ids = np.zeros((3, 16), np.uint8)
    data = encode(SURVEY, np.array([4, 2, 3], np.uint8), ids)
    found = aggregate(SURVEY, Dataset.from_arrays(reports=data, partition_rows=1))
    assert found.total.tolist() == [0, 0, 0, 0, 1] and found.rejected["duplicate"] == 2


def test_ids_that_differ_in_a_bit_have_different_hashes():
    key = np.random.default_rng(0).integers(0, 2**64, (16, 256), np.uint64)
    ids = np.zeros((129, 16), np.uint8)
    for i in range(128):
        ids[i, i // 8] = 1 << i % 8
    assert len(set(hashed(ids, key).tolist())) == 129


def test_poisoned_reports_move_the_estimate_by_less_than_the_bound():
    """The worst that 50 of 1000 can do is to replace whatever honest users sent by the report that is farthest."""
    honest = np.repeat(np.array([0, 1, 2, 3, 4], np.uint8), 200)
    worst = honest.copy()
    worst[:50] = 4
    before, after = (aggregate(SURVEY, encode(SURVEY, reports)) for reports in (honest, worst))
    moved = np.abs(after.estimate - before.estimate).max()
    assert 0.9 * before.poisoned(0.05) < moved <= before.poisoned(0.05) * (1 + 1e-12)


def test_stores_that_cannot_be_used(tmp_path):
    (tmp_path / "file.parquet").write_text("no")
    (tmp_path / "empty").mkdir()
    zarr.save_array(tmp_path / "floats.zarr", np.zeros((3, 31)))
    zarr.save_group(tmp_path / "two.zarr", a=np.zeros((3, 31), np.uint8), b=np.zeros((3, 31), np.uint8))
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "numbers.parquet")
    for name, message in {
        "nowhere.zarr": "no such file", "file.parquet": "cannot be read as Parquet", "empty": "neither Zarr",
        "floats.zarr": "rows of bytes", "two.zarr": "expected one named 'reports'", "numbers.parquet": "binary columns",
    }.items():  # fmt: skip
        with pytest.raises(DataError, match=message):
            aggregate(SURVEY, tmp_path / name)
    with pytest.raises(DataError, match=r"none of the 2 reports is a valid answer .*length: 2"):
        aggregate(SURVEY, [b"", b"x"])
    with pytest.raises(DataError, match="at least one"):
        aggregate(SURVEY, [])
    with pytest.raises(DataError, match="no message"):
        write_reports(tmp_path / "none.zarr", [])
    with pytest.raises(DataError, match="rows of one length"):
        write_reports(tmp_path / "mixed.zarr", [np.zeros((2, 5), np.uint8), np.zeros((2, 6), np.uint8)])
    with pytest.raises(DataError, match="fraction"):
        aggregate(SURVEY, arrivals(SURVEY, 10)).poisoned(1.5)
