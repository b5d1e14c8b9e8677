"""Second moments and Hessians: sums of ``z z'`` over bounded rows, packed symmetric matrices in exact integers.

Rows are truncated as factors, so what a row adds is exactly of rank one, and the sensitivities hold in integers
(`dpdist.kernels.moments`). Replacing a row changes the sum by ``v v' - w w'`` with ``|v|^2, |w|^2 <= b``:

* Frobenius: ``sqrt(|v|^4 + |w|^4 - 2 <v, w>^2) <= sqrt(2) b``, attained by orthogonal rows;
* nuclear: ``2 b``, the sum of both traces;
* l2 of the upper triangle: not above Frobenius, and attained by two unit vectors;
* l1 of the upper triangle: ``(||A||_{1,1} + ||diag A||_1) / 2 <= (d ||A||_F + 2 b) / 2 <= (d / sqrt(2) + 1) b``
  (Cauchy and Schwarz, and the trace norm of the diagonal is not above the nuclear norm).

Adding or removing a row: ``b`` in the first three, ``(d + 1) b / 2`` in the last (seed 006, section 0). A unit with k
rows changes them one after another, which is k times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.errors import BudgetError, DataError
from dpdist.identity import ADDED
from dpdist.kernels.clip import check_bound
from dpdist.kernels.hessians import glm_hessian
from dpdist.kernels.moments import moment_grid, moment_radius, second_moment
from dpdist.kernels.packed import packed_size
from dpdist.losses import Loss
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import FROBENIUS, NUCLEAR
from dpdist.queries.gradient_sums import one_against_rest

ROOT2 = math.sqrt(2) * (1 + 2.0**-52)


@dataclass(frozen=True)
class SecondMomentSum(Query):
    """``sum_i z_i z_i'`` of bounded rows, packed: Gram matrices, covariances, the sufficient statistics of regression.

    Parameters
    ----------
    n_features : int
        Columns of ``X``.
    row_norm : float
        Public bound r of the norm of a row, enforced by clipping.
    unit : bool, default False
        Scale rows to norm r instead, shorter ones as well: every row counts alike. Not with labels.
    label_bound : float, optional
        With it the label, clamped to ``+-label_bound``, joins the row as its last column, times ``label_scale``: the
        released matrix has ``label_scale X'y`` in its last column and ``label_scale^2 y'y`` in its last entry, and its
        bound is ``r^2 + (label_scale label_bound)^2``. A larger scale hides ``X'y`` under less noise and ``X'X``
        under more.
    label_scale : float, default 1
        Public.
    paired : bool, default False
        Of ``(x_0 - x_1) / sqrt(2), (x_2 - x_3) / sqrt(2), ...`` instead: half as many rows that have no mean. For
        replace-one only, where one row is in one pair; the order of the rows must not follow from their values (as
        for folds), and ranges of rows begin at even ones (``Coordinator(align=2)``).
    intercept : float, default 0
        A constant feature of that size is joined to the rows, before the label; the bound is then
        ``r^2 + intercept^2`` (and the label's part).
    whole : bool, default False
        Scale constant feature and label down with a row that is longer than r: it then counts by the square of one
        factor, as in the Hessian of a weighted loss.
    """

    tag: ClassVar[str] = "SecondMomentSum"

    norm: ClassVar[float] = FROBENIUS

    n_features: int
    row_norm: float
    unit: bool = False
    label_bound: float | None = None
    label_scale: float = 1.0
    paired: bool = False
    intercept: float = field(default=0.0, metadata=ADDED)
    whole: bool = field(default=False, kw_only=True, metadata=ADDED)

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")
        check_bound(self.label_scale, "label_scale")
        if self.intercept != 0:
            check_bound(self.intercept, "intercept")
            if self.paired:
                raise BudgetError("pairs of rows have no mean, so that SecondMomentSum(paired=True) has no intercept")
        if self.label_bound is not None:
            check_bound(self.label_bound, "label_bound")
            if self.unit:
                raise BudgetError(
                    "SecondMomentSum(unit=True) scales every row by its own norm and a label would stay what it is, so "
                    "that nothing could be learned of one from the other: leave out unit, or the label"
                )
        if self.whole and (self.unit or self.paired):
            raise BudgetError("SecondMomentSum(whole=True) scales plain rows: leave out unit and paired")

    @property
    def bound(self) -> float:
        return self.row_norm**2 + self.intercept**2 + self._labels**2

    @property
    def grid(self) -> float:
        return moment_grid(moment_radius(self.row_norm, self.intercept, labels=self._labels))

    @property
    def n_columns(self) -> int:
        """Of the matrix."""
        return self.n_features + (self.intercept > 0) + (self.label_bound is not None)

    @property
    def size(self) -> int | None:
        return packed_size(self.n_columns)

    @property
    def align(self) -> int:
        return 2 if self.paired else 1

    @property
    def _labels(self) -> float:
        return 0.0 if self.label_bound is None else self.label_bound * self.label_scale

    def knows(self, norm: float) -> bool:
        return norm in (FROBENIUS, NUCLEAR, 1, 2)

    def plain_bound(self, norm: float) -> float:
        if self.paired:
            return math.inf  # a sample would part the pairs
        return self.sensitivity(Neighbours.ADD_OR_REMOVE_ONE, norm)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        norm = self.norm if norm is None else norm
        one, replaced = self._factors(norm)
        if neighbours is Neighbours.REPLACE_ONE:
            return replaced * self.bound
        if self.paired:
            raise BudgetError(
                "rows are paired by their position, and adding or removing a row moves all rows behind it into other "
                "pairs: SecondMomentSum(paired=True) is private for replace-one with units whose rows are counted. Use "
                "neighbours='replace-one', or paired=False"
            )
        return one * self.bound

    def _factors(self, norm: float) -> tuple[float, float]:
        """Sensitivity over the bound: of adding or removing a row, and of replacing one."""
        if norm == NUCLEAR:
            return 1.0, 2.0
        if norm in (FROBENIUS, 2):
            return 1.0, ROOT2
        if norm == 1:
            return (self.n_columns + 1) / 2, self.n_columns / math.sqrt(2) * (1 + 2.0**-50) + 1
        raise BudgetError(f"SecondMomentSum has no bound of its l{norm:g} norm: use a mechanism for the Frobenius norm")

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        X = block["X"]
        if X.shape[1:] != (self.n_features,):
            raise DataError(f"X has {X.shape[1]} columns, and the plan is for {self.n_features}")
        labels = None if self.label_bound is None else (block["y"], self.label_bound, self.label_scale)
        if rows is not None:
            X, labels = X[rows], None if labels is None else (block["y"][rows], *labels[1:])
        return second_moment(
            X,
            self.row_norm,
            intercept=self.intercept,
            unit=self.unit,
            labels=labels,
            paired=self.paired,
            whole=self.whole,
        )

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        if self.paired and first % 2:  # a fold that begins in the middle of a pair
            block = {name: values[1:] for name, values in block.items()}
        return self.summarise(block, state, rows)


@dataclass(frozen=True)
class HessianSum(Query):
    """``sum_i l''(<x_i, w>, y_i) x_i x_i'`` of a generalised linear model, packed; the state is w.

    Rows are clipped to ``row_norm`` and followed by the constant feature ``intercept`` (if positive), together of norm
    r at most; ``l''`` is clamped to the range [lo, hi] that the loss declares. Weights of one sign differ as second
    moments do; weights of two signs add up: replacing a row moves the sum by
    ``max(sqrt(2) max(hi, -lo), hi - lo) r^2`` at most in the Frobenius norm, adding or removing one by
    ``max(hi, -lo) r^2``.

    Parameters
    ----------
    loss : Loss
        With a second derivative whose range is bounded.
    row_norm : float
    intercept : float, default 0
    target : int, optional
        The class that counts as +1 when labels are class numbers.
    sampled : bool, default False
        Declare ``2 max(hi, -lo) r^2`` under replace-one, twice what one row adds: the accounting of a sample rests on
        that.
    weighed : bool, default False
        Rows keep their length, and those longer than ``row_norm`` count by the square of its ratio to their norm: all
        sums are then those of one weighted loss, whose minimiser is not biased (`dpdist.kernels.block_pass.weigh`).
    """

    tag: ClassVar[str] = "HessianSum"

    norm: ClassVar[float] = FROBENIUS

    loss: Loss
    row_norm: float
    intercept: float = 0.0
    target: int | None = None
    sampled: bool = False
    weighed: bool = field(default=False, kw_only=True, metadata=ADDED)

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")
        if self.intercept != 0:
            check_bound(self.intercept, "intercept")
        low, high = self.loss.curvature_range
        if not (math.isfinite(low) and math.isfinite(high) and low <= high and self._largest > 0):
            raise BudgetError(
                f"the Hessian of the loss {self.loss.name!r} has no bound: its second derivative lies in "
                f"[{low!r}, {high!r}]; use a loss whose curvature is bounded, such as the logistic or Huber's"
            )
        if type(self.loss).second_derivative is Loss.second_derivative:
            raise BudgetError(f"the loss {self.loss.name!r} has no second_derivative(u, y): define it, in NumPy")

    @property
    def bound(self) -> float:
        return self._largest * (self.row_norm**2 + self.intercept**2)

    @property
    def grid(self) -> float:
        return moment_grid(moment_radius(self.row_norm, self.intercept, weight_bound=self._largest))

    @property
    def _largest(self) -> float:
        low, high = self.loss.curvature_range
        return max(high, -low)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        bound = self.plain_bound(self.norm if norm is None else norm)
        if neighbours is not Neighbours.REPLACE_ONE:
            return bound
        if self.sampled:
            return 2 * bound
        low, high = self.loss.curvature_range
        return max(ROOT2, (high - low) / self._largest * (1 + 2.0**-50)) * bound

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return glm_hessian(
            block["X"],
            one_against_rest(block["y"], self.target, self.loss),
            state,
            self.loss,
            row_norm=self.row_norm,
            intercept=self.intercept,
            rows=rows,
            weighed=self.weighed,
        )
