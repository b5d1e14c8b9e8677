"""The printed methods of seed 000, section 3.1, that are not private are caught; ours, on the same rows, are not.

Neighbours differ in one row, which is ``(1, 1)/sqrt(2)`` or ``(1, -1)/sqrt(2)``; all others are ``(1, 0)``, so the
second coordinate of anything that is released speaks of that row only. Bounds hold with probability 1 - 1e-6, which is
also the false-alarm rate of the audits that must pass.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import Minimizer
from dpdist.central import SVRG, AcceleratedMirror, Katyusha
from dpdist.constraints import L2Ball
from dpdist.estimators.outlook import nobody_asks
from dpdist.losses import Logistic
from dpdist.privacy.audit.two_point import audit_two_point, two_point_bound
from tests.privacy.exhibits import convex

EPSILON, DELTA = 1.0, 1e-3
SURE = 1 - 1e-6
N_ROWS, N_RUNS = 1000, 2000


def rows(sign: int) -> np.ndarray:
    X = np.zeros((N_ROWS, 2))
    X[:, 0] = 1.0
    X[0] = np.array([1.0, sign]) / np.sqrt(2)
    return X


def bound_of(run) -> float:
    scores = [run(rows(sign), np.random.default_rng(5 + sign)) for sign in (1, -1)]
    return two_point_bound(scores[0], scores[1], DELTA, SURE).epsilon_lower


def test_single_row_steps_with_the_noise_of_a_mean_are_caught():
    def loudest(X, rng):
        seen = convex.printed_svrg(X, EPSILON, DELTA, N_RUNS, n_epochs=1, n_inner=500, rng=rng)[..., 1]
        return np.take_along_axis(seen, np.abs(seen).argmax(axis=1)[:, None], axis=1)[:, 0]

    assert bound_of(loudest) > 2 * EPSILON


def test_katyusha_without_noise_is_caught():
    assert bound_of(lambda X, rng: convex.printed_katyusha(X, N_RUNS, 20, rng)[:, 1]) > 2 * EPSILON


def test_accelerated_mirror_descent_that_returns_an_exact_step_is_caught():
    run = convex.printed_accelerated_mirror
    assert bound_of(lambda X, rng: run(X, EPSILON, DELTA, N_RUNS, rng)[:, 1]) > 4 * EPSILON


OURS = {
    "svrg": {"solver": SVRG(n_rounds=2, n_inner=3, batch_rate=0.1, step_size=1.0)},
    "katyusha": {"solver": Katyusha(n_rounds=1, n_inner=4, batch_rate=0.1, step_size=1.0)},
    "accelerated-mirror": {"solver": AcceleratedMirror(n_rounds=3, step_size=1.0), "constraint": L2Ball(1.0)},
}


@pytest.mark.parametrize("name", OURS)
def test_ours_pass(name):
    def run(sign):
        model = Minimizer(
            Logistic(), epsilon=EPSILON, delta=DELTA, row_norm=1.0, fit_intercept=False, cluster="threads",
            **OURS[name],
        )  # fmt: skip
        with nobody_asks():  # delta is 1/n, for the sake of a small test
            model.fit(rows(sign), np.ones(N_ROWS))
        # in units of its noise, so that every release counts
        return float(sum(r.value[1] / r.noise_std for r in model.releases_))

    result = audit_two_point(lambda: run(1), lambda: run(-1), 150, DELTA, SURE)
    assert result.epsilon_lower <= EPSILON
