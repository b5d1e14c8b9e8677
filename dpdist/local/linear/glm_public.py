"""Generalised linear models from one report of every user, where the server has rows without labels from elsewhere.

For normal features the coefficients are those of least squares times a number: ``w = c w_ols`` (Stein; Erdogdu, Dicker
and Bayati 2016). For others that is the direction, and c the best number there is for it
(`dpdist.solvers.scale_roots`). Public rows give the expectations, so users report second moments with the label only,
and any model can be had from the same reports (seed 000, Algorithms 5.2.39 and 5.2.40, as corrected in spec 04,
sections 13 to 15, but for the equation of c).

Users standardise their rows by public numbers, ``z = A (x - m)``, before these are shortened to a norm: where second
moments are public (`PublicCovarianceGlm`), A makes them those of white noise, and all directions get the same noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.estimators.inputs import check_public_rows
from dpdist.kernels.clip import clip_l2
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
from dpdist.solvers.scale_roots import ScaleResponse, root_scale, scale_response
from dpdist.solvers.spectral import solve_psd
from dpdist.solvers.standard_errors import SHRUNK, Uncertainty

Floats = NDArray[np.float64]
PER_FEATURE = 20
"""Public rows for each feature, from which on their covariance is better than one from reports."""
KEPT = 0.95
"""Share of the public rows that are not shortened."""
FLAT = 1e-8
"""Directions in which public rows, scaled column by column, vary by less than this part of the most are left out."""
ROOT_ROWS = 10_000
MOST_NUMBERS = 1000
"""Reported numbers by which coefficients are moved, one after another, to see how sure they are."""
BENT = 0.15
"""By which part standard errors may change where the coefficients are one of them away: intervals of 95 % then cover
93.2 %, as ``P(|Z| <= 1.96 (1 + Z BENT))`` is for a normal Z."""
NO_SCALE = (
    "no scale of the coefficients fits the public rows, so that their size is a guess. With more users, or a larger "
    "epsilon, there would be intervals"
)


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


def public_rows(public_X: Any, n_features: int) -> Floats:
    """Public rows as numbers; they may be looked at, and be complained of."""
    try:
        given = np.asarray(public_X)
        # whatever the order of the rows' bytes was, sums have one
        rows = np.ascontiguousarray(given.real, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("public_X must be an array of numbers, with one row for each public record") from None
    if given.dtype.kind == "c":
        raise DataError("public_X has complex numbers: pass real ones")
    if given.ndim == 0:
        raise DataError(f"public_X must have rows of {n_features} features, got a single {type(public_X).__name__}")
    check_public_rows(rows, n_features)
    return rows


def public_numbers(public_X: Any, n_features: int) -> tuple[Floats, Floats, Floats]:
    """Public rows as numbers, their means, and their covariance."""
    rows = public_rows(public_X, n_features)
    if not np.isfinite(rows).all():
        raise DataError("public_X has numbers that are not finite: leave these rows out")
    if len(rows) <= n_features:
        raise DataError(f"{len(rows)} public rows are too few for {n_features} features: pass more")
    with np.errstate(over="ignore", invalid="ignore"):
        centre, covariance = rows.mean(axis=0), np.atleast_2d(np.cov(rows.T))
    if not np.isfinite(covariance).all():
        raise DataError("public_X has numbers whose squares overflow: scale the features, of public rows and users")
    varies = rows.max(axis=0) > rows.min(axis=0)  # the variance of a constant is what rounding leaves
    covariance *= np.outer(varies, varies)
    return rows, centre, covariance


def whitening(covariance: Floats) -> Floats:
    """A, for which ``A covariance A' = 1``; directions and columns that vary hardly at all are left out."""
    varies = np.diag(covariance) > np.finfo(float).tiny
    if not varies.any():
        return np.zeros((0, len(covariance)))
    scales = np.sqrt(np.diag(covariance)[varies])
    variances, axes = np.linalg.eigh(covariance[np.ix_(varies, varies)] / np.outer(scales, scales))
    kept = variances > FLAT * variances[-1]
    A = np.zeros((int(kept.sum()), len(covariance)))
    A[:, varies] = (axes[:, kept] / np.sqrt(variances[kept])).T / scales
    return A


def some_matrix(matrix: Floats) -> Floats:
    """A matrix that standardises, if it leaves anything."""
    if not len(matrix):
        raise DataError("public_X varies in no feature, so there is nothing to fit: pass more of the rows")
    return matrix


class _Error(NamedTuple):
    """Of coefficients and intercept: all of it, the part of the reports' noise, how they move with each reported
    number, and by how much one standard error of the scale moves these."""

    covariance: Floats
    noise: Floats
    whole: Floats
    farthest: Floats


@dataclass(frozen=True)
class PublicGlm(GlmMethod):
    """Least squares from reports, and its scale from public rows."""

    rows: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    """The public ones, standardised; for the scale."""
    features: Standardised | None = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    row_norm: float = field(default=1.0, kw_only=True, repr=False, metadata=DECIDED)

    needs_public: ClassVar[bool] = True
    reads_public: ClassVar[bool] = True
    shortens_squares: ClassVar[bool] = False
    """Whether the second moments of least squares are those of shortened rows, whose labels are scaled with them."""
    measures: ClassVar[str] = "expected norm of the noise in the mean of the label times standardised features"

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        statement.model(self.name)
        d = public.n_features  # before public rows are given, those of white noise stand for them
        plain = Standardised(d, d + 1, (0.0,) * d, tuple(map(tuple, np.eye(d).tolist())))
        return self._with(public, statement, features=plain, row_norm=math.sqrt(d + 1))

    def given(self, public_X: Any) -> Self:
        """The method with the standardisation and the scale of public rows; these may be looked at."""
        rows, centre, covariance = public_numbers(public_X, self.public.n_features)
        matrix = some_matrix(self.standardising(covariance))
        made = Standardised(len(centre), len(matrix) + 1, tuple(centre.tolist()), tuple(map(tuple, matrix.tolist())))
        standard = made(rows)
        norm = float(np.quantile(np.linalg.norm(standard, axis=1), KEPT))
        spread = np.linspace(0, len(rows) - 1, min(len(rows), ROOT_ROWS)).astype(np.int64)  # the rows may be sorted
        return replace(self, rows=standard[spread, :-1], features=made, row_norm=norm)

    @property
    def trivial_error(self) -> float:
        """Uncorrelated features of variance 1 explain no more than the label's own square."""
        return self.statement.label_bound

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
        estimate = self.estimate(oracle)
        coef, intercept, scale, found = fitted = self._coefficients(estimate)
        kept = {"scale": scale, "scale_found": found, "approximation_error": float("nan")}
        known = self._uncertainty(estimate, fitted) if found else NO_SCALE
        return {**kept, "coef": coef, "intercept": intercept, "uncertainty": known}

    def _coefficients(self, estimate: Floats) -> tuple[Floats, float, float, bool]:
        """Those of the features as they are, the intercept, the scale, and whether it solves its equation."""
        assert self.rows is not None and self.features is not None
        loss = self.statement.model(self.name)
        variance = self.protocols[0].noise_std ** 2 / self.public.n_rows
        w, mean = self.least_squares(estimate, variance)
        error = float(np.linalg.norm(w)) * self._unit * math.sqrt(variance)  # of <w, b>
        t, (weights, squares) = self.rows @ w, self._weights
        scale, level, found = root_scale(loss.mean, t, mean, float(np.mean(squares * t * t)), weights, error)
        coef = scale * (np.array(self.features.matrix).T @ w)
        return coef, level - float(coef @ np.array(self.features.centre)), scale, found

    def _uncertainty(self, estimate: Floats, coefficients: tuple[Floats, float, float, bool]) -> Uncertainty | str:
        """The covariance there, and whether it would be another one a standard error away."""
        variance = self.protocols[0].noise_std ** 2 / self.public.n_rows
        kept = self.kept(estimate, variance)
        if kept < 1 - SHRUNK:
            return (
                f"the noise made the reported direction longer, and {1 - kept:.0%} of it was taken away: an interval "
                "would miss the truth more often than it says. With more users, or a larger epsilon, there would be one"
            )
        if len(estimate) > MOST_NUMBERS:
            return (
                f"{len(estimate)} reported numbers would have to be moved one after another, and up to {MOST_NUMBERS} "
                "are. With enough public rows, or fewer features, there would be intervals"
            )
        here = self._known_error(estimate, coefficients)
        if here is None:
            return NO_SCALE
        errors = []
        for step in (-1.0, 1.0):
            moved = estimate + step * here.farthest
            there = self._known_error(moved, self._coefficients(moved))
            if there is None:
                return NO_SCALE
            errors.append(np.sqrt(np.diag(there.covariance)))
        own = np.sqrt(np.diag(here.covariance))
        sure = np.where(own > 0, own, np.inf)  # a column that is constant in public rows has the coefficient 0
        bent = np.abs((errors[1] - errors[0]) / (2 * sure) * (here.whole @ here.farthest) / sure)
        if float(bent.max()) > BENT:
            return (
                "the size of the coefficients is not known well enough: one standard error away from where it was "
                f"found the standard errors themselves would be up to {float(bent.max()):.0%} others, and an interval "
                "around too small coefficients would be too short. With more users, a larger epsilon or more public "
                "rows there would be intervals"
            )
        return Uncertainty(here.covariance, np.diag(here.noise).copy())

    def _known_error(self, estimate: Floats, coefficients: tuple[Floats, float, float, bool]) -> _Error | None:
        """How coefficients move with each number that the reports tell, by its standard error, and with public rows.

        Least squares by differences, scale and level by the derivatives of the equations that they solve.
        """
        assert self.rows is not None and self.features is not None
        coef, intercept, scale, found = coefficients
        A, centre = np.array(self.features.matrix), np.array(self.features.centre)
        level = intercept + float(coef @ centre)
        variance = self.protocols[0].noise_std ** 2 / self.public.n_rows
        errors = np.abs(self.statistic().restore(np.ones(len(estimate)))) * math.sqrt(variance)
        w = self.least_squares(estimate, variance)[0]
        ends = [
            [np.append(*self.least_squares(estimate + step * error, variance)) for error in np.diag(errors)]
            for step in (-0.5, 0.5)
        ]
        moved = (np.array(ends[1]) - np.array(ends[0])).T / errors
        loss = self.statement.model(self.name)
        if not found:
            return None
        response = scale_response(loss.mean, loss.mean_slope, self.rows, w, scale, level, *self._weights)
        if response is None:
            return None
        scales = response.by_numbers @ moved
        of_scale = scales[0] * errors**2
        farthest = of_scale / max(math.sqrt(float(scales[0] @ of_scale)), 1e-300)
        by_coef = A.T @ (np.outer(w, scales[0]) + scale * moved[:-1])
        whole = np.vstack([by_coef, scales[1] - centre @ by_coef])
        by_scale = np.vstack([np.outer(A.T @ w, [1.0, 0.0]), [-float(centre @ A.T @ w), 1.0]])
        noise = (whole * errors**2) @ whole.T
        asked = self.asked_error(estimate, scale, level, w) + self.public_error(estimate)
        covariance = noise + whole @ asked @ whole.T + by_scale @ self.scale_error(response) @ by_scale.T
        return _Error((covariance + covariance.T) / 2, noise, whole, farthest)

    def kept(self, estimate: Floats, variance: float) -> float:
        """What is left of a reported direction that was shrunk."""
        return 1.0

    def asked_error(self, estimate: Floats, scale: float, level: float, w: Floats) -> Floats:
        """Covariance of the reported numbers over whom was asked, as if labels were as large as they may be.

        Over public rows with the labels' means there, and their variance around it, ``B^2 - mean^2`` at most.
        """
        assert self.rows is not None
        of, bound = self.statistic(), self.statement.label_bound
        rows = np.column_stack([self.rows, np.ones(len(self.rows))])
        means = self.statement.model(self.name).mean(scale * (self.rows @ w) + level)
        labels = np.clip(means, -bound, bound)
        units = of.restore(np.ones(len(estimate)))

        def reported(y: Floats) -> Floats:
            return of.values({"X": rows, "y": y}) * units

        of_label = reported(np.full(len(rows), bound)) - reported(np.zeros(len(rows)))
        around = of_label * np.sqrt(1 - np.square(labels / bound))[:, None]
        found = np.cov(reported(labels).T) + around.T @ around / len(rows)
        return np.asarray(found / self.public.n_rows)

    def public_error(self, estimate: Floats) -> Floats:
        """Covariance of what public rows that are not all there are make of the reported numbers.

        Their mean is not that of all rows: where labels have the mean m, ``E y z`` is off by m times that.
        """
        assert self.rows is not None
        found = np.zeros((len(estimate), len(estimate)))
        d = self.rows.shape[1]
        found[-1 - d : -1, -1 - d : -1] = estimate[-1] ** 2 * self.rows.T @ self.rows / len(self.rows) ** 2
        return found

    def scale_error(self, response: ScaleResponse) -> Floats:
        """Covariance of scale and level over other public rows."""
        return np.asarray(np.cov(response.by_row.T) / len(response.by_row))

    def expected_error(self, plan: Plan) -> float:
        return float(self._unit * self.protocols[0].noise_std * math.sqrt(self.size / self.public.n_rows))

    @property
    def _weights(self) -> tuple[Floats, Floats | float]:
        """What the label times a row weighs where public rows are shortened, and what squared predictors do."""
        assert self.rows is not None
        lengths = np.minimum(1.0, self.row_norm / np.sqrt(1 + np.square(self.rows).sum(axis=1)))
        return (lengths**2, lengths**2) if self.shortens_squares else (lengths, 1.0)

    @property
    def _unit(self) -> float:
        """What a reported number of the label times features stands for."""
        of = self.statistic()
        return of.scale if isinstance(of, LabelledRow) else of.vector_scale


@dataclass(frozen=True)
class PublicCovarianceGlm(PublicGlm):
    """Users report label times features; all else is known from public rows."""

    tag, name = "PublicCovarianceGlm", "public-covariance"

    def standardising(self, covariance: Floats) -> Floats:
        return whitening(covariance)

    def statistic(self) -> LabelledRow:
        return LabelledRow(self.size, self.row_norm, self.statement.label_bound)

    def public_error(self, estimate: Floats) -> Floats:
        """The second moments of public rows are off by ``(|w|^2 I + w w') / n`` where they meet w, for normal rows.

        What was taken away of b, and what shortened rows lack of it, is counted as an error of that size, or intervals
        of 95 % would cover 89 %.
        """
        assert self.rows is not None
        w = estimate[:-1]
        rows = np.column_stack([self.rows, np.ones(len(self.rows))])
        lacking = estimate - clip_l2(rows, self.row_norm).T @ (rows @ estimate) / len(rows)
        lacking[:-1] += w * (1 - self.kept(estimate, self.protocols[0].noise_std ** 2 / self.public.n_rows))
        found = super().public_error(estimate)
        found[:-1, :-1] += (float(w @ w) * np.eye(len(w)) + np.outer(w, w)) / len(self.rows)
        return found + np.outer(lacking, lacking)

    def scale_error(self, response: ScaleResponse) -> Floats:
        """The second moment of the predictors is that of the standardisation, whatever the rows: it is in w already."""
        assert self.rows is not None
        t = response.predictors
        fixed = np.column_stack([np.ones_like(t), t * t])
        left = response.by_row - fixed @ np.linalg.lstsq(fixed, response.by_row, rcond=None)[0]
        return np.asarray(left.T @ left / len(t) ** 2)

    def least_squares(self, estimate: Floats, variance: float) -> tuple[Floats, float]:
        # James and Stein: noise makes b longer, and the scale of a longer b would be far too large
        return estimate[:-1] * self.kept(estimate, variance), float(estimate[-1])

    def kept(self, estimate: Floats, variance: float) -> float:
        """What is left of b after it was shrunk by the noise in its length."""
        b = estimate[:-1]
        noise, found = len(b) * self.statistic().scale ** 2 * variance, float(b @ b)
        return max(0.0, 1 - noise / max(found, 1e-300))


@dataclass(frozen=True)
class StatisticsGlm(PublicGlm):
    """Users report the second moments of features and label; public rows give the scale only, so few of them do."""

    tag, name = "StatisticsGlm", "statistics"
    shortens_squares: ClassVar[bool] = True

    def standardising(self, covariance: Floats) -> Floats:
        variances = np.diag(covariance)
        return np.asarray(np.diag(1 / np.sqrt(np.where(variances > 0, variances, 1.0)))[variances > 0])

    def statistic(self) -> JointStatistics:
        return JointStatistics(self.size, self.row_norm, self.statement.label_bound, PRODUCT_SHARE)

    def asked_error(self, estimate: Floats, scale: float, level: float, w: Floats) -> Floats:
        """And what least squares find where longer rows count less, which is not what they find of all rows alike."""
        assert self.rows is not None
        means = self.statement.model(self.name).mean(scale * (self.rows @ w) + level)
        lengths = np.sqrt(1 + np.square(self.rows).sum(axis=1))
        weighed = self.rows * np.minimum(1.0, self.row_norm / lengths)[:, None] ** 2
        plain, less = self.rows.T @ self.rows, weighed.T @ self.rows
        moved = np.zeros(len(estimate))
        d = self.rows.shape[1]
        other = solve_psd(less, weighed.T @ means) - solve_psd(plain, self.rows.T @ means)
        moved[-1 - d : -1] = less @ other / len(self.rows)
        return super().asked_error(estimate, scale, level, w) + np.outer(moved, moved)

    def least_squares(self, estimate: Floats, variance: float) -> tuple[Floats, float]:
        of = self.statistic()
        S, b = of.moments(estimate)
        mean = float(b[-1])
        size = self.statement.label_bound  # standardised features explain no more than the label's own square
        noise = math.hypot(of.vector_scale, of.matrix_scale * size) * math.sqrt(variance)
        return wiener_solve(S[:-1, :-1], b[:-1], math.sqrt(len(b) - 1) * noise / size), mean
