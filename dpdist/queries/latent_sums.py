"""Sums of the gradients of models with a hidden part (`dpdist.kernels.latent`), each bounded as it is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.kernels.latent import Latent, MixedLines, TwoComponents
from dpdist.kernels.truncation import ScalarMap
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import FROBENIUS
from dpdist.queries.bounded_sums import ClippedSum, MappedSum
from dpdist.queries.gradient_sums import LargestEigenvalue
from dpdist.queries.moment_sums import SecondMomentSum


@dataclass(frozen=True)
class LatentGradientSum(ClippedSum):
    """Sum of ``clip(-g_i(b))``, g the gradient of an expectation step at its own point; the state is b.

    What is clipped is the norm of the very vector that is added (of its parts it would cancel), so replacing a row
    moves the sum by ``2 clip_norm`` at most. Empty rows add nothing.
    """

    tag: ClassVar[str] = "LatentGradientSum"

    model: Latent
    clip_norm: float

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.model.clipped_sum(block["X"], block.get("y"), state, self.clip_norm, self.grid, rows)


@dataclass(frozen=True)
class LatentCoordinateSum(MappedSum):
    """The same with every coordinate mapped instead: none moves by more than twice ``bounded.bound``."""

    tag: ClassVar[str] = "LatentCoordinateSum"

    model: Latent
    bounded: ScalarMap
    n_features: int

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.model.mapped_sum(block["X"], block.get("y"), state, self.bounded, self.grid, rows)


@dataclass(frozen=True)
class ComponentResponseSum(MappedSum):
    """Sum of ``-tanh(.) y`` of two components, every coordinate mapped: what the maximisation step is the mean of.

    As sensitive as `LatentCoordinateSum`; it is not centred, so that the map moves it towards 0.
    """

    tag: ClassVar[str] = "ComponentResponseSum"

    model: TwoComponents
    bounded: ScalarMap
    n_features: int

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.model.mapped_responses(block["X"], state, self.bounded, self.grid, rows)


@dataclass(frozen=True)
class LineResponseSum(ClippedSum):
    """Sum of ``-tanh(.) y x`` of two lines, rows clipped to ``row_norm`` and the product to ``clip_norm``."""

    tag: ClassVar[str] = "LineResponseSum"

    model: MixedLines
    row_norm: float
    clip_norm: float

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.model.response_sum(block["X"], block["y"], state, self.row_norm, self.clip_norm, self.grid, rows)


@dataclass(frozen=True)
class SeenEigenvalue(LargestEigenvalue):
    """`LargestEigenvalue` of rows with 0 in the place of missing cells (NaN); an infinite cell makes an empty row.

    Whatever is filled in, a row is a row: the sensitivity is the same.
    """

    tag: ClassVar[str] = "SeenEigenvalue"

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        X = block["X"]
        return super().summarise({"X": np.where(np.isnan(X), X.dtype.type(0), X)}, state, rows)


@dataclass(frozen=True)
class LabelledMomentSum(Query):
    """``sum_i z_i z_i'`` of ``z = y x``, clipped to an l2 norm and packed: as sensitive as a second moment of rows.

    Where the product is not finite, the row is an empty one.
    """

    tag: ClassVar[str] = "LabelledMomentSum"

    norm: ClassVar[float] = FROBENIUS

    n_features: int
    row_norm: float

    @property
    def moment(self) -> SecondMomentSum:
        """The same of rows."""
        return SecondMomentSum(self.n_features, self.row_norm)

    @property
    def bound(self) -> float:
        return self.moment.bound

    @property
    def grid(self) -> float:
        return self.moment.grid

    @property
    def size(self) -> int | None:
        return self.moment.size

    def knows(self, norm: float) -> bool:
        return self.moment.knows(norm)

    def plain_bound(self, norm: float) -> float:
        return self.moment.plain_bound(norm)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        return self.moment.sensitivity(neighbours, norm)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            products = block["X"] * block["y"][:, None]
        return self.moment.summarise({"X": products}, None, rows)
