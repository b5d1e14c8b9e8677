"""Row maps with a bound that holds in floating point for every input: sanitise, clip.

A row with a non-finite entry, or with a label outside the declared set, is a null row: it is replaced by zeros and
has weight 0, but it is counted. The clipping functions reply with rows whose exact norm, computed from the returned
floats without rounding, is at most the bound.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Labels = Literal["signs", "real"]

LARGEST_BOUND = 2.0**200
"""Public bounds lie in ``[1 / LARGEST_BOUND, LARGEST_BOUND]``, far from overflow and underflow."""


def kappa(d: int) -> float:
    """Safety margin of a clip factor, ``max(1e-12, (d + 16) * 2**-53)``.

    A computed norm of ``d`` numbers is at least ``norm * (1 - (d/2 + 4) u)``, ``u = 2**-53``, whatever the order of
    addition; the division and the products lose a few ``u`` more. ``min(1, bound * (1 - kappa) / norm)`` covers all.

    >>> kappa(50), kappa(2**20) > 1e-10
    (1e-12, True)
    """
    return max(1e-12, (d + 16) * 2.0**-53)


def check_bound(bound: float, name: str, *, allow_inf: bool = False) -> float:
    """The bound as a float, or a `ValueError` if it cannot be a public bound."""
    bound = float(bound)
    if allow_inf and bound == math.inf:
        return bound
    if not 1 / LARGEST_BOUND <= bound <= LARGEST_BOUND:
        raise ValueError(f"{name} must be a positive number between 2**-200 and 2**200, got {bound!r}")
    return bound


def sanitise(X: ArrayLike, y: ArrayLike | None = None, labels: Labels = "real") -> tuple[Floats, Floats, Floats]:
    """Replace null rows by zeros.

    Parameters
    ----------
    X : array_like of shape (n, d)
    y : array_like of shape (n,), optional
    labels : {"real", "signs"}
        The declared label set: all finite numbers, or -1 and +1.

    Returns
    -------
    X, y, weight : ndarrays of float64
        ``weight`` is 0 for null rows and 1 for all others; ``y`` is zeros if it was not given.

    Examples
    --------
    >>> X, y, weight = sanitise([[1.0, np.nan], [2.0, 3.0], [4.0, 5.0]], [1.0, -1.0, 0.0], labels="signs")
    >>> weight
    array([0., 1., 0.])
    >>> X[1], X[2]
    (array([2., 3.]), array([0., 0.]))
    """
    X = np.asarray(X, dtype=np.float64)
    good = np.isfinite(X).all(axis=1)
    labels_given = np.zeros(len(X)) if y is None else np.asarray(y, dtype=np.float64)
    if y is not None:
        good &= np.isfinite(labels_given) if labels == "real" else np.abs(labels_given) == 1
    weight = good.astype(np.float64)
    return np.where(good[:, None], X, 0.0), np.where(good, labels_given, 0.0), weight


def clip_l2(X: ArrayLike, bound: float) -> Floats:
    """Scale rows down into the Euclidean ball: ``x * min(1, bound * (1 - kappa(d)) / ||x||_2)``.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Any floats; a row with a non-finite entry becomes zero.
    bound : float
        Public bound of the norm.

    Examples
    --------
    >>> clip_l2([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0]], bound=1.0).round(6)
    array([[0.6, 0.8],
           [0.3, 0.4],
           [0. , 0. ]])
    """
    return _clip_rows(X, bound, 2)


def unit_l2(X: ArrayLike, bound: float) -> Floats:
    """Scale rows to the Euclidean norm ``bound * (1 - kappa(d))``, shorter ones as well; zero rows stay zero.

    >>> unit_l2([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [np.inf, 1.0]], bound=1.0).round(6)
    array([[0.6, 0.8],
           [0.6, 0.8],
           [0. , 0. ],
           [0. , 0. ]])
    """
    bound = check_bound(bound, "bound")
    scaled, _ = _scaled(np.asarray(X, dtype=np.float64))
    norms = row_norms(scaled)
    return scaled * (bound * (1 - kappa(scaled.shape[1])) / np.where(norms > 0, norms, 1.0))[:, None]


def row_norms(X: Floats) -> Floats:
    """Euclidean norms of rows; a row has the same bits alone, in company and in any layout.

    NumPy adds up the squares of a row of more than 8192 columns in another order where it is the only one.
    """
    several = np.ascontiguousarray(X if len(X) != 1 else np.repeat(X, 2, axis=0))
    found: Floats = np.sqrt(np.einsum("ij,ij->i", several, several))
    return found[: len(X)]


def _scaled(X: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """``(Z, e)`` with ``X = Z * 2**e`` row by row and ``max |Z|`` in ``[1/2, 1)``; non-finite and zero rows: Z = 0."""
    largest = np.abs(X).max(axis=1, initial=0.0)
    finite = np.isfinite(largest)
    exponent = np.frexp(np.where(finite, largest, 0.0))[1]
    return np.ldexp(np.where(finite[:, None], X, 0.0), -exponent[:, None]), exponent


def _clip_rows(X: ArrayLike, bound: float, order: int) -> Floats:
    bound = check_bound(bound, "bound")
    X = np.asarray(X, dtype=np.float64)
    scaled, exponent = _scaled(X)
    norms = row_norms(scaled) if order == 2 else np.abs(scaled).sum(axis=1)
    target = bound * (1 - kappa(X.shape[1]))
    with np.errstate(over="ignore", under="ignore"):
        inside = np.ldexp(norms, exponent) <= target
    clipped = scaled * (target / np.where(norms > 0, norms, 1.0))[:, None]
    finite = np.isfinite(X).all(axis=1)
    return np.where((inside & finite)[:, None], X, clipped)
