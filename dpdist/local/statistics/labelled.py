"""Statistics of a record with a label: vectors of the unit ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.local.survey.protocol import Block, Domain, Statistic

Floats = NDArray[np.float64]


def bounded_records(block: Block, row_norm: float, label_bound: float) -> tuple[Floats, Floats]:
    """Rows scaled down to norm 1 and labels clipped to [-1, 1], in units of their bounds; null records are zeros."""
    X, y = bounded_rows(block["X"], block["y"], row_norm=row_norm)
    return X / row_norm, np.clip(y / label_bound, -1.0, 1.0)


@dataclass(frozen=True)
class LabelledRow(Statistic):
    """``x y / (r B)`` for rows of norm at most r and labels of size at most B, both enforced."""

    tag: ClassVar[str] = "LabelledRow"

    n_features: int
    row_norm: float
    label_bound: float

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")
    domain: ClassVar[Domain] = "ball"

    @property
    def size(self) -> int:
        return self.n_features

    @property
    def scale(self) -> float:
        """What the entries of ``E x y`` are times those of the value: their noise, too."""
        return self.row_norm * self.label_bound

    def values(self, block: Block, state: Any = None) -> Floats:
        X, y = bounded_records(block, self.row_norm, self.label_bound)
        return X * y[:, None]

    def restore(self, mean: Floats) -> Floats:
        return self.scale * mean


@dataclass(frozen=True)
class LabelledMoments(LabelledRow):
    """The same for `dpdist.local.linear.noisy_moments.GaussianMeanAndMoments`: ``E x y``, and packed ``E x x' y^2``."""

    tag: ClassVar[str] = "LabelledMoments"

    def restore(self, mean: Floats) -> Floats:
        scales = np.full(len(mean), self.scale**2)
        scales[: self.n_features] = self.scale
        return mean * scales


@dataclass(frozen=True)
class RowAndLabel(Statistic):
    """``(sqrt(a) x / r, sqrt(1 - a) y / B)``: the record itself.

    A Gaussian report of it with noise s is one of ``x / r`` with noise ``s / sqrt(a)`` and of ``y / B`` with noise
    ``s / sqrt(1 - a)``, which have the parts a and 1 - a of the squared budget mu^2. It goes with
    `dpdist.local.linear.noisy_moments.GaussianMoments`, whose estimate is the packed second moment of these vectors.
    """

    tag: ClassVar[str] = "RowAndLabel"

    n_features: int
    row_norm: float
    label_bound: float
    share: float

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")
    domain: ClassVar[Domain] = "ball"

    @property
    def size(self) -> int:
        return self.n_features + 1

    @property
    def row_scale(self) -> float:
        """What the entries of x are times those of the value: their noise, too."""
        return self.row_norm / math.sqrt(self.share)

    @property
    def label_scale(self) -> float:
        """The same for y."""
        return self.label_bound / math.sqrt(1 - self.share)

    def values(self, block: Block, state: Any = None) -> Floats:
        X, y = bounded_records(block, self.row_norm, self.label_bound)
        return np.column_stack([X * math.sqrt(self.share), y * math.sqrt(1 - self.share)])

    def restore(self, mean: Floats) -> Floats:
        """Packed second moments of the values to those of ``(x, y)``."""
        scales = np.append(np.full(self.n_features, self.row_scale), self.label_scale)
        rows, columns = np.triu_indices(self.size)
        return mean * scales[rows] * scales[columns]
