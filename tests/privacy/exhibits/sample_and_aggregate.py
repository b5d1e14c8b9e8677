"""Printed or tempting versions of sample-and-aggregate that break its guarantee."""

from __future__ import annotations

import math

import numpy as np

from dpdist.kernels.grid import to_units


def radii(points: np.ndarray) -> np.ndarray:
    """``r_i(t)`` in column ``t - 1``."""
    return np.sort(np.sqrt(((points[:, None].astype(float) - points) ** 2).sum(axis=2)), axis=1)


def mean_of_largest(points: np.ndarray, diameter: float, beta: float) -> float:
    """The scale as printed (seed 000, Algorithm 3.2.5), with ``r_i(t) = diameter`` for ``t > m`` put in.

    ``S = 2 max_k rho(t0 + k + 1) e^{-beta k}``, rho the mean of the ``ceil(1 / beta)`` largest ``r_i(t)``. It bounds
    how far the centre moves, but it is not smooth: one point that is far from all others has a large radius for every
    ``t > 1``, and lifts the mean from 0.
    """
    m, table = len(points), radii(points)
    t0, a = (m + 1) // 2 + 1, min(m, math.ceil(1 / beta))
    terms = [2 * np.sort(table[:, t0 + k])[-a:].mean() for k in range(m - t0)]
    return max(term * math.exp(-beta * k) for k, term in enumerate([*terms, 2 * diameter]))


def bounded_by_points(points: np.ndarray, diameter: float, beta: float) -> float:
    """The smooth bound without the condition ``r_i(t) = diameter`` for ``t > m``: it can be 0."""
    m, table = len(points), radii(points)
    t0 = (m + 1) // 2 + 1
    return max(2 * np.sort(table[:, t0 + k])[1 + k] * math.exp(-beta * k) for k in range(m - t0))


def local_bound(points: np.ndarray, diameter: float, beta: float) -> float:
    """How far one changed point can move the centre of these points: the noise would tell which points they are."""
    m = len(points)
    moves = float(np.sort(radii(points)[:, (m + 1) // 2 + 1])[1]) if m > 3 else math.inf
    return max(1e-9, min(diameter, 2 * moves))


def results_as_they_are(query, first, block, centre):
    """What `dpdist.queries.block_results.BlockSum` adds up, without clipping: no sensitivity at all."""
    found = query.fit.fit(block, query.block_rows, query.n_parameters) - centre
    return first // query.block_rows + np.arange(len(found)), to_units(found, query.grid)
