"""The loss of a record at the points of a public grid of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.muted import muted
from dpdist.errors import DataError
from dpdist.local.statistics.ticketed import Ticketed
from dpdist.local.surfaces.surface_losses import SurfaceLoss
from dpdist.local.survey.protocol import Block

Floats = NDArray[np.float64]
MADE_UP = 8
"""Records by which a loss is checked before a report."""
NUMBERS = "biuf"
"""Kinds of arrays that are numbers."""


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
            losses = losses_of(self.loss, w, X, y)
            with np.errstate(all="ignore"):
                scaled = np.clip((losses - middle) / half, -1.0, 1.0)
            found[:, column] = np.where(known & ~np.isnan(scaled), scaled, 0.0)
        return found

    def restore(self, mean: Floats) -> Floats:
        middle, half = self.scale
        return middle + half * mean


def losses_of(loss: SurfaceLoss, w: Floats, X: Floats, y: Floats | None) -> Floats:
    """One loss for each record, NaN where there is none: an exception would tell of the record that it is about."""
    found = _tried(loss, w, X, y)
    if found is None:
        rows = [slice(i, i + 1) for i in range(len(X))]
        alone = [_tried(loss, w[row], X[row], None if y is None else y[row]) for row in rows]
        found = np.array([np.nan if value is None else value[0] for value in alone], np.float64)
    return found


def check_loss(loss: SurfaceLoss, n_features: int, low: float, high: float) -> None:
    """That a loss gives a number for each of a few made-up records, which does not depend on the other records."""
    loss.bounds(low, high, n_features)  # refuses one without a function
    shares = (np.arange(1, 2 * MADE_UP * n_features + 1) * 0.6180339887) % 1
    w, X = np.reshape(low + (high - low) * shares, (2, MADE_UP, n_features)).astype(np.float64)
    y = np.where(np.arange(MADE_UP) % 2, 1.0, -1.0) if loss.labelled else None
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(loss(w.copy(), X.copy(), None if y is None else y.copy()))
    except Exception as error:  # made-up records may be spoken of
        raise DataError(
            f"a loss must give one number for each of m records, from parameters and records of shape (m, {n_features})"
            f"{' and labels of shape (m,)' if loss.labelled else ''}; this one ended with {type(error).__name__}: "
            f"{error}"
        ) from error
    if found.shape != (MADE_UP,) or found.dtype.kind not in NUMBERS:
        raise DataError(
            f"a loss must give one number for each of m records, shape (m,): got {found.dtype} of shape {found.shape}, "
            f"m = {MADE_UP}"
        )
    rows = [slice(i, i + 1) for i in range(MADE_UP)]
    alone = np.concatenate([losses_of(loss, w[row], X[row], None if y is None else y[row]) for row in rows])
    if not np.allclose(found, alone, rtol=1e-6, atol=0.0, equal_nan=True):
        raise DataError(
            "a loss must give every record a number of its own, and this one gives others for a record alone than for "
            f"one of {MADE_UP}: the report of a user would tell of other users"
        )


def _tried(loss: SurfaceLoss, w: Floats, X: Floats, y: Floats | None) -> Floats | None:
    """The losses, if they are one number for each record; what the function says meanwhile is not heard."""
    try:
        with muted(), np.errstate(all="ignore"):
            found = np.asarray(loss(w.copy(), X.copy(), None if y is None else y.copy()))
        good = found.shape == (len(X),) and found.dtype.kind in NUMBERS
        return np.asarray(found, np.float64) if good else None
    except (Exception, SystemExit):  # whatever it is, it may be there because of one record
        return None
