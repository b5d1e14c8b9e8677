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
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.columns import features, targets
from dpdist.central.course import BOUNDS, choice
from dpdist.central.inputs import as_dataset
from dpdist.central.parameters import check_between, check_bound, check_count
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.moments import unpack_symmetric
from dpdist.local.estimator import LocalEstimator
from dpdist.local.feature_maps import Mapped, Projection
from dpdist.local.labelled import LabelledRow, RowAndLabel
from dpdist.local.noisy_moments import GaussianMoments
from dpdist.local.protocol import LocalProtocol
from dpdist.local.second_moments import JointStatistics
from dpdist.local.vectors import best_vector
from dpdist.privacy.accounting import gdp_mu
from dpdist.solvers.linear import fista, prox_l1_ball, quadratic_l1
from dpdist.solvers.spectral import psd_floor

Vector = NDArray[np.float64]

METHODS = ("public-covariance", "statistics", "projected")
REASONS = {
    "public-covariance": "public rows give the second moments of the features, so users report x y only",
    "statistics": "without public rows, a report of products has less noise than products of reports",
}
PRODUCT_SHARE = 0.6
"""Of the squared norm of a joint report, the second moments get this part (`JointStatistics`)."""
ROW_SHARE = 0.8
"""Of mu^2, the report of the features gets this part, the label the rest."""
LABEL_BOUND = "pass a public bound on the size of a label; larger ones are clipped to it"
PUBLIC_ROWS = (
    "method='public-covariance' takes the second moments of the features from public rows: pass "
    "fit(..., public_X=rows), or choose method='statistics'"
)


class LinearRegression(RegressorMixin, LocalEstimator):
    """Least squares over an l1 ball, with an l1 penalty of the size of the noise.

    There is no intercept: centre features and labels by public numbers.

    Parameters
    ----------
    method : {"auto", "public-covariance", "statistics", "projected"}
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
    n_projections : int, optional
        For "projected"; default ``sqrt(n ln(d + 1)) / s^2``, s the noise of a projected row of norm 1.
    projection_seed : int, default 0
        Public.
    epsilon, delta, fidelity
        As in `dpdist.local.estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

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
        As in `dpdist.central.minimizer.Minimizer`.

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

    def __init__(
        self,
        method: str = "auto",
        *,
        l1_radius: float = 1.0,
        alpha: float | None = None,
        row_norm: float | None = None,
        label_bound: float | None = None,
        n_projections: int | None = None,
        projection_seed: int = 0,
        epsilon: float = 1.0,
        delta: float | None = None,
        fidelity: str = "report",
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.l1_radius = l1_radius
        self.alpha = alpha
        self.row_norm = row_norm
        self.label_bound = label_bound
        self.n_projections = n_projections
        self.projection_seed = projection_seed
        self.epsilon = epsilon
        self.delta = delta
        self.fidelity = fidelity  # type: ignore[assignment]  # checked when it is used
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, public_X: Any = None) -> LinearRegression:
        """Fit to arrays (``fit(X, y)``) or to a stored dataset with arrays X and y (``fit(dataset)``).

        Parameters
        ----------
        X, y : array_like, or Dataset
        public_X : array_like of shape (n_public, n_features), optional
            Rows without labels from the same distribution that need no protection.
        """
        self._check_parameters()
        dataset = as_dataset(self, X, y).select(X="X", y="y")
        method, reason = choose(self.method, public_X is not None)
        n, d = dataset.n_rows, self.n_features_in_
        protocol = self._protocol(method, n, d)
        if protocol.randomiser.delta:
            self._budget.warn_if_delta_is_large(n)
        Q = None
        if method == "public-covariance":
            rows = clip_l2(public_rows(public_X, d), self._row_norm)
            Q = rows.T @ rows / len(rows)
        with self._questions(dataset, {"X": features, "y": targets}, [protocol]) as questions:
            estimate = questions.ask()
        self.coef_ = self._solve(protocol, estimate, Q, n)
        self.intercept_ = 0.0
        self.method_, self.method_reason_ = method, reason
        return self

    def predict(self, X: Any) -> Vector:
        """``<x, coef_>`` of every row."""
        check_is_fitted(self, "coef_")
        return np.asarray(validate_data(self, X, reset=False) @ self.coef_)

    def _protocols(self, n_rows: int, n_features: int) -> Sequence[LocalProtocol]:
        """As without public rows, where that is for "auto" to decide."""
        return [self._protocol(choose(self.method, self.method == "public-covariance")[0], n_rows, n_features)]

    def _protocol(self, method: str, n: int, d: int) -> LocalProtocol:
        r, B, epsilon = self._row_norm, self._label_bound, self.epsilon
        if method == "public-covariance":
            return LocalProtocol(LabelledRow(d, r, B), best_vector(d, epsilon))
        if method == "statistics":
            joint = JointStatistics(d, r, B, PRODUCT_SHARE)
            return LocalProtocol(joint, best_vector(joint.size, epsilon))
        if not self.delta:
            raise BudgetError("method='projected' has Gaussian reports: pass delta > 0, far below 1/n_rows")
        m = self._n_projections(n, d)
        moments = GaussianMoments(m + 1, epsilon, self.delta)
        if m == d:
            return LocalProtocol(RowAndLabel(d, r, B, ROW_SHARE), moments)
        projection = Projection(d, m, r, self.projection_seed)
        return LocalProtocol(Mapped(projection, RowAndLabel(m, projection.projected.unit, B, ROW_SHARE)), moments)

    def _n_projections(self, n: int, d: int) -> int:
        """Where the error of the projection is that of the noise; never more than there are features."""
        if self.n_projections is not None:
            return min(self.n_projections, d)
        variance = 4 / (ROW_SHARE * gdp_mu(self.epsilon, self.delta or 0.0) ** 2)
        return min(d, math.ceil(math.sqrt(n * math.log(d + 1)) / variance))

    def _solve(self, protocol: LocalProtocol, estimate: Vector, Q: Vector | None, n: int) -> Vector:
        statistic: Any = protocol.statistic
        d = self.n_features_in_
        if isinstance(statistic, LabelledRow):
            assert Q is not None
            self._penalise(statistic.scale * protocol.noise_std, n, d)
            return quadratic_l1(Q, estimate, self.l1_radius, self.alpha_)
        if isinstance(statistic, JointStatistics):
            S, b = statistic.moments(estimate)
            self._penalise(statistic.vector_scale * protocol.noise_std, n, d, 1 - statistic.share)
            return quadratic_l1(psd_floor(S), b, self.l1_radius, self.alpha_)
        pair: Any = statistic.of if isinstance(statistic, Mapped) else statistic
        randomiser: Any = protocol.randomiser
        noise = randomiser.copy_std * math.hypot(1.0, randomiser.copy_std)
        self._penalise(pair.row_scale * pair.label_scale * noise, n, d)
        moments = unpack_symmetric(estimate)
        S, b = psd_floor(moments[:-1, :-1]), moments[:-1, -1]
        if not isinstance(statistic, Mapped):
            return quadratic_l1(S, b, self.l1_radius, self.alpha_)
        projection: Any = statistic.features
        return self._unprojected(projection.projected.matrix, S, b)

    def _unprojected(self, G: Vector, S: Vector, b: Vector) -> Vector:
        """``argmin w'G'SGw/2 - b'Gw + alpha ||w||_1``, without the matrix ``G'SG``."""
        values, vectors = np.linalg.eigh(S)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        smoothness = float(np.linalg.eigvalsh(root.T @ (G @ G.T) @ root)[-1])

        def prox(v: Vector, step: float) -> Vector:
            return prox_l1_ball(v, step * self.alpha_, self.l1_radius)

        return fista(lambda w: G.T @ (S @ (G @ w) - b), prox, smoothness, np.zeros(G.shape[1]))

    def _penalise(self, noise: float, n: int, d: int, share: float = 1.0) -> None:
        """The default penalty counts the standard error that b would have if the whole report were about it."""
        self.standard_error_ = noise / math.sqrt(n)
        default = self.standard_error_ * math.sqrt(share * 2 * math.log(2 * d))
        self.alpha_ = default if self.alpha is None else float(self.alpha)

    @property
    def _row_norm(self) -> float:
        return need_bound("row_norm", self.row_norm, BOUNDS["row_norm"])

    @property
    def _label_bound(self) -> float:
        return need_bound("label_bound", self.label_bound, LABEL_BOUND)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        choice("method", self.method, ("auto", *METHODS))
        check_bound("l1_radius", self.l1_radius)
        for bound in (self._row_norm, self._label_bound):
            assert bound
        if self.alpha is not None:
            check_between("alpha", self.alpha, 0.0)
        if self.n_projections is not None:
            check_count("n_projections", self.n_projections)
        check_count("projection_seed", self.projection_seed, low=0)


def choose(method: str, has_public: bool) -> tuple[str, str]:
    """The method of a fit with or without public rows, and why it is that one."""
    if method == "public-covariance" and not has_public:
        raise DataError(PUBLIC_ROWS)
    if method != "auto":
        return method, "as asked for"
    chosen = METHODS[0] if has_public else METHODS[1]
    return chosen, REASONS[chosen]


def public_rows(public_X: Any, n_features: int) -> Vector:
    """Public rows as float64; these may be looked at."""
    rows = np.asarray(public_X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or not len(rows):
        raise DataError(f"public_X must have rows of {n_features} features, got shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise DataError("public_X has numbers that are not finite: leave these rows out")
    return rows


def need_bound(name: str, value: Any, meaning: str) -> float:
    """A public bound that was given."""
    if value is None:
        raise MissingBound(f"{name} is missing: {meaning}")
    check_bound(name, value)
    return float(value)
