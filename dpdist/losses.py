"""Losses of a linear predictor: one small frozen object each, with the constants that privacy and steps rest on.

A loss ``l(u, y)`` sees the predictor ``u = <x, w>`` and the label ``y``. For rows with ``||x|| <= r`` the gradient
``l'(u, y) x`` has norm at most ``sup|l'| * r`` (`Loss.lipschitz`) and the Hessian ``l''(u, y) x x'`` at most
``sup l'' * r**2`` (`Loss.smoothness`); constants as in seed 000, section 3.1.

A new loss is a subclass of `Loss` with ``value`` and ``derivative`` in NumPy. It is used as it is; with a ``block``
function as well (scalar code for one block of numbers, compiled on first use) it is as fast as the built-in ones.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numba
import numpy as np
from numba import extending, types
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

Floats = NDArray[np.float64]
Block = Callable[[Any, Any, Any, Any, int], None]


@dataclass(frozen=True)
class Loss(abc.ABC):
    """Base class of losses.

    Attributes
    ----------
    name : str
    labels : {"signs", "real"}
        The declared label set: -1 and +1, or all finite numbers. A row with another label contributes nothing.
    convex : bool
        Whether every ``l(., y)`` is convex, which some guarantees rest on.
    derivative_bound : float
        ``sup |l'|`` over all ``u`` and ``y``; infinite if there is none.
    curvature_bound : float
        ``sup l''``.
    block : function ``(u, y, params, out, n)``, optional
        Writes ``l'(u[i], y[i])`` to ``out[i]`` for ``i < n``, in the subset of Python that numba compiles, without
        branches that would keep it from being vectorised. ``params`` holds the fields of the loss in order.

    Examples
    --------
    >>> class Exponential(Loss):
    ...     name, labels, derivative_bound, curvature_bound = "exponential", "signs", np.inf, np.inf
    ...     def value(self, u, y):
    ...         return np.exp(-y * u)
    ...     def derivative(self, u, y):
    ...         return -y * np.exp(-y * u)
    >>> float(Exponential().derivative(0.0, 1.0))
    -1.0
    """

    name: ClassVar[str]
    labels: ClassVar[Literal["signs", "real"]]
    convex: ClassVar[bool] = True
    block: ClassVar[Block | None] = None

    @property
    @abc.abstractmethod
    def derivative_bound(self) -> float: ...

    @property
    @abc.abstractmethod
    def curvature_bound(self) -> float: ...

    @abc.abstractmethod
    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        """``l(u, y)``, elementwise."""

    @abc.abstractmethod
    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        """``dl/du (u, y)``, elementwise."""

    def lipschitz(self, row_norm: float) -> float:
        """Largest norm of a gradient of rows of norm at most ``row_norm``."""
        return self.derivative_bound * row_norm

    def smoothness(self, row_norm: float) -> float:
        """Largest eigenvalue of a Hessian of rows of norm at most ``row_norm``."""
        return self.curvature_bound * row_norm**2

    @property
    def params(self) -> Floats:
        """The fields of the loss as numbers, for its compiled block function."""
        return np.array([float(getattr(self, f.name)) for f in fields(self)], dtype=np.float64)

    def block_address(self) -> int:
        """Address of the compiled ``block`` function, or 0 if the loss has none."""
        for kind in type(self).__mro__:  # a block function does not outlive an overridden derivative
            if "block" in vars(kind):
                return 0 if kind.block is None else _compiled(kind.block).address  # type: ignore[attr-defined]
            if "derivative" in vars(kind):
                break
        return 0


_POINTER = types.CPointer(types.float64)
_SIGNATURE = types.void(_POINTER, _POINTER, _POINTER, _POINTER, types.intp)


@functools.cache
def _compiled(block: Block) -> Any:
    """A C function; compiled code is kept on disk where numba can (not for code typed at a prompt)."""
    try:
        return numba.cfunc(_SIGNATURE, cache=True, error_model="numpy")(block)
    except RuntimeError:
        return numba.cfunc(_SIGNATURE, error_model="numpy")(block)


intrinsic: Any = extending.intrinsic  # declared with the arguments of the generator, called with those of the result


@intrinsic
def _bits(typingctx: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.int64))

    return types.int64(types.float64), codegen


@intrinsic
def _from_bits(typingctx: Any, k: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.int64), codegen


LARGEST_EXPONENT = 708.0
"""Arguments of exp are clamped to +-708, where its value is still a normal float64 (3e-308)."""

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42fecp-1"), float.fromhex("0x1.d1cf79abc9e3bp-32")
_ROUND = 1.5 * 2.0**52  # adding it rounds to an integer, which then sits in the low bits
_ONE_BITS = 0x3FF0000000000000


@numba.njit(inline="always")
def _exp(x: float) -> float:
    """``exp(x)`` for ``-708 <= x <= 0`` within 1.5 ulp, without branches.

    ``x = k ln 2 + t`` with ``|t| <= ln(2)/2`` (ln 2 in two parts, so that ``k ln 2`` is exact), then
    ``1 + t + t**2 P(t)`` with P of degree 9 through the Chebyshev nodes (relative error 2e-17), times ``2**k``.
    """
    shifted = x * _LOG2_E + _ROUND
    k = shifted - _ROUND
    t = (x - k * _LN2_HIGH) - k * _LN2_LOW
    t2 = t * t
    t4 = t2 * t2
    p01 = 0.5000000000000001 + t * 0.16666666666666669
    p23 = 4.1666666666624164e-02 + t * 8.333333333330065e-03
    p45 = 1.3888888917196881e-03 + t * 1.984126986304067e-04
    p67 = 2.4801521322116825e-05 + t * 2.7557268480116333e-06
    p89 = 2.762007599981065e-07 + t * 2.5100375924709717e-08
    p = (p01 + t2 * p23) + t4 * ((p45 + t2 * p67) + t4 * p89)  # in pairs: a short chain of dependent operations
    return (1.0 + (t + t2 * p)) * _from_bits((_bits(shifted) << 52) + _ONE_BITS)


def _logistic_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin)
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = _exp(-size)
        out[i] = -y[i] * ((e if margin > 0 else 1.0) / (1.0 + e))


def _squared_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        out[i] = u[i] - y[i]


def _huber_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        residual = u[i] - y[i]
        residual = residual if residual < threshold else threshold
        out[i] = residual if residual > -threshold else -threshold


def _biweight_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        residual = u[i] - y[i]
        residual = residual if residual < threshold else threshold
        residual = residual if residual > -threshold else -threshold
        share = residual / threshold
        weight = 1.0 - share * share
        out[i] = residual * (weight * weight)


def _smoothed_hinge_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    width = params[0]
    for i in range(n):
        m = 1.0 - u[i] * y[i]
        m = m if m < width else width
        out[i] = -y[i] * ((m if m > 0.0 else 0.0) / width)


@dataclass(frozen=True)
class Logistic(Loss):
    """``log(1 + exp(-y u))`` for labels -1 and +1; ``|l'| <= 1``, ``l'' <= 1/4``.

    >>> loss = Logistic()
    >>> float(loss.derivative(0.0, 1.0)), loss.lipschitz(2.0), loss.smoothness(2.0)
    (-0.5, 2.0, 1.0)
    """

    tag: ClassVar[str] = "Logistic"

    name: ClassVar[str] = "logistic"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    block: ClassVar[Block | None] = staticmethod(_logistic_block)
    derivative_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.logaddexp(0.0, -np.multiply(y, u))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return -np.asarray(y) * expit(-np.clip(np.multiply(y, u), -LARGEST_EXPONENT, LARGEST_EXPONENT))


@dataclass(frozen=True)
class Squared(Loss):
    """``(u - y)**2 / 2``; the derivative is not bounded, so a gradient needs a declared clip norm; ``l'' = 1``.

    >>> float(Squared().value(3.0, 1.0)), float(Squared().derivative(3.0, 1.0))
    (2.0, 2.0)
    """

    tag: ClassVar[str] = "Squared"

    name: ClassVar[str] = "squared"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    block: ClassVar[Block | None] = staticmethod(_squared_block)
    derivative_bound: ClassVar[float] = np.inf
    curvature_bound: ClassVar[float] = 1.0

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return 0.5 * np.subtract(u, y) ** 2

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(np.subtract(u, y), dtype=np.float64)


@dataclass(frozen=True)
class Huber(Loss):
    """``s**2 / 2`` for ``|s| <= c`` and ``c |s| - c**2 / 2`` beyond, ``s = u - y``; ``|l'| <= c``, ``l'' <= 1``.

    The default ``c = 1.345`` has 95 % efficiency for standard normal noise (Huber 1964).

    >>> float(Huber(1.0).derivative(5.0, 1.0)), float(Huber(1.0).value(5.0, 1.0))
    (1.0, 3.5)
    """

    tag: ClassVar[str] = "Huber"

    threshold: float = 1.345
    name: ClassVar[str] = "huber"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    block: ClassVar[Block | None] = staticmethod(_huber_block)
    curvature_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold < np.inf:
            raise ValueError(f"threshold must be a positive number, got {self.threshold!r}; try 1.345 noise deviations")

    @property
    def derivative_bound(self) -> float:
        return self.threshold

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        size = np.abs(np.subtract(u, y))
        small = np.minimum(size, self.threshold)
        return small * (size - 0.5 * small)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.clip(np.subtract(u, y), -self.threshold, self.threshold)


@dataclass(frozen=True)
class Biweight(Loss):
    """Tukey's biweight ``c**2/6 (1 - (1 - (s/c)**2)**3)`` for ``|s| <= c``, ``c**2/6`` beyond, ``s = u - y``.

    Not convex: residuals beyond ``c`` have no pull at all, so gross errors in the labels are ignored.
    ``|l'| <= 16 c / (25 sqrt(5))`` (at ``s = c / sqrt(5)``), ``-0.8 <= l'' <= 1``. The default ``c = 4.685`` has 95 %
    efficiency for standard normal noise (Beaton and Tukey 1974); take 4.685 times a public guess of the noise.

    >>> loss = Biweight(2.0)
    >>> float(loss.derivative(5.0, 1.0)), round(loss.derivative_bound, 4), round(float(loss.value(5.0, 1.0)), 4)
    (0.0, 0.5724, 0.6667)
    """

    tag: ClassVar[str] = "Biweight"

    threshold: float = 4.685
    name: ClassVar[str] = "biweight"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    convex: ClassVar[bool] = False
    block: ClassVar[Block | None] = staticmethod(_biweight_block)
    curvature_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold < np.inf:
            raise ValueError(f"threshold must be a positive number, got {self.threshold!r}; try 4.685 noise deviations")

    @property
    def derivative_bound(self) -> float:
        return 16 * self.threshold / (25 * math.sqrt(5)) * (1 + 2.0**-48)  # with room for the rounding of l'

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        share = np.clip(np.subtract(u, y) / self.threshold, -1.0, 1.0)
        return self.threshold**2 / 6 * (1 - (1 - share * share) ** 3)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        residual = np.clip(np.subtract(u, y), -self.threshold, self.threshold)
        share = residual / self.threshold
        weight = 1.0 - share * share
        return residual * (weight * weight)


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """Hinge loss ``max(0, 1 - y u)`` whose corner is a parabola of width ``h`` below 1; ``|l'| <= 1``, ``l'' <= 1/h``.

    With ``m = 1 - y u``: 0 for ``m <= 0``, ``m**2 / (2 h)`` for ``m <= h``, ``m - h/2`` beyond.

    >>> float(SmoothedHinge(0.5).value(-1.0, 1.0)), SmoothedHinge(0.5).smoothness(1.0)
    (1.75, 2.0)
    """

    tag: ClassVar[str] = "SmoothedHinge"

    width: float = 0.5
    name: ClassVar[str] = "smoothed-hinge"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    block: ClassVar[Block | None] = staticmethod(_smoothed_hinge_block)
    derivative_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.width < np.inf:
            raise ValueError(f"width must be a positive number, got {self.width!r}; try 0.5")

    @property
    def curvature_bound(self) -> float:
        return 1.0 / self.width

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        m = 1.0 - np.multiply(y, u)
        inside = np.clip(m, 0.0, self.width)
        return inside * inside / (2 * self.width) + np.maximum(m - self.width, 0.0)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return -np.asarray(y) * (np.clip(1.0 - np.multiply(y, u), 0.0, self.width) / self.width)


LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Logistic, Squared, Huber, Biweight, SmoothedHinge)}


def by_name(name: str) -> Loss:
    """A built-in loss with its default parameters.

    >>> by_name("huber")
    Huber(threshold=1.345)
    """
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; expected one of {', '.join(sorted(LOSSES))}, or a Loss object")
    return LOSSES[name]()
