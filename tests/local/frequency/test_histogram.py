"""`Histogram`: inputs, labels, levels of privacy, the choice of a method, and memory."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
import warnings

import dask.array as da
import numpy as np
import pytest

from dpdist.data import Dataset
from dpdist.errors import BudgetError, DataError
from dpdist.local.frequency.histogram import Histogram, best_oracle
from dpdist.local.statistics.categories import Category, Labelled
from dpdist.local.survey.levels import Leveled
from dpdist.privacy.randomness.draws import SystemDraws

BAD = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, -1.0, 0.5, 6.0, 2**63, -0.0, 3.0])


def test_bad_records_are_null_records():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Category(6).values({"X": BAD}).tolist() == [-1] * 9 + [0, 3]
        for dtype in (np.int8, np.uint8, np.uint64, np.int64, bool, np.float32):
            extreme = np.array([1, 0], dtype=dtype) if dtype is bool else np.array([1, 5, 6, 120], dtype=dtype)
            expected = [1, 0] if dtype is bool else [1, 5, -1, -1]
            assert Category(6).values({"X": extreme[:, None]}).tolist() == expected
        assert Category(300).values({"X": np.array([7, 255], dtype=np.uint8)}).tolist() == [7, 255]
        assert Category(6).values({"X": np.array([2**64 - 1], dtype=np.uint64)}).tolist() == [-1]
        assert Category(6).values({"X": np.array(["1", "x"])}).tolist() == [-1, -1]
        model = Histogram(6, "oue", random_state=0, epsilon=8.0, postprocess=None).fit(np.tile(BAD, 500))
    expected = np.array([1, 0, 0, 1, 0, 0]) / 11
    assert (np.abs(model.unbiased_frequencies_ - expected) < 6 * model.standard_error_).all()


def test_labels_are_public_positions():
    strings = np.array(["b", "a", "zzz", ""])
    assert Labelled(("a", "b")).values({"X": strings}).tolist() == [1, 0, -1, -1]
    missing = np.array(["a", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan))
    assert Labelled(("a", "b")).values({"X": missing}).tolist() == [0, -1]
    assert Labelled((10, 2.5)).values({"X": np.array([2.5, 10.0, np.nan, 3.0])}).tolist() == [1, 0, -1, -1]


@pytest.mark.parametrize("postprocess", ["simplex", None])
def test_the_simplex_is_the_default_and_helps(postprocess):
    rng = np.random.default_rng(0)
    x = np.minimum(rng.geometric(0.3, size=20_000) - 1, 199)
    truth = np.bincount(x, minlength=200) / len(x)
    model = Histogram(200, postprocess=postprocess, random_state=3).fit(x)
    error = np.abs(model.frequencies_ - truth).sum()
    if postprocess is None:
        assert model.frequencies_ is model.unbiased_frequencies_ and error > 1.5
    else:
        assert model.frequencies_.min() >= 0 and model.frequencies_.sum() == pytest.approx(1.0) and error < 0.5


@pytest.mark.parametrize("fidelity", ["report", "sum"])
def test_auto_works_and_says_why(fidelity):
    x = np.random.default_rng(0).integers(0, 4, size=3000)
    for k, epsilon in ((4, 1.0), (50, 0.5), (50, 2.0), (3000, 2.0), (70_000, 2.0)):
        model = Histogram(k, epsilon=epsilon, fidelity=fidelity, random_state=0).fit(x)
        assert (model.method_, model.method_reason_) == best_oracle(k, epsilon, fidelity == "sum")
        assert model.fidelity_ == fidelity
        assert model.guarantee_.epsilon == epsilon and model.guarantee_.delta == 0


def test_inputs_that_are_one_column():
    x = np.random.default_rng(0).integers(0, 3, size=500)
    ways = (x, x.tolist(), x[:, None], Dataset.from_arrays(X=x))
    models = [Histogram(3, random_state=0).fit(given) for given in ways]
    for model in models[1:]:
        np.testing.assert_array_equal(model.frequencies_, models[0].frequencies_)
    import pandas as pd

    nullable = pd.Series(x, dtype="Int64")
    np.testing.assert_array_equal(Histogram(3, random_state=0).fit(nullable).frequencies_, models[0].frequencies_)
    with pytest.raises(DataError, match="one value per user"):
        Histogram(3).fit(np.zeros((4, 2)))
    with pytest.raises(DataError, match="numbers or strings"):
        Histogram(3).fit(np.array([object(), 1]))
    with pytest.raises(DataError, match="categories"):
        Histogram(3).fit(np.array(["a", "b"]))
    with pytest.raises(DataError, match="categories"):
        Histogram(categories=["a", "b"]).fit(x)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"n_categories": 1},
        {"n_categories": 2.5},
        {"n_categories": 3, "categories": [1, 2]},
        {"categories": ["a", "a"]},
        {"categories": [["a"]]},
        {"n_categories": 3, "method": "rappor"},
        {"n_categories": 3, "postprocess": "clip"},
        {"n_categories": 3, "epsilon": 0.0},
        {"n_categories": 3, "epsilon": math.nan},
        {"n_categories": 3, "epsilon_levels": [2.0, 1.0]},
        {"n_categories": 3, "epsilon_levels": []},
        {"n_categories": 3, "fidelity": "exact"},
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(BudgetError):
        Histogram(**wrong).fit(np.zeros(10))


def test_levels_in_histogram():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, size=40_000)
    wanted = rng.choice([0.1, 0.5, 1.7, 4.0, np.nan, np.inf], size=len(x))
    model = Histogram(5, epsilon_levels=[0.5, 1.5, 4.0], random_state=0).fit(x, wanted)
    assert model.guarantee_.epsilon == 4.0
    assert (np.abs(model.unbiased_frequencies_ - 0.2) < 6 * (model.standard_error_ + 0.003)).all()
    best = Histogram(5, epsilon=4.0, random_state=0).fit(x[wanted >= 4.0])
    assert model.standard_error_.max() < best.standard_error_.max()
    statistic = Leveled(Category(5), (0.5, 1.5, 4.0))
    levels = statistic.values({"X": np.zeros(5), "y": np.array([0.49, 0.5, 3.9, np.inf, np.nan])})[:, 1]
    assert levels.tolist() == [-1, 0, 1, 2, -1]
    reports = model.protocol(5, 1).randomise({"X": np.zeros(5), "y": np.array([0.4, 0.5, 2, 9, 9])}, SystemDraws())
    assert model.protocol(5, 1).randomiser.valid(reports).all()
    reports["level"][0] = 3
    assert not model.protocol(5, 1).randomiser.valid(reports)[0]
    nobody = Histogram(5, epsilon_levels=[1.0], random_state=0, postprocess=None).fit(x[:50], np.zeros(50))
    assert (nobody.frequencies_ == 0).all() and np.isinf(nobody.standard_error_).all()


STREAMED = """
    import sys
    from pathlib import Path

    import numpy as np
    import dpdist.engine.coordinator as coordinator
    from dpdist import Dataset
    from dpdist.local import Histogram

    def peak():  # of this process alone: getrusage starts from that of the parent
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    coordinator.RESIDENT_SHARE = 0.0
    common = dict(cluster="threads", random_state=0)
    Histogram(1000, sys.argv[2], **common).fit(np.zeros(5000))
    before = peak()
    model = Histogram(1000, sys.argv[2], **common).fit(Dataset.open(sys.argv[1]))
    assert abs(model.unbiased_frequencies_ - 1e-3).max() < 6 * model.standard_error_.max()
    print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of the memory from /proc")
@pytest.mark.parametrize(("method", "n"), [("auto", 10_000_000), ("oue", 2_500_000)])
def test_memory_does_not_grow_with_the_users(tmp_path, method, n):
    """k = 1000, streamed from Zarr: four times the users are 24 bytes more per user in the store, and none here."""
    used = []
    for size in (n, 4 * n):
        path = tmp_path / f"{size}.zarr"
        users = da.arange(size, chunks=2**18, dtype=np.int64) * 7 % 1000
        Dataset.from_arrays(path, partition_rows=2**18, X=users)
        command = [sys.executable, "-c", textwrap.dedent(STREAMED), str(path), method]
        used.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    assert used[1] - used[0] < 24e6
