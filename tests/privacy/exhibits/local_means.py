"""Printed reports of the local model that are less private than they say, next to ours, on the two worst records."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpdist.local.mean.small_l1_norm import Projected
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.public_strings import RandomCoding
from dpdist.local.randomisers.scalars import OneBit
from dpdist.local.randomisers.vectors import GaussianVector
from dpdist.local.statistics.cosines import Cosines
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.randomness.draws import SystemDraws

BIT = 0.5
CODING = 2.0
VECTOR = (4.0, 1e-5)
PROJECTED = (1.0, 1e-6)
_PROJECTION = Projected(n_features=400, n_projections=20, seed=1)


def printed_bit(which: int, n: int = 100_000) -> np.ndarray:
    """1 where the public y is at least 1 and the bit is 0, as printed (seed 000, Algorithm 5.1.32); v is 0 or 1.

    ``y ~ Lap(1/epsilon)``, and the bit is 1 with probability ``exp(epsilon (|y| - |y - v|)) / 2``. For y >= 1 a bit 0
    has the probability 1/2 at v = 0 and ``1 - e^epsilon / 2`` at v = 1: the loss is ``-ln(2 - e^epsilon)``, and
    infinite at epsilon = ln 2, where the text stops.
    """
    rng = np.random.default_rng(which)
    y = rng.laplace(scale=1 / BIT, size=n)
    bit = rng.random(n) < np.exp(BIT * (np.abs(y) - np.abs(y - which))) / 2
    return ((y >= 1) & ~bit).astype(float)


def our_bit(which: int, n: int = 100_000) -> np.ndarray:
    """The sign that is sent in its place."""
    return OneBit(1, BIT).randomise(np.full((n, 1), 1.0 - 2 * which), SystemDraws()).astype(float)


def printed_cosines(which: int, n: int = 400_000) -> np.ndarray:
    """A cosine in [-1, 1] with Laplace noise for the range 1 (seed 000, Algorithm 5.1.36); x is 1 or -1."""
    return 1.0 - 2 * which + np.random.default_rng(which).laplace(scale=1 / BIT, size=n)


def our_cosines(which: int, n: int = 400_000) -> np.ndarray:
    """The bit that is sent about one cosine in its place, at both ends."""
    statistic = Cosines(1, -1.0, 1.0, 2)
    values = statistic.values({"X": np.full((n, 1), 1.0 - 2 * which)})
    law = SampleCoordinates(statistic.size, BIT, reporter="one-bit")
    return law.randomise(values, SystemDraws())["value"][:, 0].astype(float)


def every_coefficient(which: int, n: int = 100_000) -> np.ndarray:
    """Bits about all three parities of two columns with all of epsilon each (seed 000, Algorithm 5.1.35), added up."""
    values = np.tile(np.where(which, [1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]), (n, 1))
    bits = [OneBit(1, BIT * 2).randomise(column[:, None], SystemDraws()) for column in values.T]
    return np.sum(bits[:2], axis=0).astype(float)


def one_coefficient(which: int, n: int = 100_000) -> np.ndarray:
    """A bit about one of them, with all of epsilon."""
    values = np.tile(np.where(which, [1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]), (n, 1))
    reports = SampleCoordinates(3, BIT * 2, reporter="one-bit").randomise(values, SystemDraws())
    return np.where(reports["coordinate"] < 2, reports["value"], 0)[:, 0].astype(float)


def coding(inner: float) -> Callable[[int], np.ndarray]:
    """How often the one large number of 16 public ones is named, with that part of epsilon inside (spec 04, section 5).

    A list of numbers that is as telling as can be: one far above, all others far below.
    """

    def run(which: int, n: int = 200_000) -> np.ndarray:
        law = RandomCoding(1, 2 * inner * CODING, 16)
        y = np.tile(np.where(np.arange(16) == 0, 30.0, -30.0) * law.number_scale, (n, 1))
        ends = np.cumsum(law.weights(y, np.full(n, 1.0 - 2 * which)), axis=1)
        return (law.chosen_from(SystemDraws().words(n), ends) == 0).astype(float)

    return run


def printed_vector_std(epsilon: float, delta: float) -> float:
    """The noise on a vector of the unit ball as printed (seed 001, Algorithm 1): for a distance of 1, not 2."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def printed_vector(which: int, n: int = 1_000_000) -> np.ndarray:
    """The first coordinate of reports about e_1 or -e_1."""
    noise = SystemDraws().normals(n)
    return 1.0 - 2 * which + printed_vector_std(*VECTOR) * noise


def our_vector(which: int, n: int = 1_000_000) -> np.ndarray:
    """The same for the noise that the diameter needs."""
    randomiser = GaussianVector(1, *VECTOR)
    return randomiser.randomise(np.full((n, 1), 1.0 - 2 * which), SystemDraws())[:, 0] * randomiser.grid


def _longest() -> tuple[np.ndarray, np.ndarray]:
    """The unit vector that the projection makes longest, and where it goes."""
    left, _, right = np.linalg.svd(_PROJECTION.matrix, full_matrices=False)
    return right[0], left[:, 0]


def projected(clipped: bool) -> Callable[[int], np.ndarray]:
    """Reports about the projections of x or -x, the vector that knows G, seen along their direction.

    As printed (seed 001, Algorithm 2) nothing is clipped, because a projection hardly changes a length: of a vector
    that does not know G. The noise is right for vectors of the unit ball, with the factor 2.
    """

    def run(which: int, n: int = 100_000) -> np.ndarray:
        x, direction = _longest()
        sign = 1.0 - 2 * which
        std = 2 * (_PROJECTION.limit if clipped else 1.0) / gdp_mu(*PROJECTED)
        if clipped:
            sent = _PROJECTION.restore(_PROJECTION.values({"X": sign * x[None]})[0])
        else:
            sent = _PROJECTION.matrix @ (sign * x)
        return sent @ direction + std * SystemDraws().normals(n)

    return run
