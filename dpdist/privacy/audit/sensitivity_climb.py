"""Is the declared sensitivity true? A search for the worst neighbours, in exact arithmetic. For synthetic rows only.

The catalogue of `dpdist.privacy.audit.sensitivity_fuzz` finds mistakes at edges; this search finds those in between, by
changing one row of a pair at a time and keeping what moves the sum further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeVar

import numpy as np

from dpdist.privacy.audit.sensitivity_fuzz import SensitivityViolation, Violation, distance_ratio
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import Schatten

Row = TypeVar("Row")


def climb(
    query_sum: Callable[[list[Row]], Any],
    starts: Sequence[tuple[list[Row], list[Row]]],
    mutate: Callable[[Row, np.random.Generator], Row],
    bound: int | Fraction,
    norm: Literal[1, 2, "inf"] | Schatten,
    rng: np.random.Generator,
    *,
    n_steps: int = 200,
) -> float:
    """The largest ratio of distance to ``bound`` that hill-climbing from several pairs of neighbours finds.

    Parameters
    ----------
    query_sum : callable
        A list of rows to the exact sum, a vector of integers in units of the grid.
    starts : sequence of (rows, rows)
        The rows in which neighbours differ (all of one unit; an empty list where a row is added).
    mutate : callable
        A row and a generator to another row.
    bound : int or Fraction
        The declared sensitivity in units.
    norm : 1, 2, "inf", FROBENIUS or NUCLEAR
    rng : numpy.random.Generator
    n_steps : int, default 200
        Tries from each start.

    Raises
    ------
    SensitivityViolation
        At the first pair that exceeds the bound.

    Examples
    --------
    >>> def clipped_sum(rows):
    ...     return [sum(max(-8, min(8, round(row))) for row in rows)]
    >>> step = lambda row, rng: row + rng.normal()
    >>> climb(clipped_sum, [([0.0], [1.0])], step, 16, 1, np.random.default_rng(0))
    1.0
    """
    best = 0.0

    def ratio(a: list[Row], b: list[Row]) -> float:
        difference = [int(u) - int(v) for u, v in zip(query_sum(a), query_sum(b), strict=True)]
        found, exceeds = distance_ratio(difference, bound, norm)
        if exceeds:
            relation = Neighbours.REPLACE_ONE if len(a) == len(b) else Neighbours.ADD_OR_REMOVE_ONE
            why = f"{found:.9g} times the bound, found by climbing"
            raise SensitivityViolation([Violation(relation, ("climbed", "climbed"), found, why)])
        return found

    for start in starts:
        pair = (list(start[0]), list(start[1]))
        height = ratio(*pair)
        for _ in range(n_steps):
            side = int(rng.integers(2)) if pair[0] and pair[1] else int(bool(pair[1]))
            place = int(rng.integers(len(pair[side])))
            other = list(pair[side])
            other[place] = mutate(other[place], rng)
            tried = (other, pair[1]) if side == 0 else (pair[0], other)
            reached = ratio(*tried)
            if reached >= height:
                pair, height = tried, reached
        best = max(best, height)
    return best
