"""Which answers are replaced knows nothing of them, and every symbol is as likely to replace them."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.bernoulli import bernoulli_lanes
from dpdist.kernels.symbol_counts import OPEN
from dpdist.kernels.symbol_responses import symbol_responses, uniform_symbols


class Bytes:
    """Words that are made of given bytes, and after them of others, told apart by how many were asked for."""

    def __init__(self, *batches):
        self.batches, self.asked = list(batches), []

    def __call__(self, n):
        self.asked.append(n)
        return np.frombuffer(bytes(self.batches.pop(0)), dtype="<u8")[:n].astype(np.uint64)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 7, 100, 128, 129, 200, 254])
def test_bytes_tell_every_symbol_as_often_and_the_others_are_drawn_again(k):
    """All 256 bytes: each symbol has as many, and what is left over is replaced by what the next bytes say."""
    spare = 256 % k
    again = np.full(256 + 8, 255, np.uint8)  # the last byte is never one too many
    draw = Bytes(np.arange(256, dtype=np.uint8), again)
    found = uniform_symbols(draw, 256, k)
    assert draw.asked == ([32, -(-spare // 8)] if spare else [32])
    counts = np.bincount(found, minlength=k)
    counts[k - 1] -= spare
    assert (counts == 256 // k).all()


@pytest.mark.parametrize("mask", [False, True])
def test_responses_are_those_of_a_plain_loop(mask):
    k, threshold, n = 3, 2**53 // 3, (1 << 18) + 77  # two slabs
    rng = np.random.default_rng(0)
    answers = rng.choice(np.array([0, 1, 2, 3, 254, OPEN], np.uint8), n)

    def words(seed):
        generator = np.random.default_rng(seed)
        return lambda n: generator.integers(0, 2**64, n, dtype=np.uint64)

    found, draw, at = symbol_responses(answers.reshape(-1, 1), words(7), threshold, k, mask), words(7), 0
    assert found.shape == (n, 1) and found.dtype == np.uint8
    for size in (1 << 18, 77):
        lanes = bernoulli_lanes(draw, -(-size // 64), threshold)
        replaced = np.unpackbits(lanes.astype("<u8").view(np.uint8), bitorder="little")[:size].astype(bool)
        symbols = uniform_symbols(draw, size, k)
        own = answers[at : at + size]
        expected = np.where(replaced | (own >= k), symbols, own)
        if mask:
            expected = np.where(own == OPEN, OPEN, expected)
        assert np.array_equal(found[at : at + size, 0], expected)
        assert abs(replaced.mean() - 1 / 3) < 5 * np.sqrt(2 / 9 / size)
        at += size


def test_what_is_drawn_depends_on_no_answer():
    """Nor on their layout: as many words, and the same responses wherever answers were replaced."""
    asked, found = [], []
    for answers in (np.zeros((50, 70), np.uint8), np.full((50, 70), 254, np.uint8), np.ones((70, 50), np.uint8).T):
        generator, counts = np.random.default_rng(3), []

        def draw(n, generator=generator, counts=counts):
            counts.append(n)
            return generator.integers(0, 2**64, n, dtype=np.uint64)

        found.append(symbol_responses(answers, draw, 2**52, 3))
        asked.append(counts)
    assert asked[0] == asked[1] == asked[2]
    others = found[0] != 0
    assert np.array_equal(found[0][others], found[1][others])
