"""Exact joint laws of samplers that compare digits: every path of the code's own algorithm, weighed in integers."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpdist.kernels import bernoulli
from dpdist.kernels.bernoulli import DIGITS, bernoulli_lanes
from dpdist.kernels.packed_bits import pack_unary
from dpdist.kernels.subsets import random_subsets
from dpdist.local.randomisers.frequency import OUE, SUE, SubsetSelection
from dpdist.privacy.randomness.draws import StreamDraws

EPSILONS = (0.1, 1.0, 2.0, 5.0, 8.0, 16.0)
TOGETHER = 5


def following(threshold):
    """The bytes behind the digits that are compared for all lanes at once."""
    return np.frombuffer((threshold & ((1 << 48) - 1)).to_bytes(6, "big"), dtype=np.uint8)


def finish(drawn, digits, n_lanes, agreed):
    """One call for the first lanes of a word: the bits of those decided, the lanes left, and the digits agreed on."""
    lanes, undecided = np.zeros(1, np.uint64), np.array([(1 << n_lanes) - 1], np.uint64)
    left, agreed = bernoulli._finish(drawn, digits, lanes, undecided, agreed)
    done = n_lanes - left
    assert int(undecided[0]) == ((1 << n_lanes) - 1) >> done << done, "lanes are decided in their order"
    return tuple(int(lanes[0]) >> i & 1 for i in range(done)), left, agreed


def law_of_the_rest(digits, n_lanes, buffer_size):
    """The joint law of ``n_lanes`` lanes that are still open, by dynamic programming over (lanes left, digits agreed).

    The buffers are those of `bernoulli_lanes`, and every string of bytes is fed to its kernel; bytes are told apart by
    how they compare with each of the digits only.
    """
    cuts = sorted({0, 256, *map(int, digits), *(int(d) + 1 for d in digits if d < 255)})
    cells = [(low, high - low) for low, high in itertools.pairwise(cuts)]

    @functools.cache
    def steps(left, agreed):
        found = defaultdict(int)
        size = buffer_size(left)
        for chosen in itertools.product(cells, repeat=size):
            drawn = np.array([value for value, _ in chosen], np.uint8)
            found[finish(drawn, digits, left, agreed)] += math.prod(count for _, count in chosen)
        return {state: Fraction(count, 256**size) for state, count in found.items()}

    law, open_ = defaultdict(Fraction), {((), n_lanes, 0): Fraction(1)}
    for _ in range(6 * n_lanes + 1):  # a lane has six bytes, and a buffer at least one
        before, open_ = open_, defaultdict(Fraction)
        for (bits, left, agreed), chance in before.items():
            if not left:
                law[bits] += chance
                continue
            for (more, still, now), share in steps(left, agreed).items():
                open_[bits + more, still, now] += chance * share
    assert not open_, "a lane is decided by its last digit at the latest"
    return law


def product_law(n_lanes, p):
    return {
        bits: math.prod((p if bit else 1 - p for bit in bits), start=Fraction(1))
        for bits in itertools.product((0, 1), repeat=n_lanes)
    }


def buffer_of_the_code(left):
    return 8 * ((left + left // 128) // 8 + 1)


@pytest.mark.parametrize("n_open", [1, 7, 8, 64])
def test_the_buffers_are_those_of_the_code(n_open):
    """After the five words of the first digits, the bytes for those lanes that agree with the threshold in all five."""
    asked = []

    def draw(n):
        asked.append(8 * n)
        if len(asked) > 1:
            return np.zeros(n, np.uint64)
        open_ = np.uint64(2**64 - 1 >> 64 - n_open)  # 0 1 0 1 0 begins a third; other lanes are below it at once
        return np.array([0, open_, 0, open_, 0], np.uint64)

    bernoulli_lanes(draw, 1, 2**53 // 3)
    assert asked == [8 * TOGETHER, buffer_of_the_code(n_open)]


@pytest.mark.parametrize("n_lanes", [2, 7])
def test_lanes_that_are_left_have_the_joint_law_of_independent_bits(n_lanes):
    """With the buffers of the code: seven lanes share eight bytes, so that most of the time one of them runs out."""
    threshold = 2**53 // 3  # all of its bytes are 0x55, so there are three kinds of bytes
    digits = following(threshold)
    law = law_of_the_rest(digits, n_lanes, buffer_of_the_code)
    assert law == product_law(n_lanes, Fraction(threshold % 2**48, 2**48))


THRESHOLDS = {(kind.name, epsilon): kind(2, epsilon)._threshold for kind in (OUE, SUE) for epsilon in EPSILONS}


@pytest.mark.parametrize("case", THRESHOLDS, ids=lambda case: f"{case[0]}-{case[1]:g}")
def test_a_lane_that_runs_out_of_bytes_goes_on_at_the_next_digit(case):
    """At the thresholds of the oracles, with buffers of one byte: every digit is the last of its buffer."""
    digits = following(THRESHOLDS[case])
    law = law_of_the_rest(digits, 3, lambda left: 1)
    assert law == product_law(3, Fraction(THRESHOLDS[case] % 2**48, 2**48))


def test_where_a_buffer_ends_changes_no_lane():
    """Any two ways to cut the same bytes into buffers; bytes are mostly ties."""
    rng = np.random.default_rng(0)
    for case in range(3000):
        digits = rng.integers(0, 3, 6).astype(np.uint8)
        drawn = rng.integers(0, 3, 64).astype(np.uint8)
        n_lanes = int(rng.integers(1, 9))
        whole = finish(drawn, digits, n_lanes, 0)
        bits, left, agreed, at = (), n_lanes, 0, 0
        while left and at < len(drawn):
            size = int(rng.integers(1, 9))
            more, left, agreed = finish(drawn[at : at + size], digits, left, agreed)
            bits, at = bits + more, at + size
        assert (bits, left) == whole[:2], case


def first_digits(threshold):
    """How one lane stands after the digits that are compared at once: chances of below, above and open."""
    leading = [-(threshold >> (DIGITS - 1 - j) & 1) for j in range(TOGETHER)]
    words = np.array([-(x >> j & 1) for j in range(TOGETHER) for x in range(32)], np.int64).view(np.uint64)
    lanes, undecided = np.empty(32, np.uint64), np.empty(32, np.uint64)
    bernoulli._compare(words, np.array(leading, np.int64).view(np.uint64), lanes, undecided)
    below, same = lanes == 2**64 - 1, undecided == 2**64 - 1
    assert (below | (lanes == 0)).all() and (same | (undecided == 0)).all() and not (below & same).any()
    return Fraction(int(below.sum()), 32), Fraction(int((~below & ~same).sum()), 32), Fraction(int(same.sum()), 32)


def joint_law(threshold, n_lanes):
    """Of the lanes of one word, from the first digit to the last byte."""
    below, above, open_ = first_digits(threshold)
    digits = following(threshold)
    rest = [law_of_the_rest(digits, m, lambda left: 1) for m in range(n_lanes + 1)]
    law = defaultdict(Fraction)
    for states in itertools.product((0, 1, None), repeat=n_lanes):
        chance = math.prod({1: below, 0: above, None: open_}[state] for state in states)
        for bits, share in rest[states.count(None)].items():
            left = iter(bits)
            law[tuple(next(left) if state is None else state for state in states)] += chance * share
    return law


def e_to_the(epsilon):
    """From below, to 60 digits."""
    with mpmath.workdps(90):
        return Fraction(int(mpmath.floor(mpmath.exp(mpmath.mpf(epsilon)) * 10**60)), 10**60)


def worst_ratio(laws):
    reports = set().union(*laws)
    assert all(set(law) == reports and sum(law.values()) == 1 for law in laws)
    return max(max(law[r] for law in laws) / min(law[r] for law in laws) for r in reports)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", [OUE, SUE])
def test_unary_reports_are_private_by_the_joint_law_of_their_bits(kind, epsilon):
    """Packed by the code for every value (-1: none), from the joint law of the lanes and of the fair coins."""
    size = 3
    oracle = kind(size, epsilon)
    lanes_law = joint_law(oracle._threshold, size)
    coins = [np.array([c], np.uint64) for c in (0, 1)] if kind is OUE else [None]
    laws = []
    for x in range(-1, size):
        law = defaultdict(Fraction)
        for bits, chance in lanes_law.items():
            lanes = np.array([sum(bit << v for v, bit in enumerate(bits))], np.uint64)
            for coin in coins:
                report = int(pack_unary(lanes, np.array([x]), size, coin)[0, 0])
                law[report] += chance / len(coins)
        laws.append(law)
    assert e_to_the(epsilon) * (1 - Fraction(1, 10**6)) < worst_ratio(laws) <= e_to_the(epsilon)


# --- subsets ----------------------------------------------------------------------------------------------------------


def words_of_an_item(n):
    """For every number in [0, n): a random word that means it, and how many do; None for words that are passed over."""
    kept, passed = {item: [] for item in range(n)}, []
    for item in range(n):
        first, last = -(-(item << 32) // n), -(-((item + 1) << 32) // n) - 1
        biased = (first * n) % 2**32 < 2**32 % n
        passed += [first] if biased else []
        kept[item] = [first + biased, last]
    counts = {last - first + 1 for first, last in kept.values()}
    assert len(counts) == 1 and counts.pop() * n + len(passed) == 2**32
    return kept, passed


@pytest.mark.parametrize(("k", "w", "without"), [(5, 2, -1), (5, 2, 0), (5, 3, 2), (5, 2, 4), (4, 3, -1)])
def test_subsets_are_uniform_by_every_sequence_of_numbers(k, w, without):
    """All numbers that Floyd's algorithm can draw, as the first and as the last of the words that mean them."""
    items = k - 1 if without >= 0 else k
    ranges = [words_of_an_item(last + 1) for last in range(items - w, items)]
    for end in (0, 1):
        found = defaultdict(int)
        for numbers in itertools.product(*(range(len(kept)) for kept, _ in ranges)):
            words = []
            for number, (kept, passed) in zip(numbers, ranges, strict=True):
                words += [*passed[-1:], kept[number][end]]
            stream = np.array([*words, *[7] * (-len(words) % 2)], np.uint32).view(np.uint64)
            packed = random_subsets(lambda n, s=stream: np.resize(s, n), k, np.array([w]), np.array([without]))
            found[int(packed[0, 0])] += 1
        assert len(found) == math.comb(items, w) and len(set(found.values())) == 1
        assert all(bin(subset).count("1") == w for subset in found)
        assert without < 0 or not any(subset >> without & 1 for subset in found)


def test_users_whose_words_run_out_read_them_again(monkeypatch):
    """Subsets with buffers of any size are those of one endless buffer."""
    rng = np.random.default_rng(3)
    sizes, without = rng.integers(1, 6, 400), rng.integers(-1, 7, 400)

    def drawn(slab):
        monkeypatch.setattr("dpdist.kernels.subsets._SLAB", slab)
        source = StreamDraws(np.random.default_rng(5))
        return random_subsets(source.words, 7, sizes, without)

    endless = drawn(1 << 15)
    for slab in (1, 2, 17, 300):
        np.testing.assert_array_equal(drawn(slab), endless)


class GivenFirst:
    """Draws whose first word is chosen by hand."""

    def __init__(self, word):
        self._first, self._rest = [np.array([word], np.uint64)], StreamDraws(np.random.default_rng(0))

    def words(self, n):
        return self._first.pop() if self._first else self._rest.words(n)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_subset_reports_are_private_by_the_words_that_lead_to_them(epsilon):
    """The word that decides whether the own category is in the subset, at both ends of either range."""
    oracle = SubsetSelection(5, epsilon)
    inside = int(oracle.chances[0] * 2**53)
    laws = []
    for x in range(-1, 5):
        law = defaultdict(Fraction)
        for first, last in ((0, inside), (inside, 2**53)):
            reports = [
                int(oracle.randomise(np.array([x]), GivenFirst(word))[0, 0]) for word in (first << 11, (last << 11) - 1)
            ]
            assert x < 0 or all(report >> x & 1 == (first == 0) for report in reports)
            subsets = itertools.combinations(range(5), oracle.weight)
            alike = [s for s in subsets if x < 0 or (x in s) == (first == 0)]
            for subset in alike:  # uniform, by the tests above
                law[subset] += Fraction(last - first, 2**53 * len(alike))
        laws.append(law)
    assert e_to_the(epsilon) * (1 - Fraction(1, 10**6)) < worst_ratio(laws) <= e_to_the(epsilon)
