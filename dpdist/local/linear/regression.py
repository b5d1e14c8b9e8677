"""Linear regression with coefficients of bounded l1 norm, from one report of every user.

======================== ============================================================ ================= ================
method                   what users report                                            guarantee         id
======================== ============================================================ ================= ================
``"public-covariance"``  ``x y``; the second moments come from public rows            pure epsilon      l1-linreg-pubcov
``"statistics"``         ``(svec(x x'), x y)``, one vector                            pure epsilon      l1-linreg-gram
``"projected"``          noisy projections of x, and y, that are multiplied after     (epsilon, delta)  l1-linreg-proj
                         the noise
======================== ============================================================ ================= ================

The server solves ``min w'Qw/2 - b'w + alpha ||w||_1`` over ``||w||_1 <= l1_radius``; on that set an error of b or Q
counts by its largest entry, so that the number of features enters by its logarithm only. Seed 001, Algorithm 3, is the
last method, whose noise is squared with the report: 400,000 users with a hundred features and epsilon = 4 do no better
than the zero vector, while a few features and epsilon = 8 do. It is there for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered
from dpdist.estimators.inference import Inferred, feature_names, vector_parameters
from dpdist.estimators.parameters import check_bound, check_count, need_bound
from dpdist.local.linear.moment_regression import (
    ROW_SHARE,
    JointReports,
    MomentMethod,
    MomentProblem,
    MomentRegression,
    NoisyRecords,
    PublicCovariance,
)
from dpdist.local.statistics.feature_maps import FeatureMap, Mapped, Projection
from dpdist.local.statistics.labelled import LabelledRow
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Method, Public, by_name
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.solvers.linear import fista, prox_l1_ball, quadratic_l1
from dpdist.solvers.spectral import psd_floor, solve_psd
from dpdist.solvers.standard_errors import Uncertainty

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class ProjectedRecords(NoisyRecords):
    """Users report a public random projection of the row, and the label, with normal noise.

    Parameters
    ----------
    n_projections : int, optional
        Default ``sqrt(n ln(d + 1)) / s^2``, s the noise of a projected row of norm 1: where the error of the
        projection is that of the noise; never more than there are features.
    seed : int, default 0
        Of the projection; public.
    """

    tag, name = "ProjectedRecords", "projected"

    n_projections: int | None = None
    seed: int = 0

    def decide(self, public: Public, statement: MomentProblem) -> Self:
        if self.n_projections is not None:
            check_count("n_projections", self.n_projections)
        check_count("seed", self.seed, low=0)
        return super().decide(public, statement)

    def size(self) -> int:
        """How many numbers a projected row has."""
        n, d, budget = self.public.n_rows, self.public.n_features, self.public.budget
        if self.n_projections is not None:
            return min(self.n_projections, d)
        variance = 4 / (ROW_SHARE * gdp_mu(budget.epsilon, budget.delta) ** 2)
        return min(d, math.ceil(math.sqrt(n * math.log(d + 1)) / variance))


METHODS = by_name(PublicCovariance, JointReports, ProjectedRecords)


@dataclass(frozen=True)
class LeastSquaresOnL1Ball(MomentProblem):
    """``min w'Sw/2 - b'w + alpha ||w||_1`` over ``||w||_1 <= l1_radius``."""

    tag: ClassVar[str] = "LeastSquaresOnL1Ball"

    row_norm: float
    l1_radius: float = 1.0
    alpha: float | None = None

    def seen(self, method: MomentMethod) -> tuple[FeatureMap | None, int, float]:
        d = method.public.n_features
        m = method.size() if isinstance(method, ProjectedRecords) else d
        if m == d or not isinstance(method, ProjectedRecords):
            return None, d, self.row_norm
        projection = Projection(d, m, self.row_norm, method.seed)
        return projection, m, projection.projected.unit

    def solve(
        self, protocol: LocalProtocol, S: Vector, b: Vector, noise: tuple[float, float], public: Public
    ) -> Mapping[str, Any]:
        statistic: Any = protocol.statistic
        # the default penalty counts the standard error that b would have if the whole report were about it
        share = 1 - statistic.share if isinstance(statistic, JointStatistics) else 1.0
        error = noise[1] / math.sqrt(public.n_rows)
        default = error * math.sqrt(share * 2 * math.log(2 * public.n_features))
        alpha = default if self.alpha is None else float(self.alpha)
        if not isinstance(statistic, LabelledRow):
            S = psd_floor(S)
        if isinstance(statistic, Mapped):
            projection: Any = statistic.features
            w = self._unprojected(projection.projected.matrix, S, b, alpha)
        else:
            w = quadratic_l1(S, b, self.l1_radius, alpha)
        known = self._uncertainty(statistic, S, w, alpha, noise, public.n_rows)
        return {"coef": w, "intercept": 0.0, "alpha": alpha, "standard_error": error, "uncertainty": known}

    def _uncertainty(
        self, statistic: Any, S: Vector, w: Vector, alpha: float, noise: tuple[float, float], n_users: int
    ) -> Uncertainty | str:
        """``S^-1 (e - E w)``, e the noise of b and E that of S: a report varies as its noise says, record and all.

        That of public rows is not in it.
        """
        if isinstance(statistic, Mapped):
            return (
                "projections of rows do not tell single coefficients. With method='statistics' there would be intervals"
            )
        if alpha > 0:
            return (
                f"the l1 penalty alpha={alpha:.3g} sets coefficients to 0, which moves them by more than their "
                "standard error. With alpha=0 there would be intervals"
            )
        if float(np.abs(w).sum()) > self.l1_radius * (1 - 1e-6):
            return (
                f"the coefficients lie on the edge of the ball of l1_radius={self.l1_radius:g}, which moves them. "
                "With a larger one there would be intervals"
            )
        matrix, vector = noise
        releases = (vector**2 + matrix**2 * float(w @ w)) * np.eye(len(w)) + matrix**2 * np.outer(w, w)
        inverse = solve_psd(S, np.eye(len(w)))
        covariance = inverse @ releases @ inverse / n_users
        signal = float(np.linalg.eigvalsh(S)[0])
        if 4 * matrix * math.sqrt(2 * len(w) / n_users) > signal:
            return (
                "the second moments of some direction are not above their noise, and an interval would miss the truth. "
                "With more users, a larger epsilon or public_X there would be one"
            )
        return Uncertainty((covariance + covariance.T) / 2, np.diag(covariance).copy())

    def _unprojected(self, G: Vector, S: Vector, b: Vector, alpha: float) -> Vector:
        """``argmin w'G'SGw/2 - b'Gw + alpha ||w||_1``, without the matrix ``G'SG``."""
        values, vectors = np.linalg.eigh(S)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        smoothness = float(np.linalg.eigvalsh(root.T @ (G @ G.T) @ root)[-1])

        def prox(v: Vector, step: float) -> Vector:
            return prox_l1_ball(v, step * alpha, self.l1_radius)

        return fista(lambda w: G.T @ (S @ (G @ w) - b), prox, smoothness, np.zeros(G.shape[1]))


@dataclass(eq=False, repr=False)
class LinearRegression(MomentRegression):
    """Least squares over an l1 ball, with an l1 penalty of the size of the noise.

    There is no intercept: centre features and labels by public numbers.

    Parameters
    ----------
    method : str or MomentMethod
        See the table of this module; "auto" takes the first where ``public_X`` is given to ``fit``, the second
        otherwise.
    l1_radius : float, default 1.0
        Of the ball.
    alpha : float, optional
        Strength of the l1 penalty. Default: ``sqrt(2 ln(2 d))`` standard errors of an entry of b (those of a report of
        x y alone), with which the coefficients are hardly ever worse than zeros when there are too few users. 0 is
        better when there are many.
    row_norm, label_bound : float
        Public bounds of the l2 norm of a row and of the size of a label, enforced. Required.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
        0.
    alpha_ : float
        The penalty that was used.
    standard_error_ : float
        Of an entry of b (of the projected b), at the worst records; public.
    method_, method_reason_ : str
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(50_000, 4)) / 2
    >>> y = X @ [0.8, 0.0, -0.2, 0.0] + 0.05 * rng.normal(size=50_000)
    >>> model = LinearRegression(row_norm=1.0, label_bound=1.0, epsilon=2.0, random_state=0)
    >>> model.fit(X, y, public_X=rng.uniform(-1, 1, size=(2000, 4)) / 2).method_
    'public-covariance'
    >>> bool(abs(model.coef_ - [0.8, 0.0, -0.2, 0.0]).max() < 0.3)
    True
    """

    methods = METHODS
    answers = (Answer.NUMBERS, Answer.COEFFICIENTS)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    _: KW_ONLY
    l1_radius: float = 1.0
    row_norm: float | None = None

    def predict(self, X: Any) -> Vector:
        """``<x, coef_>`` of every row."""
        check_is_fitted(self, "coef_")
        return np.asarray(validate_data(self, X, reset=False) @ self.coef_)

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        return vector_parameters(
            known,
            self.coef_,
            feature_names(self, self.n_features_in_),
            "Rests on the noise of a report at the worst record; that of public rows is not in it.",
        )

    def _problem(self) -> LeastSquaresOnL1Ball:
        return LeastSquaresOnL1Ball(self._label_bound, self._row_norm, self.l1_radius, self.alpha)

    @property
    def _row_norm(self) -> float:
        return need_bound("row_norm", self.row_norm)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_bound("l1_radius", self.l1_radius)
        assert self._row_norm
