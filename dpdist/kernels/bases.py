"""Public bases: random features, Chebyshev polynomials, fast changes of basis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import kernel


@kernel
def _butterflies(v: Any) -> None:
    half = 1
    while half < len(v):
        for start in range(0, len(v), 2 * half):
            for i in range(start, start + half):
                above, below = v[i], v[i + half]
                v[i], v[i + half] = above + below, above - below
        half *= 2


def fwht(v: NDArray[Any]) -> NDArray[np.float64]:
    """``H v`` for Sylvester's matrix ``H[i, j] = (-1)^popcount(i & j)``, in ``K log2 K`` additions.

    Exact where v has integers and the sum of their absolute values is at most 2**53.

    Examples
    --------
    >>> fwht(np.array([1.0, 2.0, 3.0, 4.0]))
    array([10., -2., -4.,  0.])
    """
    out = np.array(v, dtype=np.float64)
    if out.ndim != 1 or out.size < 1 or out.size & (out.size - 1):
        raise ValueError(f"the length must be a power of two, got an array of shape {out.shape}")
    _butterflies(out)
    return out


def fourier_frequencies(n_features: int, n_components: int, bandwidth: float, seed: int) -> NDArray[np.float64]:
    """Public frequencies of the kernel ``exp(-||x - z||^2 / (2 bandwidth^2))``, one per pair of features.

    They are independent N(0, 1/bandwidth^2), the Fourier transform of the kernel (Rahimi and Recht 2007).

    Returns
    -------
    ndarray of shape (n_features, n_components / 2)
    """
    if n_components < 2 or n_components % 2:
        raise ValueError(f"n_components must be an even number of at least 2, got {n_components!r}")
    generator = np.random.Generator(np.random.Philox(seed))
    return generator.standard_normal((n_features, n_components // 2)) / bandwidth


def fourier_features(X: NDArray[np.float64], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """``sqrt(2/D) (cos <s_j, x>, sin <s_j, x>)`` for all frequencies ``s_j``: vectors of norm 1 in D dimensions.

    Inner products of two of them are the kernel on average, and closer to it than with random phases (seed 001,
    Algorithm 4, has these, with half of the kernel). A row that is not finite, or so large that its angle is not,
    becomes NaN.

    Examples
    --------
    >>> s = fourier_frequencies(2, 4000, bandwidth=2.0, seed=0)
    >>> phi = fourier_features(np.array([[0.0, 0.0], [1.0, 1.0]]), s)
    >>> (phi @ phi.T).round(1).tolist(), round(float(np.exp(-2 / 8)), 1)
    ([[1.0, 0.8], [0.8, 1.0]], 0.8)
    """
    with np.errstate(all="ignore"):
        angles = np.zeros((len(X), frequencies.shape[1]))
        for j, row in enumerate(frequencies):  # not BLAS: a row's angles must not depend on the rows around it
            angles += X[:, j, None] * row
        features = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return features / math.sqrt(frequencies.shape[1])


def chebyshev_fit(f: Callable[[NDArray[np.float64]], NDArray[np.float64]], degree: int) -> NDArray[np.float64]:
    """Coefficients of the Chebyshev polynomials ``T_0, ..., T_degree`` of a smooth function on [-1, 1].

    Of its Chebyshev series, cut after ``degree``, by 200 nodes: ``f = sum_k a_k T_k``, where ``a_0`` has the factor 1/2
    already. The error is within a small factor of that of the best polynomial.

    Examples
    --------
    >>> chebyshev_fit(lambda t: t * t, 3).round(12) + 0.0
    array([0.5, 0. , 0.5, 0. ])
    """
    n = 200
    angles = (np.arange(n) + 0.5) * (math.pi / n)
    cosines = np.cos(np.outer(np.arange(degree + 1), angles))
    series = cosines @ np.asarray(f(np.cos(angles)), dtype=np.float64) * (2 / n)
    series[0] /= 2
    return np.asarray(series)


def chebyshev_to_monomial(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """The coefficients of ``1, t, t^2, ...`` of a sum of Chebyshev polynomials.

    They grow like 2^degree where the function is not very smooth; float64 is good for degrees up to about 20.

    Examples
    --------
    >>> chebyshev_to_monomial(np.array([0.0, 0.0, 1.0]))
    array([-1.,  0.,  2.])
    """
    powers = np.zeros(len(series))
    found = np.polynomial.chebyshev.cheb2poly(series)
    powers[: len(found)] = found  # NumPy leaves zeros of the highest degrees out
    return powers


def monomial_error(f: Callable[[NDArray[np.float64]], NDArray[np.float64]], powers: NDArray[np.float64]) -> float:
    """The largest difference on [-1, 1] of a function and a polynomial, on 2001 points.

    >>> tanh = lambda t: np.tanh(t / 2) / 2
    >>> [round(monomial_error(tanh, chebyshev_to_monomial(chebyshev_fit(tanh, p))), 4) for p in (1, 3)]
    [0.0047, 0.0001]
    """
    t = np.linspace(-1.0, 1.0, 2001)
    return float(np.abs(f(t) - np.polynomial.polynomial.polyval(t, powers)).max())
