"""Records of devices: as many numbers as the question is about, however many are reported of them."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import local
from dpdist.local import Survey
from dpdist.local.linear.glm_public import Standardised
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.feature_maps import Mapped
from dpdist.local.statistics.labelled import LabelledRow
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
