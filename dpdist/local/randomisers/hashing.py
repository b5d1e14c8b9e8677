"""Local hashing: randomised response on a hash value, under a hash function of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.hashes import LARGEST, PRIME, SMALL, cell_starts, hash_values, support
from dpdist.local.randomisers.oracle import SupportOracle, odds
from dpdist.local.randomisers.responses import krr_share, respond
from dpdist.privacy.randomness.draws import Draws

_MOST_CELLS = 1 << 16


@dataclass(frozen=True)
class OLH(SupportOracle):
    """A random hash function into ``g = round(E) + 1`` cells, and the cell of the own category by `KRR`.

    The hash function is public and chosen without looking at the category, so the report is as private as the
    randomised response. It supports every category that hashes to its cell: the own one with probability p, another one
    with ``q + (p - q) s``, where s is the chance of a collision (``1 / g``, computed exactly for the family of
    `dpdist.kernels.hashes`). Adding up costs k hash values per user; for domains too large for that, name the
    candidates (`support`). A null record sends a uniform cell, which supports every category alike.

    A report is the seed of the function (64 bits) and a cell.

    Examples
    --------
    >>> oracle = OLH(1000, epsilon=1.0)
    >>> oracle.n_cells, round(float(oracle.variance(np.zeros(1))[0]), 3)
    (4, 3.692)
    """

    tag: ClassVar[str] = "OLH"

    size: int
    epsilon: float

    name: ClassVar[str] = "olh"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size > LARGEST + 1:
            raise BudgetError(f"size must be at most 2**60 for local hashing, got {self.size}: hash the values first")

    @property
    def n_cells(self) -> int:
        """g."""
        return min(round(odds(self.epsilon)) + 1, _MOST_CELLS)

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        g = self.n_cells
        q = Fraction(krr_share(g, self.epsilon), 2**64)
        p = 1 - (g - 1) * q
        collision = Fraction(sum(int(cell) ** 2 for cell in np.diff(cell_starts(g))), PRIME**2)
        return p, q + (p - q) * collision

    @property
    def width(self) -> int:
        return 2

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype([("seed", "<u8"), ("cell", "<u2")])

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        reports = np.empty(len(values), dtype=self.report)
        reports["seed"], reports["cell"] = self._draw(values, draws)
        return reports

    def _draw(self, values: NDArray[Any], draws: Draws) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Seeds and cells."""
        n, g = len(values), self.n_cells
        seeds = draws.words(n)
        cells = hash_values(seeds, np.asarray(values, dtype=np.int64), g)
        return seeds, respond(cells, draws.words(n), g, krr_share(g, self.epsilon))

    def summarise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        self._check_few()
        return support(*self._draw(values, draws), self.n_cells, self.size)

    def _check_few(self) -> None:
        if self.size > SMALL:
            raise BudgetError(f"{self.size} categories cannot be looked at one by one: name candidates (OLH.support)")

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        self._check_few()
        return support(np.ascontiguousarray(reports["seed"]), reports["cell"], self.n_cells, self.size)

    def support(self, reports: NDArray[Any], candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many reports support each candidate: the entries of the summary that are worth looking at."""
        return support(np.ascontiguousarray(reports["seed"]), reports["cell"], self.n_cells, 0, candidates)

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(reports["cell"] < self.n_cells)
