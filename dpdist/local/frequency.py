"""How frequent every category is among users who report their own under local differential privacy.

====================== ======================================================== =======================================
method                 best for                                                 a report is
====================== ======================================================== =======================================
``krr``                few categories, ``k < 3 e^epsilon + 2``                  a category
``hadamard-response``  epsilon up to 1, or very many categories                 a number and a bit
``subset-selection``   up to 1000 categories: the least noise                   k bits
``olh``                more categories                                          a 64-bit seed and a small number
``oue``, ``sue``       sums that are drawn directly (``fidelity="sum"``)        k bits
====================== ======================================================== =======================================

The laws, their variances and sources are in `dpdist.local.frequency_oracles`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import project_simplex
from dpdist.data import Dataset
from dpdist.errors import BudgetError, DataError
from dpdist.fitting.parameters import check_between, check_count, choice
from dpdist.identity import text
from dpdist.local.categories import Category, Labelled
from dpdist.local.estimator import LocalEstimator
from dpdist.local.frequency_oracles import ORACLES
from dpdist.local.levels import Leveled, Levels, check_levels
from dpdist.local.protocol import LocalProtocol
from dpdist.local.values import as_given, one_column

MANY = 1 << 16
"""From here on a report or its decoding takes too long for anything but a Hadamard row."""
SOME = 1000
"""Subsets of more categories than that take too many random numbers."""


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
    >>> [best_oracle(k, epsilon)[0] for k, epsilon in ((4, 1.0), (100, 1.0), (100, 2.0), (5000, 2.0))]
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
    if n_categories <= SOME:
        return "subset-selection", "the least noise of all, and its reports are short for so few categories"
    return "olh", f"the same noise as k bits, in a report that does not grow with the {n_categories} categories"


class Histogram(LocalEstimator):
    """The frequency of every category, from one report of every user.

    Parameters
    ----------
    n_categories : int, optional
        Records are whole numbers from 0 to ``n_categories - 1``; anything else is a null record.
    method : {"auto", "krr", "sue", "oue", "olh", "hadamard-response", "subset-selection"}
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
        As in `dpdist.local.estimator.LocalEstimator`; the guarantee is pure, delta is not used.
    ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

    Attributes
    ----------
    frequencies_ : array of shape (n_categories,)
        After ``postprocess``.
    unbiased_frequencies_ : array of shape (n_categories,)
    standard_error_ : array of shape (n_categories,)
        Of the unbiased frequencies, at the estimated ones.
    method_, method_reason_ : str
        What "auto" chose, and why.
    guarantee_, plan_, releases_, fidelity_
        As in `dpdist.central.minimizer.Minimizer`.

    Notes
    -----
    A user without a known category is spread over all categories by ``krr``, ``olh`` and ``subset-selection`` or
    counts for none; with ``postprocess="simplex"`` the frequencies sum to 1 anyway. Dishonest users: m false reports
    move an unbiased frequency by ``m influence / n`` at most (`dpdist.local.protocol.Randomiser.influence`).

    Examples
    --------
    >>> colours = np.random.default_rng(0).choice(["red", "green", "blue"], p=[0.5, 0.3, 0.2], size=20_000)
    >>> model = Histogram(categories=["red", "green", "blue"], epsilon=1.0, random_state=0).fit(colours)
    >>> bool(np.abs(model.frequencies_ - [0.5, 0.3, 0.2]).max() < 0.05), model.method_
    (True, 'krr')
    """

    def __init__(
        self,
        n_categories: int | None = None,
        method: str = "auto",
        *,
        postprocess: str | None = "simplex",
        categories: Sequence[Any] | None = None,
        epsilon_levels: Sequence[float] | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        fidelity: str = "report",
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_categories = n_categories
        self.method = method
        self.postprocess = postprocess
        self.categories = categories
        self.epsilon_levels = epsilon_levels
        self.epsilon = epsilon
        self.delta = delta
        self.fidelity = fidelity  # type: ignore[assignment]  # checked when it is used
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Histogram:
        """Fit to one category per user.

        Parameters
        ----------
        X : array of shape (n,) or (n, 1), list, or Dataset
            Of a dataset the arrays X and, with ``epsilon_levels``, y are read.
        y : array of shape (n,), optional
            Every user's epsilon; only with ``epsilon_levels``.
        """
        self._check_parameters()
        dataset = one_column(X, y if self.epsilon_levels is not None else None)
        protocols = self._protocols(dataset.n_rows, 1)
        self._check_stored(dataset)
        arrays = dict.fromkeys(protocols[0].arrays, as_given)
        with self._questions(dataset, arrays, protocols, text(self.postprocess)) as questions:
            total = questions.total()
        oracle: Any = protocols[0].randomiser
        self.unbiased_frequencies_ = oracle.decode(total, dataset.n_rows)
        likely = np.clip(self.unbiased_frequencies_, 0.0, 1.0)
        self.standard_error_ = np.sqrt(_variance(oracle, total, likely, dataset.n_rows))
        simplex = self.postprocess == "simplex"
        self.frequencies_ = project_simplex(self.unbiased_frequencies_) if simplex else self.unbiased_frequencies_
        self.method_, self.method_reason_ = self._choice()
        return self

    @property
    def _statistic(self) -> Category | Labelled:
        if self.categories is not None:
            return Labelled(tuple(np.asarray(self.categories).tolist()))
        assert self.n_categories is not None
        return Category(int(self.n_categories))

    @property
    def _levels(self) -> tuple[float, ...]:
        return () if self.epsilon_levels is None else tuple(float(level) for level in self.epsilon_levels)

    def _choice(self) -> tuple[str, str]:
        """The method, and why it is that one."""
        if self.method != "auto":
            return self.method, "as asked for"
        # the highest level has the most to say
        highest = self._levels[-1] if self._levels else self.epsilon
        return best_oracle(self._statistic.size, highest, self.fidelity == "sum")

    def _protocols(self, n_rows: int, n_features: int) -> Sequence[LocalProtocol]:
        statistic = self._statistic
        method, _ = self._choice()
        if self._levels:
            oracle = ORACLES[method](statistic.size, self._levels[-1])
            return [LocalProtocol(Leveled(statistic, self._levels), Levels(oracle, self._levels))]
        return [LocalProtocol(statistic, ORACLES[method](statistic.size, float(self.epsilon)))]

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
        choice("method", self.method, ("auto", *ORACLES))
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


def _variance(oracle: Any, total: NDArray[np.float64], likely: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
    """Of every frequency, if these are likely ones."""
    if not isinstance(oracle, Levels):
        return np.asarray(oracle.variance(likely) / n_rows)
    weights = oracle.weights(total)
    if not weights.sum():
        return np.full(oracle.size, np.inf)
    parts = [
        (w / weights.sum()) ** 2 * o.variance(likely) / n
        for w, o, n in zip(weights, oracle.randomisers, oracle.counts(total), strict=True)
        if n
    ]
    return np.asarray(sum(parts))
