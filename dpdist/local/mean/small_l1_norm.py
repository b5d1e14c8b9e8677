"""Means that are known to have a small l1 norm, of vectors in a ball."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import L1Ball
from dpdist.kernels.clip import clip_l2
from dpdist.local.statistics.bounded_values import Ball
from dpdist.local.survey.protocol import Block, Domain, Statistic
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed
from dpdist.solvers.linear import recover_l1

COLUMNS = 256
"""So many columns of the projection are made at a time."""
ROW_BITS, PROJECTION_BITS = 24, 18
"""Vectors and projection are rounded to so many binary digits; then products add up exactly, in any order."""


@dataclass(frozen=True)
class Projected(Statistic):
    """A vector of the ball, multiplied by a public Gaussian matrix with few rows.

    The rows of ``G`` (``n_projections`` times ``n_features``, entries N(0, 1) / sqrt(p)) are made from the public seed
    where they are needed, a block of columns at a time, and never sent. ``G x`` is scaled down to norm
    ``1 + 2 / sqrt(p)`` where it is longer: a vector that knows G could be longer by ``sqrt(d / p)``, which would break
    the guarantee of the report (seed 001, Algorithm 2, forgets it); for any other vector it is rare.

    Parameters
    ----------
    n_features, n_projections : int
    radius : float
        Of the ball.
    seed : int
        Public.
    """

    tag: ClassVar[str] = "Projected"

    n_features: int
    n_projections: int
    radius: float = 1.0
    seed: int = 0

    domain: ClassVar[Domain] = "ball"

    @property
    def size(self) -> int:
        return self.n_projections

    @property
    def limit(self) -> float:
        """To which norm projected vectors of the unit ball are scaled down."""
        return 1 + 2 / math.sqrt(self.n_projections)

    @property
    def unit(self) -> float:
        """What a value of 1 stands for."""
        return self.radius * self.limit

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        V = np.ldexp(np.rint(np.ldexp(Ball(self.n_features, self.radius).values(block), ROW_BITS)), -ROW_BITS)
        products = np.zeros((len(V), self.n_projections))
        for start, G in self._columns():
            products += V[:, start : start + G.shape[1]] @ G.T
        return clip_l2(products / (math.sqrt(self.n_projections) * self.limit), 1.0)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.unit * mean

    @property
    def matrix(self) -> NDArray[np.float64]:
        """G, as the server needs it."""
        return np.hstack([G for _, G in self._columns()]) / math.sqrt(self.n_projections)

    def recover(self, mean: NDArray[np.float64], l1_radius: float) -> NDArray[np.float64]:
        """The vector of that l1 norm whose projection fits the mean of the projections best."""
        return recover_l1(self.matrix, mean, l1_radius)

    def _columns(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        stream = Stream(run_key_from_seed(self.seed), "gaussian projection", rows=self.n_projections)
        for number, start in enumerate(range(0, self.n_features, COLUMNS)):
            width = min(COLUMNS, self.n_features - start)
            normals = stream.generator(number).standard_normal((COLUMNS, self.n_projections))[:width].T
            yield start, np.ldexp(np.rint(np.ldexp(normals, PROJECTION_BITS)), -PROJECTION_BITS)


def n_projections(n_rows: int, n_features: int, l1_ratio: float, epsilon: float) -> int:
    """``l1_ratio epsilon sqrt(n)``, rounded up: more rows would add noise, fewer lose the vector (seed 001, Theorem 2).

    Parameters
    ----------
    n_rows, n_features : int
    l1_ratio : float
        The bound of the l1 norm of the mean, over that of the l2 norm of the vectors.
    epsilon : float
    """
    return min(n_features, math.ceil(l1_ratio * epsilon * math.sqrt(n_rows)))


def denoise(mean: NDArray[np.float64], l1_radius: float | None, standard_error: float) -> NDArray[np.float64]:
    """Entries below ``sqrt(2 ln d)`` standard errors become 0; the rest is projected on the l1 ball, if there is one.

    Thresholding is near-minimax over l1 balls (Donoho and Johnstone 1994): the squared error is of the order of
    ``l1_radius standard_error sqrt(ln d)``, whatever the dimension. So is that of the projection alone, but it shrinks
    large entries, and lets noise through where the mean does not fill the ball.
    """
    kept = np.where(np.abs(mean) > standard_error * math.sqrt(2 * math.log(max(mean.size, 2))), mean, 0.0)
    return kept if l1_radius is None else L1Ball(l1_radius).project(kept)
