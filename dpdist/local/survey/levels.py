"""Users who choose different levels of privacy, and one estimate from all of them.

A level must be a public number that does not depend on its owner's record: which one a user has is part of the report.
The report itself is as private as the randomiser of that level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_between, check_count
from dpdist.local.survey.protocol import Block, Domain, Randomiser, Statistic
from dpdist.privacy.protected_units import Protected
from dpdist.privacy.randomness.draws import Draws


def check_levels(levels: Sequence[float]) -> None:
    """At most 100 epsilons in increasing order."""
    check_count("the number of epsilon_levels", len(levels))
    for level in levels:
        check_between("a level of epsilon_levels", level, 1e-6, 100)
    if list(levels) != sorted(set(levels)) or len(levels) > 100:
        raise BudgetError("epsilon_levels must be at most 100 different numbers in increasing order")


@dataclass(frozen=True)
class Leveled(Statistic):
    """The values of another statistic, and which of some public levels of privacy their owner asks for.

    The array "y" has every user's epsilon, a public number; the level is the largest that does not exceed it. A user
    for whom all levels are too high has the level -1.
    """

    tag: ClassVar[str] = "Leveled"

    statistic: Statistic
    levels: tuple[float, ...]

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.statistic.domain

    @property
    def size(self) -> int:
        return self.statistic.size

    def values(self, block: Block, state: Any = None) -> NDArray[Any]:
        """One more column: the number of the level."""
        asked = np.asarray(block["y"], dtype=np.float64).reshape(len(block["y"]))
        level = np.searchsorted(np.array(self.levels), np.where(np.isnan(asked), 0.0, asked), side="right") - 1
        return np.column_stack([self.statistic.values(block, state), level])

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.statistic.restore(mean)


@dataclass(frozen=True)
class Levels(Randomiser):
    """The same randomiser at every level, for the values of `Leveled`.

    A user without a level (-1) sends the report of a null record at the lowest level, which is thrown away. The
    estimates of the levels are weighted by ``n_l / v_l``, v_l `Randomiser.usual_variance` of level l, which is the best
    that weights can do.

    Parameters
    ----------
    randomiser : Randomiser
        With a pure guarantee, at the largest level.
    levels : tuple of float
        Increasing.
    """

    tag: ClassVar[str] = "Levels"

    randomiser: Randomiser
    levels: tuple[float, ...]

    name: ClassVar[str] = "levels"

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if self.randomiser.epsilon != self.levels[-1] or self.randomiser.delta:
            raise BudgetError(
                f"the randomiser must have the largest level as its epsilon, and no delta; got {self.randomiser!r} and "
                f"the levels {self.levels}"
            )

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.randomiser.size

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        return self.randomiser.epsilon

    @property
    def protects(self) -> Protected:
        return self.randomiser.protects

    @property
    def randomisers(self) -> tuple[Any, ...]:
        """One per level."""
        of: Any = self.randomiser
        return tuple(replace(of, epsilon=level) for level in self.levels)

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.randomiser.domain

    @property
    def has_sums(self) -> bool:  # type: ignore[override]
        return self.randomiser.has_sums

    @property
    def width(self) -> int:
        return max(each.width for each in self.randomisers)

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype([("level", "i1"), ("report", self.randomisers[0].report)])

    @property
    def noise_std(self) -> float:
        """Of the lowest level: no mixture of the levels has more."""
        return float(self.randomisers[0].noise_std)

    @property
    def influence(self) -> float:
        """A report of level l moves n times the estimate by ``(i_l / v_l) / (mean of 1 / v)``."""
        worst = self._variances.max()
        return float(max(r.influence * worst / v for r, v in zip(self.randomisers, self._variances, strict=True)))

    @property
    def units(self) -> int:
        return max(each.units for each in self.randomisers)

    @property
    def _variances(self) -> NDArray[np.float64]:
        return np.array([each.usual_variance for each in self.randomisers])

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        reports = np.zeros(len(values), self.report)
        reports["level"] = values[:, -1]
        for level, randomiser in enumerate(self.randomisers):
            users = values[:, -1] == level
            reports["report"][users] = randomiser.randomise(self._answers(values[users]), draws)
        nobody = values[:, -1] < 0
        null = np.full_like(self._answers(values[nobody]), -1 if self.domain == "category" else 0)
        reports["report"][nobody] = self.randomisers[0].randomise(null, draws)
        return reports

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """For every level, the number of its users and the sum of their reports."""
        parts = []
        for level, randomiser in enumerate(self.randomisers):
            users = reports["level"] == level
            parts += [np.array([users.sum()]), randomiser.accumulate(reports["report"][users])]
        return np.concatenate(parts)

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        parts = []
        for level, randomiser in enumerate(self.randomisers):
            users = values[:, -1] == level
            parts += [np.array([users.sum()]), randomiser.draw_sum(self._answers(values[users]), generator)]
        return np.concatenate(parts)

    def counts(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Number of users of every level."""
        return self._parts(total)[:, 0]

    def weights(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """``n_l / v_l`` of every level; their sum is one over the variance of the estimate."""
        return np.asarray(self.counts(total) / self._variances)

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        """Zeros if nobody has a level."""
        weights = self.weights(total)
        estimate = np.zeros(self.size)
        for weight, part, randomiser in zip(weights, self._parts(total), self.randomisers, strict=True):
            if weight > 0:
                estimate += weight / weights.sum() * randomiser.decode(part[1:] * randomiser.grid, int(part[0]))
        return estimate

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        known = (reports["level"] >= -1) & (reports["level"] < len(self.levels))
        for level, randomiser in enumerate(self.randomisers):
            users = (reports["level"] == level) | (reports["level"] < 0) & (level == 0)
            known[users] &= randomiser.valid(reports["report"][users])
        return np.asarray(known)

    def _answers(self, values: NDArray[Any]) -> NDArray[Any]:
        """What the randomiser of a level is for: the values without the level."""
        return values[:, 0] if self.domain == "category" else np.ascontiguousarray(values[:, :-1])

    def _parts(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(total, dtype=np.float64).reshape(len(self.levels), -1)
