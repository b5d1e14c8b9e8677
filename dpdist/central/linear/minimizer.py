"""Private empirical risk minimisation for generalised linear models: loss x constraint x private oracle x loop.

``minimise  (1/n) sum_i l(<x_i, w> + b, y_i) + penalty(w)   over w in constraint``

`Minimizer` is the general estimator; `dpdist.central.linear.models` has the thin subclasses with the names that
scikit-learn users know. A method is a choice of ``solver``, ``gradient`` and ``rows``; ``dpdist methods`` and
`dpdist.jobs.registry` list the published ones under their ids, from dp-gd (``solver="gradient"``) to ht-dp-fw
(``solver="frank-wolfe", gradient="truncate", rows="split"``).

Why it is private: a row enters only through exact sums to which its contribution is bounded by public numbers, and
these leave the coordinator with noise, as a private choice, or as a minimiser that was perturbed; everything after a
release is post-processing. Each solver's module says which it is, and why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.linear.automatic import SOLVERS, automatic, better
from dpdist.central.linear.bounding import GRADIENTS, ROWS, ClipLabel, ClipNorm, Gradient, Rows
from dpdist.central.linear.linear_method import LinearMethod, Problem
from dpdist.central.linear.thresholds import size_of_labels
from dpdist.constraints import Constraint, L1Ball, Penalty, SmoothPenalty, is_proximal, is_smooth
from dpdist.data import ArraySpec
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator
from dpdist.estimators.inference import Inferred, feature_names, linear_parameters
from dpdist.estimators.parameters import check_bound, check_offers, choice
from dpdist.estimators.row_maps import features, targets
from dpdist.kernels.clip import clip_l2
from dpdist.losses import LOSSES, Huber, Logistic, Loss, Squared, by_name
from dpdist.method import Method, Public
from dpdist.privacy.audit.worst_neighbours import FAR_LABEL

Vector = NDArray[np.float64]


FITTED = ("expected_error", "inverse_temperature", "certified", "smallest_curvature")
"""What some solvers find besides coefficients."""


def _takes_signs(model: Minimizer) -> bool:
    loss = LOSSES.get(model.loss) if isinstance(model.loss, str) else model.loss
    return loss is not None and loss.labels == "signs"


def _check_penalty(penalty: Any) -> None:
    """Refuse what is no penalty: it takes a proximal step or, with a range of its curvature, a gradient."""
    if isinstance(penalty, type) or not (is_proximal(penalty) or is_smooth(penalty)):
        raise BudgetError(
            "penalty must have a proximal step (a method prox, as ElasticNet(1e-4) has) or be smooth (value, gradient, "
            f"hessian and curvature_range, as GemanMcClure(0.1) has); got {penalty!r}"
        )
    if is_smooth(penalty) and not is_proximal(penalty):
        low, high = penalty.curvature_range
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise BudgetError(
                f"penalty={penalty!r}: its curvature_range must be two finite numbers, the least and the largest "
                f"curvature that there is, got {low!r} and {high!r}; steps rest on them"
            )


@dataclass(eq=False, repr=False)
class Minimizer(Estimator):
    """Minimise a private mean loss of a linear predictor.

    Parameters
    ----------
    loss : str or Loss, default "logistic"
        ``"logistic"``, ``"squared"``, ``"huber"``, ``"smoothed-hinge"`` or any `dpdist.losses.Loss`. Those for two
        classes (logistic, smoothed-hinge) take labels -1 and +1; a row with another label counts as empty.
    penalty : Penalty or SmoothPenalty, optional
        For example ``ElasticNet(1e-4)``, or ``GemanMcClure(0.1)``, which is smooth and not convex, so that
        ``solver="gradient"`` adds its gradient to what was released. Public, hence free. Not applied to the intercept.
    constraint : Constraint, optional
        For example ``L2Ball(10.0)``.
    solver : str or LinearMethod, default "auto"
        The loop: ``"gradient"`` and ``"accelerated"`` (`dpdist.central.linear.gradient_descent`); ``"objective"`` and
        ``"output"``, one release of the exact minimiser (`perturbation`); ``"svrg"``, ``"svrg++"``, ``"katyusha"``
        (`variance_reduced`); ``"momentum"`` and ``"langevin"`` for losses that are not convex (`stationary`),
        ``"trust-region"`` (`second_order`), ``"saddle-escape"`` (`saddle_escape`) and ``"net"`` (`net`); ``"newton"``,
        ``"subspace"``, ``"sufficient-statistics"`` and ``"robust-newton"``, whose steps are weighed by what is released
        (`newton`, `subspace`, `sufficient_statistics`, `robust_newton`);
        ``"preconditioned"`` (`preconditioned`); ``"mirror"`` and
        ``"accelerated-mirror"`` (`mirror`); ``"frank-wolfe"`` over an l1 ball or simplex (`frank_wolfe`), with
        ``gradient="norm"`` also over other sets (`noisy_frank_wolfe`); ``HardThresholding(n_nonzero=8)`` for few
        coefficients (`hard_threshold`). A name is the object with its defaults: ``solver=FrankWolfe(n_rounds=40)`` sets
        what it reads, such as the public point ``start`` where it begins and, of some, ``combine``, which of its points
        it returns. ``"auto"`` takes the least predicted error, from public numbers only
        (`dpdist.central.linear.automatic`); the choice is in ``solver_``, all predictions in ``solver_reason_``.
    gradient : str or Gradient, default "auto"
        What bounds a row's contribution (`dpdist.central.linear.bounding`): ``"norm"`` clips its gradient in the l2
        norm; ``ClipLabel(label_bound)`` clips labels, for least squares; ``"scale-rows"`` scales rows and labels down
        together and cuts residuals; ``"truncate"``, ``"smooth-truncate"`` and ``"trim"`` damp or leave out extreme
        coordinates;
        ``"coordinate"``, ``"residual"`` and ``"shrink"`` bound single coordinates, features and residuals. ``"auto"``
        takes what the solver can use and what bounds are declared; it is in ``gradient_``.
    rows : {"all", "sample", "split"} or Rows
        Each round reads all rows, a Poisson sample of them (``Sample(rate=0.02)``), or a part of its own (so that all
        rounds are one pass).
    epsilon, delta : float
        The budget of this fit. ``delta`` has to be given: far below one over the number of rows.
    row_norm : float
        Public bound on the l2 norm of a row's features. Newton steps and sufficient statistics count longer rows less;
        other solvers scale them down to it, also in predictions (``clipped_to_``). Required where
        ``gradient="norm"``.
    fit_intercept : bool, default True
        Adds a constant feature as large as the others: ``row_norm / sqrt(n_features)``, which costs 1/(2 n_features)
        more noise (``feature_bound`` if that is given, 1 if neither is).
    feature_bound, residual_bound : float, optional
        Public bounds on a single feature and on a residual, for the gradients that need them.
    second_moment : float, optional
        Public guess of the mean square of a coordinate of a row's gradient, for ``gradient="scale-rows"``
        (`dpdist.central.linear.robust_newton`), ``"truncate"``, ``"trim"`` and the like
        (`dpdist.central.linear.heavy_tailed`).
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
    solver_, solver_reason_, gradient_ : str
    clipped_to_ : float or None
        The norm that longer rows are scaled down to in predictions, where they were in the fit: what ``coef_`` says of
        rows so bounded would be too much for longer ones.
    expected_error_ : float
        Expected excess of the mean loss, from the released curvature; for ``solver="newton"``,
        ``"robust-newton"`` and ``"sufficient-statistics"``.
    inverse_temperature_ : float
        Of the last step, for ``solver="langevin"``.
    certified_ : bool
        Whether released numbers say a local minimum, up to ``curvature_target``; for ``solver="trust-region"`` and
        ``GradientDescent(certify="local-minimum")``.
    smallest_curvature_ : float
        The smallest eigenvalue of the last released Hessian, penalty included; of the same solvers.
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

    offers: ClassVar[Mapping[str, Offered]] = {"solver": SOLVERS, "gradient": GRADIENTS, "rows": ROWS}
    supposing: ClassVar[Mapping[str, Any]] = {"constraint": L1Ball(1.0), "row_norm": 1.0, "feature_bound": 1.0}

    loss: str | Loss = "logistic"
    penalty: Penalty | SmoothPenalty | None = None
    constraint: Constraint | None = None
    _: KW_ONLY
    solver: str | LinearMethod = "auto"
    gradient: str | Gradient = "auto"
    rows: str | Rows = "all"
    row_norm: float | None = None
    fit_intercept: bool = True
    feature_bound: float | None = None
    residual_bound: float | None = None
    second_moment: float | None = None
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]

    @property
    def answers(self) -> tuple[Answer, ...]:
        if not _takes_signs(self):
            return Answer.NUMBERS, Answer.COEFFICIENTS
        return (Answer.LOG_ODDS, Answer.CLASSES) if isinstance(self._loss(), Logistic) else (Answer.CLASSES,)

    def _decided(self, public: Public, **beside: Any) -> LinearMethod:
        solver: Any = chosen("solver", self.solver, SOLVERS)
        if solver == "auto":
            solver = automatic(self._problem(public), partial(self._problem, public))
        alike = public.one_row_each()
        found: LinearMethod = solver.decide(alike, self._problem(alike, solver))
        return replace(found, public=public, statement=replace(found.problem, public=public))

    def _advice(self, method: Method) -> Sequence[str]:
        if isinstance(self.solver, str) and self.solver == "auto":
            return ()
        assert isinstance(method, LinearMethod)
        alike = method.one_row_each()
        found = better(self._problem(alike.public), partial(self._problem, alike.public), alike)
        return (found,) if found else ()

    def _problem(self, public: Public, solver: LinearMethod | None = None) -> Problem:
        gradient, rows = chosen("gradient", self.gradient, GRADIENTS), chosen("rows", self.rows, ROWS, auto=False)
        problem = Problem(
            public=public,
            loss=self._loss(),
            penalty=self._penalty(solver),
            constraint=self.constraint,
            n_problems=self._n_problems(),
            gradient=None if gradient == "auto" else gradient,
            rows=rows,
            row_norm=self.row_norm,
            feature_bound=self.feature_bound,
            residual_bound=self.residual_bound,
            second_moment=self.second_moment,
        )
        if not self.fit_intercept:
            return problem
        root = math.sqrt(public.n_features)
        return replace(problem, intercept=float(problem.feature_bound or (problem.row_norm or root) / root))

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        return {"X": features, "y": self._prepare_labels(str(arrays["y"].dtype))}

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        assert isinstance(method, LinearMethod)
        self._keep(fitted["solutions"], method.problem.intercept)
        self.solver_, self.solver_reason_ = method.name, method.reason
        gradient = method.problem.gradient or ClipNorm()
        self.gradient_ = gradient.name
        shortened = isinstance(gradient, ClipNorm | ClipLabel) and not method.weighs
        self.clipped_to_ = method.problem.row_norm if shortened else None
        self.n_iter_ = method.rounds
        for name in FITTED:
            if name in fitted:
                setattr(self, f"{name}_", fitted[name])

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        assert isinstance(method, LinearMethod)
        units = method.public.units
        if units.max_rows > 1:
            return (
                f"rows of one {units.name} may be alike, and by how much they vary together is not released: an "
                f"interval for independent rows would be too narrow. With one row of each {units.name} there is one"
            )
        constant, d = method.problem.intercept, self.n_features_in_
        scales = np.append(np.ones(d), constant) if constant else np.ones(d)
        return linear_parameters(
            [each.mapped(np.diag(scales)) for each in known],
            self.coef_,
            np.atleast_1d(self.intercept_) if constant else None,
            feature_names(self, d),
            method.problem.classes,
            method.rests_on,
        )

    def _measures(self, method: Method) -> str:
        assert isinstance(method, LinearMethod)
        return method.measured

    def _trivial_error(self, method: Method) -> float | None:
        loss = self._loss()
        if loss.labels == "signs":
            return float(loss.value(0.0, 1.0))
        assert isinstance(method, LinearMethod)
        if method.foresees or not isinstance(loss, Squared | Huber):
            return None  # a range knows what a fit is worth in each of its cases
        size = size_of_labels(method.problem)
        return None if size is None else size**2 / 2

    @available_if(_takes_signs)
    def decision_function(self, X: Any) -> Vector:
        """The linear predictor ``x @ coef_ + intercept_`` of rows, bounded as in the fit; only for two classes."""
        return self._linear_predictor(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The linear predictor, or its sign where the loss is one for labels -1 and +1."""
        u = self._linear_predictor(X)
        return np.where(u > 0, 1, -1) if self._loss().labels == "signs" else u

    def _linear_predictor(self, X: Any) -> Vector:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, reset=False)
        rows = X if self.clipped_to_ is None else clip_l2(X, self.clipped_to_)
        return rows @ self.coef_.T + self.intercept_

    def _keep(self, solutions: NDArray[np.float64], intercept: float) -> None:
        d = self.n_features_in_
        self.coef_ = solutions[0, :d]
        self.intercept_: Any = float(intercept * solutions[0, d]) if intercept else 0.0

    def _n_problems(self) -> int:
        return 1

    def _extreme_labels(self) -> tuple[Any, Any]:
        """For labels that are numbers, where the loss is steepest: those that redescend ignore what is far away."""
        loss = self._loss()
        if loss.labels == "signs":
            return -1.0, 1.0
        y = np.geomspace(FAR_LABEL, 1e-3, 121)
        steepest = float(y[np.abs(loss.derivative(np.zeros_like(y), y)).argmax()])
        return -steepest, steepest

    def _loss(self) -> Loss:
        return by_name(self.loss) if isinstance(self.loss, str) else self.loss

    def _penalty(self, solver: LinearMethod | None) -> Penalty | SmoothPenalty | None:
        return self.penalty

    def _prepare_labels(self, stored: str) -> Prepare:
        if stored == "str":
            raise DataError("y holds strings: expected numbers (-1 and +1 for the losses for two classes)")
        return targets

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.loss, str | Loss):
            hint = f"; write {self.loss.__name__}()" if isinstance(self.loss, type) else ""
            raise BudgetError(f"loss must be a name or a Loss such as Huber(1.0), got {self.loss!r}{hint}")
        if isinstance(self.loss, str):
            choice("loss", self.loss, sorted(LOSSES))
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise BudgetError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        for name in ("row_norm", "feature_bound", "residual_bound", "second_moment"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        for name, offered in self.offers.items():
            chosen(name, getattr(self, name), offered, auto=name != "rows")
        if self.penalty is not None:
            _check_penalty(self.penalty)
        if self.constraint is not None:
            check_offers("constraint", self.constraint, "project", "L2Ball(10.0)")
