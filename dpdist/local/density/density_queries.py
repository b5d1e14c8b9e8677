"""Means of any smooth functions of a few numbers, densities among them, from one report of every user.

Every user reports the product of cosines of the own numbers at one random frequency. A smooth function is nearly a sum
of few such products with public coefficients, so the mean of any function over all users, kernel density estimates of
all bandwidths among them, is known from the same reports (seed 000, Algorithm 5.1.36, as corrected in spec 04, section
12: the source spends epsilon on every coefficient, and takes cosines for numbers that are not negative).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.inputs import asked_points
from dpdist.estimators.parameters import check_between, check_bound, check_count, check_end
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.randomisers.coordinates import EPSILON_EACH, Reporter
from dpdist.local.sampled_features import SampledFeatures
from dpdist.local.statistics.cosines import Cosines
from dpdist.method import DECIDED, Method, Noted, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.cosine_series import chebyshev_nodes, cosine_series, n_nodes, series_of_nodes

Floats = NDArray[np.float64]
MOST_COLUMNS = 3
MOST_PRODUCTS = 1_000_000
DEGREES = (4, 16)
"""Between which the rule of a degree stays, where users are enough for as many products."""
ONE_BIT_TO = 1.2
"""Up to this epsilon a bit about a cosine has hardly more noise than a number; above it, much more."""


@dataclass(frozen=True)
class Range(Noted):
    """What a user of `DensityQueries` states: the range of the numbers."""

    tag: ClassVar[str] = "DensityRange"

    low: float
    high: float


@dataclass(frozen=True)
class TrigonometricQueries(SampledFeatures):
    """Reports of products of cosines at random frequencies.

    Parameters
    ----------
    degree : int, optional
        t: frequencies are below it in every column. Default: where what is cut off and the noise are balanced for
        functions with two derivatives, ``(2 sqrt(n) / c)^(1 / (2 + p/2))``, from 4 to 16, or what the users are enough
        for.
    """

    tag, name = "TrigonometricQueries", "trigonometric"
    unsure: ClassVar[str] = (
        "means of functions are made of the estimates as they are asked for, and have an error each: "
        "standard_error(function) is that of query(function), at most"
    )
    measures: ClassVar[str] = "standard error of the share of users near the middle (a kernel of a tenth of the range)"

    degree: int | None = None
    statement: Range = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.degree is not None:
            check_count("degree", self.degree, low=2)

    def decide(self, public: Public, statement: Range) -> Self:
        asked = self._with(public, statement)
        p, n = public.n_features, public.n_rows
        if asked.degree is None:
            balanced = (2 * math.sqrt(n) * math.tanh(public.budget.epsilon / 2)) ** (1 / (2 + p / 2))
            degrees = range(int(np.clip(round(balanced), *DEGREES)), 1, -1)
            tried = [replace(asked, degree=degree) for degree in degrees]
            asked = next((method for method in tried if n >= method.needed), tried[-1])
        assert asked.degree is not None
        if asked.degree**p > MOST_PRODUCTS:
            raise BudgetError(
                f"degree={asked.degree} of {p} columns asks about more than {MOST_PRODUCTS} products of cosines: give "
                f"a degree of at most {int(MOST_PRODUCTS ** (1 / p) + 1e-9)}"
            )
        asked.check_enough()
        return asked

    def smaller(self) -> Iterator[tuple[str, Self]]:
        assert self.degree is not None
        for degree in range(self.degree - 1, 1, -1):
            yield f"degree={degree}", replace(self, degree=degree)

    @property
    def features_asked(self) -> str:
        return f"{len(self.statistic.n_tickets)} products of cosines"

    @property
    def statistic(self) -> Cosines:
        assert self.degree is not None
        return Cosines(self.public.n_features, self.statement.low, self.statement.high, self.degree)

    @property
    def reporter(self) -> Reporter:
        epsilon = self.public.budget.epsilon
        return "one-bit" if epsilon / max(1, epsilon // EPSILON_EACH) <= ONE_BIT_TO else "hybrid"

    def expected_error(self, plan: Plan) -> float:
        centre = np.zeros((1, self.public.n_features))
        return self.std(self.kernels(centre, 0.2)[0], self.foreseen_reports)

    def kernels(self, points: Floats, width: float) -> Floats:
        """Coefficients of ``exp(-|u - point|^2 / (2 width^2))`` for each point, on the scale of [-1, 1]."""
        assert self.degree is not None
        p, found = self.public.n_features, []
        nodes = chebyshev_nodes(n_nodes(p, self.degree))
        for point in points:
            axes = [series_of_nodes(np.exp(-((nodes - at) ** 2) / (2 * width**2)), self.degree) for at in point]
            found.append(math.prod(np.ix_(*axes)))
        return np.array(found)

    def mean(self, coefficients: Floats, estimates: Floats) -> float:
        """Of the function with these coefficients, over the users."""
        flat = coefficients.ravel()
        return float(flat[0] + flat[1:] @ estimates)

    def std(self, coefficients: Floats, n_reports: NDArray[Any]) -> float:
        """Of the same."""
        return float(np.linalg.norm(coefficients.ravel()[1:] * self.stds(n_reports)))


METHODS = by_name(TrigonometricQueries)


@dataclass(eq=False, repr=False)
class DensityQueries(LocalEstimator):
    """The mean of any smooth function of up to three numbers, densities among them, from one report of every user.

    Parameters
    ----------
    low, high : float
        Public range of all columns; numbers outside it are moved to its ends.
    method : str or TrigonometricQueries
        "trigonometric"; ``TrigonometricQueries(degree=8)`` has a degree of its own: the larger, the finer the functions
        may be, and the more noise there is.
    epsilon, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; the guarantee is pure, delta is not used.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    estimates_ : array
        Of the mean of every product of cosines (but of the constant one); unbiased.
    n_reports_ : array
        How many reports each has.
    degree_ : int
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Notes
    -----
    A user with a number that is not finite reports as if all cosines were 0.

    Examples
    --------
    >>> ages = np.random.default_rng(0).normal(40, 8, size=(200_000, 1))
    >>> model = DensityQueries(0.0, 100.0, epsilon=2.0, random_state=0).fit(ages)
    >>> model.density([[20.0], [40.0]], bandwidth=5.0).round(2).tolist()
    [0.0, 0.04]
    >>> def square(x):
    ...     return (x[:, 0] / 100) ** 2
    >>> bool(abs(model.query(square) - 0.1664) < 4 * model.standard_error(square))
    True
    """

    labelled = False
    answers = (Answer.DENSITIES,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    low: float | None = None
    high: float | None = None
    method: str | TrigonometricQueries = "trigonometric"

    def query(self, function: Callable[[Floats], Any]) -> float:
        """The mean of a function over the users; the function takes an array of points, of shape (m, p)."""
        return self._fitted.mean(self._series(function), self.estimates_)

    def standard_error(self, function: Callable[[Floats], Any]) -> float:
        """Of `query`, at most; what the cosines cannot follow of the function is not in it."""
        return self._fitted.std(self._series(function), self.n_reports_)

    def density(self, points: Any, bandwidth: float) -> Floats:
        """The density at some points, smoothed by a Gaussian kernel; 0 where the noise makes it negative.

        Parameters
        ----------
        points : array of shape (m, p)
        bandwidth : float
            Standard deviation of the kernel, in the units of the columns. The range divided by ``degree_`` is about
            the least that the cosines can follow.
        """
        method, p = self._fitted, self.n_features_in_
        low, high = method.statement.low, method.statement.high
        points = asked_points("points", points, p)
        check_bound("bandwidth", bandwidth)
        radius = high / 2 - low / 2
        series = method.kernels((points - low) / radius - 1.0, bandwidth / radius)
        shares = np.array([method.mean(coefficients, self.estimates_) for coefficients in series])
        return np.maximum(shares, 0.0) / (bandwidth * math.sqrt(2 * math.pi)) ** p

    def _series(self, function: Callable[[Floats], Any]) -> Floats:
        degree, low, high = self._fitted.degree, self._fitted.statement.low, self._fitted.statement.high
        assert degree is not None
        if not callable(function):
            raise DataError(f"a query is a function of points, an array of shape (m, p); got {function!r}")

        def of_scaled(u: Floats) -> Floats:
            values = np.asarray(function(low + (u + 1) * (high / 2 - low / 2)))
            numbers = values.shape == (len(u),) and values.dtype.kind in "biuf"
            if not numbers or not np.isfinite(values).all():
                raise DataError(
                    f"the function must give a finite number for each of m points of the range: an array of shape (m,) "
                    f"for one of shape (m, {u.shape[1]}); got {values.dtype} of shape {values.shape} for m = {len(u)}"
                    f"{', not all of them finite' if numbers else ''}"
                )
            return values

        return cosine_series(of_scaled, self.n_features_in_, degree)

    @property
    def _range(self) -> tuple[float, float]:
        assert self.low is not None and self.high is not None
        return float(self.low), float(self.high)

    @property
    def _fitted(self) -> TrigonometricQueries:
        check_is_fitted(self, "estimates_")
        return self._queries

    def _chosen(self, public: Public, **beside: Any) -> TrigonometricQueries:
        if public.n_features > MOST_COLUMNS:
            raise DataError(
                f"densities of {public.n_features} columns would need too many users: pass at most {MOST_COLUMNS} "
                "columns, or use local.Mean for their means"
            )
        method = chosen("method", self.method, METHODS, auto=False)
        found: TrigonometricQueries = method.decide(public, Range(*self._range))
        return found

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        assert isinstance(method, TrigonometricQueries)
        self.degree_ = method.degree
        self._queries = method

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, METHODS, auto=False)
        for name in ("low", "high"):
            value = getattr(self, name)
            if value is None:
                raise MissingBound(f"{name} is missing: pass the public range of the numbers")
            check_end(name, value, 1e60)
        if not self._range[0] / 2 < self._range[1] / 2:  # as the numbers are scaled
            raise BudgetError(f"low must lie below high, got low={self.low!r} and high={self.high!r}")
        check_between("epsilon", self.epsilon, 1e-6, 100)
