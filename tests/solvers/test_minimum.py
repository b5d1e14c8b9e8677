"""The exact method reaches what it promises on every function of its class, also with wrong gradients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpdist.solvers.loops import drive
from dpdist.solvers.minimum import MOST_ROUNDS, _schedule, distance_after, exact_method, rounds_until


def softened(w, L, alpha, kink):
    """Gradient of a function whose curvature jumps from alpha to L at ``kink`` in every coordinate."""
    slope = lambda v: alpha * v + (L - alpha) * np.maximum(v - kink, 0)  # noqa: E731
    return slope(w) - slope(np.ones_like(w))  # minimiser: all ones


FUNCTIONS = {
    "stiff": lambda w, L, alpha: L * (w - 1),
    "flat": lambda w, L, alpha: alpha * (w - 1),
    "ill-conditioned": lambda w, L, alpha: np.geomspace(alpha, L, w.size) * (w - 1),
    "kink at the minimum": lambda w, L, alpha: softened(w, L, alpha, 1.0),
    "kink on the way": lambda w, L, alpha: softened(w, L, alpha, 0.3),
    "flat, then stiff": lambda w, L, alpha: softened(w, L, alpha, 0.999),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kappa", [2.0, 30.0, 2500.0])
def test_the_bound_holds(name, kappa):
    L, start, size = kappa, math.sqrt(3), 3
    for n in (1, 7, 50, rounds_until(1e-4, L, 1.0, start)):
        end = drive(exact_method(np.zeros(size), L, 1.0, n), lambda w: FUNCTIONS[name](w, L, 1.0))
        assert np.linalg.norm(end - 1) <= distance_after(n, L, 1.0, start, 0.0)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["constant", "alternating", "outwards", "random"])
def test_the_bound_holds_with_wrong_gradients(name, kind):
    L, error, start = 300.0, 1e-3, math.sqrt(3)
    n, rng, sign = rounds_until(1e-3, L, 1.0, start), np.random.default_rng(0), itertools.cycle([1, -1])

    def wrong(w):
        v = {"constant": np.ones(3), "alternating": next(sign) * np.ones(3), "outwards": 1 - w}.get(kind)
        v = rng.normal(size=3) if v is None else v
        return FUNCTIONS[name](w, L, 1.0) + error * v / max(np.linalg.norm(v), 1e-300)

    end = drive(exact_method(np.zeros(3), L, 1.0, n), wrong)
    assert np.linalg.norm(end - 1) <= distance_after(n, L, 1.0, start, error)
    assert distance_after(n, L, 1.0, start, error) > distance_after(n, L, 1.0, start, 0.0)


def test_the_worst_case_is_nearly_attained():
    """On the stiff-and-flat function the method needs about the rounds it counts on: they are not padded."""
    L = 400.0
    n = rounds_until(1e-3, L, 1.0, 1.0)
    ends = [
        abs(drive(exact_method(np.zeros(1), L, 1.0, n), lambda w, h=h: h * (w - 1.0))[0] - 1)
        for h in np.geomspace(1, L, 200)
    ]
    assert 0.2e-3 < max(ends) <= 1e-3
    assert n < 1.1 * math.sqrt(L) * math.log(2 / 1e-3)


@pytest.mark.parametrize("q", [0.5, 0.03, 1e-5])
def test_the_potential_never_grows(q):
    """The identity of the module's docstring, with random vectors in place of points and gradients.

    phi_k - phi_{k+1} is a positive combination of two interpolation inequalities of the class; it holds for all
    vectors, so it is checked on random ones, for L = 1, minimiser 0 and minimum 0.
    """
    rng = np.random.default_rng(1)
    a = 0.0
    for beta, delta, following in itertools.islice(_schedule(q), 40):
        z, y0, g0, g = rng.normal(size=(4, 3))
        f0, f = rng.normal(size=2)
        y = (1 - beta) * z + beta * (y0 - g0)
        z1 = (1 - q * delta) * z + q * delta * y - delta * g

        def psi(value, point, gradient):
            step = point - gradient
            return value - gradient @ gradient / 2 - q / (2 * (1 - q)) * step @ step

        def interpolation(value0, p0, gradient0, value, p, gradient):
            step = (p0 - p) - (gradient0 - gradient)
            square = (gradient0 - gradient) @ (gradient0 - gradient)
            return value0 - value - gradient @ (p0 - p) - square / 2 - q / (2 * (1 - q)) * step @ step

        before = (1 - q) * a * psi(f0, y0, g0) + (1 + q * a) * z @ z
        after = (1 - q) * following * psi(f, y, g) + (1 + q * following) * z1 @ z1
        nothing = np.zeros(3)
        gain = (1 - q) * a * interpolation(f0, y0, g0, f, y, g)
        gain += (1 - q) * (following - a) * interpolation(0.0, nothing, nothing, f, y, g)
        assert before - after == pytest.approx(gain, rel=1e-9, abs=1e-9 * following)
        assert 0 <= beta < 1 and following > a
        a = following


def test_rounds_are_enough_and_not_too_many():
    for q, distance in itertools.product((0.4, 1e-2, 1e-6), (1e-2, 1e-8)):
        n = rounds_until(distance, 1 / q, 1.0, 1.0)
        growth = [a for _, _, a in itertools.islice(_schedule(q), n)]
        assert 1 / math.sqrt(1 + q * growth[-1]) <= distance
        assert n == 1 or 1 / math.sqrt(1 + q * growth[-2]) > distance


def test_no_bound_where_rounding_takes_over():
    assert distance_after(2 * 10**5, 1e12, 1.0, 1.0, 0.0) == math.inf
    assert distance_after(100, 100.0, 1.0, 1.0, 10.0) == math.inf


@pytest.mark.parametrize("smoothness", [2.5, 4.0, 40.0])
def test_more_rounds_than_it_takes_do_no_harm(smoothness):
    """Hundreds of rounds with a strong penalty: coefficients that grow geometrically end at their limits."""
    curvatures = np.array([smoothness, (smoothness + 1) / 2, 1.0])
    for n_rounds in (30, 240, 260, 2_000):
        found = drive(exact_method(np.zeros(3), smoothness, 1.0, n_rounds), lambda w: curvatures * (w - 1.0))
        bound = distance_after(n_rounds, smoothness, 1.0, 2.0, 1e-15)
        assert np.linalg.norm(found - 1.0) <= bound < 3.0
        assert n_rounds < 200 or bound < 1e-10


def test_rounds_that_nobody_would_wait_for_are_not_counted():
    assert rounds_until(1e-6, 1e6, 1.0, 1.0) < MOST_ROUNDS == rounds_until(1e-60, 1e20, 1.0, 1e20)
