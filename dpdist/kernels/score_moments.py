"""The gradient of the mean loss of all pairs to eight digits and more, in one pass: moments of the places in bins.

`dpdist.kernels.pairwise` moves every score to the middle of its bin, which is as private as exact scores and off by
1e-3. A minimiser that is found before any noise is drawn needs gradients that are right. For scores in bins of width h
at ``c_a + (h/2) t_i`` and ``c_b + (h/2) t_j``, Taylor's series of ``k(t) = 1 / (1 + e^(2 t))`` has

    k(s_i - s_j) = sum_{p + q <= 5} k^(p+q)(c_a - c_b) (h/2)^(p+q) t_i^p (-t_j)^q / (p! q!)  +  a rest below M_6 h^6/6!,

``M_6 = sup |k^(6)|``: all that it asks of the rows are the sums of ``t^p`` and ``t^p x`` in each bin and class.

Rows are truncated to multiples of ``2**-16`` of their bound, and scores are those of the truncated rows: what is
minimised is the loss of these, exactly. Powers are rounded to ``2**-22``, so that the sums are integers, which do not
depend on order; `mean_gradient_error` bounds all that is left.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.compiled import kernel
from dpdist.kernels.grid import power_grid

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

N_BINS, ORDER = 1024, 5
ROW_BITS, PLACE_BITS = 16, 22
WIDEST = 0.5
"""Width of a bin from which on the series is not trusted."""
CHUNK = 2**13


def moment_grid(row_norm: float) -> float:
    """Of an entry of the table, for a row's feature times a power."""
    return power_grid(row_norm, ROW_BITS) * 2.0**-PLACE_BITS


def score_moments(X: NDArray[Any], y: NDArray[Any], w: Floats, row_norm: float) -> Integers:
    """Sums of the powers of the places in bins, and of features times these.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows are clipped to ``row_norm``, and truncated.
    y : ndarray of shape (n,)
        +1 or -1; a row with another label, or with a number that is not finite, adds nothing.
    w : ndarray of shape (d,)
    row_norm : float

    Returns
    -------
    ndarray of int64, of shape (2, ORDER + 1, 1 + d, N_BINS)
        Of the positive class, then of the negative one; powers in units of ``2**-22``, the others of `moment_grid`.
    """
    d = X.shape[1]
    table = np.zeros((2, N_BINS, ORDER + 1, 1 + d), dtype=np.int64)
    unit, width = power_grid(row_norm, ROW_BITS), bin_width(w, row_norm)
    scaled = np.ascontiguousarray(w, dtype=np.float64) * (unit / width if width else 0.0)
    y = np.asarray(y, dtype=np.float64).reshape(len(X))
    for first in range(0, len(X), CHUNK):
        part = slice(first, first + CHUNK)
        Z, labels = bounded_rows(X[part], y[part], row_norm=row_norm)
        _add(Z, labels, scaled, 1 / unit, np.empty(d), table)
    return np.ascontiguousarray(table.transpose(0, 2, 3, 1))


def bin_width(w: Floats, row_norm: float) -> float:
    """Of the scores of rows of that norm; 0, for one place, where they are all alike."""
    width = 2 * float(np.linalg.norm(w)) * row_norm / N_BINS
    return width if width > 1e-200 else 0.0


def mean_pair_gradient(positive: Integers, negative: Integers, w: Floats, row_norm: float, n_rows: int) -> Floats:
    """Of ``ln(1 + exp(-2 <w, x_i - x_j>))`` of positive rows i and negative j, over all ordered pairs of ``n_rows``.

    Examples
    --------
    >>> X, y, w = np.array([[0.5], [-0.5]]), np.array([1.0, -1.0]), np.array([1.0])
    >>> float(mean_pair_gradient(*score_moments(X, y, w, 1.0), w, 1.0, 2)[0].round(9)), round(-2 / (1 + np.e**2), 9)
    (-0.238405844, -0.238405844)
    """
    width, scale = bin_width(w, row_norm), 2.0**-PLACE_BITS
    P, N = positive.astype(np.float64) * scale, negative.astype(np.float64) * scale
    # k^(m) of all distances of two bins, as the kernel of a circular convolution
    apart = np.append(np.arange(N_BINS), np.arange(-N_BINS, 0)) * width
    kernels = scipy.fft.rfft(np.array(_derivatives(apart)), axis=1)
    ahead, behind = scipy.fft.rfft(P[:, 0], 2 * N_BINS, axis=1), scipy.fft.rfft(N[:, 0], 2 * N_BINS, axis=1)
    V = np.zeros(P.shape[1] - 1)
    for p in range(ORDER + 1):
        others = range(ORDER + 1 - p)
        weights = [(width / 2) ** (p + q) / (math.factorial(p) * math.factorial(q)) for q in others]
        of_negative = sum((-1) ** q * weights[q] * kernels[p + q] * behind[q] for q in others)
        of_positive = sum((-1) ** p * weights[q] * kernels[p + q].conj() * ahead[q] for q in others)
        V += P[p, 1:] @ scipy.fft.irfft(of_negative)[:N_BINS] - N[p, 1:] @ scipy.fft.irfft(of_positive)[:N_BINS]
    gradient: Floats = V * (-4 * power_grid(row_norm, ROW_BITS) / (n_rows * (n_rows - 1)))
    return gradient


@lru_cache(maxsize=1)
def _polynomials() -> tuple[Polynomial, ...]:
    """``k^(m)`` as polynomials of k, since ``k' = -2 k (1 - k)``."""
    found = [Polynomial([0.0, 1.0])]
    for _ in range(ORDER + 1):
        found.append(found[-1].deriv() * Polynomial([0.0, -2.0, 2.0]))
    return tuple(found)


def _derivatives(t: NDArray[Any]) -> list[Floats]:
    with np.errstate(over="ignore"):
        k = 1 / (1 + np.exp(2 * t))
    return [np.asarray(p(k)) for p in _polynomials()[: ORDER + 1]]


@lru_cache(maxsize=1)
def largest_derivatives() -> tuple[float, ...]:
    """``sup |k^(m)|`` for m up to `ORDER` + 1."""
    return tuple(float(np.abs(p(np.linspace(0, 1, 20_001))).max()) * (1 + 1e-6) for p in _polynomials())


def mean_gradient_error(n_rows: int, n_features: int, row_norm: float, size: float) -> float:
    """Largest distance of `mean_pair_gradient` from the exact gradient, for any rows and any ``||w|| <= size``.

    Each of at most ``n^2 / 4`` pairs adds a share that is off by e times a vector of norm ``2 R``, so that the mean is
    off by ``2 R e n / (n - 1)``. In e: the rest of the series; powers that are rounded by ``2**-23``; scores that are
    off by ``(d + 16) u`` of their largest; and the sums of the coordinator, of `N_BINS` products by Fourier transforms.
    """
    h, d, u = 2 * size * row_norm / N_BINS, n_features, 2.0**-53
    if not h <= WIDEST:
        return math.inf
    M, terms = largest_derivatives(), range(1, ORDER + 1)
    series = M[ORDER + 1] * h ** (ORDER + 1) / math.factorial(ORDER + 1)
    rounded = sum(M[m] * h**m / math.factorial(m) for m in terms) * 2 * 2.0**-PLACE_BITS
    scores = M[1] * 4 * (d + 16) * u * size * row_norm
    sums = 200 * u * math.sqrt(N_BINS) * (1 + sum(M[m] * h**m / math.factorial(m) for m in terms)) + 2 * d * u
    return 2 * row_norm * n_rows / max(n_rows - 1, 1) * (series + rounded + scores + sums)


@kernel
def _add(Z, y, w, per_unit, units, table):  # type: ignore[no-untyped-def]
    n, d = Z.shape
    bins, powers = table.shape[1], table.shape[2]
    for i in range(n):
        if abs(y[i]) != 1.0:
            continue
        score = 0.0
        for j in range(d):
            units[j] = np.trunc(Z[i, j] * per_unit)
            score += units[j] * w[j]
        place = score + bins // 2
        number = min(max(math.floor(place), 0.0), bins - 1.0)
        t = min(max(2.0 * (place - number) - 1.0, -1.0), 1.0)
        entries, power = table[0 if y[i] > 0.0 else 1, int(number)], 1.0
        for p in range(powers):
            weight = np.int64(math.floor(power * 4194304.0 + 0.5))
            entries[p, 0] += weight
            for j in range(d):
                entries[p, 1 + j] += weight * np.int64(units[j])
            power *= t
