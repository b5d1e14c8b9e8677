"""The registry of benchmarks and the ways to measure."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass

COMPARE = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Result:
    """One measured ratio against its goal."""

    name: str
    ratio: float
    goal: str
    detail: str

    @property
    def holds(self) -> bool:
        relation, bound = self.goal.split()[:2]
        return COMPARE[relation](self.ratio, float(bound))


Measurement = Callable[[], tuple[float, str]]
BENCHMARKS: dict[str, tuple[str, Measurement]] = {}


def benchmark(name: str, goal: str) -> Callable[[Measurement], Measurement]:
    """Register a function that returns (ratio, detail); ``goal`` reads like ``">= 0.75"``."""

    def register(function: Measurement) -> Measurement:
        BENCHMARKS[name] = (goal, function)
        return function

    return register


def run(name: str) -> Result:
    goal, function = BENCHMARKS[name]
    ratio, detail = function()
    return Result(name, float(ratio), goal, detail)  # NumPy's numbers are no JSON


def best_of(
    *actions: Callable[[], object], repeats: int = 30, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The shortest time of each action, taken in turns so that a busy neighbour disturbs all of them alike.

    With ``clock=time.thread_time`` (or ``process_time``) what other processes take of the processor does not count.
    """
    best = [float("inf")] * len(actions)
    for _ in range(repeats):
        for i, action in enumerate(actions):
            start = clock()
            action()
            best[i] = min(best[i], clock() - start)
    return best
