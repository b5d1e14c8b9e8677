"""Reports through public random numbers: exhaustive ratios, unbiased means, and the controls that are not private."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpdist.errors import BudgetError
from dpdist.kernels.scalar_reports import WORDS
from dpdist.local import RiskSurface
from dpdist.local.randomisers.public_strings import STEPS, RandomCoding, TransformedBit
from dpdist.local.randomisers.scalars import LaplaceBox
from dpdist.local.survey.aggregation import aggregate
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.wire import encode
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws

VALUES = np.concatenate([np.linspace(-1, 1, 41), [np.inf, -np.inf, 1e300, -5e-324]])


def largest(words: np.ndarray) -> Fraction:
    """The largest ratio of two of the chances in a column, in integers."""
    assert (words > 0).all()
    return max(Fraction(int(column.max()), int(column.min())) for column in words.T)


def bits(law: TransformedBit, y: np.ndarray) -> np.ndarray:
    """Words for each bit, for all values and public numbers."""
    ones = np.array([law.thresholds(y, np.full(len(y), v)) for v in VALUES])
    return np.hstack([ones, WORDS - ones])


def pieces(law: RandomCoding, y: np.ndarray) -> np.ndarray:
    """Words for each index, for all values and one list of public numbers."""
    cuts = []
    for v in VALUES:
        ends = np.cumsum(law.weights(y[None], np.array([v])), axis=1)
        quotient, rest = WORDS // ends[:, -1:], WORDS % ends[:, -1:]
        inner = quotient * ends + (rest.astype(np.float64) * (ends / ends[:, -1:])).astype(np.int64)
        cuts.append([0, *inner[0, :-1].tolist(), WORDS])
    return np.diff(np.array(cuts, dtype=object), axis=1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0])
def test_any_two_numbers_give_either_bit_with_nearly_the_same_chance(epsilon):
    law = TransformedBit(4, epsilon)
    y = np.concatenate([np.linspace(-3, 3, 601), [-30.0, 30.0, 0.5, 1.0, 1 / STEPS]])
    loss = math.log(largest(bits(law, y)))
    assert 0.999 * epsilon < loss <= epsilon


def test_the_printed_transform_is_infinite_at_ln_2_and_caught_below():
    for epsilon, printed in ((0.1, 0.1112), (0.5, 1.0462), (0.69, 5.1)):
        law = TransformedBit(4, -math.log(2 - math.exp(epsilon)))  # whose inner epsilon is the printed one
        assert law.inner_epsilon == pytest.approx(epsilon)
        loss = math.log(largest(bits(law, np.linspace(-2, 2, 81))))
        assert loss > epsilon * 1.1 and loss == pytest.approx(printed, rel=0.05)
    chance = np.exp(math.log(2) * (2.0 - abs(2.0 - 1.0))) / 2  # of a bit 1 at v = 1, y = 2, epsilon = ln 2
    assert chance == pytest.approx(1.0)  # a bit 0 rules v = 1 out


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("n_strings", [2, 3, 5, 8, 16])
def test_any_two_numbers_choose_any_index_with_nearly_the_same_chance(epsilon, n_strings):
    law, rng = RandomCoding(4, epsilon, n_strings), np.random.default_rng(0)
    worst = np.where(np.arange(n_strings) == 0, 30.0, -30.0)
    lists = [worst, -worst, *(rng.laplace(0, law.number_scale, n_strings) for _ in range(5))]
    losses = [math.log(largest(pieces(law, np.asarray(y)))) for y in lists]
    assert max(losses) <= epsilon and max(losses) > 0.45 * epsilon


def test_random_coding_with_all_of_epsilon_inside_is_caught():
    law = RandomCoding(4, 2.0, 16)  # whose inner epsilon is 1: what one would write who forgets the sum
    loss = math.log(largest(pieces(law, np.where(np.arange(16) == 0, 30.0, -30.0))))
    assert 1.8 < loss <= 2.0


def test_words_fall_into_the_pieces_that_are_counted():
    ends = np.cumsum(np.array([[5, 1, 2], [7, 7, 2]]), axis=1)
    for row, total in ((0, 8), (1, 16)):
        for part in range(total):
            word = np.array([(part * (2**64 // total)) + 5], dtype=np.uint64)
            expected = np.searchsorted(ends[row], part, side="right")
            assert RandomCoding.chosen_from(word, ends[row][None])[0] == expected


@pytest.mark.parametrize("law", [
    TransformedBit(3, 1.0), TransformedBit(3, 4.0), RandomCoding(3, 1.0), RandomCoding(3, 4.0), RandomCoding(3, 1.0, 8),
    LaplaceBox(3, 1.0),
], ids=lambda law: f"{law.name}-{law.epsilon:g}-{getattr(law, 'n_strings', '')}")  # fmt: skip
def test_means_are_unbiased_and_the_noise_is_as_stated(law):
    n, values = 60_000, np.array([-1.0, 0.3, 1.0])
    reports = law.randomise(np.tile(values, (n, 1)), StreamDraws(np.random.default_rng(1)))
    assert law.valid(reports).all()
    found = law.decode(law.accumulate(reports).astype(float), n)
    error = law.noise_std / math.sqrt(n)
    assert np.abs(found - values).max() < 4.5 * error + (2 / law.n_strings if isinstance(law, RandomCoding) else 0)
    if not isinstance(law, LaplaceBox):
        own = reports[reports["coordinate"] == 2]
        std = law.numbers(own).std() / law.slope
        assert 0.9 * law.noise_of_one < std < 1.1 * law.noise_of_one
    parts = law.accumulate(reports[:777]) + law.accumulate(reports[777:])
    assert (parts == law.accumulate(reports)).all()


def test_two_records_are_no_further_apart_than_the_noise_is_for():
    law = LaplaceBox(5, 1.3)
    assert Fraction(2 * law.steps * law.size, law.noise_scale) <= Fraction(1.3)
    with np.errstate(all="raise"):
        reports = law.randomise(np.array([[np.nan, np.inf, -np.inf, 2.0, 0.0]]), SystemDraws())
    assert law.valid(reports).all() and not law.valid(reports + 2 * law.units).any()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_what_is_no_number_has_the_law_of_the_middle(epsilon):
    """It had one word in 2**62 for a bit 1 wherever the public number was small, and a warning."""
    y, neither = np.linspace(-3, 3, 61), np.array([np.nan, 0.0])
    bit, coding = TransformedBit(4, epsilon), RandomCoding(4, epsilon, 61)
    assert len(np.unique([bit.thresholds(y, np.full(61, v)) for v in neither], axis=0)) == 1
    assert len(np.unique(coding.weights(np.tile(y, (2, 1)), neither), axis=0)) == 1


@pytest.mark.parametrize("reporter", ["coding", "transform", "split"])
def test_devices_answer_and_poisoned_reports_are_bounded(reporter):
    method = RiskSurface(low=0.0, high=1.0, degree=2, reporter=reporter, epsilon=2.0).decided(10_000, 1)
    survey = Survey(method.protocols[0])
    assert Survey.from_json(survey.to_json()) == survey
    X = np.array([[0.2], [np.nan], [np.inf], [1e300]] * 250)
    reports = survey.protocol.randomise({"X": X}, SystemDraws())
    found = aggregate(survey, encode(survey, reports))
    assert found.n_users == 1000 and (found.total == survey.protocol.accumulate(reports)).all()
    law = survey.protocol.randomiser
    assert np.abs(law.accumulate(reports[:1])[: law.size]).max() <= law.units


@pytest.mark.parametrize("make", [
    lambda: TransformedBit(0, 1.0), lambda: TransformedBit(3, 0.0), lambda: RandomCoding(3, 31.0),
    lambda: RandomCoding(3, 1.0, 1), lambda: RandomCoding(3, 1.0, 300), lambda: LaplaceBox(2**17, 1.0),
])  # fmt: skip
def test_wrong_parameters_are_refused(make):
    with pytest.raises(BudgetError):
        make()
