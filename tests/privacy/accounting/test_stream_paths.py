"""What the dearest row of a stream pays: against a simulation of the path, and of the rows themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.composition import total_epsilon
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.releases import Poisson, Releases
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms.additive import DiscreteLaplace, Gaussian
from dpdist.queries.pair_sums import StreamPairSum

PATHS = [StreamPath(memory, n, b, kept) for memory, kept in (("all", 1), ("fifo", 1), ("fifo", 3)) for n in (2, 3, 9)
         for b in (1, 2)]  # fmt: skip
PATHS += [StreamPath(memory, n, 2, 3, seed) for memory in ("reservoir", "rsx") for n, seed in ((9, 0), (60, 1))]
PATHS += [StreamPath("fifo", n, 2, together=k) for n, k in ((3, 2), (9, 4))]
PATHS += [StreamPath(memory, 4, 1, 2, 1) for memory in ("reservoir", "rsx")]


def dearest(path: StreamPath) -> float:
    """Block by block."""
    paid = [0.0] * path.n_blocks
    for step in range(path.n_steps):
        paid[step + 1] += 1
        past = list(path.past(step))
        for block in set(past):
            paid[block] += (past.count(block) / len(past)) ** 2
    return max(paid)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_the_dearest_row_is_found(path):
    assert path.paid == pytest.approx(dearest(path), rel=1e-9) and path.paid >= dearest(path)


def test_the_limits_are_those_of_theory():
    assert StreamPath("all", 10**6, 1).paid == pytest.approx(math.pi**2 / 6, abs=1e-5)
    assert StreamPath("fifo", 10**6, 1).paid == pytest.approx(2)
    assert StreamPath("fifo", 10**6, 1, 4).paid == pytest.approx(1 + 1 / 4 + 1 / 9 + 1 / 16 + 1 / 16)


def statistic(query, w, X, y):
    return query.explore(lambda w: query.summarise({"X": X, "y": y}, w, None), w, None, None)


@pytest.mark.parametrize("path", [p for p in PATHS if p.n_blocks < 9], ids=str)
def test_no_row_of_a_tiny_stream_pays_more(path):
    """Replace each row by each of many: the squares of what it moves, over the sensitivities, are paid for."""
    rng, n = np.random.default_rng(0), path.n_blocks * path.block_rows
    queries = [StreamPairSum(1.0, 2, path, step) for step in range(path.n_steps)]
    points = [np.zeros(2), np.array([40.0, 0.0]), rng.normal(size=2) * 5]
    most = 0.0
    for _ in range(12):
        X, y = rng.choice([-1e6, 0.0, 1e6], size=(n, 2)), rng.choice([-1.0, 1.0, -1.0], n)
        for row in range(n):
            other, labels = X.copy(), y.copy()
            other[row], labels[row] = rng.choice([-1e6, 0.3, 1e6], size=2), rng.choice([-1.0, 1.0])
            for w in points:
                squares = 0.0
                for query in queries:
                    sums = [statistic(query, w, *rows) for rows in ((X, y), (other, labels))]
                    moved = np.linalg.norm((sums[0] - sums[1]).astype(float)) * query.grid
                    squares += (moved / query.sensitivity(Neighbours.REPLACE_ONE)) ** 2
                most = max(most, squares / path.paid)
    assert 0.15 < most <= 1 + 1e-9


def test_noise_is_calibrated_to_the_dearest_row():
    path = StreamPath("fifo", 101, 10)
    plan = calibrate([Item("pairs", Gaussian(), 100, path=path)], Budget(1.0, 1e-6))
    assert plan["pairs"].mechanism.strength * math.sqrt(path.paid) == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-6)
    assert plan.total_mu == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-6) and plan.spent.epsilon <= 1.0
    alike = calibrate([Item("pairs", Gaussian(), 100)], Budget(1.0, 1e-6))
    assert plan["pairs"].mechanism.strength > 7 * alike["pairs"].mechanism.strength
    assert plan.digest() != alike.digest()
    two = [Item("pairs", Gaussian(), 100, path=path, share=0.5), Item("moment", Gaussian(), share=0.5)]
    both = calibrate(two, Budget(1.0, 1e-6))
    assert both.total_mu == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-6)
    # whoever adds up what a plan shows comes to what is charged
    shown = both.describe()
    total = sum(row["parameter"] ** 2 * row.get("paid", row["count"]) for row in shown)
    assert math.sqrt(total) == pytest.approx(both.total_mu) and f"{path.paid:.6g}" in str(both)


def test_what_does_not_add_up_row_by_row_is_refused():
    path = StreamPath("all", 11, 5)
    with pytest.raises(BudgetError, match="its path has 10 releases, and its count is 3"):
        Item("pairs", Gaussian(), 3, path=path)
    for item in (
        Item("pairs", DiscreteLaplace(), 10, path=path),
        Item("pairs", Gaussian(), 10, path=path, sampling=Poisson(0.1)),
        Item("pairs", Gaussian(), 10, path=path, fold=("slots-2", 0)),
    ):
        with pytest.raises(BudgetError, match="rows pay unequally for Gaussian releases of all rows only"):
            calibrate([item], Budget(1.0, 1e-6))
    stream, other = Releases(Cost("gaussian", 0.1), 10, paid=1.6), Releases(Cost("pure", 0.1))
    with pytest.raises(BudgetError, match="compose with Gaussian releases of all rows only"):
        total_epsilon([stream, other], 1e-6, Neighbours.REPLACE_ONE)
