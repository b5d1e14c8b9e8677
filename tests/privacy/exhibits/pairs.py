"""Printed versions of online methods for pairs (seed 000, section 3.3) that break their guarantee."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.contraction import OnlinePath

BUFFERED = (1.0, 1e-5)
RUNS = 3000
# On linear losses with a ridge penalty: a pair with the special record pulls with the force G = 1 to one side, all
# others with none. Replacing the record turns the side.
PATH = OnlinePath(1000, 0.5, 4.0, "contract", "rsx", 10)
FORCE = 1.0


@lru_cache(maxsize=1)
def special_points(n_records: int = 100) -> np.ndarray:
    """The points of the descent, behind the first step, where one of the first records is special: a line for each."""
    past, records = PATH.past, np.arange(n_records)
    assert past is not None
    v, points = np.zeros(n_records), np.zeros((n_records, PATH.n_rows))
    for t in range(PATH.burn_in, PATH.n_rows):
        held = past[t][past[t] >= 0]
        shares = np.where(records == t, 1.0, (held == records[:, None]).mean(axis=1))
        v = v + PATH.steps[t] * (FORCE * shares - PATH.ridge * v)
        points[:, t] = v
    return points[:, PATH.burn_in :]


def printed_std(path: OnlinePath, epsilon: float, delta: float) -> np.ndarray:
    """Algorithm 3.3.12 has the noise of Algorithm 3.3.9, ``sigma_t^2 = 32 G^2 n / (alpha^2 t^2 rho)``.

    As if an old record moved a gradient by ``2 G / t``: in a buffer of s places it is ``2 G m / s`` while it stays.
    """
    rho = (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2
    t = np.arange(1, path.n_rows + 1)
    return np.asarray(FORCE / (path.ridge * t) * math.sqrt(32 * path.n_rows / rho))


def our_std(path: OnlinePath, epsilon: float, delta: float) -> np.ndarray:
    """By the recursion for this path, with ``2 G`` for a loss of any kind of pairs."""
    moves = path.moves(2 * FORCE, math.inf)
    return np.asarray(moves.each * moves.together / gdp_mu(epsilon, delta))


def copies(std: np.ndarray, which: int) -> np.ndarray:
    """Noisy copies of all points, each run as the best test between the two streams sees it: one number."""
    seen = special_points() / std[PATH.burn_in :]
    dearest = seen[np.linalg.norm(seen, axis=1).argmax()]
    noise = np.random.default_rng(which).standard_normal((RUNS, len(dearest)))
    return np.asarray(((1 - 2 * which) * dearest + noise) @ dearest)


def printed_buffer(which: int) -> np.ndarray:
    return copies(printed_std(PATH, *BUFFERED), which)


def our_buffer(which: int) -> np.ndarray:
    return copies(our_std(PATH, *BUFFERED), which)
