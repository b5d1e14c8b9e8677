"""Gradient EM from one report of every user: errors, groups, bounds of reports, devices, and what is refused."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dpdist import Dataset
from dpdist.engine.coordinator import Coordinator
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.kernels.latent import MissingCells, MixedLines, TwoComponents, distance
from dpdist.local import (
    MissingCovariateRegression,
    MixedRegression,
    Survey,
    TwoComponentMixture,
    aggregate,
    encode,
)
from dpdist.local.latent.latent_rounds import BallReports, CoordinateReports
from dpdist.local.statistics.latent_gradients import BallGradients, BoxGradients, TruncatedGradients
from dpdist.local.survey.answers import rows_of
from dpdist.privacy.audit.sensitivity_fuzz import adversarial_rows
from dpdist.privacy.randomness.draws import SystemDraws
from tests.kernels.test_latent import drawn

SNR = 3.0
POINT = np.array([1.0, -2.0, 0.5])


def world(model, n, d, seed):
    rng = np.random.default_rng(500 + seed)
    b, u = rng.normal(size=(2, d))
    b *= SNR / np.linalg.norm(b)
    return (*drawn(model, n, b, seed), b, b + 0.25 * SNR * u / np.linalg.norm(u))


@pytest.mark.parametrize(("method", "band"), [("l2", 0.027), ("coordinate", 0.044)])
def test_two_components_are_found(method, band):
    errors = []
    for seed in range(3):
        X, _, b, start = world(TwoComponents(1.0), 200_000, 5, seed)
        model = TwoComponentMixture(
            method, noise_std=1.0, radius=1.25 * SNR, start=start, epsilon=1.0, random_state=seed, cluster="threads"
        ).fit(X)
        errors.append(distance(TwoComponents(1.0), model.coef_, b) / SNR)
    assert np.median(errors) <= band
    assert 0.4 < np.median(errors) * SNR / model.outlook(200_000, 5).predicted_error < 2
    assert np.array_equal(model.means_, [model.coef_, -model.coef_]) and len(model.history_) == 4


def test_two_lines_come_closer():
    X, y, b, start = world(MixedLines(1.0), 100_000, 3, 0)
    model = MixedRegression(noise_std=1.0, radius=4.0, start=start, epsilon=2.0, random_state=0, cluster="threads").fit(
        X, y
    )
    assert distance(MixedLines(1.0), model.coef_, b) / SNR < 0.08


@pytest.mark.parametrize(("method", "most"), [("l2", 0.1), ("coordinate", 0.2)])
def test_coefficients_are_found_with_missing_cells(method, most):
    """From 0; with the question of a round, a device that sends null for a cell answers as the simulation does."""
    model = MissingCovariateRegression(
        method, noise_std=1.0, radius=1.25, epsilon=1.0, cluster="threads", missing_rate=0.2
    )
    errors = []
    for seed in range(3):
        b = np.random.default_rng(seed).normal(size=5)
        b /= np.linalg.norm(b)
        X, y = drawn(MissingCells(1.0, 0.2), 200_000, b, seed)
        data = Dataset.from_arrays(X=X, y=y, missing=list("01234"))
        errors.append(np.linalg.norm(model.set_params(random_state=seed).fit(data).coef_ - b))
    assert 0.3 < np.median(errors) / model.outlook(200_000, 5).predicted_error < 2
    assert np.median(errors) < most
    assert np.allclose(model.predict(X[:5]), np.nan_to_num(X[:5]) @ model.coef_)


def test_truncated_gradients_of_missing_cells_are_hopeless_and_it_says_so_before_the_charge():
    """As published; the answer is somewhere in the ball, and 0 would be nearer."""
    b = np.array([0.6, -0.6, 0.5])
    X, y = drawn(MissingCells(1.0, 0.2), 20_000, b, 0)
    model = MissingCovariateRegression(
        "truncate", noise_std=1.0, radius=1.25, epsilon=1.0, delta=1e-7, cluster="threads", random_state=0
    )
    with pytest.warns(UserWarning, match="the noise is expected to move the coefficients by"):
        model.fit(Dataset.from_arrays(X=X, y=y, missing=list("012")))
    assert np.linalg.norm(model.coef_) <= 1.25 * (1 + 1e-9) and model.outlook(20_000, 3).predicted_error > 1.25
    nearer = model.set_params(method="l2", delta=0.0).fit(Dataset.from_arrays(X=X, y=y, missing=list("012")))
    assert np.linalg.norm(nearer.coef_ - b) < 0.5


def test_a_device_tells_which_cells_are_missing():
    model = MissingCovariateRegression(noise_std=1.0, radius=2.0, epsilon=1.0)
    survey = Survey(model.protocol(1000, 3), state=POINT / 2)
    assert Survey.from_json(survey.to_json()) == survey
    rows = rows_of(survey, [{"X": [1.0, None, 3.0], "y": 2.0}, {"X": [1.0, 2.0, 3.0]}])
    assert np.array_equal(rows["X"][0], [1.0, np.nan, 3.0], equal_nan=True)
    values = survey.protocol.statistic.values(rows, survey.public)
    assert values[0].any() and not values[1].any(), "without a label there is nothing to tell"


STATISTICS = [
    kind(model, 3, *bounds)
    for model in (TwoComponents(1.0), MixedLines(0.5), MissingCells(0.7))
    for kind, *bounds in ((BallGradients, 0.7), (BoxGradients, 2.0), (TruncatedGradients, 1.7, 3.0))
]


@pytest.mark.parametrize("statistic", STATISTICS, ids=repr)
@pytest.mark.parametrize("point", [POINT, POINT * 1e80, POINT * 1e-200])
def test_values_are_in_their_domain_whatever_the_record(statistic, point):
    rng = np.random.default_rng(0)
    X = np.array([x for _, x in adversarial_rows(3, "float64", rng)])
    for label in (0.0, 1.0, -3.5, 1e308, np.nan, np.inf):
        values = statistic.values({"X": X, "y": np.full(len(X), label)}, point)
        assert np.isfinite(values).all()
        if statistic.domain == "box":
            assert np.abs(values).max() <= 1.0
        else:
            assert (np.linalg.norm(values.astype(np.longdouble), axis=1) <= 1.0).all()
        bad = ~np.isfinite(X) & ~(np.isnan(X) & statistic.model.empty_cells)
        null = bad.any(axis=1) | (statistic.model.labelled and not math.isfinite(label))
        assert not values[null].any()


@pytest.mark.parametrize("statistic", STATISTICS, ids=repr)
def test_values_are_bounded_gradients(statistic):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    if statistic.model.empty_cells:
        X[rng.random(X.shape) < 0.4] = np.nan
    g = -statistic.model.row_gradients(X, y, POINT)
    if isinstance(statistic, BoxGradients):
        expected = np.clip(g, -2.0, 2.0)
    elif isinstance(statistic, BallGradients):
        expected = g * np.minimum(1, 0.7 / np.linalg.norm(g, axis=1))[:, None]
    else:
        expected = statistic.bounded(g)
    assert np.allclose(statistic.restore(statistic.values({"X": X, "y": y}, POINT)), expected, atol=1e-9)


def test_every_user_is_in_one_group(monkeypatch):
    folds, release = [], Coordinator.release

    def watched(self, query, item, state=None, fold=None):
        folds.append(fold)
        return release(self, query, item, state, fold)

    monkeypatch.setattr(Coordinator, "release", watched)
    X = np.random.default_rng(0).normal(size=(20_011, 3))
    TwoComponentMixture(
        noise_std=1.0, radius=2.0, start=[1.0, 0.0, 0.0], epsilon=4.0, random_state=0, cluster="threads"
    ).fit(Dataset.from_arrays(X=X, row_order="arrival"))
    spans = sorted((fold.start, fold.stop) for fold in folds)
    assert len(spans) == 4 and spans[0][0] == 0 and spans[-1][1] == 20_011
    assert all(one[1] == other[0] for one, other in pairwise(spans))


def test_the_question_of_a_round_is_published_with_its_point(tmp_path):
    """Devices answer the round that they are asked in; reports of another one are refused."""
    model = MixedRegression(noise_std=1.0, radius=2.0, start=[1.0, 0.0, 0.0], epsilon=1.0)
    first, second = (Survey(model.protocol(1000, 3, group=t), t, state=POINT * (t + 1)) for t in range(2))
    assert Survey.from_json(first.to_json()) == first and first.fingerprint != second.fingerprint
    block = {"X": np.ones((20, 3)), "y": np.ones(20)}
    reports = first.protocol.randomise(block, SystemDraws(), first.public)
    frames = [bytes(frame) for frame in encode(first, reports)]
    assert aggregate(first, frames).n_users == 20
    with pytest.raises(DataError):
        aggregate(second, frames)


GOOD = {"noise_std": 1.0, "radius": 2.0, "start": [1.0, 0.0, 0.0], "epsilon": 1.0}
WRONG = {
    "no sigma": ({"noise_std": None}, "noise_std is missing"),
    "no radius": ({"radius": None}, "radius is missing"),
    "no start": ({"start": None}, "start is missing"),
    "a start outside": ({"start": [3.0, 0.0, 0.0]}, "start has norm 3, outside of the ball"),
    "a start of 0": ({"start": [0.0, 0.0, 0.0]}, "start=0 never moves"),
    "a short start": ({"start": [1.0]}, "start must have 3 numbers"),
    "no delta": ({"method": "truncate"}, "method='truncate' has normal noise, which needs delta"),
    "delta for nothing": ({"delta": 1e-6}, "delta=1e-06 has nobody to read it"),
    "too many groups": ({"method": BallReports(2000)}, "n_rounds=2000 groups of 1000 users"),
    "a bound that is none": ({"method": ("coordinate", -1.0)}, "entry_clip must be a positive finite number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused(name):
    changes, text = WRONG[name]
    with pytest.raises((BudgetError, MissingBound), match=text):
        if isinstance(method := changes.get("method"), tuple):
            changes = {"method": CoordinateReports(entry_clip=method[1])}
        TwoComponentMixture(**{**GOOD, **changes}).plan(1000, 3)
