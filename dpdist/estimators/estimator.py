"""`Estimator`: fit, plan, sensitivities and outlook, written once for every method, central or local.

A family of methods says what its users state (`Estimator._decided` makes a decided `dpdist.method.Method` of the
parameters and of public numbers) and what becomes of the fitted attributes. Everything else is here: input, the warning
before the charge, the run of a coordinator, what is kept, and scikit-learn's conventions.
"""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags

from dpdist.data import ROWS, ArraySpec, Dataset, Schema, Units
from dpdist.engine.checks import check_asked, check_numbers, check_plannable
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.shards import Prepare, kept_row_bytes
from dpdist.errors import BudgetError, DataError, MissingBound, warn_caller
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.bootstrap import Bootstrapped, bootstrapped
from dpdist.estimators.choices import ChoosesObjects
from dpdist.estimators.computation import computation_of
from dpdist.estimators.fitted_law import FittedLaw
from dpdist.estimators.inference import Inference, Inferred
from dpdist.estimators.inputs import as_dataset, check_public_columns
from dpdist.estimators.original_units import OriginalMeans, OriginalUnits, original_units
from dpdist.estimators.outlook import Outlook, outlook, outlook_of_range, somebody_asks
from dpdist.estimators.parameters import check_between, check_count
from dpdist.estimators.predicting import BlockByBlock
from dpdist.estimators.representation import ReadableFit
from dpdist.estimators.row_maps import features, targets
from dpdist.estimators.unread import refuse_beside, refuse_unread
from dpdist.method import Expected, Method, Noted, Oracle, Public, noting
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.audit.worst_neighbours import FAR_LABEL, Pair, labelled_rows, opposite_rows
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger.ledger import Ledger

SHOWN_COLUMNS = 20


@dataclass(eq=False, repr=False)
class Estimator(Noted, ChoosesObjects, Inference, BlockByBlock, ReadableFit):
    """An estimator that owns the run of a `dpdist.engine.coordinator.Coordinator`.

    Parameters
    ----------
    epsilon, delta : float
        The budget of this fit.
    neighbours : {"replace-one", "add-or-remove-one"}
        Between which datasets the guarantee holds; an estimator without it works under replace-one only.
    n_public : int, optional
        Declared number of rows to divide by; required where the true one is private.
    ledger : Ledger or path, optional
        Where the budget is charged.
    cluster : str, Client or cluster, optional
        Where the rows are read.
    run_id : str, optional
        Name of this fit, to be able to resume it after a crash.
    random_state : int, optional
        Simulation only: noise from a seed, no guarantee.
    """

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | None = None
    ledger: Any = None
    cluster: Any = None
    run_id: str | None = None
    random_state: int | None = None

    neighbours: ClassVar[str] = Neighbours.REPLACE_ONE.value
    n_public: ClassVar[int | None] = None

    common: ClassVar[frozenset[str]] = frozenset({"ledger", "cluster", "run_id", "random_state"})
    """Parameters of every run, whatever the method."""
    supposing: ClassVar[Mapping[str, Any]] = {}
    """Values of parameters that methods ask for, for finding out which methods read another one."""
    labelled: ClassVar[bool] = True
    """Whether rows have labels."""
    empty_cells: ClassVar[bool] = False
    """Whether a cell that nobody saw (NaN) is part of a record, rather than a fault of it."""

    def fit(self, X: Any, y: Any = None, **others: Any) -> Self:
        """Fit to arrays or frames (``fit(X, y)``) or to a stored dataset (``fit(dataset)``, ``fit("rows.zarr")``).

        Whatever else is passed (``sample_weight``) is refused in words.
        """
        return self._fit(X, y, **others)

    def plan(self, n_rows: int, n_features: int, units: Units = ROWS) -> Plan:
        """What a fit would release, with which noise: from public numbers, without any data."""
        method = self._method_for(n_rows, n_features, units)
        public, lines = method.public, method.lines()
        for line in lines:
            check_plannable(line.item, units, public.neighbours)
        plan = planned(method)
        for line in lines:
            if line.query is not None:
                n = public.n_rows if public.counted else None
                check_asked(plan[line.name], line.query, public.neighbours, units, method.protects, method.align, n)
        return plan

    def decided(self, n_rows: int, n_features: int, units: Units = ROWS) -> Method:
        """The method that a fit would use, with all its choices made, from public numbers; its ``reason`` says why."""
        return self._method_for(n_rows, n_features, units)

    def sensitivities(self, n_rows: int, n_features: int, units: Units = ROWS) -> dict[str, float]:
        """How much one unit can move each line of the plan (in the norm of its mechanism).

        A line whose query follows from earlier releases is left out.
        """
        method = self._method_for(n_rows, n_features, units)
        return {
            line.name: line.query.unit_sensitivity(method.public.neighbours, line.mechanism.norm, units)
            for line in method.lines()
            if line.query is not None
        }

    def outlook(self, n_rows: int, n_features: int, units: Units = ROWS) -> Outlook:
        """What to expect of a fit: predicted from public numbers, and what it would take where that is bad."""
        return self._outlook(self._method_for(n_rows, n_features, units))

    def _outlook(self, first: Method, **beside: Any) -> Outlook:
        ranged = self._outlook_of_range(first, **beside)
        if ranged is not None:
            return ranged
        public = first.public

        def predict(n: int, epsilon: float) -> float | None:
            alike = self._other(first, n, epsilon, **beside)
            return self._expected_error(alike, planned(alike))

        found = outlook(
            predict,
            self._trivial_error(first),
            self._measures(first),
            public.n_rows,
            public.budget.epsilon,
            first.budget.delta,
        )
        return found if found.warnings else replace(found, warnings=tuple(self._warnings(first)))

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Pairs of made-up datasets that differ in one unit and give away as much as any, by name: for audits."""
        if self.labelled:
            return labelled_rows(n_rows, n_features, self._extreme_labels())
        return opposite_rows(n_rows, n_features)

    def original_units(self) -> OriginalUnits | OriginalMeans:
        """Coefficients of a linear model, or means, in the units of the table that was ingested, with intervals."""
        return original_units(self)

    def bootstrap(self, n_fits: int = 100, public_X: Any = None, random_state: int = 0) -> Bootstrapped:
        """How sure a fit is where there is no formula: by fits to rows of the law that it found, at no further cost.

        Parameters
        ----------
        n_fits : int, default 100
            Two to five times as many fits are made, each of as many rows as there were and with noise of the same size.
        public_X : array_like, optional
            Public rows, for models that say how labels follow from features and not how features vary.
        random_state : int, default 0
            Of rows and noise: both are made up.

        Returns
        -------
        Bootstrapped
            With ``standard_errors_``, ``confidence_intervals()``, ``summary()`` and ``wald_test()``, and ``estimate_``,
            the parameters without the bias of the method (`dpdist.estimators.bootstrap`).

        Raises
        ------
        NoIntervals
            Where the fitted model is no law of rows, or the method moves its answer by more than can be undone.
        """
        return bootstrapped(self, n_fits, public_X, random_state)

    # -- what a family of methods says of itself --------------------------------------------------------------------

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The kinds of answer that a fitted one gives."""
        return ()

    @abstractmethod
    def _decided(self, public: Public, **beside: Any) -> Method:
        """The method with all its public choices made; ``beside`` is what ``fit`` takes beside rows and labels."""

    def _dataset(self, X: Any, y: Any) -> Dataset:
        """What was passed to ``fit``, with the arrays that are read; sets ``n_features_in_``."""
        names = ("X", "y") if self.labelled else ("X",)
        return as_dataset(self, X, y, labels=self.labelled).select(**{name: name for name in names})

    def kept_row_bytes(self, arrays: Mapping[str, ArraySpec]) -> int:
        """Bytes of one row of these arrays as a fit keeps it in the workers' memory."""
        prepare = {name: of for name, of in self._prepare(arrays).items() if name in arrays}
        return kept_row_bytes(prepare, arrays)

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        """The public row-wise map of every array that is read."""
        return {"X": features, "y": targets} if self.labelled else {"X": features}

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        """Keep what was fitted."""
        for name, value in fitted.items():
            setattr(self, f"{name}_", value)

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        """The parameters that were fitted and the covariance of their errors, or why there is none.

        ``known`` is what the method says of its solution, `dpdist.solvers.standard_errors.Uncertainty`.
        """
        raise NotImplementedError

    def _fitted_law(self) -> FittedLaw | str:
        """The law of rows that was fitted, or why there is none to draw from."""
        return f"{type(self).__name__} does not say how rows come about, so that there are none to draw and fit again"

    def _nameless(self, method: Method) -> str:
        """What of the method has no lasting name, so that the fit cannot be resumed; empty if there is nothing."""
        return ""

    def _extreme_labels(self) -> tuple[Any, Any]:
        """Two labels that are as different as can be."""
        return -FAR_LABEL, FAR_LABEL

    def _trivial_error(self, method: Method) -> float | None:
        """What ignoring the data has of the error that the method predicts; None where that is not public."""
        return None

    def _advice(self, method: Method) -> Sequence[str]:
        """What would be better than a method that was asked for, from public numbers."""
        return ()

    def _measures(self, method: Method) -> str:
        """What the expected error is the error of."""
        return method.measures

    def _expected_error(self, method: Method, plan: Plan) -> float | None:
        """What to expect from public numbers; None where no formula is known."""
        return method.expected_error(plan)

    def _warnings(self, method: Method) -> Sequence[str]:
        """What to say before anything is charged."""
        return method.warnings()

    def _outlook_of_range(self, first: Method, **beside: Any) -> Outlook | None:
        """The outlook of a method that knows a range, None for others."""
        if not first.foresees:
            return None
        public, alike = first.public, first.one_row_each()
        now = alike.expected(planned(alike))

        def expect(n: int, epsilon: float) -> Expected:
            if (n, epsilon) == (public.n_rows, public.budget.epsilon):
                return now
            alike = self._other(first, n, epsilon, **beside)
            if not alike.foresees:
                raise BudgetError(f"no range is known of solver={alike.name!r}")
            return alike.expected(planned(alike))

        trivial, epsilon = self._trivial_error(first), public.budget.epsilon
        found = outlook_of_range(expect, trivial, public.n_rows, epsilon, first.budget.delta)
        return replace(found, warnings=(*found.warnings, *self._warnings(first), *self._advice(first)))

    def _other(self, first: Method, n: int, epsilon: float, **beside: Any) -> Method:
        """The method that a fit of so many rows and that epsilon would use, as for one row of each unit."""
        budget = replace(first.public.budget, epsilon=epsilon)
        return self._decided(replace(first.public, n_rows=n, budget=budget), **beside).one_row_each()

    # -- the run of a fit -------------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, **beside: Any) -> Self:
        beside = refuse_beside(self, beside)
        self._check_parameters()
        dataset = self._dataset(X, y)
        self.check_declared(dataset.schema)
        columns = dataset.schema.columns.get("X", ())
        check_public_columns(beside.get("public_X"), dataset, getattr(self, "feature_names_in_", columns))
        arrays = self._prepare(dataset.arrays)
        if arrays.get("y") is targets and dataset.arrays["y"].dtype == "str":
            raise DataError(f"y holds strings: {type(self).__name__} expects numbers")
        method = self._method(dataset.n_rows, self.n_features_in_, dataset.schema.units, **beside)
        if somebody_asks():
            self._warn(method, **beside)
        self._feature_columns, self._encoding = columns, dataset.schema.encoding
        with self._run(dataset, arrays, method) as oracle:
            fitted = method.solve(oracle)
        self._finish(method, fitted)
        return self

    def _warn(self, method: Method, **beside: Any) -> None:
        """Say what there is to say before the charge: what the outlook warns of, and the method."""
        method.budget.warn_if_delta_is_large(method.public.n_rows)
        for warning in dict.fromkeys((*self._outlook(method, **beside).warnings, *self._warnings(method))):
            warn_caller(warning)

    def _finish(self, method: Method, fitted: Mapping[str, Any]) -> None:
        """Keep what was fitted, and what is known of its error."""
        self._store(method, {name: value for name, value in fitted.items() if name != "uncertainty"})
        self._rows_fitted = method.public.n_rows, method.public.units.max_rows
        known = fitted.get("uncertainty", method.no_intervals)
        self._inferred = known if isinstance(known, str) else self._parameters(method, known)

    @contextmanager
    def _run(self, dataset: Dataset, arrays: Mapping[str, Prepare], method: Method) -> Iterator[Oracle]:
        """The oracle of a method, while its lines are carried out; sets ``plan_``, ``guarantee_`` and the like."""
        lines = method.lines()
        with ExitStack() as opened:
            ledger = self.ledger
            if isinstance(ledger, str | os.PathLike):
                ledger = opened.enter_context(closing(Ledger(ledger)))
            coordinator = opened.enter_context(
                Coordinator(
                    dataset,
                    method.budget,
                    arrays=arrays,
                    neighbours=method.public.neighbours,
                    ledger=ledger,
                    cluster=self.cluster,
                    run_id=self.run_id,
                    random_state=self.random_state,
                    align=method.align,
                    computation=computation_of(method, self.run_id, self._nameless(method)),
                    protects=method.protects,
                )
            )
            queries = {line.name: line.query for line in lines if line.query is not None}
            self.plan_ = coordinator.plan([line.item for line in lines], queries)
            oracle = Oracle(coordinator, self.plan_, lines)
            yield oracle
            self.guarantee_ = coordinator.guarantee
            self.releases_ = coordinator.releases
            self.history_ = oracle.history

    # -- parameters -------------------------------------------------------------------------------------------------

    @property
    def _budget(self) -> Budget:
        budget = Budget(self.epsilon, self.delta or 0.0)
        check_between("epsilon", budget.epsilon, 1e-100, 1e12)  # outside of it closed forms round to 0 or overflow
        return budget

    def _method_for(self, n_rows: int, n_features: int, units: Units = ROWS, **beside: Any) -> Method:
        """The method for a dataset of that shape, with all parameters checked."""
        self._check_units(units)
        self._check_parameters()
        check_count("n_rows", n_rows)
        check_count("n_features", n_features)
        return self._method(n_rows, n_features, units, **beside)

    def _method(self, n_rows: int, n_features: int, units: Units, **beside: Any) -> Method:
        """The method with all its public choices made, which reads all that was set."""
        with noting() as read:
            public = self._public(n_rows, n_features, units)
            method = self._decided(public, **beside)
            for line in method.lines():
                if line.query is not None:
                    check_numbers(line.query)
            self._warnings(method)
        refuse_unread(self, public, method, read)
        return method

    def check_declared(self, schema: Schema) -> None:
        """Refuse a dataset that itself declares what would make null rows: empty cells, labels of other names."""
        if self.labelled and schema.encoding is not None and np.iterable(classes := getattr(self, "classes", None)):
            levels = schema.encoding.spec.label_levels
            if levels and (unknown := [label for label in classes if label not in levels]):
                raise DataError(
                    f"classes has {', '.join(map(repr, unknown))}, which no row can have: the dataset declares that "
                    f"{schema.encoding.label!r} is {', '.join(map(repr, levels))}. Write classes as they were declared"
                )
        columns = schema.missing
        if columns and not self.empty_cells:
            shown = ", ".join(map(repr, columns[:SHOWN_COLUMNS])) + (", ..." if len(columns) > SHOWN_COLUMNS else "")
            raise DataError(
                f"empty cells are values in the columns {shown} of the dataset, and {type(self).__name__} would count "
                "every row with one as empty: fit MissingCovariateRegression, or ingest the table without "
                "--missing COLUMN=keep for these columns"
            )

    def _check_units(self, units: Units) -> None:
        """Refuse a dataset by whose rows it has, before anything is said about how many there are."""

    def _public(self, n_rows: int, n_features: int, units: Units = ROWS) -> Public:
        neighbours = Neighbours(self.neighbours)
        counted = neighbours is Neighbours.REPLACE_ONE and units.counted
        return Public(self._divisor(n_rows, units), n_features, self._budget, neighbours, units, counted)

    def _divisor(self, n_rows: int, units: Units) -> int:
        """The public number that sums over the rows are divided by."""
        if self.n_public is not None:
            return self.n_public
        if not units.counted:
            raise MissingBound(
                f"how many rows there are is private where one {units.name} may own 0 to {units.max_rows} of them: "
                + (
                    "declare n_public, about how many there are and known without counting, to divide by. Or write"
                    if "n_public" in self.get_params(deep=False)
                    else f"{type(self).__name__} needs a public number of rows. Write"
                )
                + f" the dataset anew with dpdist ingest --unit, which gives each {units.name} {units.max_rows} rows"
            )
        if Neighbours(self.neighbours) is Neighbours.ADD_OR_REMOVE_ONE:
            raise MissingBound(
                "neighbours='add-or-remove-one' keeps the number of rows private: "
                + (
                    "declare n_public, the number to divide by (an order of magnitude is enough)"
                    if "n_public" in self.get_params(deep=False)
                    else f"{type(self).__name__} needs neighbours='replace-one'"
                )
            )
        return n_rows

    def _check_parameters(self) -> None:
        """Refuse wrong parameters before any data is read; subclasses add theirs."""
        if self.neighbours not in [*(relation.value for relation in Neighbours), *Neighbours]:
            raise BudgetError(
                f"neighbours={self.neighbours!r} is not known; choose 'replace-one' or 'add-or-remove-one'"
            )
        if not (self.ledger is None or isinstance(self.ledger, Ledger | str | os.PathLike)):
            raise BudgetError(f"ledger must be the path of a file, an address or a Ledger, got {self.ledger!r}")
        if not isinstance(self.run_id, str | None):
            raise BudgetError(f"run_id must be a text, the name of this fit, got {self.run_id!r}")
        if self.ledger == ":memory:":
            raise BudgetError(
                "ledger=':memory:' would forget what was spent (a ledger in memory is not kept when a model is "
                "pickled): pass a Ledger object or the path of a file"
            )
        if self.n_public is not None:
            check_count("n_public", self.n_public)
        if self.random_state is not None:
            check_count("random_state", self.random_state, low=0)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.required = self.labelled
        return tags

    def __sklearn_clone__(self) -> Estimator:
        # the clones of a grid search charge one ledger and use one cluster: both are places, not values
        shared = {name: getattr(self, name) for name in ("ledger", "cluster")}
        others = {name: clone(v, safe=False) for name, v in self.get_params(deep=False).items() if name not in shared}
        made = type(self)(**others, **shared)
        for name in ("_sklearn_output_config", "_metadata_request"):  # what set_output and the like have set
            if name in vars(self):
                setattr(made, name, copy.deepcopy(vars(self)[name]))
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if isinstance(self.ledger, Ledger):
            state["ledger"] = self.ledger.path if self.ledger.pays_for_unnamed is None else self.ledger
        if not isinstance(self.cluster, str):
            state["cluster"] = None
        return state


def planned(method: Method) -> Plan:
    """The plan of a decided method, calibrated."""
    items = [line.item for line in method.lines()]
    return calibrate(items, method.budget, method.public.neighbours, method.protects)
