"""Kernel ridge regression by random Fourier features, from one report of every user.

======================== ============================================================ ================= ============
method                   what users report, phi the public features of x              guarantee         id
======================== ============================================================ ================= ============
``"public-covariance"``  ``phi y``; the Gram matrix comes from public rows            pure epsilon      krr-rff-pub
``"statistics"``         ``(svec(phi phi'), phi y)``, one vector                      pure epsilon      krr-rff-gram
``"vector"``             noisy phi and y, that are multiplied after the noise         (epsilon, delta)  krr-rff
======================== ============================================================ ================= ============

Seed 001, Algorithm 4, is the last one; there the regulariser is missing, which leaves its answer undefined, and the
features are half as large as they may be. Here the ridge penalty is at least the size of the noise
(`dpdist.solvers.linear.noise_level`), a public number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.errors import BudgetError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered
from dpdist.estimators.parameters import check_bound, check_count
from dpdist.local.linear.moment_regression import (
    JointReports,
    MomentMethod,
    MomentProblem,
    MomentRegression,
    NoisyRecords,
    PublicCovariance,
)
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.feature_maps import FeatureMap, Fourier
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Public, by_name
from dpdist.solvers.linear import noise_level
from dpdist.solvers.spectral import psd_floor

Vector = NDArray[np.float64]

COMPONENTS_PER_FEATURE, MOST_COMPONENTS = 20, 100
TINY = 1e-12
"""What ``alpha=0`` adds to the eigenvalues, so that a solution exists."""
SMALLEST_ALPHA = 1e-3
COEF_NORM = 2.0

METHODS = by_name(PublicCovariance, JointReports, NoisyRecords)

UNSURE = (
    "coefficients of random Fourier features mean nothing by themselves, and the penalty moves predictions by as much "
    "as the noise does. LinearRegression with alpha=0 has intervals"
)
"""Why there are no intervals."""


@dataclass(frozen=True)
class RidgeOnFourierFeatures(MomentProblem):
    """``(S + alpha I) w = b``, S and b those of random features of the Gaussian kernel."""

    tag: ClassVar[str] = "RidgeOnFourierFeatures"

    bandwidth: float
    n_components: int | None
    alpha: float | None
    coef_norm: float
    feature_seed: int

    def features(self, public: Public) -> Fourier:
        """The public map from rows to features."""
        D = self.n_components
        if D is None:
            noise = best_vector(MOST_COMPONENTS, public.budget.epsilon).noise_std
            most = math.sqrt(public.n_rows) / (5 * noise)
            D = 2 * max(1, int(min(COMPONENTS_PER_FEATURE * public.n_features, MOST_COMPONENTS, most)) // 2)
        return Fourier(public.n_features, D, self.bandwidth, self.feature_seed)

    def seen(self, method: MomentMethod) -> tuple[FeatureMap | None, int, float]:
        fourier = self.features(method.public)
        return fourier, fourier.n_components, 1.0

    def solve(
        self, protocol: LocalProtocol, S: Vector, b: Vector, noise: tuple[float, float], public: Public
    ) -> Mapping[str, Any]:
        """Without the negative eigenvalues that noise may give S."""
        statistic: Any = protocol.statistic
        root_n = math.sqrt(public.n_rows)
        level = noise_level(len(b), noise[0] / root_n, noise[1] / root_n, self.coef_norm * self.label_bound)
        alpha = max(SMALLEST_ALPHA, level) if self.alpha is None else float(self.alpha)
        w = np.linalg.solve(psd_floor(S) + max(alpha, TINY) * np.eye(len(b)), b)
        return {"coef": np.asarray(w), "alpha": alpha, "features": statistic.features, "uncertainty": UNSURE}


@dataclass(eq=False, repr=False)
class KernelRidge(MomentRegression):
    """Regression on the features of the Gaussian kernel ``exp(-||x - z||^2 / (2 bandwidth^2))``.

    The features have norm 1 whatever x is, so x needs no bound; it should vary by a few bandwidths.

    Parameters
    ----------
    method : str or MomentMethod
        See the table of this module; "auto" takes the first where ``public_X`` is given to ``fit`` (rows from the
        same distribution as those of the users, or drawn from what is known of it), the second otherwise.
    bandwidth : float, default 1.0
        Public: distance over which the function may change.
    n_components : int, optional
        Number of features, even. Default: 20 per column and 100 at most, and not more than a fifth of ``sqrt(n)`` over
        the noise of a report.
    alpha : float, optional
        Ridge penalty ``alpha ||w||^2 / 2`` beside half of the mean squared error. Default: 0.001, or the level of the
        noise if that is larger.
    coef_norm : float, default 2.0
        Public guess of the norm of the coefficients, in units of ``label_bound``: functions that vary much within a
        bandwidth have larger ones, and need a smaller penalty than smooth ones. Not beside ``alpha``.
    feature_seed : int, default 0
        Of the frequencies; public. The error varies by a factor of 2 with it.
    label_bound : float
        Public bound of the size of a label, enforced. Required.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_components,)
        Of the features `features_`.
    alpha_ : float
        The penalty that was used.
    features_ : Fourier
        The public map from rows to features.
    method_, method_reason_ : str
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(50_000, 1))
    >>> y = 0.7 * np.sin(3 * X[:, 0])
    >>> model = KernelRidge(bandwidth=0.7, label_bound=1.0, epsilon=4.0, random_state=0)
    >>> model.fit(X, y, public_X=rng.uniform(-1, 1, size=(2000, 1))).score(X, y) > 0.7
    True
    """

    methods = METHODS
    answers = (Answer.NUMBERS,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    _: KW_ONLY
    bandwidth: float = 1.0
    n_components: int | None = None
    coef_norm: float = COEF_NORM
    feature_seed: int = 0

    def predict(self, X: Any) -> Vector:
        """``<phi(x), coef_>`` of every row."""
        check_is_fitted(self, "coef_")
        rows = np.asarray(validate_data(self, X, reset=False), dtype=np.float64)
        return np.asarray(self.features_(rows) @ self.coef_)

    def _problem(self) -> RidgeOnFourierFeatures:
        coef_norm = self.coef_norm if self.alpha is None else COEF_NORM  # it sets the penalty where alpha does not
        public = (self.bandwidth, self.n_components, self.alpha, coef_norm, self.feature_seed)
        return RidgeOnFourierFeatures(self._label_bound, *public)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_bound("bandwidth", self.bandwidth)
        check_bound("coef_norm", self.coef_norm)
        check_count("feature_seed", self.feature_seed, low=0)
        if self.n_components is not None:
            check_count("n_components", self.n_components, low=2)
            if self.n_components % 2:
                raise BudgetError(f"n_components must be even (cosines and sines), got {self.n_components!r}")
