"""Means of users who choose different levels of privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.entries import Ball, Box
from dpdist.local.protocol import Block, Domain, Randomiser, Statistic
from dpdist.local.scalars import Hybrid, LaplaceScalar, OneBit, Piecewise
from dpdist.local.vectors import Hemisphere, PrivUnit, PrivUnitG
from dpdist.privacy.draws import Draws

KINDS: Mapping[str, Any] = MappingProxyType(
    {kind.name: kind for kind in (Hybrid, OneBit, Piecewise, LaplaceScalar, PrivUnit, PrivUnitG, Hemisphere)}
)


@dataclass(frozen=True)
class LeveledEntries(Statistic):
    """The values of another statistic, and which of some public levels of privacy their owner asks for.

    The array "y" has every user's epsilon, a public number; the level is the largest that does not exceed it. A user
    for whom all levels are too high has the level -1.
    """

    statistic: Box | Ball
    levels: tuple[float, ...]

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.statistic.domain

    @property
    def size(self) -> int:
        return self.statistic.size

    @property
    def radius(self) -> float:
        """What a value of 1 stands for."""
        return self.statistic.radius

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        """One more column: the number of the level."""
        asked = np.asarray(block["y"], dtype=np.float64).reshape(len(block["y"]))
        level = np.searchsorted(np.array(self.levels), np.where(np.isnan(asked), 0.0, asked), side="right") - 1
        return np.column_stack([self.statistic.values(block, state), level])

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.statistic.restore(mean)


@dataclass(frozen=True)
class MeanLevels(Randomiser):
    """One randomiser per level, for the values of `LeveledEntries`.

    A level must be a public number that does not depend on its owner's record: which one a user has is part of the
    report. The report itself is as private as the randomiser of that level; a user without one sends a report of zeros,
    of the lowest level, which is thrown away. The means of the levels are weighted by ``n_l / v_l``, v_l the variance
    of a report of that level, which is the best that weights can do.

    Parameters
    ----------
    size : int
    epsilon : float
        The largest level.
    levels : tuple of float
        Increasing.
    kind : str
        A name of `KINDS`.
    """

    size: int
    epsilon: float
    levels: tuple[float, ...]
    kind: str

    name: ClassVar[str] = "mean-levels"

    @property
    def randomisers(self) -> tuple[Randomiser, ...]:
        """One per level."""
        return tuple(KINDS[self.kind](self.size, level) for level in self.levels)

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        domain: Domain = KINDS[self.kind].domain
        return domain

    @property
    def width(self) -> int:
        return max(each.width for each in self.randomisers)

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype([("level", "i1"), ("report", np.int32, self.randomisers[0].report.shape)])

    @property
    def noise_std(self) -> float:
        """Of the lowest level: no mixture of the levels has more."""
        return self.randomisers[0].noise_std

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
        return np.array([each.noise_std**2 for each in self.randomisers])

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        reports = np.zeros(len(values), self.report)
        reports["level"] = values[:, -1]
        for level, randomiser in enumerate(self.randomisers):
            users = values[:, -1] == level
            reports["report"][users] = randomiser.randomise(values[users, :-1], draws)
        nobody = values[:, -1] < 0
        zeros = np.zeros((int(nobody.sum()), self.size))
        reports["report"][nobody] = self.randomisers[0].randomise(zeros, draws)
        return reports

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """For every level, the number of its users and the sum of their reports."""
        parts = []
        for level, randomiser in enumerate(self.randomisers):
            users = reports["level"] == level
            parts += [np.array([users.sum()]), randomiser.accumulate(reports["report"][users])]
        return np.concatenate(parts)

    def weights(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """``n_l / v_l`` of every level; their sum is one over the variance of the estimate."""
        return np.asarray(self._parts(total)[:, 0] / self._variances)

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        """Zeros if nobody has a level."""
        weights = self.weights(total)
        estimate = np.zeros(self.size)
        for weight, part, randomiser in zip(weights, self._parts(total), self.randomisers, strict=True):
            if weight > 0:
                mean = randomiser.decode(part[1:] * randomiser.grid, int(part[0]))
                estimate += weight / weights.sum() * mean
        return estimate

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        known = (reports["level"] >= -1) & (reports["level"] < len(self.levels))
        for level, randomiser in enumerate(self.randomisers):
            users = (reports["level"] == level) | (reports["level"] < 0) & (level == 0)
            known[users] &= randomiser.valid(reports["report"][users])
        return np.asarray(known)

    def _parts(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(total, dtype=np.float64).reshape(len(self.levels), -1)
