"""Records of devices: as many numbers as the question is about, however many are reported of them."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import local
from dpdist.errors import BudgetError, DataError
from dpdist.local import LinearSVC, Survey
from dpdist.local.linear.glm_public import Standardised
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.feature_maps import Mapped
from dpdist.local.statistics.labelled import LabelledRow
from dpdist.local.statistics.task_answers import AnswerSigns
from dpdist.local.survey.answers import rows_of
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.randomness.draws import SystemDraws

STANDARDISED = Standardised(3, 2, (0.0, 1.0, 2.0), ((1.0, 0.0, 0.0),))

QUESTIONS = {
    "parities": local.Marginals(order=2, epsilon=1.0).protocol(10_000, 3),
    "conjunctions": local.Marginals(order=2, method="chebyshev", epsilon=1.0).protocol(10_000, 3),
    "levels": local.Marginals(order=2, levels=[2, 3, 5], epsilon=1.0).protocol(10_000, 3),
    "cosines": local.DensityQueries(0.0, 1.0, epsilon=1.0).protocol(10_000, 3),
    "losses": local.RiskSurface("logistic", low=0.0, high=1.0, epsilon=1.0).protocol(10_000, 3),
    "products": local.SecondMoment(row_norm=2.0, epsilon=1.0).protocol(10_000, 3),
    "public rows": LocalProtocol(Mapped(STANDARDISED, LabelledRow(2, 1.0, 1.0)), best_vector(2, 1.0)),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_device_reports_about_the_columns_of_a_record(name):
    survey = Survey.from_json(Survey(QUESTIONS[name]).to_json())
    rows = rows_of(survey, [{"X": [1, 0, 1], "y": 1}, {"X": [1, 0], "y": 1}])
    np.testing.assert_array_equal(rows["X"], [[1.0, 0.0, 1.0], [np.nan] * 3])
    values = survey.protocol.statistic.values(rows)
    assert np.abs(values[0]).max() > 0 and (values[1] == 0).all()
    assert len(survey.protocol.randomise(rows, SystemDraws())) == 2


def test_classes_are_answered_by_their_names():
    """As numbers 0 and 1 they would be taken for labels of that size: half of what is reported would be 0."""
    protocol = LinearSVC(classes=[0, 1], radius=1.0, row_norm=1.0, epsilon=1.0).protocol(1000, 2)
    survey = Survey(protocol, labels=("0", "1"))
    assert Survey.from_json(survey.to_json()) == survey and survey.fingerprint != Survey(protocol).fingerprint
    records = [{"X": [1, 0], "y": y} for y in (0, 1, 1.0, "1", "0", 2, None, -1, [1], float("nan"), True)]
    found = rows_of(survey, records)["y"]
    np.testing.assert_array_equal(found, [-1, 1, 1, 1, -1, *[np.nan] * 6])
    np.testing.assert_array_equal(rows_of(Survey(protocol), records)["y"][:4], [0, 1, 1, np.nan])
    with pytest.raises(DataError, match="labels must be 2 different names, got 3"):
        Survey(protocol, labels=("0", "1", "2"))


ODD = ("maybe", [1], {}, True, "1", 10**400, 7, -1, None, float("nan"), float("inf"), "\ud800")


@pytest.mark.parametrize("unit", ["answer", "record"])
@pytest.mark.parametrize("unanswered", ["coin", "symbol", "public"])
def test_what_one_answer_holds_decides_about_its_own_report_only(unanswered, unit):
    """A list with a text in it was no record at all: all answers were lost, and where it is public who answered what,
    one answer changed the reports of all."""
    if unit == "record" and unanswered != "coin":
        return
    asked = local.TruthInference("majority", unit=unit, unanswered=unanswered, n_classes=3, epsilon=1.0)
    survey = Survey(asked.protocol(1, 4))
    statistic = survey.protocol.statistic
    usual = statistic.values(rows_of(survey, [[0, 1, 2, 0]]))
    others = statistic.values(rows_of(survey, [[0, odd, 2, 0] for odd in ODD]))
    size = usual.shape[1] // 4
    rest = [*range(size), *range(2 * size, 4 * size)]
    assert (others[:, rest] == usual[0, rest]).all()
    if unit == "answer":
        null, missing = 254, {"coin": 255, "symbol": 3, "public": 255}[unanswered]
        assert others[:, 1].tolist() == [null, null, null, 1, 1, null, null, missing, missing, missing, null, null]
    short = statistic.values(rows_of(survey, [[0, 1, 2], "0120", None, {"Y": 1}]))
    assert len(set(map(bytes, short))) == 1, "no records"


def test_packed_bytes_are_asked_of_no_device():
    law = SampleCoordinates(16, 1.0, 1, "one-bit")
    survey = Survey(LocalProtocol(AnswerSigns(16, packed=True), law))
    with pytest.raises(DataError, match="packed answers are bytes"):
        survey.protocol.randomise(rows_of(survey, [[0, 1]]), SystemDraws())
    for n_tasks, n_classes in ((0, 2), (-4, -4), (16, 1), (16, 10**6)):
        with pytest.raises(BudgetError, match=r"n_tasks must be|n_classes must be"):
            AnswerSigns(n_tasks, n_classes)
