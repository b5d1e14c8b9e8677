"""The smoothed truncation as a table of polynomials.

``h_beta(u) = E phi(u (1 + Z / sqrt(beta)))``, Z standard normal, has a closed form that subtracts cubes: in float64 at
``u = 1e6`` it is off by a hundred times the bound of ``h_beta``. For a fixed beta it is a function of ``|u|`` alone, so
it is approximated once:

- for ``|u| < a``, ``a = sqrt(2) / (1 + 6.5 / sqrt(beta))``, phi is a cubic wherever Z has any mass, so
  ``h_beta(u) = u - (1 + 3/beta) u**3 / 6`` up to 5e-14;
- beyond, ``h_beta`` is an entire function of ``1 / u**2`` that exceeds this cubic. Fifteen polynomials in
  ``y = 14.5 * 2.8 a**2 / (1.8 a**2 + u**2)`` cover everything up to infinity, one around each whole number; of degree 6
  for ``beta = 1``, 7 for ``beta = 9``, 9 for ``beta = 100``. The sixteenth piece, for ``|u| < a``, is zero.

So the value is the larger of a cubic and a polynomial, without branches and with one division. The sixteen coefficients
of a power fit two registers, from which compiled code permutes them (AVX-512; other machines load them one by one).
Cubic and polynomial are evaluated with fused multiply-adds.

The coefficients come from the closed form in decimal arithmetic with 70 digits and are rounded once, so they are the
same on every machine, whatever its mathematical library.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

PIECES = 16
SIZES = range(7, 11)  # how many coefficients a piece may have; compiled code exists for each
HEAD = 8  # numbers that compiled code finds before the coefficients
SHIFT, SLOPE, CUBIC, LIMIT, ONE, MAGIC, LAST = range(7)  # and their positions
ROUNDING = 1.5 * 2.0**52  # adding it rounds to whole numbers, which are the low bits of the sum
SMALLEST_BETA, LARGEST_BETA = 0.01, 100.0

_LAST = PIECES - 1.5  # the value of y where the cubic takes over; y of smaller numbers belongs to the last piece
_MASS = 6.5  # standard deviations of Z beyond which phi need not be a cubic
_SHIFT = 1.8  # the pole of y in units of the switch: balances the errors of the pieces
_TAIL = Decimal("9.5e-14")  # what the Chebyshev coefficients that are left out of a piece may add up to
_NODES = 16  # a power of two
_DIGITS = 70
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211707")


@dataclass(frozen=True)
class SmoothTable:
    """``h_beta`` as a function of ``v = |u| stretch``, with ``q = v**2 + shift`` and ``y = 1/q``.

    Attributes
    ----------
    limit : float
        ``H(beta)``.
    stretch, shift : float
    cubic : float
        The cubic is ``u (1 - cubic (q - shift))``.
    coefficients : tuple of float
        Of the powers of ``y - round(y)``, the highest first, `PIECES` numbers for each: one for each ``round(y)``.
    """

    limit: float
    stretch: float
    shift: float
    cubic: float
    coefficients: tuple[float, ...]


@functools.lru_cache(maxsize=64)
def smooth_table(beta: float) -> SmoothTable:
    """Interpolate the closed form at Chebyshev nodes, piece by piece; a tenth of a second.

    >>> table = smooth_table(1.0)
    >>> round(table.limit, 4), len(table.coefficients) // PIECES
    (0.6436, 7)
    """
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        exact = Decimal(beta)
        switch = 2.0 / (1 + _MASS / math.sqrt(beta)) ** 2  # the square of a
        stretch = math.sqrt(1.0 / (_LAST * (1 + _SHIFT) * switch))
        shift = _SHIFT / (_LAST * (1 + _SHIFT))

        def value(y: Decimal) -> Decimal:
            return _closed_form((1 / y - Decimal(shift)).sqrt() / Decimal(stretch), exact)

        pieces = [_fit(value, Decimal(0), Decimal("0.5"))]
        pieces += [_fit(value, k - Decimal("0.5"), k + Decimal("0.5")) for k in range(1, PIECES - 1)]
        pieces += [[Decimal(0)]]
        size = max(SIZES[0], *map(len, pieces))
        if size not in SIZES:
            raise AssertionError(f"a piece for beta = {beta} has {size} coefficients, compiled code {SIZES}")
        powers = [[piece[i] if i < len(piece) else Decimal(0) for piece in pieces] for i in reversed(range(size))]
        limit = float(_phi_limit() * 2 * _above_half(exact.sqrt()))
        cubic = float((1 + 3 / exact) / 6 / Decimal(stretch) ** 2)
        return SmoothTable(limit, stretch, shift, cubic, tuple(float(c) for row in powers for c in row))


@functools.lru_cache(maxsize=64)
def cube_root(x: float) -> float:
    """The cube root in decimal arithmetic, so that it is the same on every machine.

    >>> cube_root(27.0)
    3.0
    """
    with decimal.localcontext(decimal.Context(prec=50)):
        return float(Decimal(x) ** (1 / Decimal(3)))


def _fit(value: Callable[[Decimal], Decimal], low: Decimal, high: Decimal) -> list[Decimal]:
    """Coefficients of the powers of ``y - round(high - 1/2)`` of a polynomial through Chebyshev nodes of a piece."""
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = _chebyshev(_first_node(), 2 * _NODES)[1::2]  # cos((2 k + 1) pi / (2 n))
    values = [value(middle + half * w) for w in nodes]
    at_nodes = [_chebyshev(w, _NODES) for w in nodes]
    pairs = list(zip(values, at_nodes, strict=True))
    series = [2 * sum((f * T[k] for f, T in pairs), Decimal(0)) / _NODES for k in range(_NODES)]
    series[0] /= 2
    left_out = abs(series[-1])
    while left_out < _TAIL:
        series.pop()
        left_out += abs(series[-1])
    center = high - Decimal("0.5")  # w = (y - middle) / half = (x + center - middle) / half
    return _powers(series, 1 / half, (center - middle) / half)


def _closed_form(u: Decimal, beta: Decimal) -> Decimal:
    """``E phi(u + s Z)``, ``s = u / sqrt(beta)``: that of the cubic, plus what phi exceeds it by on either side."""
    s, root2 = u / beta.sqrt(), Decimal(2).sqrt()
    low, high = (root2 - u) / s, (root2 + u) / s  # phi stops being a cubic at Z = low and Z = -high
    f_low, f_high, e_low, e_high = _half_minus(low), _half_minus(high), _density(low), _density(high)
    cubic = u - u**3 / 6
    return (
        cubic - u * s**2 / 2
        + _phi_limit() * (f_low - f_high)
        - cubic * (f_low + f_high)
        + s * (1 - u**2 / 2) * (e_high - e_low)
        + u * s**2 / 2 * (f_low + f_high + low * e_low + high * e_high)
        + s**3 / 6 * ((2 + low**2) * e_low - (2 + high**2) * e_high)
    )  # fmt: skip


def _phi_limit() -> Decimal:
    return 2 * Decimal(2).sqrt() / 3


def _density(v: Decimal) -> Decimal:
    return (-v * v / 2).exp() / (2 * _PI).sqrt()


def _above_half(v: Decimal) -> Decimal:
    """``Phi(v) - 1/2``: the density times ``v + v**3/3 + v**5/15 + ...``, a series without cancellation."""
    total = term = v
    n = 1
    while abs(term) > abs(total).scaleb(-_DIGITS):
        n += 2
        term *= v * v / n
        total += term
    return _density(v) * total


def _half_minus(v: Decimal) -> Decimal:
    """``Phi(-v)``, to 70 digits after the point."""
    return Decimal("0.5") - _above_half(v)


def _first_node() -> Decimal:
    """``cos(pi / (2 nodes))`` by halving the angle."""
    c = Decimal(0)
    for _ in range(_NODES.bit_length() - 1):
        c = ((1 + c) / 2).sqrt()
    return c


def _chebyshev(x: Decimal, n: int) -> list[Decimal]:
    """The first ``n`` Chebyshev polynomials at ``x``."""
    values = [Decimal(1), x]
    while len(values) < n:
        values.append(2 * x * values[-1] - values[-2])
    return values


def _powers(series: list[Decimal], slope: Decimal, offset: Decimal) -> list[Decimal]:
    """Coefficients of the powers of x of a Chebyshev series in ``slope * x + offset`` (Clenshaw's recurrence)."""
    b, b_next = [Decimal(0)] * len(series), [Decimal(0)] * len(series)
    for k, c in reversed(list(enumerate(series))):
        twice = 1 if k == 0 else 2
        shifted = [Decimal(0), *b[:-1]]
        times_w = [twice * (slope * v + offset * old) for v, old in zip(shifted, b, strict=True)]
        b, b_next = [v - old for v, old in zip(times_w, b_next, strict=True)], b
        b[0] += c
    return b
