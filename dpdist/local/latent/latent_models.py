"""Mixtures of two components and of two lines, and lines with missing cells, from one report of every user.

The methods are in `dpdist.local.latent.latent_rounds`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.errors import MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.fitted_law import FittedLaw, latent_law
from dpdist.estimators.inference import feature_names
from dpdist.estimators.parameters import check_between, check_bound, choice, public_vector
from dpdist.kernels.latent import Latent, MissingCells, MixedLines, TwoComponents
from dpdist.local.latent.latent_rounds import (
    BallReports,
    CoordinateReports,
    LocalEM,
    LocalStatement,
    TruncatedReports,
)
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.survey.reports import FIDELITIES
from dpdist.method import Method, Public, Vector, by_name
from dpdist.privacy.audit.worst_neighbours import FAR_LABEL, Pair, rows_across

METHODS = by_name(BallReports, CoordinateReports, TruncatedReports)
NEEDED = {
    "noise_std": "pass the standard deviation of the noise around a component, a public number",
    "radius": "pass a public bound of the norm of the coefficients, about 1.25 times what is expected",
}


@dataclass(eq=False, repr=False)
class LocalLatentModel(LocalEstimator):
    """A model with a hidden part and coefficients in a public ball, from one report of every user."""

    answers = (Answer.UP_TO_SIGN,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    method: str | LocalEM = "l2"
    _: KW_ONLY
    noise_std: float | None = None
    radius: float | None = None
    start: Sequence[float] | None = None

    @property
    @abstractmethod
    def _model(self) -> Latent:
        """The model with its public numbers."""

    def _chosen(self, public: Public, **beside: Any) -> LocalEM:
        method = chosen("method", self.method, METHODS, auto=False)
        start = tuple(self.first_point(public.n_features).tolist())
        statement = LocalStatement(self._model, float(self.radius or 0.0), start)
        found: LocalEM = method.decide(public, statement)
        return found

    def _trivial_error(self, method: Method) -> float | None:
        return float(self.radius or 0.0)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, METHODS, auto=False)
        choice("fidelity", self.fidelity, FIDELITIES)
        check_between("epsilon", self.epsilon, 1e-6, 1e4)
        for name, meaning in NEEDED.items():
            if getattr(self, name) is None:
                raise MissingBound(f"{name} is missing: {meaning}")
            check_bound(name, getattr(self, name))
        if self.start is None and self._model.symmetric:
            raise MissingBound(
                "start is missing: pass a public point that is nearer to the truth than to minus the truth, in the "
                "ball of norm radius"
            )
        if self.start is not None:
            public_vector("start", self.start)

    def first_point(self, n_features: int) -> Vector:
        return np.zeros(n_features) if self.start is None else np.array(public_vector("start", self.start))

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Rows that pull at the start from either side."""
        y = {"y": np.array([FAR_LABEL])} if self.labelled else {}
        along = self.first_point(n_features)
        pairs = rows_across(1, n_features, along if along.any() else np.ones(n_features))
        return {name: ({**one, **y}, {**other, **y}) for name, (one, other) in pairs.items()}

    def _fitted_law(self) -> FittedLaw:
        return latent_law(self._model, self.coef_, feature_names(self, self.n_features_in_))

    def _rows(self, X: Any) -> Vector:
        """Rows to say something of, checked."""
        check_is_fitted(self, "coef_")
        finite = "allow-nan" if self.empty_cells else True
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=finite))


@dataclass(eq=False, repr=False)
class TwoComponentMixture(LocalLatentModel):
    """Rows around b or around -b, as often; see `dpdist.central.TwoComponentMixture`.

    Parameters
    ----------
    method : {"l2", "coordinate", "truncate"} or LocalEM
        What a user reports of a gradient (`dpdist.local.latent.latent_rounds`): all of it, bounded in the l2 norm; one
        coordinate; or all, each truncated, for comparison.
    noise_std, radius : float
        Public; required.
    start : sequence of float
        Public point where it begins, nearer to one of the centres than to the other. Required.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; delta for ``"truncate"`` only.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    means_ : array of shape (2, n_features)
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], 50_000)[:, None] * [2.0, -1.0, 0.0] + rng.normal(size=(50_000, 3))
    >>> model = TwoComponentMixture(noise_std=1.0, radius=3.0, start=[1.0, 0.0, 0.0], epsilon=2.0, random_state=0)
    >>> model = model.fit(X)
    >>> bool(abs(model.coef_ - [2.0, -1.0, 0.0]).max() < 0.15)
    True
    """

    labelled = False

    @property
    def _model(self) -> Latent:
        return TwoComponents(float(self.noise_std or 0.0))

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.means_ = np.array([self.coef_, -self.coef_])

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The more probable component of every row, 0 or 1."""
        return np.asarray(self._rows(X) @ self.coef_ < 0, dtype=np.int64)


@dataclass(eq=False, repr=False)
class MixedRegression(LocalLatentModel):
    """Labels around a line or around its mirror image; see `dpdist.central.MixedRegression`.

    Parameters
    ----------
    method, noise_std, radius, start
        As in `TwoComponentMixture`.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 2))
    >>> y = rng.choice([-1.0, 1.0], 100_000) * (X @ [2.0, -1.0]) + rng.normal(size=100_000)
    >>> model = MixedRegression(noise_std=1.0, radius=3.0, start=[1.0, 0.0], epsilon=4.0, random_state=0).fit(X, y)
    >>> model.coef_.round(1)
    array([ 1.9, -0.8])
    """

    @property
    def _model(self) -> Latent:
        return MixedLines(float(self.noise_std or 0.0))

    def predict(self, X: Any) -> Vector:
        """The label on the line of b; the other line has minus that."""
        return np.asarray(self._rows(X) @ self.coef_)


@dataclass(eq=False, repr=False)
class MissingCovariateRegression(LocalLatentModel):
    """A linear regression of standardised features with missing cells; see `dpdist.central.MissingCovariateRegression`.

    A record has NaN (on a device: null) where a cell is missing; one with an infinite entry, or without a finite label,
    is answered at random.

    Parameters
    ----------
    method, noise_std, radius
        As in `TwoComponentMixture`.
    missing_rate : float, default 0.1
        Public guess of the share of cells that are missing; what is predicted depends on it, not what is fitted.
    start : sequence of float, optional
        Public point where it begins. Default: 0.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 3))
    >>> y = X @ [1.0, -0.5, 0.0] + rng.normal(size=100_000)
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = MissingCovariateRegression(noise_std=1.0, radius=1.5, epsilon=2.0, random_state=0).fit(X, y)
    >>> bool(abs(model.coef_ - [1.0, -0.5, 0.0]).max() < 0.15)
    True
    """

    empty_cells = True
    answers = (Answer.COEFFICIENTS,)

    _: KW_ONLY
    missing_rate: float = 0.1

    def _check_parameters(self) -> None:
        check_between("missing_rate", self.missing_rate, 0.0, 0.99)
        super()._check_parameters()

    @property
    def _model(self) -> Latent:
        return MissingCells(float(self.noise_std or 0.0), float(self.missing_rate))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def predict(self, X: Any) -> Vector:
        """The mean of the label, given the cells that are there."""
        return np.asarray(np.nan_to_num(self._rows(X), nan=0.0) @ self.coef_)
