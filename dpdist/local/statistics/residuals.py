"""What a user tells about a linear model at a public parameter: features times a bounded residual.

``x clip(f(<x, theta>) - y, -c, c) f'(<x, theta>)`` is the gradient of the squared loss of one record, with a bound that
holds for any record. At ``theta = 0`` it is ``-x clip(y, -c, c)``, whose mean is all that a linear model with known
covariance needs.

Seed 000, Algorithms 5.3.41 and 5.3.44, and seed 004, Algorithms 2 and 4, take ``|<x, theta>|`` for bounded by
``||x||_inf ||theta||_2`` and clip nothing; here the clipped residual is the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.local.linear.links import IDENTITY, LARGEST_LABEL, Link
from dpdist.local.survey.protocol import Block, Domain, Statistic

Floats = NDArray[np.float64]
SMALLEST, LARGEST = 1e-60, 1e60
"""Of public bounds: beyond, squares overflow or vanish."""
LinkMode = Literal["invert", "gradient"]


@dataclass(frozen=True)
class _Residuals(Statistic):
    """Common part; see the subclasses."""

    n_features: int
    residual_bound: float
    feature_bound: float | None = None
    row_norm: float | None = None
    link: Link = IDENTITY
    link_mode: LinkMode = "invert"

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")

    def __post_init__(self) -> None:
        needed = self.feature_bound if self.domain == "box" else self.row_norm
        given = [self.residual_bound, needed, self.feature_bound, self.row_norm]
        low, high = self.link.slopes
        if needed is None or not all(SMALLEST <= bound <= LARGEST for bound in given if bound is not None):
            name = "feature_bound" if self.domain == "box" else "row_norm"
            raise BudgetError(f"{type(self).__name__} needs positive bounds, {name} among them, got {self}")
        if not 0 < low <= high <= LARGEST or self.link_mode not in ("invert", "gradient"):
            raise BudgetError(f"{type(self).__name__} needs an increasing link and its mode, got {self}")

    @property
    def size(self) -> int:
        return self.n_features

    @property
    def steepness(self) -> float:
        """The largest factor on a clipped residual."""
        return self.link.slopes[1] if self.link_mode == "gradient" else 1.0

    def _factors(self, X: Floats, y: Floats, theta: Floats | None) -> Floats:
        """Clipped residuals in units of their bound, with the sign of the gradient."""
        u = np.zeros(len(X)) if theta is None else _predictor(X, theta)
        y = np.clip(y, -LARGEST_LABEL, LARGEST_LABEL)
        if self.link_mode == "gradient":
            low, high = self.link.slopes
            slope = np.clip(self.link.derivative(u), low, high) / high
            factors = np.clip((self.link.value(u) - y) / self.residual_bound, -1.0, 1.0) * slope
        else:
            factors = np.clip((u - self.link.inverse(y)) / self.residual_bound, -1.0, 1.0)
        return np.where(np.isfinite(factors), factors, 0.0)


@dataclass(frozen=True)
class BoxResiduals(_Residuals):
    """``x_j clip(residual)`` for features of at most ``feature_bound``: entries in [-1, 1].

    The state is the parameter (None for 0). A record with a number that is not finite gives zeros.

    Parameters
    ----------
    n_features : int
    residual_bound : float
        c.
    feature_bound : float
        Features are clipped at it.
    row_norm : float, optional
    link : Link
    link_mode : {"invert", "gradient"}
        Whether the user puts ``f^{-1}(y)`` in the place of y and goes on with a linear model, or sends the gradient.

    Examples
    --------
    >>> statistic = BoxResiduals(2, residual_bound=4.0, feature_bound=1.0)
    >>> statistic.values({"X": np.array([[1.0, -1.0]]), "y": np.array([-2.0])}).tolist()
    [[0.5, -0.5]]
    """

    tag: ClassVar[str] = "BoxResiduals"

    domain: ClassVar[Domain] = "box"

    def values(self, block: Block, state: Any = None) -> Floats:
        return self._products(*self._bounded(block, state))

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> Floats:
        X, factors = self._bounded(block, state)
        return self._products(np.take_along_axis(X, coordinates, axis=1), factors)

    def _bounded(self, block: Block, state: Any) -> tuple[Floats, Floats]:
        X, y = bounded_rows(block["X"], block["y"], row_norm=self.row_norm, feature_bound=self.feature_bound)
        return X, self._factors(X, y, state)

    def _products(self, X: Floats, factors: Floats) -> Floats:
        assert self.feature_bound is not None
        X /= self.feature_bound
        X *= factors[:, None]
        return X

    def restore(self, mean: Floats) -> Floats:
        assert self.feature_bound is not None
        return mean * (self.feature_bound * self.residual_bound * self.steepness)


@dataclass(frozen=True)
class BallResiduals(_Residuals):
    """``x clip(residual)`` for rows of norm at most ``row_norm``: a vector of the unit ball; see `BoxResiduals`.

    Examples
    --------
    >>> statistic = BallResiduals(2, residual_bound=4.0, row_norm=5.0)
    >>> statistic.values({"X": np.array([[3.0, 4.0]]), "y": np.array([-2.0])}).round(9).tolist()
    [[0.3, 0.4]]
    """

    tag: ClassVar[str] = "BallResiduals"

    domain: ClassVar[Domain] = "ball"

    def values(self, block: Block, state: Any = None) -> Floats:
        assert self.row_norm is not None
        X, y = bounded_rows(block["X"], block["y"], row_norm=self.row_norm, feature_bound=self.feature_bound)
        X *= (self._factors(X, y, state) / self.row_norm)[:, None]
        return X

    def restore(self, mean: Floats) -> Floats:
        assert self.row_norm is not None
        return mean * (self.row_norm * self.residual_bound * self.steepness)


@dataclass(frozen=True)
class Selected(Statistic):
    """Another statistic of a few features only: those with the largest entries of the state.

    Parameters
    ----------
    statistic : Statistic
        Of that many features, with values in the unit ball.
    n_features : int
        How many a record has.
    n_selected : int
    """

    tag: ClassVar[str] = "Selected"

    statistic: Statistic
    n_features: int
    n_selected: int

    def __post_init__(self) -> None:
        if self.statistic.domain != "ball" or not 1 <= self.n_selected <= self.n_features:
            raise BudgetError(f"Selected needs values in a ball, of 1 to n_features features, got {self}")

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")
    domain: ClassVar[Domain] = "ball"

    @property
    def size(self) -> int:
        return self.statistic.size

    def values(self, block: Block, state: Any = None) -> Floats:
        chosen = selection(state, self.n_selected)
        y = np.array(block["y"], dtype=np.float64).reshape(len(block["X"]))
        y[~np.isfinite(block["X"]).all(axis=1)] = np.nan  # a record is null as a whole
        return self.statistic.values({"X": np.asarray(block["X"])[:, chosen], "y": y})

    def restore(self, mean: Floats) -> Floats:
        return self.statistic.restore(mean)


def selection(theta: Floats, n_selected: int) -> NDArray[np.intp]:
    """The positions of the largest entries (of equal ones, the first), in order.

    >>> selection(np.array([0.1, -3.0, 0.0, 2.0]), 2).tolist()
    [1, 3]
    """
    return np.sort(np.argsort(-np.abs(theta), kind="stable")[:n_selected])


def _predictor(X: Floats, theta: Floats) -> Floats:
    """``X theta`` for a theta with few entries; each row by itself, in an order that depends on theta only."""
    u = np.zeros(len(X))
    for j in np.flatnonzero(theta):
        u += X[:, j] * theta[j]
    return u
