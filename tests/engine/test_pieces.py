"""Small partitions are joined where that changes nothing: not the rows, not their borders' multiples, not a value."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset
from dpdist.engine.pieces import JOINED_BYTES, LEAST_RANGES, joined
from dpdist.estimators.row_maps import features
from dpdist.losses import Squared
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.gradient_sums import GradientSum


@pytest.mark.parametrize("n_threads", [1, 2, 16])
@pytest.mark.parametrize("row_bytes", [0, 8, 4000, 2**23])
def test_joined_ranges_are_the_same_rows(n_threads, row_bytes):
    rng = np.random.default_rng(row_bytes + n_threads)
    for size in (1, 3, 50, 5000):
        edges = np.cumsum([0, *rng.integers(1, size + 1, 300)]).tolist()
        ranges = list(itertools.pairwise(edges))
        found = joined(ranges, row_bytes, n_threads)
        assert [edge for edge, _ in found] + [edges[-1]] == sorted({edge for each in found for edge in each})
        assert {edge for each in found for edge in each} <= set(edges)
        for start, stop in set(found) - set(ranges):
            assert (stop - start) * row_bytes <= JOINED_BYTES
            assert (stop - start) * LEAST_RANGES * n_threads <= edges[-1]


@pytest.mark.parametrize("part", [None, 0, 2])
def test_a_release_is_the_same_from_many_partitions(part):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 3)), rng.normal(size=3000)
    values = []
    for rows in (3, 3000):
        dataset = Dataset.from_arrays(X=X, y=y, partition_rows=rows, row_order="arrival")
        fold = None if part is None else dataset.split(3, Neighbours.REPLACE_ONE)[part]
        item = Item("gradient", Gaussian(), fold=None if fold is None else (fold.split_id, fold.index))
        with Coordinator(
            dataset, Budget(1.0, 1e-6), arrays={"X": features, "y": np.asarray}, ledger=Ledger(":memory:"),
            cluster="threads", random_state=3,
        ) as coordinator:  # fmt: skip
            planned = coordinator.plan([item])["gradient"]
            query = GradientSum(Squared(), row_norm=2.0, clip_norm=2.0)
            values.append(coordinator.release(query, planned, np.zeros(3), rows=fold))
    assert values[0].tolist() == values[1].tolist()
