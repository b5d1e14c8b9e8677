"""What the coordinator charges, records, refuses and replays."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.pieces import aligned
from dpdist.engine.shards import Shard
from dpdist.errors import BudgetError, BudgetExceeded, DataError, Fenced, LedgerError
from dpdist.losses import Logistic
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.releases import FixedSize, Poisson
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian, Laplace
from dpdist.privacy.mechanisms.attention import CentreOfAttention
from dpdist.privacy.mechanisms.selection import ExponentialMechanism
from dpdist.queries.gradient_sums import GradientSum, LargestEigenvalue
from tests.engine.conftest import ARRAYS, QUERY, gradients


def unreadable(rows):
    raise AssertionError("data was read")


def test_a_run_is_charged_once_and_every_release_is_on_file(coordinate, ledger, rows):
    dataset = Dataset.from_arrays(**rows)
    with coordinate(dataset) as run:
        gradients(run)
    (record,) = ledger.history(dataset.id)
    assert [r.name for r in record.releases] == ["gradient"] * 3
    assert record.epsilon == pytest.approx(1.0) and record.epsilon <= 1.0
    assert ledger.spent(dataset.id).delta <= 1e-6


def test_the_noise_has_the_planned_size(rows):
    dataset = Dataset.from_arrays(**rows)
    exact = None
    draws = []
    for _ in range(60):
        with Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, cluster="threads") as run:
            draws.append(gradients(run, 1)[0])
        std = run.releases[0].noise_std
        assert run.releases[0].sensitivity == 2.0
        exact = draws[-1] if exact is None else exact
    spread = np.std(draws, axis=0, ddof=1).mean()
    # 300 values: the relative error of the estimate has standard deviation 0.041; 6 of those, false alarm < 1e-8
    assert abs(spread / std - 1) < 0.25


def test_two_secure_runs_differ_and_two_simulations_agree(coordinate, rows):
    dataset = Dataset.from_arrays(**rows)
    secure = [gradients(coordinate(dataset)) for _ in range(2)]
    seeded = [gradients(coordinate(dataset, random_state=7)) for _ in range(2)]
    other = gradients(coordinate(dataset, random_state=8))
    assert not np.any(secure[0] == secure[1])
    assert np.array_equal(seeded[0], seeded[1])
    assert not np.any(seeded[0] == other)


def test_a_run_that_cannot_be_paid_for_reads_nothing(ledger, rows):
    dataset = Dataset.from_arrays(**rows)
    ledger.set_limit(dataset.id, Budget(0.5, 1e-6))
    run = Coordinator(dataset, Budget(1.0, 1e-6), arrays={"X": unreadable, "y": unreadable}, ledger=ledger)
    with pytest.raises(BudgetExceeded, match="limit"):
        run.plan([Item("gradient", Gaussian())])
    assert ledger.history(dataset.id) == []


def test_an_unreadable_chunk_costs_nothing(coordinate, ledger, rows, tmp_path):
    dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=4096, **rows)
    chunk = tmp_path / "rows.zarr" / "y" / "c" / "2"
    chunk.write_bytes(chunk.read_bytes()[:-100])
    with coordinate(dataset) as run:
        item = run.plan([Item("gradient", Gaussian())])["gradient"]
        with pytest.raises(DataError, match="'y', rows 8192:12288"):
            run.release(QUERY, item, np.zeros(5))
    assert ledger.history(dataset.id) == []


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_streamed_and_resident_shards_give_the_same_release(coordinate, rows, tmp_path, monkeypatch, share):
    monkeypatch.setattr("dpdist.engine.coordinator.RESIDENT_SHARE", share)
    dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=4096, **rows)
    here = gradients(coordinate(Dataset.from_arrays(**rows), random_state=1))
    assert np.array_equal(gradients(coordinate(dataset, random_state=1)), here)


def test_a_streamed_dataset_is_checked_before_it_is_charged(coordinate, ledger, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("dpdist.engine.coordinator.RESIDENT_SHARE", 0.0)
    dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=4096, **rows)
    (tmp_path / "rows.zarr" / "X" / "c" / "3" / "0").unlink()
    with coordinate(dataset) as run:
        item = run.plan([Item("gradient", Gaussian())])["gradient"]
        with pytest.raises(DataError, match="missing"):
            run.release(QUERY, item, np.zeros(5))
    assert ledger.history(dataset.id) == []


@pytest.fixture
def reads(monkeypatch, rows, tmp_path):
    """A streamed dataset of five ranges, and how often a range was read."""
    monkeypatch.setattr("dpdist.engine.coordinator.RESIDENT_SHARE", 0.0)
    seen, block = [], Shard._block

    def noted(shard, i, how):
        seen.append(shard.plan.ranges[i])
        return block(shard, i, how)

    monkeypatch.setattr(Shard, "_block", noted)
    return Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=4096, **rows), seen


@pytest.mark.parametrize("n_rounds", [1, 3])
def test_the_reading_that_comes_before_the_charge_answers_the_first_question(coordinate, reads, rows, n_rounds):
    dataset, seen = reads
    streamed = gradients(coordinate(dataset, random_state=1), n_rounds)
    assert len(seen) == 5 * n_rounds
    kept = gradients(coordinate(Dataset.from_arrays(**rows), random_state=1), n_rounds)
    assert np.array_equal(streamed, kept)


def test_all_rows_are_read_before_the_charge_though_a_fold_is_asked(coordinate, ledger, reads, rows, tmp_path):
    dataset, seen = reads
    split = dataset.split(2, Neighbours.REPLACE_ONE)
    found = []
    for of in (dataset, Dataset.from_arrays(**rows, dataset_id=dataset.id)):
        with Coordinator(of, Budget(1.0, 1e-6), arrays=ARRAYS, cluster="threads", random_state=1) as run:
            item = run.plan([Item("gradient", Gaussian(), fold=(split[1].split_id, 1))])["gradient"]
            found.append(run.release(QUERY, item, np.zeros(5), split[1]))
    assert np.array_equal(*found) and len(set(seen[:5])) == 5 and len(seen) == 6  # and the rows of this process
    (tmp_path / "rows.zarr" / "X" / "c" / "0" / "0").unlink()
    with coordinate(dataset) as run:
        item = run.plan([Item("gradient", Gaussian(), fold=(split[1].split_id, 1))])["gradient"]
        with pytest.raises(DataError, match="missing"):
            run.release(QUERY, item, np.zeros(5), split[1])
    assert ledger.history(dataset.id) == []


def test_a_batch_is_drawn_after_the_charge(coordinate, reads):
    dataset, seen = reads
    with coordinate(dataset, random_state=1) as run:
        item = run.plan([Item("gradient", Gaussian(), sampling=Poisson(0.5))])["gradient"]
        run.release(QUERY, item, np.zeros(5))
    assert len(seen) == 10


def test_a_fault_in_the_first_sum_costs_nothing(coordinate, ledger, reads):
    dataset, _ = reads
    with coordinate(dataset) as run:
        item = run.plan([Item("gradient", Gaussian())])["gradient"]
        with pytest.raises(DataError, match="summarising for GradientSum a shard failed with"):
            run.release(QUERY, item, "no vector")
    assert ledger.history(dataset.id) == []


def test_a_resumed_run_replays_and_pays_nothing(coordinate, ledger, rows):
    dataset = Dataset.from_arrays(**rows)
    first = gradients(coordinate(dataset, run_id="monday"))
    again = gradients(coordinate(dataset, run_id="monday"))
    assert np.array_equal(first, again)
    assert len(ledger.history(dataset.id)) == 1


def test_a_ledger_in_memory_keeps_its_values_too(rows):
    dataset, ledger = Dataset.from_arrays(**rows), Ledger(":memory:")
    values = []
    for _ in range(2):
        with Coordinator(
            dataset, Budget(1.0, 1e-6), arrays=ARRAYS, ledger=ledger, run_id="monday", cluster="threads"
        ) as run:
            values.append(gradients(run))
    assert np.array_equal(*values)
    assert len(ledger.history(dataset.id)) == 1


def test_a_complete_journal_needs_no_data(ledger, rows):
    dataset = Dataset.from_arrays(**rows)
    options = {"ledger": ledger, "run_id": "monday", "cluster": "threads"}
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, **options) as run:
        first = gradients(run)
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays={"X": unreadable, "y": unreadable}, **options) as run:
        assert np.array_equal(gradients(run), first)


def test_a_run_id_names_one_plan(coordinate, rows):
    dataset = Dataset.from_arrays(**rows)
    gradients(coordinate(dataset, run_id="monday"), 3)
    with pytest.raises(LedgerError, match="different plan"):
        gradients(coordinate(dataset, run_id="monday"), 4)


def test_the_older_of_two_coordinators_is_fenced_off(coordinate, ledger, rows):
    dataset = Dataset.from_arrays(**rows)
    items = [Item("gradient", Gaussian(), count=2)]
    old, new = coordinate(dataset, run_id="monday"), coordinate(dataset, run_id="monday")
    item = old.plan(items)["gradient"]
    value = old.release(QUERY, item, np.zeros(5))
    new.plan(items)
    with pytest.raises(Fenced):
        old.release(QUERY, item, np.ones(5))
    assert np.array_equal(new.release(QUERY, item, np.zeros(5)), value)
    assert len(ledger.history(dataset.id)) == 1


def test_only_what_was_planned_can_be_released(coordinate, rows):
    dataset = Dataset.from_arrays(**rows)
    with coordinate(dataset) as run:
        with pytest.raises(BudgetError, match="plan"):
            run.release(QUERY, Item("gradient", Gaussian()), np.zeros(5))
        item = run.plan([Item("gradient", Gaussian(), count=1)])["gradient"]
        with pytest.raises(BudgetError, match="not what the plan paid for"):
            run.release(QUERY, Item("gradient", Gaussian().at(100.0)), np.zeros(5))
        with pytest.raises(BudgetError, match="fold"):
            run.release(QUERY, item, np.zeros(5), rows=dataset.split(4)[0])
        run.release(QUERY, item, np.zeros(5))
        with pytest.raises(BudgetError, match="all of them are spent"):
            run.release(QUERY, item, np.zeros(5))


def test_folds_compose_in_parallel(coordinate, ledger, rows):
    dataset = Dataset.from_arrays(**rows)
    folds = dataset.split(4)
    with coordinate(dataset, random_state=0) as run:
        items = [Item(f"fold {f.index}", Gaussian(), fold=(f.split_id, f.index)) for f in folds]
        plan = run.plan(items)
        for fold in folds:
            run.release(QUERY, plan[f"fold {fold.index}"], np.zeros(5), rows=fold)
    assert len({r.noise_std for r in run.releases}) == 1
    one = coordinate(dataset, random_state=0).plan([Item("gradient", Gaussian())])
    assert run.releases[0].noise_std == pytest.approx(one["gradient"].mechanism.noise_std(2.0), rel=1e-6)


def test_poisson_batches_have_the_expected_size(coordinate, rows):
    dataset = Dataset.from_arrays(**rows)
    with coordinate(dataset, random_state=0) as run:
        item = run.plan([Item("gradient", Gaussian(), count=20, sampling=Poisson(0.25))])["gradient"]
        batches = [run._batch(QUERY, item, i) for i in range(20)]
    sizes = np.array([len(b.rows(0, dataset.n_rows)) for b in batches])
    # binomial(20000, 1/4) has standard deviation 61; seven of those
    assert np.all(np.abs(sizes - 5000) < 430)
    assert len({b.key for b in batches}) == 20


def test_batches_do_not_depend_on_how_rows_are_cut():
    from dpdist.engine.sampling import Batch

    batch = Batch(bytes(range(16)), 0.1)
    whole = batch.rows(0, 30_000)
    for size in (1, 1000, 4096, 7777):
        parts = [batch.rows(a, min(a + size, 30_000)) + a for a in range(0, 30_000, size)]
        assert np.array_equal(np.concatenate(parts), whole)
        if size == 1:
            break
    assert "key" not in repr(batch)


def test_the_unit_bounds_how_many_rows_a_person_has(coordinate, rows):
    single = Dataset.from_arrays(**rows)
    several = Dataset.from_arrays(**rows, unit="person", max_rows_per_unit=3)
    noise = []
    for dataset in (single, several):
        with coordinate(dataset) as run:
            gradients(run)
        noise.append(run.releases[0].noise_std)
    assert noise[1] == pytest.approx(3 * noise[0])
    assert "person" in run.guarantee.text


def test_noise_for_another_norm_is_refused(coordinate, ledger, rows):
    """An l2 bound says little about the l1 norm that Laplace noise is scaled to."""
    dataset = Dataset.from_arrays(**rows)
    with coordinate(dataset) as run:
        item = run.plan([Item("gradient", Laplace())])["gradient"]
        with pytest.raises(BudgetError, match="l2 norm"):
            run.release(QUERY, item, np.zeros(5))
    assert ledger.history(dataset.id) == []


def test_a_selection_releases_the_number_of_a_coordinate(coordinate, rows):
    """An l2 bound bounds every coordinate, so the same sums can be selected from."""
    with coordinate(Dataset.from_arrays(**rows), random_state=0) as run:
        item = run.plan([Item("pick", ExponentialMechanism(signed=True))])["pick"]
        picked = run.release(QUERY, item, np.zeros(5))
        assert picked.shape == (1,) and picked[0] in range(10)
        assert run.releases[0].sensitivity == QUERY.sensitivity(run.neighbours) and run.releases[0].noise_std > 0


def test_a_bound_per_coordinate_grows_with_their_number_in_a_smaller_norm():
    class Boxed(GradientSum):
        norm = math.inf
        size = 4

    one = Neighbours.ADD_OR_REMOVE_ONE
    boxed = Boxed(Logistic(), row_norm=1.0, clip_norm=1.0)
    assert boxed.sensitivity(one, math.inf) == boxed.sensitivity(one) == boxed.bound
    assert boxed.sensitivity(one, 2) == pytest.approx(2 * boxed.bound) and boxed.sensitivity(one, 2) > 2 * boxed.bound
    assert boxed.sensitivity(one, 1) == pytest.approx(4 * boxed.bound)


@pytest.mark.parametrize("align", [1, 7, 1000, 30_000])
def test_ranges_can_be_aligned(coordinate, rows, align, tmp_path):
    """Whatever the partitions, the sums are the same, and no range begins between two multiples."""
    dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=777, **rows)
    edges = aligned(dataset.partitions, align)
    assert edges[0][0] == 0 and edges[-1][1] == dataset.n_rows and all(a[1] == b[0] for a, b in pairwise(edges))
    assert all(start % align == 0 for start, _ in edges)
    with coordinate(dataset, random_state=0, align=align) as run, coordinate(dataset, random_state=0) as usual:
        assert np.array_equal(gradients(run), gradients(usual))


def test_only_the_batches_that_are_drawn_can_be_planned(coordinate, rows):
    with pytest.raises(BudgetError, match="Poisson"):
        coordinate(Dataset.from_arrays(**rows)).plan([Item("gradient", Gaussian(), sampling=FixedSize(10, 20_000))])


def test_a_run_id_names_one_computation(coordinate, rows):
    dataset = Dataset.from_arrays(**rows)
    gradients(coordinate(dataset, run_id="monday", computation="step 1"))
    with pytest.raises(LedgerError, match="different plan"):
        gradients(coordinate(dataset, run_id="monday", computation="step 2"))


def test_the_limit_of_a_named_dataset_in_memory_is_the_users(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "ledger.sqlite"))
    Ledger().set_limit("survey", Budget(0.5, 1e-6))
    run = Coordinator(Dataset.from_arrays(dataset_id="survey", **rows), Budget(1.0, 1e-6), arrays=ARRAYS)
    with pytest.raises(BudgetExceeded):
        run.plan([Item("gradient", Gaussian())])


@pytest.mark.parametrize("how", [{"sampling": Poisson(0.1)}, {"fold": ("slots-2", 0)}], ids=["sample", "fold"])
def test_several_rows_per_person_anywhere_rule_out_samples_and_folds(coordinate, rows, how):
    dataset = Dataset.from_arrays(**rows, unit="person", max_rows_per_unit=2)
    with pytest.raises(BudgetError, match="anywhere in this dataset"):
        coordinate(dataset).plan([Item("gradient", Gaussian(), **how)])


def test_persons_whose_rows_stand_side_by_side_are_drawn_as_one(coordinate, rows):
    dataset = Dataset.from_arrays(**rows, unit="person", max_rows_per_unit=4, grouped=True)
    with coordinate(dataset, random_state=0) as run:
        item = run.plan([Item("gradient", Gaussian(), count=20, sampling=Poisson(0.25))])["gradient"]
        drawn = [run._batch(QUERY, item, i).rows(0, dataset.n_rows).reshape(-1, 4) for i in range(20)]
        run.release(QUERY, item, np.zeros(5))
    assert all((rows % 4 == np.arange(4)).all() for rows in drawn)
    # binomial(5000, 1/4) has standard deviation 31; seven of those
    assert all(abs(len(rows) - 1250) < 220 for rows in drawn)
    assert run.releases[0].sensitivity == 4 * QUERY.sensitivity(run.neighbours)


def test_points_of_which_one_person_changes_several_have_no_centre(coordinate, rows):
    class Points(GradientSum):
        is_sum = False

    dataset = Dataset.from_arrays(**rows, unit="person", max_rows_per_unit=2, grouped=True)
    with coordinate(dataset) as run:
        item = run.plan([Item("centre", CentreOfAttention(1e-6))])["centre"]
        with pytest.raises(BudgetError, match="several of the values"):
            run.release(Points(Logistic(), row_norm=1.0, clip_norm=1.0), item, np.zeros(5))


def test_what_is_no_sum_cannot_be_sampled(coordinate, rows):
    dataset = Dataset.from_arrays(**rows)
    with coordinate(dataset) as run:
        item = run.plan([Item("steepness", Gaussian(), sampling=Poisson(0.1))])["steepness"]
        with pytest.raises(BudgetError, match="not a sum"):
            run.release(LargestEigenvalue(5, 1.0, dataset.n_rows), item)


def test_simulations_of_different_queries_share_no_noise(coordinate, rows):
    dataset = Dataset.from_arrays(**rows)
    noise = []
    for clip in (1.0, 2.0):
        query = GradientSum(Logistic(), row_norm=1.0, clip_norm=clip)
        with coordinate(dataset, random_state=0) as run:
            item = run.plan([Item("gradient", Gaussian())])["gradient"]
            value = run.release(query, item, np.zeros(5))
            exact = query.summarise({k: ARRAYS[k](v) for k, v in rows.items()}, np.zeros(5), None) * query.grid
            noise.append((value - exact) / run.releases[0].noise_std)
    assert not np.any(np.isclose(*noise, rtol=1e-3))


@pytest.mark.parametrize("released", [0, 2])
def test_a_run_that_a_newer_version_plans_otherwise_names_both_versions(
    coordinate, ledger, rows, monkeypatch, released
):
    """An upgrade between a crash and the resume: what was decided by default may be decided otherwise."""
    dataset = Dataset.from_arrays(**rows)
    with coordinate(dataset, run_id="monday", computation="step 1") as run:
        item = run.plan([Item("gradient", Gaussian(), count=3)])["gradient"]
        first = [run.release(QUERY, item, np.zeros(5)) for _ in range(released)]
        if not released:
            run._begin()
    planned = ledger.run("monday").library
    monkeypatch.setattr("dpdist.privacy.ledger.resumption.library", lambda: "99.1")
    with pytest.raises(LedgerError, match=f"with dpdist {planned}, which planned it: this is dpdist 99.1"):
        coordinate(dataset, run_id="monday", computation="step 2").plan([Item("gradient", Gaussian(), count=3)])
    with coordinate(dataset, run_id="monday", computation="step 1") as run:  # decided alike: it goes on
        item = run.plan([Item("gradient", Gaussian(), count=3)])["gradient"]
        again = [run.release(QUERY, item, np.zeros(5)) for _ in range(3)]
    assert np.array_equal(again[:released], first[:released]) and len(ledger.history(dataset.id)) == 1


def test_a_release_that_a_newer_version_asks_otherwise_names_both_versions(coordinate, rows, monkeypatch):
    dataset = Dataset.from_arrays(**rows)
    items = [Item("gradient", Gaussian(), count=3)]
    with coordinate(dataset, run_id="monday") as run:
        run.release(QUERY, run.plan(items)["gradient"], np.zeros(5))
    monkeypatch.setattr("dpdist.privacy.ledger.resumption.library", lambda: "99.1")
    other = GradientSum(Logistic(), row_norm=1.0, clip_norm=0.5)
    with coordinate(dataset, run_id="monday") as run, pytest.raises(LedgerError, match=r"this is dpdist 99\.1"):
        run.release(other, run.plan(items)["gradient"], np.zeros(5))
