"""What is paid for: a cost, how often it is paid, on which sample and on which part of the rows.

The parts of one disjoint split have no row in common, so a row pays for what reads all rows and for one part of every
split: the total is the maximum over these choices (the parts are dealt by a rule that does not look at the data).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.cost import Cost

_MOST_COLUMNS = 256
"""Sets of releases that a row may have to pay; each is composed on its own."""


@dataclass(frozen=True)
class Poisson:
    """Every row takes part with probability ``rate``, independently; which rows did stays secret."""

    tag: ClassVar[str] = "Poisson"

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BudgetError(f"Poisson: a sampling rate lies in (0, 1], got {self.rate!r}")


@dataclass(frozen=True)
class FixedSize:
    """``sample_size`` of ``n_rows`` rows, drawn without replacement; which rows stays secret."""

    tag: ClassVar[str] = "FixedSize"

    sample_size: int
    n_rows: int

    def __post_init__(self) -> None:
        if not 1 <= operator.index(self.sample_size) <= operator.index(self.n_rows):
            raise BudgetError(
                f"FixedSize: need 1 <= sample_size <= n_rows, got {self.sample_size!r} of {self.n_rows!r}"
            )

    @property
    def rate(self) -> float:
        """``sample_size / n_rows``."""
        return self.sample_size / self.n_rows


Sampling = Poisson | FixedSize


@dataclass(frozen=True)
class Releases:
    """``count`` releases at ``cost`` each.

    Parameters
    ----------
    cost : Cost
        Of one release, in units of its sensitivity under the relation of the plan. On a Poisson sample under
        replace-one that sensitivity must be twice the norm bound of one row's contribution (a row that is not drawn
        contributes 0, so 0 and both versions of the row count), not a smaller diameter.
    count : int
    sampling : Poisson or FixedSize, optional
        None: every row takes part.
    fold : (split, index), optional
        The part of a disjoint split that is read; None: all rows.
    paid : float, optional
        How many of the releases the dearest row pays for in full, where rows pay unequally
        (`dpdist.privacy.accounting.stream_paths`). Default: all.
    """

    cost: Cost
    count: int = 1
    sampling: Sampling | None = None
    fold: tuple[Hashable, int] | None = None
    paid: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost.parameter) and self.cost.parameter >= 0 and 0 <= self.cost.delta < 1):
            raise BudgetError(f"a cost is finite and at least 0 (and its delta below 1), got {self.cost!r}")
        if self.cost.delta and self.cost.kind != "approximate":
            raise BudgetError(f"only an approximate cost has a delta of its own, got {self.cost!r}")
        if operator.index(self.count) < 1:
            raise BudgetError(f"a count is at least 1, got {self.count!r}")
        if self.paid is not None:
            if not 1 <= self.paid < math.inf:
                raise BudgetError(f"the dearest row pays for one release at least, got {self.paid!r}")
            if self.cost.kind != "gaussian" or self.sampling is not None or self.fold is not None:
                raise BudgetError(
                    "rows pay unequally for Gaussian releases of all rows only, whose squares add up row by row: not "
                    "for samples, not for folds and not for other noise"
                )

    @property
    def full(self) -> float:
        """How many full releases a row pays for at most."""
        return self.count if self.paid is None else self.paid

    @property
    def key(self) -> tuple[Cost, int, Sampling | None]:
        """Everything but the fold: equal keys cost the same."""
        return self.cost, self.count, self.sampling


def columns(releases: Sequence[Releases]) -> list[list[Releases]]:
    """Every distinct set of releases that one row may have to pay: all-row releases and one part of each split."""
    whole = [c for c in releases if c.fold is None]
    splits: dict[Hashable, dict[int, list[Releases]]] = {}
    for release in releases:
        if release.fold is not None:
            split, index = release.fold
            splits.setdefault(split, {}).setdefault(index, []).append(release)
    choices = []
    for parts in splits.values():
        distinct: dict[Any, list[Releases]] = {}
        for part in parts.values():
            distinct.setdefault(tuple(sorted(repr(c.key) for c in part)), part)
        choices.append(list(distinct.values()))
    if math.prod(len(c) for c in choices) > _MOST_COLUMNS:
        raise BudgetError(
            f"the parts of the splits combine in more than {_MOST_COLUMNS} ways; give the parts of a split equal items"
        )
    return [whole + [c for part in choice for c in part] for choice in itertools.product(*choices)]


def column_rho(column: Sequence[Releases]) -> float:
    """``sum count * rho``, count being that of full releases."""
    return math.fsum(c.full * c.cost.rho for c in column)
