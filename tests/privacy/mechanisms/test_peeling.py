"""Peeling: laws, noise, cost and audits. Each statistical check fails by chance with probability below 1e-6."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpdist import Budget
from dpdist.errors import BudgetError
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import eps_for_rho, rho_for
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.mechanisms.peeling import LaplacePeel, Peel, laplace_peel, peel
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed
from tests.privacy.accounting.zcdp import total_rho
from tests.privacy.exhibits.high_dimensional import peel_with_repeats

SURE = 1 - 1e-6
UNIT = 2**32


def seeded(seed: int) -> StreamBits:
    return StreamBits(Stream(run_key_from_seed(seed), "test.peeling"))


@pytest.mark.parametrize("mechanism", [Peel(3).at(0.3), LaplacePeel(3).at(2.0)], ids=lambda m: type(m).__name__)
def test_that_many_different_coordinates_are_kept(mechanism):
    v = np.array([UNIT, 0, 0, -UNIT, 0, 3 * UNIT])
    bits = seeded(0)
    for sensitivity in (1e-9 * UNIT, UNIT, 1e6 * UNIT):  # a noise of exactly 0 at these scales has probability 1e-9
        for _ in range(20):
            released = mechanism.release(v, sensitivity, bits)
            assert released.shape == v.shape
            if sensitivity > 1e3:
                assert np.count_nonzero(released) == 3
    exact = mechanism.release(v, 1e-9 * UNIT, bits)
    assert np.flatnonzero(exact).tolist() == [0, 3, 5]
    assert np.abs(exact - v).max() < 1000


def test_all_coordinates_can_be_kept():
    assert np.count_nonzero(peel(np.array([5 * UNIT, 7 * UNIT]), 2, 1.0, 1.0, SystemBits())) == 2
    assert np.count_nonzero(laplace_peel(np.array([5 * UNIT, 7 * UNIT]), 2, 1.0, 1.0, SystemBits())) == 2


def test_the_first_pick_has_the_law_of_the_exponential_mechanism():
    v, rho, sensitivity, n = np.array([3, -2, 1, 0]) * UNIT, 0.4, float(UNIT), 6000
    bits = seeded(1)
    released = np.array([peel(v, 1, sensitivity, rho, bits) != 0 for _ in range(n)])
    p = np.exp(math.sqrt(8 * 0.5 * rho) * abs(v / UNIT) / 2)
    assert stats.chisquare(released.sum(axis=0), n * p / p.sum()).pvalue > 1e-6


def test_pairs_have_the_law_of_picks_without_replacement():
    v, rho, n = np.array([2, -1, 0]) * UNIT, 0.8, 6000
    bits = seeded(2)
    left_out = np.array([peel(v, 2, float(UNIT), rho, bits) == 0 for _ in range(n)])
    w = np.exp(math.sqrt(8 * 0.5 * rho / 2) * abs(v / UNIT) / 2)
    p = np.array([sum(w[a] * w[b] / w.sum() / (w.sum() - w[a]) for a, b in ((i, j), (j, i)))
                  for i, j in ((1, 2), (0, 2), (0, 1))])  # fmt: skip
    assert p.sum() == pytest.approx(1)
    assert stats.chisquare(left_out.sum(axis=0), n * p).pvalue > 1e-6


@pytest.mark.parametrize("mechanism", [Peel(2).at(0.7), Peel(2, which=0.2).at(0.7), LaplacePeel(2).at(3.0)],
                         ids=["peel", "peel, 20 % for the choice", "laplace"])  # fmt: skip
def test_the_noise_of_the_values(mechanism):
    v, sensitivity, n = np.array([10**16, 0, -(10**16)]), float(UNIT), 1500
    bits = seeded(3)
    released = np.array([mechanism.release(v, sensitivity, bits) for _ in range(n)]) - v
    assert np.all(released[:, 1] == 0)
    z = released[:, [0, 2]].ravel() / mechanism.noise_std(sensitivity)
    law = stats.norm if isinstance(mechanism, Peel) else stats.laplace(scale=1 / math.sqrt(2))
    assert stats.kstest(z, law.cdf).pvalue > 1e-6


def test_a_known_l2_sensitivity_lowers_the_noise():
    v, bits = np.array([10**16] * 9), seeded(4)
    values = np.concatenate([peel(v, 9, float(UNIT), 0.5, bits, l2_sensitivity=UNIT) for _ in range(300)]) - 10**16
    expected = UNIT / math.sqrt(2 * 0.5 * 0.5)
    n = values.size
    assert stats.chi2(n).cdf((values / expected) ** 2 @ np.ones(n)) == pytest.approx(0.5, abs=0.5 - 1e-6)


def test_costs():
    assert Peel(8).at(0.2).cost.rho == pytest.approx(0.02)
    assert LaplacePeel(8).at(0.5).cost.epsilon == 0.5


def test_plans_spend_what_there_is():
    plan = calibrate([Item("step", Peel(8), count=6)], Budget(1.0, 1e-6))
    assert total_rho(plan) == pytest.approx(rho_for(1.0, 1e-6), rel=1e-3)
    assert plan.accountant == "zcdp" and plan.spent.epsilon <= 1.0
    pure = calibrate([Item("step", LaplacePeel(8), count=4)], Budget(1.0))
    assert pure["step"].mechanism.cost.epsilon == pytest.approx(0.25)
    with pytest.raises(BudgetError):
        calibrate([Item("step", Peel(8))], Budget(1.0))


def test_huge_integers():
    for mechanism in (Peel(1).at(1.0), LaplacePeel(1).at(1.0)):
        assert mechanism.release(np.array([-(2**63), 5]), 1.0, SystemBits())[0] < -(2**62)
        far = mechanism.release(np.array([2**200, 5], dtype=object), 1.0, SystemBits())
        assert far.dtype == object and abs(far[0] - 2**200) < 10**9
    assert Peel(1).at(1.0).release(np.array([7, 2**40]), 1.0, SystemBits()).dtype == np.int64


@pytest.mark.parametrize("v, k", [(np.zeros((2, 2), int), 1), (np.zeros(3, int), 4), (np.zeros(3, int), 0)])
def test_what_cannot_be_peeled(v, k):
    with pytest.raises((ValueError, BudgetError)):
        peel(v, k, 1.0, 1.0, SystemBits())
    with pytest.raises(TypeError):
        peel(np.zeros(3), 1, 1.0, 1.0, SystemBits())
    with pytest.raises(BudgetError):
        Peel(0)
    with pytest.raises(BudgetError):
        Peel(1, which=1.0)


# --- audits -----------------------------------------------------------------------------------------------------------
# All coordinates of v move towards 0 by the sensitivity except the first, which moves away from it: the choice and
# the value of the first one then tell the two apart as well as any output can. Everything is seeded.

K, DELTA, RHO = 8, 1e-2, 0.5
ONE, OTHER = np.full(K + 1, 2 * UNIT), np.full(K + 1, UNIT)
ONE[0], OTHER[0] = UNIT, 2 * UNIT


def first_value(mechanism, v, bits):
    """The released first entry; left out counts as a very small one."""
    released = mechanism.release(v, float(UNIT), bits)
    return float(released[0]) / UNIT if released[0] else -1e9


@pytest.mark.parametrize(
    "mechanism, epsilon, delta",
    [(Peel(K).at(math.sqrt(2 * RHO)), eps_for_rho(RHO, DELTA), DELTA), (LaplacePeel(K).at(4.0), 4.0, 0.0)],
    ids=["peel", "laplace"],
)
def test_a_release_is_as_private_as_claimed(mechanism, epsilon, delta):
    bits = seeded(11)
    result = audit_two_point(
        lambda: first_value(mechanism, ONE, bits), lambda: first_value(mechanism, OTHER, bits), 700, delta, SURE
    )
    assert result.epsilon_lower <= epsilon


def test_one_coordinate_is_as_private_as_claimed():
    """With one coordinate there is nothing to choose, and the value attains its half of the cost."""
    mechanism, bits = Peel(1).at(1.0), seeded(12)
    v = np.array([0])
    result = audit_two_point(
        lambda: mechanism.release(v, float(UNIT), bits)[0] / UNIT,
        lambda: mechanism.release(v + UNIT, float(UNIT), bits)[0] / UNIT,
        1500,
        DELTA,
        SURE,
    )
    assert 0.3 * math.sqrt(0.5) < result.mu_lower <= math.sqrt(0.5)


SMALL_RHO = 0.25


def moved(far: int) -> np.ndarray:
    """A vector whose first coordinate leads by so much that it is always chosen."""
    v = np.zeros(40, dtype=np.int64)
    v[0] = 1000 * UNIT + far
    return v


def audit_one_moved_coordinate(run):
    """Neighbours that differ in one coordinate by the l2 sensitivity."""
    return audit_two_point(lambda: run(moved(0)), lambda: run(moved(UNIT)), 700, DELTA, SURE)


def test_different_coordinates_keep_an_l2_calibration_private():
    bits = seeded(13)
    result = audit_one_moved_coordinate(
        lambda v: peel(v, 30, float(UNIT), SMALL_RHO, bits, l2_sensitivity=float(UNIT))[0] / UNIT - 1000
    )
    assert result.epsilon_lower <= eps_for_rho(SMALL_RHO, DELTA)


def test_repeated_coordinates_are_caught():
    bits = seeded(14)

    def mean_of_the_first(v):
        chosen, values = peel_with_repeats(v, 30, float(UNIT), SMALL_RHO, bits, l2_sensitivity=float(UNIT))
        assert np.all(chosen == 0)  # as printed: with little noise it is the same one 30 times
        return float(np.mean(values / UNIT - 1000))

    result = audit_one_moved_coordinate(mean_of_the_first)
    assert result.epsilon_lower > eps_for_rho(SMALL_RHO, DELTA)
