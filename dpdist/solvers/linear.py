"""Quadratic problems from statistics, with an l1 ball, an l1 penalty or noise: what a server does with noisy sums.

Everything here is deterministic and post-processing; arrays in, arrays out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import L1Ball, soft_threshold

Vector = NDArray[np.float64]


def prox_l1_ball(v: Vector, threshold: float, radius: float | None) -> Vector:
    """``argmin_w ||w - v||_2^2 / 2 + threshold ||w||_1`` over the l1 ball (None: everywhere).

    First shrink, then project: both are soft thresholds, so their composition is exact.

    Examples
    --------
    >>> prox_l1_ball(np.array([3.0, -1.0, 0.2]), 0.5, radius=2.0)
    array([ 2., -0.,  0.])
    """
    v = soft_threshold(v, threshold) if threshold > 0 else v
    return v if radius is None else L1Ball(radius).project(v)


def fista(
    gradient: Callable[[Vector], Vector],
    prox: Callable[[Vector, float], Vector],
    smoothness: float,
    start: Vector,
    n_rounds: int = 500,
    tolerance: float = 1e-9,
) -> Vector:
    """Minimise a smooth convex function plus one with a proximal map, by accelerated steps of ``1 / smoothness``.

    Beck and Teboulle (2009); the momentum is dropped whenever it points uphill (O'Donoghue and Candes 2015), which
    makes it linearly convergent where the function is strongly convex on the support of the solution.

    Parameters
    ----------
    gradient : callable
        Of the smooth part.
    prox : callable
        ``(v, step) -> argmin_w ||w - v||_2^2 / (2 step) + h(w)``.
    smoothness : float
        A Lipschitz constant of the gradient.
    start : array
    n_rounds : int
    tolerance : float
        Stop when no entry moves by more than this part of the largest one.

    Examples
    --------
    >>> a = np.array([1.0, -2.0])
    >>> fista(lambda w: w - a, lambda v, step: np.maximum(v, 0.0), 1.0, np.zeros(2))
    array([1., 0.])
    """
    if not smoothness > 0:  # the smooth part is linear, with no way to tell how far to go
        return prox(start, 1.0)
    step = 1.0 / smoothness
    w, at, momentum = start, start, 1.0
    for _ in range(n_rounds):
        new = prox(at - step * gradient(at), step)
        moved = new - w
        if float((at - new) @ moved) > 0:
            at, momentum = new, 1.0
        else:
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            at, momentum = new + (momentum - 1) / following * moved, following
        w = new
        if np.abs(moved).max(initial=0.0) <= tolerance * np.abs(w).max(initial=0.0):
            break
    return w


def quadratic_l1(
    Q: Vector, b: Vector, radius: float | None = None, penalty: float = 0.0, n_rounds: int = 500
) -> Vector:
    """``argmin_w  w'Qw/2 - b'w + penalty ||w||_1`` over ``||w||_1 <= radius``: lasso from statistics.

    Parameters
    ----------
    Q : array of shape (d, d)
        Symmetric, without negative eigenvalues.
    b : array of shape (d,)
    radius : float, optional
    penalty : float
    n_rounds : int

    Examples
    --------
    >>> quadratic_l1(np.eye(2), np.array([2.0, 0.1]), penalty=0.5)
    array([1.5, 0. ])
    """
    smoothness = float(np.linalg.eigvalsh(Q)[-1])

    def prox(v: Vector, step: float) -> Vector:
        return prox_l1_ball(v, step * penalty, radius)

    return fista(lambda w: Q @ w - b, prox, smoothness, np.zeros(b.size), n_rounds)


def recover_l1(A: Vector, u: Vector, radius: float, n_rounds: int = 500) -> Vector:
    """``argmin_z ||A z - u||_2^2`` over ``||z||_1 <= radius``: a sparse vector from few noisy linear measurements.

    In place of program (1) of seed 001, whose printed radius makes 0 the answer for every number of users that occurs.

    Parameters
    ----------
    A : array of shape (p, d)
    u : array of shape (p,)
    radius : float
        Public bound of the l1 norm of what is measured.
    n_rounds : int

    Examples
    --------
    >>> A = np.random.default_rng(0).normal(size=(20, 60))
    >>> z = np.zeros(60)
    >>> z[[3, 30]] = 0.7, -0.3
    >>> bool(np.abs(recover_l1(A, A @ z, radius=1.0) - z).max() < 1e-3)
    True
    """
    small = A @ A.T if len(A) < A.shape[1] else A.T @ A
    smoothness = float(np.linalg.eigvalsh(small)[-1])

    def prox(v: Vector, step: float) -> Vector:
        return prox_l1_ball(v, 0.0, radius)

    return fista(lambda z: A.T @ (A @ z - u), prox, smoothness, np.zeros(A.shape[1]), n_rounds)


def wiener_solve(S: Vector, b: Vector, noise: float) -> Vector:
    """``U [l / (l^2 + noise^2)] U' b`` for ``S = U [l] U'``: ``S^-1 b`` where eigenvalues are known, else near 0.

    The best linear answer where S and b have noise that is worth ``noise`` of an eigenvalue (`noise_level`); what the
    noise made negative counts as 0.

    Examples
    --------
    >>> wiener_solve(np.diag([1.0, -0.1]), np.array([2.0, 5.0]), 0.0).tolist()
    [2.0, 0.0]
    """
    values, axes = np.linalg.eigh(S)
    values = np.maximum(values, 0.0)
    gains = values / np.maximum(values**2 + noise**2, 1e-300)
    return np.asarray(axes @ (gains * (axes.T @ b)))


def noise_level(n_features: int, matrix_noise: float, vector_noise: float, size: float) -> float:
    """Eigenvalues of S below ``sqrt(d (s_b^2 + s_S^2 W^2)) / W`` tell more about noise than about ``w``, ``S w = b``.

    Parameters
    ----------
    n_features : int
        d.
    matrix_noise, vector_noise : float
        s_S and s_b: standard deviation of an entry of S (off the diagonal) and of b.
    size : float
        W: public guess of the norm of w.
    """
    return math.sqrt(n_features) * math.hypot(vector_noise, matrix_noise * size) / size
