"""Printed versions of noise for second moments that break their guarantee (seed 000, sections 6.1 to 6.3)."""

from __future__ import annotations

import math

import numpy as np

from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import SymmetricGaussian
from dpdist.queries.moment_sums import SecondMomentSum

ROWS = np.eye(3)[0], np.zeros(3)
"""The row in which two neighbours differ."""


def wishart(d: int, degrees: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """n Wishart matrices."""
    G = rng.standard_normal((n, d, degrees))
    return G @ G.transpose(0, 2, 1)


def one_sided(epsilon: float, which: int, n: int) -> np.ndarray:
    """Least eigenvalue of what is released, less the square of the first row: Lemma 6.3.2 and Theorem 6.3.4.

    The noise, ``3 / (2 epsilon)`` times a Wishart matrix with d + 1 degrees of freedom, is never negative, so what is
    released of the first neighbour is never below its row; of the other one it is, with ``1 - exp(-epsilon / 3)``.
    """
    noise = 3 / (2 * epsilon) * wishart(3, 4, n, np.random.default_rng(which))
    released = noise + np.outer(ROWS[which], ROWS[which])
    return np.linalg.eigvalsh(released - np.outer(ROWS[0], ROWS[0]))[:, 0]


def two_sided(epsilon: float, which: int, n: int) -> np.ndarray:
    """The same of the difference of two."""
    rng = np.random.default_rng(which)
    noise = (wishart(3, 4, n, rng) - wishart(3, 4, n, rng)) / epsilon
    released = noise + np.outer(ROWS[which], ROWS[which])
    return np.linalg.eigvalsh(released - np.outer(ROWS[0], ROWS[0]))[:, 0]


def printed_gaussian_std(epsilon: float, delta: float) -> float:
    """Of the noise of an entry as printed (Algorithm 6.1.46): for a sensitivity of 1, where it is sqrt(2)."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def k_norm(shape: int, which: int, n: int, epsilon: float) -> np.ndarray:
    """How far what is released is from the first of two numbers that are ``epsilon`` apart, in units of the scale.

    Two by two matrices have three entries: a Gamma length of shape 3 has the density that is needed, 2 one that grows
    without bound at its centre.
    """
    rng = np.random.default_rng(which)
    g = rng.standard_normal((n, 3))
    noise = rng.gamma(shape, size=n)[:, None] * g / np.linalg.norm(g, axis=1, keepdims=True)
    noise[:, 0] += which * epsilon
    return np.linalg.norm(noise, axis=1)


LOW, HIGH = 0.0, 1.0
SQUARES = (1.0, 1e-6)
"""What is claimed of one release."""


def squares_by_one_end(which: int, n: int) -> np.ndarray:
    """The sum of squares of ten numbers of ``[LOW, HIGH]``, one of which is replaced, as diffprivlib 0.6.6 releases it.

    Its linear regression takes ``max(|LOW|, |LOW|)^2`` for what a number can add, where the other end is meant: for
    columns in [0, 1] that is 0, and so is the noise of their squares.
    """
    released = 10 * HIGH**2 - which * (HIGH**2 - LOW**2)
    scale = max(abs(LOW), abs(LOW)) ** 2 / SQUARES[0]
    return np.abs(released + scale * np.random.default_rng(which).laplace(size=n))


def squares_by_norm(which: int, n: int) -> np.ndarray:
    """The same as in our second moments: Gaussian noise for ``sqrt(2)`` times the square of the largest norm."""
    query = SecondMomentSum(1, max(abs(LOW), abs(HIGH)))
    rows = np.full((10, 1), HIGH)
    rows[0] = LOW if which else HIGH
    units = query.summarise({"X": rows, "y": np.zeros(10)}, None, None)
    std = SymmetricGaussian().at(gdp_mu(*SQUARES)).noise_std(query.sensitivity(Neighbours.REPLACE_ONE))
    return units[0] * query.grid + std * np.random.default_rng(which).normal(size=n)
