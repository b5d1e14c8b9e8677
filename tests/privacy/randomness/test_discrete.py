"""Exact samplers: decisions at the boundary with scripted bits, laws with chi-square tests on fixed streams.

Statistical tests draw from fixed streams, so they are deterministic; the threshold 1e-7 is the probability that a
right sampler would fail for a freshly chosen stream. Tests with the system's bits or OpenDP fail with that probability.
"""

import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from dpdist.privacy.randomness import discrete
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.discrete import (
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    dyadic_above,
    dyadic_below,
    rounded_gaussian,
    rounded_laplace,
    uniform_below,
)
from dpdist.privacy.randomness.rounding import nearest
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed

ALPHA = 1e-7
N = 100_000
SAMPLERS = [discrete_laplace, rounded_laplace, discrete_gaussian, rounded_gaussian]


def bits(name: str, **params: object) -> StreamBits:
    return StreamBits(Stream(run_key_from_seed(20), name, **params))


class Scripted:
    """A source that hands out given words and counts them."""

    simulated = True

    def __init__(self, *words: int) -> None:
        self.script = list(words)

    def words(self, n: int) -> np.ndarray:
        taken, self.script = self.script[:n], self.script[n:]
        assert len(taken) == n, "the sampler asked for more bits than expected"
        return np.array(taken, dtype=np.uint64)


def pmf(sampler: Callable, scale: float, x: np.ndarray) -> np.ndarray:
    """The exact law, in double precision (relative error of the bins used: below 1e-10)."""
    k = np.abs(x).astype(float)
    if sampler is discrete_laplace:
        return np.exp(-k / scale) * math.tanh(0.5 / scale)
    if sampler is discrete_gaussian:
        support = np.arange(-int(40 * scale) - 40, int(40 * scale) + 41)
        return np.exp(-(k**2) / (2 * scale**2)) / np.exp(-(support**2) / (2 * scale**2)).sum()
    law = stats.norm if sampler is rounded_gaussian else stats.laplace
    upper = law.sf((k - 0.5) / scale) - law.sf((k + 0.5) / scale)
    return np.where(k == 0, 1 - 2 * law.sf(0.5 / scale), upper)


def chi_square_p(draws: np.ndarray, law: Callable[[np.ndarray], np.ndarray]) -> float:
    """Cells of at least 25 expected draws, both tails pooled into one cell each."""
    reach = 0
    while draws.size * law(np.array([reach + 1]))[0] >= 25:
        reach += 1
    inner = np.arange(-reach, reach + 1)
    p = law(inner)
    tail = max(1 - p.sum(), 0) / 2
    clipped = np.clip(draws, -reach - 1, reach + 1).astype(np.int64)
    observed = np.bincount(clipped + reach + 1, minlength=2 * reach + 3).astype(float)
    expected = draws.size * np.concatenate([[tail], p, [tail]])
    if expected[0] < 10:  # pool thin tails with their neighbours
        observed = np.concatenate([[observed[:2].sum()], observed[2:-2], [observed[-2:].sum()]])
        expected = np.concatenate([[expected[:2].sum()], expected[2:-2], [expected[-2:].sum()]])
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), observed.size - 1))


def two_sample_p(a: np.ndarray, b: np.ndarray) -> float:
    values, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
    table = np.zeros((2, values.size))
    np.add.at(table, (np.repeat([0, 1], [a.size, b.size]), codes), 1)
    common = table.sum(axis=0) >= 25
    table = np.column_stack([table[:, common], table[:, ~common].sum(axis=1)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


# --- coins ------------------------------------------------------------------------------------------------------------


def test_exp_in_doubles_stays_within_a_fifth_of_its_margin() -> None:
    t = np.concatenate([np.geomspace(1e-300, 700, 1500), np.linspace(0, 64, 1500)])
    with mpmath.workprec(120):
        for double, e in zip(t, np.exp(-t), strict=True):
            error = abs(mpmath.exp(-mpmath.mpf(double)) - mpmath.mpf(e))
            assert error <= 1e-14 * (1 + double) * e / 5 + 2.0**-1074


def test_exponents_in_doubles_stay_within_the_assumed_error() -> None:
    rng = np.random.default_rng(1)
    num, den = rng.integers(0, 2**62, 2000), rng.integers(2**50, 2**62, 2000)
    for quotient, p, q in zip(num / den, num.tolist(), den.tolist(), strict=True):
        assert abs(Fraction(quotient) - Fraction(p, q)) <= Fraction(1, 10**15) * (1 + Fraction(p, q))


def test_few_exponents_are_looked_up_with_the_same_outcome() -> None:
    """Coins of one denominator are those of many, word for word."""
    num = np.random.default_rng(0).integers(0, 64, 50_000)
    for den in (1, 2, 3, 64, 1000, 2**61):
        looked_up = bernoulli_exp(num, den, bits("few", den=den))
        computed = bernoulli_exp(num, np.full(num.size, den), bits("few", den=den))
        assert (looked_up == computed).all()
        assert looked_up.any() and (den > 1000 or not looked_up.all())


@pytest.mark.parametrize(
    "num, den", [(1, 1), (1, 3), (7, 2), (30, 1), (123456789, 10**8), (10**40 + 7, 10**40), (0, 5)]
)
def test_bernoulli_exp_decides_exactly_at_the_boundary(num: int, den: int) -> None:
    """Scripted digits around the true digits of exp(-num/den): 64 of them, then 64 more when those tie."""
    with mpmath.workprec(400):
        e = mpmath.exp(-mpmath.mpf(num) / den)
        first = min(int(mpmath.floor(e * mpmath.mpf(2) ** 64)), 2**64 - 1)
        second = min(int(mpmath.floor((e * mpmath.mpf(2) ** 64 - first) * mpmath.mpf(2) ** 64)), 2**64 - 1)

    def coin(*words: int) -> bool:
        source = Scripted(*words)
        result = bool(bernoulli_exp(np.array([num], dtype=object), den, source)[0])
        assert not source.script, "the decision did not need all of the scripted digits"
        return result

    assert coin(first - 1) is True
    assert coin(first, second - 1) is True
    if first < 2**64 - 1:
        assert coin(first + 1) is False
        assert coin(first, second + 1) is False


def test_exp_enclosure_contains_the_value_and_is_narrow() -> None:
    cases = [Fraction(0), Fraction(1, 3), Fraction(10**30, 7), Fraction(2**62), Fraction(22, 7), Fraction(1, 2**200)]
    for t in cases:
        for length in (64, 128, 512):
            low, high = discrete._exp_enclosure(t, length)
            with mpmath.workprec(1200):
                e = mpmath.exp(-mpmath.mpf(t.numerator) / t.denominator)
                assert mpmath.mpf(low.numerator) / low.denominator <= e <= mpmath.mpf(high.numerator) / high.denominator
            assert high - low <= Fraction(1, 2 ** (length + 30))


def test_enclosures_in_threads_are_those_of_one_thread() -> None:
    """Each has a precision of its own, which others must not set back."""
    cases = [(Fraction(i, 7), length) for i in range(1, 6) for length in (64, 512, 2048)]
    expected = [discrete._exp_enclosure(*case) for case in cases]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda case: discrete._exp_enclosure(*case), cases * 5))
    finally:
        sys.setswitchinterval(interval)
    assert found == expected * 5


@pytest.mark.parametrize(
    "num, den, p", [(1, 2, math.exp(-0.5)), (2**90 + 1, 2**89, math.exp(-2)), (7, 1, math.exp(-7))]
)
def test_frequencies_of_coins(num: int, den: int, p: float) -> None:
    heads = int(bernoulli_exp(np.full(N, num, dtype=object), den, bits("coin", num=num, den=den)).sum())
    assert stats.binomtest(heads, N, p).pvalue > ALPHA


def test_coins_are_elementwise() -> None:
    num = np.array([[0, 10**6, 0], [10**6, 0, 10**6]])
    np.testing.assert_array_equal(bernoulli_exp(num, 1, SystemBits()), num == 0)  # exp(-1e6) never happens
    assert bernoulli_exp(np.array([2**62 - 1, 10**400], dtype=object), 1, SystemBits()).tolist() == [False, False]
    assert bernoulli_exp(np.zeros(0, dtype=np.int64), 3, SystemBits()).shape == (0,)
    with pytest.raises(TypeError, match="integers"):
        bernoulli_exp(np.array([0.5]), 1, SystemBits())


@pytest.mark.parametrize("n", [1, 2, 3, 37, 64, 2**62, 2**64, 3 * 2**62 + 1, 10**40])
def test_uniform_below(n: int) -> None:
    draws = uniform_below(n, 20_000, bits("uniform", n=n))
    assert draws.min() >= 0 and draws.max() < n
    assert draws.dtype == (np.int64 if n <= 2**62 else object)
    cells = n if n <= 64 else 37
    observed = np.bincount((draws.astype(object) * cells // n).astype(np.int64), minlength=cells)
    assert stats.chisquare(observed).pvalue > ALPHA if cells > 1 else not draws.any()
    if n > 64:  # the low digits too
        assert stats.chisquare(np.bincount((draws % 16).astype(np.int64), minlength=16)).pvalue > ALPHA


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_small_scales_follow_the_exact_law(sampler: Callable, scale: float) -> None:
    draws = sampler(scale, N, bits("law", sampler=sampler.__name__, scale=scale))
    assert chi_square_p(draws, lambda x: pmf(sampler, scale, x)) > ALPHA


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_control_a_scale_off_by_ten_percent_is_rejected(sampler: Callable) -> None:
    for scale in (0.5, 3.0, 10.0):
        for wrong in (0.9, 1.1):
            draws = sampler(wrong * scale, N, bits("control", sampler=sampler.__name__, scale=scale, wrong=wrong))
            assert chi_square_p(draws, lambda x, scale=scale: pmf(sampler, scale, x)) < ALPHA


def test_control_the_discrete_and_the_rounded_law_are_told_apart() -> None:
    for one, other in ((discrete_gaussian, rounded_gaussian), (discrete_laplace, rounded_laplace)):
        draws = one(0.5, N, bits("confused", sampler=one.__name__))
        assert chi_square_p(draws, lambda x, other=other: pmf(other, 0.5, x)) < ALPHA


@pytest.mark.parametrize("scale", [2.0**30, 1.37 * 2.0**38, 2.0**45, 2.0**60])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_large_scales_follow_the_continuous_law(sampler: Callable, scale: float) -> None:
    """The distance between the two laws is below 1/scale, far below what 50 000 draws resolve."""
    draws = sampler(scale, 50_000, bits("large", sampler=sampler.__name__, scale=scale))
    gaussian = sampler in (discrete_gaussian, rounded_gaussian)
    law = stats.norm if gaussian else stats.laplace
    assert draws.dtype == (np.int64 if (40 if gaussian else 512) * scale < 2**62 else object)
    real = draws.astype(float) / scale
    assert stats.kstest(real, law.cdf).pvalue > ALPHA
    assert stats.kstest(1.1 * real, law.cdf).pvalue < ALPHA  # control: a scale off by 10 %
    # The low digits carry no pattern: uniform modulo 16.
    assert stats.chisquare(np.bincount((draws % 16).astype(np.int64), minlength=16)).pvalue > ALPHA


def test_tails_of_the_gaussian_are_there() -> None:
    draws = rounded_gaussian(1000, 1_000_000, bits("tails"))
    for z in (3.0, 4.0):
        assert stats.binomtest(int((np.abs(draws) > 1000 * z).sum()), draws.size, 2 * stats.norm.sf(z)).pvalue > 1e-3


def test_gaussian_is_rounded_exactly_where_digits_run_out() -> None:
    """Force the rare branch: digits that straddle a half-integer ask for more until one side is certain."""
    # s (k + x) = 3 (0 + x) with x just around 1/2: 1.5 is the boundary between 1 and 2.
    below, above = 2**63 - 1, 2**63
    s = Fraction(3)
    assert nearest(s, 0, below, 64) == (1, True)
    assert nearest(s, 0, above, 64) == (2, True)
    third = Fraction(1, 3) * (1 + Fraction(1, 10**9))
    x = (Fraction(1, 2) / third) - 1  # (1 + x) third = 1/2, an infinite binary expansion
    digits = math.floor(x * 2**64)
    assert nearest(third, 1, digits, 64)[1] is False
    for word, expected in ((0, 0), (2**64 - 1, 1)):
        assert discrete._nearest_exactly(third, 1, discrete.Digits(digits), Scripted(word)) == expected


def test_gaussian_acceptance_is_decided_exactly_at_the_boundary() -> None:
    k, x = 2, Fraction(1, 3)  # the digits of 1/3 repeat, so scripted words can follow them
    third = (2**64 - 1) // 3
    with mpmath.workprec(300):
        e = mpmath.exp(-(mpmath.mpf(k * (k - 1)) / 2 + mpmath.mpf(1) / 3 * (k + mpmath.mpf(1) / 6)))
        first = int(mpmath.floor(e * 2**64))
        second = int(mpmath.floor((e * 2**64 - first) * 2**64))
    assert x == Fraction(third, 2**64) + Fraction(1, 3 * 2**64)

    def accept(v: int, *words: int) -> bool:
        source = Scripted(*words)
        result = discrete._accept_normal(k, discrete.Digits(third), discrete.Digits(v), source)
        assert not source.script
        return result

    assert accept(first - 5) is True
    assert accept(first + 5) is False
    # v is extended first, then x
    assert accept(first, second - 5, third) is True
    assert accept(first, second + 5, third) is False


def test_the_rare_branches_leave_the_law_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a margin a billion times wider one decision in 1e4 and more takes the exact branch."""
    monkeypatch.setattr(discrete, "_EXP_MARGIN", 1e-3)
    for sampler in SAMPLERS:
        draws = sampler(3.0, 20_000, bits("rare", sampler=sampler.__name__))
        assert chi_square_p(draws, lambda x, sampler=sampler: pmf(sampler, 3.0, x)) > ALPHA


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_system_bits_run_the_same_code(sampler: Callable) -> None:
    draws = sampler(Fraction(7, 3), 50_000, SystemBits())
    assert chi_square_p(draws, lambda x: pmf(sampler, 7 / 3, x)) > ALPHA


@pytest.mark.parametrize("scale", [0.7, 4.0])
def test_agrees_with_opendp(scale: float) -> None:
    """Two samples of independent implementations of the same discrete laws."""
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i32"))
    n = 60_000
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T="i32"), scale=scale)
    gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    for sampler, measurement in ((discrete_laplace, laplace), (discrete_gaussian, gaussian)):
        theirs = np.array(measurement([0] * n))
        assert two_sample_p(sampler(scale, n, SystemBits()), theirs) > ALPHA
        assert two_sample_p(sampler(1.1 * scale, n, SystemBits()), theirs) < 1e-3  # control


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_shapes_and_arguments(sampler: Callable) -> None:
    assert sampler(2.0, (3, 4), SystemBits()).shape == (3, 4)
    assert sampler(2.0, (), SystemBits()).shape == ()
    assert sampler(2.0, 0, SystemBits()).shape == (0,)
    assert sampler(np.float64(2.0), 2, SystemBits()).dtype == np.int64
    assert sampler(2.0**60, (2, 1), SystemBits()).dtype == object
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="scale"):
            sampler(scale, 3, SystemBits())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_odd_scale_is_taken_as_the_rational_that_it_is(sampler: Callable) -> None:
    draws = sampler(Fraction(10**30 + 1, 3 * 10**29), 30_000, bits("odd", sampler=sampler.__name__))
    assert chi_square_p(draws, lambda x: pmf(sampler, 10 / 3, x)) > ALPHA


def test_dyadic_rounding() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        p, q, power = (int(rng.integers(low, high)) for low, high in ((1, 2**62), (1, 2**62), (-30, 30)))
        value = Fraction(p, q) * Fraction(10) ** power
        above, below = dyadic_above(value), dyadic_below(value)
        assert below <= value <= above
        assert above - value <= value / 2**40 and value - below <= value / 2**40
        for number in (above, below):
            assert number.denominator & (number.denominator - 1) == 0
            odd = number.numerator // (number.numerator & -number.numerator)
            assert odd.bit_length() <= 42
    assert dyadic_above(Fraction(3)) == dyadic_below(Fraction(3)) == 3
