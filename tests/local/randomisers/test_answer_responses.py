"""The law of a response, in rational numbers, and of what is sent."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpdist import Dataset, local
from dpdist.errors import BudgetError, DataError
from dpdist.kernels.bernoulli import bernoulli_lanes
from dpdist.kernels.bit_planes import pack_words
from dpdist.local.crowd.answer_protocol import AnswerProtocol, law_of
from dpdist.local.randomisers.answer_responses import BitResponses, SymbolResponses
from dpdist.local.statistics.task_answers import TaskAnswers
from dpdist.local.survey.levels import Leveled, Levels
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.questionnaire import Survey
from dpdist.privacy.protected_units import ANSWER
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws

EPSILONS = (1e-6, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def exceeds(ratio: Fraction, epsilon: float) -> bool:
    with mpmath.workdps(60):
        return bool(mpmath.mpf(ratio.numerator) / ratio.denominator > mpmath.exp(mpmath.mpf(epsilon)))


def flipped(threshold: int, bits: int) -> Fraction:
    q = Fraction(threshold, 1 << bits)
    return (1 - q) / q


def rounded_down(k: int, epsilon: float, bits: int) -> int:
    """The chance of another symbol, in multiples of ``2**-bits``."""
    with mpmath.workdps(60):
        return int(mpmath.floor(mpmath.mpf(2) ** bits / (mpmath.exp(mpmath.mpf(epsilon)) + k - 1)))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_ratio_of_the_chances_of_a_bit_is_at_most_e_to_the_epsilon(epsilon):
    law = BitResponses(5, epsilon)
    p, q = law.chances
    assert p + q == 1 and q.denominator <= 2**53 and not exceeds(p / q, epsilon)
    assert exceeds(flipped(rounded_down(2, epsilon, 53), 53), epsilon), "rounded down it tells more"
    null = Fraction(1, 2)  # a null answer is reported as a fair coin
    assert not exceeds(max(p / null, null / q), epsilon)


def test_sixteen_bits_are_private_only_if_they_are_rounded_up():
    epsilon = 5.0
    below = rounded_down(2, epsilon, 16)
    assert exceeds(flipped(below, 16), epsilon) and not exceeds(flipped(below + 1, 16), epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [2, 3, 6, 253])
def test_the_ratio_of_the_chances_of_a_symbol_is_at_most_e_to_the_epsilon(k, epsilon):
    """An answer is replaced with a chance of ``threshold / 2**53``, by each of the k symbols as often."""
    law = SymbolResponses(5, epsilon, k)

    def laws(threshold):
        replaced = Fraction(threshold, 2**53)
        kept = [[replaced / k + (1 - replaced) * (s == own) for s in range(k)] for own in range(min(k, 6))]
        return [*kept, [Fraction(1, k)] * k]  # a null answer is always replaced

    told = laws(law.threshold)
    assert 0 < law.threshold < 2**53 and all(sum(law) == 1 for law in told)
    assert law.chances == (told[0][0], told[0][1])
    for one, other in itertools.permutations(told, 2):
        assert not exceeds(max(a / b for a, b in zip(one, other, strict=True)), epsilon)
    with mpmath.workdps(60):
        less = int(mpmath.floor(mpmath.mpf(2) ** 53 * k / (mpmath.exp(mpmath.mpf(epsilon)) + k - 1)))
    one, other = laws(less)[:2]
    assert less == 0 or exceeds(one[0] / other[0], epsilon), "rounded down it tells more"


def test_a_report_is_the_answers_with_flips_that_know_nothing_of_them():
    """The flips of two different records, drawn from one stream, are the same, wherever both have answers."""
    law, n, m = BitResponses(70, 1.0), 40, 70
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (2, n, m))
    flips = []
    for answers in bits:
        reports = law.respond(pack_words(answers), StreamDraws(np.random.default_rng(7)))
        flips.append(reports ^ pack_words(answers))
    lanes = bernoulli_lanes(StreamDraws(np.random.default_rng(7)).words, 2 * n, law.threshold).reshape(n, 2)
    lanes[:, -1] &= np.uint64(2**6 - 1)
    assert np.array_equal(flips[0], flips[1]) and np.array_equal(flips[0], lanes)


def test_answers_are_kept_as_often_as_they_should_be():
    n, m = 2000, 100
    law = BitResponses(m, 1.0)
    statistic = TaskAnswers(m)
    X = np.zeros((n, m))
    X[:, 0] = np.nan
    reports = np.unpackbits(
        law.randomise(statistic.values({"X": X}), StreamDraws(np.random.default_rng(3))), axis=1, bitorder="little"
    )[:, :m]
    q = float(law.chances[1])
    assert abs(reports[:, 1:].mean() - q) < 5 * np.sqrt(q * (1 - q) / (n * (m - 1)))
    assert abs(reports[:, 0].mean() - 0.5) < 5 * 0.5 / np.sqrt(n), "no answer is a fair coin"


def test_reports_and_their_sum_say_the_same_as_one_draw():
    """`summarise` is `accumulate` of `randomise`, bit for bit, for records with and without all answers."""
    rng = np.random.default_rng(0)
    X = rng.choice([0.0, 1.0, np.nan, 7.0], (50, 90))
    for statistic, law in (
        (TaskAnswers(90), BitResponses(90, 1.0)),
        (TaskAnswers(90, 2, "symbol"), SymbolResponses(90, 1.0, 3)),
        (TaskAnswers(90, 2, "public"), SymbolResponses(90, 1.0, 2, mask=True)),
    ):
        values = statistic.values({"X": X})
        one, other = (StreamDraws(np.random.default_rng(5)) for _ in range(2))
        reports = law.randomise(values, one)
        assert law.valid(reports).all()
        assert np.array_equal(law.accumulate(reports), law.summarise(values, other))


def test_sums_that_are_drawn_directly_have_the_law_of_sums_of_reports():
    n, m = 400, 64
    X = np.where(np.arange(m) < 40, 1.0, np.where(np.arange(m) < 50, np.nan, 0.0)) * np.ones((n, 1))
    law, statistic = BitResponses(m, 1.0), TaskAnswers(m)
    values = statistic.values({"X": X})
    direct = np.stack([law.draw_sum(values, np.random.default_rng(s)) for s in range(60)])
    drawn = np.stack([law.summarise(values, StreamDraws(np.random.default_rng(s))) for s in range(60)])
    for part in (slice(0, 40), slice(40, 50), slice(50, 64)):
        sizes = direct[:, part].size
        spread = drawn[:, part].std() / np.sqrt(sizes)
        assert abs(direct[:, part].mean() - drawn[:, part].mean()) < 6 * np.sqrt(2) * spread
        assert abs(direct[:, part].std() / drawn[:, part].std() - 1) < 6 / np.sqrt(sizes)


def test_packed_answers_are_the_same_record_as_cells():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (30, 70))
    there = rng.integers(0, 2, (30, 70))
    packed = [np.packbits(part, axis=1, bitorder="little") for part in (bits, there)]
    cells = np.where(there == 1, bits, np.nan)
    for unanswered in ("coin", "symbol", "public"):
        plain, tight = TaskAnswers(70, 2, unanswered), TaskAnswers(70, 2, unanswered, packed=True)
        assert np.array_equal(plain.values({"X": cells}), tight.values({"X": np.hstack(packed)}))
    whole = TaskAnswers(70, packed=True).values({"X": packed[0]})
    assert np.array_equal(whole, TaskAnswers(70).values({"X": bits})[:, :2])
    spare = packed[0].copy()
    spare[:, -1] |= 0b11000000
    assert np.array_equal(TaskAnswers(70, packed=True).values({"X": spare}), whole), "spare bits say nothing"


def test_impossible_reports_are_known():
    spare = np.array([[0, 0b1000]], dtype=np.uint8)
    assert BitResponses(11, 1.0).valid(spare).tolist() == [False] and BitResponses(12, 1.0).valid(spare).tolist() == [
        True
    ]
    symbols = np.array([[0, 2], [0, 3], [0, 255]], dtype=np.uint8)
    assert SymbolResponses(2, 1.0, 3).valid(symbols).tolist() == [True, False, False]
    assert SymbolResponses(2, 1.0, 3, mask=True).valid(symbols).tolist() == [True, False, True]


@pytest.mark.parametrize(("size", "epsilon"), [(0, 1.0), (3, 0.0), (3, np.nan), (3, 101.0)])
def test_laws_that_cannot_be_are_refused(size, epsilon):
    for law in (BitResponses, SymbolResponses):
        with pytest.raises(BudgetError, match=r"size must be the number of tasks|epsilon must be a number"):
            law(size, epsilon)


def test_a_device_draws_from_the_operating_system():
    report = BitResponses(1000, 1.0).randomise(np.zeros((1, 16), np.uint64), SystemDraws())
    assert report.shape == (1, 125) and 100 < np.bitwise_count(report).sum() < 450


def test_epsilon_is_about_one_answer_whatever_question_the_law_stands_in():
    """A question that names the law in a plain protocol would promise e^epsilon for a record of ten answers."""
    for law in (BitResponses(10, 1.0), SymbolResponses(10, 1.0, 2)):
        answers = TaskAnswers(10, 2, "coin")
        for protocol in (
            LocalProtocol(answers, law),
            LocalProtocol(Leveled(answers, (0.5, 1.0)), Levels(law, (0.5, 1.0))),
        ):
            protects = Survey.from_json(Survey(protocol).to_json()).protocol.protects
            assert (protects.part, protects.per_row, protects.whole_row) == (ANSWER, 10, True)
    found = local.simulate(LocalProtocol(TaskAnswers(4, 3), SymbolResponses(4, 1.0, 3)), {"X": np.zeros((9, 4))})
    assert "replacing all 4 of them: e^4" in found.guarantee.text


def test_a_report_that_shows_which_tasks_were_answered_says_so():
    """A question may name a law with a mask for answers without one: cells without an answer are then sent as such."""
    law = SymbolResponses(3, 1.0, 3, mask=True)
    told = LocalProtocol(TaskAnswers(3, 3, "coin"), law)
    sent = told.randomise({"X": np.array([[0.0, np.nan, 1.0]])}, SystemDraws())
    assert sent[0, 1] == 255 and not told.protects.whole_row and "taken for public" in told.protects.what
    with pytest.raises(BudgetError, match="no law of their reports"):
        AnswerProtocol(TaskAnswers(3, 3, "coin"), law)


@pytest.mark.parametrize("unanswered", ["coin", "symbol", "public"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_laws_belong_to_answers(unanswered, n_classes):
    answers = TaskAnswers(2, n_classes, unanswered)
    law = law_of(answers, 1.0)
    AnswerProtocol(answers, law)
    for other in (
        BitResponses(2, 1.0),
        *(SymbolResponses(2, 1.0, k, mask) for k in (2, 3, 4) for mask in (False, True)),
    ):
        if other != law:
            with pytest.raises(BudgetError, match="no law of their reports"):
                AnswerProtocol(answers, other)


@pytest.mark.parametrize("n_columns", [2, 100])
def test_answers_to_more_tasks_than_epsilon_is_charged_for_are_not_reported(n_columns):
    """A hundred answers would be released for the price of three."""
    for answers in (TaskAnswers(3, 3), TaskAnswers(3), TaskAnswers(3, 2, "public")):
        protocol = AnswerProtocol(answers, law_of(answers, 1.0))
        with pytest.raises(DataError, match=f"n_tasks is 3, and the records have {n_columns} columns"):
            protocol.randomise({"X": np.zeros((5, n_columns))}, SystemDraws())
        with pytest.raises(DataError, match=f"n_tasks is 3, and the records have {n_columns} columns"):
            local.simulate(protocol, Dataset.from_arrays(X=np.zeros((50, n_columns)), unit="answer"), random_state=0)


@pytest.mark.parametrize("values", [np.zeros((4, 5), np.uint8), np.zeros((4, 3), np.uint64), np.zeros(3, np.uint8)])
def test_a_law_takes_as_many_answers_as_it_is_about(values):
    for law in (SymbolResponses(3, 1.0, 3), BitResponses(3, 1.0)):
        with pytest.raises(DataError, match="the answers of a record are"):
            law.randomise(values, SystemDraws())


@pytest.mark.parametrize("k", [-5, 0, 1, 255, 300])
def test_symbols_are_bytes(k):
    with pytest.raises(BudgetError, match="k must be the number of symbols"):
        SymbolResponses(3, 1.0, k)
