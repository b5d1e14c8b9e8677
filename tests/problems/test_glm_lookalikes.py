"""Tables for linear models with public rows, and bounded losses: their laws, and what is reached on them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dpdist import Ledger
from dpdist.errors import DataError
from dpdist.local import LogisticRegression, RiskSurface
from dpdist.problems.catalog import PROBLEMS
from dpdist.problems.two_normals import TwoNormals


def made(name: str, **data):
    return PROBLEMS[name].generate({"n": 40_000, "random_state": 0, **data})


@pytest.mark.parametrize(
    "name, d, share", [("glm-covertype", 44, 0.5), ("glm-susy", 18, 0.46), ("cube-logistic", 2, 0.5)]
)
def test_labels_follow_the_law_that_answers_are_judged_by(name, d, share):
    generated = made(name)
    rows = generated.dataset.read(0, 40_000)
    law = PROBLEMS[name].law(rows["X"], generated.truth, generated.world.parameters)
    np.testing.assert_allclose(np.exp(law).sum(axis=1), 1)
    chance, positive = np.exp(law[:, 1]), rows["y"] == 1
    assert rows["X"].shape == (40_000, d) and np.isfinite(rows["X"]).all()
    assert abs(positive.mean() - share) < (0.2 if name == "glm-covertype" else 0.015)
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.0)):
        part = (chance >= low) & (chance < high)
        assert abs((positive - chance)[part].sum()) < 5 * np.sqrt(np.sum((chance * (1 - chance))[part]) + 1)
    again, fewer = made(name).dataset.read(0, 100), made(name, n=100).dataset.read(0, 100)
    assert (again["X"] == fewer["X"]).all() and (again["y"] == fewer["y"]).all()


def test_other_widths_are_refused():
    for name in ("glm-covertype", "glm-susy"):
        with pytest.raises(DataError, match=f"{name} has"):
            made(name, d=17)


def test_means_of_kernels_are_those_of_many_rows():
    law, centres = TwoNormals(0.7, 0.3, 0.0, 1.0), np.array([[0.2, 0.5], [0.9, 0.1]])
    X, points = law.rows(centres)(np.random.default_rng(0), (200_000, 2)), np.array([[0.3, 0.3], [1.0, 0.0]])
    assert X.min() == 0 and X.max() == 1
    for point, mean in zip(points, law.kernel_means(centres, points, 0.4), strict=True):
        kernels = np.exp(-((X - point) ** 2).sum(axis=1) / (2 * 0.4**2))
        assert abs(kernels.mean() - mean) < 5 * kernels.std() / np.sqrt(len(X))


def test_surfaces_find_logistic_weights():
    generated = made("cube-logistic", n=200_000)
    options = {"low": -2.0, "high": 2.0, "epsilon": 2.0, "random_state": 0, "ledger": Ledger(":memory:")}
    metric = generated.metric(model := RiskSurface("logistic", **options).fit(generated.dataset))
    assert metric.error(model) < 0.2 * metric.trivial() and metric.trivial() > 0.05
    assert generated.nonprivate(metric) < 0.002


def accuracy(name: str, n: int, epsilon: float, seed: int) -> float:
    """Of public covariance, over that of no privacy."""
    generated = made(name, n=n, public_rows=20_000, random_state=seed)
    options = {"classes": [0, 1], "epsilon": epsilon, "random_state": seed, "ledger": Ledger(":memory:")}
    model = LogisticRegression(**options).fit(generated.dataset, public_X=generated.public)
    metric = generated.metric(model)
    plain = metric.reference(**{"X": (few := generated.dataset.read(0, min(n, 100_000)))["X"], "y": few["y"]})
    p = np.exp(generated.world.law)
    right = [np.where(each.predict(generated.world.X) == 1, p[:, 1], p[:, 0]).mean() for each in (model, plain)]
    assert model.method_ == "public-covariance"
    return float(right[0] / right[1])


@pytest.mark.parametrize("name, least", [("glm-susy", 0.97), ("glm-covertype", 0.93)])
def test_accuracies_are_near_those_without_privacy(name, least):
    assert accuracy(name, 60_000, 4.0, 0) >= least


def test_noise_makes_no_scale_that_is_worse_than_nothing():
    """The scale that fits a longer direction is far too large: few users, 44 features, many directions."""
    generated = made("glm-covertype", n=60_000, public_rows=20_000)
    options = {"classes": [0, 1], "epsilon": 1.0, "random_state": 0, "ledger": Ledger(":memory:")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(**options).fit(generated.dataset, public_X=generated.public)
    metric = generated.metric(model)
    assert metric.error(model) < metric.trivial()


@pytest.mark.slow
@pytest.mark.parametrize("name, band", [("glm-susy", 0.98), ("glm-covertype", 0.97)])
def test_accuracies_are_in_their_bands(name, band):
    assert np.mean([accuracy(name, 400_000, 2.0, seed) for seed in range(5)]) >= band
