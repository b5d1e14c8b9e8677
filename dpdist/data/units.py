"""Whose rows they are: the privacy unit, how many rows it may own, and where these stand.

A guarantee per unit says that replacing all data of one unit by any other changes little. That is a statement about two
tables, and it is only true if these differ in the rows of that unit and in nothing else. If one unit has one row in the
first table and two in the second, then everything that counts rows differs (a divisor, the strength of a penalty, the
number of rounds), and every later row stands elsewhere: in another block, another fold, another sample. So either

- rows come **unit by unit**, k for each, whatever a unit really has (``grouped``): the number of rows says nothing, and
  the k rows of one unit are in one block, one fold, one sample. `dpdist.data.ingestion.ingest` writes them so; or
- how many rows there are, and where they stand, is **private**: sums can be had, which know neither, divided by a
  number that somebody declares (``n_public``), and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpdist.errors import BudgetError


@dataclass(frozen=True)
class Units:
    """The privacy unit of a dataset.

    Parameters
    ----------
    name : str
        ``"row"``, or the owner of several rows ("patient", "household").
    max_rows : int
        How many rows one of them may own, at most.
    grouped : bool
        The rows come unit by unit: the first ``max_rows`` rows are those of one unit, the next ones those of another. A
        unit that owns fewer has copies of its rows, or null rows, in the other places.

    Examples
    --------
    >>> Units("patient", 3, grouped=True).counted, Units("patient", 3).counted, Units("patient").counted
    (True, False, True)
    """

    name: str = "row"
    max_rows: int = 1
    grouped: bool = False

    @property
    def counted(self) -> bool:
        """Whether number and places of the rows say nothing about a unit: each has as many rows as any other."""
        return self.max_rows == 1 or self.grouped

    def need_counted(self, what: str) -> None:
        """Refuse something that depends on the number or the places of the rows where these are private."""
        if not self.counted:
            raise BudgetError(
                f"{what}; one {self.name} may own 0 to {self.max_rows} rows anywhere in this dataset, so how many rows "
                "there are and where they stand is private. Write it anew with dpdist ingest --unit, which puts the "
                "same number of rows of each side by side (arrays that come so: from_arrays(..., grouped=True))"
            )

    def __str__(self) -> str:
        if self.max_rows == 1:
            return f"{self.name}, with one row each"
        return f"{self.name}, with {'' if self.grouped else 'at most '}{self.max_rows} rows each"


ROWS = Units()
"""Every row is a unit of its own."""
OF_ONE_ROW = (ROWS.name, "label", "answer")
"""Units that are a row, or a part of one."""
