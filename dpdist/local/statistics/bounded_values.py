"""Statistics that are numbers or vectors with a public bound of every entry, or of their norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.clip import clip_l2, kappa
from dpdist.kernels.truncation import PHI_BOUND, phi
from dpdist.local.survey.protocol import Block, Domain, Statistic

COMPILED_FROM = 64
"""So many rows are worth a compiled pass; the values are the same."""


def _floats(X: NDArray[Any]) -> NDArray[Any]:
    return X if X.dtype == np.float32 else X.astype(np.float64, copy=False)


def whole(X: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows have finite entries only."""
    if len(X) < COMPILED_FROM:
        return np.asarray(np.isfinite(X).all(axis=1))
    from dpdist.kernels.entries import finite_rows  # a device does without numba

    known = np.empty(len(X), np.bool_)
    finite_rows(_floats(X), known)
    return known


@dataclass(frozen=True)
class Box(Statistic):
    """The features of a user, each clipped to ``[low, high]`` and mapped to [-1, 1].

    A null record stands for the middle of the range.
    """

    tag: ClassVar[str] = "Box"

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
        X = np.asarray(block["X"]).reshape(len(block["X"]), self.n_features)
        if len(X) < COMPILED_FROM:
            return self._by_hand(X.astype(np.float64))
        from dpdist.kernels.entries import box_values  # a device does without numba

        out = np.empty(X.shape)
        box_values(_floats(X), float(self.low), float(self.high), self.centre, self.radius, out)
        return out

    def _by_hand(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled = np.clip((np.clip(X, self.low, self.high) - self.centre) / self.radius, -1.0, 1.0)
        return np.where(np.isfinite(X).all(axis=1, keepdims=True), scaled, 0.0)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.centre + self.radius * mean


@dataclass(frozen=True)
class Ball(Statistic):
    """The features of a user as one vector, scaled down to norm ``radius`` where it is longer."""

    tag: ClassVar[str] = "Ball"

    n_features: int
    radius: float = 1.0

    domain: ClassVar[Domain] = "ball"

    @property
    def size(self) -> int:
        return self.n_features

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        from dpdist.kernels.entries import ball_values  # reports of numbers and categories do without numba

        X = np.asarray(block["X"]).reshape(len(block["X"]), self.n_features)
        out = np.empty(X.shape)
        ball_values(_floats(X), float(self.radius), 1.0 - kappa(self.n_features), out)
        return out

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.radius * mean


@dataclass(frozen=True)
class Truncated(Statistic):
    """The features of a user, each as ``phi(x / scale)``, scaled to [-1, 1]: for features without a bound.

    phi is the soft truncation of `dpdist.kernels.truncation`; ``scale phi(x / scale)`` is x for small x and at most
    ``0.943 scale`` for any. What it takes from the mean is at most ``E x^2 / (2 scale)`` (Catoni 2012).
    """

    tag: ClassVar[str] = "Truncated"

    n_features: int
    scale: float = 1.0

    domain: ClassVar[Domain] = "box"

    @property
    def size(self) -> int:
        return self.n_features

    @property
    def radius(self) -> float:
        """What a value of 1 stands for."""
        return self.scale * PHI_BOUND

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        return self._truncated(block["X"], whole(block["X"]))

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> NDArray[np.float64]:
        return self._truncated(np.take_along_axis(block["X"], coordinates, axis=1), whole(block["X"]))

    def _truncated(self, X: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[np.float64]:
        X = np.where(known[:, None], X.astype(np.float64), 0.0)
        with np.errstate(over="ignore", under="ignore"):
            truncated = phi(X / self.scale)
        return np.asarray(np.clip(truncated / PHI_BOUND, -1.0, 1.0))

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.radius * mean


@dataclass(frozen=True)
class TruncatedVector(Truncated):
    """`Truncated` as a vector in the unit ball, for reports of all coordinates."""

    tag: ClassVar[str] = "TruncatedVector"

    domain: ClassVar[Domain] = "ball"

    @property
    def radius(self) -> float:
        return super().radius * math.sqrt(self.n_features)

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        return clip_l2(super().values(block, state) / math.sqrt(self.n_features), 1.0)
