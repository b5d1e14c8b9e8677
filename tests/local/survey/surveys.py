"""One protocol of each kind that a survey can name."""

from __future__ import annotations

import numpy as np

from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.frequency import KRR, OLH, OUE, SUE, Hadamard, SubsetSelection
from dpdist.local.randomisers.products import LaplaceProducts
from dpdist.local.randomisers.scalars import GaussianScalar, Hybrid, LaplaceScalar, OneBit, Piecewise
from dpdist.local.randomisers.vectors import GaussianVector, Hemisphere, PrivUnit, PrivUnitG
from dpdist.local.statistics.bounded_values import Ball, Box
from dpdist.local.statistics.categories import Category
from dpdist.local.statistics.second_moments import JointStatistics, Products
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.questionnaire import Survey

PROTOCOLS = {
    **{
        oracle.name: LocalProtocol(Category(11), oracle(11, epsilon=1.0))
        for oracle in (KRR, SUE, OUE, OLH, Hadamard, SubsetSelection)
    },
    **{
        scalar.name: LocalProtocol(Box(1, 0.0, 10.0), scalar(1, epsilon=2.0))
        for scalar in (OneBit, Piecewise, Hybrid, LaplaceScalar)
    },
    "gaussian-scalar": LocalProtocol(Box(1), GaussianScalar(1, epsilon=1.0, delta=1e-6)),
    "sample-coordinates": LocalProtocol(Box(7), SampleCoordinates(7, epsilon=6.0)),
    **{vector.name: LocalProtocol(Ball(5), vector(5, epsilon=1.0)) for vector in (PrivUnit, PrivUnitG, Hemisphere)},
    "gaussian": LocalProtocol(Ball(5), GaussianVector(5, epsilon=1.0, delta=1e-6)),
    "joint-statistics": LocalProtocol(
        JointStatistics(2, row_norm=1.0, label_bound=1.0, share=0.5), PrivUnit(5, epsilon=1.0)
    ),
    "products": LocalProtocol(Products(3, row_norm=1.0), PrivUnit(6, epsilon=1.0)),
    "laplace-products": LocalProtocol(Products(3, row_norm=1.0), LaplaceProducts(6, epsilon=1.0)),
}

SURVEYS = {name: Survey(protocol) for name, protocol in PROTOCOLS.items()}


def records(survey: Survey, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Records that a survey can be asked of."""
    rng, statistic = np.random.default_rng(seed), survey.protocol.statistic
    if statistic.domain == "category":
        return {"X": rng.integers(-1, statistic.size, n)}
    width = getattr(statistic, "n_features", statistic.size)
    return {"X": rng.uniform(-1, 1, (n, width)), "y": rng.uniform(-1, 1, n)}
