"""Users who choose different levels of privacy, and one estimate from all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.frequency_oracles import ORACLES
from dpdist.local.oracle import FrequencyOracle
from dpdist.privacy.draws import Draws


@dataclass(frozen=True)
class Levels(FrequencyOracle):
    """One oracle per level, for the categories of `dpdist.local.categories.Leveled`.

    A level must be a public number that does not depend on its owner's category: which one a user has is part of
    the report. The report itself is as private as the oracle of that level; a user without one (-1) sends the null
    report of the lowest level, which is thrown away. The estimates of the levels are weighted by the inverse of their
    variances, ``w_l ~ n_l / v_l`` with v_l the variance for a rare category, which is the best that weights can do.

    Parameters
    ----------
    size : int
    epsilon : float
        The largest level.
    levels : tuple of float
        Increasing.
    oracle : str
        A name of `dpdist.local.frequency_oracles.ORACLES`.
    """

    size: int
    epsilon: float
    levels: tuple[float, ...]
    oracle: str

    name: ClassVar[str] = "levels"

    @property
    def oracles(self) -> tuple[FrequencyOracle, ...]:
        """One per level."""
        return tuple(ORACLES[self.oracle](self.size, level) for level in self.levels)

    @property
    def has_sums(self) -> bool:  # type: ignore[override]
        """Whether the oracle's reports have sums."""
        return ORACLES[self.oracle].has_sums

    @property
    def width(self) -> int:
        return max(oracle.width for oracle in self.oracles)

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype([("level", "i1"), ("report", self.oracles[0].report)])

    def variance(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the lowest level: no mixture of the levels has more."""
        return self.oracles[0].variance(frequencies)

    @property
    def influence(self) -> float:
        """A report of level l moves n times the estimate by ``(i_l / v_l) / (mean of 1 / v)``."""
        worst = self._variances.max()
        return float(max(o.influence * worst / v for o, v in zip(self.oracles, self._variances, strict=True)))

    @property
    def _variances(self) -> NDArray[np.float64]:
        return np.array([float(oracle.variance(np.zeros(1))[0]) for oracle in self.oracles])

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        reports = np.zeros(len(values), dtype=self.report)
        reports["level"] = values[:, 1]
        for level, oracle in enumerate(self.oracles):
            users = values[:, 1] == level
            reports["report"][users] = oracle.randomise(values[users, 0], draws)
        nobody = np.nonzero(values[:, 1] < 0)[0]
        reports["report"][nobody] = self.oracles[0].randomise(np.full(len(nobody), -1), draws)
        return reports

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """For every level, the number of its users and the sum of its oracle."""
        parts = []
        for level, oracle in enumerate(self.oracles):
            users = reports["level"] == level
            parts += [np.array([users.sum()]), oracle.accumulate(reports["report"][users])]
        return np.concatenate(parts)

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        parts = []
        for level, oracle in enumerate(self.oracles):
            users = values[:, 1] == level
            parts += [np.array([users.sum()]), oracle.draw_sum(values[users, 0], generator)]
        return np.concatenate(parts)

    def _parts(self, total: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        return np.split(np.asarray(total, dtype=np.float64), len(self.levels))

    def weights(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """``n_l / v_l`` of every level."""
        return np.array([part[0] for part in self._parts(total)]) / self._variances

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        """Zeros if nobody has a level."""
        weights = self.weights(total)
        estimate = np.zeros(self.size)
        for weight, part, oracle in zip(weights, self._parts(total), self.oracles, strict=True):
            if weight > 0:
                estimate += weight / weights.sum() * oracle.decode(part[1:], int(part[0]))
        return estimate

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        known = (reports["level"] >= -1) & (reports["level"] < len(self.levels))
        for level, oracle in enumerate(self.oracles):
            users = (reports["level"] == level) | (reports["level"] < 0) & (level == 0)
            known[users] &= oracle.valid(reports["report"][users])
        return np.asarray(known)
