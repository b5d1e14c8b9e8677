"""How users report what tables are made of: the methods of `dpdist.local.tables.marginals.Marginals`.

Every user is asked about one random set of bits of the record (a few, for a large epsilon) and sends one bit about it,
because a value of size 1 has no better report. Any table is a fixed linear map of the estimates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_count
from dpdist.local.sampled_features import SampledFeatures
from dpdist.local.statistics.bit_sets import (
    BitSets,
    Conjunctions,
    Parities,
    code_widths,
    column_masks,
)
from dpdist.method import DECIDED, Noted, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.disjunctions import chebyshev_differences, chebyshev_gap

Floats = NDArray[np.float64]
HIGHEST_DEGREE = 6


@dataclass(frozen=True)
class Levels(Noted):
    """What a user of `Marginals` states: how many levels each column has, and of how many columns tables are wanted."""

    tag: ClassVar[str] = "MarginalLevels"

    levels: tuple[int, ...]
    order: int


@dataclass(frozen=True)
class TableMethod(SampledFeatures):
    """Reports about sets of bits, and tables from their estimates."""

    statement: Levels = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    unsure: ClassVar[str] = (
        "tables are made of the estimates as they are asked for, and have an error each: standard_error(columns) is "
        "that of a cell, at most"
    )
    measures: ClassVar[str] = "standard error of a cell of the largest table, before it is made to sum to one"

    @property
    @abstractmethod
    def statistic(self) -> BitSets: ...

    @abstractmethod
    def table(self, columns: Sequence[int], estimates: Floats) -> Floats:
        """The shares of all combinations of the columns' levels, as the estimates have them."""

    @abstractmethod
    def cell_std(self, columns: Sequence[int], stds: Floats) -> float:
        """Standard error of a cell, from those of the estimates; of the worst cell."""

    def decide(self, public: Public, statement: Levels) -> Self:
        asked = self._with(public, statement)
        asked.check_enough()
        return asked

    def smaller(self) -> Iterator[tuple[str, Self]]:
        for order in range(self.statement.order - 1, 0, -1):
            yield f"order={order}", replace(self, statement=replace(self.statement, order=order))

    @property
    def features_asked(self) -> str:
        return f"{len(self.statistic.sets)} sets of bits"

    def expected_error(self, plan: Plan) -> float:
        levels, order = self.statement.levels, self.statement.order
        return self.foreseen_std(sorted(range(len(levels)), key=lambda j: -levels[j])[:order])

    def foreseen_std(self, columns: Sequence[int]) -> float:
        """Standard error of a cell if every ticket gets its share of the reports."""
        return self.cell_std(columns, self.stds(self.foreseen_reports))

    def _positions(self, columns: Sequence[int]) -> NDArray[np.int64]:
        """Where the sets of these columns' bits are among the estimates, by their code; -1 where they are not asked."""
        masks, widths = column_masks(self.statement.levels), code_widths(self.statement.levels)
        sets = np.zeros(1, np.uint64)
        for j in columns:
            own = np.arange(2 ** widths[j], dtype=np.uint64) << np.uint64(masks[j].bit_length() - widths[j])
            sets = np.bitwise_or.outer(sets, own).ravel()
        known = self.statistic.sets
        at = np.minimum(np.searchsorted(known, sets), len(known) - 1)
        return np.where(known[at] == sets, at, -1)


class FourierTables(TableMethod):
    """Random parities: the Fourier coefficients of tables.

    A table of B bits is ``P(t) = 2^-B sum_S (-1)^|S and t| E parity_S``, the sum over all sets of its bits; the noise
    of a cell is ``2^-B`` times that of the sum, far less than that of one coefficient. Every cell is unbiased (the
    baseline of seed 000, section 5.1.3, which the method there does not reach).
    """

    tag, name = "FourierTables", "fourier"

    @property
    def statistic(self) -> BitSets:
        return Parities(self.statement.levels, self.statement.order)

    def table(self, columns: Sequence[int], estimates: Floats) -> Floats:
        widths, levels = code_widths(self.statement.levels), self.statement.levels
        found = estimates[self._positions(columns)]
        found[0] = 1.0
        found = found.reshape((2,) * sum(widths[j] for j in columns))
        for axis in range(found.ndim):
            zero, one = np.take(found, 0, axis), np.take(found, 1, axis)
            found = np.stack([zero + one, zero - one], axis) / 2
        codes = found.reshape([2 ** widths[j] for j in columns])
        return codes[tuple(slice(levels[j]) for j in columns)]

    def cell_std(self, columns: Sequence[int], stds: Floats) -> float:
        own = stds[self._positions(columns)[1:]]
        return float(np.linalg.norm(own)) / (len(own) + 1)


@dataclass(frozen=True)
class ChebyshevTables(TableMethod):
    """Random conjunctions of at most ``degree`` columns, and a polynomial of their number for larger tables.

    ``g(s)`` of degree t, a shifted Chebyshev polynomial, is 0 at 0 and within gamma of 1 at ``1, ..., k``; of the
    number s of columns that are 1 it is a fixed combination of conjunctions of at most t columns, by Newton's forward
    differences. So a disjunction of k columns is known up to gamma from far fewer averages than ``2^k`` (seed 000,
    Algorithm 5.1.35, with one bit about one conjunction in place of a full report about each). For bits only. Kept for
    comparison: `FourierTables` had less error wherever both were tried, and with numbers of users that occur this is
    of no use. Of 10 bits, order 3 and epsilon 1, the standard error of a cell is .045, and gamma .14 on top of it, with
    1e5 users (parities: .024, and nothing on top), and .036 and .038 with 1e6 (.0076).

    Parameters
    ----------
    degree : int, optional
        t. Default: what makes gamma and twice the noise the least, from public numbers.
    """

    tag, name = "ChebyshevTables", "chebyshev"
    unit: ClassVar[float] = 0.5

    degree: int | None = None

    def __post_init__(self) -> None:
        if self.degree is not None:
            check_count("degree", self.degree)

    def decide(self, public: Public, statement: Levels) -> Self:
        if max(statement.levels) > 2:
            raise BudgetError(f"method='chebyshev' is for bits, got columns of {max(statement.levels)} levels")
        k = statement.order
        if self.degree is not None and self.degree > k:
            raise BudgetError(f"degree={self.degree} is larger than order={k}: the order is the largest that helps")
        if self.degree is None:
            degrees = range(1, min(k, HIGHEST_DEGREE) + 1)
            tried = [self._with(public, statement, degree=t) for t in degrees]
            possible = [method for method in tried if public.n_rows >= method.needed] or tried[:1]
            best = min(
                possible, key=lambda method: chebyshev_gap(k, method.degree or 1) + 2 * method.foreseen_std(range(k))
            )
            return best.decide(public, statement)
        return super().decide(public, statement)

    def smaller(self) -> Iterator[tuple[str, Self]]:
        assert self.degree is not None
        for degree in range(self.degree - 1, 0, -1):
            yield f"degree={degree}", replace(self, degree=degree)

    @property
    def statistic(self) -> BitSets:
        assert self.degree is not None
        return Conjunctions(self.statement.levels, self.degree)

    def table(self, columns: Sequence[int], estimates: Floats) -> Floats:
        known = np.append(estimates, 0.0)[self._positions(columns)]
        known[0] = 1.0
        cells = [1.0 - weights @ known for weights in self._disjunctions(len(columns))]
        return np.reshape(cells, (2,) * len(columns))

    def cell_std(self, columns: Sequence[int], stds: Floats) -> float:
        own = np.append(stds, 0.0)[self._positions(columns)]
        own[0] = 0.0
        return max(float(np.linalg.norm(weights * own)) for weights in self._disjunctions(len(columns)))

    def _disjunctions(self, k: int) -> list[Floats]:
        """What each set of k columns counts for in the disjunction that a cell of the table is the opposite of."""
        assert self.degree is not None
        differences = np.append(chebyshev_differences(self.statement.order, self.degree), np.zeros(k))
        sizes = np.bitwise_count(np.arange(2**k))
        found = []
        for cell in range(2**k):
            weights = differences[sizes].reshape((2,) * k)
            for axis in range(k):
                if cell >> (k - 1 - axis) & 1:  # the literal of the disjunction is "not this column": 1 - x
                    without, having = np.take(weights, 0, axis), np.take(weights, 1, axis)
                    weights = np.stack([without + having, -having], axis)
            found.append(weights.ravel())
        return found


METHODS = by_name(FourierTables, ChebyshevTables)
"""Laws of the reports, by name."""
