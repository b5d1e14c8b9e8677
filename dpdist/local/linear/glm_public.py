"""Generalised linear models from one report of every user, where the server has rows without labels from elsewhere.

For normal features the coefficients are those of least squares times a number: ``w = c w_ols``, where
``c E mean'(c <x, w_ols> + a) = 1`` and ``E mean(c <x, w_ols> + a) = E y`` (Stein; Erdogdu, Dicker and Bayati 2016).
Public rows give the expectations, so users report second moments with the label only, and any model can be had from the
same reports (seed 000, Algorithms 5.2.39 and 5.2.40, as corrected in spec 04, sections 13 to 15).

Users standardise their rows by public numbers, ``z = A (x - m)``, before these are shortened to a norm: where second
moments are public (`PublicCovarianceGlm`), A makes them those of white noise, and all directions get the same noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.estimators.inputs import check_public_rows
from dpdist.local.linear.generalised_linear import GeneralisedLinear
from dpdist.local.linear.glm_method import GlmMethod, GlmProblem
from dpdist.local.linear.moment_regression import PRODUCT_SHARE
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.feature_maps import FeatureMap, Mapped
from dpdist.local.statistics.labelled import LabelledRow
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import DECIDED, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.linear import wiener_solve
from dpdist.solvers.scale_roots import root_scale

Floats = NDArray[np.float64]
PER_FEATURE = 20
"""Public rows for each feature, from which on their covariance is better than one from reports."""
KEPT = 0.95
"""Share of the public rows that are not shortened."""
FLAT = 1e-8
"""Directions in which public rows, scaled column by column, vary by less than this part of the most are left out."""
ROOT_ROWS = 10_000


@dataclass(frozen=True)
class Standardised(FeatureMap):
    """``(A (x - m), 1)``, with public A and m.

    >>> Standardised(2, 2, centre=(1.0, 0.0), matrix=((2.0, 0.0),))(np.array([[3.0, 5.0]])).tolist()
    [[4.0, 1.0]]
    """

    tag: ClassVar[str] = "Standardised"

    n_features: int
    n_components: int
    centre: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]

    def __call__(self, X: Floats) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            moved = (np.asarray(X, dtype=np.float64) - np.array(self.centre)) @ np.array(self.matrix).T
        return np.column_stack([moved, np.ones(len(moved))])


@dataclass(frozen=True)
class PublicGlm(GlmMethod):
    """Least squares from reports, and its scale from public rows."""

    rows: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    """The public ones, standardised; for the scale."""
    features: Standardised | None = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    row_norm: float = field(default=1.0, kw_only=True, repr=False, metadata=DECIDED)

    needs_public: ClassVar[bool] = True
    measures: ClassVar[str] = "expected norm of the noise in the mean of the label times standardised features"

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        d = public.n_features  # before public rows are given, those of white noise stand for them
        plain = Standardised(d, d + 1, (0.0,) * d, tuple(map(tuple, np.eye(d).tolist())))
        return self._with(public, statement, features=plain, row_norm=math.sqrt(d + 1))

    def given(self, public_X: Any) -> Self:
        """The method with the standardisation and the scale of public rows; these may be looked at."""
        rows = np.asarray(public_X)
        if rows.dtype.kind == "c":
            raise DataError("public_X has complex numbers: pass real ones")
        rows = np.ascontiguousarray(rows, dtype=np.float64)  # whatever their order was, sums have one
        check_public_rows(rows, self.public.n_features)
        if not np.isfinite(rows).all():
            raise DataError("public_X has numbers that are not finite: leave these rows out")
        if len(rows) <= self.public.n_features:
            raise DataError(f"{len(rows)} public rows are too few for {self.public.n_features} features: pass more")
        with np.errstate(over="ignore", invalid="ignore"):
            centre, covariance = rows.mean(axis=0), np.atleast_2d(np.cov(rows.T))
        if not np.isfinite(covariance).all():
            raise DataError("public_X has numbers whose squares overflow: scale the features, of public rows and users")
        matrix = self.standardising(covariance)
        if not len(matrix):
            raise DataError("public_X varies in no feature, so there is nothing to fit: pass more of the rows")
        made = Standardised(len(centre), len(matrix) + 1, tuple(centre.tolist()), tuple(map(tuple, matrix.tolist())))
        standard = made(rows)
        norm = float(np.quantile(np.linalg.norm(standard, axis=1), KEPT))
        spread = np.linspace(0, len(rows) - 1, min(len(rows), ROOT_ROWS)).astype(np.int64)  # the rows may be sorted
        return replace(self, rows=standard[spread, :-1], features=made, row_norm=norm)

    @abstractmethod
    def standardising(self, covariance: Floats) -> Floats:
        """A."""

    @property
    def size(self) -> int:
        """Of a standardised row, with its constant."""
        assert self.features is not None
        return self.features.n_components

    @abstractmethod
    def statistic(self) -> LabelledRow | JointStatistics:
        """What users report of a standardised row."""

    @abstractmethod
    def least_squares(self, estimate: Floats, variance: float) -> tuple[Floats, float]:
        """``w_ols`` of the standardised features, and the mean of the labels."""

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        assert self.features is not None
        of = self.statistic()
        return [LocalProtocol(Mapped(self.features, of), best_vector(of.size, self.public.budget.epsilon))]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        assert self.rows is not None and self.features is not None
        loss: GeneralisedLinear = self.statement.loss
        variance = self.protocols[0].noise_std ** 2 / self.public.n_rows
        w, mean = self.least_squares(self.estimate(oracle), variance)
        scale, level, found = root_scale(loss.mean, loss.mean_slope, self.rows @ w, mean)
        coef = scale * (np.array(self.features.matrix).T @ w)
        intercept = level - float(coef @ np.array(self.features.centre))
        kept = {"scale": scale, "scale_found": found, "approximation_error": float("nan")}
        return {**kept, "coef": coef, "intercept": intercept}

    def expected_error(self, plan: Plan) -> float:
        protocol, of = self.protocols[0], self.statistic()
        unit = of.scale if isinstance(of, LabelledRow) else of.vector_scale
        return float(unit * protocol.noise_std * math.sqrt(self.size / self.public.n_rows))


@dataclass(frozen=True)
class PublicCovarianceGlm(PublicGlm):
    """Users report label times features; all else is known from public rows."""

    tag, name = "PublicCovarianceGlm", "public-covariance"

    def standardising(self, covariance: Floats) -> Floats:
        scales = np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
        variances, axes = np.linalg.eigh(covariance / np.outer(scales, scales))
        kept = variances > FLAT * variances[-1]
        return np.asarray((axes[:, kept] / np.sqrt(variances[kept])).T / scales)

    def statistic(self) -> LabelledRow:
        return LabelledRow(self.size, self.row_norm, self.statement.label_bound)

    def least_squares(self, estimate: Floats, variance: float) -> tuple[Floats, float]:
        level = self.size * self.statistic().scale ** 2 * variance / self.statement.label_bound**2
        return estimate[:-1] / (1 + level), float(estimate[-1])


@dataclass(frozen=True)
class StatisticsGlm(PublicGlm):
    """Users report the second moments of features and label; public rows give the scale only, so few of them do."""

    tag, name = "StatisticsGlm", "statistics"

    def standardising(self, covariance: Floats) -> Floats:
        variances = np.diag(covariance)
        return np.asarray(np.diag(1 / np.sqrt(np.where(variances > 0, variances, 1.0)))[variances > 0])

    def statistic(self) -> JointStatistics:
        return JointStatistics(self.size, self.row_norm, self.statement.label_bound, PRODUCT_SHARE)

    def least_squares(self, estimate: Floats, variance: float) -> tuple[Floats, float]:
        of = self.statistic()
        S, b = of.moments(estimate)
        mean = float(b[-1])
        size = self.statement.label_bound  # standardised features explain no more than the label's own square
        noise = math.hypot(of.vector_scale, of.matrix_scale * size) * math.sqrt(variance)
        return wiener_solve(S[:-1, :-1], b[:-1], math.sqrt(len(b) - 1) * noise / size), mean
