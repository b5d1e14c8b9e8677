"""Generalised linear models in the local model.

======================== ======================================================= ================ =====================
method                   what users report                                       guarantee        id
======================== ======================================================= ================ =====================
``"public-covariance"``  ``x y``; all else comes from public rows                pure epsilon     nldp-glm-pubcov
``"statistics"``         ``(svec(x x'), x y)``; public rows give the scale       pure epsilon     nldp-glm-pub
``"direction"``          ``x y``, whose mean is the gradient at 0                pure epsilon     linear-surrogate-ldp
``"hermite"``            one noisy copy of ``x y``, for polynomials              (epsilon, delta) hermite-poly-ldp
``"copies"``             several noisy copies of ``x y``                         (epsilon, delta) general-linear-ldp,
                                                                                                  hinge-ldp
``"chebyshev"``          noisy copies of x, and of x y, for polynomials          (epsilon, delta) cheb-collect and
                                                                                                  cheb-learn
======================== ======================================================= ================ =====================

With public rows (``fit(..., public_X=rows)``) "auto" takes the first, from 20 rows a feature on, or the second
(`dpdist.local.linear.glm_public`); without, the direction.

"direction" minimises a linear function in place of the loss, ``w = radius b / ||b||``. Where the features have the same
variance in all directions, that is the right direction for any loss of this kind, from a hundredth of the users that
gradients need; elsewhere public rows make it so (`dpdist.local.linear.glm_direction`). "hermite" and "copies" are for
two classes, with any loss of the label times the linear predictor (`dpdist.local.linear.svc.LinearSVC`); "copies" and
"chebyshev" are kept for comparison, and learn nothing from less than a million users below epsilon 4, of degree 2 or 3
from none. Seed 000, section 5.1, and seed 001, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.data import ArraySpec
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError, warn_caller
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.inference import Inferred, feature_names, linear_parameters
from dpdist.estimators.parameters import check_bound, check_classes, choice, need_bound
from dpdist.estimators.row_maps import ClassCodes, features, targets
from dpdist.local.linear.generalised_linear import MODELS, GeneralisedLinear
from dpdist.local.linear.glm_direction import Direction
from dpdist.local.linear.glm_hermite import Hermite
from dpdist.local.linear.glm_method import GlmMethod, GlmProblem
from dpdist.local.linear.glm_polynomials import Chebyshev, NoisyCopies
from dpdist.local.linear.glm_public import PER_FEATURE, PublicCovarianceGlm, StatisticsGlm, public_rows
from dpdist.local.linear.links import refuse_even
from dpdist.local.local_estimator import LocalEstimator
from dpdist.losses import Loss
from dpdist.method import Method, Public, by_name

Vector = NDArray[np.float64]

METHODS = by_name(Direction, PublicCovarianceGlm, StatisticsGlm, Hermite, NoisyCopies, Chebyshev)


@dataclass(eq=False, repr=False)
class GeneralizedLinearModel(LocalEstimator):
    """Minimises ``E[-y h1(<x, w>) + h2(<x, w>)]`` over the ball ``||w|| <= radius``.

    Without public rows there is no intercept.

    Parameters
    ----------
    loss : {"logistic", "squared", "poisson", "cubic"} or GeneralisedLinear
        "logistic" is for labels -1 and +1; a record with another one is empty.
    method : str or GlmMethod
        "auto", "public-covariance", "statistics", "direction", "hermite", "copies" or "chebyshev": see the table of
        this module.
    radius : float, optional
        Public; required by "direction", "hermite", "copies" and "chebyshev".
    row_norm : float, optional
        Public bound of the l2 norm of a row, enforced; required by the same. Public rows tell others.
    label_bound : float, optional
        Public bound of the size of a label, enforced. Required but for "logistic".
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
        0 without public rows.
    scale_, scale_found_ : float, bool
        With public rows: what the coefficients of least squares were multiplied by, and whether it solves its equation.
    method_, method_reason_ : str
    approximation_error_ : float
        Of the polynomials, for the slopes of the loss (of "copies" and "chebyshev"; else nan).
    guarantee_, plan_, releases_, history_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 3))
    >>> X /= np.linalg.norm(X, axis=1, keepdims=True)
    >>> y = np.where(rng.random(50_000) < 1 / (1 + np.exp(-X @ [3.0, 0.0, 0.0])), 1, -1)
    >>> model = GeneralizedLinearModel("logistic", radius=3.0, row_norm=1.0, epsilon=2.0, random_state=0).fit(X, y)
    >>> bool(np.linalg.norm(model.coef_ - [3.0, 0.0, 0.0]) < 0.5)
    True
    """

    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    loss: str | GeneralisedLinear = "logistic"
    method: str | GlmMethod = "auto"
    _: KW_ONLY
    radius: float | None = None
    row_norm: float | None = None
    label_bound: float | None = None

    @property
    def answers(self) -> tuple[Answer, ...]:
        return (Answer.LOG_ODDS,) if self._loss.labels == "signs" else (Answer.NUMBERS, Answer.COEFFICIENTS)

    def predict(self, X: Any) -> Any:
        """``E[y | x]`` of every row."""
        assert isinstance(self._loss, GeneralisedLinear)
        return self._loss.mean(self.decision_function(X))

    def decision_function(self, X: Any) -> Vector:
        """The linear predictor ``<x, w>`` of every row."""
        check_is_fitted(self, "coef_")
        return np.asarray(validate_data(self, X, reset=False) @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0])

    def fit(self, X: Any, y: Any = None, *, public_X: Any = None, **others: Any) -> Self:
        """Fit to arrays (``fit(X, y)``) or to a stored dataset with arrays X and y (``fit(dataset)``).

        Parameters
        ----------
        X, y : array_like, or Dataset
        public_X : array_like of shape (n_public, n_features), optional
            Rows without labels from the same distribution that need no protection.
        """
        return self._fit(X, y, public_X=public_X, **others)

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        self._check_labels(str(arrays["y"].dtype))
        return {"X": features, "y": self._labels}

    def _chosen(self, public: Public, **beside: Any) -> GlmMethod:
        rows, fitting = beside.get("public_X"), "public_X" in beside
        rows = None if rows is None else public_rows(rows, public.n_features)
        problem = GlmProblem(self._loss, self.radius, self.row_norm, self._label_bound, self._labels)
        method = chosen("method", self.method, METHODS)
        if method == "auto":
            method = self._automatic(rows, public.n_features)
        if method.needs_public and fitting and rows is None:
            raise DataError(
                f"method={method.name!r} takes centre, scale and more from public rows without labels: pass "
                "fit(..., public_X=rows), or choose method='direction'"
            )
        if rows is not None and not method.reads_public:
            raise DataError(
                f"method={method.name!r} takes nothing from public rows: leave public_X out, or choose "
                "method='public-covariance' (for a hinge, 'direction')"
            )
        found: GlmMethod = method.decide(public, problem)
        return found if rows is None else found.given(rows)

    def _trivial_error(self, method: Method) -> float:
        assert isinstance(method, GlmMethod)
        return method.trivial_error

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        names = feature_names(self, self.n_features_in_)
        basis = (
            "Rests on features that are near normal; with a public covariance it counts who happened to be asked as "
            "well, as if labels were as large as they may be."
        )
        variances = np.diag(known.covariance)[: len(names)]
        if constant := [name for name, variance in zip(names, variances, strict=True) if variance == 0]:
            basis += f" Constant in public rows, so that 0 stands for what is not known: {', '.join(constant)}."
        return linear_parameters([known], self.coef_, np.atleast_1d(self.intercept_), names, basis=basis)

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.method_, self.method_reason_ = method.name, method.reason
        if not fitted.get("scale_found", True):
            warn_caller(
                "no scale of the coefficients fits the public rows: what is returned is their direction, with the "
                "scale that comes nearest. More users, a larger epsilon, or features nearer to normal would tell more"
            )

    @property
    def _labels(self) -> Prepare:
        return ClassCodes((-1, 1)) if self._loss.labels == "signs" else targets

    def _check_labels(self, stored: str) -> None:
        """Refuse stored labels that could never be one of the classes."""
        if self._loss.labels == "signs" and np.dtype(stored).kind not in "if":
            raise DataError(
                f"the labels are stored as {stored}, and this loss is for labels -1 and +1: records of the lower class "
                "would be empty. Store the labels as these numbers, or name the two that occur, as in "
                "local.LogisticRegression(classes=[0, 1])"
            )

    @property
    def _loss(self) -> Loss:
        return MODELS[self.loss] if isinstance(self.loss, str) else self.loss

    @property
    def _label_bound(self) -> float:
        signs = self._loss.labels == "signs"
        return 1.0 if signs else need_bound("label_bound", self.label_bound)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_loss()
        chosen("method", self.method, METHODS)
        for name in ("radius", "row_norm"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        assert self._label_bound

    def _check_loss(self) -> None:
        if isinstance(self.loss, str):
            choice("loss", self.loss, tuple(MODELS))
        elif not isinstance(self.loss, GeneralisedLinear):
            raise BudgetError(
                f"loss must be one of {', '.join(map(repr, MODELS))} or a "
                f"dpdist.local.linear.generalised_linear.GeneralisedLinear, got {self.loss!r}"
            )
        else:
            refuse_even(f"the mean of loss={self.loss!r}", self.loss.mean, self.loss.mean_slope)

    def _automatic(self, rows: Any, n_features: int) -> GlmMethod:
        """The method, by how many public rows there are."""
        return _automatic(rows, n_features)


def _automatic(rows: Any, n_features: int) -> GlmMethod:
    if rows is None:
        return Direction(reason="without public rows, the direction takes the fewest users")
    if len(rows) >= PER_FEATURE * n_features:
        return PublicCovarianceGlm(reason="public rows give all but the mean of the label times features")
    return StatisticsGlm(
        reason=f"public rows are fewer than {PER_FEATURE} for each feature: users report their moments"
    )


@dataclass(eq=False, repr=False)
class TwoClasses(ClassifierMixin, GeneralizedLinearModel):
    """A model of two classes with public names, by a loss of the label -1 or +1."""

    label_bound: float | None = field(default=None, init=False)
    _: KW_ONLY
    classes: Sequence[Any] | None = None

    def predict(self, X: Any) -> NDArray[Any]:
        """The more likely class of each row."""
        above = self.decision_function(X) > 0
        return self.classes_[above.astype(int)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        intercept = np.array([fitted["intercept"]])
        super()._store(method, {**fitted, "coef": fitted["coef"][None, :], "intercept": intercept})
        self.classes_ = np.asarray(self.classes)

    @property
    def _labels(self) -> ClassCodes:
        assert self.classes is not None
        return ClassCodes(tuple(self.classes))

    def _check_labels(self, stored: str) -> None:
        self._labels.check_dtype(stored)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_classes(
            self.classes,
            "classes must be the public list of the two labels that can occur, for example classes=[0, 1]",
            most=2,
        )


@dataclass(eq=False, repr=False)
class LogisticRegression(TwoClasses):
    """`GeneralizedLinearModel` with the logistic loss, for two classes with public names.

    Parameters
    ----------
    classes : sequence
        The two labels; public. A record with another one is empty. Required.
    method, radius, row_norm, epsilon, delta, fidelity
        As in `GeneralizedLinearModel`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 2)) / 3
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = LogisticRegression(classes=["no", "yes"], radius=5.0, row_norm=1.0, epsilon=1.0, random_state=0)
    >>> model.fit(X, y).predict([[1.0, 0.0], [-1.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    answers = (Answer.PROBABILITIES, Answer.CLASSES)

    loss: str | GeneralisedLinear = field(default="logistic", init=False)

    def predict_proba(self, X: Any) -> Vector:
        """Probability of each class."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Vector:
        """Logarithm of `predict_proba`, finite where that rounds to 0."""
        scores = self.decision_function(X)
        return np.asarray(log_expit(np.column_stack([-scores, scores])))
