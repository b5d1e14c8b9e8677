"""What a user tells of a model with a hidden part: the gradient of the own row at a public point, bounded.

The gradient of an expectation step (`dpdist.kernels.latent`), with the sign of a loss, as a vector of the unit ball or
as entries in [-1, 1]. The state is the point. A record with a number that is not finite gives zeros, and a report;
where cells may be missing, NaN is such a cell and no fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.clip import check_bound, clip_l2
from dpdist.kernels.latent import Latent
from dpdist.kernels.truncation import SmoothTruncation
from dpdist.local.survey.protocol import Block, Domain, Statistic

Floats = NDArray[np.float64]
LARGEST = 1e100
"""Where entries are cut before they are multiplied, far beyond every bound."""


@dataclass(frozen=True)
class _Gradients(Statistic):
    """Common part; see the subclasses."""

    model: Latent
    n_features: int

    @property
    def arrays(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("X", "y") if self.model.labelled else ("X",)

    @property
    def size(self) -> int:
        return self.n_features

    def _descent(self, block: Block, state: Any) -> Floats:
        """Minus the gradients, each row by itself; zeros for a null record."""
        label = block["y"] if self.model.labelled else np.zeros(len(block["X"]))
        given = np.asarray(block["X"], dtype=np.float64)
        missing = np.isnan(given) if self.model.empty_cells else None
        given = given if missing is None else np.where(missing, 0.0, given)
        X, y = bounded_rows(given, label, feature_bound=LARGEST)
        good = np.isfinite(given).all(axis=1) & np.isfinite(np.asarray(label, dtype=np.float64).reshape(len(X)))
        u = np.zeros(len(X))
        for j, b in enumerate(state):  # in an order that is the row's own
            u += X[:, j] * b
        if missing is not None:
            X[missing] = np.nan
        with np.errstate(all="ignore"):
            found = self.model.descent(X, np.clip(y, -LARGEST, LARGEST), u, np.asarray(state))
        return np.where(good[:, None] & np.isfinite(found), found, 0.0)


@dataclass(frozen=True)
class BallGradients(_Gradients):
    """Clipped to the norm ``clip_norm``, over that."""

    tag: ClassVar[str] = "BallGradients"

    clip_norm: float = 1.0

    domain: ClassVar[Domain] = "ball"

    def __post_init__(self) -> None:
        check_bound(self.clip_norm, "clip_norm")

    def values(self, block: Block, state: Any = None) -> Floats:
        return clip_l2(self._descent(block, state) / self.clip_norm, 1.0)

    def restore(self, mean: Floats) -> Floats:
        return mean * self.clip_norm


@dataclass(frozen=True)
class BoxGradients(_Gradients):
    """Entries clipped to ``entry_clip``, over that."""

    tag: ClassVar[str] = "BoxGradients"

    entry_clip: float = 1.0

    domain: ClassVar[Domain] = "box"

    def __post_init__(self) -> None:
        check_bound(self.entry_clip, "entry_clip")

    def values(self, block: Block, state: Any = None) -> Floats:
        return np.clip(self._descent(block, state) / self.entry_clip, -1.0, 1.0)

    def restore(self, mean: Floats) -> Floats:
        return mean * self.entry_clip


@dataclass(frozen=True)
class TruncatedGradients(_Gradients):
    """Entries truncated smoothly, as published: a vector whose norm is at most ``bound sqrt(d)``, over that."""

    tag: ClassVar[str] = "TruncatedGradients"

    beta: float = 1.0
    scale: float = 1.0

    domain: ClassVar[Domain] = "ball"

    @property
    def bounded(self) -> SmoothTruncation:
        """The map of an entry."""
        return SmoothTruncation(self.beta, self.scale)

    @property
    def norm(self) -> float:
        """The largest norm."""
        return self.bounded.bound * math.sqrt(self.n_features)

    def values(self, block: Block, state: Any = None) -> Floats:
        return clip_l2(self.bounded(self._descent(block, state)) / self.norm, 1.0)

    def restore(self, mean: Floats) -> Floats:
        return mean * self.norm
