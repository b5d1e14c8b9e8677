"""The door through which a method reaches the data: the releases that its plan paid for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Fold
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.query import Query
from dpdist.privacy.plan import Item, Plan

Vector = NDArray[np.float64]


class Door:
    """What a course may ask for: the releases that the plan paid for. Keeps the points at which they were asked."""

    def __init__(self, coordinator: Coordinator, plan: Plan) -> None:
        self.target: int | None = None
        self.history: list[Vector] = []
        self._coordinator = coordinator
        self._plan = plan
        self._shared: dict[str, float] = {}

    def release(self, name: str, query: Query, state: Any = None) -> Vector:
        """The private value of ``query``, paid for by the line ``name`` of the plan."""
        item = self._plan[name]
        return self._coordinator.release(query, item, state, self._fold(item))

    def gradient(self, name: str, query: Query, w: Vector) -> Vector:
        """As `release`, at a point that belongs in the history of the fit."""
        self.history.append(w)
        return self.release(name, query, w)

    def once(self, name: str, find: Callable[[Door], float]) -> float:
        """A number that all binary problems share: found by the first of them."""
        if name not in self._shared:
            self._shared[name] = find(self)
        return self._shared[name]

    @property
    def plan(self) -> Plan:
        """The calibrated plan."""
        return self._plan

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that is public."""
        return self._coordinator.n_rows

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in the latest release."""
        return self._coordinator.releases[-1].noise_std

    def _fold(self, item: Item) -> Fold | None:
        if item.fold is None:
            return None
        split, index = item.fold
        folds = self._coordinator.dataset.split(int(str(split).rpartition("-")[2]), self._coordinator.neighbours)
        return folds[index]
