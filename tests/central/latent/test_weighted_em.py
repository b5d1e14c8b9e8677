"""EM algorithms that weigh what they release: errors in their bands, columns of any scale, and the wrong model."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import MixedRegression, TwoComponentMixture
from dpdist.central import ClippedEM, MapEM, PreconditionedEM, StatisticsEM
from dpdist.errors import BudgetError
from dpdist.kernels.latent import MixedLines, distance
from dpdist.privacy.accounting.closed_forms import gdp_mu
from tests.central.latent.test_gradient_em import BUDGET, SNR, errors, quick, world

UNEVEN = np.array([1.0, 1.0, 0.6, 0.4, 0.3])


def lines(seed, n, scales):
    """Two lines over columns of these standard deviations, the truth, and a start a quarter of its length away."""
    rng = np.random.default_rng(seed)
    _, _, b, start = world(MixedRegression, 10, len(scales), seed)
    X = rng.normal(size=(n, len(scales))) * scales
    return X, rng.choice([-1.0, 1.0], n) * (X @ b) + rng.normal(size=n), b, start


def found(method, seed, n=50_000, scales=UNEVEN, **options):
    X, y, b, start = lines(seed, n, scales)
    given = {
        "noise_std": 1.0,
        "radius": 1.25 * SNR,
        "start": start,
        "epsilon": 1.0,
        "delta": float(n) ** -1.1,
        **options,
    }
    return distance(MixedLines(1.0), quick(MixedRegression(method, **given), X, y, seed), b) / SNR


@pytest.mark.parametrize(("method", "band"), [(PreconditionedEM(8), 0.014), (StatisticsEM(8), 0.06)])
def test_columns_of_different_scales(method, band):
    assert np.median([found(method, seed, row_norm=2.2) for seed in range(5)]) <= band


def test_steps_by_the_covariance_are_better_there():
    assert found(PreconditionedEM(8), 0) < found(ClippedEM(8), 0) / 2


def test_the_maximisation_step_is_pulled_towards_zero():
    wide, _ = errors(TwoComponentMixture, 20_000, 10, seeds=range(3), method=MapEM(scale=4.0))
    tight, _ = errors(TwoComponentMixture, 20_000, 10, seeds=range(3), method=MapEM(scale=1.0))
    assert np.median(wide) <= 0.083 < 0.3 < np.median(tight)


@pytest.mark.parametrize("scale", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("method", ["clip", "precondition"])
def test_columns_of_another_scale_are_no_worse_than_the_start(method, scale):
    assert found(method, 1, 20_000, np.full(5, scale), row_norm=scale * 4) < 0.25


@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_columns_of_a_scale_that_nobody_stated_are_no_worse_than_the_start(scale):
    """The released curvature keeps steps short enough."""
    assert found("clip", 1, 20_000, np.full(5, scale)) < 0.25


def test_lines_that_noise_hides_are_foretold():
    """Columns so small that labels are nearly all noise: predicted, and where the ball ends warned of."""
    given = {"noise_std": 1.0, "radius": 3.75, "start": [1.0] * 5, **BUDGET}
    small, hidden = (
        MixedRegression("precondition", row_norm=bound, **given).outlook(20_000, 5) for bound in (0.2, 0.05)
    )
    errors = [found("precondition", seed, 20_000, np.full(5, 0.05), row_norm=0.2) * SNR for seed in (1, 2)]
    assert 0.5 < np.mean(errors) / small.predicted_error < 2
    assert hidden.warnings and hidden.predicted_error > 3.75


def test_correlated_columns_are_never_worse_than_the_start():
    rng = np.random.default_rng(2)
    b, n = np.array([2.0, -1.0, 1.5, 0.5]), 20_000
    X = rng.normal(size=(n, 4))
    X = 0.9 * X[:, :1] + np.sqrt(1 - 0.81) * X
    y = rng.choice([-1.0, 1.0], n, p=[0.3, 0.7]) * (X @ b) + rng.standard_t(4, size=n)
    start = b + np.array([0.4, 0.4, -0.4, 0.3])
    for method in ("clip", "precondition"):
        model = MixedRegression(method, noise_std=1.0, radius=4.0, start=start, **BUDGET)
        assert distance(MixedLines(1.0), quick(model, X, y, 0), b) <= np.linalg.norm(start - b)


def test_shares_of_the_budget_add_up():
    model = MixedRegression("precondition", noise_std=1.0, radius=3.0, init="spectral", **BUDGET)
    plan, sensitivities = model.plan(5000, 4), model.sensitivities(5000, 4)
    mu2 = {
        line.name: line.count
        * (sensitivities[line.name] / plan[line.name].mechanism.noise_std(sensitivities[line.name])) ** 2
        for line in model.decided(5000, 4).lines()
    }
    total = gdp_mu(1.0, BUDGET["delta"]) ** 2
    assert mu2["covariance"] == pytest.approx(0.2 * total, rel=1e-6)
    assert mu2["second moment"] == pytest.approx(0.3 * total, rel=1e-6)
    assert sum(mu2.values()) == pytest.approx(total, rel=1e-6)


WRONG = {
    "em": (MixedRegression, "method='em' is for TwoComponentMixture.*use method='statistics'"),
    "precondition": (TwoComponentMixture, "method='precondition' is for MixedRegression.*use method='clip'"),
    "statistics": (TwoComponentMixture, "method='statistics' is for MixedRegression.*use method='clip'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_methods_of_the_other_model_are_refused(name):
    kind, text = WRONG[name]
    with pytest.raises(BudgetError, match=text):
        kind(name, noise_std=1.0, radius=2.0, start=[1.0, 0.0], **BUDGET).plan(100, 2)
