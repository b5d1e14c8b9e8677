"""Second moments: of a row alone, and of features together with a label, which is what linear models need to know.

`Products` is the vector ``svec(x x') / r^2`` of a row. In `JointStatistics` one vector of the unit ball holds both,
``(sqrt(a) svec(x x') / r^2, sqrt(1 - a) x y / (r B))`` for rows of norm at most r and labels of size at most B. Its
norm is at most 1 for any record, so one report of a vector tells the server ``E x x'`` and ``E x y`` (seed 004,
Algorithm 1, where they are two reports with half of the budget each).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.clip import clip_l2, unit_l2
from dpdist.kernels.moments import moment_grid, second_moment
from dpdist.kernels.packed import packed_scale, packed_size, products_into, smat
from dpdist.local.survey.protocol import Block, Domain, Statistic

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Products(Statistic):
    """``svec(x x') / r^2`` of rows of norm at most r: a vector of the unit ball that says all about ``x x'``.

    ``svec`` keeps inner products, and ``<x x', z z'> = <x, z>^2`` is never negative: two values are at most
    ``sqrt(2)`` apart, which rows at right angles attain. A row with a number that is not finite gives zeros.

    Parameters
    ----------
    n_features : int
    row_norm : float
        r: longer rows are scaled down to it.
    unit_rows : bool, default False
        Scale shorter rows up to it as well; a row of zeros stays what it is.

    Examples
    --------
    >>> statistic = Products(2, row_norm=5.0)
    >>> value = statistic.values({"X": np.array([[3.0, 4.0], [6.0, 8.0]])})
    >>> statistic.matrix(statistic.restore(value[1])).round(6).tolist()
    [[9.0, 12.0], [12.0, 16.0]]
    """

    tag: ClassVar[str] = "Products"

    n_features: int
    row_norm: float
    unit_rows: bool = False

    domain: ClassVar[Domain] = "ball"
    of_one_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1e-60 <= self.row_norm <= 1e60:
            raise BudgetError(f"Products needs a positive row_norm, got {self}")

    @property
    def size(self) -> int:
        return packed_size(self.n_features)

    @property
    def diameter(self) -> float:
        """``sqrt(2)``: of rows at right angles."""
        return math.sqrt(2.0)

    def values(self, block: Block, state: Any = None) -> Floats:
        rows = (unit_l2 if self.unit_rows else clip_l2)(block["X"], self.row_norm)
        out = np.empty((len(rows), self.size))
        products_into(np.ascontiguousarray(rows / self.row_norm), 1.0, out)
        return out

    def total(self, block: Block, state: Any = None) -> Floats:
        """From ``X'X`` of the block: no array of all its products is made."""
        packed = second_moment(block["X"], self.row_norm, unit=self.unit_rows)
        scale = moment_grid(self.row_norm) / self.row_norm**2
        return np.asarray(packed * (scale * packed_scale(self.n_features)), dtype=np.float64)

    def restore(self, mean: Floats) -> Floats:
        return mean * self.row_norm**2

    def matrix(self, estimate: Floats) -> Floats:
        """The symmetric matrix of what `LocalProtocol.estimate` gives; its noise may make eigenvalues negative."""
        return np.asarray(smat(estimate))


@dataclass(frozen=True)
class JointStatistics(Statistic):
    """``(sqrt(a) svec(x x') / r^2, sqrt(1 - a) x y / (r B))``, a vector of the unit ball.

    A record with a number that is not finite gives zeros. `moments` makes the two means of an estimate.

    Parameters
    ----------
    n_features : int
    row_norm : float
        r: longer rows are scaled down to it, with their labels, so that ``E x y = E x x' theta`` stays true.
    label_bound : float
        B: labels are clipped to ``[-B, B]``.
    share : float in (0, 1)
        a: how much of the squared norm the second moments get.
    feature_bound : float, optional
        Entries are clipped at it before (for heavy tails).

    Examples
    --------
    >>> statistic = JointStatistics(2, row_norm=2.0, label_bound=1.0, share=0.6)
    >>> value = statistic.values({"X": np.array([[1.0, 1.0]]), "y": np.array([0.5])})
    >>> S, b = statistic.moments(statistic.restore(value[0]))
    >>> S.round(12).tolist(), b.round(12).tolist()
    ([[1.0, 1.0], [1.0, 1.0]], [0.5, 0.5])
    """

    tag: ClassVar[str] = "JointStatistics"

    n_features: int
    row_norm: float
    label_bound: float
    share: float
    feature_bound: float | None = None

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")
    domain: ClassVar[Domain] = "ball"

    def __post_init__(self) -> None:
        bounds = (self.row_norm, self.label_bound, 1.0 if self.feature_bound is None else self.feature_bound)
        if not (all(1e-60 <= bound <= 1e60 for bound in bounds) and 0 < self.share < 1):
            raise BudgetError(f"JointStatistics needs positive bounds and a share between 0 and 1, got {self}")

    @property
    def size(self) -> int:
        return packed_size(self.n_features) + self.n_features

    @property
    def diameter(self) -> float:
        """Largest distance of two values: ``sqrt(2 a + 4 (1 - a))``, since ``<svec(x x'), svec(z z')> >= 0``."""
        return math.sqrt(2 * self.share + 4 * (1 - self.share))

    @property
    def matrix_scale(self) -> float:
        """What the entries of ``svec(E x x')`` are times those of the value: their noise, too."""
        return self.row_norm**2 / math.sqrt(self.share)

    @property
    def vector_scale(self) -> float:
        """The same for ``E x y``."""
        return self.row_norm * self.label_bound / math.sqrt(1 - self.share)

    def values(self, block: Block, state: Any = None) -> Floats:
        cuts = {"row_norm": self.row_norm, "feature_bound": self.feature_bound}
        X, y = bounded_rows(block["X"], block["y"], scale_labels=True, **cuts)
        labels = np.clip(y, -self.label_bound, self.label_bound)
        out = np.empty((len(X), self.size))
        products_into(X, 1 / self.matrix_scale, out)
        np.multiply(X, (labels / self.vector_scale)[:, None], out=out[:, packed_size(self.n_features) :])
        return out

    def restore(self, mean: Floats) -> Floats:
        cut = packed_size(self.n_features)
        return np.concatenate([mean[:cut] * self.matrix_scale, mean[cut:] * self.vector_scale])

    def moments(self, estimate: Floats) -> tuple[Floats, Floats]:
        """``E x x'`` and ``E x y`` of what `LocalProtocol.estimate` gives.

        The matrix is symmetric; its noise may give it negative eigenvalues.
        """
        cut = packed_size(self.n_features)
        return smat(estimate[:cut]), estimate[cut:]
