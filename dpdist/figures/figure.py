"""`Figure`: what is compared in the panels of a figure, on which data, as jobs that are known to be valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpdist.jobs.job import Job

PRESETS = ("quick", "full")
ALONG: Mapping[str, str] = {"passes": "passes over the data", "rounds": "rounds"}
"""What x can be besides a key of the job: places along a run."""
METRICS: Mapping[str, str] = {
    "error": "error",
    "gap": "optimality gap",
    "gradient": "length of the projected gradient",
    "distance": "distance to the truth",
    "speed": "users per second",
}
"""What is measured, and the words for the axis; `dpdist.figures.measures` says how."""
AXES: Mapping[str, str] = {
    "budget.epsilon": "epsilon",
    "budget.delta": "delta",
    "data.n": "rows n",
    "data.d": "features d",
    "data.n_nonzero": "coefficients that matter",
    "params.solver.n_nonzero": "coefficients kept",
    "data.share": "share of the rows",
    "data.outliers": "share of wrong labels",
    "data.correlation": "correlation",
    "params.alpha": "penalty alpha",
    "cluster.workers": "worker processes",
}


@dataclass(frozen=True)
class Panel:
    """One of the pictures side by side: its name, x (a key or one of `ALONG`), and the key that its lines vary.

    ``bounds`` are curves that are drawn beside the runs: a label, and the name of one of `dpdist.figures.bounds`.
    """

    name: str
    x: str
    line: str | None
    bounds: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes
    ----------
    panel : int
    series : str
    line, x : number, text or None
        Values of the panel's keys; ``x`` is None where the run is a curve.
    seed : int
    job : Job
    table : str or None
        Address of the stored rows that are used in place of generated ones.
    """

    panel: int
    series: str
    line: Any
    x: Any
    seed: int
    job: Job
    table: str | None = None


@dataclass(frozen=True)
class Real:
    """The table that the generated rows of a figure stand in for.

    Attributes
    ----------
    name : str
    get : str
        Where it is, and how it becomes a dataset.
    unit_rows : bool
        Whether its rows are scaled to norm 1, as those of the stand-in are.
    """

    name: str
    get: str
    unit_rows: bool


@dataclass(frozen=True)
class Figure:
    """A figure that can be drawn: all its runs are valid jobs."""

    id: str
    title: str
    source: str
    about: str
    metric: str
    preset: str
    n_seeds: int
    series: tuple[str, ...]
    panels: tuple[Panel, ...]
    cells: tuple[Cell, ...]
    real: Real | None = None
