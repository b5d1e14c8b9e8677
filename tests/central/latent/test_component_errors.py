"""Intervals of two components: the law by which they are made, against drawn rows, and where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import Dataset, TwoComponentMixture
from dpdist.central import ClippedEM
from dpdist.central.latent.component_errors import clipped_law, component_errors
from dpdist.errors import NoIntervals

KEYS = {"noise_std": 1.0, "epsilon": 1.0, "delta": 1e-6, "cluster": "threads", "random_state": 0}


@pytest.mark.parametrize(("r", "sigma", "clip_norm", "d"), [(1.7, 1.0, 2.2, 5), (1.0, 2.0, 3.0, 3), (2.0, 0.5, 0.4, 1)])
def test_the_law_is_that_of_drawn_rows(r, sigma, clip_norm, d):
    rng, n = np.random.default_rng(d), 1_000_000
    rows = sigma * rng.normal(size=(n, d))
    rows[:, 0] += r

    def clipped(b):
        g = np.tanh(rows @ b / sigma**2)[:, None] * rows - b
        return g * np.minimum(1.0, clip_norm / np.linalg.norm(g, axis=1))[:, None]

    b, law = r * np.eye(d)[0], clipped_law(r, sigma, clip_norm, d)
    drawn = clipped(b)
    accuracy = 6 * drawn.std() / np.sqrt(n)  # six standard errors, and what the grid of levels leaves
    assert abs(drawn[:, 0].mean() - law.mean) < accuracy + 2e-3 * sigma
    np.testing.assert_allclose(drawn[:, : min(d, 2)].var(axis=0), law.variances[: min(d, 2)], rtol=0.02)
    for j in range(min(d, 2)):
        h = 1e-3 * np.eye(d)[j]
        assert law.slopes[j] == pytest.approx(-(clipped(b + h) - clipped(b - h))[:, j].mean() / 2e-3, rel=0.02)


def test_clipping_moves_the_answer_and_is_counted():
    """The control: at a very small clip norm the shift is larger than all else, and intervals without it miss."""
    law, n, d = clipped_law(1.2, 1.0, 0.3, 4), 10**6, 4
    b = 1.2 * np.eye(d)[0]
    found = component_errors(b, 1.0, 0.3, n, 1.0, 500, 1e-5, 5.0)
    assert not found.invalid
    shift = law.mean / law.slopes[0]
    assert np.sqrt(found.covariance[0, 0]) > abs(shift) > 4 * np.sqrt(law.variances[0] / n) / law.slopes[0]
    assert found.covariance[1, 1] < shift**2 / 4


def fitted(n=4000, length=2.0, d=3, method="clip", **changed):
    rng = np.random.default_rng(1)
    b = np.full(d, length / np.sqrt(d))
    X = rng.choice([-1.0, 1.0], n)[:, None] * b + rng.normal(size=(n, d))
    keys = {"radius": 3.0, "start": b / 2, **KEYS, **changed}
    if "unit" in keys:
        X = Dataset.from_arrays(X=X, **keys.pop("unit"))
    return TwoComponentMixture(method, **keys).fit(X), b


def test_a_fit_says_how_sure_it_is():
    model, b = fitted()
    assert model.standard_errors_.shape == (3,) and (np.abs(model.coef_ - b) < 5 * model.standard_errors_).all()
    assert "noise_std in every direction" in str(model.summary()) and model.wald_test(np.eye(3)).p_value < 1e-9
    wider, _ = fitted(epsilon=0.3)
    assert (wider.standard_errors_ > model.standard_errors_).all()


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"length": 0.05}, "not farther apart than the noise|on its way still"),
        ({"length": 2.0, "radius": 1.2}, "edge of the ball"),
        ({"method": ClippedEM(1)}, "after 1 rounds it may be on its way"),
        ({"method": "truncate"}, r"TwoComponentMixture\(method='clip'\) has them"),
        (
            {"unit": {"unit": "person", "max_rows_per_unit": 2, "grouped": True}, "epsilon": 5.0},
            "rows of one owner may be alike",
        ),
    ],
    ids=["no components", "the edge", "one round", "another method", "owners"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_where_there_are_no_intervals_it_says_why(keys, why):
    model, _ = fitted(**keys)
    with pytest.raises(NoIntervals, match=why):
        model.confidence_intervals()
