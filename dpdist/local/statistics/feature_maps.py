"""Statistics of public features of a record instead of the record itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bases import fourier_features, fourier_frequencies
from dpdist.local.mean.small_l1_norm import Projected
from dpdist.local.survey.protocol import Block, Domain, Statistic

Floats = NDArray[np.float64]


class FeatureMap(ABC):
    """A public map of rows: a frozen dataclass. A row with a number that is not finite becomes one of NaN."""

    n_features: int
    n_components: int
    """Number of features that go in, and that come out."""

    @abstractmethod
    def __call__(self, X: Floats) -> Floats:
        """The features of every row."""


@dataclass(frozen=True)
class Projection(FeatureMap):
    """The public random projections of `dpdist.local.mean.small_l1_norm.Projected`, of rows of norm at most
    ``row_norm``."""

    tag: ClassVar[str] = "Projection"

    n_features: int
    n_components: int
    row_norm: float
    seed: int = 0

    @property
    def projected(self) -> Projected:
        """What is asked for means: it has the matrix, and the norm ``unit`` to which projections are scaled down."""
        return Projected(self.n_features, self.n_components, self.row_norm, self.seed)

    def __call__(self, X: Floats) -> Floats:
        return _with_nulls(X, self.projected.restore(self.projected.values({"X": X})))


@dataclass(frozen=True)
class Fourier(FeatureMap):
    """`dpdist.kernels.bases.fourier_features` of a public seed: vectors of norm 1."""

    tag: ClassVar[str] = "Fourier"

    n_features: int
    n_components: int
    bandwidth: float
    seed: int = 0

    def __call__(self, X: Floats) -> Floats:
        frequencies = _frequencies(self.n_features, self.n_components, self.bandwidth, self.seed)
        return _with_nulls(X, fourier_features(X, frequencies))


@dataclass(frozen=True)
class Mapped(Statistic):
    """A statistic of the features that a map makes of a record.

    Examples
    --------
    >>> from dpdist.local.statistics.labelled import LabelledRow
    >>> statistic = Mapped(Fourier(3, 10, bandwidth=1.0), LabelledRow(10, row_norm=1.0, label_bound=2.0))
    >>> value = statistic.values({"X": np.ones((1, 3)), "y": np.array([1.0])})
    >>> value.shape, round(float(np.linalg.norm(value)), 6)
    ((1, 10), 0.5)
    """

    tag: ClassVar[str] = "Mapped"

    features: FeatureMap
    of: Statistic

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.of.domain

    @property
    def n_features(self) -> int:
        """How many numbers a record has."""
        return self.features.n_features

    @property
    def size(self) -> int:
        return self.of.size

    @property
    def diameter(self) -> float:
        return self.of.diameter

    def values(self, block: Block, state: Any = None) -> NDArray[Any]:
        mapped: Mapping[str, NDArray[Any]] = {**block, "X": self.features(np.asarray(block["X"], dtype=np.float64))}
        return self.of.values(mapped, state)

    def restore(self, mean: Floats) -> Floats:
        return self.of.restore(mean)


def _with_nulls(X: Floats, features: Floats) -> Floats:
    bad = np.asarray(~np.isfinite(X).all(axis=1))
    return np.where(bad[:, None], np.nan, features) if bad.any() else features


@lru_cache(maxsize=64)
def _frequencies(n_features: int, n_components: int, bandwidth: float, seed: int) -> Floats:
    frequencies = fourier_frequencies(n_features, n_components, bandwidth, seed)
    frequencies.flags.writeable = False
    return frequencies
