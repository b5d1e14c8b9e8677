"""How far one record moves every point of an online descent: the contraction recursion.

A descent over a stream of n records steps, when record t arrives, along the gradient of the mean loss of the pairs of
this record and those of a past that is fixed before a row is read (all before it, or a buffer), plus ``alpha/2
||v||^2``:

    v_t = project(v_{t-1} - eta_t gradient_t(v_{t-1})).

If the losses are convex and L-smooth with the penalty, and ``eta_t <= 1/L``, a step brings two points nearer to each
other by the factor ``1 - eta_t alpha`` at least, and so for two streams that differ in record i, with G the most by
which the gradient moves where the new record is replaced,

    D_t <= (1 - eta_t alpha) D_{t-1} + eta_t G m_i(t) / |B_t|    for t > i,    D_i <= eta_i G,    D_t = 0 before,

``m_i(t)`` being how often i is in the past ``B_t`` (spec 02, sections 1 and 3.2; PRIVACY-REVIEW P10). The recursion is
exact for losses that are linear, with a ridge penalty. It holds for true gradients only: clipped ones are no gradients
of a convex function, and may move points apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.buffers import BUFFERS, buffer_path

Floats = NDArray[np.float64]

SCHEDULES = ("contract", "paper")
PAST = ("all", *BUFFERS)
BURN_IN = 7
"""Of the published schedule, at least."""


class Moves(NamedTuple):
    """What one record does at most, whichever it is.

    Attributes
    ----------
    each : ndarray of shape (n,)
        To each point; 0 before the first step.
    together : float
        To all points together, each divided by its entry of ``each``, in the Euclidean norm.
    tail : float
        To the mean of the second half of the points behind the first step.
    """

    each: Floats
    together: float
    tail: float


@dataclass(frozen=True)
class OnlinePath:
    """Steps and pasts of an online descent.

    Parameters
    ----------
    n_rows : int
    ridge : float
        alpha.
    smoothness : float
        Of the loss of a pair, without the penalty.
    schedule : {"contract", "paper"}
        ``"contract"``: ``eta_t = 2 / (alpha (t + m))``, ``m = ceil(2 L / alpha)``, from the first pair on. ``"paper"``:
        the published one, ``2 (t - 1) / (alpha t (t - 2))`` behind ``max(16 L^2 / alpha^2, 7)`` records without a step.
    memory : {"all", "fifo", "reservoir", "rsx"}
    n_kept : int
        Records that a buffer holds.
    seed : int
        Public, of the path of a buffer.

    Examples
    --------
    >>> path = OnlinePath(1000, 0.5, 4.0)
    >>> moves = path.moves(2.0, 2.0)
    >>> int(moves.each.argmax()), round(float(moves.each[-1]) * 0.5 * 1000, 3), round(moves.together, 3)
    (5, 4.38, 31.607)
    """

    tag: ClassVar[str] = "OnlinePath"

    n_rows: int
    ridge: float
    smoothness: float
    schedule: str = "contract"
    memory: str = "all"
    n_kept: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES or self.memory not in PAST:
            raise BudgetError(f"a schedule is one of {SCHEDULES} and a memory one of {PAST}, got {self!r}")
        if self.schedule == "paper" and 2 * self.burn_in >= self.n_rows:
            enough = smallest_ridge(self.n_rows, self.smoothness)
            raise BudgetError(
                f"the published schedule takes no step for {self.burn_in} records with ridge={self.ridge:.3g}, and "
                f"there are {self.n_rows}: "
                + (
                    f"take ridge={enough:.3g} or more, or schedule='contract', which needs none of this"
                    if math.isfinite(enough)
                    else "they are too few for any ridge; take schedule='contract'"
                )
            )

    @property
    def largest_curvature(self) -> float:
        """L, with the penalty."""
        return self.smoothness + self.ridge

    @property
    def burn_in(self) -> int:
        """Records without a step."""
        if self.schedule == "contract":
            return 1
        return max(math.ceil(16 * (self.largest_curvature / self.ridge) ** 2), BURN_IN)

    @property
    def steps(self) -> Floats:
        """``eta_t`` for t = 1 to n; 0 where there is no step."""
        t = np.arange(1, self.n_rows + 1, dtype=np.float64)
        if self.schedule == "contract":
            eta = 2 / (self.ridge * (t + math.ceil(2 * self.largest_curvature / self.ridge)))
        else:
            eta = 2 * (t - 1) / (self.ridge * t * np.maximum(t - 2, 1))
        eta[: self.burn_in] = 0.0
        return eta

    @property
    def past(self) -> NDArray[np.int32] | None:
        """The buffer when each record arrives, see `buffer_path`; None: all before it."""
        return None if self.memory == "all" else buffer_path(self.memory, self.n_rows, self.n_kept, self.seed)

    @property
    def tail(self) -> int:
        """The first point of the mean that is returned: half of the points have come then."""
        return (self.burn_in + self.n_rows) // 2

    def moves(self, pull: float, diameter: float) -> Moves:
        """The recursion, for gradients that move by ``pull`` (G), of points in a set of that diameter."""
        return _moves(self, float(pull), float(diameter))


def smallest_ridge(n_rows: int, smoothness: float) -> float:
    """The smallest penalty for which the published schedule steps for half of the records; infinite if none does."""
    half = math.ceil(n_rows / 2) - 1
    if half < max(BURN_IN, 17):
        return math.inf
    return smoothness / (math.sqrt(half / 16) - 1) * (1 + 1e-9)


@lru_cache(maxsize=32)
def _moves(path: OnlinePath, pull: float, diameter: float) -> Moves:
    n, steps, past = path.n_rows, path.steps, path.past
    apart, shares, sums, each = (np.zeros(n) for _ in range(4))
    for t in range(path.burn_in, n):
        eta, seen = steps[t], slice(t + 1)
        apart[seen] *= 1 - eta * path.ridge
        if past is None:
            apart[:t] += eta * pull / t
        else:
            held = past[t][past[t] >= 0]
            np.add.at(apart, held, eta * pull / len(held))
        apart[t] = eta * pull
        np.minimum(apart[seen], diameter, out=apart[seen])
        each[t] = apart[seen].max()
        shares[seen] += (apart[seen] / each[t]) ** 2
        if t >= path.tail:
            sums[seen] += apart[seen]
    safe = 1 + 1e-9  # for the rounding of n steps
    each *= safe
    each.setflags(write=False)
    return Moves(each, math.sqrt(shares.max()) * safe, sums.max() / max(n - path.tail, 1) * safe)
