"""How frequent every category is among users who report their own under local differential privacy.

====================== ======================================================== =======================================
method                 best for                                                 a report is
====================== ======================================================== =======================================
``krr``                few categories, ``k < 3 e^epsilon + 2``                  a category
``hadamard-response``  epsilon up to 1, or very many categories                 a number and a bit
``subset-selection``   the least noise; far less than ``olh`` if k is small     k bits
``olh``                more categories                                          a 64-bit seed and a small number
``oue``, ``sue``       sums that are drawn directly (``fidelity="sum"``)        k bits
``ue``                 the same, with a p and q of your own                     k bits
====================== ======================================================== =======================================

The laws, their variances and sources are in `dpdist.local.randomisers.frequency`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import project_simplex
from dpdist.data import ArraySpec, Dataset
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.inference import Inferred, vector_parameters
from dpdist.estimators.parameters import check_between, check_count
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.frequency import (
    KRR,
    OLH,
    OUE,
    SUE,
    UE,
    FrequencyOracle,
    Hadamard,
    SubsetSelection,
    check_chance,
)
from dpdist.local.randomisers.oracle import SupportOracle
from dpdist.local.statistics.categories import Category, Labelled
from dpdist.local.survey.levels import Leveled, Levels, check_levels
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.user_values import as_given, one_column
from dpdist.method import DECIDED, Method, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.standard_errors import Uncertainty

MANY = 1 << 16
"""From here on a report or its decoding takes too long for anything but a Hadamard row."""
SOME = 1000
"""Subsets of more categories than that take too many random numbers."""
MUCH = 1.1
"""Subsets take two to seven times as long as hashed reports: they have to be so many times as exact to be worth it."""
FEWEST = 10.0
"""Variance of the number of reports that support a category, from which on that number is as good as normal."""


ALONE = (
    "how frequencies of several categories vary together is not known of every law of reports: test them one by one, "
    "at a level divided by their number"
)
"""Why there is no test of several."""


def best_oracle(n_categories: int, epsilon: float, sums: bool = False) -> tuple[str, str]:
    """Which oracle to use, and why: a function of public numbers.

    Parameters
    ----------
    n_categories : int
    epsilon : float
    sums : bool
        Whether the sum of the reports must have a law that can be drawn from directly.

    Examples
    --------
    >>> [best_oracle(k, epsilon)[0] for k, epsilon in ((4, 1.0), (100, 1.0), (13, 1.2), (100, 2.0))]
    ['krr', 'hadamard-response', 'subset-selection', 'olh']
    """
    odds = math.exp(epsilon)
    if n_categories < 3 * odds + 2:
        return "krr", f"{n_categories} categories are fewer than 3 e^epsilon + 2 = {3 * odds + 2:.1f}"
    if epsilon <= 1:
        return "hadamard-response", "at epsilon up to 1 a row and a bit are nearly as exact as longer reports"
    if n_categories > MANY:
        return "hadamard-response", f"with more than {MANY} categories the others are slow to send or to decode"
    if sums:
        return "oue", "its sums can be drawn directly, which those of more exact reports cannot"
    subsets, hashed = (kind(n_categories, epsilon).usual_variance for kind in (SubsetSelection, OLH))
    if n_categories <= SOME and hashed > MUCH**2 * subsets:
        return "subset-selection", "the least noise of all, and its reports are short for so few categories"
    return "olh", f"nearly the least noise, in a report that does not grow with the {n_categories} categories"


@dataclass(frozen=True)
class Categories(Noted):
    """What a user of `Histogram` states.

    Attributes
    ----------
    statistic : Category or Labelled
    levels : tuple of float
        Public levels of privacy; empty where all users have the same epsilon.
    postprocess : {"simplex"} or None
    """

    tag: ClassVar[str] = "Categories"

    statistic: Category | Labelled
    levels: tuple[float, ...] = ()
    postprocess: str | None = "simplex"


@dataclass(frozen=True)
class FrequencyMethod(LocalMethod):
    """Every user reports their category once; what the server decodes are unbiased frequencies."""

    statement: Categories = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    oracle: ClassVar[type[FrequencyOracle]]
    measures: ClassVar[str] = "standard error of the frequency of a rare category"
    solves_with = ("postprocess",)

    def decide(self, public: Public, statement: Categories) -> Self:
        return self._with(public, statement)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        statistic, levels = self.statement.statistic, self.statement.levels
        if levels:
            oracle = self.law(statistic.size, levels[-1])
            return [LocalProtocol(Leveled(statistic, levels), Levels(oracle, levels))]
        return [LocalProtocol(statistic, self.law(statistic.size, float(self.public.budget.epsilon)))]

    def law(self, size: int, epsilon: float) -> FrequencyOracle:
        """That of a report."""
        return self.oracle(size, epsilon)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        total, n = self.total(oracle), self.public.n_rows
        randomiser: Any = self.protocols[0].randomiser
        unbiased = randomiser.decode(total, n)
        likely = np.clip(unbiased, 0.0, 1.0)
        noises = _variance(randomiser, total, likely, np.zeros(len(likely)), n)
        frequencies = project_simplex(unbiased) if self.statement.postprocess == "simplex" else unbiased
        known: Uncertainty | str = self._too_few(randomiser, likely)
        if not known:
            known = Uncertainty(_variance(randomiser, total, likely, likely * (1 - likely), n), noises)
        return {
            "unbiased_frequencies": unbiased,
            "standard_error": np.sqrt(noises),
            "frequencies": frequencies,
            "uncertainty": known,
        }

    def _too_few(self, randomiser: Any, likely: NDArray[np.float64]) -> str:
        """Why the number of reports that support a category is not normal; empty if it is."""
        if not isinstance(randomiser, SupportOracle):
            return ""
        p, q = (float(chance) for chance in randomiser.chances)
        supports = q + (p - q) * likely
        least = float(np.min(self.public.n_rows * supports * (1 - supports)))
        if least >= FEWEST:
            return ""
        return (
            f"about {least:.2g} reports support the rarest category, or fail to support the most frequent one, and an "
            f"interval by the normal law takes {FEWEST:g}. With more users or a smaller epsilon there would be one"
        )

    def expected_error(self, plan: Plan) -> float:
        randomiser: Any = self.protocols[0].randomiser
        if isinstance(randomiser, Levels):
            return randomiser.noise_std / math.sqrt(self.public.n_rows)
        return float(math.sqrt(randomiser.variance(np.zeros(1))[0] / self.public.n_rows))


class KAryResponse(FrequencyMethod):
    """The own category with a larger probability than any other one."""

    tag, name, oracle = "KAryResponse", "krr", KRR


class SymmetricUnaryEncoding(FrequencyMethod):
    """A bit for every category, each flipped with the same probability."""

    tag, name, oracle = "SymmetricUnaryEncoding", "sue", SUE


class OptimisedUnaryEncoding(FrequencyMethod):
    """The same with the probabilities that have the least variance for rare categories."""

    tag, name, oracle = "OptimisedUnaryEncoding", "oue", OUE


@dataclass(frozen=True)
class UnaryEncoding(FrequencyMethod):
    """The same with public probabilities of a 1: p for the own category, q for any other.

    Parameters
    ----------
    p : float, default 0.75
        Chance of a 1 for the own category.
    q : float, optional
        Chance of a 1 for any other. Default: the smallest that epsilon allows.
    """

    tag, name, oracle = "UnaryEncoding", "ue", UE

    p: float = 0.75
    q: float | None = None

    def __post_init__(self) -> None:
        check_chance("p", self.p)
        check_chance("q", self.q)

    def law(self, size: int, epsilon: float) -> UE:
        return UE(size, epsilon, self.p, self.q)


class LocalHashing(FrequencyMethod):
    """A public random hash of the category, by k-ary response."""

    tag, name, oracle = "LocalHashing", "olh", OLH


class HadamardResponse(FrequencyMethod):
    """A row of the Hadamard matrix, and one bit."""

    tag, name, oracle = "HadamardResponse", "hadamard-response", Hadamard


class Subsets(FrequencyMethod):
    """A random set of categories that holds the own one with a larger probability than others."""

    tag, name, oracle = "Subsets", "subset-selection", SubsetSelection


METHODS = by_name(
    KAryResponse, SymmetricUnaryEncoding, OptimisedUnaryEncoding, UnaryEncoding, LocalHashing, HadamardResponse, Subsets
)
"""Laws of the reports, by name."""


@dataclass(eq=False, repr=False)
class Histogram(LocalEstimator):
    """The frequency of every category, from one report of every user.

    Parameters
    ----------
    n_categories : int, optional
        Records are whole numbers from 0 to ``n_categories - 1``; anything else is a null record.
    method : str or FrequencyMethod
        "auto", "krr", "sue", "oue", "ue", "olh", "hadamard-response" or "subset-selection":
        Law of the reports; "auto" chooses by the number of categories and epsilon (`best_oracle`).
    postprocess : {"simplex"} or None
        Replace the unbiased frequencies by the nearest ones that are not negative and sum to 1. That takes away most of
        the noise where most categories are rare.
    categories : sequence, optional
        Public list of labels, numbers or strings, in place of ``n_categories``; labels that are not in it are null
        records.
    epsilon_levels : sequence of float, optional
        Public levels of privacy, in place of ``epsilon``: ``fit(X, y)`` then takes every user's own epsilon as y, a
        public number that must not depend on their category. Users report at the highest level that does not
        exceed it (below the lowest one, without any information), and estimates are weighted by their precision.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; the guarantee is pure, delta is not used.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    frequencies_ : array of shape (n_categories,)
        After ``postprocess``.
    unbiased_frequencies_ : array of shape (n_categories,)
    standard_error_ : array of shape (n_categories,)
        Of the unbiased frequencies about those of these users, at the estimated ones. ``standard_errors_``,
        ``confidence_intervals()`` and ``summary()`` are about those of the law that users come from.
    method_, method_reason_ : str
        What "auto" chose, and why.
    guarantee_, plan_, releases_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Notes
    -----
    A user without a known category is spread over all categories by ``krr``, ``olh`` and ``subset-selection`` or
    counts for none; with ``postprocess="simplex"`` the frequencies sum to 1 anyway. Dishonest users: m false reports
    move an unbiased frequency by ``m influence / n`` at most (`dpdist.local.survey.protocol.Randomiser.influence`).

    Examples
    --------
    >>> colours = np.random.default_rng(0).choice(["red", "green", "blue"], p=[0.5, 0.3, 0.2], size=20_000)
    >>> model = Histogram(categories=["red", "green", "blue"], epsilon=1.0, random_state=0).fit(colours)
    >>> bool(np.abs(model.frequencies_ - [0.5, 0.3, 0.2]).max() < 0.05), model.method_
    (True, 'krr')
    """

    answers = (Answer.FREQUENCIES,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    n_categories: int | None = None
    method: str | FrequencyMethod = "auto"
    _: KW_ONLY
    postprocess: str | None = "simplex"
    categories: Sequence[Any] | None = None
    epsilon_levels: Sequence[float] | None = None

    def fit(self, X: Any, y: Any = None, **others: Any) -> Self:
        """Fit to one category per user.

        Parameters
        ----------
        X : array of shape (n,) or (n, 1), list, or Dataset
            Of a dataset the arrays X and, with ``epsilon_levels``, y are read.
        y : array of shape (n,), optional
            Every user's epsilon; only with ``epsilon_levels``.
        """
        return self._fit(X, y, **others)

    def _dataset(self, X: Any, y: Any) -> Dataset:
        self.n_features_in_ = 1
        dataset = one_column(X, y if self.epsilon_levels is not None else None, self.categories)
        self._check_stored(dataset)
        return dataset

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        return dict.fromkeys(("X",) if self.epsilon_levels is None else ("X", "y"), as_given)

    def _chosen(self, public: Public, **beside: Any) -> FrequencyMethod:
        levels = () if self.epsilon_levels is None else tuple(float(level) for level in self.epsilon_levels)
        statistic = self._statistic
        method = chosen("method", self.method, METHODS)
        if method == "auto":
            # the highest level has the most to say
            name, reason = best_oracle(statistic.size, levels[-1] if levels else self.epsilon, self.fidelity == "sum")
            method = replace(METHODS[name](), reason=reason)
        found: FrequencyMethod = method.decide(public, Categories(statistic, levels, self.postprocess))
        return found

    @property
    def _statistic(self) -> Category | Labelled:
        if self.categories is not None:
            return Labelled(tuple(np.asarray(self.categories).tolist()))
        assert self.n_categories is not None
        return Category(int(self.n_categories))

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.method_, self.method_reason_ = method.name, method.reason

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        names = range(len(self.unbiased_frequencies_)) if self.categories is None else self.categories
        found = vector_parameters(
            known,
            self.unbiased_frequencies_,
            [str(name) for name in names],
            "Of unbiased_frequencies_, whatever postprocess makes of them; other users of the same law are counted.",
        )
        return found if isinstance(found, str) else replace(found, alone=ALONE)

    def _check_stored(self, dataset: Dataset) -> None:
        """Refuse labels of another kind than the declared ones: every record would be null."""
        stored = np.dtype(dataset.arrays["X"].dtype).kind in "UST"
        declared = self.categories is not None and np.asarray(self.categories).dtype.kind in "UST"
        if stored != declared:
            raise DataError(
                f"the records are {'strings' if stored else 'numbers'} and the categories "
                f"{'strings' if declared else 'numbers'}: no record could be any of them. Pass categories=[...] with "
                "the values that are stored"
            )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, METHODS)
        if self.postprocess not in ("simplex", None):
            raise BudgetError(f"postprocess must be 'simplex' or None, got {self.postprocess!r}")
        if (self.n_categories is None) == (self.categories is None):
            raise BudgetError(
                "pass either n_categories, for records 0, 1, ..., or categories, the public list of what they can be"
            )
        if self.n_categories is not None:
            check_count("n_categories", self.n_categories, low=2)
        if self.categories is not None:
            labels = np.asarray(self.categories)
            if labels.ndim != 1 or labels.dtype.kind not in "biufUT" or len(set(labels.tolist())) != len(labels):
                raise BudgetError("categories must be a list of different numbers, or of different strings")
            check_count("the number of categories", len(labels), low=2)
        check_between("epsilon", self.epsilon, 1e-6, 100)
        if self.epsilon_levels is not None:
            check_levels(self.epsilon_levels)


def _variance(
    oracle: Any,
    total: NDArray[np.float64],
    likely: NDArray[np.float64],
    own: NDArray[np.float64],
    n_rows: int,
) -> NDArray[np.float64]:
    """Of every frequency, if these are likely ones and those of users vary by ``own``."""
    if not isinstance(oracle, Levels):
        return np.asarray((oracle.variance(likely) + own) / n_rows)
    weights = oracle.weights(total)
    if not weights.sum():
        return np.full(oracle.size, np.inf)
    parts = [
        (w / weights.sum()) ** 2 * (o.variance(likely) + own) / n
        for w, o, n in zip(weights, oracle.randomisers, oracle.counts(total), strict=True)
        if n
    ]
    return np.asarray(sum(parts))
