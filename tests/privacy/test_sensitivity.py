"""No query escapes: the declared sensitivity of every registered query, exactly, on adversarial neighbours."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpdist
from dpdist.central.columns import ClassCodes, features, targets
from dpdist.central.queries import GradientSum, LargestEigenvalue
from dpdist.engine.query import QUERIES, Query
from dpdist.engine.shards import Prepare
from dpdist.losses import Huber, Logistic, SmoothedHinge, Squared
from dpdist.privacy.audit import SensitivityViolation, adversarial_rows, sensitivity_fuzz
from dpdist.privacy.budget import Neighbours

D = 5
SIGNS = ClassCodes((0, 1))


@dataclass(frozen=True)
class Case:
    """A query with a state to ask it at, and labels that rows may have."""

    query: Query
    state: Any = None
    labels: tuple[Any, ...] = (0, 1)
    encode: Prepare = SIGNS

    def units(self, dtype: str) -> Callable[[list[tuple[np.ndarray, Any]]], list[int]]:
        def statistic(rows: list[tuple[np.ndarray, Any]]) -> list[int]:
            X = features(np.array([x for x, _ in rows], dtype=dtype))
            y = self.encode(np.array([y for _, y in rows]))
            with np.errstate(all="ignore"):
                total = self.query.summarise({"X": X, "y": y}, self.state, None)
            return [int(v) for v in self.query.statistic(total)[0]]

        return statistic

    def bounds(self) -> dict[Neighbours, Fraction]:
        grid = self.query.statistic(self.query.summarise({"X": np.zeros((1, D)), "y": np.ones(1)}, self.state, None))[1]
        return {relation: Fraction(self.query.sensitivity(relation)) / Fraction(grid) for relation in Neighbours}


W = np.array([1.0, -2.0, 0.5, 30.0, 0.0])
REALS = (0.0, -3.5, 1e308, -1e-320, np.nan, np.inf, 1e9)

CASES: dict[type[Query], list[Case]] = {
    GradientSum: [
        Case(GradientSum(Logistic(), 1.0, 1.0), W),
        Case(GradientSum(Logistic(), 1.0, 1.2, intercept=0.4), np.append(W, -3.0)),
        Case(GradientSum(Logistic(), 3.0, 0.1), W * 1e12),
        Case(GradientSum(SmoothedHinge(), 2.0, 2.0, target=2), W, (0, 1, 2, 7), ClassCodes((0, 1, 2))),
        Case(GradientSum(Squared(), 1.0, 5.0, intercept=1.0), np.append(W, 1.0), REALS, targets),
        Case(GradientSum(Squared(), 1e-6, 1e6), W * 1e200, REALS, targets),
        Case(GradientSum(Huber(0.7), 1.0, 0.7), W, REALS, targets),
    ],
    LargestEigenvalue: [
        Case(LargestEigenvalue(D, 1.0, 10)),
        Case(LargestEigenvalue(D, 2.5, 3, intercept=1.0)),
    ],
}


def all_queries() -> list[type[Query]]:
    for module in pkgutil.walk_packages(dpdist.__path__, "dpdist."):
        if not module.name.startswith(("dpdist.cli", "dpdist.pipeline")):  # thin layers; test_layers keeps them so
            importlib.import_module(module.name)
    return [query for query in QUERIES if query.__module__.startswith("dpdist.")]


@pytest.mark.parametrize("query", all_queries(), ids=lambda q: q.__name__)
def test_every_query_has_a_case(query):
    assert CASES.get(query), f"add adversarial cases for {query.__name__} to CASES"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", [c for cases in CASES.values() for c in cases], ids=lambda c: repr(c.query))
def test_no_neighbours_exceed_the_declared_sensitivity(case, dtype):
    rng = np.random.default_rng(0)
    rows = []
    for i, (kind, x) in enumerate(adversarial_rows(D, dtype, rng)):
        for label in (case.labels[i % len(case.labels)], case.labels[(i + 1) % len(case.labels)]):
            rows.append((f"{kind}, y={label}", (x, label)))
    worst = sensitivity_fuzz(case.units(dtype), rows, case.bounds(), case.query.norm, rng, n_bases=2)
    # a bound that is never nearly reached would hide a query that does nothing
    assert worst[Neighbours.ADD_OR_REMOVE_ONE] > 0.4


def test_the_fuzz_finds_an_unclipped_row():
    class Unclipped(Case):
        def units(self, dtype):
            right = super().units(dtype)

            def statistic(rows):
                extra = sum(1 for x, _ in rows if x[0] == 1e200)
                return [v + extra * 2**34 for v in right(rows)]

            return statistic

    case = Unclipped(GradientSum(Logistic(), 1.0, 1.0), W)
    rng = np.random.default_rng(0)
    rows = [(kind, (x, 1)) for kind, x in adversarial_rows(D, "float64", rng)]
    with pytest.raises(SensitivityViolation):
        sensitivity_fuzz(case.units("float64"), rows, case.bounds(), 2, rng, n_bases=1)


def test_split_blocks_give_the_same_statistic():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(5000, D)) * 3, rng.choice([-1.0, 1.0], 5000)
    for case in CASES[GradientSum][:2] + CASES[LargestEigenvalue]:
        whole = case.query.summarise({"X": X, "y": y}, case.state, None)
        parts = [
            case.query.summarise({"X": X[a : a + 777], "y": y[a : a + 777]}, case.state, None)
            for a in range(0, 5000, 777)
        ]
        assert np.array_equal(whole, sum(parts))
