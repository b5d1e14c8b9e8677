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
from collections.abc import Callable, Generator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

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

    Yields
    ------
    array
        The point whose gradient is wanted next.
    """
    x = previous = x0
    start = n_rounds - math.ceil(tail * n_rounds)
    total = np.zeros_like(x0)
    for t in range(n_rounds):
        y = x + momentum * (x - previous)
        g = yield y
        previous, x = x, prox(y - step * g, step)
        if t >= start:
            total += x
    return total / (n_rounds - start) if start < n_rounds else x


def nesterov_momentum(step: float, strong_convexity: float, n_rounds: int) -> float:
    """Momentum of the accelerated method for ``n_rounds`` noisy gradients.

    ``(1 - q)/(1 + q)`` with ``q = sqrt(step * a)`` and ``a = max(strong_convexity, 4/(step n_rounds^2))``: a problem
    that is barely strongly convex is treated as if it were as curved as ``n_rounds`` can make use of, which also
    bounds how much noise the momentum carries on.
    """
    curvature = max(strong_convexity, 4 / (step * n_rounds**2))
    q = math.sqrt(min(1.0, step * curvature))
    return (1 - q) / (1 + q)
