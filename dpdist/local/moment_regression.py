"""Regression on second moments: of the features, ``S = E x x'``, and with the label, ``b = E x y``.

There are three questions that tell a server both. Where public rows give S, users report ``x y`` only; else a report
holds all products, or the record itself, with noise that the server multiplies. What the estimators of this kind do not
share is the features that users make of a row, and the equation that S and b are put into.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpdist.errors import BudgetError, DataError
from dpdist.fitting.columns import features, targets
from dpdist.fitting.inputs import as_dataset, check_public_rows
from dpdist.fitting.parameters import check_between, choice, need_bound
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.moments import unpack_symmetric
from dpdist.local.estimator import LocalEstimator
from dpdist.local.feature_maps import FeatureMap, Mapped
from dpdist.local.labelled import LabelledRow, RowAndLabel
from dpdist.local.noisy_moments import GaussianMoments
from dpdist.local.protocol import LocalProtocol, Randomiser, Statistic
from dpdist.local.second_moments import JointStatistics
from dpdist.local.vectors import best_vector

Vector = NDArray[np.float64]

PUBLIC, STATISTICS = "public-covariance", "statistics"
REASONS = {
    PUBLIC: "public rows give the second moments of the features, so users report x y only",
    STATISTICS: "without public rows, a report of products has less noise than products of reports",
}
PRODUCT_SHARE = 0.6
"""Of the squared norm of a joint report, the second moments get this part (`JointStatistics`)."""
ROW_SHARE = 0.8
"""Of mu^2, the report of the features gets this part, the label the rest."""


class MomentRegression(RegressorMixin, LocalEstimator):
    """An estimator that asks every user once, for S and b.

    Subclasses have the parameters ``method``, ``alpha`` and ``label_bound`` beside those of `LocalEstimator`.
    """

    gaussian: ClassVar[str]
    """The method whose reports are noisy records."""

    method: str
    alpha: float | None
    label_bound: float | None

    def fit(self, X: Any, y: Any = None, *, public_X: Any = None) -> Self:
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
        S = self._public_moments(public_X, n, d) if method == PUBLIC else None
        with self._questions(dataset, {"X": features, "y": targets}, [protocol]) as questions:
            estimate = questions.ask()
        self.coef_ = self._solve(protocol, *_moments(protocol, estimate, S), n)
        self.method_, self.method_reason_ = method, reason
        return self

    @abstractmethod
    def _seen(self, method: str, n: int, d: int) -> tuple[FeatureMap | None, int, float]:
        """What users make of a row (None: nothing), how many numbers that is, and the bound of their norm."""

    @abstractmethod
    def _solve(self, protocol: LocalProtocol, S: Vector, b: Vector, noise: tuple[float, float], n: int) -> Vector:
        """The coefficients; S may have negative eigenvalues, and ``noise / sqrt(n)`` is that of an entry of S and b."""

    def _protocols(self, n_rows: int, n_features: int) -> Sequence[LocalProtocol]:
        """As without public rows, where that is for "auto" to decide."""
        return [self._protocol(choose(self.method, self.method == PUBLIC)[0], n_rows, n_features)]

    def _protocol(self, method: str, n: int, d: int) -> LocalProtocol:
        if method == self.gaussian and not self.delta:
            raise BudgetError(f"method={method!r} has Gaussian reports: pass delta > 0, far below 1/n_rows")
        seen, size, row_norm = self._seen(method, n, d)
        statistic: Statistic
        if method == PUBLIC:
            statistic = LabelledRow(size, row_norm, self._label_bound)
        elif method == STATISTICS:
            statistic = JointStatistics(size, row_norm, self._label_bound, PRODUCT_SHARE)
        else:
            statistic = RowAndLabel(size, row_norm, self._label_bound, ROW_SHARE)
        if method == self.gaussian:
            randomiser: Randomiser = GaussianMoments(statistic.size, self.epsilon, self.delta or 0.0)
        else:
            randomiser = best_vector(statistic.size, self.epsilon)
        return LocalProtocol(statistic if seen is None else Mapped(seen, statistic), randomiser)

    def _public_moments(self, public_X: Any, n: int, d: int) -> Vector:
        """S of public rows; these may be looked at."""
        rows = np.asarray(public_X, dtype=np.float64)
        check_public_rows(rows, d)
        if not np.isfinite(rows).all():
            raise DataError("public_X has numbers that are not finite: leave these rows out")
        seen, _, row_norm = self._seen(PUBLIC, n, d)
        rows = clip_l2(rows, row_norm) if seen is None else seen(rows)
        return np.asarray(rows.T @ rows / len(rows))

    @property
    def _label_bound(self) -> float:
        return need_bound("label_bound", self.label_bound)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        choice("method", self.method, ("auto", PUBLIC, STATISTICS, self.gaussian))
        if self.alpha is not None:
            check_between("alpha", self.alpha, 0.0)
        assert self._label_bound


def choose(method: str, has_public: bool) -> tuple[str, str]:
    """The method of a fit with or without public rows, and why it is that one."""
    if method == PUBLIC and not has_public:
        raise DataError(
            "method='public-covariance' takes the second moments of the features from public rows: pass "
            "fit(..., public_X=rows), or choose method='statistics'"
        )
    if method != "auto":
        return method, "as asked for"
    chosen = PUBLIC if has_public else STATISTICS
    return chosen, REASONS[chosen]


def _moments(
    protocol: LocalProtocol, estimate: Vector, public: Vector | None
) -> tuple[Vector, Vector, tuple[float, float]]:
    """S, b, and the noise of an entry of either in one report."""
    of: Any = protocol.statistic
    of = of.of if isinstance(of, Mapped) else of
    if isinstance(of, LabelledRow):
        assert public is not None
        return public, estimate, (0.0, of.scale * protocol.noise_std)
    if isinstance(of, JointStatistics):
        # svec has the entries off the diagonal times sqrt(2)
        noise = (of.matrix_scale * protocol.noise_std / math.sqrt(2), of.vector_scale * protocol.noise_std)
        return *of.moments(estimate), noise
    randomiser: Any = protocol.randomiser
    unit = randomiser.copy_std * math.hypot(1.0, randomiser.copy_std)
    packed = unpack_symmetric(estimate)
    return packed[:-1, :-1], packed[:-1, -1], (of.row_scale**2 * unit, of.row_scale * of.label_scale * unit)
