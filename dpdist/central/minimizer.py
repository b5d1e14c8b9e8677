"""Private empirical risk minimisation for generalised linear models: loss x constraint x private oracle x loop.

``minimise  (1/n) sum_i l(<x_i, w> + b, y_i) + penalty(w)   over w in constraint``

`Minimizer` is the general estimator; `dpdist.central.linear` has the thin subclasses with the names that scikit-learn
users know. A method is a choice of ``solver``, ``gradient``, ``rows`` and ``combine``; ``dpdist methods`` and
`dpdist.pipeline.registry` list the published ones under their ids, from dp-gd (``solver="gradient"``) to ht-dp-fw
(``solver="frank-wolfe", gradient="truncate", rows="split"``).

Why it is private: a row enters only through exact sums to which its contribution is bounded by public numbers, and
these leave the coordinator with noise, as a private choice, or as a minimiser that was perturbed; everything after a
release is post-processing. Each solver's module says which it is, and why.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.course import Course, Problem
from dpdist.central.solvers import automatic, one_row_each
from dpdist.central.solvers import course as choose
from dpdist.constraints import Constraint, Penalty
from dpdist.data import ROWS, Units
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError
from dpdist.fitting.columns import features, targets
from dpdist.fitting.computation import computation_of
from dpdist.fitting.estimator import PrivateEstimator
from dpdist.fitting.inputs import as_dataset
from dpdist.fitting.outlook import Outlook, outlook
from dpdist.fitting.parameters import check_bound, check_count, check_offers
from dpdist.losses import LOSSES, Loss, by_name
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.calibration import calibrate
from dpdist.privacy.plan import Plan

Vector = NDArray[np.float64]


PUBLIC = (
    "solver", "gradient", "rows", "combine", "row_norm", "clip_norm", "n_rounds", "n_inner", "step_size", "batch_rate",
    "n_nonzero", "feature_bound", "residual_bound", "second_moment", "scale",
)  # fmt: skip
"""The parameters that a `Problem` has under the same name."""
EXCESS = "expected excess of the mean loss that is due to the noise, for rows that are equally long in all directions"


def _takes_signs(model: Minimizer) -> bool:
    loss = LOSSES.get(model.loss) if isinstance(model.loss, str) else model.loss
    return loss is not None and loss.labels == "signs"


class Minimizer(PrivateEstimator):
    """Minimise a private mean loss of a linear predictor.

    Parameters
    ----------
    loss : str or Loss, default "logistic"
        ``"logistic"``, ``"squared"``, ``"huber"``, ``"smoothed-hinge"`` or any `dpdist.losses.Loss`. Those for two
        classes (logistic, smoothed-hinge) take labels -1 and +1; a row with another label counts as empty.
    penalty : Penalty, optional
        For example ``ElasticNet(1e-4)``; public, hence free. Not applied to the intercept.
    constraint : Constraint, optional
        For example ``L2Ball(10.0)``.
    solver : str, default "auto"
        The loop: ``"gradient"`` and ``"accelerated"`` (`dpdist.central.convex`); ``"objective"`` and ``"output"``, one
        release of the exact minimiser (`perturbation`); ``"svrg"``, ``"svrg++"``, ``"katyusha"`` (`variance_reduced`);
        ``"mirror"`` and ``"accelerated-mirror"`` (`mirror`); ``"frank-wolfe"`` over an l1 ball or simplex
        (`frank_wolfe`); ``"iht"`` for ``n_nonzero`` coefficients (`hard_threshold`). ``"auto"`` decides from public
        numbers only (`dpdist.central.solvers`); the choice is in ``solver_``, the reason in ``solver_reason_``.
    gradient : str, default "norm"
        What bounds a row's contribution: ``"norm"`` clips its gradient in the l2 norm; ``"truncate"``,
        ``"smooth-truncate"`` and ``"trim"`` damp or leave out extreme coordinates (`heavy_tailed`); ``"coordinate"``,
        ``"residual"`` and ``"shrink"`` bound single coordinates, features and residuals (`high_dimensional`).
    rows : {"all", "sample", "split"}
        Each round reads all rows, a Poisson sample of them, or a part of its own (so that all rounds are one pass).
    combine : {"auto", "last", "tail-average"}
        What is returned: the last iterate or the mean of the last half. ``"auto"`` is the last one for ``rows="all"``
        and the mean for ``rows="sample"``.
    epsilon, delta : float
        The budget of this fit. ``delta`` has to be given: far below one over the number of rows.
    row_norm : float
        Public bound on the l2 norm of a row's features; longer rows are scaled down to it. Required where
        ``gradient="norm"``.
    clip_norm : float, optional
        Public bound on the l2 norm of a row's gradient. Default: what ``row_norm`` and the loss imply; required
        where the loss has no bounded derivative (squared), unless ``second_moment`` is given instead: with
        ``solver="gradient"`` the clip then balances bias and noise, and ``row_norm`` is not needed.
    fit_intercept : bool, default True
        Adds a constant feature as large as the others: ``row_norm / sqrt(n_features)``, which costs 1/(2 n_features)
        more noise (``feature_bound`` if that is given, 1 if neither is).
    n_rounds : int, optional
        Public number of gradients. Default: by the measured rule of the solver (`dpdist.central.convex`).
    step_size : float, optional
        Public step size. Default: from a privately released smoothness (1 % of the budget), or from the public guess
        that features have mean square 1 (``feature_bound / 3`` squared) where rows are not bounded.
    n_inner : int, optional
        Public number of short rounds in each long one, for the variance-reduced solvers.
    batch_rate : float, default 0.02
        Chance of each row to be in a round, for ``rows="sample"``.
    n_nonzero : int, optional
        Public number of coefficients that may differ from 0, for ``solver="iht"``.
    feature_bound, residual_bound : float, optional
        Public bounds on a single feature and on a residual, for the gradients that need them.
    second_moment : float, optional
        Public guess of the mean square of a coordinate of a row's gradient, for ``gradient="truncate"``, ``"trim"``
        and the like (`dpdist.central.heavy_tailed`).
    scale : float, optional
        Public scale of the truncation; for ``gradient="trim"`` where coordinates are cut before. Default: what
        ``second_moment`` and the budget make best.
    neighbours : {"replace-one", "add-or-remove-one"}
        Between which datasets the guarantee holds.
    n_public : int, optional
        Declared number of rows to divide by; required where the true one is private: for ``"add-or-remove-one"``, and
        for units with several rows that do not come unit by unit (`dpdist.data.units`).
    ledger : Ledger or path, optional
        Where the budget is charged. Default: the user's ledger file; in memory for arrays in memory. A clone charges
        the same one; a pickled model keeps the path.
    cluster : str, mapping, Client or cluster, optional
        ``None``: the active Dask client, else threads; or a scheduler's address, a cluster object, or for TLS
        ``{"address": "tls://host:8786", "ca_file": ..., "cert_file": ..., "key_file": ...}``.
    run_id : str, optional
        Name this fit to be able to resume it after a crash: fit again with the same ``run_id``.
    random_state : int, optional
        Simulation only: noise from a seed, no guarantee.
    verbose : int, default 0
        1 prints a line per release to standard error.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
    guarantee_ : Guarantee
        What holds, and why.
    plan_ : Plan
        What was released with which noise, fixed before any data was read.
    releases_ : list of Release
    history_ : list of arrays
        The released iterates (coefficients, then intercept) at which gradients were asked.
    n_iter_ : int
        The public number of rounds.
    solver_, solver_reason_ : str
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from dpdist.constraints import ElasticNet
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3)) / 2
    >>> y = np.where(X @ [2.0, -1.0, 0.0] > 0, 1, -1)
    >>> model = Minimizer("logistic", ElasticNet(1e-3), epsilon=1.0, delta=1e-6, row_norm=1.0, random_state=0)
    >>> bool(model.fit(X, y).coef_[0] > 0 > model.coef_[1])
    True
    """

    _fixed: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show a subclass's inherited parameters in its signature, which is where scikit-learn looks for them.

        A subclass writes ``__init__(self, *, own=..., **common)``; parameters named in ``_fixed`` are left out.
        """
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):
            return
        own = inspect.signature(cls.__init__).parameters
        inherited = inspect.signature(Minimizer.__init__).parameters
        explicit = [p for p in own.values() if p.kind is not p.VAR_KEYWORD]
        common = [
            p.replace(kind=p.KEYWORD_ONLY) for p in inherited.values() if p.name not in own and p.name not in cls._fixed
        ]
        cls.__init__.__signature__ = inspect.Signature([*explicit, *common])  # type: ignore[attr-defined]

    def __init__(
        self,
        loss: str | Loss = "logistic",
        penalty: Penalty | None = None,
        constraint: Constraint | None = None,
        *,
        solver: str = "auto",
        gradient: str = "norm",
        rows: str = "all",
        combine: str = "auto",
        epsilon: float = 1.0,
        delta: float | None = None,
        row_norm: float | None = None,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        n_rounds: int | None = None,
        n_inner: int | None = None,
        step_size: float | None = None,
        batch_rate: float = 0.02,
        n_nonzero: int | None = None,
        feature_bound: float | None = None,
        residual_bound: float | None = None,
        second_moment: float | None = None,
        scale: float | None = None,
        neighbours: str = "replace-one",
        n_public: int | None = None,
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.constraint = constraint
        self.solver = solver
        self.gradient = gradient
        self.rows = rows
        self.combine = combine
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.n_rounds = n_rounds
        self.n_inner = n_inner
        self.step_size = step_size
        self.batch_rate = batch_rate
        self.n_nonzero = n_nonzero
        self.feature_bound = feature_bound
        self.residual_bound = residual_bound
        self.second_moment = second_moment
        self.scale = scale
        self.neighbours = neighbours
        self.n_public = n_public
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Minimizer:
        """Fit to arrays (``fit(X, y)``) or to a stored dataset (``fit(dataset)``)."""
        self._check_parameters()
        dataset = as_dataset(self, X, y)
        prepare = self._prepare_labels(dataset.arrays["y"].dtype)
        problem = self._problem(dataset.n_rows, self.n_features_in_, dataset.schema.units)
        course = choose(problem)
        problem.budget.warn_if_delta_is_large(problem.n_rows)
        arrays = {"X": features, "y": prepare}
        with self._run(dataset, arrays, course.items(), self._computation(course)) as door:
            solutions = []
            for target in range(problem.n_problems) if problem.n_problems > 1 else [None]:
                door.target = target
                solutions.append(course.solve(door))
        self._store(np.array(solutions), problem.intercept)
        self.solver_ = course.name
        self.solver_reason_ = automatic(problem)[1] if problem.solver == "auto" else "asked for"
        self.n_iter_ = course.n_rounds
        return self

    def plan(self, n_rows: int, n_features: int, units: Units = ROWS) -> Plan:
        """What a fit would release, with which noise: from public numbers, without any data."""
        problem = self._public_problem(n_rows, n_features, units)
        return calibrate(choose(problem).items(), problem.budget, problem.neighbours)

    def sensitivities(self, n_rows: int, n_features: int, units: Units = ROWS) -> dict[str, float]:
        """How much one unit can move each line of the plan (in the norm of its mechanism), where that is known."""
        problem = self._public_problem(n_rows, n_features, units)
        course = choose(problem)
        norms = {item.name: item.mechanism.norm for item in course.items()}
        known = course.queries().items()
        return {name: q.unit_sensitivity(problem.neighbours, norms[name], units) for name, q in known}

    def outlook(self, n_rows: int, n_features: int, units: Units = ROWS) -> Outlook:
        """What to expect of a fit: predicted from public numbers, and what it would take where that is bad."""
        problem = self._public_problem(n_rows, n_features, units)

        def predict(n: int, epsilon: float) -> float | None:
            other = one_row_each(replace(problem, n_rows=n, budget=replace(problem.budget, epsilon=epsilon)))
            course = choose(other)
            return course.predicted_error(calibrate(course.items(), other.budget, other.neighbours))

        trivial = float(problem.loss.value(0.0, 1.0)) if problem.loss.labels == "signs" else None
        return outlook(predict, trivial, EXCESS, problem.n_rows, problem.budget.epsilon, problem.budget.delta)

    @available_if(_takes_signs)
    def decision_function(self, X: Any) -> Vector:
        """The linear predictor ``X @ coef_ + intercept_``; only for losses for two classes."""
        return self._linear_predictor(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The linear predictor, or its sign where the loss is one for labels -1 and +1."""
        u = self._linear_predictor(X)
        return np.where(u > 0, 1, -1) if self._loss().labels == "signs" else u

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _linear_predictor(self, X: Any) -> Vector:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, reset=False)
        return X @ self.coef_.T + self.intercept_

    def _store(self, solutions: NDArray[np.float64], intercept: float) -> None:
        d = self.n_features_in_
        self.coef_ = solutions[0, :d]
        self.intercept_: Any = float(intercept * solutions[0, d]) if intercept else 0.0

    def _public_problem(self, n_rows: int, n_features: int, units: Units = ROWS) -> Problem:
        """The problem of a dataset of that shape, with all parameters checked."""
        self._check_parameters()
        check_count("n_rows", n_rows)
        check_count("n_features", n_features)
        return self._problem(n_rows, n_features, units)

    def _problem(self, n_rows: int, n_features: int, units: Units = ROWS) -> Problem:
        neighbours = Neighbours(self.neighbours)
        size = self.feature_bound or (self.row_norm or math.sqrt(n_features)) / math.sqrt(n_features)
        return Problem(
            loss=self._loss(),
            penalty=self._penalty(),
            constraint=self.constraint,
            n_rows=self._divisor(n_rows, units),
            n_features=n_features,
            budget=self._budget,
            neighbours=neighbours,
            counted=neighbours is Neighbours.REPLACE_ONE and units.counted,
            n_problems=self._n_problems(),
            rows_per_unit=units.max_rows,
            intercept=size if self.fit_intercept else 0.0,
            **{name: getattr(self, name) for name in PUBLIC},
        )

    def _computation(self, course: Course) -> str:
        """Whatever the iterates depend on besides the releases: a ``run_id`` stands for one such description."""
        return computation_of(course, self.run_id)

    def _n_problems(self) -> int:
        return 1

    def _loss(self) -> Loss:
        return by_name(self.loss) if isinstance(self.loss, str) else self.loss

    def _penalty(self) -> Penalty | None:
        return self.penalty

    def _prepare_labels(self, stored: str) -> Prepare:
        if stored == "str":
            raise DataError("y holds strings: expected numbers (-1 and +1 for the losses for two classes)")
        return targets

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("row_norm", "clip_norm", "step_size", "feature_bound", "residual_bound", "second_moment", "scale"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        for name in ("n_rounds", "n_inner", "n_nonzero"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if not 0 < self.batch_rate <= 1:
            raise BudgetError(f"batch_rate must lie in (0, 1], got {self.batch_rate!r}")
        if self.penalty is not None:
            check_offers("penalty", self.penalty, "prox", "ElasticNet(1e-4)")
        if self.constraint is not None:
            check_offers("constraint", self.constraint, "project", "L2Ball(10.0)")
