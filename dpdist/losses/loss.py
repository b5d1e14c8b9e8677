"""What a loss is, and how its scalar code is compiled.

A loss ``l(u, y)`` sees the predictor ``u = <x, w>`` and the label ``y``. For rows with ``||x|| <= r`` the gradient
``l'(u, y) x`` has norm at most ``sup|l'| * r`` (`Loss.lipschitz`) and the Hessian ``l''(u, y) x x'`` at most
``sup |l''| * r**2`` (`Loss.smoothness`); constants as in seed 000, section 3.1.

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
        ``sup |l''|``.
    curvature_range : (float, float)
        The range of ``l''``, which a private Hessian rests on: ``(0, curvature_bound)`` for a convex loss, unless it
        knows better; one that is not convex has to say.
    third_bound : float
        ``sup |l'''|``, infinite where there is none: how fast a Hessian changes.
    value_bound : float
        ``sup l`` of a loss that is nowhere below 0; infinite where there is none.
    block : function ``(u, y, params, out, n)``, optional
        Writes ``l'(u[i], y[i])`` to ``out[i]`` for ``i < n``, in the subset of Python that numba compiles, without
        branches that would keep it from being vectorised. ``params`` holds the fields of the loss in order.
    second_block : function, optional
        The same for ``l''``.

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
    second_block: ClassVar[Block | None] = None

    @property
    @abc.abstractmethod
    def derivative_bound(self) -> float: ...

    @property
    @abc.abstractmethod
    def curvature_bound(self) -> float: ...

    @property
    def curvature_range(self) -> tuple[float, float]:
        if self.convex:
            return 0.0, self.curvature_bound
        raise ValueError(
            f"the loss {self.name!r} is not convex and has no curvature_range: declare the least and the largest value "
            "of l'' that there is, for example curvature_range = (-0.8, 1.0)"
        )

    @property
    def third_bound(self) -> float:
        return math.inf

    @property
    def value_bound(self) -> float:
        return math.inf

    @abc.abstractmethod
    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        """``l(u, y)``, elementwise."""

    @abc.abstractmethod
    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        """``dl/du (u, y)``, elementwise."""

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        """``d2l/du2 (u, y)``, elementwise; for Hessians."""
        raise NotImplementedError(f"the loss {self.name!r} has no second_derivative(u, y): define it, in NumPy")

    def one_against_rest(self, codes: Floats, target: int) -> Floats:
        """Class numbers as labels of this loss: +1 for ``target`` and -1 for the others."""
        return np.where(np.isnan(codes), np.nan, np.where(codes == target, 1.0, -1.0))

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
        return self._address("block", "derivative")

    def second_block_address(self) -> int:
        """Address of the compiled ``second_block`` function, or 0 if the loss has none."""
        return self._address("second_block", "second_derivative")

    def _address(self, block: str, derivative: str) -> int:
        for kind in type(self).__mro__:  # a block function does not outlive an overridden derivative
            if block in vars(kind):
                function = getattr(kind, block)
                return 0 if function is None else _compiled(function).address
            if derivative in vars(kind):
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
def fast_exp(x: float) -> float:
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
