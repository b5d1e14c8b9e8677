"""Laplace reports of all products of a row: the oldest way, kept for comparison.

The noise of an entry grows with the number of columns, where that of `dpdist.local.randomisers.vectors` does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.packed import packed_scale, packed_size
from dpdist.local.randomisers.scalars import LAPLACE_TAIL
from dpdist.local.survey.protocol import Domain, Randomiser
from dpdist.privacy.randomness.draws import Draws
from dpdist.privacy.randomness.inversion import laplace_by_inversion

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LaplaceProducts(Randomiser):
    """The upper triangle of ``x x'`` plus Laplace noise of scale ``(p / sqrt(2) + 1) / epsilon`` on every entry.

    Two such triangles differ by ``(||A||_11 + ||diag A||_1) / 2`` in the l1 norm, ``A = x x' - z z'``, and that is at
    most ``(sqrt(2) p + 2) / 2``: there are p^2 entries, ``||A||_F <= sqrt(2)``, and the diagonals are not negative with
    sums of at most 1. **This holds for products of one row with itself only**: any other vector of the unit ball is
    refused (`LocalProtocol`).

    Entries are rounded to ``1 / steps`` and the noise is discrete Laplace, drawn exactly, for the bound in units plus
    one for each entry: pure epsilon without a floating-point gap (seed 000, remark on l.8814; spec 06, section 2).

    Examples
    --------
    >>> round(LaplaceProducts(210, epsilon=1.0).noise_std, 1)
    30.3
    """

    tag: ClassVar[str] = "LaplaceProducts"

    size: int
    epsilon: float

    name: ClassVar[str] = "laplace-products"
    domain: ClassVar[Domain] = "ball"
    for_one_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.size >= 1 and self.epsilon > 0 and packed_size(self.n_features) == self.size):
            raise BudgetError(f"{self.name} needs a size of p (p + 1) / 2 and epsilon > 0, got {self}")

    @property
    def n_features(self) -> int:
        """p."""
        return (math.isqrt(8 * self.size + 1) - 1) // 2

    @property
    def l1_diameter(self) -> float:
        """Largest l1 distance of two triangles."""
        return self.n_features / math.sqrt(2) + 1

    @property
    def steps(self) -> int:
        """Units from 0 to 1: as many as leave room for the noise in 32 bits."""
        room = 2**30 / (1 + LAPLACE_TAIL * (self.l1_diameter + 1) / self.epsilon)
        return max(1, math.floor(min(2**20, room)))

    @property
    def noise_scale(self) -> int:
        """Of the noise, in units; rounded up, because a sampler of whole scales is faster."""
        distance = math.ceil(self.steps * self.l1_diameter * (1 + 1e-12)) + self.size + 1
        return math.ceil(distance / Fraction(self.epsilon))

    @property
    def width(self) -> int:
        return 2 * self.size

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype((np.int64, (self.size,)))

    @property
    def units(self) -> int:
        return self.steps + LAPLACE_TAIL * self.noise_scale

    @property
    def grid(self) -> float:
        return 1.0 / self.steps

    @property
    def noise_std(self) -> float:
        """Of an entry off the diagonal, which ``svec`` multiplies by ``sqrt(2)``; less on it."""
        return 2 * self.noise_scale / self.steps

    @property
    def entry_std(self) -> float:
        """Of an entry of the matrix, on the diagonal and off it."""
        return math.sqrt(2) * self.noise_scale / self.steps

    @property
    def influence(self) -> float:
        return 2 * math.sqrt(2) * self.units * self.grid

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        triangle = np.clip(np.nan_to_num(values / packed_scale(self.n_features)), -1.0, 1.0)
        noise = laplace_by_inversion(self.noise_scale, values.size, draws).reshape(values.shape)
        steps = np.rint(triangle * self.steps).astype(np.int64)
        return np.clip(steps + noise, -self.units, self.units).astype(np.int64)

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(reports.sum(axis=0, dtype=np.int64))

    def decode(self, total: Floats, n_users: int) -> Floats:
        return total * packed_scale(self.n_features) / n_users

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((np.abs(reports) <= self.units).all(axis=1))
