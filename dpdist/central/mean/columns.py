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
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.heavy_tailed import (
    FAILURE,
    SCALE_SHARE,
    check_trimming,
    trim_limit,
    trimmed_count,
    trimmed_noise,
    truncation_scale,
)
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator
from dpdist.estimators.inference import COLUMNS, Inferred, feature_names, vector_parameters
from dpdist.estimators.parameters import BOUNDS, check_bound, check_count, choice
from dpdist.kernels.truncation import HardClip, ScalarMap, SmoothTruncation, SoftTruncation
from dpdist.method import DECIDED, Line, Method, Noted, Oracle, Public, Vector, by_name
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, Laplace
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.peeling import LaplacePeel, Peel
from dpdist.privacy.mechanisms.smooth_sensitivity import ArsinhNormal
from dpdist.queries.robust_sums import ColumnSum, TrimmedColumnSum
from dpdist.solvers.standard_errors import Uncertainty

SMOOTH_BETA = 2 * math.log(1 / FAILURE)
"""Precision of the smoothed truncation, as in the original."""


@dataclass(frozen=True)
class Columns(Noted):
    """What a user of `Mean` states."""

    tag: ClassVar[str] = "Columns"

    n_nonzero: int | None = None
    second_moment: float | None = None


@dataclass(frozen=True)
class MeanMethod(Method):
    """A sum of bounded entries, released once.

    Parameters
    ----------
    scale : float or {"optimal", "journal", "thesis"}, optional
        Public scale beyond which entries are damped or cut. Default, and ``"optimal"``: what ``second_moment`` and the
        budget make best. For damped entries also the published ones, for comparison: ``"thesis"`` is
        ``sqrt(n v / (2 L))`` (seed 000, Lemma 7.2.2), ``"journal"`` ``sqrt(n epsilon v) / (L ln^(1/4)(1/delta))`` (seed
        002, Theorem 2), v the second moment and ``L = ln(1/0.05)``.

    Attributes
    ----------
    query : ColumnSum or TrimmedColumnSum
        Decided.
    """

    statement: Columns = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    measures: ClassVar[str] = "expected size of the noise in an entry of the mean"

    parameter = "method"
    solves_with: ClassVar[tuple[str, ...]] = ("second_moment",)  # for standard errors

    scale: float | str | None = None

    published: ClassVar[tuple[str, ...]] = ()
    """Names of published scales that it takes."""

    def __post_init__(self) -> None:
        if isinstance(self.scale, str):
            choice("scale", self.scale, ("optimal", *self.published))
        elif self.scale is not None:
            check_bound("scale", self.scale)

    def decide(self, public: Public, statement: Columns) -> Self:
        asked = self._with(public, statement)
        (line,) = asked.lines()
        return replace(
            asked, query=asked._query(calibrate([line.item], public.budget, public.neighbours)["sum"].mechanism)
        )

    def lines(self) -> Sequence[Line]:
        return [Line("sum", self.mechanism, self.query)]

    @property
    def mechanism(self) -> Mechanism:
        """What the sum is released by."""
        n_nonzero, pure = self.statement.n_nonzero, self.public.budget.delta == 0
        if n_nonzero is not None:
            if n_nonzero > self.public.n_features:
                raise BudgetError(f"n_nonzero={n_nonzero} exceeds the number of columns, {self.public.n_features}")
            return (LaplacePeel if pure else Peel)(n_nonzero)
        return Laplace() if pure else Gaussian()

    @abstractmethod
    def _map(self, scale: float) -> ScalarMap:
        """What becomes of an entry."""

    @property
    def divisor(self) -> int:
        """What the sum is divided by."""
        return self.public.n_rows

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        """The released mean, within the range that means have."""
        released = oracle.ask("sum") / self.divisor
        mean = np.clip(released, -self.query.bound, self.query.bound)
        return {"mean": mean, "uncertainty": self._uncertainty(mean, oracle.noise_std / self.divisor)}

    def _uncertainty(self, mean: Vector, noise: float) -> Uncertainty | str:
        """Noise of a known size, and entries whose mean square is the public guess."""
        statement = self.statement
        if statement.n_nonzero is not None:
            return (
                "n_nonzero chose the means by their size, and the largest of many noisy ones are larger than they are. "
                "Without n_nonzero there would be intervals"
            )
        if statement.second_moment is None:
            return (
                "how much the entries vary is not known: pass second_moment, a public guess of the mean square of an "
                "entry, beside scale"
            )
        variance = statement.second_moment - mean**2
        if (variance <= 0).any():
            j = int(np.argmin(variance))
            return (
                f"second_moment={statement.second_moment:g} is less than the square of the mean {j}, {mean[j]:.4g}, so "
                "that it does not say how much the entries vary. With a larger one there would be intervals"
            )
        noises = np.full(len(mean), noise**2)
        return Uncertainty(np.diag(noises + variance / self.public.n_units), noises)

    def expected_error(self, plan: Plan) -> float | None:
        mechanism = plan["sum"].mechanism
        sensitivity = self.query.unit_sensitivity(self.public.neighbours, mechanism.norm, self.public.units)
        return mechanism.noise_std(sensitivity) / self.divisor

    def _query(self, mechanism: Any) -> Any:
        """What is asked, given the calibrated noise, which is public."""
        public, scale = self.public, self.scale
        if isinstance(scale, str) and scale != "optimal":
            scale = self._published(scale)
        if scale is None or isinstance(scale, str):
            unit, n = ColumnSum(self._map(1.0), public.n_features), public.n_rows
            noise = mechanism.noise_std(unit.unit_sensitivity(public.neighbours, mechanism.norm, public.units)) / n
            n_means = 1 if self.statement.n_nonzero is None else public.n_features
            scale = truncation_scale(unit.bounded, self._second_moment, n / public.units.max_rows, noise, n_means)
            scale *= self._share
        return ColumnSum(self._map(scale), public.n_features)

    def _published(self, name: str) -> float:
        """The scale of that name, which does not know how large the noise is."""
        public, level = self.public, math.log(1 / FAILURE)
        n, budget = public.n_rows / public.units.max_rows, public.budget
        if name == "thesis":
            return math.sqrt(n * self._second_moment / (2 * level))
        if budget.delta == 0:
            raise BudgetError("scale='journal' has delta in it: pass delta, or choose scale='optimal'")
        return math.sqrt(n * budget.epsilon * self._second_moment) / (level * math.log(1 / budget.delta) ** 0.25)

    _share: ClassVar[float] = SCALE_SHARE
    """Of the scale that balances the worst bias and the noise."""

    @property
    def _second_moment(self) -> float:
        if self.statement.second_moment is None:
            raise MissingBound(f"second_moment is missing (or scale): {BOUNDS['second_moment']}")
        return self.statement.second_moment


class TruncatedMean(MeanMethod):
    """Entries damped softly beyond the scale (catoni-mean).

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, size=(20_000, 2)) + [1.0, -2.0]
    >>> model = Mean(method=TruncatedMean(), second_moment=6.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> model.mean_.round(1), model.standard_errors_.round(3)
    (array([ 1., -2.]), array([0.024, 0.02 ]))
    """

    tag, name = "TruncatedMean", "truncate"
    published = ("journal", "thesis")

    def _map(self, scale: float) -> ScalarMap:
        return SoftTruncation(scale)


class SmoothTruncatedMean(MeanMethod):
    """The same with a smooth map (catoni-smoothed-mean).

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, size=(20_000, 2)) + [1.0, -2.0]
    >>> model = Mean(method=SmoothTruncatedMean(), second_moment=6.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> model.mean_.round(1), model.standard_errors_.round(3)
    (array([ 1., -2.]), array([0.025, 0.022]))
    """

    tag, name = "SmoothTruncatedMean", "smooth-truncate"
    published = ("journal", "thesis")

    def _map(self, scale: float) -> ScalarMap:
        return SmoothTruncation(SMOOTH_BETA, scale)


class ClippedColumns(MeanMethod):
    """Entries cut off at the scale.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, size=(20_000, 2)) + [1.0, -2.0]
    >>> model = Mean(method=ClippedColumns(9.0), second_moment=6.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> model.mean_.round(1), model.standard_errors_.round(3)
    (array([ 1., -2.]), array([0.017, 0.011]))
    """

    tag, name = "ClippedColumns", "clip"

    _share: ClassVar[float] = 1.0  # the bias of a clip is as bad as its bound

    def _map(self, scale: float) -> ScalarMap:
        return HardClip(scale)


class TrimmedMean(MeanMethod):
    """The mean without the largest and smallest entries, with noise that follows the data (trim-mean-ss).

    Parameters
    ----------
    scale : float, optional
        Where entries are cut before. Default: generous, by ``second_moment``.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, size=(20_000, 2)) + [1.0, -2.0]
    >>> model = Mean(method=TrimmedMean(scale=50.0), epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> model.mean_.round(1)
    array([ 1., -2.])
    """

    tag, name = "TrimmedMean", "trim"
    solves_with = ()

    def decide(self, public: Public, statement: Columns) -> Self:
        if statement.n_nonzero is not None:
            raise BudgetError("method='trim' releases all means: leave n_nonzero out, or choose method='truncate'")
        if public.budget.delta == 0:
            raise BudgetError(
                "method='trim' has noise with heavy tails, which needs delta > 0: pass delta, far below 1/n_rows"
            )
        check_trimming(public.neighbours)
        return super().decide(public, statement)

    @property
    def mechanism(self) -> ArsinhNormal:
        return ArsinhNormal(self.public.n_features)

    @property
    def divisor(self) -> int:
        return self.public.n_rows - 2 * self.query.n_trimmed

    def expected_error(self, plan: Plan) -> float | None:
        moment, mechanism = self.statement.second_moment, plan["sum"].mechanism
        assert isinstance(mechanism, ArsinhNormal)
        return None if moment is None else trimmed_noise(mechanism, moment, self.public.n_rows)

    def _uncertainty(self, mean: Vector, noise: float) -> str:
        return (
            "the noise of method='trim' follows the data, and its size is shown nowhere. Of method='truncate' "
            "standard errors are known"
        )

    def _query(self, mechanism: Any) -> TrimmedColumnSum:
        n, t = self.public.n_rows, mechanism.smoothness
        limit = trim_limit(None if isinstance(self.scale, str) else self.scale, self.statement.second_moment, n)
        return TrimmedColumnSum(n, trimmed_count(n, t), limit, t, self.public.n_features)

    def _map(self, scale: float) -> ScalarMap:
        raise AssertionError("entries are cut, not mapped")


METHODS = by_name(TruncatedMean, SmoothTruncatedMean, ClippedColumns, TrimmedMean)


@dataclass(eq=False, repr=False)
class Mean(Estimator):
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
    epsilon, delta : float
        The budget of this fit. With ``delta=0`` the noise is Laplace and the guarantee purely epsilon (not for
        ``method="trim"``); otherwise far below one over the number of rows.
    neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    mean_ : array of shape (n_features,)
    guarantee_, plan_, releases_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, size=(20_000, 2)) + [1.0, -2.0]
    >>> model = Mean(second_moment=5.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> bool(abs(model.mean_ - [1.0, -2.0]).max() < 0.1)
    True
    """

    labelled = False
    answers = (Answer.MEANS,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    method: str | MeanMethod = "truncate"
    _: KW_ONLY
    n_nonzero: int | None = None
    second_moment: float | None = None
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]

    def _decided(self, public: Public, **beside: Any) -> MeanMethod:
        method = chosen("method", self.method, METHODS, auto=False)
        found: MeanMethod = method.decide(public, Columns(self.n_nonzero, self.second_moment))
        return found

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        found = vector_parameters(
            known,
            self.mean_,
            feature_names(self, self.n_features_in_),
            "Rests on the size of the noise, and on second_moment for how much the entries vary; what truncation moves "
            "is not in it.",
        )
        return found if isinstance(found, str) else replace(found, alone=COLUMNS)

    def _trivial_error(self, method: Method) -> float | None:
        return None if self.second_moment is None else math.sqrt(self.second_moment)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, METHODS, auto=False)
        if self.second_moment is not None:
            check_bound("second_moment", self.second_moment)
        if self.n_nonzero is not None:
            check_count("n_nonzero", self.n_nonzero)
        if self.delta is None:
            raise BudgetError("delta is missing: pass delta, far below 1/n_rows, or delta=0 for a pure guarantee")
