"""A population that is given by counts: the sum has the law of users one by one, and what is wrong is refused."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats

from dpdist.errors import BudgetError, DataError
from dpdist.kernels.scalar_reports import CELLS, scalar_reports
from dpdist.local import simulate
from dpdist.local.randomisers.frequency import ORACLES, SubsetSelection
from dpdist.local.randomisers.scalar_sums import _sum_of_uniforms, sum_of_reports
from dpdist.local.randomisers.scalars import GaussianScalar, Hybrid, LaplaceScalar, OneBit, Piecewise
from dpdist.local.randomisers.vectors import GaussianVector
from dpdist.local.statistics.bounded_values import Ball, Box
from dpdist.local.statistics.categories import Category
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.randomness.draws import StreamDraws

ALPHA = 1e-7
"""Chance of a false alarm of one comparison, for fresh streams; these are fixed."""
COUNTED = sorted(name for name, oracle in ORACLES.items() if oracle.has_counts)
SCALARS = [OneBit(1, 1.0), Piecewise(1, 1.0), Piecewise(1, 5.0), Hybrid(1, 0.5), Hybrid(1, 2.0)]


def test_who_has_a_law_of_counts():
    assert COUNTED == ["hadamard-response", "krr", "oue", "sue", "ue"]


@pytest.mark.parametrize("name", COUNTED)
def test_counts_of_categories_have_the_law_of_users_one_by_one(name):
    """Every entry and every difference of two, by two independent implementations; two categories are alike."""
    k, counts = 5, np.array([9, 0, 20, 3, 6])
    oracle = ORACLES[name](k, 1.0)
    kinds, people = np.array([0, 2, 3, 4, -1, 2]), np.array([9, 15, 3, 6, 4, 5])  # null records, and a kind named twice
    users = np.concatenate([np.repeat(np.arange(k), counts), np.full(4, -1)])
    one_by_one, counted = [], []
    for i in range(500):
        one_by_one.append(oracle.summarise(users, StreamDraws(np.random.default_rng([1, i]))))
        counted.append(oracle.draw_counted(kinds, people, np.random.default_rng([2, i])))
    a, b = np.array(one_by_one), np.array(counted)
    assert a.shape == b.shape
    n = a.shape[1]
    for u in range(n):
        assert stats.ks_2samp(a[:, u], b[:, u]).pvalue > ALPHA
        for v in range(u):
            assert stats.ks_2samp(a[:, u] - a[:, v], b[:, u] - b[:, v]).pvalue > ALPHA
            assert stats.ks_2samp(a[:, u] + a[:, v], b[:, u] + b[:, v]).pvalue > ALPHA


@pytest.mark.parametrize("randomiser", SCALARS, ids=lambda r: f"{r.name}-{r.epsilon}")
def test_counts_of_numbers_have_the_law_of_users_one_by_one(randomiser):
    values, counts = np.array([-1.0, -0.3, 0.0, 0.77, 1.0]), np.array([3, 5, 1, 0, 4])
    rng = np.random.default_rng(3)
    users = np.repeat(values, counts)
    words = rng.integers(0, 2**64 - 1, size=(6000, users.size), dtype=np.uint64, endpoint=True)
    one_by_one = scalar_reports(np.broadcast_to(users, words.shape), words, randomiser.law).sum(axis=1)
    counted = [sum_of_reports(values, counts, randomiser.law, rng) for _ in range(1200)]
    assert stats.ks_2samp(one_by_one, counted).pvalue > ALPHA


@pytest.mark.parametrize("value", [-1.0, 0.2, 1.0])
@pytest.mark.parametrize("randomiser", SCALARS, ids=lambda r: f"{r.name}-{r.epsilon}")
def test_a_single_user_sends_a_report_of_the_law(randomiser, value):
    """The sum of one report is a report: its law by 64 cells of the range, against words in order (chi-square)."""
    law, rng = randomiser.law, np.random.default_rng(4)
    words = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    exact = scalar_reports(np.full(words.size, value), words, law)
    drawn = np.array([sum_of_reports(np.array([value]), np.array([1]), law, rng) for _ in range(600)])
    assert set(np.unique(drawn % 2)) <= set(np.unique(exact % 2))
    edges = np.unique(np.quantile(exact, np.linspace(0, 1, 17)))
    if edges.size == 2:
        expected = np.array([(exact == e).mean() for e in edges])
        found = np.array([(drawn == e).sum() for e in edges])
    else:
        inner = edges[1:-1] + 0.5
        expected = np.bincount(np.searchsorted(inner, exact), minlength=inner.size + 1) / exact.size
        found = np.bincount(np.searchsorted(inner, drawn), minlength=inner.size + 1)
    assert found.sum() == drawn.size
    assert stats.chisquare(found, expected * drawn.size).pvalue > ALPHA


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_sums_of_uniforms_are_exact(length):
    """All sums of three, against the convolution."""
    rng = np.random.default_rng(length)
    found = np.bincount([_sum_of_uniforms(np.array([3]), np.array([length]), rng) for _ in range(1200)])
    one = np.full(length, 1 / length)
    expected = np.convolve(np.convolve(one, one), one) * 1200
    assert found.size <= expected.size
    assert (
        stats.chisquare(np.pad(found, (0, expected.size - found.size)), expected).pvalue > ALPHA if length > 1 else True
    )
    assert _sum_of_uniforms(np.array([0, 5]), np.array([CELLS, 1]), rng) == 0


@pytest.mark.parametrize("name", COUNTED)
def test_all_people_of_the_earth_are_counted_at_once(name):
    k, n = 1000, 8_000_000_000
    rng = np.random.default_rng(0)
    counts = rng.multinomial(n, rng.dirichlet(np.ones(k)))
    oracle = ORACLES[name](k, 1.0)
    start = time.thread_time()
    found = simulate(LocalProtocol(Category(k), oracle), counts=counts, n_users=n, random_state=0)
    assert time.thread_time() - start < 2
    error = found.estimate - counts / n
    assert (np.abs(error) < 6.5 * np.sqrt(oracle.variance(counts / n) / n)).all(), "a false alarm below 1e-7"
    assert np.sqrt((error**2).mean()) == pytest.approx(np.sqrt(oracle.variance(counts / n).mean() / n), rel=0.2)
    assert found.guarantee.simulation and found.n_users == n


@pytest.mark.parametrize("randomiser", [*SCALARS, GaussianScalar(1, 1.0, 1e-6)], ids=lambda r: f"{r.name}-{r.epsilon}")
def test_a_grid_of_values(randomiser):
    n, values = 8_000_000_000, np.linspace(0, 100, 1000)[:, None]
    protocol = LocalProtocol(Box(1, low=0.0, high=100.0), randomiser)
    counts = np.random.default_rng(1).multinomial(n, np.full(1000, 1e-3))
    start = time.thread_time()
    found = simulate(protocol, {"X": values}, counts=counts, random_state=1)
    assert time.thread_time() - start < 2
    assert abs(found.estimate[0] - counts @ values[:, 0] / n) < 6 * 50 * found.standard_error + 1e-4


def test_vectors_with_normal_noise():
    protocol = LocalProtocol(Ball(2), GaussianVector(2, 1.0, 1e-6))
    X, counts = np.array([[0.6, 0.0], [0.0, -0.8]]), np.array([10**9, 3 * 10**9])
    found = simulate(protocol, {"X": X}, counts=counts, random_state=0)
    np.testing.assert_allclose(found.estimate, [0.15, -0.6], atol=6 * found.standard_error)


def test_seeds_and_fresh_keys():
    protocol = LocalProtocol(Category(4), ORACLES["oue"](4, 1.0))
    counts = [1000, 0, 20, 7]
    first, again = (simulate(protocol, counts=counts, random_state=1).total for _ in range(2))
    assert (first == again).all()
    assert len({simulate(protocol, counts=counts).total.tobytes() for _ in range(5)}) > 1
    assert (simulate(protocol, counts=counts, random_state=2).total != first).any()


OUE = LocalProtocol(Category(3), ORACLES["oue"](3, 1.0))


@pytest.mark.parametrize(
    "counts",
    [[1, -1, 3], [1, 2.5, 3], [1, 2], [[1, 2, 3]], [0, 0, 0], [np.nan, 1, 1], [1, 1, np.inf], ["a", "b", "c"], 6,
     [True, True, False], [2**62, 2**62, 2**62], [1e300, 1, 1], object()],
)  # fmt: skip
def test_counts_that_count_nobody_are_one_error(counts):
    with pytest.raises(DataError, match=r"^(counts must be 3 whole numbers|expected a population)"):
        simulate(OUE, counts=counts)


@pytest.mark.parametrize("n_users", [5, -6, 6.0, True, "6"])
def test_counts_that_do_not_add_up_are_the_same_error(n_users):
    with pytest.raises(DataError, match=r"counts must be 3 whole numbers .* that add up to n_users="):
        simulate(OUE, counts=[1, 2, 3], n_users=n_users)
    assert simulate(OUE, counts=[1, 2, 3], n_users=6, random_state=0).n_users == 6


@pytest.mark.parametrize("randomiser", [SubsetSelection(3, 1.0), ORACLES["olh"](3, 1.0)], ids=lambda r: r.name)
def test_no_law_no_counts(randomiser):
    with pytest.raises(BudgetError, match="no exact law of the sum"):
        simulate(LocalProtocol(Category(3), randomiser), counts=[1, 2, 3])
    with pytest.raises(BudgetError, match="no exact law of the sum"):
        randomiser.draw_counted(np.arange(3), np.ones(3, np.int64), np.random.default_rng(0))


def test_clamped_reports_have_no_law_either():
    with pytest.raises(BudgetError, match="no exact law of the sum"):
        simulate(LocalProtocol(Box(1, -1.0, 1.0), LaplaceScalar(1, 1.0)), {"X": np.zeros((1, 1))}, counts=[5])


def test_what_counts_cannot_go_with_is_refused():
    with pytest.raises(DataError, match="makes up a population"):
        simulate(OUE, counts=[1, 2, 3], fidelity="sum")
    with pytest.raises(DataError, match="makes up a population"):
        simulate(OUE, counts=[1, 2, 3], run_id="monday")
    with pytest.raises(DataError, match="needs the records"):
        simulate(LocalProtocol(Box(1, -1.0, 1.0), OneBit(1, 1.0)), counts=[1])
    with pytest.raises(DataError, match="asks for 'X'"):
        simulate(OUE, {"Z": np.arange(3)}, counts=[1, 2, 3])
    with pytest.raises(DataError, match="expected a population"):
        simulate(OUE, {"X": np.arange(3)}, n_users=3)
