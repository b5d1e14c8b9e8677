"""Cells: one problem at one epsilon, and everybody's errors in it, one line of a file each.

A cell that the file has is not run again, so that hours of work can be interrupted. To measure it anew, delete its
line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.answers import real_tables
from tests.benchmarks.answers.problems import Problem, generated

HERE = Path(__file__).parent
RECORDED, DIFFPRIVLIB = HERE / "recorded.jsonl", HERE / "diffprivlib.jsonl"
EPSILONS = (0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Cell:
    """A problem at an epsilon."""

    problem: Problem
    epsilon: float

    @property
    def name(self) -> str:
        return f"{self.problem.name} eps {self.epsilon:g}"


def problems() -> list[Problem]:
    """All of them, the cheapest first."""
    return sorted([*generated(), *real_tables.real()], key=lambda p: p.n_rows * p.n_features)


def cells() -> list[Cell]:
    """The whole."""
    return [Cell(problem, epsilon) for problem in problems() for epsilon in EPSILONS]


QUICK_LAWS = {
    "logistic": ("three factors", "counts", "3 % positives", "affairs"),
    "squared": ("blocks of five", "mixed units", "CPS1988: log wage"),
    "robust": ("three factors", "counts"),
    "sparse": (),
    "sparse classes": (),
    "hinge": (),
    "four classes": (),
}


def quick() -> list[Cell]:
    """What a test can wait for: the fixed part with few rows and columns."""
    return [c for c in cells() if c.problem.law in QUICK_LAWS[c.problem.family] and _small(c.problem)]


def _small(problem: Problem) -> bool:
    return problem.n_features <= 10 and problem.n_rows <= 25_000


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Lines by the name of their cell."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["cell"]: line for line in map(json.loads, lines)}


def missing(wanted: Sequence[Cell], path: Path) -> Iterator[Cell]:
    """Cells that are not in the file."""
    known = read(path)
    return (cell for cell in wanted if cell.name not in known)


def append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def run(cell: Cell) -> dict[str, Any]:
    """Fit everybody."""
    from tests.benchmarks.answers import contenders  # not in the environment that records diffprivlib

    problem, epsilon = cell.problem, cell.epsilon
    line: dict[str, Any] = {"cell": cell.name, **contenders.references(problem)}
    if problem.family == "squared":
        line["adassp"] = contenders.adassp(problem, epsilon)["error"]
    line["own"] = contenders.everybody(problem, epsilon)
    return line
