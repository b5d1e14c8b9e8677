"""Products of cosines of a record's numbers: what every smooth function of few numbers is nearly a sum of."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.statistics.ticketed import Ticketed
from dpdist.local.survey.protocol import Block

Floats = NDArray[np.float64]


@lru_cache(maxsize=16)
def frequencies(n_features: int, degree: int) -> NDArray[np.int64]:
    """All ``(r_1, ..., r_p)`` below ``degree`` but that of zeros, whose product is the constant 1.

    >>> frequencies(2, 2).tolist()
    [[0, 1], [1, 0], [1, 1]]
    """
    found = np.array(list(itertools.product(range(degree), repeat=n_features))[1:], np.int64)
    found.flags.writeable = False
    return found


@dataclass(frozen=True)
class Cosines(Ticketed):
    """``prod_j cos(r_j arccos u_j) = prod_j T_{r_j}(u_j)`` of numbers u that are scaled to [-1, 1], for all r.

    T_r are the Chebyshev polynomials; the constant one is not asked about. A smooth function needs the slow cosines
    most: r has ``round(t / (1 + |r|))`` tickets, at least one. A record with a number that is not finite gives zeros.

    Parameters
    ----------
    n_features : int
    low, high : float
        Numbers are clipped to the range.
    degree : int
        t: the frequencies are below it.

    Examples
    --------
    >>> Cosines(1, 0.0, 1.0, degree=3).n_tickets.tolist()
    [2, 1]
    """

    tag: ClassVar[str] = "Cosines"

    n_features: int
    low: float
    high: float
    degree: int

    @property
    def n_tickets(self) -> NDArray[np.int64]:
        return _tickets(self.n_features, self.degree)

    def scaled(self, X: NDArray[Any]) -> Floats:
        """Numbers of the range as numbers of [-1, 1]."""
        centre, radius = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        return np.clip((np.clip(np.asarray(X, np.float64), self.low, self.high) - centre) / radius, -1.0, 1.0)

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> Floats:
        X = np.asarray(block["X"]).reshape(len(block["X"]), self.n_features)
        known = np.isfinite(X).all(axis=1, keepdims=True)
        u = self.scaled(np.where(known, X, 0.0))
        asked = _asked(self.n_features, self.degree)[coordinates]
        product = np.where(known, np.ones(coordinates.shape), 0.0)
        for j in range(self.n_features):
            product *= _chebyshev(u[:, j, None], asked[:, :, j], self.degree)
        return product


def _chebyshev(u: Floats, r: NDArray[np.int64], degree: int) -> Floats:
    """``T_r(u)`` for every user's r: by the recurrence, of which each step rounds alike on any machine."""
    found = np.where(r == 0, 1.0, u)
    before, last = np.ones_like(u), u
    for k in range(2, degree):
        before, last = last, np.clip(2 * u * last - before, -1.0, 1.0)
        found = np.where(r == k, last, found)
    return found


@lru_cache(maxsize=16)
def _tickets(n_features: int, degree: int) -> NDArray[np.int64]:
    lengths = np.sqrt((frequencies(n_features, degree) ** 2).sum(axis=1))
    found = np.maximum(np.rint(degree / (1 + lengths)), 1).astype(np.int64)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=16)
def _asked(n_features: int, degree: int) -> NDArray[np.int64]:
    """The frequencies of every ticket."""
    return np.repeat(frequencies(n_features, degree), _tickets(n_features, degree), axis=0)
