"""Streams that arrive in pieces, and steps that are drawn in chains: the same releases, each once, whoever asks."""

from __future__ import annotations

import signal
import textwrap
from contextlib import closing

import dask
import numpy as np
import pytest
from distributed import LocalCluster

from dpdist import Budget, Coordinator, Dataset, Ledger, PairwiseRanker
from dpdist.central import PairStream
from dpdist.central.pairs.ranking_stream import Steps
from dpdist.errors import BudgetError, DataError, DpdistError, MissingBound
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian
from tests import processes
from tests.central.pairs.test_ranking import BOUNDS, X, Y

N, STEPS = 4000, 19  # 20 blocks of 200 rows
CHAINS = PairStream(STEPS, together=4)
PIECES = PairStream(STEPS, together=4, stream_rows=N)


def named(start=0, stop=N, **more):
    return Dataset.from_arrays(X=X[start:stop], y=Y[start:stop], dataset_id="clicks", **more)


def ranker(ledger, solver=PIECES, **more):
    return PairwiseRanker(solver, **{**BOUNDS, "ledger": str(ledger), "run_id": "june", **more})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ranker(tmp_path_factory.mktemp("whole") / "ledger.sqlite").fit(named())


# -- pieces ----------------------------------------------------------------------------------------------------------


def test_pieces_end_where_the_whole_stream_does(whole, tmp_path):
    """Each piece has the rows of its own steps, and the block before them; each time another object asks."""
    path, first, seen = tmp_path / "ledger.sqlite", 0, []
    for stop in (1100, 1500, 2600, N):
        model = ranker(path).partial_fit(named(first, stop), first=first)
        first = model.next_row_
        seen.append((model.n_iter_, len(model.releases_), first))
    assert seen == [(4, 1, 800), (4, 1, 800), (12, 3, 2400), (19, 5, 4000)]
    assert np.array_equal(model.coef_, whole.coef_)
    with closing(Ledger(path)) as ledger:
        assert ledger.spent("clicks").epsilon == pytest.approx(1.0)
        (run,) = ledger.history("clicks")
        assert len(run.releases) == 5


def test_a_piece_that_was_passed_before_changes_nothing_and_is_not_read(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ranker(path).partial_fit(named(0, 1100), first=0)
    later = ranker(path).partial_fit(named(800, 2600), first=800)
    unread = Dataset.from_arrays(X=np.full((1100, 20), np.nan), y=Y[:1100], dataset_id="clicks")
    again = ranker(path).partial_fit(unread, first=0)
    assert again.n_iter_ == 12 and np.array_equal(again.coef_, later.coef_)


def test_another_process_goes_on_from_ledger_and_journal(whole, tmp_path):
    script = """
        import numpy as np
        from dpdist import Dataset, PairwiseRanker
        from dpdist.central import PairStream
        rows = np.load({rows!r})
        model = PairwiseRanker(PairStream(19, together=4, stream_rows=4000), **{settings!r})
        model.partial_fit(Dataset.from_arrays(X=rows[:, :-1], y=rows[:, -1].astype(int), dataset_id="clicks"), first=0)
        print(model.next_row_)
    """
    np.save(tmp_path / "rows.npy", np.column_stack([X[:2600], Y[:2600]]))
    settings = {**BOUNDS, "ledger": str(tmp_path / "ledger.sqlite"), "run_id": "june"}
    script = textwrap.dedent(script).format(rows=str(tmp_path / "rows.npy"), settings=settings)
    code, said = processes.run(script)
    assert code == 0, said
    first = int(said.split()[-1])
    model = ranker(tmp_path / "ledger.sqlite").partial_fit(named(first), first=first)
    assert first == 2400 and np.array_equal(model.coef_, whole.coef_)


def test_rows_that_a_step_reads_have_to_be_there(tmp_path):
    model = ranker(tmp_path / "ledger.sqlite")
    with pytest.raises(DataError, match="reads the rows 0 to 1000 of the stream, and those from 800 to 1900 are here"):
        model.partial_fit(named(800, 1900), first=800)
    assert Ledger(tmp_path / "ledger.sqlite").spent("clicks").epsilon == 0
    model.partial_fit(named(0, 1100), first=0)
    with pytest.raises(DataError, match="from number 800 on, with first=800"):
        model.partial_fit(named(1100, 2600), first=1100)


def test_what_cannot_be_a_piece_is_refused_before_a_row_is_read(tmp_path, monkeypatch):
    path = tmp_path / "ledger.sqlite"
    monkeypatch.setattr("dpdist.data.sources.Source.verify", lambda *_: pytest.fail("a row was read"))
    cases = [
        (ranker(path), named(), {"first": 1}, BudgetError, "declared to have 4000 rows, and its budget is spent"),
        (ranker(path), named(0, 900), {"first": 0}, BudgetError, "reads the rows 0 to 1000, and those to 900 are"),
        (ranker(path), X[:1100], {"y": Y[:1100], "first": 0}, BudgetError, "known by its name, and these arrays have"),
        (ranker(path, run_id=None), named(), {"first": 0}, MissingBound, "run_id is missing"),
        (ranker(path, CHAINS), named(), {"first": 0}, MissingBound, "stream_rows is missing"),
        (ranker(path, "stream"), named(), {"first": 0}, MissingBound, "stream_rows is missing"),
        (ranker(path), named(), {"first": -1}, BudgetError, "first must be a whole number of at least 0"),
        (ranker(path), named(), {"first": 0.5}, BudgetError, "first must be a whole number of at least 0"),
        (ranker(path, delta=None), named(), {"first": 0}, BudgetError, "needs delta > 0"),
        (ranker(path, PIECES, row_norm=None), named(), {"first": 0}, MissingBound, "row_norm is missing"),
    ]
    for model, rows, more, kind, says in cases:
        with pytest.raises(kind, match=says):
            model.partial_fit(rows, **more)
    owned = named(0, 1100, unit="user", max_rows_per_unit=2, grouped=True)
    with pytest.raises(DpdistError, match="several rows"):
        ranker(path).partial_fit(owned, first=0)
    with pytest.raises(BudgetError, match="declared to have 4000 rows, and there are 3000"):
        ranker(path).fit(named(0, 3000))
    for solver in ("auto", "gradient", "output", "online", "giga"):
        assert not hasattr(ranker(path, solver), "partial_fit")
        with pytest.raises(AttributeError) as refused:
            _ = ranker(path, solver).partial_fit
        assert "partial_fit is for streams" in str(refused.value.__cause__)
    assert Ledger(path).spent("clicks").epsilon == 0


def test_a_stream_that_was_declared_otherwise_is_refused(tmp_path):
    ranker(tmp_path / "ledger.sqlite").partial_fit(named(0, 1100), first=0)
    other = PairStream(STEPS, together=4, stream_rows=N + 20)
    with pytest.raises(DpdistError, match="june"):
        ranker(tmp_path / "ledger.sqlite", other).partial_fit(named(800, 2600), first=800)


# -- chains ----------------------------------------------------------------------------------------------------------


def test_a_chain_has_the_law_of_single_steps():
    """The same numbers where there is no noise, and the same noise in each step."""
    quiet = {**BOUNDS, "epsilon": 1e5, "delta": 0.5, "radius": 1.0}
    one, chained = (PairwiseRanker(PairStream(STEPS, together=k), **quiet).fit(X[:N], Y[:N]) for k in (1, 7))
    assert [len(r.value) for r in chained.releases_] == [140, 140, 100] and one.n_iter_ == chained.n_iter_ == 19
    assert np.allclose(one.coef_, chained.coef_, atol=2e-3)
    assert len({release.noise_std for model in (one, chained) for release in model.releases_}) == 1
    plans = [PairwiseRanker(PairStream(STEPS, together=k), **BOUNDS).plan(N, 20) for k in (1, 7)]
    assert plans[0].total_mu == plans[1].total_mu and plans[1]["pairs"].path.paid == plans[0]["pairs"].path.paid


def test_a_long_stream_has_few_releases():
    plan = PairwiseRanker("stream", **{**BOUNDS, "radius": None}).plan(10**6, 20)
    assert plan["pairs"].path.n_steps > 1000 and plan.n_releases <= 64
    for solver in (PairStream(100, memory="all"), PairStream(100, n_kept=3)):
        assert PairwiseRanker(solver, **BOUNDS).plan(10**6, 20).n_releases == 100
    for choice in ({"memory": "all"}, {"n_kept": 2}):
        with pytest.raises(BudgetError, match="together=2 is for steps that all have the same noise"):
            PairStream(together=2, **choice)


def test_chains_do_not_depend_on_partitions_threads_or_processes(tmp_path):
    model = PairwiseRanker(CHAINS, **BOUNDS)
    found = model.fit(named(partition_rows=N)).coef_
    for threads, rows in ((1, 333), (3, 777)):
        with dask.config.set(num_workers=threads):
            assert np.array_equal(model.set_params(cluster="threads").fit(named(partition_rows=rows)).coef_, found)
    stored = Dataset.from_arrays(tmp_path / "rows.zarr", X=X[:N], y=Y[:N], partition_rows=500)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        for rows in (stored, named(partition_rows=450)):
            assert np.array_equal(model.set_params(cluster=cluster).fit(rows).coef_, found)


def test_steps_of_other_noise_are_not_drawn_together(monkeypatch):
    """What a query says of its links is checked where they are drawn."""
    method = PairwiseRanker(CHAINS, **BOUNDS).decided(N, 20)
    query = method.lines()[0].query
    real = type(query).bound.fget
    monkeypatch.setattr(type(query), "bound", property(lambda self: real(self) * (1 + self.number)))
    with Coordinator(named(), Budget(1.0, 1e-3), arrays=PairwiseRanker(**BOUNDS)._prepare(named().arrays),
                     cluster="threads", random_state=0) as coordinator:  # fmt: skip
        plan = coordinator.plan([Item("pairs", Gaussian(), 5, path=query.path)])
        with pytest.raises(BudgetError, match="equally sensitive"):
            coordinator.release(query, plan["pairs"], Steps(np.zeros(20), 1.0, 1.0))


KILLED = """
    import os, signal
    import numpy as np
    from dpdist import Dataset, PairwiseRanker
    from dpdist.central import PairStream
    from dpdist.queries.pair_sums import StreamPairSum
    rows = np.load({rows!r})
    asked, real = [], StreamPairSum.explore
    def explore(self, *rest):
        asked.append(self.number)
        open({log!r}, "a").write(f"{{self.number}}\\n")
        if len(asked) == {dies}:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *rest)
    StreamPairSum.explore = explore
    data = Dataset.from_arrays(X=rows[:, :-1], y=rows[:, -1].astype(int), dataset_id="clicks")
    model = PairwiseRanker(PairStream(19, together=4, stream_rows=4000), **{settings!r}).fit(data)
    np.save({out!r}, model.coef_)
"""


def test_a_stream_that_is_killed_within_a_chain_repeats_that_chain_alone(whole, tmp_path):
    """Killed at its 7th step, and at the 6th of what was left: steps that were written down are not asked again."""
    np.save(tmp_path / "rows.npy", np.column_stack([X[:N], Y[:N]]))
    settings = {**BOUNDS, "ledger": str(tmp_path / "ledger.sqlite"), "run_id": "june"}
    paths = {name: str(tmp_path / name) for name in ("log", "out.npy")}
    for dies, wanted in ((7, -signal.SIGKILL), (6, -signal.SIGKILL), (99, 0)):
        script = textwrap.dedent(KILLED).format(
            rows=str(tmp_path / "rows.npy"), settings=settings, dies=dies, log=paths["log"], out=paths["out.npy"]
        )
        code, said = processes.run(script)
        assert code == wanted, said
    steps = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert steps == [*range(7), *range(4, 10), *range(8, 19)]
    assert np.array_equal(np.load(paths["out.npy"]), whole.coef_)
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        (run,) = ledger.history("clicks")
        assert len(run.releases) == 5 and ledger.spent("clicks").epsilon == pytest.approx(1.0)
