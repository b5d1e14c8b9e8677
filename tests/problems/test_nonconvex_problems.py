"""The hardest rows of a linear loss: what they are, how answers are judged, and how near private means come."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import Mean
from dpdist.errors import DataError
from dpdist.problems.catalog import PROBLEMS


def test_rows_are_corners_whose_mean_is_the_truth():
    generated = PROBLEMS["linear-over-ball"].generate({"n": 20_000, "d": 5, "signal": 0.4})
    X = generated.dataset.read(0, 20_000)["X"]
    np.testing.assert_allclose(np.abs(X), 1 / math.sqrt(5), rtol=1e-9)
    assert np.linalg.norm(X, axis=1).max() <= 1 and np.linalg.norm(generated.truth) == pytest.approx(0.4)
    assert np.linalg.norm(X.mean(axis=0) - generated.truth) < 5 / math.sqrt(20_000)
    with pytest.raises(DataError, match="signal must lie above 0"):
        PROBLEMS["linear-over-ball"].generate({"n": 100, "signal": 0.0})


def test_the_excess_falls_as_one_over_the_rows_and_lies_below_the_rate():
    found = {}
    for n in (300, 3000):
        errors = []
        for seed in range(8):
            generated = PROBLEMS["linear-over-ball"].generate({"n": n, "random_state": seed})
            model = Mean(second_moment=0.1, epsilon=1.0, delta=1e-6, random_state=seed, cluster="threads")
            metrics = generated.metrics(model.fit(generated.dataset))
            errors.append(metrics["error"])
            assert metrics["trivial_error"] == pytest.approx(0.3) and metrics["nonprivate_error"] < 0.05
        found[n] = np.mean(errors)
        assert 0 < found[n] < 1.5 * 10 / n
    assert found[3000] < found[300] / 4
