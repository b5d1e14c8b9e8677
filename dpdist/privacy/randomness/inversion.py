"""Discrete Laplace noise of whole scales by inversion: one random word a number, and one logarithm.

For a uniform V, ``floor(-t ln V)`` is at least g exactly where ``V <= exp(-g / t)``: a geometric number, and with a
fair sign, of which minus zero is drawn again, discrete Laplace noise. A word has the sign and the first 63 digits of V,
which leave the logarithm an interval. Where that interval, widened by all rounding errors of the computation in
doubles, has an integer inside (less than one word in ten thousand), more digits are drawn until there is none. So the
law is exact, as that of `dpdist.privacy.randomness.discrete.discrete_laplace`, whose rejections take ten words.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import MPMATH, Digits, Size, discrete_laplace

DIGITS = 63
LARGEST = 2**28
"""The largest scale for which doubles decide nearly always."""
_LEAST = 2**45  # smaller digits leave the logarithm open
# The logarithm of such digits is at most 44: four units in the last place of it and the roundings of its argument are
# below 5e-14, and the digits that were not drawn move it by less than 2**-45. The margin has three times as much.
_MARGIN = 2.4e-13


def laplace_by_inversion(scale: int, size: Size, bits: Bits) -> NDArray[Any]:
    """``P(x)`` proportional to ``exp(-|x| / scale)`` on the integers.

    Examples
    --------
    >>> from dpdist.privacy.randomness.bits import SystemBits
    >>> noise = laplace_by_inversion(1000, (50, 40), SystemBits())
    >>> noise.shape, bool(800 < abs(noise).mean() < 1200)
    ((50, 40), True)
    """
    if scale > LARGEST:
        return discrete_laplace(scale, size, bits)
    n = size if isinstance(size, int) else math.prod(size)
    found, minus_zero = _signed(scale, n, bits)
    while minus_zero.size:
        found[minus_zero], again = _signed(scale, minus_zero.size, bits)
        minus_zero = minus_zero[again]
    return found.reshape(size)


def _signed(scale: int, n: int, bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Geometric numbers with signs, and where they are minus zero."""
    words = bits.words(n)
    digits = words >> np.uint64(1)
    value = digits.astype(np.float64)
    value += 0.5
    value *= 2.0**-DIGITS
    np.log(value, out=value)
    value *= -scale
    whole = np.floor(value)
    value -= whole
    value -= 0.5
    sizes = whole.astype(np.int64)
    open_ = np.abs(value, out=value) >= 0.5 - scale * _MARGIN
    open_ |= digits < _LEAST
    for i in open_.nonzero()[0]:
        sizes[i] = _geometric_exactly(scale, Digits(int(digits[i]), DIGITS), bits)
    signs = (words & np.uint64(1)).view(np.int64)
    minus_zero = (signs > sizes).nonzero()[0]
    return (sizes ^ -signs) + signs, minus_zero


def _geometric_exactly(scale: int, v: Digits, bits: Bits) -> int:
    """``floor(-scale ln V)``, with as many digits of V as it takes."""
    while True:
        if v.digits:
            low, high = (_multiple(scale, v.digits + more, v.length) for more in (1, 0))
            if low[0] == high[1]:
                return low[0]
        v.extend(bits)


def _multiple(scale: int, digits: int, length: int) -> tuple[int, int]:
    """The integer part of ``-scale ln(digits 2**-length)``, less and plus what mpmath may be off."""
    context = mpmath.MPContext()  # a context of its own: the global precision is shared between threads
    context.prec = 2 * length + scale.bit_length()
    with MPMATH:
        value = -scale * (context.log(digits) - length * context.ln2)
        error = context.ldexp(1, -length)
        return int(context.floor(value - error)), int(context.floor(value + error))
