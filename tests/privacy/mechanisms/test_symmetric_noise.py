"""Wishart and K-norm noise: their laws, what they cost, and that they are caught where they are made otherwise."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpdist.data import Units
from dpdist.engine.checks import check_plannable, sensitivity_of
from dpdist.errors import BudgetError
from dpdist.kernels.moments import unpack_symmetric
from dpdist.privacy.accounting.approximate_wishart import extra_degrees
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms.norms import FROBENIUS, NUCLEAR
from dpdist.privacy.mechanisms.symmetric_noise import ApproximateWishart, SymmetricKNorm, TwoSidedWishart
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.matrices import BITS, Reals, gram, rounded_ratio
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed
from dpdist.queries.moment_sums import SecondMomentSum

ALPHA = 1e-7
"""The chance of each statistical test to fail by accident; seeds fix it."""
UNIT = 2.0**30
REPLACE = Neighbours.REPLACE_ONE


def bits(name: str) -> StreamBits:
    return StreamBits(Stream(run_key_from_seed(41), name))


def noise(mechanism, n: int, sensitivity: float, name: str) -> np.ndarray:
    """n matrices of noise, in units of ``UNIT``."""
    source, units = bits(name), np.zeros(mechanism.size * (mechanism.size + 1) // 2, dtype=np.int64)
    drawn = [mechanism.release(units, sensitivity * UNIT, source) for _ in range(n)]
    return np.array([unpack_symmetric(np.asarray(z, dtype=float)) for z in drawn]) / UNIT


def test_products_are_exact_whatever_their_size(monkeypatch):
    """Also where a few rows at a time are all that is held."""
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (3, 5), (17, 40)):
        signs, shifts = rng.integers(-(2**62), 2**62, shape), rng.integers(0, 170, shape)
        G = signs.astype(object) << shifts.astype(object)
        for most in (2**18, 40, 1):
            monkeypatch.setattr("dpdist.privacy.randomness.matrices._AT_ONCE", most)
            assert np.array_equal(gram(G), G.dot(G.T)[np.triu_indices(len(G))])
    assert gram(np.zeros((2, 3), dtype=object)).tolist() == [0, 0, 0]
    for columns in (8192, 20_000):
        largest = np.full((2, columns), 2**230 - 1, dtype=object)
        assert gram(largest)[1] == columns * (2**230 - 1) ** 2


def test_noise_that_is_drawn_in_parts_has_its_law(monkeypatch):
    whole = noise(TwoSidedWishart(3).at(1.0), 150, 2.0, "parts")
    monkeypatch.setattr("dpdist.privacy.randomness.matrices._AT_ONCE", 5)
    parts = noise(TwoSidedWishart(3).at(1.0), 150, 2.0, "parts")
    assert not np.array_equal(parts, whole) and stats.ks_2samp(parts[:, 0, 1], whole[:, 0, 1]).pvalue > ALPHA


def test_the_memory_of_wide_noise_is_that_of_its_numbers(monkeypatch):
    """And of a few matrices made of them, not of what each number is drawn from (430 bytes)."""
    monkeypatch.setattr("dpdist.privacy.randomness.matrices._AT_ONCE", 500)
    mechanism, units = TwoSidedWishart(50).at(1.0), np.zeros(1275, dtype=np.int64)
    source = bits("memory")
    TwoSidedWishart(2).at(1.0).release(units[:3], 2.0 * UNIT, source)
    tracemalloc.start()
    try:
        mechanism.release(units, 2.0 * UNIT, source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / (2 * 50 * 51) < 260, f"{peak / (2 * 50 * 51):.0f} bytes a number"


def test_ratios_are_rounded_to_the_nearest():
    numerators = np.array([7, -7, 2**300 + 1, -(2**300)], dtype=object)
    assert rounded_ratio(numerators, 4).tolist() == [2, -2, 2**298, -(2**298)]


@pytest.mark.parametrize(("law", "known"), [("normal", stats.norm), ("exponential", stats.expon)])
@pytest.mark.parametrize("start", [0, 2, BITS])
def test_numbers_keep_their_law_however_many_digits_are_drawn(law, known, start):
    """Drawn to whole numbers only at first, and refined: the law inside the cells is that of the real numbers."""
    numbers = Reals(law, (400,), bits(f"{law} {start}"), start)
    before, places = numbers.centres, numbers.places
    for _ in range(2):
        numbers.refine()
        finer = numbers.places - places
        assert finer >= 64 and (abs(numbers.centres - (before << finer)) <= (1 << finer)).all()  # still inside
        before, places = numbers.centres, numbers.places
    values = np.array([float(Fraction(int(c), 1 << numbers.places)) for c in numbers.centres])
    assert stats.kstest(values, known.cdf).pvalue > ALPHA
    rough = np.array([float(Fraction(int(k), 1 << start)) for k in numbers._nearest])
    assert start or stats.kstest(rough, known.cdf).pvalue < ALPHA  # whole numbers alone are another law


@pytest.mark.parametrize("kind", [TwoSidedWishart, SymmetricKNorm])
def test_a_release_has_its_law_where_the_first_digits_hardly_ever_decide(kind, monkeypatch):
    monkeypatch.setattr("dpdist.privacy.randomness.matrices.BITS", 3)
    monkeypatch.setattr(Reals.__init__, "__defaults__", (3,))
    refined = []
    original = Reals.refine
    monkeypatch.setattr(Reals, "refine", lambda self: (refined.append(self), original(self)))
    sensitivity = 2.0 if kind is TwoSidedWishart else math.sqrt(2)
    mechanism = kind(2).at(1.0)
    drawn = noise(mechanism, 150, sensitivity, f"few {kind.__name__}")
    assert len(refined) >= 150
    diagonal, others = mechanism.entry_stds(sensitivity)
    assert abs(drawn[:, 0, 0].std() / diagonal - 1) < 0.5 and abs(drawn[:, 0, 1].std() / others - 1) < 0.5
    monkeypatch.undo()
    more = noise(mechanism, 500, sensitivity, f"many {kind.__name__}")
    for i, j in ((0, 0), (0, 1)):
        assert stats.ks_2samp(drawn[:, i, j], more[:, i, j]).pvalue > ALPHA


def test_in_one_column_it_is_laplace_noise():
    Z = noise(TwoSidedWishart(1).at(0.5), 1000, 2.0, "laplace")[:, 0, 0]  # c = 2
    assert stats.kstest(Z / 4, "laplace").pvalue > ALPHA
    assert stats.kstest(Z / 8, "laplace").pvalue < ALPHA


@pytest.mark.parametrize(
    ("mechanism", "sensitivity"),
    [
        (TwoSidedWishart(4).at(0.7), 2.0),
        (SymmetricKNorm(3).at(0.7), math.sqrt(2)),
        (ApproximateWishart(4, 1e-3).at(1.0), 2.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_the_mean_is_zero_and_the_standard_deviations_are_as_declared(mechanism, sensitivity):
    n = 400
    Z = noise(mechanism, n, sensitivity, "moments")
    diagonal, others = mechanism.entry_stds(sensitivity)
    assert mechanism.noise_std(sensitivity) == diagonal
    for i, j in zip(*np.triu_indices(mechanism.size), strict=True):
        std, entries = diagonal if i == j else others, Z[:, i, j]
        assert abs(entries.mean()) < 5.5 * std / math.sqrt(n)  # 5.5 standard errors: 4e-8
        assert abs(entries.std() / std - 1) < 0.35


def test_the_two_sided_wishart_is_symmetric_about_zero_and_has_its_spectral_norm():
    Z = noise(TwoSidedWishart(40).at(1.0), 1, 2.0, "edge")
    assert all(2.4 * 40 < np.abs(np.linalg.eigvalsh(z)).max() < 3.6 * 40 for z in Z)
    Z = noise(TwoSidedWishart(3).at(1.0), 400, 2.0, "sides")
    assert abs((Z[:, 0, 0] > 0).mean() - 0.5) < 0.14
    assert stats.ks_2samp(Z[:, 0, 1], -Z[:, 2, 1]).pvalue > ALPHA


def test_the_length_of_k_norm_noise_is_gamma_of_the_right_shape_and_its_direction_uniform():
    """The control has the shape D - 1, which is another density and no guarantee."""
    Z = noise(SymmetricKNorm(2).at(1.0), 900, 1.0, "knorm")
    lengths = np.linalg.norm(Z, axis=(1, 2))
    assert stats.kstest(lengths, stats.gamma(3).cdf).pvalue > ALPHA > stats.kstest(lengths, stats.gamma(2).cdf).pvalue
    directions = np.stack([Z[:, 0, 0], Z[:, 1, 1], math.sqrt(2) * Z[:, 0, 1]], axis=1) / lengths[:, None]
    for column in directions.T:  # a coordinate of a uniform direction in three dimensions is uniform in [-1, 1]
        assert stats.kstest(column, stats.uniform(-1, 2).cdf).pvalue > ALPHA


def test_the_one_wishart_matrix_has_its_law():
    """Its trace less its mean is chi-squared with as many degrees of freedom as there are normal numbers."""
    mechanism = ApproximateWishart(3, 0.2).at(2.0)
    Z, degrees = noise(mechanism, 500, 2.0, "W"), 3 + mechanism.extra
    traces = np.trace(Z, axis1=1, axis2=2) + 3 * degrees
    assert stats.kstest(traces, stats.chi2(3 * degrees).cdf).pvalue > ALPHA
    assert stats.kstest(Z[:, 1, 1] + degrees, stats.chi2(degrees).cdf).pvalue > ALPHA
    assert stats.kstest(traces, stats.chi2(3 * degrees + 6).cdf).pvalue < ALPHA


def test_the_costs_are_what_the_plan_charges():
    for mechanism in (TwoSidedWishart(5), SymmetricKNorm(3)):
        plan = calibrate([Item("m", mechanism)], Budget(0.8))
        strength = plan["m"].mechanism.strength
        assert plan["m"].mechanism.cost == Cost("pure", strength) and 0.8 * (1 - 1e-9) < strength <= 0.8
        assert plan.spent == Budget(strength)
    plan = calibrate([Item("m", ApproximateWishart(5, 1e-6))], Budget(1.0, 1e-6))
    assert plan.spent == Budget(plan.spent.epsilon, 1e-6) and plan["m"].mechanism.extra in (58, 59)


def test_each_is_asked_for_the_norm_that_its_proof_has():
    query = SecondMomentSum(3, 2.0)
    rows = Units()
    for mechanism, value in ((TwoSidedWishart(3), 8.0), (SymmetricKNorm(3), 4 * math.sqrt(2))):
        assert sensitivity_of(Item("m", mechanism), query, REPLACE, rows) == pytest.approx(value)
        owners = replace(rows, name="user", max_rows=3)
        assert sensitivity_of(Item("m", mechanism), query, REPLACE, owners) == pytest.approx(3 * value)
    assert TwoSidedWishart.norm == NUCLEAR and SymmetricKNorm.norm == FROBENIUS
    with pytest.raises(BudgetError, match="differ in one row"):
        check_plannable(
            Item("m", ApproximateWishart(3, 1e-6)), replace(rows, name="user", max_rows=3), Neighbours.REPLACE_ONE
        )


def test_what_is_no_matrix_is_refused():
    for mechanism in (TwoSidedWishart(3).at(1.0), SymmetricKNorm(3).at(1.0), ApproximateWishart(3, 1e-3).at(1.0)):
        with pytest.raises(ValueError, match="3 columns"):
            mechanism.release(np.zeros(5, dtype=np.int64), 1.0, SystemBits())
        with pytest.raises(TypeError, match="integers"):
            mechanism.release(np.zeros(6), 1.0, SystemBits())
        with pytest.raises(BudgetError, match="sensitivity_units"):
            mechanism.release(np.zeros(6, dtype=np.int64), 0.0, SystemBits())
    with pytest.raises(BudgetError, match="at least one column"):
        TwoSidedWishart(0)


def likelihoods(one: np.ndarray, other: np.ndarray) -> float:
    """The largest log-ratio of how often each event of a fixed family happens, with a margin for chance (6 sigma)."""
    worst = 0.0
    for t in np.linspace(*np.quantile(np.concatenate([one, other]), [0.02, 0.98]), 25):
        for a, b in (((one > t).mean(), (other > t).mean()), ((one <= t).mean(), (other <= t).mean())):
            low = a - 6 * math.sqrt(a * (1 - a) / len(one))
            high = b + 6 * math.sqrt(b * (1 - b) / len(other))
            if low > 0:
                worst = max(worst, math.log(low / high))
    return worst


def float_wisharts(d, degrees, n, rng):
    G = rng.standard_normal((n, d, degrees))
    return G @ G.transpose(0, 2, 1)


@dataclass(frozen=True)
class Law:
    """Noise in floating point, for audits with many draws; ``v`` and ``w`` are the rows of the two neighbours."""

    v: np.ndarray
    w: np.ndarray

    def scores(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``w' M w - v' M v`` of what is released of either neighbour."""
        difference = np.outer(self.w, self.w) - np.outer(self.v, self.v)
        one, other = ((Z + np.outer(row, row)) for row in (self.v, self.w))
        return (one * difference).sum(axis=(1, 2)), (other * difference).sum(axis=(1, 2))


ORTHOGONAL = Law(np.eye(3)[0], np.eye(3)[1])


def test_audits_pass_and_their_controls_are_caught():
    """Two-sided Wishart noise and a third of it; epsilon = 1. Printed noise is in ``test_matrix_exhibits.py``."""
    rng, n = np.random.default_rng(7), 200_000
    two_sided = float_wisharts(3, 4, n, rng) - float_wisharts(3, 4, n, rng)
    assert likelihoods(*ORTHOGONAL.scores(two_sided)) < 1.0
    assert likelihoods(*ORTHOGONAL.scores(two_sided / 3)) > 1.0  # a third of the noise is caught
    drawn = noise(TwoSidedWishart(3).at(1.0), 500, 2.0, "audit")  # and the sampler has this law
    for i, j in ((0, 0), (0, 1), (2, 2)):
        assert stats.ks_2samp(drawn[:, i, j], two_sided[:, i, j]).pvalue > ALPHA


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_one_sided_wishart_is_not_private(d):
    """Its output dominates the matrix it was made of, and that of a neighbour but with ``1 - exp(-epsilon / 3)``.

    Noise ``c W`` with ``c = 3 / (2 epsilon)``: ``c W - v v'`` is negative somewhere where ``c < v' W^-1 v``, and
    ``1 / v' W^-1 v`` is chi-squared with two degrees of freedom, in any dimension.
    """
    epsilon, n = 1.0, 40_000
    W = 3 / (2 * epsilon) * float_wisharts(d, d + 1, n, np.random.default_rng(d))
    v = np.zeros(d)
    v[-1] = 1.0
    seen = np.linalg.eigvalsh(W - np.outer(v, v))[:, 0] < 0  # impossible if the neighbour had been the input
    expected = -math.expm1(-epsilon / 3)
    assert abs(seen.mean() - expected) < 5.5 * math.sqrt(expected / n)
    assert np.linalg.eigvalsh(W)[:, 0].min() >= -1e-9


def test_the_approximate_wishart_is_as_private_as_the_quadrature_says_and_a_third_of_it_is_not():
    epsilon, delta, d = 1.0, 1e-2, 4
    q = extra_degrees(epsilon, delta)
    assert q == 12
    rng = np.random.default_rng(3)
    v, w = np.eye(d)[0], np.eye(d)[1]

    def lost(degrees: int) -> float:
        """``E (1 - e^epsilon q/p)_+`` for orthogonal rows, from exact densities of the Wishart matrices."""
        W = float_wisharts(d, d + degrees, 60_000, rng)
        released = W + np.outer(v, v)
        under = released - np.outer(w, w)
        power = (degrees - 1) / 2
        signs, logs = np.linalg.slogdet(under)
        inside = np.linalg.eigvalsh(under)[:, 0] > 0
        ratio = np.where(inside & (signs > 0), power * (logs - np.linalg.slogdet(W)[1]), -np.inf)
        return float(np.mean(np.maximum(0.0, 1 - np.exp(epsilon + ratio))))

    assert lost(q) < delta < lost(q // 3)
