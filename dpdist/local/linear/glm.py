"""Generalised linear models in the local model.

=============== ================================================================ ================= =====================
method          what users report                                                guarantee         id
=============== ================================================================ ================= =====================
``"direction"`` ``x y``, whose mean is the gradient at 0                         pure epsilon      linear-surrogate-ldp
``"chebyshev"`` noisy copies of x, and of x y, for polynomials of <x, w>         (epsilon, delta)  cheb-collect and
                                                                                                   cheb-learn
=============== ================================================================ ================= =====================

The first minimises a linear function in place of the loss, ``w = radius b / ||b||``. Where the features have the same
variance in all directions, that is the right direction for any loss of this kind, from a hundredth of the users that
gradients need; elsewhere whiten rows by a public covariance before (and then clip). Seed 000, section 5.1, and seed
001, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.data import Dataset
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.parameters import check_count, choice, need_bound
from dpdist.estimators.row_maps import ClassCodes, features, targets
from dpdist.local.linear.generalised_linear import MODELS, GeneralisedLinear
from dpdist.local.linear.glm_copies import CopiesProtocol, approximation_error, copies_protocol, learn
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.local_method import LocalMethod, line_of
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.labelled import LabelledRow
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import DECIDED, Method, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan

Vector = NDArray[np.float64]

DEGREES = (1, 3)
RADIUS = "pass a public bound (or guess) of the l2 norm of the coefficients; they lie in a ball of that radius"


@dataclass(frozen=True)
class GlmProblem(Noted):
    """What a user of `GeneralizedLinearModel` states; ``labels`` is the public map of stored labels."""

    tag: ClassVar[str] = "GlmProblem"

    loss: GeneralisedLinear
    radius: float
    row_norm: float
    label_bound: float
    labels: Prepare


@dataclass(frozen=True)
class GlmMethod(LocalMethod):
    """Coefficients in the ball of the statement's radius."""

    solves_with = ("radius",)

    statement: GlmProblem = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    def fitted(self, w: Vector, error: float) -> Mapping[str, Any]:
        """The attributes, from coefficients in the unit ball and the error of the polynomials."""
        return {"approximation_error": error, "coef": self.statement.radius * w, "intercept": 0.0}


class Direction(GlmMethod):
    """The direction of the mean of ``x y``, on the sphere: a linear function in place of the loss."""

    tag, name = "Direction", "direction"
    measures: ClassVar[str] = "expected norm of the noise in the mean of x y, over the bound of a record"

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        return self._with(public, statement)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        d, problem = self.public.n_features, self.statement
        statistic = LabelledRow(d, row_norm=problem.row_norm, label_bound=problem.label_bound)
        return [LocalProtocol(statistic, best_vector(d, self.public.budget.epsilon))]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        b = self.estimate(oracle)
        return self.fitted(b / max(float(np.linalg.norm(b)), 1e-300), float("nan"))

    def expected_error(self, plan: Plan) -> float:
        return self.protocols[0].noise_std * math.sqrt(self.public.n_features / self.public.n_rows)


@dataclass(frozen=True)
class Chebyshev(GlmMethod):
    """Gradients of polynomials in the place of the loss, from noisy copies of every row.

    Parameters
    ----------
    degree : {1, 3}, default 1
        Of the polynomials. 3 needs more than 1e9 users.
    n_rounds : int, default 50
        So many groups of users are asked one after another, in the order of the rows, which must not depend on their
        values.
    """

    tag, name = "Chebyshev", "chebyshev"
    measures: ClassVar[str] = "expected norm of the noise in one gradient, over the radius times the bound of a record"

    degree: int = 1
    n_rounds: int = 50

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        if self.degree not in DEGREES:
            raise BudgetError(f"degree must be 1 or 3, got {self.degree!r}; larger ones drown in noise")
        check_count("n_rounds", self.n_rounds)
        if not public.budget.delta:
            raise BudgetError("method='chebyshev' has Gaussian reports: pass delta > 0, far below 1/n_rows")
        if public.n_rows < self.n_rounds:
            raise BudgetError(
                f"{public.n_rows} users cannot be asked in {self.n_rounds} groups: choose a smaller n_rounds"
            )
        return self._with(public, statement)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [self._protocol] * self.n_rounds

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        problem, sizes = self.statement, [oracle.size(line_of(group)) for group in range(self.n_rounds)]
        w = learn(self._protocol, lambda group, point: self.estimate(oracle, group, point), sizes)
        reach = problem.radius * problem.row_norm
        return self.fitted(w, approximation_error(problem.loss, reach, self.degree))

    def expected_error(self, plan: Plan) -> float:
        return self._protocol.total_std / math.sqrt(self.public.n_rows // self.n_rounds)

    @property
    def _protocol(self) -> CopiesProtocol:
        problem, budget = self.statement, self.public.budget
        return copies_protocol(
            problem.loss, self.public.n_features, self.degree, budget.epsilon, budget.delta, radius=problem.radius,
            row_norm=problem.row_norm, label_bound=problem.label_bound,
        )  # fmt: skip


METHODS = by_name(Direction, Chebyshev)


@dataclass(eq=False, repr=False)
class GeneralizedLinearModel(LocalEstimator):
    """Minimises ``E[-y h1(<x, w>) + h2(<x, w>)]`` over the ball ``||w|| <= radius``. There is no intercept.

    Parameters
    ----------
    loss : {"logistic", "squared", "poisson"} or GeneralisedLinear
        "logistic" is for labels -1 and +1; a record with another one is empty.
    method : {"direction", "chebyshev"}, Direction or Chebyshev
        See the table of this module.
    radius : float
        Public. Required.
    row_norm : float
        Public bound of the l2 norm of a row, enforced. Required.
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
        0.
    approximation_error_ : float
        Of the polynomials, for the slopes of the loss (nan for "direction").
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
    method: str | GlmMethod = "direction"
    _: KW_ONLY
    radius: float | None = None
    row_norm: float | None = None
    label_bound: float | None = None

    @property
    def answers(self) -> tuple[Answer, ...]:
        return (Answer.LOG_ODDS,) if self._loss.labels == "signs" else (Answer.NUMBERS, Answer.COEFFICIENTS)

    def predict(self, X: Any) -> Any:
        """``E[y | x]`` of every row."""
        return self._loss.mean(self.decision_function(X))

    def decision_function(self, X: Any) -> Vector:
        """The linear predictor ``<x, w>`` of every row."""
        check_is_fitted(self, "coef_")
        return np.asarray(validate_data(self, X, reset=False) @ np.ravel(self.coef_))

    def _prepare(self, dataset: Dataset) -> Mapping[str, Prepare]:
        self._check_labels(str(dataset.arrays["y"].dtype))
        return {"X": features, "y": self._labels}

    def _chosen(self, public: Public, **beside: Any) -> GlmMethod:
        problem = GlmProblem(self._loss, self._radius, self._row_norm, self._label_bound, self._labels)
        found: GlmMethod = chosen("method", self.method, METHODS, auto=False).decide(public, problem)
        return found

    @property
    def _labels(self) -> Prepare:
        return ClassCodes((-1, 1)) if self._loss.labels == "signs" else targets

    def _check_labels(self, stored: str) -> None:
        """Refuse stored labels that could never be one of the classes."""

    @property
    def _loss(self) -> GeneralisedLinear:
        return MODELS[self.loss] if isinstance(self.loss, str) else self.loss

    @property
    def _radius(self) -> float:
        return need_bound("radius", self.radius, RADIUS)

    @property
    def _row_norm(self) -> float:
        return need_bound("row_norm", self.row_norm)

    @property
    def _label_bound(self) -> float:
        signs = self._loss.labels == "signs"
        return 1.0 if signs else need_bound("label_bound", self.label_bound)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.loss, str):
            choice("loss", self.loss, tuple(MODELS))
        elif not isinstance(self.loss, GeneralisedLinear):
            raise BudgetError(
                f"loss must be one of {', '.join(map(repr, MODELS))} or a "
                f"dpdist.local.linear.generalised_linear.GeneralisedLinear, got {self.loss!r}"
            )
        chosen("method", self.method, METHODS, auto=False)
        for bound in (self._radius, self._row_norm, self._label_bound):
            assert bound


@dataclass(eq=False, repr=False)
class LogisticRegression(ClassifierMixin, GeneralizedLinearModel):
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
    label_bound: float | None = field(default=None, init=False)
    _: KW_ONLY
    classes: Sequence[Any] | None = None

    def predict(self, X: Any) -> NDArray[Any]:
        """The more likely class of each row."""
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def predict_proba(self, X: Any) -> Vector:
        """Probability of each class."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Vector:
        """Logarithm of `predict_proba`, finite where that rounds to 0."""
        scores = self.decision_function(X)
        return np.asarray(log_expit(np.column_stack([-scores, scores])))

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, {**fitted, "coef": fitted["coef"][None, :], "intercept": np.zeros(1)})
        self.classes_ = np.asarray(self.classes)

    @property
    def _labels(self) -> ClassCodes:
        assert self.classes is not None
        return ClassCodes(tuple(self.classes))

    def _check_labels(self, stored: str) -> None:
        self._labels.check_dtype(stored)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        labels = [] if isinstance(self.classes, str) or not np.iterable(self.classes) else list(self.classes)
        if len(labels) != 2 or labels[0] == labels[1]:
            raise MissingBound(
                f"classes must be the public list of the two labels that can occur, for example classes=[0, 1]; got "
                f"{self.classes!r}"
            )
