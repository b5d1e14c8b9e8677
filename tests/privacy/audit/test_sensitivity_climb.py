"""Hill-climbing over adversarial neighbours, in exact integers; and what it has to find where a bound is wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

from dpdist.data import Units
from dpdist.engine.query import Query
from dpdist.losses import Biweight, Cauchy, Logistic, ResidualSquares, Sigmoid, SquaredProbability, Welsch
from dpdist.privacy.audit.sensitivity_climb import climb
from dpdist.privacy.audit.sensitivity_fuzz import SensitivityViolation, adversarial_rows, distance_ratio
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import FROBENIUS, NUCLEAR, Schatten
from dpdist.queries.moment_sums import HessianSum, SecondMomentSum

D = 3
WILD = (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e-200, 1e39, -0.0)
REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE
W = np.array([1.5, -0.7, 0.3])
Row = tuple[np.ndarray, float]


def mutate(row: Row, rng: np.random.Generator) -> Row:
    x, y = row[0].copy(), row[1]
    kind = rng.integers(8)
    if kind == 0:
        with np.errstate(over="ignore"):
            x *= 2.0 ** rng.integers(-3, 4)
    elif kind == 1:
        x = -x
    elif kind == 2:
        x[rng.integers(D)] = WILD[rng.integers(len(WILD))]
    elif kind == 3:
        y = -y
    elif kind == 4:
        y = float(rng.normal() * 3) if rng.integers(3) else WILD[rng.integers(len(WILD))]
    else:
        x += rng.normal(size=D) * 10.0 ** rng.uniform(-3, 0) * (1 + np.nan_to_num(abs(x), posinf=0).clip(max=10))
        y += float(rng.normal() * 10.0 ** rng.uniform(-3, 0))
    return x, y


def mutate_sign(row: Row, rng: np.random.Generator) -> Row:
    x, _ = mutate((row[0], 1.0), rng)
    return x, float(rng.choice([-1.0, 1.0])) if rng.integers(3) == 0 else row[1]


def sum_of(query: Query, state: Any = None, dtype: Any = np.float64) -> Any:
    def exact(rows: list[Row]) -> list[int]:
        with np.errstate(all="ignore"):
            X = np.array([x for x, _ in rows]).reshape(-1, D).astype(dtype)
            block = {"X": X, "y": np.array([y for _, y in rows])}
            return [int(v) for v in query.summarise(block, state, None)]

    return exact


def starts(rng: np.random.Generator, n: int, sizes: tuple[int, int] = (1, 1)) -> list[tuple[list[Row], list[Row]]]:
    catalogue = [x for _, x in adversarial_rows(D, np.float64, rng)]

    def row() -> Row:
        x = rng.normal(size=D) if rng.integers(2) else catalogue[rng.integers(len(catalogue))].copy()
        return x, float(rng.choice([-1.0, 1.0]))

    return [tuple([row() for _ in range(size)] for size in sizes) for _ in range(n)]  # type: ignore[misc]


def bound(query: Query, relation: Neighbours, norm: float, units: Units | None = None) -> Fraction:
    declared = query.sensitivity(relation, norm) if units is None else query.unit_sensitivity(relation, norm, units)
    return Fraction(declared) / Fraction(query.grid)


MOMENTS = [
    SecondMomentSum(D, 1.3),
    SecondMomentSum(D, 1.3, unit=True),
    SecondMomentSum(D, 1.3, label_bound=2.0, label_scale=0.7),
    SecondMomentSum(D, 0.1, label_bound=50.0, label_scale=0.002),
]
HESSIANS = [
    (HessianSum(Logistic(), 1.3), mutate_sign),
    (HessianSum(Sigmoid(), 1.3), mutate_sign),
    (HessianSum(SquaredProbability(), 3.0), mutate_sign),
    (HessianSum(Biweight(1.0), 1.3), mutate),
    (HessianSum(ResidualSquares(0.7), 1.3), mutate),
    (HessianSum(ResidualSquares(0.7), 1.3, weighed=True), mutate),
    (HessianSum(Welsch(1.0), 1.3), mutate),
    (HessianSum(Cauchy(0.5), 1.3), mutate),
]


@pytest.mark.parametrize("norm", [FROBENIUS, NUCLEAR, 2.0, 1.0], ids=str)
@pytest.mark.parametrize("query", MOMENTS, ids=repr)
def test_no_climb_leaves_the_bounds_of_second_moments(query, norm):
    rng = np.random.default_rng(1)
    for relation, sizes in ((REPLACE, (1, 1)), (ADD, (0, 1))):
        found = climb(sum_of(query), starts(rng, 6, sizes), mutate, bound(query, relation, norm), norm, rng)
        assert found > (0.8 if isinstance(norm, Schatten) else 0.6), "a search that never comes near proves little"


@pytest.mark.parametrize(("query", "change"), HESSIANS, ids=lambda value: getattr(value, "__name__", repr(value)[:60]))
def test_no_climb_leaves_the_bounds_of_hessians(query, change):
    rng = np.random.default_rng(2)
    for relation, sizes in ((REPLACE, (1, 1)), (ADD, (0, 1))):
        total = sum_of(query, W, np.float32 if relation is ADD else np.float64)
        found = climb(total, starts(rng, 8, sizes), change, bound(query, relation, FROBENIUS), FROBENIUS, rng)
        assert found > 0.75
        found = climb(
            sum_of(query, W), starts(rng, 2), change, bound(replace(query, sampled=True), REPLACE, FROBENIUS),
            FROBENIUS, rng, n_steps=50,
        )  # fmt: skip


@pytest.mark.parametrize("query", [MOMENTS[0], MOMENTS[2], HESSIANS[1][0]], ids=repr)
def test_units_with_several_rows(query):
    rng, change = np.random.default_rng(3), mutate_sign if isinstance(query, HessianSum) else mutate
    total = sum_of(query, W)
    for sizes in ((3, 3), (1, 3), (0, 2)):
        limit = bound(query, REPLACE, FROBENIUS, Units("patient", 3))
        assert climb(total, starts(rng, 4, sizes), change, limit, FROBENIUS, rng) > 0.3
    limit = bound(query, ADD, FROBENIUS, Units("patient", 3))
    assert climb(total, starts(rng, 4, (0, 3)), change, limit, FROBENIUS, rng) > 0.5


def test_a_row_of_a_pair_moves_one_pair():
    query = SecondMomentSum(D, 1.3, paired=True)
    rng, rest = np.random.default_rng(4), [(np.random.default_rng(i).normal(size=D), 1.0) for i in range(5)]
    for place in range(6):
        total = sum_of(query)

        def at_place(rows: list[Row], place: int = place, total: Any = total) -> list[int]:
            return total([*rest[:place], *rows, *rest[place:]])

        assert climb(at_place, starts(rng, 3), mutate, bound(query, REPLACE, FROBENIUS), FROBENIUS, rng) > 0.7


# --- controls: what must be found ---------------------------------------------------------------------------------


def test_entrywise_truncation_of_products_is_found():
    def truncated_products(rows: list[Row]) -> list[int]:
        total = np.zeros(D * (D + 1) // 2, dtype=np.int64)
        for x, _ in rows:
            norm = np.linalg.norm(x)
            if np.isfinite(norm):
                x = x * min(1.0, 1.0 / norm) if norm > 0 else x
                total += np.trunc(np.outer(x, x)[np.triu_indices(D)] * 8).astype(int)
        return total.tolist()

    rng = np.random.default_rng(5)
    limit = Fraction(math.sqrt(2) * (1 + 1e-15)) * 8
    with pytest.raises(SensitivityViolation), np.errstate(all="ignore"):
        climb(truncated_products, starts(rng, 1000), mutate, limit, FROBENIUS, rng, n_steps=60)


@dataclass(frozen=True)
class Understated(Sigmoid):
    """A sigmoid that calls itself convex."""

    convex: ClassVar[bool] = True
    curvature_range: ClassVar[tuple[float, float]] = (-0.09, 0.0963)

    def second_derivative(self, u: Any, y: Any) -> Any:
        return 1.5 * super().second_derivative(u, y)


@dataclass(frozen=True)
class Unclamped(HessianSum):
    """The declared bound of one loss, the curvature of another that is steeper: what a missing clamp would do."""

    tag: ClassVar[str] = "Unclamped"

    def summarise(self, block: Any, state: Any, rows: Any) -> Any:
        from dpdist.kernels.moments import moment_grid, moment_radius, second_moment

        weights = Sigmoid().second_derivative(block["X"] @ state, block["y"])
        weights = np.where(np.isfinite(weights) & (abs(block["y"]) == 1), weights, 0.0)
        ratio = moment_grid(moment_radius(self.row_norm, weight_bound=Sigmoid().curvature_bound)) / self.grid
        assert ratio == 1
        return second_moment(
            block["X"], self.row_norm, weights=lambda a, b: weights[a:b], weight_bound=Sigmoid().curvature_bound
        )


@dataclass(frozen=True)
class OneSided(Sigmoid):
    """A sigmoid whose negative curvature is not declared."""

    convex: ClassVar[bool] = True
    curvature_range: ClassVar[tuple[float, float]] = (0.0, Sigmoid.curvature_bound)


def test_an_understated_range_is_found_if_curvatures_are_not_clamped_to_it():
    rng, limit = np.random.default_rng(6), bound(HessianSum(OneSided(), 1.3), REPLACE, FROBENIUS)
    with pytest.raises(SensitivityViolation):
        climb(sum_of(Unclamped(OneSided(), 1.3), W), starts(rng, 20), mutate_sign, limit, FROBENIUS, rng, n_steps=500)


@pytest.mark.parametrize("loss", [Understated(), OneSided()], ids=repr)
def test_an_understated_range_is_enforced_by_the_clamp(loss):
    query, rng = HessianSum(loss, 1.3), np.random.default_rng(7)
    climb(sum_of(query, W), starts(rng, 10), mutate_sign, bound(query, REPLACE, FROBENIUS), FROBENIUS, rng)


def test_sensitivity_one_in_place_of_root_two_is_found():
    query, rng = SecondMomentSum(D, 1.0), np.random.default_rng(8)
    with pytest.raises(SensitivityViolation):
        climb(sum_of(query), starts(rng, 20), mutate, Fraction(1) / Fraction(query.grid), FROBENIUS, rng)


def test_the_norm_of_the_packed_vector_is_not_that_of_the_matrix():
    """A fuzz that measured the wrong one would let a matrix pass that is too large."""
    assert distance_ratio([1, 1, -1], 2, FROBENIUS) == (1.0, False)
    assert distance_ratio([1, 1, -1], 2, 2)[0] < 0.87
    assert distance_ratio([2, 2, 2], Fraction(4), NUCLEAR) == (pytest.approx(1.0), False)
    assert distance_ratio([2, 2, 2], Fraction(4) - Fraction(1, 10**30), NUCLEAR)[1]
    assert not distance_ratio([3, 0, -4], Fraction(7), NUCLEAR)[1]
    assert distance_ratio([3, 0, -4], Fraction(7) - Fraction(1, 10**30), NUCLEAR)[1]
    with pytest.raises(ValueError, match="packed"):
        distance_ratio([1, 2], 1, FROBENIUS)
