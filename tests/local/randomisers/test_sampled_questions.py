"""A question that computes the sampled coordinates only has the law of one that computes all of them.

A report is a function of random words and of the values at the coordinates that some of the words draw. So the laws
are the same if the values are, bit for bit, for every record and every coordinate that can be drawn: that is checked
for all records over a small domain of entries. That the words are the same is checked on all of a lattice of them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.statistics.bounded_values import COMPILED_FROM, Box, Truncated
from dpdist.local.statistics.residuals import BoxResiduals
from dpdist.local.survey.protocol import Block, LocalProtocol, Statistic
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws
from tests.local.survey.parities import Parities

D = 3
ENTRIES = (np.nan, np.inf, -np.inf, 1e308, -1.5, -0.0, 0.3, 5e-324)
LABELS = (np.nan, np.inf, -1e308, 0.2)
STATE = np.array([0.0, 0.7, -0.2])
STATISTICS = [
    Box(D, -1.0, 2.0),
    Truncated(D, 0.4),
    BoxResiduals(D, residual_bound=1.0, feature_bound=0.9),
    BoxResiduals(D, residual_bound=1.0, feature_bound=0.9, row_norm=1.1),
    Parities(D, 8),
]


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["float64", "float32"])
def records(request) -> dict[str, NDArray[Any]]:
    """All there are."""
    rows = np.array([(*x, y) for *x, y in itertools.product(*[ENTRIES] * D, LABELS)])
    with np.errstate(over="ignore"):
        return {"X": rows[:, :D].astype(request.param), "y": rows[:, D]}


def same_bits(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return bool((one.view(np.int64) == other.view(np.int64)).all())


def agrees(statistic: Statistic, records: Block, block_rows: int) -> bool:
    """Whether values at every ordered pair of coordinates are those of the dense values, for blocks of that size."""
    n, agreed = len(records["y"]), True
    for pair in itertools.permutations(range(statistic.size), 2):
        for start in range(0, n, block_rows):
            block = {name: values[start : start + block_rows] for name, values in records.items()}
            coordinates = np.tile(np.array(pair), (len(block["y"]), 1))
            dense = statistic.values(block, STATE)[:, list(pair)]
            agreed &= same_bits(np.ascontiguousarray(dense), statistic.values_at(block, coordinates, STATE))
    return agreed


@pytest.mark.parametrize("block_rows", [7, COMPILED_FROM, 10**4])
@pytest.mark.parametrize("statistic", STATISTICS, ids=repr)
def test_values_at_coordinates_are_those_of_the_dense_statistic(statistic, block_rows, records):
    kept = slice(None, None, 1 if block_rows > 7 else 19)  # in small blocks every nineteenth record
    assert agrees(statistic, {name: values[kept] for name, values in records.items()}, block_rows)


class Forgetful(Truncated):
    """Takes a record for null only if what it looks at is missing: reports would tell which records are null."""

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> NDArray[np.float64]:
        X = np.take_along_axis(block["X"], coordinates, axis=1)
        return self._truncated(X, np.isfinite(X).all(axis=1))


def test_a_statistic_that_looks_for_missing_numbers_only_where_it_is_asked_is_caught(records):
    assert not agrees(Forgetful(D, 0.4), records, 10**4)


class Lattice(StreamDraws):
    """Every user draws the next words of a list that all of them share."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.listed = words

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.resize(self.listed, n)


@dataclass(frozen=True)
class Sparing(Truncated):
    """Never computes all values."""

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        raise AssertionError("all values of a user were computed")


LAWS = [(1, "one-bit"), (1, "hybrid"), (2, "hybrid"), (3, "piecewise")]


@pytest.mark.parametrize(("k", "reporter"), LAWS)
@pytest.mark.parametrize("statistic", STATISTICS[1:3], ids=repr)
def test_every_word_gives_the_report_of_the_dense_question(statistic, k, reporter, records):
    """A lattice of the words that draw coordinates, times one of those that draw what is said about them."""
    where = (np.arange(D * 4, dtype=np.uint64) << np.uint64(32)) * np.uint64(2**32 // (D * 4)) + np.uint64(2**31)
    what = np.arange(11, dtype=np.uint64) * np.uint64(2**64 // 11) + np.uint64(12345)
    words = np.array([(*[a] * k, *np.roll([b] * k, 1)) for a in where for b in what], dtype=np.uint64)
    randomiser = SampleCoordinates(D, 2.0, n_sampled=k, reporter=reporter)
    protocol = LocalProtocol(statistic, randomiser)
    picked = {name: values[::7] for name, values in records.items()}
    users = {name: np.repeat(values, len(words), axis=0) for name, values in picked.items()}
    reports = protocol.randomise(users, Lattice(words), STATE)
    dense = randomiser.randomise(statistic.values(users, STATE), Lattice(words))
    assert reports.dtype == dense.dtype and (reports == dense).all() and randomiser.valid(reports).all()
    assert len(set(reports["coordinate"][:, 0].tolist())) == D - k + 1 and len(np.unique(reports["value"])) > 1
    total = protocol.summarise(users, Lattice(words), STATE)
    assert (total == randomiser.accumulate(dense)).all()
    assert (total == randomiser.summarise(statistic.values(users, STATE), Lattice(words))).all()


@pytest.mark.parametrize("n", [1, 5000])
def test_only_the_sampled_values_are_computed(n):
    X = np.random.default_rng(0).standard_normal((n, 9))
    protocols = [LocalProtocol(kind(9, 0.5), SampleCoordinates(9, 6.0)) for kind in (Sparing, Truncated)]
    draws = [StreamDraws(np.random.Generator(np.random.Philox(1))) for _ in range(4)]
    one, other = (p.randomise({"X": X}, d) for p, d in zip(protocols, draws, strict=False))
    assert (one == other).all() and protocols[0].randomiser.k == 2
    assert (protocols[0].summarise({"X": X}, draws[2]) == protocols[1].accumulate(other)).all()
    assert protocols[0].randomiser.valid(protocols[0].randomise({"X": X}, SystemDraws())).all()
