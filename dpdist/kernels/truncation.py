"""Scalar maps that bound a number whatever it is: hard clip, soft truncation, smoothed truncation.

All three are ``s f(v / s)`` with a public scale ``s`` and an odd, bounded function ``f`` that is the identity near 0:

- `HardClip`: ``f(u) = min(max(u, -1), 1)``;
- `SoftTruncation`: ``phi(u) = u - u**3 / 6`` for ``|u| <= sqrt(2)``, ``+-2 sqrt(2)/3`` beyond;
- `SmoothTruncation`: ``h_beta(u) = E phi(u (1 + Z / sqrt(beta)))``, Z standard normal, which increases to
  ``H(beta) = (2 sqrt(2)/3) (2 Phi(sqrt(beta)) - 1)``.

phi is the influence function of Catoni and Giulini (2017), its smoothing that of Holland (2019), as used in seed 000,
section 3.2, and seed 003, equation (2).

The guarantee rests on `ScalarMap.bound`, which holds for every float, infinities included, and on no approximation: the
clip and the smoothed truncation clamp to it in the end, and that of phi has room for the rounding errors of its few
operations (nine units of ``2**-53`` at most, where 32 are left). NaN becomes 0.

How ``h_beta`` is evaluated: `dpdist.kernels.smooth_table`, with an error below 1e-13. In floating point the maps are
odd exactly, and increasing up to twice that error.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.kernels.clip import check_bound
from dpdist.kernels.smooth_table import HEAD, LARGEST_BETA, PIECES, ROUNDING, SMALLEST_BETA, cube_root, smooth_table

Floats = NDArray[np.float64]

ROOT2 = math.sqrt(2.0)
PHI_BOUND = 2 * ROOT2 / 3 * (1 + 2.0**-48)  # with room for what rounding may add to the largest value of phi


class ClipConstants(NamedTuple):
    """What compiled code needs to know of a `HardClip`."""

    per_scale: float
    limit: float


class SoftConstants(NamedTuple):
    """What compiled code needs to know of a `SoftTruncation`: units are ``t (slope - t**2)``, ``t = min(t, corner)``.

    ``t = k u`` with ``k**3 = scale / grid / 6``, so that the cubic needs no other coefficient.
    """

    per_scale: float
    corner: float
    slope: float


class SmoothConstants(NamedTuple):
    """What compiled code needs to know of a `SmoothTruncation`: of ``v``, which is proportional to u.

    The larger of ``v (slope - cubic q)`` and the polynomial in the distance of ``1/q`` to the next whole number,
    ``q = v**2 + shift``.

    ``numbers`` starts on a cache line, with `HEAD` numbers in the order of `dpdist.kernels.smooth_table`: shift, slope,
    cubic, limit and constants of the arithmetic. Then come the coefficients, of the highest power first, `PIECES`
    numbers for each.
    """

    per_scale: float
    numbers: Floats


class ScalarMap(abc.ABC):
    """A map ``v -> scale * f(v / scale)`` of numbers, bounded for every float.

    Attributes
    ----------
    scale : float
        Public; numbers far below it are hardly changed.
    unit_bound : float
        Largest absolute value of ``f``.
    bound : float
        ``scale * unit_bound``: the map never returns more in absolute value, exactly. The sensitivity constant.
    """

    scale: float

    def __post_init__(self) -> None:
        check_bound(self.scale, "scale")

    @property
    @abc.abstractmethod
    def unit_bound(self) -> float: ...

    @property
    def bound(self) -> float:
        return self.scale * self.unit_bound

    @abc.abstractmethod
    def unit(self, u: ArrayLike) -> Floats:
        """``f(u)``, elementwise; NaN becomes 0."""

    def __call__(self, v: ArrayLike) -> Floats:
        """``scale * f(v / scale)``, elementwise; NaN becomes 0."""
        with np.errstate(over="ignore", under="ignore"):
            return self.scale * self.unit(np.asarray(v, dtype=np.float64) / self.scale)

    @abc.abstractmethod
    def constants(self, grid: float) -> Any:
        """The numbers of the compiled code. It multiplies values by ``per_scale`` before they are mapped."""

    @abc.abstractmethod
    def units(self, u: ArrayLike, grid: float) -> Floats:
        """What the value ``v``, given as ``u = v * constants(grid).per_scale``, adds to a sum: whole numbers.

        ``trunc(scale * f(v / scale) / grid)``, by the operations of the compiled code in the same order, so the
        integers are the same; at most ``floor(bound / grid)``.
        """

    def _limit(self, grid: float) -> float:
        return float(math.floor(self.bound / grid))


@dataclass(frozen=True)
class HardClip(ScalarMap):
    """``min(max(v, -scale), scale)``.

    >>> HardClip(2.0)([1.5, -7.0, np.inf, np.nan])
    array([ 1.5, -2. ,  2. ,  0. ])
    """

    tag: ClassVar[str] = "HardClip"

    scale: float = 1.0

    @property
    def unit_bound(self) -> float:
        return 1.0

    def unit(self, u: ArrayLike) -> Floats:
        return np.clip(_numbers(u), -1.0, 1.0)

    def __call__(self, v: ArrayLike) -> Floats:
        return np.clip(_numbers(v), -self.scale, self.scale)  # without the rounding of v / scale * scale

    def constants(self, grid: float) -> ClipConstants:
        return ClipConstants(1.0 / grid, self._limit(grid))

    def units(self, u: ArrayLike, grid: float) -> Floats:
        limit = self._limit(grid)
        return np.trunc(np.clip(_numbers(u), -limit, limit))


@dataclass(frozen=True)
class SoftTruncation(ScalarMap):
    """``scale * phi(v / scale)``, bounded by ``0.943 * scale``.

    The mean ``(s/n) sum phi(x_i / s)`` is off by at most ``E x**2 / (2 s) + s ln(2/zeta) / n`` with probability
    ``1 - zeta``, for any distribution of the x (Catoni 2012).

    >>> SoftTruncation(2.0)([0.002, -2.0, 1e300]).round(6)
    array([ 0.002   , -1.666667,  1.885618])
    """

    tag: ClassVar[str] = "SoftTruncation"

    scale: float = 1.0

    @property
    def unit_bound(self) -> float:
        return PHI_BOUND

    def unit(self, u: ArrayLike) -> Floats:
        return phi(u)

    def constants(self, grid: float) -> SoftConstants:
        k = cube_root(self.scale / grid / 6)
        return SoftConstants(k / self.scale, ROOT2 * k, 6 * k * k)

    def units(self, u: ArrayLike, grid: float) -> Floats:
        c, u = self.constants(grid), _numbers(u)
        with np.errstate(under="ignore"):
            t = np.minimum(np.abs(u), c.corner)
            return np.copysign(np.trunc(t * (c.slope - t * t)), u)


@dataclass(frozen=True)
class SmoothTruncation(ScalarMap):
    """``scale * h_beta(v / scale)``, bounded by ``scale * H(beta)``: 0.644 for ``beta = 1``, 0.940 for ``beta = 9``.

    Parameters
    ----------
    beta : float
        Public precision of the multiplicative noise, between 0.01 and 100; originally ``2 ln(1 / zeta)``. The bias of
        the mean is that of `SoftTruncation` times ``1 + 1/beta``.
    scale : float

    Examples
    --------
    >>> h = SmoothTruncation(9.2)
    >>> h([0.5, 1.5, 3.0, 20.1, 1e8]).round(8)
    array([0.47237319, 0.88930914, 0.93365559, 0.94042179, 0.9405273 ])
    >>> bool(h(np.inf) <= h.bound), round(SmoothTruncation(1.0).bound, 4)
    (True, 0.6436)
    """

    tag: ClassVar[str] = "SmoothTruncation"

    beta: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not SMALLEST_BETA <= self.beta <= LARGEST_BETA:
            raise ValueError(
                f"beta must lie between {SMALLEST_BETA} and {LARGEST_BETA}, got {self.beta!r}; "
                "SoftTruncation is the limit of large beta"
            )

    @property
    def unit_bound(self) -> float:
        return smooth_table(float(self.beta)).limit

    def unit(self, u: ArrayLike) -> Floats:
        u, c = _numbers(u), self._constants(1.0, 1.0, self.unit_bound)
        return np.copysign(_smooth_sizes(np.abs(u * c.per_scale), c), u)

    def constants(self, grid: float) -> SmoothConstants:
        return self._constants(self.scale, self.scale / grid, self._limit(grid))

    def _constants(self, scale: float, units: float, limit: float) -> SmoothConstants:
        t = smooth_table(float(self.beta))
        per_stretch = units / t.stretch
        slope, cubic = (1.0 + t.cubic * t.shift) * per_stretch, t.cubic * per_stretch
        head = [t.shift, slope, cubic, limit, 1.0, ROUNDING, PIECES - 1.0, 0.0]
        buffer = np.empty(len(head) + len(t.coefficients) + 8)
        numbers = buffer[-buffer.ctypes.data // 8 % 8 :][: len(buffer) - 8]
        numbers[:HEAD], numbers[HEAD:] = head, np.array(t.coefficients) * units
        return SmoothConstants(t.stretch / scale, numbers)

    def units(self, u: ArrayLike, grid: float) -> Floats:
        u = _numbers(u)
        return np.copysign(np.trunc(_smooth_sizes(np.abs(u), self.constants(grid))), u)


def phi(u: ArrayLike) -> Floats:
    """Soft truncation ``u - u**3 / 6`` for ``|u| <= sqrt(2)``, ``+-2 sqrt(2)/3`` beyond; NaN becomes 0.

    Non-decreasing, with slope at most 1, and ``-ln(1 - u + u**2/2) <= phi(u) <= ln(1 + u + u**2/2)``, which is all that
    the deviation bounds use.

    >>> phi([0.0, 1.0, -np.inf]).round(6)
    array([ 0.      ,  0.833333, -0.942809])
    """
    with np.errstate(under="ignore"):
        z = np.clip(_numbers(u), -ROOT2, ROOT2)
        return z * (1.0 - z * z / 6)


def _numbers(u: ArrayLike) -> Floats:
    u = np.asarray(u, dtype=np.float64)
    return np.where(np.isnan(u), 0.0, u)


def _smooth_sizes(v: Floats, c: SmoothConstants) -> Floats:
    shift, slope, cubic, limit = c.numbers[:4]
    with np.errstate(over="ignore", under="ignore"):
        v = np.minimum(v, 2.0**400)  # the limit either way, and the squares of `fused_multiply_add` do not overflow
        q = fused_multiply_add(v, v, shift)
        z = v * fused_multiply_add(-q, cubic, slope)
        y = np.minimum(1.0 / q, PIECES - 1.0)
        piece = np.rint(y)
        x, piece = y - piece, piece.astype(np.int64)
        table = c.numbers[HEAD:].reshape(-1, PIECES)
        p = table[0][piece]
        for row in table[1:]:
            p = fused_multiply_add(p, x, row[piece])
        return np.minimum(np.maximum(p, z), limit)


def fused_multiply_add(a: Floats, b: Floats, c: Floats) -> Floats:
    """``a * b + c``, rounded once: what compiled code does in one instruction (Boldo and Melquiond 2008).

    For numbers whose product is far from overflow, and from underflow unless c is much larger.

    >>> float(fused_multiply_add(np.float64(1 + 2.0**-30), np.float64(1 - 2.0**-30), np.float64(-1.0))) == -2.0**-60
    True
    """
    high, low = _two_product(a, b)
    t, t_low = _two_sum(c, low)
    v, v_low = _two_sum(high, t)
    rest, lost = _two_sum(t_low, v_low)
    # Rounded to odd, the rest cannot be mistaken for a tie by the last addition.
    bits = rest.view(np.int64)
    step = np.where((lost != 0) & (bits % 2 == 0), np.where((lost > 0) == (rest > 0), 1, -1), 0)
    return v + (bits + step).view(np.float64)


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    total = np.asarray(a + b)
    other = total - a
    return total, np.asarray((a - (total - other)) + (b - other))


def _two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(a: Floats) -> tuple[Floats, Floats]:
    shifted = a * (2.0**27 + 1)
    high = shifted - (shifted - a)
    return high, a - high
