"""Mixtures of two components and of two lines, and lines with missing cells, fitted by private EM algorithms.

Thin subclasses of `LatentModel`: a model of `dpdist.kernels.latent` and what users ask of a fitted one. The methods are
in `dpdist.central.latent.gradient_em`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.latent.component_errors import BASIS
from dpdist.central.latent.gradient_em import ClippedEM, SplitEM, TruncatedEM
from dpdist.central.latent.latent_method import LatentMethod, Statement
from dpdist.central.latent.weighted_em import MapEM, PreconditionedEM, StatisticsEM
from dpdist.data import Dataset
from dpdist.errors import BudgetError, MissingBound, warn_caller
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator
from dpdist.estimators.fitted_law import FittedLaw, latent_law
from dpdist.estimators.inference import Inferred, feature_names, vector_parameters
from dpdist.estimators.parameters import check_between, check_bound, public_vector
from dpdist.kernels.latent import Latent, MissingCells, MixedLines, TwoComponents
from dpdist.method import Method, Public, Vector, by_name
from dpdist.privacy.audit.worst_neighbours import FAR_LABEL, Pair, labelled_rows, orthogonal_rows, rows_across

METHODS = by_name(ClippedEM, TruncatedEM, SplitEM, MapEM, PreconditionedEM, StatisticsEM)
NEEDED = {
    "noise_std": (
        "pass the standard deviation of the noise around a component, a public number (known from how it was measured, "
        "or released before); it may be wrong by a factor of 1.5, and is never taken from the data"
    ),
    "radius": "pass a public bound of the norm of the coefficients, about 1.25 times what is expected",
}
INITS = (None, "spectral")


@dataclass(eq=False, repr=False)
class LatentModel(Estimator):
    """A model with a hidden part and coefficients in a public ball.

    Parameters
    ----------
    start : sequence of float, optional
        Public point where it begins, nearer to the truth than to minus the truth.
    init : {None, "spectral"}
        ``"spectral"`` releases a second moment for 30 % of mu^2, and begins at its first eigenvector.
    entry_bound, second_moment : float, optional
        Public bounds of an entry of b, and of the mean square of a coordinate of a row's gradient; for the scale of
        ``"truncate"`` and ``"split"``.
    """

    labelled = False
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}
    supposing: ClassVar[Mapping[str, Any]] = {}

    method: str | LatentMethod = "clip"
    _: KW_ONLY
    noise_std: float | None = None
    radius: float | None = None
    start: Sequence[float] | None = None
    init: str | None = None
    entry_bound: float | None = None
    second_moment: float | None = None
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]

    answers = (Answer.UP_TO_SIGN,)

    @property
    @abstractmethod
    def _model(self) -> Latent:
        """The model with its public numbers."""

    def _decided(self, public: Public, **beside: Any) -> LatentMethod:
        method = chosen("method", self.method, METHODS, auto=False)
        start = None if self.start is None else public_vector("start", self.start)
        statement = Statement(
            self._model,
            float(self.radius or 0.0),
            self.entry_bound,
            self.second_moment,
            start,
            self.init,
            getattr(self, "row_norm", None),
        )
        alike = public.one_row_each()
        found: LatentMethod = method.decide(alike, statement)
        return replace(found, public=public)

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        assert isinstance(method, LatentMethod)
        super()._store(method, fitted)
        self.n_iter_ = method.rounds

    def _trivial_error(self, method: Method) -> float | None:
        return float(self.radius or 0.0)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, METHODS, auto=False)
        for name, meaning in NEEDED.items():
            if getattr(self, name) is None:
                raise MissingBound(f"{name} is missing: {meaning}")
            check_bound(name, getattr(self, name))
        for name in ("entry_bound", "second_moment"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        if self.start is not None:
            public_vector("start", self.start)
        if self.init not in INITS:
            raise BudgetError(f"init={self.init!r} is not known; choose None, with a public start, or 'spectral'")

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Rows that pull at the start from either side, and those that are farthest apart for a second moment."""
        along = np.ones(n_features) if self.start is None else np.array(self.start, dtype=np.float64)
        pairs = orthogonal_rows(n_rows, n_features) | rows_across(n_rows, n_features, along)
        if not self.labelled:
            return pairs
        y = np.append(FAR_LABEL, np.zeros(n_rows - 1))
        if self.empty_cells:  # a row that toggles a cell, and one of which none is there
            one = {"X": np.vstack([along, np.zeros((n_rows - 1, n_features))])}
            for name, row in {
                "a missing cell": np.append(np.nan, along[1:]),
                "no cell": np.full(n_features, np.nan),
            }.items():
                pairs = {**pairs, name: (one, {"X": np.vstack([row, one["X"][1:]])})}
        pairs = {name: ({**one, "y": y}, {**other, "y": y}) for name, (one, other) in pairs.items()}
        return pairs | labelled_rows(n_rows, n_features, (0.0, FAR_LABEL))

    def _fitted_law(self) -> FittedLaw:
        return latent_law(self._model, self.coef_, feature_names(self, self.n_features_in_))

    def _rows(self, X: Any) -> Vector:
        """Rows to say something of, checked."""
        check_is_fitted(self, "coef_")
        finite = "allow-nan" if self.empty_cells else True
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=finite))


@dataclass(eq=False, repr=False)
class TwoComponentMixture(LatentModel):
    """Rows around b or around -b, as often: ``y = z b + v`` with a fair sign z and normal noise v of a known size.

    Rows are expected to be centred, by a public number or a private mean. For more components, or unknown variances,
    see `dpdist.central.GaussianMixture`.

    Parameters
    ----------
    method : {"clip", "truncate", "split", "em"} or LatentMethod
        The private EM algorithm (`dpdist.central.latent.gradient_em`, `dpdist.central.latent.weighted_em`). ``"clip"``
        is the best in all settings that were measured; the others are for comparison.
    noise_std : float
        Public standard deviation of the noise. Required.
    radius : float
        Public bound of the norm of b; the points of the algorithm stay in this ball. Required.
    start : sequence of float, optional
        Public point where it begins, nearer to one of the centres than to the other.
    init, entry_bound, second_moment
        As in `dpdist.central.latent.latent_models.LatentModel`.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        b, or -b.
    means_ : array of shape (2, n_features)
        ``b`` and ``-b``.
    standard_errors_ : array of shape (n_features,)
        By the model, with ``method="clip"`` (`dpdist.central.latent.component_errors`).
    n_iter_ : int
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], 20_000)[:, None] * [2.0, -1.0, 0.0] + rng.normal(size=(20_000, 3))
    >>> model = TwoComponentMixture(
    ...     noise_std=1.0, radius=3.0, start=[1.0, 0.0, 0.0], epsilon=1.0, delta=1e-6, random_state=0
    ... ).fit(X)
    >>> bool(abs(model.coef_ - [2.0, -1.0, 0.0]).max() < 0.05), model.predict([[2.0, 0.0, 0.0]]).tolist()
    (True, [0])
    """

    @property
    def _model(self) -> Latent:
        return TwoComponents(float(self.noise_std or 0.0))

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.means_ = np.array([self.coef_, -self.coef_])

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        return vector_parameters(known, self.coef_, feature_names(self, self.n_features_in_), BASIS)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of either component, given a row."""
        first = (1 + self._model.weight(self._rows(X), None, self.coef_)) / 2
        return np.column_stack([first, 1 - first])

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The more probable component of every row, 0 or 1."""
        return np.asarray(self._rows(X) @ self.coef_ < 0, dtype=np.int64)

    def score_samples(self, X: Any) -> Vector:
        """The logarithm of the density at every row."""
        return self._model.log_likelihood(self._rows(X), None, self.coef_)


@dataclass(eq=False, repr=False)
class MixedRegression(LatentModel):
    """Labels around a line or around its mirror image: ``y = z <b, x> + v`` with a fair sign z and normal noise v.

    Parameters
    ----------
    method : {"clip", "truncate", "split", "precondition", "statistics"} or LatentMethod
        As in `TwoComponentMixture`; ``"precondition"`` releases a covariance of the rows and weighs steps by it, for
        columns of different scales or correlated ones.
    noise_std : float
        Public standard deviation of the noise of a label. Required.
    radius : float
        Public bound of the norm of b. Required.
    row_norm : float, optional
        Public bound of the norm of a row: beyond it rows count less in what is released of their covariance. Default:
        that of standardised columns, ``sqrt(d + 2 sqrt(2 d))``.
    start : sequence of float, optional
        Public point where it begins. One that is far from the truth finds it in less than half of the cases, where
        ``init="spectral"`` does for standardised features.
    init, entry_bound, second_moment
        As in `dpdist.central.latent.latent_models.LatentModel`.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        b, or -b.
    n_iter_ : int
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = rng.choice([-1.0, 1.0], 20_000) * (X @ [2.0, -1.0, 0.0]) + rng.normal(size=20_000)
    >>> model = MixedRegression(
    ...     init="spectral", noise_std=1.0, radius=3.0, epsilon=1.0, delta=1e-6, random_state=0
    ... ).fit(X, y)
    >>> bool(min(abs(model.coef_ - s * np.array([2.0, -1.0, 0.0])).max() for s in (-1, 1)) < 0.1)
    True
    """

    labelled = True

    _: KW_ONLY
    row_norm: float | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.row_norm is not None:
            check_bound("row_norm", self.row_norm)

    @property
    def _model(self) -> Latent:
        return MixedLines(float(self.noise_std or 0.0))

    def predict(self, X: Any) -> Vector:
        """The label on the line of b; the other line has minus that."""
        return np.asarray(self._rows(X) @ self.coef_)

    def score_samples(self, X: Any, y: Any) -> Vector:
        """The logarithm of the density of every label, given its features."""
        return self._model.log_likelihood(self._rows(X), np.asarray(y, dtype=np.float64), self.coef_)


@dataclass(eq=False, repr=False)
class MissingCovariateRegression(LatentModel):
    """A linear regression ``y = <b, x> + v`` of standardised features, of which cells are missing at random.

    A cell that is NaN is a missing one and counts as what is known of it; a row with an infinite entry, or without a
    finite label, is an empty one. Stored datasets declare their missing cells: ``dpdist ingest --missing COLUMN=keep``.

    Parameters
    ----------
    method : {"clip", "truncate", "split"} or LatentMethod
        As in `TwoComponentMixture`.
    noise_std : float
        Public standard deviation of the noise v of a label. Required.
    radius : float
        Public bound of the norm of b. Required.
    missing_rate : float, default 0.1
        Public guess of the share of cells that are missing, by which rounds are counted and errors are predicted.
    row_norm : float, optional
        As in `MixedRegression`.
    exact : bool, default True
        False takes the gradient as printed in the sources, which is off where cells are missing: for comparison.
    start : sequence of float, optional
        Public point where it begins. Default: 0.
    init, entry_bound, second_moment
        As in `dpdist.central.latent.latent_models.LatentModel`; there is no sign to find, so that ``init`` is None.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        b.
    n_iter_ : int
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = X @ [1.0, -0.5, 0.0] + rng.normal(size=20_000)
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = MissingCovariateRegression(
    ...     noise_std=1.0, radius=1.5, missing_rate=0.2, epsilon=1.0, delta=1e-6, random_state=0
    ... ).fit(X, y)
    >>> bool(abs(model.coef_ - [1.0, -0.5, 0.0]).max() < 0.1), model.predict([[1.0, np.nan, 0.0]]).round(1).tolist()
    (True, [1.0])
    """

    labelled = True
    empty_cells = True
    answers = (Answer.COEFFICIENTS,)

    _: KW_ONLY
    row_norm: float | None = None
    missing_rate: float = 0.1
    exact: bool = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.row_norm is not None:
            check_bound("row_norm", self.row_norm)
        check_between("missing_rate", self.missing_rate, 0.0, 0.99)
        if not isinstance(self.exact, bool):
            raise BudgetError(f"exact must be True or False, got {self.exact!r}")

    @property
    def _model(self) -> Latent:
        return MissingCells(float(self.noise_std or 0.0), float(self.missing_rate), self.exact)

    def _dataset(self, X: Any, y: Any) -> Dataset:
        dataset = super()._dataset(X, y)
        if isinstance(X, Dataset) and not dataset.schema.missing:
            warn_caller(
                "no column of the dataset declares missing cells (dpdist ingest --missing COLUMN=keep): this is a "
                "linear regression, which LinearRegression fits with less noise"
            )
        return dataset

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def predict(self, X: Any) -> Vector:
        """The mean of the label, given the cells that are there."""
        return np.asarray(np.nan_to_num(self._rows(X), nan=0.0) @ self.coef_)

    def score_samples(self, X: Any, y: Any) -> Vector:
        """The logarithm of the density of every label, given the cells that are there."""
        return self._model.log_likelihood(self._rows(X), np.asarray(y, dtype=np.float64), self.coef_)
