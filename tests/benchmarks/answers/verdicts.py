"""What fails: comparisons seed by seed, a margin each, and shares over all cells.

A comparison fails where it is worse by more than its margin and by more than two standard errors of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.privacy.accounting.closed_forms import gdp_mu
from tests.benchmarks.answers.cells import EPSILONS, Cell

DELTA = 1e-6
SMALL = 3e-4
"""Excess relative to the error of a constant below which no prediction is judged."""
FACTOR = 3.0
SHARE = 0.9
"""Of the cells in which a prediction holds."""

Lines = Mapping[str, Mapping[str, Any]]

RULES = {
    "constant": "worse than a constant by more than 1 % of its error",
    "gain": "worse than a constant by more than a tenth of what is to be gained",
    "diffprivlib": "log-loss worse than diffprivlib's by more than .002 (.01 where rows are nearly separable or few)",
    "adassp": "worse than plain adaptive sufficient statistics by more than 1 % of a constant's error",
    "best own": "worse than the best own solver by more than .01 log-loss (of a constant's squared error) and a tenth "
    "of its excess; robust, few coefficients: by more than a factor 1.5",
    "not private": "squared error more than 5 % above that without privacy to rows of the same weights, "
    "n >= 1e5, d <= 50, epsilon >= 1",
    "passes": "more than 12 passes where n mu/sqrt(d) >= 3000",
    "guess": "a second moment wrong by a factor of 10 more than doubles the error",
    "more epsilon": "worse than at the next smaller epsilon by more than 1 % of a constant's error",
    "more rows": "a larger excess than with a tenth of the rows, by more than 1 % of a constant's error",
}
"""What each verdict says."""
RULES_OF = {
    "logistic": ("constant", "gain", "diffprivlib", "best own", "passes", "more epsilon", "more rows"),
    "squared": ("constant", "gain", "adassp", "best own", "not private", "more epsilon", "more rows"),
    "robust": ("constant", "gain", "best own", "guess", "more epsilon"),
    "sparse": ("constant", "gain", "best own", "more epsilon", "more rows"),
    "sparse classes": ("constant", "gain", "best own", "more epsilon"),
    "hinge": ("constant", "gain", "best own", "more epsilon", "more rows"),
    "four classes": ("constant", "gain", "best own", "passes", "more epsilon", "more rows"),
}
TO_ZERO = ("robust", "sparse")
"""Families whose errors are distances from the truth: a fit without noise has none."""


@dataclass(frozen=True)
class Judged:
    """A cell and what was measured in it."""

    cell: Cell
    line: Mapping[str, Any]
    diffprivlib: Sequence[float] | None

    @property
    def default(self) -> np.ndarray:
        return np.array(self.line["own"]["auto"]["error"])

    @property
    def own(self) -> dict[str, np.ndarray]:
        """Errors of all that could be fitted."""
        return {name: np.array(record["error"]) for name, record in self.line["own"].items() if "error" in record}

    @property
    def best(self) -> tuple[str, np.ndarray]:
        return min(self.own.items(), key=lambda item: float(item[1].mean()))

    @property
    def constant(self) -> np.ndarray:
        return np.array(self.line["constant"])

    @property
    def floor(self) -> np.ndarray:
        """What is reached without privacy; robust errors are distances from the truth."""
        zero = self.cell.problem.family in TO_ZERO
        return np.zeros(len(self.constant)) if zero else np.array(self.line["not private"])

    @property
    def bounded_floor(self) -> np.ndarray:
        """What is reached without privacy from rows that count as the public bounds say."""
        return self.floor if self.cell.problem.family in TO_ZERO else np.array(self.line["bounded"])

    @property
    def signal(self) -> float:
        """``n mu / sqrt(d)``: rows against noise."""
        problem = self.cell.problem
        return problem.n_rows * gdp_mu(self.cell.epsilon, DELTA) / math.sqrt(problem.n_features)

    @property
    def excess(self) -> float | None:
        """The mean that is predicted, where there is enough to speak of; of half the squared error."""
        family, excess = self.cell.problem.family, float((self.default - self.bounded_floor).mean())
        if family in (*TO_ZERO, "hinge") or excess < SMALL * self.constant.mean():
            return None
        return excess / 2 if family == "squared" else excess

    @property
    def after(self) -> float | None:
        """Predicted over measured excess, after the fit."""
        told = self.line["own"]["auto"]["after"]
        return None if told is None or self.excess is None else float(np.mean(told)) / self.excess

    @property
    def before(self) -> bool | None:
        """Whether the excess is in the range before the fit, or within a factor of the number where there is none."""
        told = self.line["own"]["auto"]["before"]
        if told is None or self.excess is None:
            return None
        low, high = told if isinstance(told, list) else (told / FACTOR, told * FACTOR)
        return bool(low <= self.excess <= high)


def judged(cells: Sequence[Cell], lines: Lines, diffprivlib: Lines) -> list[Judged]:
    """Those that were measured."""
    return [
        Judged(cell, lines[cell.name], diffprivlib.get(cell.name, {}).get("error"))
        for cell in cells
        if cell.name in lines
    ]


def worse(ours: np.ndarray, theirs: np.ndarray, margin: float) -> bool:
    """By more than the margin and two standard errors of the mean difference."""
    off = ours - theirs
    return bool(off.mean() > max(margin, 2 * off.std(ddof=1) / math.sqrt(len(off))))


def worse_in_the_middle(ours: np.ndarray, theirs: np.ndarray, margin: float) -> bool:
    """The same by medians, for competitors that run away on some seeds."""
    off = ours - theirs
    middle = float(np.median(off))
    error = 1.2533 * 1.4826 * float(np.median(np.abs(off - middle))) / math.sqrt(len(off))
    return middle > max(margin, 2 * error)


def failures(found: Sequence[Judged]) -> list[str]:
    """Names of what fails, in cells that count and overall: ``"cell: rule"``."""
    counting = [j for j in found if j.cell.problem.counts]
    named = [f"{j.cell.name}: {rule}" for j in counting for rule in broken(j, found)]
    return named + [f"overall: {name}" for name, (_, holds) in overall(found).items() if not holds]


def broken(j: Judged, found: Sequence[Judged]) -> Iterator[str]:
    """Rules that do not hold in a cell; the others are for comparison with fewer rows and smaller budgets."""
    problem, constant = j.cell.problem, float(j.constant.mean())
    if worse(j.default, j.constant, 0.01 * constant):
        yield "constant"
    if worse(j.default, j.constant, 0.1 * max(0.0, constant - float(j.floor.mean()))):
        yield "gain"
    if j.diffprivlib is not None:
        margin = 0.01 if problem.separable or j.signal < 30 else 0.002
        if worse_in_the_middle(j.default, np.array(j.diffprivlib), margin):
            yield "diffprivlib"
    if "adassp" in j.line and worse(j.default, np.array(j.line["adassp"]), 0.01 * constant):
        yield "adassp"
    if worse(j.default, j.best[1], _regret(j)):
        yield "best own"
    many = problem.n_rows >= 1e5 and problem.n_features <= 50 and j.cell.epsilon >= 1
    if problem.family == "squared" and many and worse(j.default, j.bounded_floor, 0.05 * float(j.bounded_floor.mean())):
        yield "not private"
    if "passes" in RULES_OF[problem.family] and j.signal >= 3000 and j.line["own"]["auto"]["passes"] > 12:
        yield "passes"
    by_name = {other.cell.name: other for other in found}
    right = by_name.get(j.cell.name.replace(f", guess {problem.bounds.get('second_moment', 1):g} ", " "))
    if right is not None and worse(j.default, right.default, float(right.default.mean())):
        yield "guess"
    less = by_name.get(Cell(problem, _smaller(j.cell.epsilon)).name)
    if less is not None and worse(j.default, less.default, 0.01 * constant):
        yield "more epsilon"
    fewer = [o for o in found if _fewer(o.cell, j.cell)]
    if fewer and worse(j.default - j.floor, fewer[0].default - fewer[0].floor, 0.01 * constant):
        yield "more rows"


def _regret(j: Judged) -> float:
    best = j.best[1]
    if j.cell.problem.family in TO_ZERO:
        return 0.5 * float(best.mean())
    unit = float(j.constant.mean()) if j.cell.problem.family == "squared" else 1.0
    return max(0.01 * unit, 0.1 * float((best - j.floor).mean()))


def _smaller(epsilon: float) -> float:
    place = EPSILONS.index(epsilon)
    return EPSILONS[place - 1] if place else math.nan


def _fewer(other: Cell, cell: Cell) -> bool:
    a, b = other.problem, cell.problem
    alike = (a.family, a.law, a.n_features, other.epsilon) == (b.family, b.law, b.n_features, cell.epsilon)
    return alike and not b.real and 10 * a.n_rows == b.n_rows


def overall(found: Sequence[Judged]) -> dict[str, tuple[str, bool]]:
    """Shares over the cells that count: what is said, and whether it is enough."""
    counting = [j for j in found if j.cell.problem.counts]
    told: dict[str, tuple[str, bool]] = {}
    if ratios := [j.after for j in counting if j.after is not None]:
        good = sum(1 / FACTOR <= r <= FACTOR for r in ratios)
        promise = sum(r < 0.2 for r in ratios)
        said = f"{good} of {len(ratios)} within a factor {FACTOR:g}, {promise} below a fifth of the mean error"
        told["predicted error after the fit"] = said, good >= SHARE * len(ratios)
    if inside := [j.before for j in counting if j.before is not None]:
        said = f"the range has the mean error in {sum(inside)} of {len(inside)}"
        told["predicted error before the fit"] = said, sum(inside) >= SHARE * len(inside)
    for family, rules in RULES_OF.items():
        cells = [list(broken(j, found)) for j in counting if j.cell.problem.family == family]
        if cells:  # each that fails is named by itself
            shares = ", ".join(f"{rule} {sum(rule in names for names in cells)}" for rule in rules)
            told[f"{family}, failures in {len(cells)} cells"] = shares, True
    large = [j for j in counting if j.diffprivlib and j.cell.epsilon >= 1 and j.cell.problem.n_rows >= 1e5]
    if large:
        ours = float(np.mean([np.median(j.default - j.floor) for j in large]))
        theirs = float(np.mean([np.median(np.array(j.diffprivlib) - j.floor) for j in large]))
        said = f"{ours:.2g}, diffprivlib {theirs:.2g}, in {len(large)} cells"
        told["mean excess at n >= 1e5 and epsilon >= 1: half of diffprivlib's"] = said, ours <= theirs / 2
    return told
