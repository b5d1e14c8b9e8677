"""Statistics that are numbers or vectors with a public bound of every entry, or of their norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.clip import clip_l2
from dpdist.local.protocol import Block, Domain, Statistic


def finite_rows(X: NDArray[Any]) -> NDArray[np.float64]:
    """The rows as float64; a row with an entry that is not finite becomes zeros."""
    X = np.asarray(X, dtype=np.float64)
    bad = ~np.isfinite(X).all(axis=1)
    return np.where(bad[:, None], 0.0, X) if bad.any() else X


@dataclass(frozen=True)
class Box(Statistic):
    """The features of a user, each clipped to ``[low, high]`` and mapped to [-1, 1].

    A null record stands for the middle of the range.
    """

    n_features: int
    low: float = -1.0
    high: float = 1.0

    domain: ClassVar[Domain] = "box"

    @property
    def size(self) -> int:
        return self.n_features

    @property
    def centre(self) -> float:
        return self.low / 2 + self.high / 2

    @property
    def radius(self) -> float:
        return self.high / 2 - self.low / 2

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        X = np.asarray(block["X"], dtype=np.float64).reshape(len(block["X"]), self.n_features)
        scaled = np.clip((np.clip(X, self.low, self.high) - self.centre) / self.radius, -1.0, 1.0)
        return np.where(np.isfinite(X).all(axis=1)[:, None], scaled, 0.0)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.centre + self.radius * mean


@dataclass(frozen=True)
class Ball(Statistic):
    """The features of a user as one vector, scaled down to norm ``radius`` where it is longer."""

    n_features: int
    radius: float = 1.0

    domain: ClassVar[Domain] = "ball"

    @property
    def size(self) -> int:
        return self.n_features

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        return clip_l2(finite_rows(block["X"]) / self.radius, 1.0)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.radius * mean
