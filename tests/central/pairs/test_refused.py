"""What sums over pairs cannot be asked: one error each, before a row is read and before anything is charged."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger, MetricLearner, PairwiseRanker
from dpdist.central import (
    MetricGradient,
    PairChains,
    PairGradient,
    PairOnline,
    PairOutput,
    PairStream,
    PreconditionedPairs,
    Sample,
)
from dpdist.central.pairs.ranking_stream import Steps
from dpdist.errors import BudgetError, DpdistError, MissingBound
from dpdist.estimators.row_maps import features, targets
from dpdist.privacy.accounting.contraction import OnlinePath
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.mechanisms.additive import Gaussian, Laplace, SymmetricGaussian
from dpdist.queries.pair_iterates import ChainMeans, OnlinePoints
from dpdist.queries.pair_sums import BlockPairSum, PairSum, StreamPairSum

SOLVERS = (PairGradient, PreconditionedPairs, PairOutput, PairStream, PairOnline, PairChains, MetricGradient)
RANKERS = ("auto", "gradient", "preconditioned", "output", "stream", "online", "giga")
BOUNDS = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6}
ROWS = np.random.default_rng(0).normal(size=(50, 2))
SIGNS = np.where(np.arange(50) % 2, 1.0, -1.0)


@pytest.fixture
def unread(monkeypatch):
    monkeypatch.setattr("dpdist.data.sources.Source.verify", lambda *_: pytest.fail("a row was read"))


@pytest.mark.parametrize("solver", SOLVERS)
def test_samples_clipped_gradients_and_other_losses_have_nobody_to_read_them(solver):
    """A sample of rows would be one of pairs; noise behind the last step is for gradients of a convex loss."""
    for name, value in (("rows", Sample(0.1)), ("gradient", "clip"), ("loss", "sigmoid")):
        with pytest.raises(TypeError, match=f"has no parameter '{name}'"):
            solver(**{name: value})
    estimator = MetricLearner if solver is MetricGradient else PairwiseRanker
    for name, value in (("rows", Sample(0.1)), ("gradient", "clip"), ("loss", "sigmoid")):
        with pytest.raises(TypeError, match=f"has no parameter '{name}'"):
            estimator(solver(), **{name: value}, **BOUNDS)
    if solver not in (PairStream, PairOnline):
        with pytest.raises(TypeError, match="has no parameter 'memory'"):
            solver(memory="fifo")
        with pytest.raises(BudgetError, match=r"solver__memory: .* has no parameter 'memory'"):
            estimator(solver(), **BOUNDS).set_params(solver__memory="fifo")


@pytest.mark.parametrize("solver", RANKERS)
@pytest.mark.parametrize(
    ("change", "n_rows", "kind", "says"),
    [
        ({"delta": 0}, 50, BudgetError, "needs delta > 0"),
        ({"classes": None}, 50, MissingBound, "threshold for labels that are numbers"),
        ({}, 1, BudgetError, "1 row makes no pair"),
    ],
)
def test_what_no_ranking_can_do_is_refused_before_a_row_is_read(unread, solver, change, n_rows, kind, says):
    ledger = Ledger(":memory:")
    rows = Dataset.from_arrays(X=ROWS[:n_rows], y=ROWS[:n_rows, 0], dataset_id="rows")
    with pytest.raises(kind, match=says):
        PairwiseRanker(solver, ledger=ledger, **{**BOUNDS, **change}).fit(rows)
    assert ledger.history("rows") == []


def test_too_few_rows_for_a_block_and_no_delta_are_no_metric(unread):
    for change, says in (({}, "50 rows are too few for one block of 100"), ({"delta": 0}, "needs delta > 0")):
        with pytest.raises(BudgetError, match=says):
            MetricLearner(**{**BOUNDS, **change}).fit(ROWS, np.arange(50) % 2)


STREAM, CHAIN = StreamPath("all", 5, 10), StreamPath("fifo", 5, 10, together=2)
QUERIES = {
    "all pairs": (PairSum(1.0, 50, 2), 1, np.ones(2), Gaussian(), {}),
    "blocks": (BlockPairSum(2, 1.0, 5), 5, np.eye(2), SymmetricGaussian(), {}),
    "points": (OnlinePoints(1.0, 1.0, 2, OnlinePath(50, 0.5, 4.0)), 50, None, Gaussian(), {}),
    "means": (ChainMeans(1.0, 1.0, 2, OnlinePath(10, 0.5, 4.0)), 10, None, Gaussian(), {}),
    "stream": (StreamPairSum(1.0, 2, STREAM), 1, np.ones(2), Gaussian(), {"count": 4, "path": STREAM}),
    "chain": (StreamPairSum(1.0, 2, CHAIN), 1, Steps(np.ones(2), 1.0, 1.0), Gaussian(), {"count": 2, "path": CHAIN}),
}


@pytest.mark.parametrize("name", QUERIES)
def test_pairs_are_not_asked_of_samples_or_of_parts_that_blocks_do_not_fit(unread, name):
    query, align, state, mechanism, more = QUERIES[name]
    data = Dataset.from_arrays(X=ROWS, y=SIGNS, dataset_id="rows")
    fold = data.split(3)[1]  # rows 16 to 33
    cases = [({"sampling": Poisson(0.1)}, {}, "is not a sum|pay unequally")]
    if name != "all pairs":  # of which a part is bounded like the whole
        cases.append(({"fold": (fold.split_id, 1)}, {"rows": fold}, "reads .* rows together|pay unequally"))
    if more:
        cases.append(({"mechanism": Laplace()}, {}, "pay unequally"))
    for change, asked, says in cases:
        ledger = Ledger(":memory:")
        settings = {"arrays": {"X": features, "y": targets}, "cluster": "threads", "align": align, "ledger": ledger}
        with Coordinator(data, Budget(1.0, 1e-3), **settings) as coordinator, pytest.raises(DpdistError, match=says):
            plan = coordinator.plan([Item("pairs", **{"mechanism": mechanism, **more, **change})])
            coordinator.release(query, plan["pairs"], state, **asked)
        assert ledger.spent("rows").epsilon == 0
