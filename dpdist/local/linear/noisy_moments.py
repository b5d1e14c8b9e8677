"""Noisy copies of the records, of which the server keeps the second moments only.

Every user sends ``z = v + N(0, s^2 I)``. The server adds up ``z z'`` and takes the noise off again,
``E z z' = v v' + s^2 I``: the noise that is left has the size ``s^2``, not s, which is why reports of the products
(`dpdist.local.statistics.second_moments`) need far fewer users (seed 001, Algorithms 3 and 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.local.randomisers.vectors import TAIL
from dpdist.local.survey.protocol import Domain, Randomiser
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.randomness.draws import Draws

Floats = NDArray[np.float64]
FINENESS = 2.0**12
"""Reports are rounded to this part of their noise: 4096 products of two add up to less than 2**53, exactly."""
_PANEL = 4096


@dataclass(frozen=True)
class GaussianMoments(Randomiser):
    """A vector of the unit ball with normal noise of standard deviation ``s = 2 / mu``; ``z z'`` is added up.

    As `dpdist.local.randomisers.vectors.GaussianVector`: 2 is the diameter of the ball, and mu the largest for which
    mu-GDP is (epsilon, delta)-DP; that report is rounded to ``s / 4096`` (to ``1 / 4096`` where s < 1) and clamped at
    13 s. The estimate is the upper triangle, row by row, of the mean of ``z z' - (s^2 + g^2/12) I``, where the last
    part is what the rounding to multiples of g adds: unbiased for ``v v'``, with variance ``s^4 + s^2 (v_i^2 +
    v_j^2)``, twice that on the diagonal.

    The law of the sum of ``z z'`` over n users with the rows V is that of ``(R + A)'(R + A) + W``, where
    ``V'V = R'R``, so that ``V = Q R`` with orthonormal columns of Q, A has independent N(0, s^2) entries, and W is a
    Wishart matrix with ``n - size`` degrees of freedom, drawn by Bartlett's decomposition: rotated noise is noise.

    Examples
    --------
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> moments = GaussianMoments(2, epsilon=8.0, delta=1e-6)
    >>> values = np.tile([0.6, -0.8], (4000, 1))
    >>> found = moments.decode(moments.summarise(values, SystemDraws()) * moments.grid, 4000)
    >>> bool(np.abs(found - [0.36, -0.48, 0.64]).max() < 8 * moments.noise_std / 4000**0.5)
    True
    """

    tag: ClassVar[str] = "GaussianMoments"

    size: int
    epsilon: float
    delta: float = 1e-6

    name: ClassVar[str] = "gaussian-moments"
    domain: ClassVar[Domain] = "ball"
    has_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.size >= 1 and self.epsilon > 0 and 0 < self.delta < 1):
            raise BudgetError(f"{self.name} needs a size of at least 1, epsilon > 0 and delta in (0, 1), got {self}")

    @property
    def cost(self) -> Cost:
        return Cost("gaussian", _mu(self.epsilon, self.delta))

    @property
    def width(self) -> int:
        return self.size

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype((np.int32, (self.size,)))

    @property
    def copy_std(self) -> float:
        """Standard deviation s of the noise of a coordinate of z."""
        return 2.0 / _mu(self.epsilon, self.delta)

    @property
    def noise_std(self) -> float:
        return math.sqrt(2 * self.copy_std**4 + 4 * self.copy_std**2)

    @property
    def copy_grid(self) -> float:
        """g: what a unit of a report stands for."""
        return max(1.0, self.copy_std) / FINENESS

    @property
    def _limit(self) -> int:
        return int((TAIL + 1) * FINENESS)

    @property
    def influence(self) -> float:
        return 2 * self._limit**2 * self.grid

    @property
    def units(self) -> int:
        return self._limit**2

    @property
    def grid(self) -> float:
        return self.copy_grid**2

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int32]:
        noisy = values + self.copy_std * draws.normals(values.shape)
        return np.clip(np.rint(noisy / self.copy_grid), -self._limit, self._limit).astype(np.int32)

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        total = np.zeros((self.size, self.size), np.int64)
        for start in range(0, len(reports), _PANEL):
            panel = reports[start : start + _PANEL].astype(np.float64)
            total += (panel.T @ panel).astype(np.int64)
        return total[np.triu_indices(self.size)]

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        n, d = values.shape
        std = math.sqrt(self._noise_variance)
        if n <= 2 * d:  # as many numbers as the users would draw
            Z = values + std * generator.standard_normal(values.shape)
            gram = Z.T @ Z
        else:
            squares, axes = np.linalg.eigh(values.T @ values)
            R = np.sqrt(np.maximum(squares, 0.0))[:, None] * axes.T
            A = R + std * generator.standard_normal((d, d))
            gram = A.T @ A + std**2 * _wishart(n - d, d, generator)
        return np.rint(gram[np.triu_indices(d)] / self.grid).astype(np.int64)

    def decode(self, total: Floats, n_users: int) -> Floats:
        rows, columns = np.triu_indices(self.size)
        return total / n_users - np.where(rows == columns, self._noise_variance, 0.0)

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((np.abs(reports.astype(np.int64)) <= self._limit).all(axis=1))

    @property
    def _noise_variance(self) -> float:
        """Of a coordinate of a rounded report."""
        return self.copy_std**2 + self.copy_grid**2 / 12


@dataclass(frozen=True)
class GaussianMeanAndMoments(GaussianMoments):
    """The same reports, of which the server keeps the sum as well: the mean of v, then the packed mean of ``v v'``.

    The law of both sums is that of `GaussianMoments` with a column of ones beside V, to which no noise is added: Q R =
    (V, 1), and the sum of the reports is ``r' (R + A)``, where r is the last column of R.

    Examples
    --------
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> randomiser = GaussianMeanAndMoments(2, epsilon=8.0, delta=1e-6)
    >>> values = np.tile([0.6, -0.8], (4000, 1))
    >>> found = randomiser.decode(randomiser.summarise(values, SystemDraws()) * randomiser.grid, 4000)
    >>> bool(np.abs(found - [0.6, -0.8, 0.36, -0.48, 0.64]).max() < 8 * randomiser.noise_std / 4000**0.5)
    True
    """

    tag: ClassVar[str] = "GaussianMeanAndMoments"

    name: ClassVar[str] = "gaussian-mean-and-moments"

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.concatenate([reports.sum(axis=0, dtype=np.int64), super().accumulate(reports)])

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        n, d = values.shape
        std = math.sqrt(self._noise_variance)
        if n <= 2 * d:
            Z = values + std * generator.standard_normal(values.shape)
            total, gram = Z.sum(axis=0), Z.T @ Z
        else:
            # the column of ones comes first, so that r is (r_0, 0, ..., 0)
            R = np.asarray(np.linalg.qr(np.column_stack([np.ones(n), values]), mode="r"))
            noisy = R[:, 1:] + std * generator.standard_normal((d + 1, d))
            total = R[0, 0] * noisy[0]
            gram = noisy.T @ noisy + std**2 * _wishart(n - d - 1, d, generator)
        sums = np.concatenate([total / self.copy_grid, gram[np.triu_indices(d)] / self.grid])
        return np.asarray(np.rint(sums).astype(np.int64))

    def decode(self, total: Floats, n_users: int) -> Floats:
        mean = total[: self.size] / (self.copy_grid * n_users)  # the sum counts in g, and all was given in g^2
        return np.concatenate([mean, super().decode(total[self.size :], n_users)])


@lru_cache(maxsize=64)
def _mu(epsilon: float, delta: float) -> float:
    return gdp_mu(epsilon, delta)


def _wishart(freedom: int, size: int, generator: np.random.Generator) -> Floats:
    """``G'G`` for a standard normal G of shape (freedom, size), ``freedom >= size`` (Bartlett 1933)."""
    T = np.tril(generator.standard_normal((size, size)), -1)
    T[np.diag_indices(size)] = np.sqrt(generator.chisquare(freedom - np.arange(size)))
    return np.asarray(T @ T.T)
