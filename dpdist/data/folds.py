"""Disjoint folds of a dataset for parallel composition."""

from __future__ import annotations

from dataclasses import dataclass

from dpdist.errors import BudgetError, DataError
from dpdist.privacy.budget import Neighbours


@dataclass(frozen=True)
class Fold:
    """Rows ``start:stop``: the ``index``-th of the folds of one split.

    Releases on different folds of the same split compose in parallel: together they cost the maximum of their costs,
    not the sum. Why: a fold is a range of *slots* (row positions). Under replace-one the changed row keeps its slot, so
    it is in one fold before and in the same fold after, and all other folds hold identical rows. A rule that reads the
    row (a hash of an id or of the content) could move the changed row from one fold to another; two folds would
    change and their costs would add. Where a unit owns several rows, these stand side by side and in one fold.

    The store's row order must not depend on private values. In a store sorted by a column, replacing one row shifts
    the rows in between by one slot, so every fold in between changes at its borders and the costs add again. Keep rows
    in arrival order or in a keyed random permutation (`Schema.row_order` records which).

    Folds of two different splits (another number of folds) overlap, so their costs add: ``split_id`` tells a ledger
    which folds belong together.

    Examples
    --------
    >>> [(fold.start, fold.stop) for fold in split_slots(10, 3)]
    [(0, 3), (3, 6), (6, 10)]
    """

    split_id: str
    index: int
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows in the fold (public)."""
        return self.stop - self.start


def split_slots(
    n_rows: int, n_folds: int, neighbours: Neighbours = Neighbours.REPLACE_ONE, rows_per_unit: int = 1
) -> list[Fold]:
    """Cut n units of ``rows_per_unit`` rows into folds of the units ``[floor(t n/T), floor((t+1) n/T))``.

    See `Fold` for why by position.

    Examples
    --------
    >>> [(fold.start, fold.stop) for fold in split_slots(12, 3, rows_per_unit=3)]
    [(0, 3), (3, 6), (6, 12)]
    """
    check_disjoint(neighbours)
    n_units = n_rows // rows_per_unit
    if not (isinstance(n_folds, int) and 1 <= n_folds <= n_units):
        whole = f"n_rows = {n_rows}" if rows_per_unit == 1 else f"{n_units}, the number of units"
        raise DataError(f"the number of folds must be an integer from 1 to {whole}, got {n_folds!r}")
    split_id = f"slots-{n_folds}"
    edges = [t * n_units // n_folds * rows_per_unit for t in range(n_folds + 1)]
    return [Fold(split_id, t, edges[t], edges[t + 1]) for t in range(n_folds)]


def check_disjoint(neighbours: Neighbours) -> None:
    """Refuse folds where a row that comes or goes is in all that follow."""
    if neighbours is not Neighbours.REPLACE_ONE:
        raise BudgetError(
            "folds by row position are disjoint for replace-one only: adding or removing one row shifts every later "
            "row by one slot and changes all later folds. Use neighbours='replace-one', or a method that reads all "
            "rows in every round"
        )
