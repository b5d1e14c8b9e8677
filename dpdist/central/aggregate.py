"""Sample and aggregate: any estimator, fitted without privacy to blocks of rows whose results are aggregated privately.

The rows are dealt to ``m`` disjoint blocks by their position, ``k`` consecutive ones each. One row is in one block, so
it changes one of ``m`` results, and every result is clipped to a public ball before it is used: the aggregate is
private whatever the estimator does (Nissim, Raskhodnikova and Smith 2007; seed 000, section 3.2). The same is true of
somebody with several rows, because blocks have all rows of a unit or none: the noise does not grow with their number.

============= ====================================================================================================
method        parameters
============= ====================================================================================================
saa-clipmean  ``combine="clipped-mean"``: the mean of the results, with Gaussian noise
saa-nrs       ``combine="attention"``: a result that most others are close to, with noise by a smooth bound; kept for
              comparison, because it needs blocks that agree to less than 1 % of the radius
============= ====================================================================================================

Consecutive rows should be alike: data sorted by a feature or by time gives blocks that differ, and an error that is
not due to the noise. What a task computes is not seen, but **how long** it computes is: an estimator that takes longer
on some rows than on others tells this to whoever can time a round. The built-in fits take a public number of steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_regressor
from sklearn.metrics import r2_score
from sklearn.utils import RegressorTags, Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.block_fits import BlockFit, block_fit
from dpdist.central.combine import COMBINE, Aggregation, Request
from dpdist.data import ROWS, Units
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.fitting.columns import features, targets
from dpdist.fitting.computation import computation_of
from dpdist.fitting.estimator import PrivateEstimator
from dpdist.fitting.inputs import as_dataset
from dpdist.fitting.outlook import Outlook, outlook
from dpdist.fitting.parameters import check_between, check_bound, check_count, choice
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.calibration import calibrate
from dpdist.privacy.plan import Plan

NOISE_NORM = "expected norm of the noise in the parameters; trivial is the radius, how far the centre can be off"


def _is_linear(model: SampleAndAggregate) -> bool:
    return model.parameters is None


def _classifies(model: SampleAndAggregate) -> bool:
    return _is_linear(model) and model._block_fit().classifies


def _regresses(model: SampleAndAggregate) -> bool:
    known = isinstance(model.estimator, BaseEstimator)
    return _is_linear(model) and (is_regressor(model.estimator) if known else model.estimator == "least-squares")


class SampleAndAggregate(PrivateEstimator):
    """Fit any estimator to disjoint blocks of rows, and release an aggregate of the results.

    Parameters
    ----------
    estimator : {"least-squares", "logistic"} or scikit-learn estimator
        What is fitted to a block. The two names are compiled fits (`dpdist.kernels.blocks`); ``"logistic"`` takes
        labels -1 and +1. Any other estimator is cloned and fitted per block inside the map stage, so it is sent to the
        workers (it has to be picklable there), runs in every round anew, and should fit in one thread
        (``n_jobs=1``). Labels are numbers. Where a fit raises, or gives a number that is not finite or not as many
        numbers as it should, the block counts as the centre, silently: its warnings and prints are suppressed, because
        they would depend on the rows. Rows with a missing value are left out of their block.
    combine : {"clipped-mean", "attention"}
        The mean of the results (any number of rows), or one that most are close to (``epsilon <= 1``, many rows).
    epsilon, delta : float
        The budget of this fit. ``delta`` has to be given: far below one over the number of rows.
    radius : float
        Public radius of the ball that the parameters are looked for in; results outside are moved to its edge.
        Required. Too small a ball pulls the result to the centre, and the noise is proportional to the radius.
    centre : array of shape (n_parameters,), optional
        Public centre of the ball. Default: 0.
    n_blocks : int, optional
        Public number of blocks. More blocks need less noise, but the estimator is biased on small ones. Default: by the
        rule in `dpdist.central.combine`.
    n_rounds : {1, 2}, optional
        For the clipped mean: whether a first release finds the centre of a smaller ball. Default: where that pays.
    alpha : float, default 0
        Ridge penalty of the built-in fits.
    fit_intercept : bool, default True
        Whether the built-in fits have an intercept; it lies in the ball like a coefficient.
    parameters : callable, optional
        From a fitted scikit-learn estimator to the numbers to be released. Default: ``coef_``, followed by
        ``intercept_`` where the estimator has ``fit_intercept``.
    neighbours : {"replace-one"}
        Adding a row would move all others to other places, hence to other blocks: the other relation is refused.
    ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        And ``intercept_``, unless ``parameters`` is given.
    estimate_ : array of shape (n_parameters,)
        What ``parameters`` reads, if it is given.
    n_blocks_ : int
    guarantee_ : Guarantee
    plan_ : Plan
    releases_ : list of Release
        ``noise_std`` is NaN for ``combine="attention"``: it depends on the rows and is shown nowhere.
    history_ : list of arrays
        The centres of the rounds.
    n_iter_ : int
        Rounds.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 2))
    >>> y = X @ [1.0, -0.5] + rng.standard_t(3, size=len(X))
    >>> model = SampleAndAggregate(radius=2.0, delta=1e-6, random_state=0).fit(X, y)
    >>> bool(abs(model.coef_ - [1.0, -0.5]).max() < 0.1)
    True
    """

    def __init__(
        self,
        estimator: Any = "least-squares",
        combine: str = "clipped-mean",
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        radius: float | None = None,
        centre: Any = None,
        n_blocks: int | None = None,
        n_rounds: int | None = None,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        parameters: Any = None,
        neighbours: str = "replace-one",
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.combine = combine
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.centre = centre
        self.n_blocks = n_blocks
        self.n_rounds = n_rounds
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.parameters = parameters
        self.neighbours = neighbours
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> SampleAndAggregate:
        """Fit to arrays (``fit(X, y)``) or to a stored dataset (``fit(dataset)``)."""
        self._check_parameters()
        dataset = as_dataset(self, X, y)
        if dataset.arrays["y"].dtype == "str":
            raise DataError("y holds strings: expected numbers (-1 and +1 for a classifier)")
        way = self._way(dataset.n_rows, self.n_features_in_, dataset.schema.units)
        way.request.budget.warn_if_delta_is_large(dataset.n_rows)
        arrays = {"X": features, "y": targets}
        computation = computation_of(way, self.run_id, way.request.fit.nameless)
        with self._run(dataset, arrays, way.items(), computation, align=way.block_rows) as door:
            found = way.solve(door)
        if _is_linear(self):
            intercept = way.request.fit.intercept
            self.coef_ = found[: len(found) - intercept]
            self.intercept_ = float(found[-1]) if intercept else 0.0
        else:
            self.estimate_ = found
        self.n_blocks_ = way.n_blocks
        self.n_iter_ = way.n_rounds
        return self

    def plan(self, n_rows: int, n_features: int, units: Units = ROWS) -> Plan:
        """What a fit would release, with which noise: from public numbers, without any data."""
        way = self._public_way(n_rows, n_features, units)
        return calibrate(way.items(), way.request.budget)

    def sensitivities(self, n_rows: int, n_features: int, units: Units = ROWS) -> dict[str, float]:
        """How much one unit can move each line of the plan."""
        queries = self._public_way(n_rows, n_features, units).queries()
        return {name: q.unit_sensitivity(Neighbours.REPLACE_ONE, None, units) for name, q in queries.items()}

    def outlook(self, n_rows: int, n_features: int, units: Units = ROWS) -> Outlook:
        """What to expect of a fit: predicted from public numbers, and what it would take where that is bad."""
        request = self._public_way(n_rows, n_features, units).request
        kind = COMBINE[self.combine]

        def predict(n: int, epsilon: float) -> float | None:
            way = kind.of(replace(request, n_rows=n, budget=replace(request.budget, epsilon=epsilon)))
            return way.predicted_error(calibrate(way.items(), way.request.budget))

        return outlook(predict, request.radius, NOISE_NORM, n_rows, request.budget.epsilon, request.budget.delta)

    @available_if(_classifies)
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The linear predictor ``X @ coef_ + intercept_``; only for classifiers."""
        return self._linear_predictor(X)

    @available_if(_is_linear)
    def predict(self, X: Any) -> NDArray[Any]:
        """The linear predictor, or its sign (-1 or +1) for a classifier."""
        u = self._linear_predictor(X)
        return np.where(u > 0, 1, -1) if _classifies(self) else u

    @available_if(_regresses)
    def score(self, X: Any, y: Any) -> float:
        """The part of the variance of ``y`` that is explained; only for regressors. Not private: ``y`` is looked at."""
        return float(r2_score(y, self.predict(X)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if _regresses(self):
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    def _linear_predictor(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, reset=False)
        return X @ self.coef_ + self.intercept_

    def _block_fit(self) -> BlockFit:
        return block_fit(self.estimator, self.alpha, self.fit_intercept, self.parameters)

    def _public_way(self, n_rows: int, n_features: int, units: Units = ROWS) -> Aggregation:
        self._check_parameters()
        check_count("n_rows", n_rows)
        check_count("n_features", n_features)
        return self._way(n_rows, n_features, units)

    def _way(self, n_rows: int, n_features: int, units: Units) -> Aggregation:
        """How a dataset of that shape is aggregated; every public choice is made here."""
        assert self.radius is not None and self.delta is not None
        units.need_counted("sample-and-aggregate deals rows to blocks by their position")
        fit = self._block_fit()
        p = fit.n_parameters(n_features)
        request = Request(
            fit, n_rows, p, Budget(self.epsilon, self.delta), float(self.radius), self._public_centre(p), self.n_blocks,
            self.n_rounds, units.max_rows,
        )  # fmt: skip
        if self.n_blocks is not None and self.n_blocks > request.n_units:
            raise BudgetError(
                f"n_blocks={self.n_blocks} blocks of at least one {units.name} need as many {units.name}s, got "
                f"{request.n_units}"
            )
        return COMBINE[self.combine].of(request)

    def _public_centre(self, size: int) -> tuple[float, ...] | None:
        if self.centre is None:
            return None
        centre = np.asarray(self.centre, dtype=np.float64)
        if centre.shape != (size,) or not np.isfinite(centre).all():
            raise BudgetError(
                f"centre must be {size} finite numbers, one for every parameter (the intercept is the last), got "
                f"{self.centre!r}"
            )
        return tuple(centre.tolist())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if Neighbours(self.neighbours) is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "sample-and-aggregate is private for neighbours='replace-one' only: blocks are dealt by position, and "
                "adding or removing a row moves all rows behind it into other blocks"
            )
        choice("combine", self.combine, list(COMBINE))
        if self.radius is None:
            raise MissingBound(
                "radius is missing: pass a public bound on the norm of the parameters (their distance from centre), "
                "known without looking at the data; results of blocks outside the ball are moved to its edge"
            )
        check_bound("radius", self.radius)
        check_between("alpha", self.alpha, 0.0)
        if not self.delta:
            raise BudgetError("delta is missing: the noise is Gaussian and needs delta > 0, far below 1/n_rows (1e-6)")
        if self.n_blocks is not None:
            check_count("n_blocks", self.n_blocks)
        if self.n_rounds not in (None, 1, 2):
            raise BudgetError(f"n_rounds must be 1 or 2, got {self.n_rounds!r}")
