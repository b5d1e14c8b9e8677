"""Exact laws of the integer samplers: every path of the code's own algorithm, weighed in rational numbers.

Digits are enumerated as they are. Coins with an irrational chance ``exp(-t)`` are decided by digits as well, which is
looked at word by word; in the samplers that are made of them ``e`` is then replaced by a power of two, so that every
path has a rational chance and the law can be compared with its formula without any rounding.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from dpdist.privacy.mechanisms import selection
from dpdist.privacy.randomness import discrete
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.privacy.randomness.discrete import bernoulli_exp, uniform_below

EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(5), Fraction(16))


class Rejected(Exception):
    """This path is left; the sampler would start again, as if it had not been."""


class Open(Exception):
    """This path is too rare to be followed to its end."""


class Paths:
    """All ways a sampler can go: it asks for choices, and is run again for every sequence of them."""

    def __init__(self, rarest: Fraction = Fraction(1, 2**200)) -> None:
        self.rarest = rarest

    def law(self, sample: Callable[[Paths], Any]) -> dict[Any, Fraction]:
        """The chances of what ``sample`` returns, without those of rejected and of open paths."""
        found: dict[Any, Fraction] = defaultdict(Fraction)
        self._script: list[int] = []
        while True:
            self._at, self._chance, self._widths = 0, Fraction(1), list[int]()
            try:
                value = sample(self)
                found[value] += self._chance
            except (Rejected, Open):
                pass
            while self._widths and self._script[len(self._widths) - 1] + 1 == self._widths[-1]:
                self._widths.pop()
            if not self._widths:
                return dict(found)
            del self._script[len(self._widths) :]
            self._script[-1] += 1

    def choose(self, options: Sequence[tuple[Any, Fraction]]) -> Any:
        options = [(value, chance) for value, chance in options if chance]
        if self._at == len(self._script):
            self._script.append(0)
        value, chance = options[self._script[self._at]]
        self._at += 1
        self._widths.append(len(options))
        self._chance *= chance
        if self._chance < self.rarest:
            raise Open
        return value


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 11])
def test_uniform_numbers_are_the_words_that_are_small_enough(n: int) -> None:
    """As many words for every number, and nothing but those that stand for none are passed over."""
    length = (n - 1).bit_length()
    source = np.random.default_rng(n).integers(0, 2**64, 5000, dtype=np.uint64)

    class Counted:
        simulated, at = True, 0

        def words(self, m: int) -> np.ndarray:
            self.at += m
            return source[self.at - m : self.at]

    meant = source >> np.uint64(64 - length)
    for size in (1, 2, 17, 500):
        np.testing.assert_array_equal(uniform_below(n, size, Counted()), meant[meant < n][:size])


def heads_of(t: Fraction, first: Sequence[int]) -> tuple[int, int]:
    """How many of the words that follow ``first`` make the coin exp(-t) fall on heads, and how many ask for more."""

    class Script:
        simulated = True

        def __init__(self, *words: int) -> None:
            self.left = list(words)

        def words(self, n: int) -> np.ndarray:
            if n > len(self.left):
                raise Open
            taken, self.left = self.left[:n], self.left[n:]
            return np.array(taken, dtype=np.uint64)

    def outcome(word: int) -> int:
        try:
            return int(not bernoulli_exp(np.array([t.numerator], dtype=object), t.denominator, Script(*first, word))[0])
        except Open:
            return -1  # neither

    def smallest(is_beyond: Callable[[int], bool]) -> int:
        low, high = 0, 2**64
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if is_beyond(middle) else (middle + 1, high)
        return low

    heads = smallest(lambda word: outcome(word) != 0)
    return heads, smallest(lambda word: outcome(word) == 1) - heads


@pytest.mark.parametrize("t", [Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(5), Fraction(16), Fraction(30)])
def test_coins_of_exponentials_are_exact_to_128_digits(t: Fraction) -> None:
    """The words of heads, of tails and of neither, by bisection; of the one that is neither, the words that follow."""
    first: list[int] = []
    for length in (64, 128):
        heads, neither = heads_of(t, first)
        assert neither <= 1
        with mpmath.workprec(500):
            e = int(mpmath.floor(mpmath.exp(-mpmath.mpf(t.numerator) / t.denominator) * mpmath.mpf(2) ** length))
        before = sum(word << (length - 64 * (i + 1)) for i, word in enumerate(first))
        assert before + heads == e + (not neither)
        if not neither:
            return
        first.append(heads)


# --- samplers that are made of coins ----------------------------------------------------------------------------------


@pytest.fixture
def with_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> Callable[[Paths, int], None]:
    """Let the samplers choose between paths, with ``2**-(t unit)`` in place of ``exp(-t)``."""

    def arrange(paths: Paths, unit: int) -> None:
        def coins(num: Any, den: Any, bits: Any) -> np.ndarray:
            num, den = np.broadcast_arrays(np.asarray(num, dtype=object), np.asarray(den, dtype=object))
            flipped = []
            for a, b in zip(num.ravel(), den.ravel(), strict=True):
                exponent = Fraction(int(a) * unit, int(b))
                assert exponent.denominator == 1
                heads = Fraction(1, 2 ** int(exponent))
                flipped.append(paths.choose([(True, heads), (False, 1 - heads)]))
            return np.array(flipped, dtype=np.bool_).reshape(num.shape)

        def uniform(n: int, size: int, bits: Any) -> np.ndarray:
            return np.array([paths.choose([(i, Fraction(1, n)) for i in range(n)]) for _ in range(size)])

        def one(n: int, rate: float, draw: Callable[[int], np.ndarray]) -> np.ndarray:
            if not (found := draw(1)).size:
                raise Rejected
            return found

        half = Fraction(1, 2)
        for module in (discrete, selection):
            monkeypatch.setattr(module, "bernoulli_exp", coins)
            monkeypatch.setattr(module, "uniform_below", uniform)
        monkeypatch.setattr(discrete, "_collect", one)
        monkeypatch.setattr(
            discrete, "_signs", lambda n, bits: np.array([paths.choose([(True, half), (False, half)])], dtype=np.bool_)
        )

    return arrange


def drawn(sampler: Callable[..., np.ndarray], scale: Fraction) -> Callable[[Paths], int]:
    return lambda paths: int(sampler(scale, 1, StreamBits(np.random.default_rng(0)))[0])


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_discrete_laplace_noise_is_that_of_its_formula(
    epsilon: Fraction, with_powers_of_two: Callable[[Paths, int], None]
) -> None:
    scale = 1 / epsilon
    paths = Paths()
    with_powers_of_two(paths, scale.numerator)  # exp(-1/scale) becomes 2**-denominator
    found = paths.law(drawn(discrete.discrete_laplace, scale))
    for x in range(-3, 4):
        assert found[x] == found[0] / 2 ** (scale.denominator * abs(x))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rounded_laplace_noise_is_that_of_its_formula(
    epsilon: Fraction, with_powers_of_two: Callable[[Paths, int], None]
) -> None:
    scale = 1 / epsilon
    paths = Paths()
    with_powers_of_two(paths, 2 * scale.numerator)  # exp(-1/(2 scale)) becomes 2**-denominator
    found = paths.law(drawn(discrete.rounded_laplace, scale))
    root = Fraction(1, 2**scale.denominator)
    kept = sum(Fraction(1, 4**low) for low in range(scale.numerator)) / scale.numerator  # of the low parts
    for x in range(1, 4):
        assert found[x] == found[-x] == kept * root * (1 - root**2) * root ** (2 * (x - 1)) / 2
    assert 0 <= kept * (1 - root) - found[0] < Fraction(1, 2**100)  # paths that are too rare to be followed


@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(1), Fraction(3, 2)])
def test_discrete_gaussian_noise_is_that_of_its_formula(
    sigma: Fraction, with_powers_of_two: Callable[[Paths, int], None]
) -> None:
    a, b, t = (sigma**2).numerator, (sigma**2).denominator, int(sigma) + 1
    unit = 2 * a * b * t * t
    paths = Paths(rarest=Fraction(1, 2 ** (12 * unit)))
    with_powers_of_two(paths, unit)  # exp(-x^2 / (2 sigma^2)) becomes 2**-(b t x)^2
    found = paths.law(drawn(discrete.discrete_gaussian, sigma))
    for x in range(-2, 3):
        assert found[x] == found[0] / 2 ** (b * t * x) ** 2


def test_proposals_that_are_accepted_are_taken_in_their_order() -> None:
    """How many are proposed at a time changes nothing: the samplers above may draw one after another."""
    source = np.random.default_rng(0).integers(0, 10, 1000)
    for n in (0, 1, 5, 100):
        at = 0

        def draw(m: int) -> np.ndarray:
            nonlocal at
            at += m
            return source[at - m : at][source[at - m : at] < 3]

        np.testing.assert_array_equal(discrete._collect(n, 0.3, draw), source[source < 3][:n])


@pytest.mark.parametrize("rate", [1, 5])
def test_selections_are_those_of_their_formulas(
    rate: int, with_powers_of_two: Callable[[Paths, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exponential mechanism, and permute-and-flip from the average over all orders."""
    scores = np.array([3, 0, 2, 3])
    monkeypatch.setattr(selection, "_BATCH", 1)
    monkeypatch.setattr(selection, "_MAX_BATCH", 1)
    monkeypatch.setattr(selection, "_rate", lambda *arguments: Fraction(rate))
    bits: Any = None

    def first_candidate(paths: Paths) -> int:
        calls = iter([True])
        uniform = discrete.uniform_below

        def once(n: int, size: int, source: Any) -> np.ndarray:
            if not next(calls, False):
                raise Rejected
            return uniform(n, size, source)

        monkeypatch.setattr(selection, "uniform_below", once)
        return selection.select(scores, 1.0, 1.0, bits)

    paths = Paths()
    with_powers_of_two(paths, 1)
    found = paths.law(first_candidate)
    assert all(found[r] == found[0] / 2 ** (rate * (3 - s)) for r, s in enumerate(scores.tolist()))

    orders = list(itertools.permutations(range(4)))

    def flipped(paths: Paths) -> int:
        order = np.array(paths.choose([(order, Fraction(1, len(orders))) for order in orders]))
        monkeypatch.setattr(selection, "_permutation", lambda n, source: order)
        return selection.permute_and_flip(scores, 1.0, 1.0, bits)

    found = paths.law(flipped)
    expected: dict[int, Fraction] = defaultdict(Fraction)
    for order in orders:
        left = Fraction(1, len(orders))
        for r in order:
            heads = Fraction(1, 2 ** (rate * (3 - int(scores[r]))))
            expected[r] += left * heads
            left *= 1 - heads
    assert found == expected
