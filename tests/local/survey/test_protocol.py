"""The local model's machinery: one report per user, the same however the work is cut, paid for once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import Dataset, local
from dpdist.engine.coordinator import Coordinator
from dpdist.errors import BudgetError, BudgetExceeded, DataError
from dpdist.kernels.truncation import HardClip
from dpdist.local.linear.glm import Chebyshev
from dpdist.local.randomisers.scalars import OneBit
from dpdist.local.randomisers.vectors import GaussianVector, PrivUnit
from dpdist.local.statistics.bounded_values import Ball, Box
from dpdist.local.statistics.categories import Category
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.reports import Reports
from dpdist.local.survey.simulation import simulate
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.budget import Budget
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.reported import Reported
from dpdist.privacy.randomness.draws import SystemDraws
from dpdist.queries.robust_sums import ColumnSum

BIT = LocalProtocol(Box(1), OneBit(1, epsilon=1.0))
VECTOR = LocalProtocol(Ball(3), PrivUnit(3, epsilon=2.0))


def numbers(n: int, d: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, size=(n, d))


@pytest.mark.parametrize("protocol", [BIT, VECTOR], ids=lambda p: p.name)
@pytest.mark.parametrize("partition_rows", [1000, 4096, 5000, 20_000])
def test_reports_do_not_depend_on_the_partitions(protocol, partition_rows, tmp_path):
    X = numbers(20_000, protocol.statistic.size)
    stored = Dataset.from_arrays(tmp_path / "a.zarr", X=X, partition_rows=partition_rows)
    ours = simulate(protocol, stored, random_state=3, ledger=Ledger(":memory:"))
    assert (ours.total == simulate(protocol, {"X": X}, random_state=3).total).all()


def test_secret_reports_differ_from_run_to_run_and_seeded_ones_do_not():
    X = numbers(5000)
    assert simulate(BIT, {"X": X}, random_state=1).total == simulate(BIT, {"X": X}, random_state=1).total
    secret = {float(simulate(BIT, {"X": X}).total[0]) for _ in range(5)}
    assert len(secret) > 1  # five sums of 5000 signs are all equal with a chance of about 1e-7


def test_reports_of_different_questions_share_no_noise():
    X = np.zeros((4000, 3))
    first, second = (
        simulate(LocalProtocol(Ball(3), GaussianVector(3, e, 1e-6)), {"X": X}, random_state=0) for e in (1, 2)
    )
    ratio = (first.total / second.total) / (first.protocol.noise_std / second.protocol.noise_std)
    assert (abs(ratio - 1) > 1e-3).all()


def test_any_record_gives_a_valid_report():
    bad = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [1e300, -1e300, 1e300], [0, 0, 0], [5e-324, 0, 0], [-np.inf] * 3])
    for randomiser in (PrivUnit(3, 1.0), GaussianVector(3, 1.0, 1e-6)):
        protocol = LocalProtocol(Ball(3), randomiser)
        with np.errstate(all="raise"):
            reports = protocol.randomise({"X": bad}, SystemDraws())
        assert protocol.randomiser.valid(reports).all()
        values = protocol.statistic.values({"X": bad})
        assert (np.linalg.norm(values, axis=1) <= 1).all() and not values[[0, 1, 3, 5]].any()


def test_the_guarantee_is_that_of_a_report():
    found = simulate(BIT, {"X": numbers(100)})
    assert (found.guarantee.epsilon, found.guarantee.delta, found.guarantee.model) == (1.0, 0.0, "local")
    assert "any report" in found.guarantee.text and not found.guarantee.simulation
    gaussian = LocalProtocol(Ball(2), GaussianVector(2, 1.5, 1e-7))
    assert simulate(gaussian, {"X": numbers(100, 2)}).guarantee.delta == 1e-7


def test_users_of_a_stored_dataset_are_charged_once_per_run(tmp_path):
    data = Dataset.from_arrays(tmp_path / "a.zarr", X=numbers(9000), partition_rows=4096)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.set_limit(data.id, Budget(2.0))
    first = simulate(BIT, data, ledger=ledger, run_id="a")
    again = simulate(BIT, data, ledger=ledger, run_id="a")  # resumed: the released sum, not a second report
    assert first.total == again.total and ledger.spent(data.id).epsilon == 1.0
    simulate(BIT, data, ledger=ledger, run_id="b")
    with pytest.raises(BudgetExceeded):
        simulate(BIT, data, ledger=ledger, run_id="c")
    ledger.close()


def test_whoever_owns_two_rows_would_report_twice():
    data = Dataset.from_arrays(X=numbers(10), unit="user", max_rows_per_unit=2)
    with pytest.raises(BudgetError, match="one row per user"):
        simulate(BIT, data)


def test_an_exact_sum_never_leaves_as_a_report():
    data = Dataset.from_arrays(X=numbers(10), y=np.zeros(10))
    with Coordinator(data, Budget(1.0), arrays={"X": np.asarray}) as coordinator:
        plan = coordinator.plan([Item("reports", Reported(Cost("pure", 1.0)))])
        dearer = Reports(LocalProtocol(Box(1), OneBit(1, epsilon=1.1)))
        with pytest.raises(BudgetError, match="belong together"):
            coordinator.release(dearer, plan["reports"])
        with pytest.raises(BudgetError, match="an exact sum"):
            coordinator.release(ColumnSum(HardClip(1.0), 1), plan["reports"])
    with Coordinator(data, Budget(1.0, 1e-6), arrays={"X": np.asarray}) as coordinator:
        plan = coordinator.plan([Item("noise", Gaussian())])
        with pytest.raises(BudgetError, match="belong together"):
            coordinator.release(Reports(BIT), plan["noise"])


def test_users_of_two_ranges_never_share_their_noise():
    """Ranges that begin within a block of users drew from its start: of 3000 users with one answer, 900 reports."""
    data = Dataset.from_arrays(X=numbers(3000), partition_rows=700)
    query = Reports(BIT)
    for align, refused in ((1, True), (query.block_rows // 2, True), (query.block_rows, False)):
        with Coordinator(data, Budget(1.0), arrays={"X": np.asarray}, align=align) as coordinator:
            item = coordinator.plan([Item("reports", Reported(BIT.cost))])["reports"]
            if not refused:
                coordinator.release(query, item)
                continue
            with pytest.raises(BudgetError, match=f"use Coordinator\\(align={query.block_rows}\\)"):
                coordinator.release(query, item)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(BudgetError, match="ball of size 3"):
        LocalProtocol(Box(3), PrivUnit(3, 1.0))
    with pytest.raises(BudgetError, match="size 4"):
        LocalProtocol(Ball(4), PrivUnit(3, 1.0))
    with pytest.raises(BudgetError, match="fidelity='report'"):
        simulate(VECTOR, {"X": numbers(10, 3)}, fidelity="sum")
    with pytest.raises(BudgetError, match="'report' or 'sum'"):
        simulate(VECTOR, {"X": numbers(10, 3)}, fidelity="exact")
    with pytest.raises(DataError, match="asks for 'X'"):
        simulate(BIT, {"Z": numbers(10)})


def test_groups_compose_in_parallel_and_a_second_report_does_not():
    def plan(mechanisms, folds, budget):
        return calibrate(
            [Item(str(i), m, fold=f) for i, (m, f) in enumerate(zip(mechanisms, folds, strict=True))], budget
        )

    pure, gaussian = Reported(Cost("pure", 1.0)), Reported(Cost("gaussian", gdp_mu(1.0, 1e-6)))
    groups = [("slots-2", 0), ("slots-2", 1)]
    assert plan([pure, pure], groups, Budget(1.0)).spent == Budget(1.0)
    assert plan([gaussian, gaussian], groups, Budget(1.0, 1e-6)).spent == Budget(1.0, 1e-6)
    for mechanism, budget in ((pure, Budget(1.0)), (gaussian, Budget(1.0, 1e-6))):
        with pytest.raises(BudgetError, match="ask every user once"):
            plan([mechanism, mechanism], [None, None], budget)


def test_one_normal_vector_per_block_has_the_law_of_the_sum():
    protocol = LocalProtocol(Ball(2), GaussianVector(2, 1.0, 1e-6))
    X = np.tile([0.6, -0.8], (300, 1))
    sums = {
        fidelity: np.array(
            [simulate(protocol, {"X": X}, fidelity=fidelity, random_state=s).estimate for s in range(300)]
        )
        for fidelity in ("report", "sum")
    }
    error = protocol.noise_std / math.sqrt(300)
    for estimates in sums.values():  # each mean within 5 standard errors, each variance within 5 of its own
        assert (abs(estimates.mean(axis=0) - X[0]) < 5 * error / math.sqrt(300)).all()
        assert (abs(estimates.var(axis=0) / error**2 - 1) < 5 * math.sqrt(2 / 300)).all()


def test_category_reads_whole_numbers_of_its_range():
    X = np.array([0, 1, 2, 3, -1, 0.5, np.nan, np.inf, 1e300])
    assert Category(3).values({"X": X}).tolist() == [0, 1, 2, -1, -1, -1, -1, -1, -1]


@pytest.mark.parametrize("how", [{}, {"grouped": True}], ids=["anywhere", "grouped"])
def test_whoever_owns_two_rows_is_refused_before_anything_is_said_of_their_number(how, recwarn):
    units = {"unit": "user", "max_rows_per_unit": 2, **how}
    data = Dataset.from_arrays(X=numbers(10), y=np.ones(10), **units)
    codes = Dataset.from_arrays(X=np.arange(10), **units)
    descent = Chebyshev(n_rounds=99)
    for model, dataset in (
        (local.LogisticRegression(descent, classes=[0, 1], radius=1.0, row_norm=1.0, epsilon=1.0, delta=0.9), data),
        (local.Mean(low=0.0, high=1.0, epsilon=1.0), data),
        (local.HeavyHitters(n_bits=32, step_bits=1, epsilon=1.0), codes),
        (local.Histogram(n_categories=10, epsilon=1.0), codes),
    ):
        with pytest.raises(BudgetError, match="one row per user"):
            model.fit(dataset)
        with pytest.raises(BudgetError, match="one row per user"):
            model.plan(10, 1, dataset.schema.units)
    assert not recwarn.list


@pytest.mark.parametrize("diameter", [0.5, 1.9999, float("nan")])
def test_noise_for_values_that_are_nearer_than_those_of_the_statistic_is_refused(diameter):
    """Also where a question is read from a file: a device would send more than it promises."""
    with pytest.raises(BudgetError, match="has noise for values within diameter"):
        LocalProtocol(Ball(3), GaussianVector(3, 1.0, 1e-6, diameter))
    text = Survey(LocalProtocol(Ball(3), GaussianVector(3, 1.0, 1e-6))).to_json()
    with pytest.raises(DataError):
        Survey.from_json(text.replace('"diameter": 2.0', f'"diameter": {diameter}'))
    joint = JointStatistics(2, row_norm=1.0, label_bound=1.0, share=0.6)
    LocalProtocol(joint, GaussianVector(joint.size, 1.0, 1e-6, joint.diameter))
