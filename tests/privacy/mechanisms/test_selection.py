"""Selection: frequencies against exact probabilities, worst neighbours by enumeration, pinned costs.

Fixed streams make the statistical tests deterministic; a right sampler fails a fresh stream with probability 1e-7.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.mechanisms.selection import (
    ExponentialMechanism,
    NoisyMax,
    PermuteAndFlip,
    _rate,
    noisy_max,
    permute_and_flip,
    select,
    select_top,
)
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed

ALPHA = 1e-7
N = 2500
SINGLE: list[Callable[..., int]] = [select, permute_and_flip, noisy_max]
KINDS = [ExponentialMechanism, PermuteAndFlip, NoisyMax]
SCORES = [[0, 3, 5], [4, 4, 1, -2], [7, 7, 7], [-1000, 2, 3, 2]]


def bits(name: str, **params: object) -> StreamBits:
    return StreamBits(Stream(run_key_from_seed(40), name, **params))


# --- exact probabilities ----------------------------------------------------------------------------------------------


def softmax(scores: Sequence[int], range_sensitivity: float, eps0: float) -> np.ndarray:
    u = np.array(scores, dtype=float) * eps0 / range_sensitivity
    e = np.exp(u - u.max())
    return e / e.sum()


def flip_law(scores: Sequence[int], sensitivity: float, eps: float) -> np.ndarray:
    accept = np.exp((np.array(scores, float) - max(scores)) * eps / (2 * sensitivity))
    law = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = 1 / len(orders)
        for r in order:
            law[r] += reached * accept[r]
            reached *= 1 - accept[r]
    return law


def noisy_max_law(scores: Sequence[int], sensitivity: float, eps: float) -> np.ndarray:
    """Sum over the noisy value of the winner; competitors with a lower index have to stay strictly below it."""
    b = 2 * sensitivity / eps
    reach = int(45 * b) + 2
    values = np.arange(min(scores) - reach, max(scores) + reach + 1)

    def at_most(x: np.ndarray) -> np.ndarray:  # P(Z <= x)
        tail = np.exp(-np.abs(x) / b) / (1 + np.exp(-1 / b))
        return np.where(x < 0, tail, 1 - tail * np.exp(-1 / b))

    law = []
    for r, u in enumerate(scores):
        p = np.exp(-np.abs(values - u) / b) * math.tanh(0.5 / b)
        for j, v in enumerate(scores):
            if j != r:
                p = p * at_most(values - v - (j < r))
        law.append(p.sum())
    return np.array(law)


def top_law(scores: Sequence[int], range_sensitivity: float, eps0: float, k: int) -> dict[tuple[int, ...], float]:
    law = {}
    for ordered in itertools.permutations(range(len(scores)), k):
        p, remaining = 1.0, list(range(len(scores)))
        for r in ordered:
            p *= softmax([scores[j] for j in remaining], range_sensitivity, eps0)[remaining.index(r)]
            remaining.remove(r)
        law[ordered] = p
    return law


LAWS = {select: softmax, permute_and_flip: flip_law, noisy_max: noisy_max_law}


def chi_square_p(counts: Sequence[int], law: Sequence[float]) -> float:
    expected = np.array(law) * sum(counts)
    observed, rare = np.array(counts, float), expected < 10
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 1e-9:
        assert observed[-1] == 0
        observed, expected = observed[:-1], expected[:-1]
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), max(observed.size - 1, 1)))


# --- the laws ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("mechanism", SINGLE)
def test_frequencies_are_the_exact_probabilities(mechanism: Callable[..., int], scores: list[int]) -> None:
    source = bits("law", mechanism=mechanism.__name__, scores=scores)
    picks = [mechanism(np.array(scores), 2.5, 1.3, source) for _ in range(N)]
    counts = np.bincount(picks, minlength=len(scores))
    law = LAWS[mechanism](scores, 2.5, 1.3)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert chi_square_p(counts, law) > ALPHA


@pytest.mark.parametrize("mechanism", SINGLE)
def test_control_a_wrong_epsilon_is_rejected(mechanism: Callable[..., int]) -> None:
    """Half or twice the epsilon, and the law of another mechanism, fail the same test."""
    source = bits("control", mechanism=mechanism.__name__)
    scores = [0, 3, 5]
    picks = [mechanism(np.array(scores), 2.5, 1.3, source) for _ in range(N)]
    counts = np.bincount(picks, minlength=3)
    for eps in (0.65, 2.6):
        assert chi_square_p(counts, LAWS[mechanism](scores, 2.5, eps)) < ALPHA
    for other in SINGLE:
        if other is not mechanism:
            assert chi_square_p(counts, LAWS[other](scores, 2.5, 1.3)) < ALPHA


@pytest.mark.parametrize("k", [1, 2, 4])
def test_ordered_lists_of_the_top_have_the_law_of_successive_picks(k: int) -> None:
    scores = [4, 1, 4, 6]
    source = bits("top", k=k)
    picks = Counter(tuple(select_top(np.array(scores), 3, 1.7, k, source).tolist()) for _ in range(N))
    law = top_law(scores, 3, 1.7, k)
    assert sum(law.values()) == pytest.approx(1)
    assert set(picks) <= set(law)
    assert chi_square_p([picks[key] for key in law], list(law.values())) > ALPHA
    wrong = top_law(scores, 3, 0.85, k)
    assert chi_square_p([picks[key] for key in law], list(wrong.values())) < ALPHA


def test_top_equals_one_gumbel_vector() -> None:
    """The law by enumeration is that of the k largest of scores + Gumbel noise."""
    scores, rng = np.array([4, 1, 4, 6]), np.random.default_rng(5)
    noisy = scores * 1.7 / 3 + rng.gumbel(size=(40_000, 4))
    picks = Counter(map(tuple, np.argsort(-noisy, axis=1)[:, :2].tolist()))
    law = top_law(scores.tolist(), 3, 1.7, 2)
    assert chi_square_p([picks[key] for key in law], list(law.values())) > ALPHA


# --- privacy ----------------------------------------------------------------------------------------------------------


def neighbours(scores: Sequence[int], step: int) -> list[tuple[int, ...]]:
    return [tuple(u + d for u, d in zip(scores, move, strict=True))
            for move in itertools.product((-step, 0, step), repeat=len(scores))]  # fmt: skip


@pytest.mark.parametrize("mechanism", SINGLE)
def test_worst_neighbours_stay_within_epsilon(mechanism: Callable[..., int]) -> None:
    """All scores move by at most 2 (range 4): the largest log-ratio is at most epsilon, and near it somewhere."""
    eps, step = 1.1, 2
    sensitivity = 2 * step if mechanism is select else step
    worst = 0.0
    for scores in ([0, 0, 0], [0, 4, 1], [30, 0, 0], [0, 30, 28], [0, 1, 45]):
        law = LAWS[mechanism](scores, sensitivity, eps)
        for other in neighbours(scores, step):
            ratio = np.log(LAWS[mechanism](other, sensitivity, eps) / law)
            worst = max(worst, float(np.abs(ratio).max()))
            if mechanism is select:
                assert ratio.max() - ratio.min() <= eps + 1e-9  # bounded range
    assert 0.95 * eps < worst <= eps + 1e-9


def test_ordered_top_lists_cost_k_epsilon() -> None:
    eps0, step, worst = 0.7, 1, 0.0
    for scores in ([0, 0, 0, 0], [9, 0, 0, -9], [40, 20, 0, 0]):
        law = top_law(scores, 2 * step, eps0, 2)
        for other in neighbours(scores, step):
            theirs = top_law(other, 2 * step, eps0, 2)
            worst = max(worst, max(abs(math.log(theirs[key] / law[key])) for key in law))
    assert 1.7 * eps0 < worst <= 2 * eps0 + 1e-9


def test_control_permute_and_flip_is_not_bounded_range() -> None:
    """Two candidates, gap 0 against gap 2 sensitivity: KL is nearly eps**2/2, so eps**2/8 would be false."""
    eps = 0.01
    p, q = flip_law([0, 0], 1, eps), flip_law([0, 2], 1, eps)
    kl = float((p * np.log(p / q)).sum())
    assert 3.9 * eps**2 / 8 < kl <= eps**2 / 2
    p, q = softmax([0, 0], 2, eps), softmax([0, 2], 2, eps)
    assert float((p * np.log(p / q)).sum()) <= eps**2 / 8


def test_costs_are_pinned() -> None:
    assert ExponentialMechanism().at(0.4).cost == Cost("bounded-range", 0.8)
    assert PermuteAndFlip().at(0.4).cost == Cost("pure", 0.4)
    assert NoisyMax().at(0.4).cost == Cost("pure", 0.4)
    for kind in KINDS:
        assert kind().at(0.4).cost.rho == pytest.approx(0.4**2 / 2)
    assert PermuteAndFlip().at(0.4).cost.rho != pytest.approx(0.4**2 / 8)
    assert ExponentialMechanism().at(0.4).cost.epsilon == 0.8
    assert PermuteAndFlip().at(0.4).cost.epsilon == NoisyMax().at(0.4).cost.epsilon == 0.4


def test_rates_are_rounded_down() -> None:
    rng = np.random.default_rng(6)
    for _ in range(200):
        eps, sensitivity = float(2.0 ** rng.uniform(-20, 4)), float(2.0 ** rng.uniform(-3, 60))
        exact = eps / sensitivity
        assert exact * (1 - 2**-39) <= _rate(eps, sensitivity) <= exact * (1 + 2**-52)
        assert float(_rate(eps, sensitivity, 2)) == float(_rate(eps, sensitivity)) / 2


# --- objects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, function, epsilon", [
    (ExponentialMechanism, select, 0.6),
    (PermuteAndFlip, permute_and_flip, 0.3),
    (NoisyMax, noisy_max, 0.3),
])  # fmt: skip
def test_a_release_draws_at_the_epsilon_that_is_charged(kind: type, function: Callable, epsilon: float) -> None:
    mechanism = kind().at(0.3)
    assert mechanism.cost.parameter == pytest.approx(epsilon)
    scores = np.array([3, 9, 4, 8])
    one, two = bits("same"), bits("same")
    for _ in range(50):
        given = 4.0 if kind is ExponentialMechanism else 2.0  # a range, where all scores may move either way
        assert mechanism.release(scores, 2.0, one) == function(scores, given, mechanism.cost.parameter, two)


@pytest.mark.parametrize("kind", KINDS)
def test_calibration(kind: type) -> None:
    with pytest.raises(BudgetError, match="no strength"):
        kind().release(np.array([1, 2]), 1.0, SystemBits())
    with pytest.raises(BudgetError, match="no strength"):
        _ = kind().cost
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BudgetError, match="strength"):
            kind().at(bad)
        with pytest.raises(BudgetError, match="sensitivity"):
            kind().at(1.0).release(np.array([1, 2]), bad, SystemBits())
    assert kind().at(1.0) == kind(1.0) != kind().at(2.0)


# --- edges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", SINGLE)
def test_single_candidate_and_huge_gaps(mechanism: Callable[..., int]) -> None:
    assert mechanism(np.array([-5]), 1.0, 1.0, SystemBits()) == 0
    low, high = -(2**63), 2**63 - 1
    for scores in (
        np.array([low, high, 0]),
        np.array([low, high, 0], dtype=object),
        np.array([0, 10**40, -(10**40)], dtype=object),
        np.array([0, 2**62, 2**62 - 10**6]),
    ):
        assert mechanism(scores, 1.0, 1.0, SystemBits()) == 1  # any other has probability below 1e-200000
    index = mechanism(np.array([0, 2**61]), 1.0, 1.0, SystemBits())
    assert type(index) is int


@pytest.mark.parametrize("mechanism", SINGLE)
def test_only_differences_of_scores_matter(mechanism: Callable[..., int]) -> None:
    scores = np.array([3, 9, 4, 8])
    for shifted in (scores + 2**62, scores - 2**62, scores.astype(object) + 10**30):
        one, two = bits("shift"), bits("shift")
        for _ in range(30):
            assert mechanism(scores, 2.0, 1.0, one) == mechanism(shifted, 2.0, 1.0, two)


def test_noisy_max_breaks_ties_towards_the_lowest_index() -> None:
    """Noise of scale 2e-3 is zero but with probability 1e-217, so ties stay ties."""
    assert {noisy_max(np.array([1, 5, 5, 5]), 1.0, 1000.0, SystemBits()) for _ in range(20)} == {1}


def test_a_needle_among_many_candidates() -> None:
    scores = np.zeros(20_000, dtype=np.int64)
    scores[12_345] = 100
    for mechanism in SINGLE:
        assert mechanism(scores, 1.0, 2.0, bits("needle", mechanism=mechanism.__name__)) == 12_345
    top = select_top(scores, 1.0, 2.0, 3, bits("needle"))
    assert top[0] == 12_345 and np.unique(top).size == 3


def test_top_k_edges() -> None:
    scores = np.array([10**6, 3 * 10**6, 2 * 10**6])
    assert select_top(scores, 1.0, 1.0, 3, SystemBits()).tolist() == [1, 2, 0]
    assert sorted(select_top(np.zeros(5, dtype=np.int64), 1.0, 1.0, 5, SystemBits()).tolist()) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(scores, [10**6, 3 * 10**6, 2 * 10**6])
    for k in (0, 4):
        with pytest.raises(ValueError, match="candidates"):
            select_top(scores, 1.0, 1.0, k, SystemBits())


@pytest.mark.parametrize("mechanism", SINGLE)
def test_scores_have_to_be_a_vector_of_integers(mechanism: Callable[..., int]) -> None:
    with pytest.raises(TypeError, match="integers"):
        mechanism(np.array([0.5, 123456.5]), 1.0, 1.0, SystemBits())
    for scores in (np.zeros((2, 2), dtype=np.int64), np.zeros(0, dtype=np.int64)):
        with pytest.raises(ValueError, match="vector"):
            mechanism(scores, 1.0, 1.0, SystemBits())


def test_permutations_are_uniform() -> None:
    """With eps so small that every flip succeeds the first visited candidate is chosen: uniform."""
    source = bits("permutation")
    picks = [permute_and_flip(np.array([0, 1, 2, 3, 4]), 1e9, 1e-9, source) for _ in range(N)]
    assert stats.chisquare(np.bincount(picks, minlength=5)).pvalue > ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_signed_candidates_are_the_vertices_of_an_l1_ball(kind) -> None:
    """Strong selections find the largest entry of either sign; -2^63 has no int64 negative."""
    for scores, best in (([5, -900, 7], 1), ([5, -9, 900], 3 + 2), ([-(2**63), 0], 0)):
        mechanism = kind(signed=True).at(50.0)
        assert mechanism.release(np.array(scores), 1.0, SystemBits()).tolist() == [best]
