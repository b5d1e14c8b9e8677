"""The sums of an expectation step of a normal mixture: how much of every row each component takes, in exact integers.

For clipped rows y and responsibilities r (non-negative, with sum 1) a row adds, for every component k,

    r_k (1, y / R, (y / R)^2),

all of it bounded by 1. The factors are truncated, r to multiples of ``2**-16`` and the rest to multiples of ``2**-20``,
and multiplied in integers: truncating the products would break the proof that two rows cannot be opposite
(`dpdist.queries.mixture_sums`). A row contributes the same integers in any block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.clip import clip_l2
from dpdist.kernels.compiled import kernel
from dpdist.losses.loss import LARGEST_EXPONENT, fast_exp

Floats = NDArray[np.float64]

SHARE_BITS, VALUE_BITS = 16, 20
UNIT = 2.0 ** -(SHARE_BITS + VALUE_BITS)
"""Of a sum."""
PANEL_ROWS = 2**12  # whose products add up to at most 2**48: exact in float64 in whatever order BLAS adds


@dataclass(frozen=True)
class Components:
    """Normal components with independent columns: public points.

    Attributes
    ----------
    weights : array of shape (k,)
    means, variances : array of shape (k, d)
    """

    weights: Floats
    means: Floats
    variances: Floats

    def scaled(self, factor: float) -> Components:
        """Of rows that are multiplied by a number."""
        return Components(self.weights, self.means * factor, self.variances * factor**2)

    @property
    def constants(self) -> Floats:
        """The logarithms of the densities where the exponents are 0, but for a constant."""
        with np.errstate(all="ignore"):
            found: Floats = np.log(self.weights) - np.log(self.variances).sum(axis=1) / 2
        return found

    def log_densities(self, X: Floats) -> Floats:
        """Of every row in every component, times its weight, of shape (n, k).

        >>> one = Components(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
        >>> round(float(one.log_densities(np.zeros((1, 2)))[0, 0] + math.log(2 * math.pi)), 9)
        0.0
        """
        squares = [((X - m) ** 2 / v).sum(axis=1) for m, v in zip(self.means, self.variances, strict=True)]
        return self.constants - np.array(squares).T / 2 - X.shape[1] / 2 * math.log(2 * math.pi)


@kernel
def _shares(Z, good, constants, means, precisions, levels, shares):  # type: ignore[no-untyped-def]
    """Write the responsibilities of rows, in units; a row of which nothing is known adds nothing."""
    for i in range(len(Z)):
        largest = -np.inf
        for k in range(len(means)):
            exponent = 0.0
            for j in range(Z.shape[1]):
                t = Z[i, j] - means[k, j]
                exponent += t * t * precisions[k, j]
            levels[k] = constants[k] - exponent / 2.0
            if not levels[k] < np.inf:  # and NaN
                levels[k] = -np.inf
            largest = max(largest, levels[k])
        if not (good[i] & (largest > -np.inf)):
            shares[i, :] = 0.0
            continue
        total = 0.0
        for k in range(len(means)):
            levels[k] = fast_exp(max(levels[k] - largest, -LARGEST_EXPONENT))
            total += levels[k]
        for k in range(len(means)):
            shares[i, k] = math.floor(levels[k] / total * 65536.0)


def mixture_sums(X: NDArray[Any], components: Components, row_norm: float) -> NDArray[np.int64]:
    """``sum_i r_ik (1, y_i / R, (y_i / R)^2)``, component by component, in units of ``2**-36``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows are clipped to l2 norm ``row_norm``; a row with a non-finite entry adds nothing.
    components : Components
        In the units of the rows.
    row_norm : float
        R; public, enforced.

    Returns
    -------
    ndarray of int64, of shape (k (2 d + 1),)

    Examples
    --------
    >>> two = Components(np.full(2, 0.5), np.array([[1.0], [-1.0]]), np.ones((2, 1)))
    >>> (mixture_sums(np.array([[0.0], [np.nan]]), two, 2.0) * UNIT).tolist()
    [0.5, 0.0, 0.0, 0.5, 0.0, 0.0]
    """
    k, d = components.means.shape
    scaled = components.scaled(1 / row_norm)
    with np.errstate(all="ignore"):
        precisions, constants = 1 / scaled.variances, scaled.constants
    total, levels = np.zeros((k, 2 * d + 1), dtype=np.int64), np.empty(k)
    for start in range(0, len(X), PANEL_ROWS):
        part = X[start : start + PANEL_ROWS]
        good = np.isfinite(part).all(axis=1)
        Z = clip_l2(part, row_norm) / row_norm
        shares, values = np.empty((len(Z), k)), np.empty((len(Z), 2 * d + 1))
        _shares(Z, good, constants, np.ascontiguousarray(scaled.means), precisions, levels, shares)
        values[:, 0] = 2.0**VALUE_BITS
        values[:, 1 : d + 1] = np.trunc(Z * 2.0**VALUE_BITS)
        values[:, d + 1 :] = np.trunc(Z * Z * 2.0**VALUE_BITS)
        total += (shares.T @ values).astype(np.int64)
    return total.ravel()
