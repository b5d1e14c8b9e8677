"""Two normal clusters that are moved into a box: their rows, and the means of kernels under them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from dpdist.problems.generation import Rows
from dpdist.problems.metrics import Array

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True)
class TwoNormals:
    """A mixture of two normal laws with the same standard deviation in all columns, clipped to ``[low, high]``.

    Examples
    --------
    >>> law = TwoNormals(0.5, 0.2, -1.0, 1.0)
    >>> centres = np.array([[-0.4], [0.5]])
    >>> law.rows(centres)(np.random.default_rng(0), (3, 1)).shape
    (3, 1)
    >>> law.kernel_means(centres, np.array([[0.0]]), 1e6).round(6).tolist()
    [1.0]
    """

    share: float
    spread: float
    low: float
    high: float
    """Of the first cluster, of both, and of the box."""

    def rows(self, centres: Array) -> Rows:
        """Draws of rows around these centres, one for each cluster."""

        def draw(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
            own = (generator.random(shape[0]) >= self.share).astype(np.int64)
            return np.clip(centres[own] + self.spread * generator.standard_normal(shape), self.low, self.high)

        return draw

    def kernel_means(self, centres: Array, points: Array, bandwidth: float) -> Array:
        """``E exp(-|x - at|^2 / (2 bandwidth^2))`` at every point, by quadrature.

        The columns are independent within a cluster, and what is clipped lies at the ends.
        """
        half = (self.high - self.low) / 2
        nodes = self.low + half * (_NODES + 1)
        kernels = np.exp(-((nodes - points[..., None]) ** 2) / (2 * bandwidth**2))
        ends = [np.exp(-((end - points) ** 2) / (2 * bandwidth**2)) for end in (self.low, self.high)]
        found = np.zeros(len(points))
        for share, centre in zip((self.share, 1 - self.share), centres, strict=True):
            away = (nodes - centre[:, None]) / self.spread
            law = np.exp(-(away**2) / 2) / (self.spread * math.sqrt(2 * math.pi))
            inside = np.einsum("ijk,jk,k->ij", kernels, law, half * _WEIGHTS)
            beyond = ends[0] * ndtr((self.low - centre) / self.spread) + ends[1] * ndtr(
                (centre - self.high) / self.spread
            )
            found += share * (inside + beyond).prod(axis=1)
        return found
