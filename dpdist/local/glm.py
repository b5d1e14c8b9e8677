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

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.data import Dataset
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, MissingBound
from dpdist.fitting.columns import ClassCodes, features, targets
from dpdist.fitting.inputs import as_dataset
from dpdist.fitting.parameters import check_count, choice, need_bound
from dpdist.identity import text
from dpdist.local.estimator import LocalEstimator
from dpdist.local.generalised_linear import MODELS, GeneralisedLinear
from dpdist.local.glm_copies import CopiesProtocol, approximation_error, copies_protocol, learn
from dpdist.local.labelled import LabelledRow
from dpdist.local.protocol import LocalProtocol
from dpdist.local.vectors import best_vector

Vector = NDArray[np.float64]

METHODS = ("direction", "chebyshev")
DEGREES = (1, 3)
RADIUS = "pass a public bound (or guess) of the l2 norm of the coefficients; they lie in a ball of that radius"


class GeneralizedLinearModel(LocalEstimator):
    """Minimises ``E[-y h1(<x, w>) + h2(<x, w>)]`` over the ball ``||w|| <= radius``. There is no intercept.

    Parameters
    ----------
    loss : {"logistic", "squared", "poisson"} or GeneralisedLinear
        "logistic" is for labels -1 and +1; a record with another one is empty.
    method : {"direction", "chebyshev"}
        See the table of this module.
    degree : {1, 3}, default 1
        Of the polynomials of "chebyshev". 3 needs more than 1e9 users.
    n_rounds : int, default 50
        Steps of "chebyshev": so many groups of users are asked one after another, in the order of the rows, which must
        not depend on their values.
    radius : float
        Public. Required.
    row_norm : float
        Public bound of the l2 norm of a row, enforced. Required.
    label_bound : float, optional
        Public bound of the size of a label, enforced. Required but for "logistic".
    epsilon, delta, fidelity
        As in `dpdist.local.estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
        0.
    approximation_error_ : float
        Of the polynomials, for the slopes of the loss (nan for "direction").
    guarantee_, plan_, releases_, history_, n_features_in_, fidelity_
        As in `dpdist.central.minimizer.Minimizer`.

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

    def __init__(
        self,
        loss: str | GeneralisedLinear = "logistic",
        method: str = "direction",
        *,
        degree: int = 1,
        n_rounds: int = 50,
        radius: float | None = None,
        row_norm: float | None = None,
        label_bound: float | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        fidelity: str = "report",
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.method = method
        self.degree = degree
        self.n_rounds = n_rounds
        self.radius = radius
        self.row_norm = row_norm
        self.label_bound = label_bound
        self.epsilon = epsilon
        self.delta = delta
        self.fidelity = fidelity  # type: ignore[assignment]  # checked when it is used
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> GeneralizedLinearModel:
        """Fit to arrays (``fit(X, y)``) or to a stored dataset with arrays X and y (``fit(dataset)``)."""
        self._check_parameters()
        dataset = as_dataset(self, X, y).select(X="X", y="y")
        arrays = {"X": features, "y": self._prepare_labels(dataset)}
        protocols = self._protocols(dataset.n_rows, self.n_features_in_)
        if protocols[0].randomiser.delta:
            self._budget.warn_if_delta_is_large(dataset.n_rows)
        with self._questions(dataset, arrays, protocols, text((self._loss, arrays["y"]))) as questions:
            if isinstance(protocols[0], CopiesProtocol):
                w = learn(protocols[0], questions.ask, list(questions.sizes))
            else:
                b = questions.ask()
                w = b / max(float(np.linalg.norm(b)), 1e-300)
        self.approximation_error_ = self._approximation_error()
        self._store(self._radius * w)
        return self

    def predict(self, X: Any) -> Any:
        """``E[y | x]`` of every row."""
        return self._loss.mean(self.decision_function(X))

    def decision_function(self, X: Any) -> Vector:
        """The linear predictor ``<x, w>`` of every row."""
        check_is_fitted(self, "coef_")
        return np.asarray(validate_data(self, X, reset=False) @ np.ravel(self.coef_))

    def _store(self, w: Vector) -> None:
        self.coef_ = w
        self.intercept_: Any = 0.0

    def _protocols(self, n_rows: int, n_features: int) -> Sequence[LocalProtocol]:
        d, bounds = n_features, {"row_norm": self._row_norm, "label_bound": self._label_bound}
        if self.method == "direction":
            return [LocalProtocol(LabelledRow(d, **bounds), best_vector(d, self.epsilon))]
        if not self.delta:
            raise BudgetError("method='chebyshev' has Gaussian reports: pass delta > 0, far below 1/n_rows")
        if n_rows < self.n_rounds:
            raise BudgetError(f"{n_rows} users cannot be asked in {self.n_rounds} groups: choose a smaller n_rounds")
        protocol = copies_protocol(self._loss, d, self.degree, self.epsilon, self.delta, radius=self._radius, **bounds)
        return [protocol] * self.n_rounds

    def _prepare_labels(self, dataset: Dataset) -> Prepare:
        return ClassCodes((-1, 1)) if self._loss.labels == "signs" else targets

    def _approximation_error(self) -> float:
        if self.method == "direction":
            return float("nan")
        return approximation_error(self._loss, self._radius * self._row_norm, self.degree)

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
                f"dpdist.local.generalised_linear.GeneralisedLinear, got {self.loss!r}"
            )
        choice("method", self.method, METHODS)
        if self.degree not in DEGREES:
            raise BudgetError(f"degree must be 1 or 3, got {self.degree!r}; larger ones drown in noise")
        check_count("n_rounds", self.n_rounds)
        for bound in (self._radius, self._row_norm, self._label_bound):
            assert bound


class LogisticRegression(ClassifierMixin, GeneralizedLinearModel):
    """`GeneralizedLinearModel` with the logistic loss, for two classes with public names.

    Parameters
    ----------
    classes : sequence
        The two labels; public. A record with another one is empty. Required.
    method, degree, n_rounds, radius, row_norm, epsilon, delta, fidelity
        As in `GeneralizedLinearModel`.
    ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 2)) / 3
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = LogisticRegression(classes=["no", "yes"], radius=5.0, row_norm=1.0, epsilon=1.0, random_state=0)
    >>> model.fit(X, y).predict([[1.0, 0.0], [-1.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    def __init__(
        self,
        method: str = "direction",
        *,
        classes: Sequence[Any] | None = None,
        degree: int = 1,
        n_rounds: int = 50,
        radius: float | None = None,
        row_norm: float | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        fidelity: str = "report",
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            "logistic", method, degree=degree, n_rounds=n_rounds, radius=radius, row_norm=row_norm, epsilon=epsilon,
            delta=delta, fidelity=fidelity, ledger=ledger, cluster=cluster, run_id=run_id, random_state=random_state,
            verbose=verbose,
        )  # fmt: skip
        self.classes = classes

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

    def _store(self, w: Vector) -> None:
        self.coef_ = w[None, :]
        self.intercept_ = np.zeros(1)

    def _prepare_labels(self, dataset: Dataset) -> Prepare:
        assert self.classes is not None
        codes = ClassCodes(tuple(self.classes))
        codes.check_dtype(str(dataset.arrays["y"].dtype))
        self.classes_ = np.asarray(self.classes)
        return codes

    def _check_parameters(self) -> None:
        super()._check_parameters()
        labels = [] if isinstance(self.classes, str) or not np.iterable(self.classes) else list(self.classes)
        if len(labels) != 2 or labels[0] == labels[1]:
            raise MissingBound(
                f"classes must be the public list of the two labels that can occur, for example classes=[0, 1]; got "
                f"{self.classes!r}"
            )
