"""The exact step of a quadratic model in a ball, the hard case included, and the loop that is made of such steps."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.solvers.loops import drive
from dpdist.solvers.trust_region import Known, trust_region, trust_region_step


@pytest.mark.parametrize("kind", ["any", "hard", "flat", "convex", "nothing"])
def test_a_step_is_the_minimum_of_its_model(kind):
    rng = np.random.default_rng(0)
    for _ in range(80):
        d = int(rng.integers(1, 13))
        A = rng.normal(size=(d, d)) * 10 ** rng.uniform(-3, 2)
        H = A @ A.T if kind == "convex" else (A + A.T) / 2
        if kind == "flat":
            H = np.outer(A[0], A[0])
        g = rng.normal(size=d) * 10 ** rng.uniform(-4, 1) * (kind != "nothing")
        if kind == "hard":
            lowest = np.linalg.eigh(H)[1][:, 0]
            g = g - lowest * (lowest @ g)
        radius, scale = 10 ** rng.uniform(-2, 1), max(1.0, np.abs(H).max())
        h, lam = trust_region_step(H, g, radius, -1.0)
        length = np.linalg.norm(h)
        assert length <= radius * (1 + 1e-6)
        assert np.linalg.norm((H + lam * np.eye(d)) @ h + g) <= 1e-5 * (1 + np.linalg.norm(g))
        assert lam >= 0 and np.linalg.eigvalsh(H + lam * np.eye(d))[0] >= -1e-8 * scale
        assert lam * abs(length - radius) <= 1e-6 * scale
        others = rng.normal(size=(200, d))
        others *= radius * rng.random((200, 1)) / np.linalg.norm(others, axis=1)[:, None]
        values = others @ g + np.einsum("ki,ij,kj->k", others, H, others) / 2
        assert g @ h + h @ H @ h / 2 <= values.min() + 1e-9 * scale


def test_a_saddle_is_left_by_the_public_sign():
    H = np.diag([1.0, -0.5])
    one, other = (trust_region_step(H, np.zeros(2), 0.3, sign)[0] for sign in (1.0, -1.0))
    np.testing.assert_allclose(one, -other)
    assert np.linalg.norm(one) == pytest.approx(0.3) and one[0] == 0


def test_noise_alone_moves_nothing():
    """A gradient no longer than its noise, and curvature within the edge of its spectrum."""
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(10, 10)) / np.sqrt(2)
    noise = {"gradient": Known(0.9 * np.ones(10), 1.0), "hessian": Known((Z + Z.T) / np.sqrt(2) / 1.2, 1.0)}
    point, _ = drive(trust_region(np.zeros(10), [1.0] * 3, [1.0] * 3), lambda asked: noise[asked.kind])
    assert not point.any()


def test_it_ends_where_enough_is_known():
    asked = []

    def answer(question):
        asked.append(question.kind)
        return Known(question.point - 1.0 if question.kind == "gradient" else np.eye(2), 0.0)

    point, multiplier = drive(trust_region(np.zeros(2), [1.0] * 9, [1.0] * 9, enough=0.0), answer)
    np.testing.assert_allclose(point, 1.0)
    assert multiplier == 0.0 and len(asked) == 4
    asked.clear()
    drive(trust_region(np.zeros(2), [1.0] * 9, [1.0] * 9), answer)
    assert len(asked) == 18
