"""Means of columns whose entries have no bound: truncated, clipped, trimmed or sparse.

==================== ================================================================ ================================
method               parameters                                                       guarantee
==================== ================================================================ ================================
catoni-mean          ``method="truncate"``                                            (epsilon, delta), or pure
catoni-smoothed-mean ``method="smooth-truncate"``                                     (epsilon, delta), or pure
private-robust-mean  any of the two with ``delta=0``: Laplace noise                   pure epsilon
trim-mean-ss         ``method="trim"``                                                (epsilon, delta)
sparse-mean-ht       ``n_nonzero=k``: the k largest means                             (epsilon, delta), or pure
==================== ================================================================ ================================

Seed 000, section 3.2.3 and 3.2.4, and seed 003, sections 4 and 5.2, as corrected there and here.

Why it is private: a row moves no coordinate of the sum by more than twice a public bound, whatever its values; a
trimmed sum moves by at most a bound that itself hardly depends on a single row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.central.heavy_tailed import (
    FAILURE,
    SCALE_SHARE,
    check_trimming,
    trim_limit,
    trimmed_count,
    trimmed_noise,
    truncation_scale,
)
from dpdist.central.robust_queries import ColumnSum, TrimmedColumnSum
from dpdist.data import ROWS, Units
from dpdist.errors import BudgetError, MissingBound
from dpdist.fitting.columns import features
from dpdist.fitting.estimator import PrivateEstimator
from dpdist.fitting.inputs import as_dataset
from dpdist.fitting.outlook import Outlook, outlook
from dpdist.fitting.parameters import BOUNDS, check_bound, check_count
from dpdist.fitting.parameters import choice as one_of
from dpdist.identity import text
from dpdist.kernels.truncation import HardClip, ScalarMap, SmoothTruncation, SoftTruncation
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.calibration import calibrate
from dpdist.privacy.mechanisms import Gaussian, Laplace, Mechanism
from dpdist.privacy.peeling import LaplacePeel, Peel
from dpdist.privacy.plan import Item, Plan
from dpdist.privacy.smooth import ArsinhNormal

SMOOTH_BETA = 2 * math.log(1 / FAILURE)
"""Precision of the smoothed truncation, as in the original."""
METHODS = ("truncate", "smooth-truncate", "clip", "trim")
NOISE = "expected size of the noise in an entry of the mean"


@dataclass(frozen=True)
class _Recipe:
    """What is asked and what the answer is divided by, fixed from public numbers."""

    query: ColumnSum | TrimmedColumnSum
    plan: Plan
    divisor: int
    units: Units

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on the mean (NaN where it is not public)."""
        return self.plan["sum"].mechanism.noise_std(self.sensitivity) / self.divisor

    @property
    def sensitivity(self) -> float:
        """Of the sum, in the norm of the mechanism."""
        return self.query.unit_sensitivity(self.plan.neighbours, self.plan["sum"].mechanism.norm, self.units)


class Mean(PrivateEstimator):
    """The mean of every column, without a bound of their entries.

    Parameters
    ----------
    method : {"truncate", "smooth-truncate", "clip", "trim"}
        How an entry x counts: as ``s phi(x / s)`` with a soft or a smoothed truncation, as ``clip(x, s)``, or not at
        all if it is among the largest or smallest of its column. Trimming is the best where the law of a column is
        symmetric about its mean, and biased where it is not.
    n_nonzero : int, optional
        Release only that many means, the largest ones, with noise that depends on their number instead of that of all;
        the others are 0. Not for ``method="trim"``.
    second_moment : float, optional
        Public guess of the mean square of an entry; it sets the scale, and a factor of 10 in it costs a factor of 2 in
        the error. Required unless ``scale`` is given.
    scale : float, optional
        Public scale s of the truncation; for ``method="trim"`` where entries are cut before (about the largest that
        could occur). Default: what ``second_moment``, the number of rows and the budget make best.
    epsilon, delta : float
        The budget of this fit. With ``delta=0`` the noise is Laplace and the guarantee purely epsilon (not for
        ``method="trim"``); otherwise far below one over the number of rows.
    neighbours, n_public, ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

    Attributes
    ----------
    mean_ : array of shape (n_features,)
    guarantee_, plan_, releases_, n_features_in_
        As in `dpdist.central.minimizer.Minimizer`.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, size=(20_000, 2)) + [1.0, -2.0]
    >>> model = Mean(second_moment=5.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> bool(abs(model.mean_ - [1.0, -2.0]).max() < 0.1)
    True
    """

    def __init__(
        self,
        method: str = "truncate",
        *,
        n_nonzero: int | None = None,
        second_moment: float | None = None,
        scale: float | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        neighbours: str = "replace-one",
        n_public: int | None = None,
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.n_nonzero = n_nonzero
        self.second_moment = second_moment
        self.scale = scale
        self.epsilon = epsilon
        self.delta = delta
        self.neighbours = neighbours
        self.n_public = n_public
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Mean:
        """Fit to an array (``fit(X)``) or to the array X of a stored dataset (``fit(dataset)``); y is ignored."""
        self._check_parameters()
        dataset = as_dataset(self, X, labels=False).select(X="X")
        units = dataset.schema.units
        recipe = self._recipe(dataset.n_rows, self.n_features_in_, units)
        self._budget.warn_if_delta_is_large(self._divisor(dataset.n_rows, units))
        items = [Item("sum", self._mechanism(self.n_features_in_))]
        with self._run(dataset, {"X": features}, items, text(recipe.query)) as door:
            self.mean_ = self._mean(door.release("sum", recipe.query) / recipe.divisor, recipe.query)
        return self

    def plan(self, n_rows: int, n_features: int, units: Units = ROWS) -> Plan:
        """What a fit would release, with which noise: from public numbers, without any data."""
        return self._public_recipe(n_rows, n_features, units).plan

    def sensitivities(self, n_rows: int, n_features: int, units: Units = ROWS) -> dict[str, float]:
        """How much one unit can move the sum, in the norm of its mechanism."""
        return {"sum": self._public_recipe(n_rows, n_features, units).sensitivity}

    def outlook(self, n_rows: int, n_features: int, units: Units = ROWS) -> Outlook:
        """What to expect of a fit: predicted from public numbers, and what it would take where that is bad."""
        self._public_recipe(n_rows, n_features, units)

        def predict(n: int, epsilon: float) -> float | None:
            recipe = self._recipe(n, n_features, units, epsilon)
            mechanism = recipe.plan["sum"].mechanism
            if not isinstance(mechanism, ArsinhNormal):
                return recipe.noise
            return None if self.second_moment is None else trimmed_noise(mechanism, self.second_moment, n)

        trivial = None if self.second_moment is None else math.sqrt(self.second_moment)
        return outlook(predict, trivial, NOISE, self._divisor(n_rows, units), self.epsilon, self._budget.delta)

    def _recipe(self, n_rows: int, n_features: int, units: Units = ROWS, epsilon: float | None = None) -> _Recipe:
        budget = Budget(self.epsilon if epsilon is None else epsilon, self.delta or 0.0)
        neighbours, n = Neighbours(self.neighbours), self._divisor(n_rows, units)
        plan = calibrate([Item("sum", self._mechanism(n_features))], budget, neighbours)
        mechanism: Any = plan["sum"].mechanism
        if self.method == "trim":
            check_trimming(neighbours)
            m = trimmed_count(n, mechanism.smoothness)
            limit = trim_limit(self.scale, self.second_moment, n)
            return _Recipe(TrimmedColumnSum(n, m, limit, mechanism.smoothness, n_features), plan, n - 2 * m, units)
        scale = self.scale
        if scale is None:
            unit = ColumnSum(self._map(1.0), n_features)
            noise = mechanism.noise_std(unit.unit_sensitivity(neighbours, mechanism.norm, units)) / n
            n_means = 1 if self.n_nonzero is None else n_features
            scale = truncation_scale(unit.bounded, self._second_moment, n / units.max_rows, noise, n_means)
            scale *= 1.0 if self.method == "clip" else SCALE_SHARE  # the bias of a clip is as bad as its bound
        return _Recipe(ColumnSum(self._map(scale), n_features), plan, n, units)

    def _public_recipe(self, n_rows: int, n_features: int, units: Units = ROWS) -> _Recipe:
        """The recipe for a dataset of that shape, with all parameters checked."""
        self._check_parameters()
        check_count("n_rows", n_rows)
        check_count("n_features", n_features)
        return self._recipe(n_rows, n_features, units)

    def _mechanism(self, n_features: int) -> Mechanism:
        if self.method == "trim":
            return ArsinhNormal(n_features)
        if self.n_nonzero is not None:
            if self.n_nonzero > n_features:
                raise BudgetError(f"n_nonzero={self.n_nonzero} exceeds the number of columns, {n_features}")
            return (Peel if self.delta else LaplacePeel)(self.n_nonzero)
        return Gaussian() if self.delta else Laplace()

    def _map(self, scale: float) -> ScalarMap:
        if self.method == "clip":
            return HardClip(scale)
        return SoftTruncation(scale) if self.method == "truncate" else SmoothTruncation(SMOOTH_BETA, scale)

    @property
    def _second_moment(self) -> float:
        if self.second_moment is None:
            raise MissingBound(f"second_moment is missing (or scale): {BOUNDS['second_moment']}")
        return self.second_moment

    @staticmethod
    def _mean(released: NDArray[np.float64], query: ColumnSum | TrimmedColumnSum) -> NDArray[np.float64]:
        """The released mean, within the range that means have."""
        return np.clip(released, -query.bound, query.bound)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        one_of("method", self.method, METHODS)
        for name in ("second_moment", "scale"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        if self.n_nonzero is not None:
            check_count("n_nonzero", self.n_nonzero)
            if self.method == "trim":
                raise BudgetError("method='trim' releases all means: leave n_nonzero out, or choose method='truncate'")
        if self.method == "trim" and not self.delta:
            raise BudgetError(
                "method='trim' has noise with heavy tails, which needs delta > 0: pass delta, far below 1/n_rows"
            )
        if self.delta is None:
            raise BudgetError("delta is missing: pass delta, far below 1/n_rows, or delta=0 for a pure guarantee")
