"""The loss of a record at the points of a public grid of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.local.statistics.ticketed import Ticketed
from dpdist.local.surfaces.surface_losses import SurfaceLoss
from dpdist.local.survey.protocol import Block

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LossCells(Ticketed):
    """``loss(w, record)`` at all w of the grid ``low + (high - low) {0, 1/k, ..., 1}^p``, its range mapped to [-1, 1].

    A record with a number that is not finite, or whose loss is none, stands for the middle of the range.

    Parameters
    ----------
    loss : SurfaceLoss
    n_features : int
        p: parameters are as many as features.
    low, high : float
        Of every parameter.
    degree : int
        k.
    """

    tag: ClassVar[str] = "LossCells"

    loss: SurfaceLoss
    n_features: int
    low: float
    high: float
    degree: int

    @property
    def arrays(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("X", "y") if self.loss.labelled else ("X",)

    @property
    def n_tickets(self) -> NDArray[np.int64]:
        return np.ones((self.degree + 1) ** self.n_features, np.int64)

    @property
    def size(self) -> int:
        return int((self.degree + 1) ** self.n_features)

    @property
    def scale(self) -> tuple[float, float]:
        """Middle of the range of the loss, and half of its length."""
        smallest, largest = self.loss.bounds(self.low, self.high, self.n_features)
        return smallest / 2 + largest / 2, largest / 2 - smallest / 2

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> Floats:
        X = np.asarray(block["X"], dtype=np.float64).reshape(len(block["X"]), self.n_features)
        y = np.asarray(block["y"], dtype=np.float64).reshape(len(X)) if self.loss.labelled else None
        known: NDArray[np.bool_] = np.asarray(np.isfinite(X).all(axis=1))
        if y is not None:
            known = known & np.isfinite(y)
            y = np.where(known, y, 0.0)
        X = np.where(known[:, None], X, 0.0)
        middle, half = self.scale
        found = np.empty(coordinates.shape)
        for column, cells in enumerate(coordinates.T):
            digits = np.stack(np.unravel_index(cells, (self.degree + 1,) * self.n_features), axis=1)
            w = self.low + (self.high - self.low) * digits / self.degree
            with np.errstate(all="ignore"):
                losses = self.loss(w, X, y)
            check_shape(losses, len(X))
            with np.errstate(invalid="ignore", over="ignore"):
                scaled = np.clip((losses - middle) / half, -1.0, 1.0)
            found[:, column] = np.where(known & ~np.isnan(scaled), scaled, 0.0)
        return found

    def restore(self, mean: Floats) -> Floats:
        middle, half = self.scale
        return middle + half * mean


def check_shape(losses: Floats, n: int) -> None:
    """That a loss gives one value for each record."""
    if losses.shape != (n,):
        raise DataError(f"a loss must give one number for each of m records, shape (m,): got {losses.shape}, m = {n}")
