"""What was printed for losses that are not convex, and leaks: exact laws on worst neighbours."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import log_softmax
from scipy.stats import norm

from dpdist import LinearRegression, Minimizer
from dpdist.central import Sample, TrustRegion
from dpdist.estimators.outlook import nobody_asks
from dpdist.losses import Biweight, Cauchy
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.loss_tables import LossTable, Net
from dpdist.solvers.nets import ball_net

RADIUS, EPSILON = 4.0, 1.0


def largest_ratio(sensitivity: float) -> float:
    """The largest logarithm of a ratio of two laws of a choice, over rows and labels of any size."""
    points = ball_net(1, RADIUS, 9)
    query, net = LossTable(Cauchy(2.0), 1.0, RADIUS, 9), Net(points, np.zeros(9))
    laws = []
    for x, y in itertools.product((-1e9, -1.0, 0.0, 1.0, np.nan), (-1e9, -4.0, 0.0, 4.0, 1e9)):
        block = {"X": np.array([[x]]), "y": np.array([y])}
        scores = query.explore(lambda s, block=block: query.summarise(block, s, None), net, None, None) * query.grid
        laws.append(log_softmax(EPSILON * scores / (2 * sensitivity)))
    return max(float(np.abs(one - other).max()) for one, other in itertools.product(laws, laws))


def test_a_net_whose_noise_lacks_the_factor_of_the_radius_leaks():
    """Seed 000, Theorem 4.2.4 prints ``O(L / n)``: for a loss without bound that is too little beyond radius 1/2."""
    query = LossTable(Cauchy(2.0), 1.0, RADIUS, 9)
    declared = query.sensitivity(Neighbours.REPLACE_ONE)
    assert largest_ratio(declared) <= EPSILON * (1 + 1e-9)
    assert largest_ratio(query.loss.lipschitz(1.0)) > 2 * EPSILON


ROWS, ROUNDS, DELTA = 35_000, 20, 1 / 35_000


def delta_of_a_batch(batch: int, std: float, fixed: bool) -> float:
    """``delta(1)`` of one noisy mean gradient (G = 1) of a random batch, exactly, where one row is replaced.

    Of a fixed number of rows that all have the gradient -1: with probability ``batch / n`` the other row is among them
    and moves the mean by ``2 / batch``. Of Poisson samples: the row adds ``1 / batch``, or ``-1 / batch``.
    """
    rate, reach = batch / ROWS, 2 / batch / std
    first, second = (reach, 0.0) if fixed else (reach / 2, -reach / 2)
    x = np.linspace(-reach - 12, reach + 12, 400_001)

    def density(shift: float) -> np.ndarray:
        return (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - shift)

    return float(np.sum(np.maximum(density(first) - math.exp(EPSILON) * density(second), 0)) * (x[1] - x[0]))


def printed_std() -> float:
    """Seed 000, Algorithm 4.3.29, line 3: it does not grow as batches get smaller, and lacks the number of rounds."""
    return math.sqrt(256 * math.log(5 * ROUNDS / DELTA) * math.log(2 / DELTA)) / (ROWS * EPSILON)


def test_small_batches_with_the_printed_noise_leak():
    assert delta_of_a_batch(100, printed_std(), True) > 9e-4 > 30 * DELTA, "one step of twenty"
    assert delta_of_a_batch(5000, printed_std(), True) < DELTA, (
        "at the printed batches the slack of its accounting hides it"
    )


def test_small_batches_with_the_planned_noise_do_not():
    model = Minimizer(
        "sigmoid", solver=TrustRegion(ROUNDS), rows=Sample(100 / ROWS), epsilon=EPSILON, delta=DELTA, row_norm=1.0,
        fit_intercept=False,
    )  # fmt: skip
    planned = model.plan(ROWS, 4)["gradient"].mechanism.noise_std(2.0) / 100
    assert delta_of_a_batch(100, planned / 5, False) > DELTA, "which is not plenty"
    assert delta_of_a_batch(100, planned, False) < DELTA


def fitted(side: float) -> float:
    """All that a trust region releases of one row along an axis, each release weighed by its noise."""
    with nobody_asks():
        model = LinearRegression(
            loss=Biweight(1.0), solver=TrustRegion(1), row_norm=1.0, fit_intercept=False, alpha=0.0,
            epsilon=3.0, delta=1e-2, cluster="threads",
        ).fit(np.array([[1.0, 0.0]]), np.array([side / math.sqrt(5)]))  # fmt: skip
    found = 0.0
    for release in model.releases_:
        reach = release.sensitivity / 2
        found += release.value[0] * (-reach if release.name == "gradient" else 0.0) / release.noise_std**2
    return found


def audited() -> float:
    result = audit_two_point(lambda: fitted(-1.0), lambda: fitted(1.0), 150, 1e-2, 1 - 1e-6)
    return result.mu_lower / gdp_mu(3.0, 1e-2)


def test_a_trust_region_is_as_private_as_claimed():
    """Gradients have half of mu^2, and these neighbours have Hessians alike; the next test says what would be seen."""
    assert audited() <= 1


def test_a_trust_region_with_a_quarter_of_the_noise_is_caught(monkeypatch):
    noise = Gaussian._noise
    monkeypatch.setattr(Gaussian, "_noise", lambda self, scale, *rest: noise(self, scale / 4, *rest))
    assert audited() > 1
