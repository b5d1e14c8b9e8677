"""Sparse regression from one report of every user: from second moments, or with a public design.

=================== ============================================ =======================================================
plan                method id                                    questions
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
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.local.protocol import LocalProtocol
from dpdist.local.residuals import BallResiduals
from dpdist.local.second_moments import JointStatistics
from dpdist.local.sparse_rounds import FLOOR_SHARE, Ask, Plan, Setting, unit_std, vector
from dpdist.local.vectors import GaussianVector
from dpdist.solvers.sparse import in_ball, refit, shrunk, sparse_from_statistics
from dpdist.solvers.spectral import psd_floor

Vector = NDArray[np.float64]

MOMENT_SLACK = 1.2
INSTRUMENT_SLACK = 1.05
"""Rows are scaled down at these times sqrt(d); the second costs no bias, so it is tighter."""
RIDGE = 1e-6
LABEL_SHARE = 0.7
"""Of the clip that balances noise and the bias that Markov's inequality allows, which is more than there is."""


def label_bound(setting: Setting, row_norm: float) -> float:
    """Where labels are clipped: as asked, by their moment, or at two standard deviations.

    With ``E |y|^(2 q) <= M``, noise and the largest possible bias are balanced by
    ``(M sqrt(n) / (c r sqrt(pi ln d)))^(1 / (2 q))``, ``c = (e^epsilon + 1)/(e^epsilon - 1)``; 0.7 of it is taken.
    (Seed 004, Theorem 5, leaves out d and the constants, which gives 20 to 100 standard deviations.)
    """
    if setting.label_bound is not None:
        return setting.label_bound
    if setting.label_moment is None:
        return 2 * math.hypot(setting.radius, setting.noise_bound / 2)
    q, moment = setting.label_moment
    noise = row_norm / math.tanh(setting.epsilon / 2) * math.sqrt(math.pi * math.log(max(2, setting.n_features)))
    return float(LABEL_SHARE * (moment * math.sqrt(setting.n_rows) / noise) ** (1 / (2 * q)))


@dataclass(frozen=True)
class FromStatistics(Plan):
    """One joint report; then thresholding of the noisy normal equations.

    Eigenvalues of the second moments are floored at half of their public bound first: without that, the estimate
    explodes whenever noise makes the matrix nearly singular. ``threshold="iht"`` (the default) is iterative hard
    thresholding; "soft" the published estimate ``soft(S^-1 b)``, whose thresholds come from the predicted noise; "hard"
    keeps the largest entries of ``S^-1 b``; None is least squares (nldp-ols).
    """

    tag: ClassVar[str] = "FromStatistics"

    setting: Setting
    reason: str = "as asked"

    @property
    def statistic(self) -> JointStatistics:
        """What users report."""
        setting = self.setting
        row_norm = setting.norm_of_rows(MOMENT_SLACK)
        bound = label_bound(setting, row_norm)
        share = row_norm / (row_norm + bound)
        return JointStatistics(setting.n_features, row_norm, bound, share, setting.feature_bound)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        statistic, setting = self.statistic, self.setting
        if setting.reports == "gaussian":
            law = GaussianVector(statistic.size, setting.epsilon, setting.delta, statistic.diameter)
            return [LocalProtocol(statistic, law)]
        return [LocalProtocol(statistic, vector(statistic.size, setting))]

    @property
    def stds(self) -> tuple[float, float]:
        """Noise of an entry of the diagonal of the second moments, and of ``E x y``."""
        noise = self.protocols[0].noise_std / math.sqrt(self.setting.n_rows)
        return self.statistic.matrix_scale * noise, self.statistic.vector_scale * noise

    @property
    def std(self) -> float:
        matrix, vector_ = self.stds
        return math.hypot(vector_, matrix * self.setting.radius) / self.setting.eigenvalues[0]

    def solve(self, questions: Ask) -> Vector:
        setting = self.setting
        S, b = self.statistic.moments(questions.ask(0))
        S = psd_floor(S, FLOOR_SHARE * setting.eigenvalues[0])
        how = "iht" if setting.threshold == "auto" else setting.threshold
        if how == "iht":
            return sparse_from_statistics(S, b, setting.n_nonzero, setting.radius)
        inverse = np.linalg.inv(S)
        u = inverse @ b
        matrix, vector_ = self.stds
        noise = math.hypot(vector_, matrix * min(setting.radius, float(np.linalg.norm(u))))
        level = setting.threshold_scale * math.sqrt(2 * math.log(max(2, setting.n_features))) * noise
        return shrunk(u, level * np.linalg.norm(inverse, axis=1), setting.n_nonzero, setting.radius, how)


@dataclass(frozen=True)
class WithPublicDesign(Plan):
    """The largest entries of ``A^-1 b``, refitted: b the mean of reports of ``clip(x) y``, ``A`` that of ``clip(x) x'``
    over public rows (or a public covariance).

    The clipped row is an instrument: ``E clip(x) y = E clip(x) x' theta`` for noise of mean 0, so the clip of the
    features costs no bias (seed 004, Algorithm 3, clips them in one of the two moments only, which does). The radius
    can be tight. ``threshold="soft"`` shrinks by the predicted noise instead, that of finitely many public rows
    included (which the bound of seed 004, Theorem 4, leaves out); None is least squares.
    """

    tag: ClassVar[str] = "WithPublicDesign"

    setting: Setting
    reason: str = "as asked"
    n_public: int | None = None

    @property
    def statistic(self) -> BallResiduals:
        """What users report: the residual at 0."""
        setting = self.setting
        row_norm = setting.norm_of_rows(INSTRUMENT_SLACK)
        bound = label_bound(setting, row_norm)
        return BallResiduals(setting.n_features, bound, setting.feature_bound, row_norm, setting.link, "invert")

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [LocalProtocol(self.statistic, vector(self.setting.n_features, self.setting))]

    @property
    def std(self) -> float:
        noise = unit_std(self.protocols[0]) / math.sqrt(self.setting.n_rows)
        return noise / self.setting.eigenvalues[0]

    def moments(self, blocks: Any) -> tuple[Vector, int]:
        """The mean of ``clip(x) x'`` over the public rows, and their number; rows that are not finite are left out."""
        p = self.setting.n_features
        A, m = np.zeros((p, p)), 0
        for block in blocks:
            rows, _ = bounded_rows(block, np.zeros(len(block)))
            clipped, _ = bounded_rows(
                rows, np.zeros(len(rows)), row_norm=self.statistic.row_norm, feature_bound=self.statistic.feature_bound
            )
            A += clipped.T @ rows
            m += int(np.isfinite(block).all(axis=1).sum())
        return A / max(1, m), m

    def solve(self, questions: Ask, A: Vector | None = None, n_public: int | None = None) -> Vector:
        setting, p = self.setting, self.setting.n_features
        b = -questions.ask(0, np.zeros(p))
        if A is None:
            A = np.eye(p) if setting.covariance is None else np.array(setting.covariance)
        A = A + RIDGE * np.trace(A) / p * np.eye(p)
        inverse = np.linalg.inv(A)
        noise = unit_std(self.protocols[0]) ** 2 / setting.n_rows * np.square(inverse).sum(axis=1)
        if n_public:
            assert self.statistic.residual_bound > 0
            spread = (self.statistic.residual_bound / 2) ** 2
            noise = noise + spread * np.abs(np.diag(inverse)) / n_public
        level = setting.threshold_scale * math.sqrt(2 * math.log(max(2, p))) * np.sqrt(noise)
        how = "hard" if setting.threshold in ("auto", "iht") else setting.threshold
        theta = shrunk(inverse @ b, level, setting.n_nonzero, setting.radius, how)
        return in_ball(refit(A, b, theta, setting.n_nonzero), setting.radius) if how == "hard" else theta
