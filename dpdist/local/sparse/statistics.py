"""Sparse regression from one report of every user: from second moments, or with a public design.

=================== ============================================ =======================================================
method              method id                                    questions
=================== ============================================ =======================================================
`FromStatistics`    nldp-sparse-lr, nldp-ols,                    ``svec(x x')`` and ``x y``, one vector
                    nldp-sparse-lr-heavy
`WithPublicDesign`  nldp-sparse-lr-public, nldp-sparse-lr-heavy  ``x y``; second moments come from public rows
=================== ============================================ =======================================================

Seed 004, Algorithms 1 and 3 and Theorem 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_between
from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.local.randomisers.vectors import GaussianVector
from dpdist.local.sparse.rounds import FLOOR_SHARE, SparseMethod, unit_std
from dpdist.local.sparse.sparse_statement import SparseProblem
from dpdist.local.statistics.residuals import BallResiduals
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import DECIDED, Oracle, Public
from dpdist.solvers.sparse import in_ball, refit, shrunk, sparse_from_statistics
from dpdist.solvers.spectral import psd_floor

Vector = NDArray[np.float64]

THRESHOLDS = ("auto", "iht", "soft", "hard", "none")
MOMENT_SLACK = 1.2
INSTRUMENT_SLACK = 1.05
"""Rows are scaled down at these times sqrt(d); the second costs no bias, so it is tighter."""
RIDGE = 1e-6
LABEL_SHARE = 0.7
"""Of the clip that balances noise and the bias that Markov's inequality allows, which is more than there is."""


@dataclass(frozen=True)
class FromMoments(SparseMethod):
    """What both have in common: how an estimate from moments is made sparse.

    Parameters
    ----------
    reports : {"auto", "vector", "hemisphere", "gaussian"}
    threshold : {"auto", "iht", "soft", "hard", "none"}
        What makes an estimate sparse; see the methods.
    threshold_scale : float
        For "soft": times the largest that noise alone is expected to be.
    """

    threshold: str = "auto"
    threshold_scale: float = 0.5

    def decide(self, public: Public, statement: SparseProblem) -> Self:
        if self.threshold not in THRESHOLDS:
            raise BudgetError(f"threshold must be one of {', '.join(map(repr, THRESHOLDS))}, got {self.threshold!r}")
        check_between("threshold_scale", self.threshold_scale, 0.0, 100.0)
        return super().decide(public, statement)

    def _label_bound(self, row_norm: float) -> float:
        """Where labels are clipped: as asked, by their moment, or at two standard deviations.

        With ``E |y|^(2 q) <= M``, noise and the largest possible bias are balanced by
        ``(M sqrt(n) / (c r sqrt(pi ln d)))^(1 / (2 q))``, ``c = (e^epsilon + 1)/(e^epsilon - 1)``; 0.7 of it is taken.
        (Seed 004, Theorem 5, leaves out d and the constants, which gives 20 to 100 standard deviations.)
        """
        problem, public = self.statement, self.public
        if problem.label_bound is not None:
            return problem.label_bound
        if problem.label_moment is None:
            return 2 * math.hypot(problem.radius, problem.noise_bound / 2)
        q, moment = problem.label_moment
        noise = (
            row_norm / math.tanh(public.budget.epsilon / 2) * math.sqrt(math.pi * math.log(max(2, public.n_features)))
        )
        return float(LABEL_SHARE * (moment * math.sqrt(public.n_rows) / noise) ** (1 / (2 * q)))

    def _how(self, default: str) -> str | None:
        how = default if self.threshold == "auto" else self.threshold
        return None if how == "none" else how


class FromStatistics(FromMoments):
    """One joint report; then thresholding of the noisy normal equations.

    Eigenvalues of the second moments are floored at half of their public bound first: without that, the estimate
    explodes whenever noise makes the matrix nearly singular. ``threshold="iht"`` (the default) is iterative hard
    thresholding; "soft" the published estimate ``soft(S^-1 b)``, whose thresholds come from the predicted noise; "hard"
    keeps the largest entries of ``S^-1 b``; "none" is least squares (nldp-ols).
    """

    tag, name = "FromStatistics", "statistics"

    @property
    def statistic(self) -> JointStatistics:
        """What users report."""
        problem = self.statement
        row_norm = problem.norm_of_rows(MOMENT_SLACK)
        bound = self._label_bound(row_norm)
        share = row_norm / (row_norm + bound)
        return JointStatistics(problem.n_features, row_norm, bound, share, problem.feature_bound)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        statistic, budget = self.statistic, self.public.budget
        if self.reports == "gaussian":
            law = GaussianVector(statistic.size, float(budget.epsilon), float(budget.delta), statistic.diameter)
            return [LocalProtocol(statistic, law)]
        return [LocalProtocol(statistic, self.vector(statistic.size))]

    @property
    def stds(self) -> tuple[float, float]:
        """Noise of an entry of the diagonal of the second moments, and of ``E x y``."""
        noise = self.protocols[0].noise_std / math.sqrt(self.public.n_rows)
        return self.statistic.matrix_scale * noise, self.statistic.vector_scale * noise

    @property
    def std(self) -> float:
        matrix, vector = self.stds
        return math.hypot(vector, matrix * self.statement.radius) / self.statement.eigenvalues[0]

    def coefficients(self, oracle: Oracle) -> Vector:
        problem = self.statement
        S, b = self.statistic.moments(self.estimate(oracle))
        S = psd_floor(S, FLOOR_SHARE * problem.eigenvalues[0])
        how = self._how("iht")
        if how == "iht":
            return sparse_from_statistics(S, b, problem.n_nonzero, problem.radius)
        inverse = np.linalg.inv(S)
        u = inverse @ b
        matrix, vector = self.stds
        noise = math.hypot(vector, matrix * min(problem.radius, float(np.linalg.norm(u))))
        level = self.threshold_scale * math.sqrt(2 * math.log(max(2, problem.n_features))) * noise
        return shrunk(u, level * np.linalg.norm(inverse, axis=1), problem.n_nonzero, problem.radius, how)


@dataclass(frozen=True)
class WithPublicDesign(FromMoments):
    """The largest entries of ``A^-1 b``, refitted: b the mean of reports of ``clip(x) y``, ``A`` that of ``clip(x) x'``
    over public rows (or a public covariance).

    The clipped row is an instrument: ``E clip(x) y = E clip(x) x' theta`` for noise of mean 0, so the clip of the
    features costs no bias (seed 004, Algorithm 3, clips them in one of the two moments only, which does). The radius
    can be tight. ``threshold="soft"`` shrinks by the predicted noise instead, that of finitely many public rows
    included (which the bound of seed 004, Theorem 4, leaves out); "none" is least squares.

    Attributes
    ----------
    moments : array or None
        A of public rows; decided.
    n_public : int or None
        How many there were.
    """

    tag, name = "WithPublicDesign", "public-covariance"

    moments: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    n_public: int | None = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    @property
    def statistic(self) -> BallResiduals:
        """What users report: the residual at 0."""
        problem = self.statement
        row_norm = problem.norm_of_rows(INSTRUMENT_SLACK)
        bound = self._label_bound(row_norm)
        return BallResiduals(problem.n_features, bound, problem.feature_bound, row_norm, problem.link, "invert")

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [LocalProtocol(self.statistic, self.vector(self.statement.n_features))]

    @property
    def std(self) -> float:
        noise = unit_std(self.protocols[0]) / math.sqrt(self.public.n_rows)
        return noise / self.statement.eigenvalues[0]

    def given(self, blocks: Any) -> Self:
        """The method with the mean of ``clip(x) x'`` over public rows; those that are not finite are left out."""
        p = self.statement.n_features
        A, m = np.zeros((p, p)), 0
        for block in blocks:
            rows, _ = bounded_rows(block, np.zeros(len(block)))
            clipped, _ = bounded_rows(
                rows, np.zeros(len(rows)), row_norm=self.statistic.row_norm, feature_bound=self.statistic.feature_bound
            )
            A += clipped.T @ rows
            m += int(np.isfinite(block).all(axis=1).sum())
        return replace(self, moments=A / max(1, m), n_public=m)

    def coefficients(self, oracle: Oracle) -> Vector:
        problem, p = self.statement, self.statement.n_features
        b = -self.estimate(oracle, 0, np.zeros(p))
        A = self.moments
        if A is None:
            A = np.eye(p) if problem.covariance is None else problem.covariance
        A = A + RIDGE * np.trace(A) / p * np.eye(p)
        inverse = np.linalg.inv(A)
        noise = unit_std(self.protocols[0]) ** 2 / self.public.n_rows * np.square(inverse).sum(axis=1)
        if self.n_public:
            assert self.statistic.residual_bound > 0
            spread = (self.statistic.residual_bound / 2) ** 2
            noise = noise + spread * np.abs(np.diag(inverse)) / self.n_public
        level = self.threshold_scale * math.sqrt(2 * math.log(max(2, p))) * np.sqrt(noise)
        how = "hard" if self.threshold in ("auto", "iht") else self._how("hard")
        theta = shrunk(inverse @ b, level, problem.n_nonzero, problem.radius, how)
        return in_ball(refit(A, b, theta, problem.n_nonzero), problem.radius) if how == "hard" else theta
