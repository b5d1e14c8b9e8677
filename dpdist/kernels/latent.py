"""Models with something that nobody saw: the component of a row, the sign of a line, a missing cell.

Each is one object: the weight of the expectation step, the gradient of a row in O(d), the log-likelihood, what bounds
the gradient's second moment, and whether b and -b are the same model. ``sigma`` is known and public.

Everything is scaled by ``sigma^2``: by Fisher's identity the gradient of an expectation step at its own point,
``nabla q(b; b)``, is ``sigma^2`` times that of the log-likelihood of what was seen, whatever the model. A sum over rows
is of *minus* these gradients, like that of a loss. Seed 000, section 7.2, with its corrections: the weight is
``tanh(a)``, not half of the argument (D6).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.kernels.clip import check_bound
from dpdist.kernels.coordinate_gradients import coordinate_gradient
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.missing_cells import missing_cells_gradient
from dpdist.kernels.truncation import ScalarMap
from dpdist.losses.loss import Loss
from dpdist.losses.mixtures import SignedLabels, TwoCentres, TwoLines, log_cosh

Floats = NDArray[np.float64]
Units = NDArray[np.int64]
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
"""Of the normal law, for `Latent.information`."""


@dataclass(frozen=True)
class Latent(ABC):
    """A model of rows, given b.

    Attributes
    ----------
    noise_std : float
        sigma; public.
    symmetric : bool
        Whether b and -b are the same model.
    labelled : bool
        Whether rows have a label.
    empty_cells : bool
        Whether an entry that is NaN is a missing cell, rather than a fault of the row.
    """

    noise_std: float

    tag: ClassVar[str]
    symmetric: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    empty_cells: ClassVar[bool] = False
    assumes: ClassVar[str]
    """What `draw` takes for true of rows."""

    def __post_init__(self) -> None:
        check_bound(self.noise_std, "noise_std")

    @abstractmethod
    def weight(self, X: Floats, y: Any, b: Floats) -> Floats:
        """The expectation step: the mean of the sign of every row, given what was seen of it.

        Of missing cells, what b is multiplied by to have their means.
        """

    @abstractmethod
    def row_gradients(self, X: Floats, y: Any, b: Floats) -> Floats:
        """``sigma^2`` times the gradient of the log-likelihood of every row, of shape (n, d)."""

    @abstractmethod
    def log_likelihood(self, X: Floats, y: Any, b: Floats) -> Floats:
        """Of every row (of its label given its features, where it has one)."""

    @abstractmethod
    def draw(self, X: Floats, b: Floats, rng: np.random.Generator) -> tuple[Floats, Floats | None]:
        """Rows and labels of the model: X has features of the law of the rows, or standard normals in their place."""

    @abstractmethod
    def maximum(self, X: Floats, y: Any, b: Floats) -> Floats:
        """The next point of the EM algorithm without privacy."""

    @abstractmethod
    def second_moment(self, radius: float, entry_bound: float) -> float:
        """A bound of the mean square of a coordinate of a row's gradient, for ``||b||`` and its entries so bounded.

        It has no factor d (that of seed 000, Lemma 7.2.6, is not needed).
        """

    @abstractmethod
    def information(self, radius: float) -> tuple[float, float]:
        """``sigma^2`` times Fisher's information of a row at ``||b|| = radius``: along b, and across.

        What a step of size 1 takes off an error is this share of it; 1 if nothing were hidden.
        """

    @abstractmethod
    def clipped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, clip_norm: float, grid: float, rows: Units | None
    ) -> Units:
        """Exact sum of minus the gradients, each clipped to an l2 norm as it is added, in units of ``grid``."""

    @abstractmethod
    def mapped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, bounded: ScalarMap, grid: float, rows: Units | None
    ) -> Units:
        """The same with every coordinate mapped by ``bounded``."""

    @abstractmethod
    def descent(self, X: Floats, y: Any, u: Floats, b: Floats) -> Floats:
        """Minus the gradients, given ``u = X b``: `row_gradients` for whoever computes u in an order of its own."""


@dataclass(frozen=True)
class TwoComponents(Latent):
    """Rows ``y = z b + v`` with a fair sign z and ``v ~ N(0, sigma^2 I)``; the rows are X.

    The posterior mean of z is ``tanh(<b, y> / sigma^2)`` and the gradient ``tanh(.) y - b``, so that a step of size 1
    is one of the EM algorithm.

    >>> model = TwoComponents(1.0)
    >>> model.row_gradients(np.array([[3.0, 0.0]]), None, np.array([2.0, 1.0])).round(4)
    array([[ 1., -1.]])
    """

    tag: ClassVar[str] = "TwoComponents"
    labelled: ClassVar[bool] = False
    assumes: ClassVar[str] = (
        "Rests on the model: normal rows around b and -b, with the stated noise_std in every direction."
    )

    @property
    def loss(self) -> Loss:
        """Of the linear predictor; a row adds ``b`` to its gradient beside."""
        return TwoCentres(self.noise_std)

    def weight(self, X: Floats, y: Any, b: Floats) -> Floats:
        return np.asarray(np.tanh(X @ b / self.noise_std**2))

    def row_gradients(self, X: Floats, y: Any, b: Floats) -> Floats:
        return -self.descent(X, y, X @ b, b)

    def descent(self, X: Floats, y: Any, u: Floats, b: Floats) -> Floats:
        return np.asarray(b - np.tanh(u / self.noise_std**2)[:, None] * X)

    def log_likelihood(self, X: Floats, y: Any, b: Floats) -> Floats:
        square = self.noise_std**2
        constant = X.shape[1] / 2 * math.log(2 * math.pi * square)
        return np.asarray(log_cosh(X @ b / square) - (np.einsum("ij,ij->i", X, X) + b @ b) / (2 * square) - constant)

    def draw(self, X: Floats, b: Floats, rng: np.random.Generator) -> tuple[Floats, Floats | None]:
        return rng.choice([-1.0, 1.0], len(X))[:, None] * b + self.noise_std * X, None

    def maximum(self, X: Floats, y: Any, b: Floats) -> Floats:
        return np.asarray(self.weight(X, y, b) @ X / len(X))

    def second_moment(self, radius: float, entry_bound: float) -> float:
        return (math.hypot(entry_bound, self.noise_std) + entry_bound) ** 2

    def information(self, radius: float) -> tuple[float, float]:
        ratio = radius / self.noise_std
        y = ratio + NODES
        unsure = WEIGHTS / WEIGHTS.sum() / np.cosh(np.clip(ratio * y, -300, 300)) ** 2
        return float(1 - unsure @ y**2), float(1 - unsure.sum())

    def clipped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, clip_norm: float, grid: float, rows: Units | None
    ) -> Units:
        return glm_gradient(
            X, np.zeros(len(X)), b, self.loss, row_norm=math.inf, clip_norm=clip_norm, grid=grid, rows=rows, shift=b
        )

    def mapped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, bounded: ScalarMap, grid: float, rows: Units | None
    ) -> Units:
        return coordinate_gradient(X, np.zeros(len(X)), b, self.loss, bounded, grid=grid, rows=rows, shift=b)

    def mapped_responses(
        self, X: NDArray[Any], b: Floats, bounded: ScalarMap, grid: float, rows: Units | None
    ) -> Units:
        """`mapped_sum` of ``-tanh(.) y`` alone, whose mean is minus the next point of the EM algorithm."""
        return coordinate_gradient(X, np.zeros(len(X)), b, self.loss, bounded, grid=grid, rows=rows)


@dataclass(frozen=True)
class MixedLines(Latent):
    """Labels ``y = z <b, x> + v`` with a fair sign z and ``v ~ N(0, sigma^2)``.

    The posterior mean of z is ``tanh(y u / sigma^2)``, ``u = <b, x>``, and the gradient ``x (tanh(.) y - u)``.

    >>> model = MixedLines(1.0)
    >>> model.row_gradients(np.array([[1.0, 2.0]]), np.array([-3.0]), np.array([1.0, 0.5])).round(2)
    array([[1., 2.]])
    """

    tag: ClassVar[str] = "MixedLines"
    assumes: ClassVar[str] = (
        "Rests on the model: normal labels around two lines with the stated noise_std, and features like those of "
        "public_X, without which they are independent standard normal ones."
    )

    @property
    def loss(self) -> Loss:
        """Of the linear predictor."""
        return TwoLines(self.noise_std)

    def weight(self, X: Floats, y: Any, b: Floats) -> Floats:
        return np.asarray(np.tanh(y * (X @ b) / self.noise_std**2))

    def row_gradients(self, X: Floats, y: Any, b: Floats) -> Floats:
        return -self.descent(X, y, X @ b, b)

    def descent(self, X: Floats, y: Any, u: Floats, b: Floats) -> Floats:
        return np.asarray((u - y * np.tanh(y * u / self.noise_std**2))[:, None] * X)

    def log_likelihood(self, X: Floats, y: Any, b: Floats) -> Floats:
        u, square = X @ b, self.noise_std**2
        return np.asarray(
            log_cosh(y * u / square) - (y * y + u * u) / (2 * square) - math.log(2 * math.pi * square) / 2
        )

    def draw(self, X: Floats, b: Floats, rng: np.random.Generator) -> tuple[Floats, Floats | None]:
        return X, rng.choice([-1.0, 1.0], len(X)) * (X @ b) + self.noise_std * rng.standard_normal(len(X))

    def maximum(self, X: Floats, y: Any, b: Floats) -> Floats:
        return np.asarray(np.linalg.solve(X.T @ X, X.T @ (self.weight(X, y, b) * y)))

    def second_moment(self, radius: float, entry_bound: float) -> float:
        return 3 * (math.hypot(radius, self.noise_std) + radius) ** 2

    def information(self, radius: float) -> tuple[float, float]:
        ratio, law = radius / self.noise_std, np.outer(WEIGHTS, WEIGHTS) / WEIGHTS.sum() ** 2
        u = ratio * NODES[:, None]
        y = u + NODES
        sure = 1 - (y / np.cosh(np.clip(y * u, -300, 300))) ** 2
        return float(np.sum(law * NODES[:, None] ** 2 * sure)), float(np.sum(law * sure))

    def clipped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, clip_norm: float, grid: float, rows: Units | None
    ) -> Units:
        return glm_gradient(X, y, b, self.loss, row_norm=math.inf, clip_norm=clip_norm, grid=grid, rows=rows)

    def mapped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, bounded: ScalarMap, grid: float, rows: Units | None
    ) -> Units:
        return coordinate_gradient(X, y, b, self.loss, bounded, grid=grid, rows=rows)

    def response_sum(
        self, X: NDArray[Any], y: Any, b: Floats, row_norm: float, clip_norm: float, grid: float, rows: Units | None
    ) -> Units:
        """Exact sum of ``-tanh(.) y x`` of rows of norm ``row_norm`` at most, each clipped to ``clip_norm``."""
        loss = SignedLabels(self.noise_std)
        return glm_gradient(X, y, b, loss, row_norm=row_norm, clip_norm=clip_norm, grid=grid, rows=rows)


@dataclass(frozen=True)
class MissingCells(Latent):
    """Labels ``y = <b, x> + v`` with normal v, of standard normal rows x of which nobody saw the cells that are NaN.

    With ``r`` the residual of the cells that were seen and ``nu = sigma^2 + sum of b_j^2`` over the others, which have
    the mean ``b_j r / nu``, the gradient is ``x_j r sigma^2 / nu`` where a cell was seen and ``b_j (r^2 / nu - 1)
    sigma^2 / nu`` where it was not. The last factor is missing in print, which is another estimating equation (D10).

    Parameters
    ----------
    noise_std : float
    missing_rate : float, default 0.1
        Public guess of the share of cells that are missing, for what is expected of a fit; no gradient depends on it.
    exact : bool, default True
        False takes the gradient as printed.

    >>> model = MissingCells(1.0)
    >>> model.row_gradients(np.array([[2.0, np.nan]]), np.array([3.0]), np.array([1.0, 1.0]))
    array([[ 1.  , -0.25]])
    """

    tag: ClassVar[str] = "MissingCells"
    assumes: ClassVar[str] = (
        "Rests on the model: normal labels with the stated noise_std, as many cells missing at random as missing_rate "
        "says, and features like those of public_X, without which they are independent standard normal ones."
    )
    symmetric: ClassVar[bool] = False
    empty_cells: ClassVar[bool] = True

    missing_rate: float = 0.1
    exact: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.missing_rate < 1:
            raise ValueError(f"missing_rate must be a share in [0, 1), got {self.missing_rate!r}")

    def _hidden(self, X: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
        """The cells that were seen, b where they were not, and the variance of a label given the former."""
        missing = np.isnan(X)
        lost, nu = np.where(missing, b, 0.0), np.full(len(X), self.noise_std**2)
        for column in lost.T:  # in an order that is the row's own
            nu += column * column
        return np.where(missing, 0.0, X), lost, nu

    def weight(self, X: Floats, y: Any, b: Floats) -> Floats:
        seen, _, nu = self._hidden(X, b)
        return np.asarray((y - seen @ b) / nu)

    def row_gradients(self, X: Floats, y: Any, b: Floats) -> Floats:
        return -self.descent(X, y, np.where(np.isnan(X), 0.0, X) @ b, b)

    def descent(self, X: Floats, y: Any, u: Floats, b: Floats) -> Floats:
        seen, lost, nu = self._hidden(X, b)
        r, share = y - u, self.noise_std**2 / nu
        ratio = (r * r / nu - 1) * (share if self.exact else 1.0)
        return np.asarray(-(share * r)[:, None] * seen - ratio[:, None] * lost)

    def log_likelihood(self, X: Floats, y: Any, b: Floats) -> Floats:
        seen, _, nu = self._hidden(X, b)
        return np.asarray(-((y - seen @ b) ** 2) / (2 * nu) - np.log(2 * math.pi * nu) / 2)

    def draw(self, X: Floats, b: Floats, rng: np.random.Generator) -> tuple[Floats, Floats | None]:
        y = X @ b + self.noise_std * rng.standard_normal(len(X))
        return np.where(rng.random(X.shape) < self.missing_rate, np.nan, X), y

    def maximum(self, X: Floats, y: Any, b: Floats) -> Floats:
        seen, lost, nu = self._hidden(X, b)
        mean = seen + (self.weight(X, y, b))[:, None] * lost
        moment = mean.T @ mean + np.diag(np.isnan(X).sum(axis=0)) - (lost / nu[:, None]).T @ lost
        return np.asarray(np.linalg.solve(moment, mean.T @ y))

    def second_moment(self, radius: float, entry_bound: float) -> float:
        square = self.noise_std**2
        label = 3 * (4 * radius**2 + square)
        return max(label, entry_bound**2 * (1 + label * (4 * radius**2 + square) / square**2))

    def information(self, radius: float) -> tuple[float, float]:
        p, square = self.missing_rate, self.noise_std**2
        nu = square + p * radius**2
        across = (1 - p) * square / nu
        return min(across + 2 * square * (p * radius / nu) ** 2, 1.0), across

    def clipped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, clip_norm: float, grid: float, rows: Units | None
    ) -> Units:
        return missing_cells_gradient(X, y, b, self.noise_std, clip_norm, grid=grid, exact=self.exact, rows=rows)

    def mapped_sum(
        self, X: NDArray[Any], y: Any, b: Floats, bounded: ScalarMap, grid: float, rows: Units | None
    ) -> Units:
        return missing_cells_gradient(X, y, b, self.noise_std, bounded, grid=grid, exact=self.exact, rows=rows)


def distance(model: Latent, estimate: ArrayLike, truth: ArrayLike) -> float:
    """``||estimate - truth||``, over both signs where the model cannot tell them apart.

    >>> distance(TwoComponents(1.0), [-1.0, 0.0], [1.0, 0.0])
    0.0
    """
    estimate, truth = np.asarray(estimate, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    same = float(np.linalg.norm(estimate - truth))
    return min(same, float(np.linalg.norm(estimate + truth))) if model.symmetric else same
