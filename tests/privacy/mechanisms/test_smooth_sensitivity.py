"""Noise that follows the data: its certificate, its law, the smoothness of its bound, and the printed scale.

Audits and tests of laws fail by chance with probability below 1e-6 each.
"""

from __future__ import annotations

import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import kstest

from dpdist import Budget, Coordinator, Dataset, Ledger, Mean
from dpdist.central import TrimmedMean
from dpdist.errors import BudgetError
from dpdist.estimators.row_maps import features
from dpdist.kernels.order_statistics import WEIGHT_BITS
from dpdist.kernels.truncation import HardClip, SoftTruncation
from dpdist.losses import Squared
from dpdist.privacy.accounting.closed_forms import gdp_epsilon, gdp_mu
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.audit.sensitivity_fuzz import adversarial_rows
from dpdist.privacy.audit.two_point import audit_two_point, two_point_bound
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.smooth_sensitivity import (
    NORMS,
    RATIOS,
    SLOPE,
    SMOOTH_BITS,
    ArsinhNormal,
    _rounded_sinh,
    largest_shift,
    path_length,
)
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.discrete import rounded_gaussian
from dpdist.queries.robust_sums import ColumnSum, TrimmedColumnSum, TrimmedGradientSum
from tests.privacy.exhibits.heavy_tailed import printed_catoni_std, printed_trimmed_scale

SURE = 1 - 1e-6


# --- what it costs ----------------------------------------------------------------------------------------------------


def arsinh_rho(t: float, s: float) -> float:
    """zCDP of ``f + (S / s) sinh(Y)`` with a t-smooth bound S: half of the ``v(s, t)`` of `ArsinhNormal`.

    The supremum over k is found on a grid, 12 points for a factor of 10: as a function of ln k it is so flat that what
    lies between is within 1e-3 of it. Its limits are ``t^2`` for large k, and what k = 0.03 shows for small k.
    """
    return s * s * variance(t / s) / 2


def variance(ratio: float) -> float:
    """``v(1, ratio)``; v is homogeneous of degree 2."""
    best = ratio**2
    for k in (np.geomspace(0.03, 30, 37) / max(1.0, ratio)).tolist():
        # the tilted density peaks within k ratio and falls like a Gaussian
        reach = k * ratio + 14
        y = np.linspace(-reach, reach, int(128 * reach) | 1)
        cosh, tanh = np.cosh(np.minimum(abs(y), 300)), np.tanh(y)
        log_density = -y * y / 2 - math.log(2 * math.pi) / 2 + math.log(y[1] - y[0])
        score = (y + tanh) / cosh + ratio * (y * tanh - 1 / cosh**2)
        for sign in (k, -k):
            best = max(best, 2 * float(logsumexp(log_density + sign * score)) / k**2)
    return best


@pytest.mark.parametrize(
    ("t", "s", "rho"), [(1, 1, 1.7894 / 2), (0.5, 1, 0.9996 / 2), (0, 1, 0.7470 / 2), (0.05, 0.05, 0.2237 * 0.1**2)]
)
def test_the_certificate_has_its_known_values(t, s, rho):
    assert arsinh_rho(t, s) == pytest.approx(rho, rel=3e-4)


def test_the_scale_alone_costs_its_known_value():
    assert 2 * arsinh_rho(1.0, 1e-4) == pytest.approx(1.1367, rel=1e-3)


def test_the_norms_are_above_what_is_found_by_integration_and_hardly():
    """By .2 %: what a grid of k may have missed is a part of it."""
    for ratio, norm in zip(RATIOS, NORMS, strict=True):
        assert 1.0015 < norm / math.sqrt(variance(ratio)) < 1.003
    assert 1.0015 < SLOPE / math.sqrt(2 * arsinh_rho(1.0, 1e-4)) < 1.003


@pytest.mark.parametrize(("shift", "t"), [(0.1023, 0.05), (1.15, 0.5), (3.46, 1.5)])
def test_the_length_of_a_path_is_no_less_than_its_integral(shift, t):
    """Of Gauss and Legendre, at places that the bound does not use."""
    places, weights = np.polynomial.legendre.leggauss(5)
    a = shift * np.exp(-t * (places + 1) / 2)
    exact = float(sum(w * x * math.sqrt(variance(t / x)) for x, w in zip(a, weights, strict=True))) / 2
    assert 1.001 < path_length(shift, t) / exact < 1.01


@pytest.mark.parametrize("strength", [1e-3, 0.1, 0.3, 0.55, 1.0, 5.0])
def test_a_release_costs_at_most_what_is_charged(strength):
    mechanism = ArsinhNormal().at(strength)
    t, s = mechanism.smoothness, mechanism.shift
    assert max(path_length(s, t), s * NORMS[0]) <= strength < 1.001 * max(path_length(s, t), s * NORMS[0])
    assert mechanism.cost.rho == strength**2 / 2 and s > 0.997 * strength


@pytest.mark.parametrize("e", [0.1, 0.3, 1.0])
def test_the_divergence_is_below_the_charge_and_a_shorter_scale_is_caught(e):
    """By integrals over all pairs at the limits; the control has the noise that .8 of the charge would ask for."""
    s = e * largest_shift(e)
    assert 0.8 < renyi_over_order(e / 2, s) / (e**2 / 2) <= 1
    assert renyi_over_order(e / 2, 1.25 * s) > e**2 / 2


def renyi_over_order(t: float, s: float) -> float:
    """``sup D_a / a`` over orders, both directions, and shifts and changes of scale at the limits."""
    y = np.linspace(-70, 70, 28_001)
    log_normal = -y * y / 2 - math.log(2 * math.pi) / 2 + math.log(y[1] - y[0])
    worst = 0.0
    for c, sign in itertools.product((-t, 0.0, t), (-1, 1)):
        # from scale 1 at 0 to scale exp(c) at f, in terms of z = sinh(y)
        f, b = sign * s * min(1.0, math.exp(c)), math.exp(c)
        u = np.arcsinh((np.sinh(y) - f) / b)
        log_ratio = -y * y / 2 + u * u / 2 + np.log(b * np.cosh(u)) - np.log(np.cosh(y))
        for a in (1.001, 1.1, 1.5, 2, 4, 8, 16, 32, 64):
            worst = max(worst, float(logsumexp(log_normal + (a - 1) * log_ratio)) / (a - 1) / a)
    return worst


@pytest.mark.parametrize(("e", "half", "whole"), [(1.0, 0.371, 0.678), (0.3, 0.420, 0.889), (0.1, 0.439, 0.961)])
def test_direct_integrals_stay_below_the_certificate(e, half, whole):
    for s, known in ((e / 2, half), (e, whole)):
        found = renyi_over_order(e / 2, s)
        assert found <= arsinh_rho(e / 2, s)
        assert found / (e**2 / 2) == pytest.approx(known, abs=0.006)


# --- its law ----------------------------------------------------------------------------------------------------------


def test_the_noise_is_that_of_the_formula():
    mechanism = ArsinhNormal(4000).at(8.0)
    units = np.array([[7] * 4000, [2 ** (SMOOTH_BITS + 30)] * 4000], dtype=object)
    released = mechanism.release(units, 1.0, SystemBits())
    s = mechanism.shift
    assert kstest(np.arcsinh((released.astype(float) - 7) * s / 2**30), "norm").pvalue > 1e-7


def test_the_hyperbolic_sine_is_rounded_correctly():
    rng = np.random.default_rng(0)
    for y in (*rng.normal(size=20), 0.0, -9.0, 1e-30):
        normal = int(mpmath.nint(mpmath.ldexp(mpmath.mpf(float(y)), 256)))
        for scale in (Fraction(1, 3), Fraction(2**70, 7), Fraction(1)):
            with mpmath.workprec(2000):
                exact = mpmath.sinh(mpmath.ldexp(normal, -256)) * scale.numerator / scale.denominator
                assert _rounded_sinh(scale, normal) == int(mpmath.nint(exact))


def test_threads_do_not_lower_the_precision_of_each_other():
    """The precision of mpmath is global; whoever leaves the block first sets it back for all others."""
    mechanism = ArsinhNormal(5).at(1.0)
    units = np.array([[0] * 5, [2 ** (SMOOTH_BITS + 60)] * 5], dtype=object)
    seeds = range(40)

    def released(seed: int) -> list[int]:
        return mechanism.release(units, 1.0, StreamBits(np.random.Generator(np.random.Philox(seed)))).tolist()

    expected = [released(seed) for seed in seeds]
    before, interval = mpmath.mp.prec, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = [list(threads.map(released, seeds)) for _ in range(5)]
    finally:
        sys.setswitchinterval(interval)
    assert all(values == expected for values in found)
    assert mpmath.mp.prec == before


def test_seeded_noise_repeats_and_integers_are_refused_otherwise():
    mechanism = ArsinhNormal(2).at(1.0)
    units = np.array([[0, 0], [2**60, 2**60]])
    draws = [mechanism.release(units, 1.0, StreamBits(np.random.Generator(np.random.Philox(1)))) for _ in range(2)]
    assert np.array_equal(*draws) and draws[0].dtype == np.int64
    for wrong in (units[0], units.astype(float), np.zeros((2, 3), dtype=int)):
        with pytest.raises(TypeError, match="shape"):
            mechanism.release(wrong, 1.0, SystemBits())


# --- its bound --------------------------------------------------------------------------------------------------------


def state(query: TrimmedColumnSum, X: np.ndarray) -> tuple[list[int], list[Fraction]]:
    query = replace(query, n_rows=len(X))
    with np.errstate(all="ignore"):
        sums, bounds = query.statistic(query.summarise({"X": X, "y": np.ones(len(X))}, np.ones(X.shape[1]), None))[0]
    return [int(v) for v in sums], [Fraction(int(b), 2**WEIGHT_BITS) for b in bounds]


def growth(t: float) -> Fraction:
    """A rational number that is exp(t) up to a relative 2**-60, from above."""
    with mpmath.workprec(200):
        return Fraction(int(mpmath.ceil(mpmath.ldexp(mpmath.exp(mpmath.mpf(t)), 62))), 2**62)


@pytest.mark.parametrize(
    "query",
    [
        TrimmedColumnSum(1, 1, 5.0, 0.5, 3),
        TrimmedColumnSum(1, 6, 20.0, 0.5, 3),
        TrimmedColumnSum(1, 4, 1e3, 2.0, 3),
        TrimmedGradientSum(1, 3, 30.0, 1.0, Squared(), 3),
    ],
    ids=lambda q: repr(q),
)
def test_the_bound_is_smooth_and_bounds_every_replacement(query):
    rng = np.random.default_rng(1)
    nasty = [np.asarray(x) for _, x in adversarial_rows(3, "float64", rng)]
    largest, attained, factor = growth(query.t), 0.0, 0.0
    for n in (2 * query.n_trimmed + 1, 2 * query.n_trimmed + 2, 30):
        base = rng.standard_t(2, (n, 3))
        states = []
        for x in (*nasty, *rng.standard_t(1, (20, 3))):
            X = base.copy()
            X[n // 2] = x
            states.append(state(query, X))
        for (f, S), (g, R) in itertools.combinations(states, 2):
            for j in range(3):
                assert abs(f[j] - g[j]) <= min(S[j], R[j])
                assert max(S[j], R[j]) <= largest * min(S[j], R[j])
                attained = max(attained, float(abs(f[j] - g[j]) / min(S[j], R[j])))
                factor = max(factor, math.log(max(S[j], R[j]) / min(S[j], R[j])) / query.t)
    assert attained > 0.9 and factor > 0.3, "a bound that nothing comes near would hide a query that does nothing"


def test_the_printed_scale_is_not_smooth():
    """One far entry multiplies the noise: a single release tells whether it is there."""
    rng = np.random.default_rng(2)
    t, m = 0.1, 40
    x = rng.normal(size=1000)
    far = np.append(x[:-1], 1e9)
    assert math.log(printed_trimmed_scale(far, m, t, 2.0) / printed_trimmed_scale(x, m, t, 2.0)) > 100 * t

    def ours(x: np.ndarray) -> tuple[Fraction, int]:
        query = TrimmedColumnSum(x.size, m, 2e9, t, 1)
        return state(query, x[:, None])[1][0]

    assert abs(math.log(ours(far) / ours(x))) <= t * (1 + 1e-9)

    # as a mechanism: the same strength, audited by the size of what is released
    strength = 0.2
    grid = 2.0**-10

    def release(values: np.ndarray, printed: bool) -> float:
        query = TrimmedColumnSum(values.size, m, 2e9, t, 1)
        sums, bounds = state(query, values[:, None])
        bound = printed_trimmed_scale(values, m, t, 2.0) * (values.size - 2 * m) / query.grid if printed else bounds[0]
        units = np.array([[sums[0]], [int(bound * 2**SMOOTH_BITS)]], dtype=object)
        return abs(float(ArsinhNormal().at(strength).release(units, 1.0, SystemBits())[0])) * grid

    caught = audit_two_point(lambda: release(far, True), lambda: release(x, True), 200, 1e-3, SURE)
    passed = audit_two_point(lambda: release(far, False), lambda: release(x, False), 200, 1e-3, SURE)
    claimed = strength**2 / 2 + 2 * math.sqrt(strength**2 / 2 * math.log(1e3))
    assert passed.epsilon_lower <= claimed < 1.0 < caught.epsilon_lower


# --- in a run ---------------------------------------------------------------------------------------------------------

EPSILON, DELTA = 4.0, 1e-2


def test_a_trimmed_mean_is_as_private_as_claimed():
    """Of three rows one moves from end to end: the sum moves by as much as its bound, which is at its largest."""
    model = Mean(TrimmedMean(1.0), epsilon=EPSILON, delta=DELTA)
    (line,), mechanism = model._method_for(3, 1).lines(), model.plan(3, 1)["sum"].mechanism

    def run(value: float) -> float:
        total = line.query.summarise({"X": np.array([[-1.0], [value], [1.0]])}, None, None)
        return float(mechanism.release(line.query.statistic(total)[0], 1.0, SystemBits())[0])

    result = audit_two_point(lambda: run(-1.0), lambda: run(1.0), 1600, DELTA, SURE)
    assert result.epsilon_lower <= EPSILON
    # the bound at 800 runs is 5 of its standard deviations above this, at 1600 it is 9
    assert result.epsilon_lower > 0.3, "an audit that finds nothing proves nothing"


def test_the_scale_of_the_noise_is_nowhere_to_be_seen():
    ledger = Ledger(":memory:")
    dataset = Dataset.from_arrays(X=np.random.default_rng(0).normal(size=(500, 2)))
    model = Mean(TrimmedMean(10.0), epsilon=1.0, delta=1e-5, ledger=ledger).fit(dataset)
    assert math.isnan(model.releases_[0].noise_std)
    record = ledger.history(dataset.id)[0].releases[0]
    assert record.noise_std == math.inf and record.mechanism == "ArsinhNormal"
    assert record.sensitivity == 20.0  # twice the public range, whatever the data


def release(query, mechanism, neighbours=Neighbours.REPLACE_ONE, n_rows=5, **dataset) -> None:
    data = Dataset.from_arrays(X=np.zeros((n_rows, 1)), **dataset)
    with Coordinator(
        data, Budget(1.0, 1e-6), arrays={"X": features}, ledger=Ledger(":memory:"), neighbours=neighbours,
        cluster="threads",
    ) as coordinator:  # fmt: skip
        coordinator.plan([Item("sum", mechanism)])
        coordinator.release(query, coordinator._plan["sum"])


@pytest.mark.parametrize(
    ("query", "mechanism", "neighbours"),
    [
        (TrimmedColumnSum(5, 1, 1.0, 1e-3, 1), Gaussian(), Neighbours.REPLACE_ONE),
        (TrimmedColumnSum(5, 1, 1.0, 9.0, 1), ArsinhNormal(), Neighbours.REPLACE_ONE),  # a bound that is too rough
        (ColumnSum(HardClip(1.0), 1), ArsinhNormal(), Neighbours.REPLACE_ONE),
        (TrimmedColumnSum(5, 1, 1.0, 1e-3, 1), ArsinhNormal(), Neighbours.ADD_OR_REMOVE_ONE),
        (TrimmedColumnSum(6, 1, 1.0, 1e-3, 1), ArsinhNormal(), Neighbours.REPLACE_ONE),  # not the number of rows
    ],
)
def test_what_the_proof_does_not_cover_is_refused(query, mechanism, neighbours):
    with pytest.raises(BudgetError):
        release(query, mechanism, neighbours)


@pytest.mark.parametrize("mechanism", [Gaussian(), ArsinhNormal()])
@pytest.mark.parametrize(
    ("neighbours", "owners"),
    [
        (Neighbours.REPLACE_ONE, {"unit": "patient", "max_rows_per_unit": 3}),
        (Neighbours.ADD_OR_REMOVE_ONE, {}),
    ],
)
def test_a_number_of_rows_that_is_private_is_in_no_refusal(mechanism, neighbours, owners):
    """Neither is whether somebody has guessed it."""
    said = set()
    for n_rows in (4711, 4712):
        with pytest.raises(BudgetError) as refused:
            release(TrimmedColumnSum(4711, 1, 1.0, 1e-3, 1), mechanism, neighbours, n_rows, **owners)
        said.add(str(refused.value))
    assert len(said) == 1 and "471" not in said.pop()


def test_what_it_covers_is_not():
    release(TrimmedColumnSum(5, 1, 1.0, 1e-3, 1), ArsinhNormal())


# --- truncated means --------------------------------------------------------------------------------------------------


def test_the_printed_noise_of_truncated_means_is_caught():
    """Two rows at the bound, of either sign: true epsilon 2.16 where 1 is claimed, 0.61 where 0.1 is."""
    n, scale = 1000, 2.0
    sensitivity = 2 * SoftTruncation(scale).bound / n
    for epsilon, true in ((1.0, 2.16), (0.1, 0.61)):
        mu = sensitivity / printed_catoni_std(scale, n, epsilon, 1e-5, 1)
        assert gdp_epsilon(mu, 1e-5) == pytest.approx(true, abs=0.01)

    # the bound at 10,000 draws is 2.5 of its standard deviations above what is claimed, at 40,000 it is 13
    epsilon, delta, runs = 0.5, 1e-3, 40_000
    query = ColumnSum(SoftTruncation(scale), 1)
    sums = [int(query.summarise({"X": np.array([[x]])}, None, None)[0]) for x in (-1e300, 1e300)]

    def audit(std: float) -> float:
        noise = [rounded_gaussian(Fraction(std * n / query.grid), runs, SystemBits()) for _ in range(2)]
        scores = [(s + z).astype(float) for s, z in zip(sums, noise, strict=True)]
        return two_point_bound(scores[0], scores[1], delta, SURE).mu_lower

    claimed = gdp_mu(epsilon, delta)
    assert audit(sensitivity / claimed) <= claimed
    assert audit(printed_catoni_std(scale, n, epsilon, delta, 1)) > claimed
