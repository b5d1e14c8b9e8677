"""Logistic regression, linear regression and linear support vector machines under differential privacy.

Thin subclasses of `dpdist.central.linear.minimizer.Minimizer`: a loss, an elastic-net penalty and scikit-learn's way of
predicting. All parameters of `Minimizer` but ``loss`` and ``penalty`` are theirs as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from dpdist.central.linear.linear_method import LinearMethod, Problem
from dpdist.central.linear.minimizer import Minimizer
from dpdist.constraints import Constraint, ElasticNet, Penalty
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.fitted_law import FittedLaw
from dpdist.estimators.inference import feature_names
from dpdist.estimators.parameters import check_between, check_bound, check_classes
from dpdist.estimators.row_maps import ClassCodes
from dpdist.kernels.clip import clip_l2
from dpdist.losses import Loss
from dpdist.losses.class_weights import against_rest, weighted
from dpdist.method import Public, Vector


@dataclass(eq=False, repr=False)
class _LinearModel(Minimizer):
    """An elastic-net penalty with scikit-learn's parameters."""

    _: KW_ONLY
    constraint: Constraint | None = None
    penalty: Penalty | None = field(default=None, init=False)
    alpha: float | None = None
    l1_ratio: float = 0.0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.alpha is not None:
            check_between("alpha", self.alpha, 0.0)
        check_between("l1_ratio", self.l1_ratio, 0.0, 1.0)

    def _penalty(self, solver: LinearMethod | None) -> ElasticNet | None:
        alpha = self.alpha
        if alpha is None:
            alpha = LinearMethod.default_alpha if solver is None or self.l1_ratio else solver.default_alpha
        return ElasticNet(alpha, self.l1_ratio) if alpha else None


@dataclass(eq=False, repr=False)
class _LinearClassifier(ClassifierMixin, _LinearModel):
    """Two classes, or one against the rest with the budget divided among the classes."""

    _: KW_ONLY
    classes: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[np.argmax(scores, axis=1)]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.classes is None:
            raise MissingBound(
                "classes is missing: pass the list of labels that can occur, for example classes=[0, 1]. It is public; "
                "reading it off the data would tell whether a rare label is there. Rows with another label count as "
                "empty"
            )
        check_classes(self.classes, "classes must be a list of at least two different labels")
        if self.class_weight is not None:
            _check_class_weight(self.class_weight, list(self.classes))

    def _loss(self) -> Loss:
        loss = super()._loss()
        if self.class_weight is None:
            return loss
        assert self.classes is not None
        weights = [float(self.class_weight.get(label, 1.0)) for label in self.classes]
        return weighted(loss, *weights) if len(weights) == 2 else against_rest(loss, weights)

    def _prepare_labels(self, stored: str) -> Prepare:
        assert self.classes is not None
        self.classes_ = np.asarray(self.classes)
        codes = ClassCodes(tuple(self.classes))
        codes.check_dtype(stored)
        return codes

    def _problem(self, public: Public, solver: LinearMethod | None = None) -> Problem:
        assert self.classes is not None
        return replace(super()._problem(public, solver), classes=tuple(self.classes))

    def _extreme_labels(self) -> tuple[Any, Any]:
        assert self.classes is not None
        return self.classes[0], self.classes[1]

    def _n_problems(self) -> int:
        assert self.classes is not None
        return len(self.classes) if len(self.classes) > 2 else 1

    def _keep(self, solutions: NDArray[np.float64], intercept: float) -> None:
        d = self.n_features_in_
        self.coef_ = solutions[:, :d]
        self.intercept_ = intercept * solutions[:, d] if intercept else np.zeros(len(solutions))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Signed distances: one column per class, or a single number per row for two classes."""
        scores = self._linear_predictor(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores


def _check_class_weight(weights: Any, labels: list[Any]) -> None:
    if isinstance(weights, str) or not isinstance(weights, Mapping):
        raise BudgetError(
            f"class_weight must be public weights such as {{{labels[0]!r}: 1.0, {labels[-1]!r}: 5.0}}, got "
            f"{weights!r}: 'balanced' would read the shares of the classes off the data; of public shares, it is "
            "1 / (number of classes * share) for each"
        )
    if unknown := [label for label in weights if label not in labels]:
        raise BudgetError(f"class_weight has {unknown[0]!r}, which is none of the classes {labels!r}")
    for label, weight in weights.items():
        check_bound(f"class_weight[{label!r}]", weight)


@dataclass(eq=False, repr=False)
class LogisticRegression(_LinearClassifier):
    """Logistic regression, ``P(y = 1 | x) = 1/(1 + exp(-<x, w> - b))``.

    Parameters
    ----------
    classes : sequence
        The public list of labels. Required.
    class_weight : dict, optional
        Public weights of classes, such as ``{"no": 1.0, "yes": 5.0}``: a row of the class counts as often; 1 where
        there is none. Noise grows with the largest one. Probabilities are those of a population in which the classes
        have these weights.
    alpha : float, optional
        Default: none with Newton steps, whose gains shrink by what the noise demands, 1e-4 with other solvers.
        Strength of the penalty ``alpha (l1_ratio ||w||_1 + (1 - l1_ratio)/2 ||w||^2)`` added to the mean loss.
    l1_ratio : float, default 0
        0 is ridge, 1 is lasso.
    **common
        All parameters of `Minimizer` but loss and penalty: ``epsilon``, ``delta``, ``row_norm``, ``solver``, ...

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)) / 2
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = LogisticRegression(classes=["no", "yes"], epsilon=1.0, delta=1e-6, row_norm=1.0, random_state=0)
    >>> model.fit(X, y).predict([[1.0, 0.0], [-1.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    >>> print(model.guarantee_.text)  # doctest: +ELLIPSIS
    This is a simulation...
    """

    answers = (Answer.PROBABILITIES, Answer.CLASSES)

    loss: str | Loss = field(default="logistic", init=False)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class; with more than two, one against the rest, scaled to sum to 1."""
        return np.exp(self.predict_log_proba(X))

    def _fitted_law(self) -> FittedLaw | str:
        if len(self.classes_) > 2:
            return (
                "each class has a fit of its own, and together they are no law of labels. Fit a class against the rest "
                "of them"
            )
        if self.class_weight is not None:
            return (
                "weighted classes give the odds of another population than that of the rows: fit without class_weight"
            )
        if self.constraint is not None or self.l1_ratio or not self.coef_.all():
            return (
                "a constraint or penalty holds some coefficients at 0 or at the edge of a set, where fits to simulated "
                "rows do not vary as fits to others would. Without constraint and l1_ratio there would be intervals"
            )
        names = (*feature_names(self, self.n_features_in_), *(["intercept"] if self.fit_intercept else []))

        def read(other: Any) -> Vector:
            return np.append(other.coef_, other.intercept_)[: len(names)]

        def draw(w: Vector, X: Vector, rng: np.random.Generator) -> tuple[Vector, NDArray[Any]]:
            d = X.shape[1]
            rows = X if self.clipped_to_ is None else clip_l2(X, self.clipped_to_)
            odds = rows @ w[:d] + (w[d] if len(w) > d else 0.0)
            return X, self.classes_[(rng.random(len(X)) < expit(odds)).astype(int)]

        return FittedLaw(
            read(self), names, np.arange(self.n_features_in_)[None, :], draw, read,
            "Rests on the model: labels of these odds, and features like those of public_X.",
            needs_features=True, takes_features=True,
        )  # fmt: skip

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithm of `predict_proba`, finite where that rounds to 0."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return log_expit(np.column_stack([-scores, scores]))
        return log_softmax(log_expit(scores), axis=1)


@dataclass(eq=False, repr=False)
class LinearSVC(_LinearClassifier):
    """Linear support vector machine with the smoothed hinge loss.

    Parameters are those of `LogisticRegression`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)) / 2
    >>> model = LinearSVC(classes=[0, 1], epsilon=1.0, delta=1e-6, row_norm=1.0, random_state=0)
    >>> model.fit(X, (X[:, 0] > 0).astype(int)).predict([[1.0, 0.0], [-1.0, 0.0]])
    array([1, 0])
    """

    answers = (Answer.CLASSES,)

    loss: str | Loss = field(default="smoothed-hinge", init=False)


@dataclass(eq=False, repr=False)
class LinearRegression(RegressorMixin, _LinearModel):
    """Linear regression with the squared or the Huber loss.

    Parameters
    ----------
    loss : str or Loss, default "squared"
        ``"squared"`` needs ``gradient=ClipLabel(label_bound)`` or, for other solvers than sufficient statistics,
        ``ClipNorm(clip_norm)``; ``"huber"`` (or ``Huber(threshold)``) is bounded by
        itself, and with ``second_moment`` needs no bound of the rows.
    alpha, l1_ratio : float
        As in `LogisticRegression`.
    **common
        All parameters of `Minimizer` but penalty.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2)) / 2**0.5
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=20_000)
    >>> from dpdist.central import ClipLabel
    >>> model = LinearRegression(gradient=ClipLabel(2.5), epsilon=1.0, delta=1e-6, row_norm=1.0, random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    answers = (Answer.NUMBERS, Answer.COEFFICIENTS)

    _: KW_ONLY
    loss: str | Loss = "squared"
