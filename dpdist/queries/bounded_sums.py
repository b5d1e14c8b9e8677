"""Sums of vectors that are bounded one by one: clipped in the l2 norm, or mapped coordinate by coordinate."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from dpdist.engine.query import Query
from dpdist.kernels.grid import grid_for


class ClippedSum(Query):
    """A sum of vectors whose l2 norm is at most ``clip_norm``: replacing one row moves it by twice that."""

    clip_norm: float

    @property
    def bound(self) -> float:
        return self.clip_norm

    @property
    def grid(self) -> float:
        return grid_for(self.clip_norm)


class MappedSum(Query):
    """A sum of vectors of which every coordinate is mapped by ``bounded``.

    No row moves a coordinate by more than twice ``bounded.bound`` under replace-one, for any input: that is the
    l-infinity sensitivity, times the root of their number the l2 one.
    """

    norm: ClassVar[float] = math.inf

    bounded: Any
    n_features: int

    @property
    def bound(self) -> float:
        return float(self.bounded.bound)

    @property
    def grid(self) -> float:
        return grid_for(self.bound)

    @property
    def size(self) -> int | None:
        return self.n_features
