"""Rankings that follow a stream: how good, what rows pay, what goes on after a crash, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger, PairwiseRanker
from dpdist.central import PairStream
from dpdist.errors import BudgetError, DpdistError
from dpdist.estimators.outlook import nobody_asks
from dpdist.estimators.row_maps import features, targets
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.queries.pair_sums import PairSum, StreamPairSum
from tests.central.pairs.test_ranking import BOUNDS, GENERATED, ROWS, X, Y, best, risk

PREPARE = {"X": features, "y": targets}


@pytest.fixture(scope="module")
def fitted():
    return PairwiseRanker("stream", **BOUNDS).fit(GENERATED.dataset)


def test_a_stream_is_ranked_well(fitted):
    assert GENERATED.metrics(fitted)["error"] < 0.04
    assert fitted.guarantee_.mu == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-6)
    assert fitted.n_iter_ == len(fitted.releases_) == fitted.plan_["pairs"].count


def test_the_noise_is_for_two_releases_and_half_the_general_bound(fitted):
    path = fitted.plan_["pairs"].path
    std = fitted.releases_[0].noise_std * 2 / path.block_rows**2
    assert std == pytest.approx(4 / path.block_rows * math.sqrt(2) / gdp_mu(1.0, 1e-6), rel=1e-6), "G/b, G = 4 R"


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "band", "share"), [("fifo", 0.093, 0.88), ("all", 0.081, 0.75)])
def test_the_excess_is_within_its_band_and_below_that_of_doubled_noise(monkeypatch, memory, band, share):
    least = risk(best())

    def excess(rounds=None):
        found = [
            PairwiseRanker(PairStream(rounds, memory=memory), **{**BOUNDS, "random_state": s}).fit(GENERATED.dataset)
            for s in range(5)
        ]
        return float(np.mean([risk(model.coef_) for model in found])) - least, found[0].n_iter_

    ours, rounds = excess()
    assert 0 < ours <= band
    bound = StreamPairSum.bound.fget
    monkeypatch.setattr(StreamPairSum, "bound", property(lambda self: 2 * bound(self)))
    assert ours <= share * excess(rounds)[0]


@pytest.mark.parametrize("memory", ["reservoir", "rsx"])
def test_a_random_buffer_ranks_as_well_and_is_paid_for_by_its_path(memory):
    solver = PairStream(12, memory=memory, n_kept=4, seed=3)
    model = PairwiseRanker(solver, **BOUNDS).fit(GENERATED.dataset)
    assert GENERATED.metrics(model)["error"] < 0.08
    assert model.guarantee_.mu == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-6)
    fifo = PairwiseRanker(PairStream(12, n_kept=4), **BOUNDS).plan(10_000, 20)
    assert model.plan_["pairs"].path.paid > fifo["pairs"].path.paid
    parts = Dataset.from_arrays(**ROWS, partition_rows=777, dataset_id=GENERATED.dataset.id)
    assert np.array_equal(PairwiseRanker(solver, **BOUNDS).fit(parts).coef_, model.coef_)


@pytest.mark.parametrize("memory", ["fifo", "all"])
def test_results_do_not_depend_on_partitions(memory):
    model = PairwiseRanker(PairStream(5, memory=memory), **BOUNDS)
    parts = [Dataset.from_arrays(**ROWS, partition_rows=n, dataset_id="parts") for n in (10_000, 777)]
    assert np.array_equal(*[model.fit(part).coef_ for part in parts])


def test_a_release_reads_its_window_only():
    """Rows of other blocks may be anything: the release is the same."""
    query = StreamPairSum(1.0, 2, StreamPath("fifo", 5, 10), 2)
    rows, labels = np.random.default_rng(0).normal(size=(50, 2)), np.tile([-1.0, 1.0], 25)
    other = rows.copy()
    other[:20], other[40:] = 7.0, np.nan
    found = []
    for values in (rows, other):
        data = Dataset.from_arrays(X=values, y=labels, dataset_id="window")
        with Coordinator(data, Budget(1.0, 1e-3), arrays=PREPARE, cluster="threads", random_state=0) as coordinator:
            item = coordinator.plan([Item("pairs", Gaussian(), 4, path=query.path)])["pairs"]
            for turn in range(3):
                value = coordinator.release(replace(query, number=turn), item, np.ones(2))
            found.append(value)
    assert np.array_equal(*found)


def test_a_crash_in_the_middle_goes_on_without_a_second_draw(tmp_path, monkeypatch):
    ledger, data = Ledger(tmp_path / "ledger.sqlite"), Dataset.from_arrays(X=X, y=Y, dataset_id="stream")
    settings = {**BOUNDS, "random_state": None, "ledger": ledger, "run_id": "night"}
    model, release, asked = PairwiseRanker(PairStream(6), **settings), Coordinator.release, []

    def dies(self, *args, **kwargs):
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(release(self, *args, **kwargs))
        return asked[-1]

    monkeypatch.setattr(Coordinator, "release", dies)
    with pytest.raises(KeyboardInterrupt):
        model.fit(data)
    monkeypatch.setattr(Coordinator, "release", release)
    first = model.fit(data)
    assert all(np.array_equal(r.value, value) for r, value in zip(first.releases_, asked, strict=False))
    assert np.array_equal(model.fit(data).coef_, first.coef_)
    assert ledger.spent("stream").epsilon == pytest.approx(1.0)


def test_a_path_and_its_query_belong_together():
    path = StreamPath("all", 5, 10)
    query = StreamPairSum(1.0, 2, path)
    for item, asked, says in (
        (Item("pairs", Gaussian(), 4, path=path), StreamPairSum(1.0, 2, StreamPath("fifo", 5, 10)), "belong together"),
        (Item("pairs", Gaussian(), 4), query, "belong together"),
        (Item("pairs", Gaussian(), 4, path=path), replace(query, number=1), "in their order"),
    ):
        data = Dataset.from_arrays(X=np.ones((50, 2)), y=np.ones(50))
        with Coordinator(data, Budget(1.0, 1e-3), arrays=PREPARE, cluster="threads") as coordinator:
            plan = coordinator.plan([item])
            with pytest.raises(BudgetError, match=says):
                coordinator.release(asked, plan["pairs"], np.ones(2))


def test_owners_of_several_rows_and_short_streams_are_refused():
    owned = Dataset.from_arrays(X=X[:400], y=Y[:400], unit="user", max_rows_per_unit=4, grouped=True)
    with nobody_asks(), pytest.raises(DpdistError, match="several rows"):
        PairwiseRanker("stream", **BOUNDS).fit(owned)
    with pytest.raises(DpdistError, match="too few for 20 blocks"):
        PairwiseRanker(PairStream(19), **BOUNDS).plan(15, 3)
    with pytest.raises(DpdistError, match="memory='lifo' is not known"):
        PairStream(memory="lifo")
    with pytest.raises(DpdistError, match="seed=1 has nobody to read it"):
        PairStream(memory="fifo", seed=1)
    with pytest.raises(DpdistError, match="n_kept=2 has nobody to read it"):
        PairStream(memory="all", n_kept=2)
    with pytest.raises(DpdistError, match="for a stream of 50 rows, and there are 49"):
        StreamPairSum(1.0, 2, StreamPath("all", 5, 10)).check_rows(49)


EPSILON, DELTA = 4.0, 1e-2
PATH = StreamPath("fifo", 3, 1)


def test_an_audit_passes_and_catches_a_stream_that_charges_every_row_once(monkeypatch):
    """A row that is new, positive and outscored, then past: both releases move by all of their sensitivity."""
    bits = StreamBits(np.random.Generator(np.random.Philox(0)))
    queries = [StreamPairSum(1.0, 2, PATH, turn) for turn in range(2)]
    labels, w = np.array([-1.0, 1.0, -1.0]), np.array([40.0, 0.0])

    def totals(side):
        block = {"X": np.array([[0.9, 0.0], [0.0, side], [0.9, 0.0]]), "y": labels}
        return [q.explore(lambda w, q=q: q.summarise(block, w, None), w, None, None) for q in queries]

    def found(strength):
        mechanism = Gaussian().at(strength)
        units = queries[0].sensitivity(Neighbours.REPLACE_ONE) / queries[0].grid

        def run(sums):
            return float(sum(mechanism.release(total, units, bits)[1] for total in sums))

        one, other = totals(-1e6), totals(1e6)
        return audit_two_point(lambda: run(one), lambda: run(other), 1000, DELTA, 1 - 1e-6).mu_lower

    claimed = gdp_mu(EPSILON, DELTA)
    assert 0.6 * claimed < found(claimed / math.sqrt(PATH.paid)) <= claimed
    assert found(claimed) > claimed, "as if 1 were paid, and not 2"


def test_gradients_are_those_of_the_mean_loss_over_all_pairs_that_are_compared():
    """By differences of the loss: of all ordered pairs, and of the new rows of a step with those of its past."""
    rng = np.random.default_rng(3)
    rows, signs, w = rng.normal(size=(20, 2)) / 3, rng.choice([-1.0, 1.0], 20), np.array([0.7, -1.3])

    def loss(w, new, past):
        margins = (signs[new, None] - signs[past]) * ((rows @ w)[new, None] - (rows @ w)[past])
        return np.log1p(np.exp(-margins))[signs[new, None] != signs[past]].sum()

    def slope(new, past):
        return np.array([loss(w + e, new, past) - loss(w - e, new, past) for e in 1e-5 * np.eye(2)]) / 2e-5

    def asked(query):
        total = query.explore(lambda at: query.summarise({"X": rows, "y": signs}, at, None), w, None, None)
        return np.array(total, dtype=float) * query.grid

    step, all_rows = StreamPairSum(2.0, 2, StreamPath("fifo", 4, 5, 2), 2), np.arange(20)
    found = step.mean_gradient(asked(step))
    assert np.allclose(found, slope(all_rows[15:], all_rows[5:15]) / 50, rtol=5e-3)
    whole = PairwiseRanker("gradient", **BOUNDS).decided(20, 2).mean_gradient(asked(PairSum(2.0, 20, 2)))
    assert np.allclose(whole, slope(all_rows, all_rows) / (20 * 19), rtol=5e-3)
