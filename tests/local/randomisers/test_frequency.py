"""Frequency oracles: exact guarantees by enumeration, laws, invariance, influence, published variances."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, pairwise, product

import mpmath
import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpdist.data import Dataset
from dpdist.errors import BudgetError
from dpdist.kernels.hashes import hash_values
from dpdist.local.randomisers.frequency import KRR, OLH, ORACLES, OUE, SUE, UE, Hadamard, SubsetSelection
from dpdist.local.randomisers.responses import krr_share, respond
from dpdist.local.statistics.categories import Category
from dpdist.local.survey.levels import Levels
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.simulation import simulate
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws
from dpdist.privacy.randomness.streams import Stream

EPSILONS = (0.1, 1.0, 4.0, 8.0, 16.0)
NAMES = tuple(ORACLES)


def exactly(epsilon):
    """e^epsilon from below, to 60 digits."""
    with mpmath.workdps(80):
        return Fraction(int(mpmath.floor(mpmath.exp(mpmath.mpf(epsilon)) * 10**60)), 10**60)


def draws(seed=0, block=0):
    return StreamDraws(Stream(bytes([seed]) * 32, "test").generator(block))


def assert_ldp(laws, epsilon, tight=True):
    """``laws`` has the probabilities of all reports for each value, as Fractions; the null value is one of them."""
    bound = exactly(epsilon)
    worst = Fraction(0)
    for law in laws:
        assert sum(law) == 1 and min(law) > 0
    for report in zip(*laws, strict=True):
        worst = max(worst, max(report) / min(report))
    assert worst <= bound
    if tight:  # and nothing of the budget is given away
        assert worst >= bound * (1 - Fraction(1, 10**6))


def krr_law(x, size, epsilon):
    """The law of `respond`, from the answers at both ends of every run of words."""
    share = krr_share(size, epsilon)
    even = -(-(2**64 - size * share) // size)
    edges = [j * share for j in range(size + 1)]
    edges += [min(size * share + j * even, 2**64) for j in range(1, size)] + [2**64]
    law = [Fraction(0)] * size
    for first, last in pairwise(edges):
        if first == last:
            continue
        ends = respond(np.array([x, x]), np.array([first, last - 1], dtype=np.uint64), size, share)
        assert ends[0] == ends[1]
        law[ends[0]] += Fraction(last - first, 2**64)
    return law


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 3, 7, 20])
def test_krr_is_exactly_private(size, epsilon):
    laws = [krr_law(x, size, epsilon) for x in range(-1, size)]
    assert_ldp(laws, epsilon)
    p, q = KRR(size, epsilon).chances
    assert laws[1] == [p] + [q] * (size - 1)
    # a null record is uniform as far as 2**64 words can be
    assert max(laws[0]) - min(laws[0]) < Fraction(size * size, 2**64)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", [SUE, OUE, UE, lambda size, epsilon: UE(size, epsilon, p=0.6)])
def test_unary_encodings_are_exactly_private(kind, epsilon):
    """All reports for 6 categories; the bits are Bernoulli exactly by the tests of `bernoulli_lanes`."""
    size = 6
    p, q = kind(size, epsilon).chances
    laws = []
    for x in range(-1, size):
        law = []
        for bits in product((0, 1), repeat=size):
            chance = Fraction(1)
            for v, bit in enumerate(bits):
                one = p if v == x else q
                chance *= one if bit else 1 - one
            law.append(chance)
        laws.append(law)
    assert_ldp(laws, epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rounding_down_would_be_noticed(epsilon):
    """The broken control: the nearest multiple of 2**-53 below 1 / (E + 1)."""
    below = Fraction(int(2**53 / (exactly(epsilon) + 1)), 2**53)
    with pytest.raises(AssertionError):
        assert_ldp([[1 - below, below], [below, 1 - below]], epsilon)
    _, q = OUE(2, epsilon).chances
    assert below < q <= below + Fraction(8, 2**53)
    assert_ldp([[1 - q, q], [q, 1 - q]], epsilon)


def test_ue_has_two_probabilities_of_ones_own():
    """Those of `OUE` and `SUE` are two of its choices; q may be larger than it has to be, not smaller."""
    for epsilon in EPSILONS:
        assert UE(5, epsilon, p=0.5).chances == OUE(5, epsilon).chances
        p, q = SUE(5, epsilon).chances
        own = UE(5, epsilon, p=float(p))
        assert own.chances[0] == p and abs(own.chances[1] - q) < Fraction(1, 2**45)
    report = UE(3, 4.0, p=0.9, q=0.3).randomise(np.zeros(20_000, dtype=np.int64), draws())[:, 0]
    for bit, chance in enumerate((0.9, 0.3, 0.3)):
        assert abs((report >> bit & 1).mean() - chance) < 6 * 0.5 / math.sqrt(20_000)
    with pytest.raises(BudgetError, match=r"tell more than epsilon=1.0, at which q is 0.5246 at least"):
        UE(5, 1.0, p=0.75, q=0.5)
    for p, q in ((0.5, 0.5), (0.2, 0.3)):
        with pytest.raises(BudgetError, match="q must lie below p"):
            UE(5, 1.0, p, q)
    for p, q in ((0.0, None), (1.0, None), (float("nan"), None), (0.5, -0.1)):
        with pytest.raises(BudgetError, match="must lie between 0 and 1"):
            UE(5, 1.0, p, q)


def test_the_fair_coin_of_oue_is_used():
    """The own bit of many users: p = 1/2 and not 1 - q."""
    oracle = OUE(3, 4.0)
    own = oracle.randomise(np.zeros(20_000, dtype=np.int64), draws())[:, 0] & 1
    assert abs(own.mean() - 0.5) < 6 * 0.5 / math.sqrt(20_000)


class Given:
    """Draws that are chosen by hand."""

    def __init__(self, words):
        self.words = lambda n: words[:n]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 5, 20])
def test_hadamard_response_is_exactly_private(size, epsilon):
    oracle = Hadamard(size, epsilon)
    digits = 64 - size.bit_length()
    cut = int(oracle.flip * 2**digits)
    laws = []
    for x in range(-1, size):
        law = [Fraction(0)] * (2 * oracle.n_rows)
        for row in range(oracle.n_rows):
            for first, last in ((0, cut - 1), (cut, 2**digits - 1)):
                words = np.array([(row << digits) | first, (row << digits) | last], dtype=np.uint64)
                ends = oracle.randomise(np.array([x, x]), Given(words))
                assert ends[0] == ends[1] and ends[0] >> 1 == row
                law[int(ends[0])] += Fraction(last - first + 1, 2**64)
        laws.append(law)
        likely = [2 * r + (bin(r & (x + 1)).count("1") & 1) for r in range(oracle.n_rows)]
        assert all(law[cell] == (1 - oracle.flip) / oracle.n_rows for cell in likely)
    assert_ldp(laws, epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 4, 9])
def test_subset_selection_is_exactly_private(size, epsilon):
    """Given whether x is in it, the subset is uniform (`random_subsets`); whether it is has a chance of 53 bits."""
    oracle = SubsetSelection(size, epsilon)
    w = oracle.weight
    p, q = oracle.chances
    subsets = list(combinations(range(size), w))
    laws = [[Fraction(1, len(subsets))] * len(subsets)]
    for x in range(size):
        law = []
        for subset in subsets:
            inside = p / math.comb(size - 1, w - 1)
            law.append(inside if x in subset else (1 - p) / math.comb(size - 1, w))
        laws.append(law)
        assert all(sum(c for c, s in zip(law, subsets, strict=True) if v in s) == q for v in range(size) if v != x)
    assert_ldp(laws, epsilon, tight=size > 2)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_local_hashing_is_exactly_private_under_every_seed(epsilon):
    oracle = OLH(20, epsilon)
    g = oracle.n_cells
    cells = {x: krr_law(x, g, epsilon) for x in (range(-1, g) if g < 60 else (-1, 0, 1, g - 1))}
    assert_ldp(list(cells.values()), epsilon)
    # the hash value is all that the cell depends on
    reports = oracle.randomise(np.arange(-1, 20), draws(3))
    hashed = hash_values(np.ascontiguousarray(reports["seed"]), np.arange(-1, 20), g)
    again = draws(3)
    again.words(21)
    np.testing.assert_array_equal(reports["cell"], respond(hashed, again.words(21), g, krr_share(g, epsilon)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("k", "n"), [(2, 1), (3, 63), (7, 64), (64, 65), (65, 130), (130, 4096)])
def test_the_fused_sum_is_that_of_the_reports(name, k, n):
    oracle = ORACLES[name](k, 1.3)
    values = np.random.default_rng(n).integers(-1, k, size=n)
    reports = oracle.randomise(values, draws())
    assert reports.dtype == oracle.report.base and reports.shape == (n, *oracle.report.shape)
    assert oracle.valid(reports).all()
    np.testing.assert_array_equal(oracle.summarise(values, draws()), oracle.accumulate(reports))
    assert oracle.accumulate(reports).dtype == np.int64


@pytest.mark.parametrize("name", NAMES)
def test_impossible_reports_are_recognised(name):
    oracle = ORACLES[name](10, 1.0)
    reports = oracle.randomise(np.arange(10), draws())
    if name in ("krr", "hadamard-response"):
        reports[3] = 200
    elif name == "olh":
        reports["cell"][3] = oracle.n_cells
    else:
        reports[3, -1] = 0b10000000
    assert oracle.valid(reports).tolist() == [True] * 3 + [False] + [True] * 6
    if name == "subset-selection":
        reports[4] = 0
        assert not oracle.valid(reports)[4]


def laws_of(oracle, values, repeats, sums):
    estimates = []
    for block in range(repeats):
        source = draws(7, block)
        total = oracle.draw_sum(values, source.generator) if sums else oracle.summarise(values, source)
        estimates.append(oracle.decode(total.astype(float), len(values)))
    return np.array(estimates)


CASES = [(name, False) for name in NAMES] + [(name, True) for name in NAMES if ORACLES[name].has_sums]


@pytest.mark.parametrize(("name", "sums"), CASES)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_unbiased_with_the_variance_of_the_formula(name, sums, epsilon):
    """Means within 5.5, variances within 6 standard deviations of theirs: a false alarm below 1e-6 per test."""
    k, n, repeats = 6, 64, 2500
    values = np.repeat([0, 1, 2, 4], [32, 16, 8, 8])
    frequencies = np.bincount(values, minlength=k) / n
    oracle = ORACLES[name](k, epsilon)
    estimates = laws_of(oracle, values, repeats, sums)
    variance = oracle.variance(frequencies) / n
    assert (np.abs(estimates.mean(axis=0) - frequencies) < 5.5 * np.sqrt(variance / repeats)).all()
    np.testing.assert_allclose(estimates.var(axis=0), variance, rtol=6 * math.sqrt(2.5 / repeats))
    assert oracle.noise_std == pytest.approx(math.sqrt(oracle.variance(np.array([0.0, 1.0])).max()))


@pytest.mark.parametrize("name", [name for name in NAMES if ORACLES[name].has_sums])
def test_both_fidelities_have_one_law(name):
    oracle = ORACLES[name](5, 1.0)
    values = np.random.default_rng(0).integers(-1, 5, size=50)
    reports, sums = laws_of(oracle, values, 1500, False), laws_of(oracle, values, 1500, True)
    for v in range(5):
        assert ks_2samp(reports[:, v], sums[:, v]).pvalue > 1e-7
    for u, v in combinations(range(5), 2):  # and jointly
        assert ks_2samp(reports[:, u] - reports[:, v], sums[:, u] - sums[:, v]).pvalue > 1e-7


def test_sums_of_independent_binomials_would_be_noticed_for_krr():
    """The broken control: independent counts have the right mean and variance, but their sum is no constant."""
    oracle, values = KRR(5, 1.0), np.repeat(np.arange(5), 20)
    assert {int(oracle.draw_sum(values, np.random.default_rng(i)).sum()) for i in range(50)} == {100}


@pytest.mark.parametrize("name", NAMES)
def test_null_records_say_nothing_about_categories(name):
    k, n, repeats = 4, 64, 1500
    oracle = ORACLES[name](k, 1.0)
    values = np.full(n, -1)
    values[:16] = 2
    estimates = laws_of(oracle, values, repeats, False)
    each = 0.75 / k if name in ("krr", "subset-selection") else 0.0
    expected = each + np.array([0, 0, 0.25, 0])
    assert (np.abs(estimates.mean(axis=0) - expected) < 5.5 * oracle.noise_std / math.sqrt(n * repeats)).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_report_moves_the_estimate_by_its_influence_at_most(name):
    k, n = 6, 40
    oracle = ORACLES[name](k, 1.0)
    reports = oracle.randomise(np.arange(n) % k, draws())
    base = oracle.decode(oracle.accumulate(reports).astype(float), n)
    for other in range(k):
        forged = reports.copy()
        forged[:1] = oracle.randomise(np.array([other]), draws(5, other))
        moved = oracle.decode(oracle.accumulate(forged).astype(float), n) - base
        assert np.abs(moved).max() <= oracle.influence / n * (1 + 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_device_runs_the_same_code(name):
    oracle = ORACLES[name](100, 2.0)
    report = oracle.randomise(np.array([7]), SystemDraws())
    assert report.shape[0] == 1 and oracle.valid(report).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fidelity", ["report", "sum"])
def test_chunks_and_partitions_change_nothing(name, fidelity):
    if fidelity == "sum" and not ORACLES[name].has_sums:
        with pytest.raises(BudgetError, match="no exact law"):
            simulate(LocalProtocol(Category(9), ORACLES[name](9, 1.0)), {"X": np.zeros(5)}, fidelity=fidelity)
        return
    x = np.random.default_rng(0).integers(0, 9, size=10_001)
    protocol = LocalProtocol(Category(9), ORACLES[name](9, 1.0))
    totals = [
        simulate(protocol, Dataset.from_arrays(partition_rows=rows, X=x), fidelity=fidelity, random_state=1).total
        for rows in (10_001, 4096, 1000, 37)
    ]
    for total in totals[1:]:
        np.testing.assert_array_equal(total, totals[0])


@pytest.mark.parametrize("oracle", ["krr", "oue", "olh", "subset-selection", "hadamard-response"])
def test_levels_of_privacy_are_weighted_by_precision(oracle):
    """Mean and variance over many draws; the weights beat those by numbers of users."""
    k, n, repeats = 4, 90, 1200
    levels = (0.5, 1.0, 3.0)
    mixed = Levels(ORACLES[oracle](k, 3.0), levels)
    values = np.stack([np.arange(n) % 3, np.arange(n) // 3 % 3], axis=1)
    values[::9, 1] = -1
    estimates = np.array([mixed.decode(mixed.summarise(values, draws(9, b)).astype(float), n) for b in range(repeats)])
    asked = values[values[:, 1] >= 0]
    counts = np.bincount(asked[:, 1], minlength=3)
    truths = [np.bincount(asked[asked[:, 1] == level, 0], minlength=k) / counts[level] for level in range(3)]
    rare = np.array([float(o.variance(np.zeros(1))[0]) for o in mixed.randomisers])
    weights = counts / rare / (counts / rare).sum()
    expected = sum(w * f for w, f in zip(weights, truths, strict=True))
    parts = zip(weights, mixed.randomisers, truths, counts, strict=True)
    variance = sum(w**2 * o.variance(f) / m for w, o, f, m in parts)
    assert (np.abs(estimates.mean(axis=0) - expected) < 5.5 * np.sqrt(variance / repeats)).all()
    np.testing.assert_allclose(estimates.var(axis=0), variance, rtol=6 * math.sqrt(2.5 / repeats))
    assert variance[3] < sum((m / counts.sum()) ** 2 * v / m for m, v in zip(counts, rare, strict=True))


@pytest.mark.parametrize(
    ("name", "k", "band", "users", "repeats"),
    [("oue", 128, 3.683, 1024, 80), ("hadamard-response", 128, 4.683, 1024, 80), ("krr", 4, 1.598, 256, 4000)],
)
def test_the_published_variance_of_a_rare_category(name, k, band, users, repeats):
    """``n Var`` at frequency 0 within 5 %."""
    estimates = laws_of(ORACLES[name](k, 1.0), np.zeros(users, dtype=np.int64), repeats, False)[:, 1:]
    assert users * (estimates**2).mean() == pytest.approx(band, rel=0.05)


@pytest.mark.parametrize("size", [0, 1, 2.5, True])
def test_no_oracle_for_less_than_two_categories(size):
    with pytest.raises(BudgetError, match="size"):
        KRR(size, 1.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, "1"])
def test_no_oracle_without_a_budget(epsilon):
    for oracle in ORACLES.values():
        with pytest.raises(BudgetError, match="epsilon"):
            oracle(4, epsilon)
