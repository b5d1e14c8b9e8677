"""How far one record moves an online descent: against a brute force that attains it, and the published numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.buffers import BUFFERS, buffer_path
from dpdist.privacy.accounting.contraction import PAST, OnlinePath, smallest_ridge


def descend(path, signs):
    """On linear losses of the two records of a pair with a ridge penalty, unprojected.

    A new record moves the gradient by ``G = 2``, one of m past ones by ``G / m``.
    """
    v, points = 0.0, np.zeros(path.n_rows)
    for t in range(path.burn_in, path.n_rows):
        held = np.arange(t) if path.past is None else path.past[t][path.past[t] >= 0]
        v -= path.steps[t] * (signs[t] + signs[held].mean() + path.ridge * v)
        points[t] = v
    return points


@pytest.mark.parametrize("memory", PAST)
@pytest.mark.parametrize("n", [7, 60])
def test_a_linear_loss_with_a_ridge_attains_the_recursion(memory, n):
    path = OnlinePath(n, 0.7, 1.0, "contract", memory, 1 if memory == "all" else 4, 3)
    base = np.random.default_rng(0).choice([-1.0, 1.0], n)
    apart = np.zeros((n, n))
    for i in range(n):
        one, other = base.copy(), base.copy()
        one[i], other[i] = 1.0, -1.0
        apart[i] = np.abs(descend(path, one) - descend(path, other))
    moves = path.moves(2.0, math.inf)
    first = path.burn_in
    assert np.allclose(moves.each[first:], apart[:, first:].max(axis=0), rtol=1e-8)
    together = np.sqrt(((apart[:, first:] / moves.each[first:]) ** 2).sum(axis=1).max())
    assert moves.together == pytest.approx(together, rel=1e-8) and moves.together >= together
    assert moves.tail == pytest.approx(apart[:, path.tail :].mean(axis=1).max(), rel=1e-8)


def test_the_published_noise_is_enough_for_fifo_and_not_for_random_buffers():
    """Spec 02, section 3.2: the true mu over the claimed one, by ``8 G / (alpha t)`` in equal shares."""
    n, alpha = 4000, 0.5

    def ratio(memory, kept):
        return dearest(OnlinePath(n, alpha, 4.0, "contract", memory, kept), 8 / (alpha * np.arange(1, n + 1)))

    assert ratio("fifo", 20) == pytest.approx(0.5, abs=0.1)
    assert ratio("fifo", 400) == pytest.approx(0.5, abs=0.1)
    assert ratio("rsx", 20) > 15 and ratio("reservoir", 20) > 15
    assert ratio("rsx", 400) > 2


def dearest(path, scales):
    """``max_i sqrt(mean_t (D_t^(i) / scale_t)^2)``."""
    n, steps, past = path.n_rows, path.steps, path.past
    apart, shares = np.zeros(n), np.zeros(n)
    for t in range(1, n):
        apart[: t + 1] *= 1 - steps[t] * path.ridge
        held = past[t][past[t] >= 0]
        np.add.at(apart, held, steps[t] * 2.0 / len(held))
        apart[t] = steps[t] * 2.0
        shares += (apart / scales[t]) ** 2
    return math.sqrt(shares.max() / n)


def test_the_default_schedule_needs_half_of_the_published_sensitivity():
    path = OnlinePath(10_000, 0.5, 4.0)
    each = path.moves(2.0, math.inf).each
    assert each[-1] * 0.5 * 10_000 == pytest.approx(4.06, abs=0.05), "spec 02, section 10"
    assert OnlinePath(10_000, 0.5, 4.0, "paper").burn_in == 1296


def test_points_are_never_farther_apart_than_the_set_is_wide():
    path = OnlinePath(50, 1e-4, 1.0)
    assert path.moves(2.0, 0.3).each.max() <= 0.3 * (1 + 1e-8)
    assert path.moves(2.0, 0.3).tail <= 0.3 * (1 + 1e-8)


def test_the_published_schedule_says_which_ridge_would_do():
    with pytest.raises(BudgetError, match="take ridge=") as said:
        OnlinePath(2000, 1e-3, 4.0, "paper")
    enough = smallest_ridge(2000, 4.0)
    assert f"ridge={enough:.3g}" in str(said.value)
    path = OnlinePath(2000, enough, 4.0, "paper")
    assert path.burn_in < 1000 and (path.steps[path.burn_in :] <= 1 / path.largest_curvature).all()
    with pytest.raises(BudgetError, match="too few for any ridge"):
        OnlinePath(20, 1.0, 4.0, "paper")
    with pytest.raises(BudgetError, match="one of"):
        OnlinePath(20, 1.0, 4.0, "contract", "lifo")


@pytest.mark.parametrize("memory", BUFFERS)
def test_a_buffer_holds_the_past_and_nothing_else(memory):
    path = buffer_path(memory, 400, 7, seed=1)
    for t in range(400):
        held = path[t][path[t] >= 0]
        assert len(held) == min(t, 7) and (held < t).all()
        assert memory == "rsx" or len(set(held)) == len(held)
    assert np.array_equal(path, buffer_path(memory, 400, 7, seed=1))
    assert memory == "fifo" or not np.array_equal(path, buffer_path(memory, 400, 7, seed=2))
    assert np.array_equal(path[:8], buffer_path("fifo", 400, 7)[:8])


@pytest.mark.parametrize("memory", ["reservoir", "rsx"])
def test_every_record_is_as_likely_to_be_held(memory):
    """20 records, 5 places, 3000 paths: how often each is held, to six standard deviations."""
    counts = np.zeros(20)
    for seed in range(3000):
        np.add.at(counts, buffer_path.__wrapped__(memory, 21, 5, seed)[20], 1)
    assert (abs(counts - 750) < 6 * math.sqrt(750)).all()


def test_long_paths_and_unknown_buffers_are_refused():
    with pytest.raises(BudgetError, match="too long a path"):
        buffer_path("rsx", 20_000, 10_000)
    with pytest.raises(BudgetError, match="is not known"):
        buffer_path("lifo", 10, 2)
