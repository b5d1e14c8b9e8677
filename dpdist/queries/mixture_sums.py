"""What a normal mixture asks of rows: how much of them each component takes, and their first two moments in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.kernels.mixture_shares import UNIT, mixture_sums
from dpdist.privacy.budget import Neighbours

ROOT6 = math.sqrt(6) * (1 + 2.0**-50)


@dataclass(frozen=True)
class MixtureSums(Query):
    """``sum_i r_ik (1, y_i / R, (y_i / R)^2)`` for every component k.

    The state is a `dpdist.kernels.mixture_shares.Components`.

    A row adds ``v = r (x) (1, z, z^2)`` with ``|z| <= 1`` and ``|r| <= 1``, so that ``|v|^2 <= 3``. Two of them have
    ``<v, v'> = <r, r'> (1 + <z, z'> + <z^2, z'^2>) >= 0``, because responsibilities are not negative; replacing one
    moves the sum by ``sqrt(6)`` at most, adding or removing one by ``sqrt(3)``. This holds for the integers that are
    added, because it is the factors that are truncated.
    """

    tag: ClassVar[str] = "MixtureSums"

    n_components: int
    n_features: int
    row_norm: float

    @property
    def bound(self) -> float:
        return math.sqrt(3) * (1 + 2.0**-50)

    @property
    def grid(self) -> float:
        return UNIT

    @property
    def row_units(self) -> int:
        return int(1 / UNIT)

    @property
    def size(self) -> int | None:
        return self.n_components * (2 * self.n_features + 1)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        single = ROOT6 if neighbours is Neighbours.REPLACE_ONE else self.bound
        return single * self._conversion(self.norm if norm is None else norm)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return mixture_sums(block["X"] if rows is None else block["X"][rows], state, self.row_norm)
