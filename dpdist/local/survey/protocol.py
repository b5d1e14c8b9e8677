"""What the local model is made of: a bounded statistic of a record, and a randomiser that makes it a report.

A `LocalProtocol` joins the two. One object does everything that is done with reports: a device randomises its record
with it, a server adds up and decodes what arrives, and a simulation plays a whole population.

================  ==================================================  =========================================
part              knows                                               promises
================  ==================================================  =========================================
`Statistic`       how a record becomes a category, numbers in         the bounds hold for any record
                  [-1, 1], or a vector in the unit ball
`Randomiser`      the law of a report                                 any two values give any report with
                                                                      probabilities that differ by e^epsilon at
                                                                      most (up to delta)
================  ==================================================  =========================================

So the guarantee of a report needs nothing but these two: no assumption about the data, the number of users, or the
server. Sums of reports and everything computed from them are post-processing.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.identity import tag_of
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.protected_units import ALL_DATA, Protected
from dpdist.privacy.randomness.draws import Draws

Block = Mapping[str, NDArray[Any]]
Domain = Literal["category", "box", "ball", "answers"]
"""Integers in [0, size) (-1 for a null record); vectors with entries in [-1, 1]; vectors of norm at most 1; one symbol
for each of ``size`` tasks."""


class Statistic(ABC):
    """A public map from records to bounded values; a frozen dataclass, whose ``repr`` says everything about it.

    Attributes
    ----------
    arrays : tuple of str
        What is read of a record.
    domain : {"category", "box", "ball", "answers"}
    """

    arrays: ClassVar[tuple[str, ...]] = ("X",)
    domain: ClassVar[Domain]

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of categories, or of coordinates."""

    @abstractmethod
    def values(self, block: Block, state: Any = None) -> NDArray[Any]:
        """One value per record, inside the domain whatever the record holds.

        A record with a number that is not finite is a null record: it gives the category -1, or zeros. It still sends
        a report, because a missing one would tell what it is.

        Parameters
        ----------
        block : mapping of str to array
            Consecutive rows of ``arrays``.
        state : object
            Public values that the question depends on (the current parameter).

        Returns
        -------
        ndarray of int64, shape (m,), or of float64, shape (m, size)
        """

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> NDArray[np.float64]:
        """`values` at a few coordinates of every record, bit for bit: for statistics that can do without the others.

        A record is null by what it holds, not by what is looked at.

        Parameters
        ----------
        block : mapping of str to array
        coordinates : ndarray of int64, shape (m, k)
        state : object

        Returns
        -------
        ndarray of float64, shape (m, k)
        """
        return np.take_along_axis(self.values(block, state), coordinates, axis=1)

    @property
    def diameter(self) -> float:
        """The largest distance of two values in the l2 norm: of the unit ball, unless less is possible."""
        return 2.0

    of_one_row: ClassVar[bool] = False
    """Whether every value is ``svec(x x')`` of an x of norm at most 1: some noise is enough for these only."""

    def total(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        """The sum of `values`, for randomisers that need no more (`Randomiser.sums_of_totals`)."""
        return np.asarray(self.values(block, state).sum(axis=0))

    @property
    def two_categories(self) -> tuple[Any, Any]:
        """Two entries of X that are different categories (of a statistic with the domain "category")."""
        return 0, self.size - 1

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of what the values stand for, from that of the values (scale and centre)."""
        return mean


class Randomiser(ABC):
    """The law of a report: a frozen dataclass with at least ``size`` and ``epsilon``.

    Reports are integers, in an array with one row per user. What is real-valued in the literature is rounded to
    2**-20 of its scale by the user, so that sums of reports are exact and depend on no order.

    Attributes
    ----------
    name : str
        What the method is called.
    domain : {"category", "box", "ball", "answers"}
    has_sums : bool
        Whether `draw_sum` knows the exact law of the sum of reports.
    has_counts : bool
        Whether `draw_counted` knows it for users that are given by how many there are of a kind.
    """

    name: ClassVar[str]
    domain: ClassVar[Domain]
    has_sums: ClassVar[bool] = False
    has_counts: ClassVar[bool] = False
    for_one_row: ClassVar[bool] = False
    """Whether the guarantee holds for values ``svec(x x')`` only (`Statistic.of_one_row`)."""

    size: int
    epsilon: float

    @property
    def delta(self) -> float:
        """0, but for Gaussian reports."""
        return 0.0

    @property
    def cost(self) -> Cost:
        """Of one report."""
        return Cost("pure", self.epsilon)

    @property
    def protects(self) -> Protected:
        """What of a record epsilon is about: less than all where its parts are randomised one by one."""
        return ALL_DATA

    @property
    @abstractmethod
    def width(self) -> int:
        """About how many random words a user draws; it decides how many users share a stream block."""

    @property
    @abstractmethod
    def report(self) -> np.dtype[Any]:
        """Type of one report (with a shape, if it has several numbers)."""

    @property
    @abstractmethod
    def noise_std(self) -> float:
        """Standard deviation of a coordinate of one decoded report, for the value where it is largest.

        The standard error of an estimate from ``n`` reports is ``noise_std / sqrt(n)``.
        """

    @property
    def usual_variance(self) -> float:
        """The same squared, for a usual value, where one is known: by it users of several levels are weighted."""
        return self.noise_std**2

    @property
    @abstractmethod
    def influence(self) -> float:
        """How far replacing one report by another moves a coordinate of ``n`` times the estimate, at most.

        ``m`` dishonest users among ``n`` move the estimate by at most ``m influence / n``, whatever they send.
        """

    @property
    @abstractmethod
    def units(self) -> int:
        """The largest absolute integer that one report adds to one entry of the summary."""

    @property
    def grid(self) -> float:
        """What one unit of the summary stands for."""
        return 1.0

    @abstractmethod
    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        """One report per value. Runs where the record is: on the user's device, or inside the map stage."""

    @abstractmethod
    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """The sum that the server needs, as a vector; sums of disjoint groups of users add up."""

    def summarise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        """``accumulate(randomise(values, draws))``, bit for bit; compiled in one pass where that pays."""
        return self.accumulate(self.randomise(values, draws))

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        """A draw from the law of ``summarise``, without any single report."""
        raise BudgetError(
            f"{self.name!r} has no exact law of the sum of its reports; use fidelity='report', in which every user "
            "draws one"
        )

    def draw_counted(
        self, values: NDArray[Any], counts: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """A draw from the law of `summarise` for ``counts[i]`` users with ``values[i]``."""
        raise BudgetError(
            f"{self.name!r} has no exact law of the sum of reports that could be drawn from counts; give the users one "
            "by one, or take another randomiser"
        )

    sums_of_totals: ClassVar[bool] = False
    """Whether the law of the sum of reports follows from the sum of the values, which `draw_around` takes."""

    def draw_around(
        self, total: NDArray[np.float64], n_users: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """`draw_sum`, for so many users whose values add up to ``total``."""
        raise NotImplementedError

    @abstractmethod
    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        """An unbiased estimate of the mean of the values (of the frequencies of the categories)."""

    @abstractmethod
    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of the reports could have been sent by an honest user."""


class Sampled(NamedTuple):
    """What `SamplingRandomiser` draws before it looks at a record.

    Parameters
    ----------
    coordinates : ndarray of int64, shape (m, k)
        Where every user's value is looked at.
    words : ndarray of uint64, shape (m, k)
        What the reports are to be drawn with.
    """

    coordinates: NDArray[np.int64]
    words: NDArray[np.uint64]


class SamplingRandomiser(Randomiser):
    """Reports about a few coordinates of a value, which are drawn first, so that no others need be computed."""

    @abstractmethod
    def sample(self, n_users: int, draws: Draws) -> Sampled:
        """The coordinates of every user, which know nothing of the records."""

    @abstractmethod
    def randomise_at(self, sampled: Sampled, values: NDArray[np.float64]) -> NDArray[Any]:
        """`randomise`, of the values at the sampled coordinates."""

    @abstractmethod
    def summarise_at(self, sampled: Sampled, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """`summarise`, of the values at the sampled coordinates."""

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        sampled = self.sample(len(values), draws)
        return self.randomise_at(sampled, np.take_along_axis(values, sampled.coordinates, axis=1))

    def summarise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        sampled = self.sample(len(values), draws)
        return self.summarise_at(sampled, np.take_along_axis(values, sampled.coordinates, axis=1))


@dataclass(frozen=True)
class LocalProtocol:
    """A question to every user, and all that is done with the answers.

    Parameters
    ----------
    statistic : Statistic
    randomiser : Randomiser
        For the domain and the size of the statistic.

    Examples
    --------
    >>> from dpdist.local.statistics.categories import Category
    >>> from dpdist.local.randomisers.frequency import KRR
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> protocol = LocalProtocol(Category(3), KRR(3, epsilon=1.0))
    >>> reports = protocol.randomise({"X": np.array([0, 1, 2, 2])}, SystemDraws())
    >>> protocol.accumulate(reports).sum()
    np.int64(4)
    """

    tag: ClassVar[str] = "LocalProtocol"

    statistic: Statistic
    randomiser: Randomiser

    def __post_init__(self) -> None:
        asked = (self.statistic.domain, self.statistic.size)
        offered = (self.randomiser.domain, self.randomiser.size)
        if asked != offered:
            raise BudgetError(
                f"{type(self.statistic).__name__} gives values of a {asked[0]} of size {asked[1]}, and "
                f"{self.randomiser.name!r} randomises those of a {offered[0]} of size {offered[1]}"
            )
        if self.randomiser.for_one_row and not self.statistic.of_one_row:
            raise BudgetError(
                f"{self.randomiser.name!r} has noise for products x x' of a row x of norm at most 1, and "
                f"{type(self.statistic).__name__} gives other vectors: take a randomiser of any vector (PrivUnit)"
            )
        made_for = getattr(self.randomiser, "diameter", None)
        if made_for is not None and not made_for >= self.statistic.diameter:  # the noise would be too little
            raise BudgetError(
                f"{self.randomiser.name!r} has noise for values within diameter = {made_for!r} of each other, and "
                f"those of {type(self.statistic).__name__} may be {self.statistic.diameter!r} apart"
            )

    @property
    def name(self) -> str:
        """Names the question and the law of the answers."""
        return f"{tag_of(self.statistic)}/{self.randomiser.name}"

    @property
    def protects(self) -> Protected:
        """What of a record the guarantee covers; less than all where the server has the rest."""
        return self.randomiser.protects

    @property
    def cost(self) -> Cost:
        """What one report costs its user, whoever collects it."""
        return self.randomiser.cost

    @property
    def arrays(self) -> tuple[str, ...]:
        """What is read of a record."""
        return self.statistic.arrays

    @property
    def has_sums(self) -> bool:
        """Whether ``fidelity="sum"`` is possible."""
        return self.randomiser.has_sums

    @property
    def width(self) -> int:
        """About how many random words a user draws."""
        return self.randomiser.width

    @property
    def noise_std(self) -> float:
        """As `Randomiser.noise_std`, in the units of the statistic's values."""
        return self.randomiser.noise_std

    @property
    def grid(self) -> float:
        """What one unit of the summary stands for."""
        return self.randomiser.grid

    @property
    def units(self) -> int:
        """The largest absolute integer that one user adds to one entry of the summary."""
        return self.randomiser.units

    def randomise(self, block: Block, draws: Draws, state: Any = None) -> NDArray[Any]:
        """The reports of the users whose records are the rows of ``block``: what a device sends."""
        if isinstance(self.randomiser, SamplingRandomiser):
            sampled = self.randomiser.sample(len(block[self.arrays[0]]), draws)
            return self.randomiser.randomise_at(sampled, self.statistic.values_at(block, sampled.coordinates, state))
        return self.randomiser.randomise(self.statistic.values(block, state), draws)

    def accumulate(self, reports: NDArray[Any], state: Any = None) -> NDArray[np.int64]:
        """What the server adds up; ``state`` are the public values of the question, where they matter here."""
        return self.randomiser.accumulate(reports)

    def summarise_all(self, parts: Iterable[tuple[Block, Draws]], state: Any = None) -> NDArray[np.int64]:
        """The sum of the reports of several blocks of users, at least one, each with draws of its own."""
        randomiser = self.randomiser
        if type(self) is LocalProtocol and isinstance(randomiser, SamplingRandomiser):
            # added up once: a sum of many coordinates costs more than the reports of a block
            drawn = [(randomiser.sample(len(block[self.arrays[0]]), draws), block) for block, draws in parts]
            values = [self.statistic.values_at(block, sampled.coordinates, state) for sampled, block in drawn]
            coordinates, words = (np.concatenate(arrays) for arrays in zip(*(s for s, _ in drawn), strict=True))
            return randomiser.summarise_at(Sampled(coordinates, words), np.concatenate(values))
        return functools.reduce(np.add, (self.summarise(block, draws, state) for block, draws in parts))

    def summarise(self, block: Block, draws: Draws, state: Any = None) -> NDArray[np.int64]:
        """The sum of the reports of a block of users."""
        if isinstance(self.randomiser, SamplingRandomiser):
            sampled = self.randomiser.sample(len(block[self.arrays[0]]), draws)
            return self.randomiser.summarise_at(sampled, self.statistic.values_at(block, sampled.coordinates, state))
        return self.randomiser.summarise(self.statistic.values(block, state), draws)

    def draw_sum(self, block: Block, generator: np.random.Generator, state: Any = None) -> NDArray[np.int64]:
        """A draw from the law of `summarise`, without any single report."""
        if self.randomiser.sums_of_totals:
            n_users = len(block[self.arrays[0]])
            return self.randomiser.draw_around(self.statistic.total(block, state), n_users, generator)
        return self.randomiser.draw_sum(self.statistic.values(block, state), generator)

    def draw_counted(
        self, block: Block, counts: NDArray[np.int64], generator: np.random.Generator, state: Any = None
    ) -> NDArray[np.int64]:
        """A draw from the law of `summarise` where ``counts[i]`` users have the record in row i of ``block``."""
        return self.randomiser.draw_counted(self.statistic.values(block, state), counts, generator)

    def estimate(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        """What the server makes of the sum (in multiples of `grid`) of ``n_users`` reports."""
        return self.statistic.restore(self.randomiser.decode(np.asarray(total, dtype=np.float64), n_users))
