"""Choosing among several estimates of one vector."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray


def median_select(points: NDArray[np.float64], order: Literal[1, 2] = 1) -> NDArray[np.float64]:
    """The point whose median distance to all points is smallest: a median of means in a metric space.

    If more than two thirds of the points are within e of the truth, the chosen one is within 3 e (Hsu and Sabato 2016;
    seed 001, Lemma 4). It throws away what the other points know, so use it where some of them may be anything; the
    mean of m equally good ones is better by sqrt(m).

    Parameters
    ----------
    points : array of shape (m, d)
    order : {1, 2}
        Of the norm that measures distances.

    Examples
    --------
    >>> median_select(np.array([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0]]))
    array([0., 0.])
    """
    distances = np.array([np.linalg.norm(points - point, ord=order, axis=1) for point in points])
    middle = -(-len(points) // 2) - 1  # counted with the distance of a point to itself
    return np.asarray(points[int(np.argmin(np.sort(distances, axis=1)[:, middle]))])
