"""Users with different public levels of privacy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.errors import BudgetError, DataError
from dpdist.local import Mean
from dpdist.local.randomisers.scalars import Hybrid, LaplaceScalar, OneBit, Piecewise
from dpdist.local.randomisers.vectors import Hemisphere, PrivUnit, PrivUnitG
from dpdist.local.statistics.bounded_values import Ball, Box
from dpdist.local.survey.levels import Leveled, Levels
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.randomness.draws import StreamDraws

LEVELS = (0.5, 2.0, 4.0)
SCALARS = {"hybrid": Hybrid, "one-bit": OneBit, "piecewise": Piecewise, "laplace": LaplaceScalar}
VECTORS = {"privunit": PrivUnit, "privunitg": PrivUnitG, "hemisphere": Hemisphere}
KINDS = SCALARS | VECTORS


def draws(seed: int = 0) -> StreamDraws:
    return StreamDraws(np.random.Generator(np.random.Philox(seed)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_user_is_randomised_at_the_largest_level_allowed(kind):
    size = 1 if KINDS[kind].domain == "box" else 3
    randomiser = Levels(KINDS[kind](size, LEVELS[-1]), LEVELS)
    statistic = Leveled((Box if size == 1 else Ball)(size), LEVELS)
    protocol = LocalProtocol(statistic, randomiser)
    asked = np.array([0.1, 0.5, 1.9, 2.0, 3.0, 4.0, 9.0, np.nan, np.inf, -1.0])
    block = {"X": np.random.default_rng(0).uniform(-0.5, 0.5, (len(asked), size)), "y": asked}
    reports = protocol.randomise(block, draws())
    assert reports["level"].tolist() == [-1, 0, 0, 1, 1, 2, 2, -1, 2, -1]
    assert reports.dtype == randomiser.report and randomiser.valid(reports).all()
    assert (protocol.summarise(block, draws()) == protocol.accumulate(reports)).all()
    reports["level"][0] = 3
    assert not randomiser.valid(reports)[0]


@pytest.mark.parametrize("domain", ["interval", "l2"])
def test_the_mean_is_as_good_as_the_weights_can_make_it(domain):
    """Six standard errors, and a mean square over 10 fits that is as stated."""
    d, n = (1, 20_000) if domain == "interval" else (4, 20_000)
    public = {"low": -1.0, "high": 3.0} if domain == "interval" else {"radius": 6.0}
    X = np.random.default_rng(0).uniform(-0.5, 2.5, (n, d))
    asked = np.random.default_rng(1).choice([0.7, 2.0, 5.0], size=n)
    errors = []
    for seed in range(10):
        model = Mean(domain, **public, epsilon_levels=LEVELS, random_state=seed, cluster="threads").fit(X, asked)
        errors.append(model.mean_ - X.mean(axis=0))
    # the users of a level are a sample of all
    stated = math.sqrt(model.standard_error_**2 + 3 * 0.75 / n)
    assert np.abs(errors).max() < 6 * stated
    assert math.sqrt(np.mean(np.square(errors))) < 1.5 * stated
    alone = Mean(domain, **public, epsilon=LEVELS[0], random_state=0).fit(X)
    assert model.standard_error_ < 0.5 * alone.standard_error_
    assert model.guarantee_.epsilon == LEVELS[-1]


def test_wrong_levels_are_refused():
    X = np.zeros((10, 1))
    for domain, levels in (("interval", (2.0, 1.0)), ("interval", ()), ("interval", (0.0, 1.0)), ("box", (1.0, 2.0))):
        with pytest.raises(BudgetError):
            Mean(domain, low=0.0, high=1.0, epsilon_levels=levels).fit(X, np.ones(10))
    with pytest.raises(DataError):
        Mean("interval", low=0.0, high=1.0, epsilon_levels=(1.0, 2.0)).fit(X)
