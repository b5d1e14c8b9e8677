"""Generalised linear models in the local model.

======================== ======================================================= ================ =====================
method                   what users report                                       guarantee        id
======================== ======================================================= ================ =====================
``"public-covariance"``  ``x y``; all else comes from public rows                pure epsilon     nldp-glm-pubcov
``"statistics"``         ``(svec(x x'), x y)``; public rows give the scale       pure epsilon     nldp-glm-pub
``"direction"``          ``x y``, whose mean is the gradient at 0                pure epsilon     linear-surrogate-ldp
``"chebyshev"``          noisy copies of x, and of x y, for polynomials          (epsilon, delta) cheb-collect and
                                                                                                  cheb-learn
======================== ======================================================= ================ =====================

With public rows (``fit(..., public_X=rows)``) "auto" takes the first, from 20 rows a feature on, or the second
(`dpdist.local.linear.glm_public`); without, the direction.

"direction" minimises a linear function in place of the loss, ``w = radius b / ||b||``. Where the features have the same
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
from dpdist.errors import BudgetError, DataError, MissingBound, warn_caller
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.parameters import check_bound, check_count, choice, need_bound
from dpdist.estimators.row_maps import ClassCodes, features, targets
from dpdist.local.linear.generalised_linear import MODELS, GeneralisedLinear
from dpdist.local.linear.glm_copies import CopiesProtocol, approximation_error, copies_protocol, learn
from dpdist.local.linear.glm_method import GlmMethod, GlmProblem
from dpdist.local.linear.glm_public import PER_FEATURE, PublicCovarianceGlm, PublicGlm, StatisticsGlm
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.local_method import line_of
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.labelled import LabelledRow
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Method, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan

Vector = NDArray[np.float64]

DEGREES = (1, 3)


class Direction(GlmMethod):
    """The direction of the mean of ``x y``, on the sphere: a linear function in place of the loss."""

    tag, name = "Direction", "direction"
    measures: ClassVar[str] = "expected norm of the noise in the mean of x y, over the bound of a record"

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        assert statement.need("radius") and statement.need("row_norm")
        return self._with(public, statement)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        d, problem = self.public.n_features, self.statement
        statistic = LabelledRow(d, row_norm=problem.need("row_norm"), label_bound=problem.label_bound)
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
        assert statement.need("radius") and statement.need("row_norm")
        return self._with(public, statement)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [self._protocol] * self.n_rounds

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        problem, sizes = self.statement, [oracle.size(line_of(group)) for group in range(self.n_rounds)]
        w = learn(self._protocol, lambda group, point: self.estimate(oracle, group, point), sizes)
        reach = problem.need("radius") * problem.need("row_norm")
        return self.fitted(w, approximation_error(problem.loss, reach, self.degree))

    def expected_error(self, plan: Plan) -> float:
        return self._protocol.total_std / math.sqrt(self.public.n_rows // self.n_rounds)

    @property
    def _protocol(self) -> CopiesProtocol:
        problem, budget = self.statement, self.public.budget
        return copies_protocol(
            problem.loss, self.public.n_features, self.degree, budget.epsilon, budget.delta,
            radius=problem.need("radius"), row_norm=problem.need("row_norm"), label_bound=problem.label_bound,
        )  # fmt: skip


METHODS = by_name(Direction, PublicCovarianceGlm, StatisticsGlm, Chebyshev)


@dataclass(eq=False, repr=False)
class GeneralizedLinearModel(LocalEstimator):
    """Minimises ``E[-y h1(<x, w>) + h2(<x, w>)]`` over the ball ``||w|| <= radius``.

    Without public rows there is no intercept.

    Parameters
    ----------
    loss : {"logistic", "squared", "poisson"} or GeneralisedLinear
        "logistic" is for labels -1 and +1; a record with another one is empty.
    method : str or GlmMethod
        "auto", "public-covariance", "statistics", "direction" or "chebyshev": see the table of this module.
    radius : float, optional
        Public; required by "direction" and "chebyshev".
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
        return self._loss.mean(self.decision_function(X))

    def decision_function(self, X: Any) -> Vector:
        """The linear predictor ``<x, w>`` of every row."""
        check_is_fitted(self, "coef_")
        return np.asarray(validate_data(self, X, reset=False) @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0])

    def fit(self, X: Any, y: Any = None, *, public_X: Any = None) -> Self:
        """Fit to arrays (``fit(X, y)``) or to a stored dataset with arrays X and y (``fit(dataset)``).

        Parameters
        ----------
        X, y : array_like, or Dataset
        public_X : array_like of shape (n_public, n_features), optional
            Rows without labels from the same distribution that need no protection.
        """
        return self._fit(X, y, public_X=public_X)

    def _prepare(self, dataset: Dataset) -> Mapping[str, Prepare]:
        self._check_labels(str(dataset.arrays["y"].dtype))
        return {"X": features, "y": self._labels}

    def _chosen(self, public: Public, **beside: Any) -> GlmMethod:
        rows, fitting = beside.get("public_X"), "public_X" in beside
        problem = GlmProblem(self._loss, self.radius, self.row_norm, self._label_bound, self._labels)
        method = chosen("method", self.method, METHODS)
        if method == "auto":
            method = _automatic(rows, public.n_features)
        if method.needs_public and fitting and rows is None:
            raise DataError(
                f"method={method.name!r} takes centre, scale and more from public rows without labels: pass "
                "fit(..., public_X=rows), or choose method='direction'"
            )
        found: GlmMethod = method.decide(public, problem)
        return found.given(rows) if isinstance(found, PublicGlm) and rows is not None else found

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.method_, self.method_reason_ = method.name, method.reason
        if not fitted.get("scale_found", True):
            warn_caller(
                "no scale of the coefficients fits the public rows: what is returned is their direction, with the "
                "scale that comes nearest. More users, or a larger epsilon, would tell more"
            )

    @property
    def _labels(self) -> Prepare:
        return ClassCodes((-1, 1)) if self._loss.labels == "signs" else targets

    def _check_labels(self, stored: str) -> None:
        """Refuse stored labels that could never be one of the classes."""

    @property
    def _loss(self) -> GeneralisedLinear:
        return MODELS[self.loss] if isinstance(self.loss, str) else self.loss

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
        chosen("method", self.method, METHODS)
        for name in ("radius", "row_norm"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        assert self._label_bound


def _automatic(rows: Any, n_features: int) -> GlmMethod:
    if rows is None:
        return Direction(reason="without public rows, the direction takes the fewest users")
    if len(rows) >= PER_FEATURE * n_features:
        return PublicCovarianceGlm(reason="public rows give all but the mean of the label times features")
    return StatisticsGlm(
        reason=f"public rows are fewer than {PER_FEATURE} for each feature: users report their moments"
    )


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
        labels = [] if isinstance(self.classes, str) or not np.iterable(self.classes) else list(self.classes)
        if len(labels) != 2 or labels[0] == labels[1]:
            raise MissingBound(
                f"classes must be the public list of the two labels that can occur, for example classes=[0, 1]; got "
                f"{self.classes!r}"
            )
