"""Regression on second moments: of the features, ``S = E x x'``, and with the label, ``b = E x y``.

There are three questions that tell a server both, one `MomentMethod` each. Where public rows give S, users report
``x y`` only; else a report holds all products, or the record itself, with noise that the server multiplies. What the
estimators of this kind do not share is a `MomentProblem`: the features that users make of a row, and the equation that
S and b are put into.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpdist.errors import BudgetError, DataError
from dpdist.estimators.choices import chosen
from dpdist.estimators.inputs import check_public_rows
from dpdist.estimators.parameters import check_between, need_bound
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.moments import unpack_symmetric
from dpdist.local.linear.noisy_moments import GaussianMoments
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.feature_maps import FeatureMap, Mapped
from dpdist.local.statistics.labelled import LabelledRow, RowAndLabel
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol, Randomiser, Statistic
from dpdist.method import DECIDED, Method, Noted, Oracle, Public
from dpdist.privacy.accounting.plan import Plan

Vector = NDArray[np.float64]

PRODUCT_SHARE = 0.6
"""Of the squared norm of a joint report, the second moments get this part (`JointStatistics`)."""
ROW_SHARE = 0.8
"""Of mu^2, the report of the features gets this part, the label the rest."""


@dataclass(frozen=True)
class MomentProblem(Noted, ABC):
    """What an estimator on second moments states: what users make of a row, and the equation to solve.

    Attributes
    ----------
    label_bound : float
    """

    label_bound: float

    @abstractmethod
    def seen(self, method: MomentMethod) -> tuple[FeatureMap | None, int, float]:
        """What users make of a row (None: nothing), how many numbers that is, and the bound of their norm."""

    @abstractmethod
    def solve(
        self, protocol: LocalProtocol, S: Vector, b: Vector, noise: tuple[float, float], public: Public
    ) -> Mapping[str, Any]:
        """Fitted attributes; S may have negative eigenvalues, ``noise / sqrt(n)`` is that of an entry of S and b."""


@dataclass(frozen=True)
class MomentMethod(LocalMethod):
    """One report of every user, for S and b."""

    statement: MomentProblem = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    measures: ClassVar[str] = "standard error of an entry of the mean of x y, at the worst records"
    solves_with = ("alpha", "l1_radius", "coef_norm")

    def decide(self, public: Public, statement: MomentProblem) -> Self:
        return self._with(public, statement)

    def seen(self) -> tuple[FeatureMap | None, int, float]:
        """What users make of a row, its size and the bound of its norm."""
        return self.statement.seen(self)

    @abstractmethod
    def statistic(self, size: int, row_norm: float, label_bound: float) -> Statistic:
        """What users report of what they make of a row."""

    def randomiser(self, size: int) -> Randomiser:
        """The law of their reports."""
        return best_vector(size, self.public.budget.epsilon)

    @abstractmethod
    def noise(self, of: Any, protocol: LocalProtocol) -> tuple[float, float]:
        """Of an entry of S and of b, in one report."""

    @abstractmethod
    def moments(self, of: Any, estimate: Vector) -> tuple[Vector, Vector]:
        """S and b."""

    @property
    def protocols(self) -> list[LocalProtocol]:
        seen, size, row_norm = self.seen()
        statistic = self.statistic(size, row_norm, self.statement.label_bound)
        law = self.randomiser(statistic.size)
        return [LocalProtocol(statistic if seen is None else Mapped(seen, statistic), law)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        protocol = self.protocols[0]
        of = _of(protocol)
        S, b = self.moments(of, self.estimate(oracle))
        return self.statement.solve(protocol, S, b, self.noise(of, protocol), self.public)

    def expected_error(self, plan: Plan) -> float:
        protocol = self.protocols[0]
        return self.noise(_of(protocol), protocol)[1] / math.sqrt(self.public.n_rows)


@dataclass(frozen=True)
class PublicCovariance(MomentMethod):
    """Users report ``x y``; S is that of public rows.

    Attributes
    ----------
    second_moments : array
        S; decided.
    """

    tag, name = "PublicCovariance", "public-covariance"

    second_moments: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    def statistic(self, size: int, row_norm: float, label_bound: float) -> LabelledRow:
        return LabelledRow(size, row_norm, label_bound)

    def noise(self, of: Any, protocol: LocalProtocol) -> tuple[float, float]:
        return 0.0, of.scale * protocol.noise_std

    def moments(self, of: Any, estimate: Vector) -> tuple[Vector, Vector]:
        assert self.second_moments is not None
        return self.second_moments, estimate

    def given(self, public_X: Any) -> Self:
        """The method with S of public rows; these may be looked at."""
        rows = np.asarray(public_X, dtype=np.float64)
        check_public_rows(rows, self.public.n_features)
        if not np.isfinite(rows).all():
            raise DataError("public_X has numbers that are not finite: leave these rows out")
        seen, _, row_norm = self.seen()
        rows = clip_l2(rows, row_norm) if seen is None else seen(rows)
        return replace(self, second_moments=np.asarray(rows.T @ rows / len(rows)))


class JointReports(MomentMethod):
    """Users report all products of a row and its label, as one vector."""

    tag, name = "JointReports", "statistics"

    def statistic(self, size: int, row_norm: float, label_bound: float) -> JointStatistics:
        return JointStatistics(size, row_norm, label_bound, PRODUCT_SHARE)

    def noise(self, of: Any, protocol: LocalProtocol) -> tuple[float, float]:
        # svec has the entries off the diagonal times sqrt(2)
        return of.matrix_scale * protocol.noise_std / math.sqrt(2), of.vector_scale * protocol.noise_std

    def moments(self, of: Any, estimate: Vector) -> tuple[Vector, Vector]:
        S, b = of.moments(estimate)
        return S, b


class NoisyRecords(MomentMethod):
    """Users report row and label with normal noise; the server multiplies what it gets."""

    tag, name = "NoisyRecords", "vector"

    def decide(self, public: Public, statement: MomentProblem) -> Self:
        if not public.budget.delta:
            raise BudgetError(f"method={self.name!r} has Gaussian reports: pass delta > 0, far below 1/n_rows")
        return super().decide(public, statement)

    def statistic(self, size: int, row_norm: float, label_bound: float) -> RowAndLabel:
        return RowAndLabel(size, row_norm, label_bound, ROW_SHARE)

    def randomiser(self, size: int) -> Randomiser:
        return GaussianMoments(size, self.public.budget.epsilon, self.public.budget.delta)

    def noise(self, of: Any, protocol: LocalProtocol) -> tuple[float, float]:
        randomiser: Any = protocol.randomiser
        unit = randomiser.copy_std * math.hypot(1.0, randomiser.copy_std)
        return of.row_scale**2 * unit, of.row_scale * of.label_scale * unit

    def moments(self, of: Any, estimate: Vector) -> tuple[Vector, Vector]:
        packed = unpack_symmetric(estimate)
        return packed[:-1, :-1], packed[:-1, -1]


@dataclass(eq=False, repr=False)
class MomentRegression(RegressorMixin, LocalEstimator):
    """An estimator that asks every user once, for S and b.

    Subclasses have the parameters ``method``, ``alpha`` and ``label_bound`` beside those of `LocalEstimator`.
    """

    methods: ClassVar[Mapping[str, type[MomentMethod]]]

    method: str | MomentMethod = "auto"
    _: KW_ONLY
    alpha: float | None = None
    label_bound: float | None = None

    def fit(self, X: Any, y: Any = None, *, public_X: Any = None, **others: Any) -> Self:
        """Fit to arrays (``fit(X, y)``) or to a stored dataset with arrays X and y (``fit(dataset)``).

        Parameters
        ----------
        X, y : array_like, or Dataset
        public_X : array_like of shape (n_public, n_features), optional
            Rows without labels from the same distribution that need no protection.
        """
        return self._fit(X, y, public_X=public_X, **others)

    @abstractmethod
    def _problem(self) -> MomentProblem:
        """What is stated."""

    def _chosen(self, public: Public, **beside: Any) -> MomentMethod:
        rows, fitting = beside.get("public_X"), "public_X" in beside
        method = chosen("method", self.method, self.methods)
        if method == "auto":
            method = PublicCovariance() if rows is not None else JointReports()
            method = replace(method, reason=REASONS[method.name])
        found: MomentMethod = method.decide(public, self._problem())
        if not isinstance(found, PublicCovariance) or not fitting:
            return found
        if rows is None:
            raise DataError(
                "method='public-covariance' takes the second moments of the features from public rows: pass "
                "fit(..., public_X=rows), or choose method='statistics'"
            )
        return found.given(rows)

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.method_, self.method_reason_ = method.name, method.reason

    @property
    def _label_bound(self) -> float:
        return need_bound("label_bound", self.label_bound)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, self.methods)
        if self.alpha is not None:
            check_between("alpha", self.alpha, 0.0)
        assert self._label_bound


REASONS: Mapping[str, str] = MappingProxyType(
    {
        PublicCovariance.name: "public rows give the second moments of the features, so users report x y only",
        JointReports.name: "without public rows, a report of products has less noise than products of reports",
    }
)


def _of(protocol: LocalProtocol) -> Any:
    """The statistic of what users make of a row."""
    of: Any = protocol.statistic
    return of.of if isinstance(of, Mapped) else of
