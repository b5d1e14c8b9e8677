"""What was printed for losses that are not convex, and leaks: exact laws on worst neighbours."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import log_softmax

from dpdist.losses import Cauchy
from dpdist.privacy.budget import Neighbours
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
