"""What is printed of online methods for pairs is caught, where ours passes. Confidence 1 - 1e-6, everything seeded."""

from __future__ import annotations

import numpy as np

from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.contraction import OnlinePath
from tests.privacy.exhibits import pairs
from tests.privacy.exhibits.table import EXHIBITS, audit


def test_the_noise_of_a_buffer_of_random_places_is_caught():
    found = audit(next(e for e in EXHIBITS if e.id == "fb-on-pair-strc"))
    assert found["ours"] <= found["epsilon"] < 2 * found["epsilon"] < found["printed"]


def test_ours_spends_the_budget_on_the_dearest_record_and_no_more():
    """The exact law of what is released, on the losses that attain the recursion."""
    std, mu = pairs.our_std(pairs.PATH, *pairs.BUFFERED)[pairs.PATH.burn_in :], gdp_mu(*pairs.BUFFERED)
    spent = 2 * np.linalg.norm(pairs.special_points() / std, axis=1)
    assert mu * (1 - 1e-6) < spent.max() <= mu


def test_clipped_gradients_of_pairs_leave_the_bound():
    """W2: a clipped gradient is no gradient of a convex function, and a step along it may move two points apart.

    Pairs whose loss is a quadratic in two directions, so placed that clipping turns the one gradient and not the other.
    """
    path, clip, rng = OnlinePath(60, 1e-3, 1.0), 0.1, np.random.default_rng(0)
    H = np.diag([1.0, 0.05])

    def gradient(v, centre):
        g = (v - centre) @ H
        return g * np.minimum(1.0, clip / np.maximum(np.linalg.norm(g, axis=-1, keepdims=True), 1e-300))

    one, other = 1e-3 * np.array([-0.64, 0.77]), np.zeros(2)  # already apart, by what an earlier record did
    centres = one + rng.normal(size=(4000, 2)) * 10.0 ** rng.uniform(-2, 1.5, size=(4000, 1))
    step = path.steps[path.burn_in]
    shrink = 1 - step * path.ridge
    a, b = (shrink * v - step * gradient(v, centres) for v in (one, other))
    assert step <= 1 / path.largest_curvature
    assert np.linalg.norm(a - b, axis=1).max() > 1.05 * shrink * np.linalg.norm(one - other)
