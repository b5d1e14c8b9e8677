"""Reports about sampled coordinates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from dpdist import Dataset
from dpdist.errors import BudgetError
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.scalars import scalar_law
from dpdist.local.statistics.bounded_values import Box
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.simulation import simulate
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws

KINDS = [
    SampleCoordinates(1, 1.0),
    SampleCoordinates(7, 1.0, reporter="one-bit"),
    SampleCoordinates(128, 0.5),
    SampleCoordinates(7, 8.0),
    SampleCoordinates(3, 9.0, reporter="piecewise"),
    SampleCoordinates(4, 2.0, n_sampled=4),
    SampleCoordinates(5, 200.0),
]


def draws(seed: int = 0) -> StreamDraws:
    return StreamDraws(np.random.Generator(np.random.Philox(seed)))


@pytest.mark.parametrize("randomiser", KINDS, ids=repr)
def test_the_compiled_sum_is_the_sum_of_the_reports(randomiser):
    values = np.random.default_rng(0).uniform(-1, 1, (3000, randomiser.size))
    values[:4] = [[-1.0], [1.0], [0.0], [1 + 1e-7]]
    reports = randomiser.randomise(values, draws(5))
    assert reports.dtype == randomiser.report and randomiser.valid(reports).all()
    assert (randomiser.accumulate(reports) == randomiser.summarise(values, draws(5))).all()
    drawn = reports["coordinate"]
    assert all(len(set(row)) == randomiser.k for row in drawn.tolist())
    parts = randomiser.accumulate(reports[:999]) + randomiser.accumulate(reports[999:])
    assert (parts == randomiser.accumulate(reports)).all()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("reporter", ["hybrid", "one-bit", "piecewise"])
def test_k_reports_compose_to_epsilon(reporter, epsilon):
    """The coordinates know nothing of the record, and each law was verified for epsilon / k (test_scalars)."""
    randomiser = SampleCoordinates(10, epsilon, reporter=reporter)
    assert randomiser.k == max(1, int(epsilon / 2.5)) and randomiser.law == scalar_law(reporter, epsilon / randomiser.k)
    assert randomiser.k * (epsilon / randomiser.k) <= epsilon * (1 + 1e-15)
    assert randomiser.cost.parameter == epsilon and f"n_sampled={randomiser.k}" in repr(randomiser)


def test_coordinates_do_not_depend_on_the_record_and_are_uniform():
    randomiser = SampleCoordinates(7, 8.0)
    first, second = (randomiser.randomise(np.full((30_000, 7), v), draws(3))["coordinate"] for v in (-1.0, 1.0))
    assert (first == second).all()
    pairs = np.sort(first, axis=1)[:, :2] @ [7, 1]
    assert chisquare(np.bincount(first.ravel(), minlength=7)).pvalue > 1e-7
    counts = np.array([count for count in np.bincount(pairs) if count])
    assert len(counts) == 15  # the two smallest of three different coordinates


@pytest.mark.parametrize("randomiser", KINDS[1:5], ids=repr)
def test_estimates_are_unbiased_and_no_worse_than_stated(randomiser):
    """Six standard errors of the mean of 40 estimates; the square error is a chi-squared with 40 d degrees."""
    d, n, rounds = randomiser.size, 20_000, 40
    mean = np.linspace(-0.9, 0.9, d)
    values = np.where(np.random.default_rng(0).uniform(-1, 1, (n, d)) < mean, 1.0, -1.0)  # the most uneven values
    errors = np.array(
        [
            randomiser.decode(randomiser.summarise(values, draws(i)).astype(float), n) - values.mean(axis=0)
            for i in range(rounds)
        ]
    )
    stated = randomiser.noise_std / math.sqrt(n)
    assert np.abs(errors.mean(axis=0)).max() < 6.5 * stated / math.sqrt(rounds)
    assert math.sqrt((errors**2).mean()) < stated * (1 + 6 / math.sqrt(2 * rounds * d))
    exact = randomiser.size / randomiser.k * randomiser.law.variance(0.0)
    assert (errors**2).mean() > 0.5 * min(exact, stated**2 * n) / n * 0.1


def test_the_error_hardly_depends_on_equal_values():
    """Dividing by the number of reports takes out which users were asked: much less at large epsilon."""
    randomiser, n = SampleCoordinates(20, 7.0, n_sampled=1), 20_000
    errors = [
        randomiser.decode(randomiser.summarise(np.ones((n, 20)), draws(i)).astype(float), n) - 1 for i in range(20)
    ]
    expected = math.sqrt(20 * randomiser.law.variance(1.0) / n)
    assert abs(math.sqrt(np.mean(np.square(errors))) / expected - 1) < 6 / math.sqrt(2 * 400)


def test_no_report_about_a_coordinate_gives_the_middle():
    randomiser = SampleCoordinates(50, 1.0)
    total = randomiser.summarise(np.ones((1, 50)), draws()).astype(float)
    assert (randomiser.decode(total, 1) != 0).sum() == 1
    assert (randomiser.decode(np.zeros(100), 0) == 0).all()


def test_a_device_sends_what_a_server_accepts():
    protocol = LocalProtocol(Box(6, 0.0, 1.0), SampleCoordinates(6, 6.0))
    reports = protocol.randomise({"X": np.array([[0.1, 0.2, np.inf, 0.3, 0.4, 0.5]])}, SystemDraws())
    randomiser = protocol.randomiser
    assert randomiser.valid(reports).all()
    for field, wrong in (("coordinate", [0, 0]), ("coordinate", [-1, 2]), ("coordinate", [1, 6])):
        bad = reports.copy()
        bad[field] = wrong
        assert not randomiser.valid(bad).any()
    bad = reports.copy()
    bad["value"][:, 0] = -(2**31)
    assert not randomiser.valid(bad).any()
    bit = SampleCoordinates(6, 1.0, reporter="one-bit")
    bad = bit.randomise(np.zeros((1, 6)), SystemDraws())
    bad["value"] = 0
    assert not bit.valid(bad).any()


def test_poisoned_reports_move_one_coordinate_by_no_more_than_stated():
    randomiser, n, m = SampleCoordinates(10, 1.0), 40_000, 400
    honest = randomiser.summarise(np.zeros((n - m, 10)), draws()).astype(float)
    poison = np.zeros(20)
    poison[3], poison[13] = m * randomiser.units, m
    moved = randomiser.decode(honest + poison, n) - randomiser.decode(honest, n - m)
    assert np.abs(moved).max() <= 1.05 * m * randomiser.influence / n  # the number of honest ones varies a little


@pytest.mark.parametrize("partition_rows", [1000, 4096, 9000])
def test_reports_do_not_depend_on_the_partitions(partition_rows, tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (9000, 5))
    protocol = LocalProtocol(Box(5), SampleCoordinates(5, 6.0))
    stored = Dataset.from_arrays(tmp_path / "a.zarr", X=X, partition_rows=partition_rows)
    ours = simulate(protocol, stored, random_state=3, ledger=Ledger(":memory:"))
    assert (ours.total == simulate(protocol, {"X": X}, random_state=3).total).all()


def test_wrong_parameters_are_refused():
    for wrong in ({"n_sampled": 0}, {"n_sampled": 6}, {"n_sampled": 1.5}, {"reporter": "laplace"}, {"epsilon": 0.0}):
        with pytest.raises(BudgetError):
            SampleCoordinates(**{"size": 5, "epsilon": 1.0, **wrong})
