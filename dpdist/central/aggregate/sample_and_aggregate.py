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

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import RegressorTags, Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.aggregate.block_fits import BUILT_IN, BlockFit, block_fit
from dpdist.central.aggregate.combine import COMBINE, Aggregation, Estimand
from dpdist.data import Dataset, Units
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator
from dpdist.estimators.inference import Inferred, feature_names, vector_parameters
from dpdist.estimators.parameters import check_between, check_bound, public_vector
from dpdist.method import Method, Public
from dpdist.privacy.budget import Neighbours

ALONE = (
    "how the results of blocks vary is released parameter by parameter, and how two of them vary together is not: "
    "hypotheses are about one parameter each. LinearRegression(gradient=ClipLabel(label_bound)) tests several"
)


def _is_linear(model: SampleAndAggregate) -> bool:
    return model.parameters is None


def _classifies(model: SampleAndAggregate) -> bool:
    return _is_linear(model) and model._block_fit().classifies


def _regresses(model: SampleAndAggregate) -> bool:
    known = isinstance(model.estimator, BaseEstimator)
    return _is_linear(model) and (is_regressor(model.estimator) if known else model.estimator == "least-squares")


@dataclass(eq=False, repr=False)
class SampleAndAggregate(Estimator):
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
    combine : {"clipped-mean", "attention"}, ClippedMean or Attention
        The mean of the results (any number of rows), or one that most are close to (``epsilon <= 1``, many rows);
        ``ClippedMean(n_blocks=100)`` sets the public number of blocks, which otherwise follows the rule in
        `dpdist.central.aggregate.combine`.
    epsilon, delta : float
        The budget of this fit. ``delta`` has to be given: far below one over the number of rows.
    radius : float
        Public radius of the ball that the parameters are looked for in; results outside are moved to its edge.
        Required. Too small a ball pulls the result to the centre, and the noise is proportional to the radius.
    centre : array of shape (n_parameters,), optional
        Public centre of the ball. Default: 0.
    alpha : float, default 0
        Ridge penalty of the built-in fits.
    fit_intercept : bool, default True
        Whether the built-in fits have an intercept; it lies in the ball like a coefficient.
    parameters : callable, optional
        From a fitted scikit-learn estimator to the numbers to be released. Default: ``coef_``, followed by
        ``intercept_`` where the estimator has ``fit_intercept``.
    neighbours : {"replace-one"}
        Adding a row would move all others to other places, hence to other blocks: the other relation is refused.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

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

    offers: ClassVar[Mapping[str, Offered]] = {"combine": COMBINE}

    estimator: Any = "least-squares"
    combine: str | Aggregation = "clipped-mean"
    _: KW_ONLY
    radius: float | None = None
    centre: Any = None
    alpha: float = 0.0
    fit_intercept: bool = True
    parameters: Any = None
    neighbours: str = "replace-one"  # type: ignore[misc]

    @property
    def answers(self) -> tuple[Answer, ...]:
        if not _is_linear(self):
            return ()
        return (Answer.CLASSES,) if _classifies(self) else (Answer.NUMBERS, Answer.COEFFICIENTS)

    def _dataset(self, X: Any, y: Any) -> Dataset:
        dataset = super()._dataset(X, y)
        if dataset.arrays["y"].dtype == "str":
            raise DataError("y holds strings: expected numbers (-1 and +1 for a classifier)")
        return dataset

    def _check_units(self, units: Units) -> None:
        units.need_counted("sample-and-aggregate deals rows to blocks by their position")

    def _decided(self, public: Public, **beside: Any) -> Aggregation:
        assert self.radius is not None
        fit, method = self._block_fit(), chosen("combine", self.combine, COMBINE, auto=False)
        if method.n_blocks is not None and method.n_blocks > public.n_units:
            unit = public.units.name
            raise BudgetError(
                f"n_blocks={method.n_blocks} blocks of at least one {unit} need as many {unit}s, got {public.n_units}"
            )
        p = fit.n_parameters(public.n_features)
        found: Aggregation = method.decide(public, Estimand(fit, p, float(self.radius), self._public_centre(p)))
        return found

    def _nameless(self, method: Method) -> str:
        return str(method.statement.fit.nameless)

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        assert isinstance(method, Aggregation)
        found = fitted["estimate"]
        if _is_linear(self):
            intercept = method.statement.fit.intercept
            self.coef_ = found[: len(found) - intercept]
            self.intercept_ = float(found[-1]) if intercept else 0.0
        else:
            self.estimate_ = found
        self.n_blocks_, self.n_iter_ = method.blocks, method.rounds

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        assert isinstance(method, Aggregation)
        intercept = method.statement.fit.intercept
        values = np.append(self.coef_, self.intercept_) if intercept else self.coef_
        names = feature_names(self, self.n_features_in_)
        basis = (
            "Rests on results of blocks that are near normal, on released counts of how far they are from their mean, "
            "and on the noise."
        )
        found = vector_parameters(known, values, names, basis, "intercept" if intercept else "")
        return found if isinstance(found, str) else replace(found, alone=ALONE)

    def _trivial_error(self, method: Method) -> float | None:
        return self.radius

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
        from sklearn.metrics import r2_score  # which takes longer to import than a small fit

        return float(r2_score(y, self.predict(X)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if _regresses(self):
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    def _linear_predictor(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, reset=False)
        return X @ self.coef_ + self.intercept_

    def _extreme_labels(self) -> tuple[Any, Any]:
        return (-1.0, 1.0) if self._block_fit().classifies else super()._extreme_labels()

    def _block_fit(self) -> BlockFit:
        if isinstance(self.estimator, str) and self.estimator in BUILT_IN:
            return BUILT_IN[self.estimator](float(self.alpha), bool(self.fit_intercept))
        return block_fit(self.estimator, self.parameters)

    def _public_centre(self, size: int) -> tuple[float, ...] | None:
        if self.centre is None:
            return None
        centre = public_vector("centre", self.centre)
        if len(centre) != size:
            raise BudgetError(
                f"centre must be {size} finite numbers, one for every parameter (the intercept is the last), got "
                f"{self.centre!r}"
            )
        return centre

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if Neighbours(self.neighbours) is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "sample-and-aggregate is private for neighbours='replace-one' only: blocks are dealt by position, and "
                "adding or removing a row moves all rows behind it into other blocks"
            )
        chosen("combine", self.combine, COMBINE, auto=False)
        if self.radius is None:
            raise MissingBound(
                "radius is missing: pass a public bound on the norm of the parameters (their distance from centre), "
                "known without looking at the data; results of blocks outside the ball are moved to its edge"
            )
        check_bound("radius", self.radius)
        check_between("alpha", self.alpha, 0.0)
        if not self.delta:
            raise BudgetError("delta is missing: the noise is Gaussian and needs delta > 0, far below 1/n_rows (1e-6)")
