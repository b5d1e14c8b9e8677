"""Exact samplers on the integers: no rounding error, hence no floating-point attack.

Noise computed in floating point has holes that depend on the value it is added to (Mironov 2012). Here every law is
exact: decisions compare integers, or compare a uniform number ``V``, of which only as many binary digits are drawn as
the decision needs, with an enclosure of ``exp(-t)``. The enclosure is first a double with a proved margin; the few
comparisons it leaves open (about one in 1e13) are repeated with more digits of ``V`` and of ``exp(-t)`` until they
are decided, so the margin affects the running time and never the law.

Arrays are int64 where that is safe and hold Python integers (dtype object) otherwise. A source of bits
(`dpdist.privacy.randomness.bits`) is an argument, so simulations and releases run the same code.

>>> from dpdist.privacy.randomness.bits import SystemBits
>>> noise = rounded_gaussian(2.0**38, 1000, SystemBits())
>>> noise.dtype, bool(abs(noise).max() < 40 * 2**38)
(dtype('int64'), True)
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.rounding import nearest, nearest_of_words

Integers = NDArray[Any]
"""int64, or dtype object holding Python integers."""

Scale = Fraction | float
"""A positive number, taken as the exact rational that it is."""

Size = int | tuple[int, ...]

MPMATH = threading.Lock()
"""Held where mpmath computes: it keeps constants such as ln 2 for all threads, in two steps, so that one that comes in
between would work with half of them for ever."""

_SAFE = 2**62  # below it, the sum of two int64 cannot overflow
_EXP_MARGIN = 1e-14  # exp of a double t with relative error 1e-15 is within this times (1 + t), at least 5x
_FAR = 1000.0  # exp(-1000) is 0 in doubles
_TWO = Fraction(2)
_FEW = 63  # exponents of at most that many parts are looked up


# --- uniform integers, coins ------------------------------------------------------------------------------------------


def uniform_below(n: int, size: Size, bits: Bits) -> Integers:
    """Uniform integers in {0, ..., n-1}; ``n`` may be arbitrarily large."""
    if n < 1:
        raise ValueError("uniform_below needs n >= 1: there is no integer in {0, ..., n-1} otherwise")
    length = (n - 1).bit_length()
    n_words = -(-length // 64)

    def draw(m: int) -> Integers:
        words = bits.words(m * n_words).reshape(m, n_words)
        if length <= 62:
            value: Integers = (words[:, 0] >> np.uint64(64 - length)).astype(np.int64)
        else:
            value = np.zeros(m, dtype=object)
            for column in words.T:
                value = (value << 64) | column.astype(object)
            value >>= 64 * n_words - length
        return value[value < n]

    values = np.zeros(_count(size), np.int64) if n == 1 else _collect(_count(size), n / 2**length, draw)
    return values.reshape(size)


def bernoulli_exp(num: Any, den: Any, bits: Bits) -> NDArray[np.bool_]:
    """Independent coins with ``P(True) = exp(-num / den)`` exactly, elementwise, integers ``num >= 0``, ``den > 0``."""
    few = _few(num, den)
    if few is None:
        num, den = _pair(num, den)
        den = den.ravel()
    shape, num = num.shape, num.ravel()
    words = bits.words(num.size)
    result: NDArray[np.bool_]
    if few is not None:
        below, above = few
        result = words < below[num]
        open_ = ~result & (words <= above[num])
    else:
        capped = np.minimum(num, den * int(_FAR)) if num.dtype == object else num  # Python refuses 1e308 as a quotient
        result, open_ = _below_exp(words, (capped / den).astype(np.float64))
    for i in open_.nonzero()[0]:
        result[i] = _exp_coin(int(words[i]), Fraction(int(num[i]), den if few else int(den[i])), bits)
    return np.asarray(result.reshape(shape), dtype=np.bool_)


# --- Laplace laws -----------------------------------------------------------------------------------------------------


def discrete_laplace(scale: Scale, size: Size, bits: Bits) -> Integers:
    """Discrete Laplace noise: ``P(x)`` proportional to ``exp(-|x| / scale)`` on the integers.

    Added to integers with l1-sensitivity ``D`` it is pure ``D/scale``-DP. Sampler: Canonne, Kamath and Steinke (2020),
    sign and geometric magnitude, with (-, 0) rejected.
    """
    scale = _rational(scale)

    def draw(m: int) -> Integers:
        value = _geometric(scale, m, bits)
        negative = _signs(m, bits)
        keep = ~(negative & np.asarray(value == 0, dtype=np.bool_))
        return np.where(negative, -value, value)[keep]

    return _narrow(_collect(_count(size), 0.5, draw), 512 * scale).reshape(size)


def rounded_laplace(scale: Scale, size: Size, bits: Bits) -> Integers:
    """The law of ``round(L)``, ``L`` Laplace of that scale.

    For an integer ``k``, ``k + round(L) = round(k + L)``: adding this noise to integers is post-processing of the
    continuous Laplace mechanism, so every accounting of that one (pure epsilon, RDP, PLD) holds exactly.

    ``|round(L)|`` is 0 with probability ``1 - exp(-1/(2 scale))``, else 1 plus a geometric with ratio
    ``exp(-1/scale)``.
    """
    scale = _rational(scale)
    n = _count(size)
    nonzero = bernoulli_exp(np.full(n, scale.denominator), 2 * scale.numerator, bits)
    value = np.where(nonzero, 1 + _geometric(scale, n, bits), 0)
    return _narrow(np.where(_signs(n, bits), -value, value), 512 * scale).reshape(size)


def _geometric(scale: Fraction, n: int, bits: Bits) -> Integers:
    """``P(g)`` proportional to ``exp(-g / scale)``, g = 0, 1, ... (Canonne, Kamath and Steinke 2020, Algorithm 2)."""
    p, q = scale.numerator, scale.denominator

    def draw(m: int) -> Integers:
        low = uniform_below(p, m, bits)
        return low[bernoulli_exp(low, p, bits)]

    low = _collect(n, 1 - math.exp(-1), draw)
    high = np.zeros(n, dtype=np.int64)
    alive = np.arange(n)
    while alive.size:
        alive = alive[bernoulli_exp(np.ones(alive.size, dtype=np.int64), 1, bits)]
        high[alive] += 1
    if p * (int(high.max(initial=0)) + 1) >= _SAFE:
        low, high = low.astype(object), high.astype(object)
    return (low + p * high) // q


# --- Gaussian laws ----------------------------------------------------------------------------------------------------


def discrete_gaussian(sigma: Scale, size: Size, bits: Bits) -> Integers:
    """Discrete Gaussian noise: ``P(x)`` proportional to ``exp(-x**2 / (2 sigma**2))`` on the integers.

    Added to integers with l2-sensitivity ``D`` it is ``D**2/(2 sigma**2)``-zCDP; the GDP formula of the continuous
    Gaussian is NOT a bound for it (use `rounded_gaussian`). Sampler: Canonne, Kamath and Steinke (2020), rejection
    from the discrete Laplace of integer scale ``floor(sigma) + 1``.
    """
    sigma = _rational(sigma)
    variance = sigma * sigma
    a, b = variance.numerator, variance.denominator
    t = math.floor(sigma) + 1

    def draw(m: int) -> Integers:
        value = discrete_laplace(t, m, bits)
        size_ = abs(value)
        # accept with exp(-(|y| - a/(b t))**2 b / (2 a)) = exp(-(|y| b t - a)**2 / (2 a b t**2))
        if max((int(size_.max(initial=0)) * b * t + a) ** 2, 2 * a * b * t * t) >= _SAFE:
            size_ = size_.astype(object)
        return value[bernoulli_exp((size_ * (b * t) - a) ** 2, 2 * a * b * t * t, bits)]

    return _narrow(_collect(_count(size), 0.6, draw), 40 * sigma).reshape(size)


def rounded_gaussian(s: Scale, size: Size, bits: Bits) -> Integers:
    """The law of ``round(N)``, ``N`` Gaussian with mean 0 and standard deviation ``s``.

    For an integer ``k``, ``k + round(N) = round(k + N)``: adding this noise to integers is post-processing of the
    continuous Gaussian mechanism, so its accounting is exact: integers with l2-sensitivity ``D`` are released with
    ``D/s``-GDP, in any number of coordinates and adaptive rounds.

    ``|N|/s = k + x`` is drawn exactly, digit by digit, by the rejection scheme of Karney (2016): ``k`` is geometric
    with ratio ``exp(-1/2)``, ``x`` uniform in [0, 1), accepted with probability ``exp(-k(k-1)/2 - x(2k+x)/2)``. Then
    ``s (k + x)`` is rounded in integers, with further digits of ``x`` as long as they could matter. The cost does not
    depend on ``s``. int64 if ``40 s < 2**62``, Python integers otherwise.
    """
    s = _rational(s)

    def draw(m: int) -> Integers:
        whole = _geometric(_TWO, m, bits)
        digits, words = bits.words(2 * m).reshape(2, m)
        x = digits.astype(np.float64) * 2.0**-64
        accept, open_ = _below_exp(words, whole * (whole - 1) / 2 + x * (whole + x / 2))
        longer: dict[int, Digits] = {}
        for i in map(int, np.flatnonzero(open_)):
            longer[i] = Digits(int(digits[i]))
            accept[i] = _accept_normal(int(whole[i]), longer[i], Digits(int(words[i])), bits)
        chosen = np.flatnonzero(accept)
        k, first, second = whole[chosen], digits[chosen], bits.words(chosen.size)
        value: Integers
        value, decided = nearest_of_words(s, k, first)
        left = np.flatnonzero(~decided | open_[chosen])
        if left.size == 0:
            return value
        fraction = (first[left].astype(object) << 64) | second[left].astype(object)
        exact, decided = nearest(s, k[left].astype(object), fraction, 128)
        for i, j in enumerate(left):
            if open_[chosen[j]] or not decided[i]:
                known = longer.get(int(chosen[j]), Digits(int(fraction[i]), 128))
                exact[i] = _nearest_exactly(s, int(k[j]), known, bits)
        value = value if abs(exact).max() < _SAFE else value.astype(object)
        value[left] = exact
        return value

    value = _narrow(_collect(_count(size), 0.49, draw), 40 * s)
    return np.where(_signs(value.size, bits), -value, value).reshape(size)


def _accept_normal(k: int, x: Digits, v: Digits, bits: Bits) -> bool:
    """Karney's acceptance step, decided with as many digits of ``x`` and ``v`` as it takes."""

    def exponent() -> tuple[Fraction, Fraction]:
        low, high = (Fraction(k * (k - 1), 2) + end * (2 * k + end) / 2 for end in (x.low, x.high))
        return low, high

    return below_exp_exactly(v, exponent, bits, x)


def _nearest_exactly(s: Fraction, k: int, x: Digits, bits: Bits) -> int:
    while True:
        value, decided = nearest(s, k, x.digits, x.length)
        if decided:
            return int(value)
        x.extend(bits)


# --- comparing a uniform number with exp(-t) --------------------------------------------------------------------------


class Digits:
    """A uniform number in [0, 1), of which the first ``length`` binary digits have been drawn."""

    def __init__(self, digits: int, length: int = 64) -> None:
        self.digits, self.length = digits, length

    def extend(self, bits: Bits) -> None:
        self.digits, self.length = (self.digits << 64) | int(bits.words(1)[0]), self.length + 64

    @property
    def low(self) -> Fraction:
        return Fraction(self.digits, 1 << self.length)

    @property
    def high(self) -> Fraction:
        return Fraction(self.digits + 1, 1 << self.length)


def _below_exp(words: NDArray[np.uint64], t: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether ``V < exp(-t)`` for the uniform ``V`` that begin with these 64 digits, and where that stays open.

    ``t`` may be off by ``1e-15 (1 + t)``, and ``exp`` and the conversion of the words by a few units in the last
    place; the margin covers five times their sum.
    """
    t = np.minimum(t, _FAR)
    v, e = words.astype(np.float64) * 2.0**-64, np.exp(-t)
    margin = _EXP_MARGIN * (1 + t) * e + 2.0**-63
    return v < e - margin, np.abs(v - e) <= margin


def _few(num: Any, den: Any) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
    """`_edges` where exponents are few multiples of one number, which are looked up instead of computed."""
    single = isinstance(den, int) and den < _SAFE
    small = isinstance(num, np.ndarray) and num.dtype == np.int64 and num.max(initial=0) <= _FEW
    return _edges(den) if single and small else None


@functools.lru_cache(256)
def _edges(den: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """For ``t = 0, 1/den, ..., 63/den`` the words below which ``V < exp(-t)``, and those above which it is not."""
    t = np.minimum(np.arange(_FEW + 1) / den, _FAR)
    e = np.exp(-t)
    margin = _EXP_MARGIN * (1 + t) * e + 2.0**-63
    below = [max(0, math.floor(Fraction(edge) * 2**64)) for edge in e - margin]
    above = [min(2**64 - 1, math.ceil(Fraction(edge) * 2**64)) for edge in e + margin]
    return np.array(below, np.uint64), np.array(above, np.uint64)


def below_exp_exactly(
    v: Digits, exponent: Callable[[], tuple[Fraction, Fraction]], bits: Bits, *others: Digits
) -> bool:
    """Whether ``v < exp(-t)``; ``exponent()`` encloses ``t``, more and more narrowly as ``others`` get longer."""
    while True:
        t_low, t_high = exponent()
        if v.high <= _exp_enclosure(t_high, v.length)[0]:
            return True
        if v.low >= _exp_enclosure(t_low, v.length)[1]:
            return False
        for digits in (v, *others):
            digits.extend(bits)


def _exp_coin(word: int, t: Fraction, bits: Bits) -> bool:
    """Whether the uniform number that begins with this word is below ``exp(-t)``."""
    return below_exp_exactly(Digits(word), lambda: (t, t), bits)


def _exp_enclosure(t: Fraction, length: int) -> tuple[Fraction, Fraction]:
    """Two rationals around ``exp(-t)``, ``t >= 0``, less than 2**-(length + 30) apart."""
    context = mpmath.MPContext()  # a context of its own: the global precision is shared between threads
    # t is represented with relative error 2**-prec, so exp(-t) <= 1 is off by at most 2**-(length + 38).
    context.prec = length + 40 + math.floor(t).bit_length()
    with MPMATH:
        value = context.exp(-context.mpf(t.numerator) / t.denominator)
    middle = int(context.floor(context.ldexp(value, length + 32)))
    return Fraction(middle - 1, 1 << (length + 32)), Fraction(middle + 2, 1 << (length + 32))


# --- small helpers ----------------------------------------------------------------------------------------------------


def dyadic_above(value: Fraction) -> Fraction:
    """A dyadic number in [value, value (1 + 2**-40)], for a scale: rounded up it keeps the guarantee.

    At most 42 significant bits keep the integers of the samplers small.
    """
    shift = _dyadic_shift(value)
    return math.ceil(value * shift) / shift


def dyadic_below(value: Fraction) -> Fraction:
    """A dyadic number in [value (1 - 2**-40), value], for a rate: rounded down it keeps the guarantee."""
    shift = _dyadic_shift(value)
    return math.floor(value * shift) / shift


def _dyadic_shift(value: Fraction) -> Fraction:
    """A power of two that takes ``value > 0`` between 2**40 and 2**42."""
    return Fraction(2) ** (41 - value.numerator.bit_length() + value.denominator.bit_length())


def _rational(scale: Scale) -> Fraction:
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError("the scale of a noise must be positive and finite")
    return scale if type(scale) is Fraction else Fraction(scale)


def _pair(num: Any, den: Any) -> tuple[Integers, Integers]:
    """Both as arrays of one shape, both int64 below 2**62 or both of Python integers."""
    arrays = [np.asarray(value) for value in (num, den)]
    if any(a.dtype.kind not in "iuO" for a in arrays):
        raise TypeError("numerators and denominators must be integers")
    small = all(a.dtype.kind == "i" and int(a.max(initial=0)) < _SAFE for a in arrays)
    num, den = np.broadcast_arrays(*(a.astype(np.int64 if small else object) for a in arrays))
    return num, den


def _collect(n: int, rate: float, draw: Callable[[int], Integers]) -> Integers:
    """The first ``n`` accepted proposals; ``draw(m)`` makes ``m`` of them and returns those accepted, in order."""
    parts, missing = [np.zeros(0, dtype=np.int64)], n
    while missing > 0:
        parts.append(draw(int(1.02 * missing / rate) + 16))
        missing -= parts[-1].size
    return np.concatenate(parts)[:n]


def _signs(n: int, bits: Bits) -> NDArray[np.bool_]:
    return np.unpackbits(bits.words(-(-n // 64)).view(np.uint8), count=n).astype(np.bool_)


def _narrow(values: Integers, reach: Fraction) -> Integers:
    """int64 if every draw and ``reach``, which no draw exceeds in practice, are below 2**62; else Python integers."""
    if reach < _SAFE and (values.dtype != object or not values.size or abs(values).max() < _SAFE):
        return values.astype(np.int64)
    return values.astype(object)


def _count(size: Size) -> int:
    return size if isinstance(size, int) else math.prod(size)
