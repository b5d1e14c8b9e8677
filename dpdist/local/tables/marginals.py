"""Tables of any few columns, from one report of every user.

=============== ============================================================ =========================== ============
method          what a user reports a bit about                              error                       id
=============== ============================================================ =========================== ============
``fourier``     a random parity of at most ``order`` columns ("auto")        unbiased                    kway-fourier
``chebyshev``   a random conjunction of fewer columns (kept for comparison)  up to a public constant     kway-cheb
=============== ============================================================ =========================== ============

Seed 000, section 5.1.3, as corrected in spec 04, section 11: the source spends epsilon on every coefficient; here a
user is asked about one, drawn at random and public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpdist.constraints import project_simplex
from dpdist.data import ArraySpec
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.parameters import check_between, check_count
from dpdist.estimators.row_maps import small_features
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.tables.table_methods import METHODS, FourierTables, Levels, TableMethod
from dpdist.method import Method, Public


@dataclass(eq=False, repr=False)
class Marginals(LocalEstimator):
    """The joint distribution of any ``order`` columns, from one report of every user.

    Users are asked once, and every table of so many columns can be read off afterwards.

    Parameters
    ----------
    order : int, default 3
        How many columns a table may have. Many columns and a high order need many users (`outlook`).
    method : str or TableMethod
        "auto" (which is "fourier"), "fourier" or "chebyshev", see the table of this module.
    levels : sequence of int, optional
        How many levels each column has: a column of 2 is a bit, 1 above a half; one of more holds whole numbers from 0,
        and anything else there makes a null record. Default: all columns are bits. 64 binary digits in all are
        possible. A missing bit is NaN: -1, pandas' code of a missing value, would be a 0.
    epsilon, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; the guarantee is pure, delta is not used.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    estimates_ : array
        Of the mean of every parity (share of every conjunction) that was asked about; unbiased.
    n_reports_ : array
        How many reports each has.
    method_, method_reason_ : str
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Notes
    -----
    A record with an entry that is not finite, or no level of its column, is a null record: it reports as if both
    values of every bit were equally likely.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((100_000, 6)) < 0.3
    >>> X[:, 1] = X[:, 0]
    >>> model = Marginals(order=2, epsilon=2.0, random_state=0).fit(X)
    >>> model.marginal([0, 1]).round(1).tolist(), bool(model.standard_error([0, 1]) < 0.02)
    ([[0.7, 0.0], [0.0, 0.3]], True)
    >>> round(model.disjunction([0, 2]), 1)
    0.5
    """

    labelled = False
    answers = (Answer.TABLES,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    order: int = 3
    method: str | TableMethod = "auto"
    _: KW_ONLY
    levels: Sequence[int] | None = None

    def marginal(self, columns: Sequence[int | str], *, unbiased: bool = False) -> NDArray[np.float64]:
        """The shares of the combinations of levels: an axis for each column, in the order asked.

        Parameters
        ----------
        columns : sequence of int or str
            Up to ``order`` different ones; names, if the model was fitted to a frame.
        unbiased : bool
            As estimated, where the default is the nearest table that is not negative and sums to one.
        """
        asked = self._columns(columns)
        table = self._tables.table(asked, self.estimates_)
        return table if unbiased else project_simplex(table.ravel()).reshape(table.shape)

    def conjunction(self, columns: Sequence[int | str], pattern: Sequence[int] | None = None) -> float:
        """The share of records in which every column has its level of the pattern (default: 1)."""
        return float(self.marginal(columns)[self._pattern(columns, pattern)])

    def disjunction(self, columns: Sequence[int | str], pattern: Sequence[int] | None = None) -> float:
        """The share of records in which some column has its level of the pattern (default: 1)."""
        none: Any = self.marginal(columns)
        for axis, level in enumerate(self._pattern(columns, pattern)):
            none = np.delete(none, level, axis)
        return float(1.0 - none.sum())

    def standard_error(self, columns: Sequence[int | str]) -> float:
        """Of a cell of the unbiased table of these columns, at most; what the polynomial of "chebyshev" misses is not
        in it."""
        return self._tables.cell_std(self._columns(columns), self._tables.stds(self.n_reports_))

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        return {"X": small_features}

    def _chosen(self, public: Public, **beside: Any) -> TableMethod:
        levels = (2,) * public.n_features if self.levels is None else tuple(int(n) for n in self.levels)
        if len(levels) != public.n_features:
            raise DataError(f"levels has {len(levels)} numbers, and the records have {public.n_features} columns")
        method = chosen("method", self.method, METHODS)
        if method == "auto":
            method = FourierTables(reason="the least error for any table")
        found: TableMethod = method.decide(public, Levels(levels, self.order))
        return found

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        assert isinstance(method, TableMethod)
        self.method_, self.method_reason_ = method.name, method.reason
        self._tables = method

    def _columns(self, columns: Sequence[int | str]) -> list[int]:
        check_is_fitted(self, "estimates_")
        names, order = list(getattr(self, "feature_names_in_", ())), self._tables.statement.order
        listed: list[Any] = list(columns) if np.iterable(columns) and not isinstance(columns, str) else [None]
        found = [names.index(c) if isinstance(c, str) and c in names else c for c in listed]
        good = all(isinstance(c, int | np.integer) and type(c) is not bool for c in found)
        good = good and all(0 <= c < self.n_features_in_ for c in found)
        if not (good and 1 <= len(found) <= order and len(set(found)) == len(found)):
            known = f"0 to {self.n_features_in_ - 1}" + (f", or of {names}" if names else "")
            raise DataError(
                f"columns must be 1 to {order} different columns (order={order}) of {known}; got {columns!r}"
            )
        return [int(c) for c in found]

    def _pattern(self, columns: Sequence[int | str], pattern: Sequence[int] | None) -> tuple[int, ...]:
        levels = [self._tables.statement.levels[j] for j in self._columns(columns)]
        asked = [1] * len(levels) if pattern is None else list(pattern) if np.iterable(pattern) else []
        if len(asked) != len(levels) or not all(
            isinstance(q, int | np.integer | np.bool_) and 0 <= q < n for q, n in zip(asked, levels, strict=True)
        ):
            raise DataError(f"pattern must be a level of each column, below {levels}; got {pattern!r}")
        return tuple(int(q) for q in asked)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, METHODS)
        check_count("order", self.order)
        check_between("epsilon", self.epsilon, 1e-6, 100)
        if self.levels is not None:
            if isinstance(self.levels, str) or not np.iterable(self.levels):
                raise BudgetError(f"levels must be a list of whole numbers, one for each column, got {self.levels!r}")
            for n in self.levels:
                check_count("the number of levels of a column", n, low=2)
