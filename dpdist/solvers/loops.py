"""The loops of private optimisation, as coroutines that only ever see released values.

A loop *yields* the public point at which it wants something private and is *sent* the release. It knows neither data
nor noise nor Dask, so it cannot leak: everything it computes is post-processing. `drive` joins a loop and an oracle:

>>> import numpy as np
>>> loop = prox_gradient(np.array([4.0]), lambda v, step: v, step=0.5, n_rounds=20)
>>> drive(loop, lambda w: w - 1.0).round(3)          # the gradient of (w - 1)^2 / 2
array([1.])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpdist.mirror_maps import Mirror

SHORTEST = -1
"""In place of a round's number: the one with the shortest step."""

Vector = NDArray[np.float64]
Loop = Generator[Vector, Vector, Vector]
Point = TypeVar("Point")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


def drive(loop: Generator[Point, Answer, Result], oracle: Callable[[Point], Answer]) -> Result:
    """Run ``loop`` to its end, answering each point it yields with ``oracle(point)``."""
    try:
        point = next(loop)
        while True:
            point = loop.send(oracle(point))
    except StopIteration as end:
        return end.value


def prox_gradient(
    x0: Vector,
    prox: Callable[[Vector, float], Vector],
    step: float,
    n_rounds: int,
    momentum: float = 0.0,
    tail: float = 0.0,
    pick: int | None = None,
    inertia: float = 0.0,
    decay: float = 0.0,
) -> Loop:
    """Proximal gradient descent, optionally with Nesterov's momentum: ``x <- prox(y - step * g(y), step)``.

    Parameters
    ----------
    x0 : array
        Public start.
    prox : callable
        ``(v, step) -> w``, see `dpdist.constraints.proximal`.
    step : float
        Public step size, about one over the smoothness.
    n_rounds : int
        Public number of gradients; there is no early stop.
    momentum : float, default 0
        ``y = x + momentum * (x - x_previous)``; see `nesterov_momentum`.
    tail : float, default 0
        0 returns the last iterate; a fraction in (0, 1] returns the mean of that last part of the iterates.
    pick : int, optional
        Return the iterate that a round begins with, 0 for the start: that of the round with this number, or, with
        `SHORTEST`, of the round with the smallest gradient mapping ``(y - x) / step``, x the point after it. With
        noisy gradients that is a function of released values.
    inertia : float, default 0
        The step is along ``v <- inertia v + g`` in place of g: a heavy ball (Polyak 1964).
    decay : float, default 0
        Over that last part of the rounds steps fall to 0 linearly: noise evens out, without an average of points that
        may lie in different basins.

    Yields
    ------
    array
        The point whose gradient is wanted next.
    """
    x = previous = kept = x0
    start = n_rounds - math.ceil(tail * n_rounds)
    total, least = np.zeros_like(x0), math.inf
    v = np.zeros_like(x0)
    for t in range(n_rounds):
        y = x + momentum * (x - previous)
        g = yield y
        v = inertia * v + g if inertia else g
        length = step * min(1.0, (n_rounds - t) / (decay * n_rounds)) if decay else step
        previous, x = x, prox(y - length * v, length)
        if t >= start:
            total += x
        if pick == SHORTEST and (mapped := float(np.linalg.norm(y - x)) * (step / length)) < least:
            kept, least = previous, mapped
        elif pick == t:
            kept = previous
    if pick is not None:
        return kept
    return total / (n_rounds - start) if start < n_rounds else x


def variance_reduced(
    x0: Vector,
    prox: Callable[[Vector, float], Vector],
    step: float,
    n_inner: Sequence[int],
    restart: bool = False,
    momentum: float = 1.0,
    growth: float = 1.0,
) -> Generator[tuple[Vector, Vector | None], Vector, Vector]:
    """Proximal gradient descent whose gradients are a seldom full one plus differences to it.

    One full gradient per epoch, at the snapshot s; then ``x <- prox(x - step (full + difference(y, s)), step)`` with
    ``y = momentum x + (1 - momentum) s``. The next snapshot is ``momentum mean(x) + (1 - momentum) s``, where the mean
    weighs the t-th iterate of the epoch by ``growth^t``.

    With ``restart`` it is SVRG (Xiao and Zhang 2014), without it SVRG++ (Allen-Zhu and Yuan 2016; epochs that double),
    with ``momentum < 1`` Katyusha (Allen-Zhu 2017; the negative momentum pulls towards the snapshot).

    Parameters
    ----------
    x0, prox, step
        As in `prox_gradient`.
    n_inner : sequence of int
        Public number of steps of each epoch.
    restart : bool, default False
        Start each epoch at its snapshot, not where the last one ended.
    momentum : float in (0, 1], default 1
    growth : float, default 1
        ``1 + step * strong_convexity`` for Katyusha.

    Yields
    ------
    (x, None) or (y, snapshot)
        Wanted are the full gradient at x, or the gradient at y minus that at the snapshot.
    """
    x = snapshot = x0
    for m in n_inner:
        full = yield snapshot, None
        if restart:
            x = snapshot
        mean, weight = np.zeros_like(x0), 0.0
        for _ in range(m):
            y = momentum * x + (1 - momentum) * snapshot
            difference = yield y, snapshot
            x = prox(x - step * (full + difference), step)
            # weights relative to the newest iterate, so that they do not overflow
            weight = weight / growth + 1
            mean = mean + (x - mean) / weight
        snapshot = momentum * mean + (1 - momentum) * snapshot
    return snapshot


def mirror_descent(
    mirror: Mirror,
    smoothness: float,
    n_rounds: int,
    accelerated: bool = False,
    tail: float = 1.0,
    pick: int | None = None,
    l1_penalty: float = 0.0,
) -> Loop:
    """Mirror descent on a bounded set, plain or accelerated.

    Plain: ``z <- argmin V(., z) + (2/L) <g(z), .>``; returned is the mean of the iterates, or of the last ones, or one
    of them. Accelerated, for
    ``k = 0, 1, ...`` with ``a = (k + 2) / (4 L)`` and ``r = 2 / (k + 2)``::

        x = r z + (1 - r) y;   z <- argmin V(., z) + a <g(x), .>;   y <- r z + (1 - r) y

    which asks for one gradient per round and returns y, a convex combination of mirror steps ("similar triangles":
    Gasnikov and Nesterov 2018). Its excess is at most ``8 L D / (T + 1)^2 + T s^2 W / (6 L)`` for noise of standard
    deviation s, D the divergence and W the width of the mirror (seed 000, section 3.1.4, with a released gradient
    only).

    Parameters
    ----------
    mirror : Mirror
        Geometry of the set, with its public start.
    smoothness : float
        L, in the norm of the mirror and in units of its radius: ``radius^2`` times the usual one. Larger values damp
        the noise.
    n_rounds : int
    accelerated : bool, default False
    tail : float, default 1
        As in `prox_gradient`; of plain steps.
    pick : int, optional
        As in `prox_gradient`, by number only; of plain steps.
    l1_penalty : float, default 0
        Its strength, for a mirror that can ``shrink``; of plain steps.

    Yields
    ------
    array
        The point whose gradient is wanted next.

    Examples
    --------
    >>> from dpdist.constraints import L1Ball
    >>> goal, ball = np.array([0.5, -2.0]), L1Ball(1.0)
    >>> drive(mirror_descent(ball.mirror(2), 1.0, 300, accelerated=True), lambda w: w - goal).round(3)
    array([ 0., -1.])
    """
    state = mirror.start
    z = y = kept = mirror.point(state)
    total, start = np.zeros_like(z), n_rounds - math.ceil(tail * n_rounds)
    for k in range(n_rounds):
        if accelerated:
            step, r = (k + 2) / (4 * smoothness), 2 / (k + 2)
        else:
            step, r = 2 / smoothness, 1.0
        if pick == k:
            kept = z
        g = yield r * z + (1 - r) * y
        state = mirror.step(state, step * g)
        if l1_penalty:
            assert mirror.shrink is not None
            state = mirror.shrink(state, step * l1_penalty)
        z = mirror.point(state)
        y = r * z + (1 - r) * y
        if k >= start:
            total += z
    if pick is not None:
        return kept
    return y if accelerated or start == n_rounds else total / (n_rounds - start)


def frank_wolfe(
    x0: Vector, n_rounds: int, tail: float = 0.0, pick: int | None = None, step: float | None = None
) -> Loop:
    """Conditional gradients: ``x <- x + 2/(t + 3) (v - x)`` for ``t = 0, 1, ...``, v a vertex of the set.

    The first step goes two thirds of the way. Every iterate is a convex combination of ``x0`` and the vertices, so it
    needs no projection, and has at most ``n_rounds`` more entries than ``x0`` where a vertex has one (Frank and Wolfe
    1956; Jaggi 2013).

    Parameters
    ----------
    x0 : array
        Public start, in the set.
    n_rounds : int
    tail : float, default 0
        As in `prox_gradient`; the mean of the last iterates evens out that their last vertices weigh most.
    pick : int, optional
        As in `prox_gradient`, by number only.
    step : float, optional
        A public step for all rounds, in place of ``2/(t + 3)``.

    Yields
    ------
    array
        The point for which a vertex with small inner product with the gradient is wanted.

    Examples
    --------
    >>> from dpdist.constraints import L1Ball
    >>> goal = np.array([0.5, -0.25])
    >>> drive(frank_wolfe(np.zeros(2), 2000), lambda w: L1Ball(1.0).lmo(w - goal)).round(2)
    array([ 0.5 , -0.25])
    """
    x = kept = x0
    start = n_rounds - math.ceil(tail * n_rounds)
    total = np.zeros_like(x0)
    for t in range(n_rounds):
        if pick == t:
            kept = x
        v = yield x
        x = x + (2 / (t + 3) if step is None else step) * (v - x)
        if t >= start:
            total += x
    if pick is not None:
        return kept
    return total / (n_rounds - start) if start < n_rounds else x


def hard_threshold_descent(x0: Vector, n_rounds: int, refine: Callable[[Vector], Vector]) -> Loop:
    """Iterative hard thresholding: ``x <- refine(u)``, u the sparse point that the oracle answers with.

    The oracle takes the gradient step and keeps a few of its coordinates, privately
    (`dpdist.privacy.mechanisms.peeling`: which coordinates these are depends on the data) or, where the whole gradient
    was released, with `dpdist.constraints.hard_threshold` (Blumensath and Davies 2009).

    Parameters
    ----------
    x0 : array
        Public start.
    n_rounds : int
    refine : callable
        Public map that keeps zeros, for example a proximal step.

    Yields
    ------
    array
        The point from which the step is wanted.
    """
    x = x0
    for _ in range(n_rounds):
        u = yield x
        x = refine(u)
    return x


def intermediate_gradient(
    project: Callable[[Vector], Vector],
    n_parameters: int,
    n_rounds: int,
    smoothness: float,
    noise: float,
    radius: float,
    power: float = 1.0,
) -> Loop:
    """The stochastic intermediate gradient method, for gradients that are noisy and slightly wrong.

    With weights ``a_i = ((i + p)/p)^(p - 1) / c``, ``c = 2^((p - 1)/2)``, step sizes ``1/b_i``, where
    ``b_i = smoothness + noise/radius 2^((5 - 2p)/4) p^((1 - 2p)/2) (i + p + 1)^((2p - 1)/2)``, and ``r = 1/(c a_i)``::

        z = project(-sum_i a_i g_i / b_k);   x = r z + (1 - r) y;   g = gradient at x
        y <- mean of y and of r project(z - a_{k+1} g / b_k) + (1 - r) y, the new point weighs c a_{k+1}^2

    ``power`` p from 1 (dual averaging, whose error does not grow with the bias of the gradients) to 2 (accelerated):
    the error is of the order ``smoothness radius^2 / T^p + noise radius / sqrt(T) + T^(p - 1) bias`` (Dvurechensky
    and Gasnikov 2016; seed 000, Algorithm 5.1.38, with the sum of its weights up to the round).

    Parameters
    ----------
    project : callable
        The Euclidean projection on the set.
    n_parameters : int
    n_rounds : int
    smoothness : float
        Of the objective.
    noise : float
        Public: root mean squared norm of the noise of a gradient.
    radius : float
        No point of the set is further from 0.
    power : float in [1, 2], default 1

    Yields
    ------
    array
        The point whose gradient is wanted next.

    Examples
    --------
    >>> goal = np.array([0.3, -0.2])
    >>> loop = intermediate_gradient(lambda v: v, 2, 300, smoothness=1.0, noise=0.0, radius=1.0, power=2.0)
    >>> drive(loop, lambda w: w - goal).round(3)
    array([ 0.3, -0.2])
    """
    c = 2 ** ((power - 1) / 2)
    growth = noise / radius * 2 ** ((5 - 2 * power) / 4) * power ** ((1 - 2 * power) / 2)

    def weight(i: int) -> float:
        return float(((i + power) / power) ** (power - 1) / c)

    def inverse_step(i: int) -> float:
        return float(smoothness + growth * (i + power + 1) ** ((2 * power - 1) / 2))

    x = project(np.zeros(n_parameters))
    g = yield x
    sum_g = weight(0) * g
    y = project(-sum_g / inverse_step(0))
    total = weight(0)
    for k in range(n_rounds - 1):
        a = weight(k + 1)
        r, new = 1 / (c * a), c * a * a
        z = project(-sum_g / inverse_step(k))
        g = yield r * z + (1 - r) * y
        sum_g = sum_g + a * g
        total += a
        w = r * project(z - a * g / inverse_step(k)) + (1 - r) * y
        y = ((total - new) * y + new * w) / total
    return y


def nesterov_momentum(step: float, strong_convexity: float, n_rounds: int) -> float:
    """Momentum of the accelerated method for ``n_rounds`` noisy gradients.

    ``(1 - q)/(1 + q)`` with ``q = sqrt(step * a)`` and ``a = max(strong_convexity, 4/(step n_rounds^2))``: a problem
    that is barely strongly convex is treated as if it were as curved as ``n_rounds`` can make use of, which also
    bounds how much noise the momentum carries on.
    """
    curvature = max(strong_convexity, 4 / (step * n_rounds**2))
    q = math.sqrt(min(1.0, step * curvature))
    return (1 - q) / (1 + q)
