"""Reports of a vector in the unit ball.

=================== ========================================================= ==================== ===================
randomiser          report                                                    guarantee            noise per coordinate
                                                                                                   at epsilon 1, 2, 4
=================== ========================================================= ==================== ===================
`PrivUnit`          a point of the sphere, likely in a cap around the vector  pure epsilon         2.5, 1.3, .65
`PrivUnitG`         the same with a normal vector for the uniform point       pure epsilon         2.5, 1.3, .66
`Hemisphere`        a point of the sphere, likely in its half                 pure epsilon         2.7, 1.7, 1.3
`GaussianVector`    the vector plus normal noise                              (epsilon, delta)     8.4, 4.5, 2.4
=================== ========================================================= ==================== ===================

(The Gaussian at delta = 1e-6.) Reports of the first three have no smaller noise on short vectors than on long ones.
They are real numbers that are rounded at the end: the guarantee is that of the exact law, up to the floating-point
arithmetic that draws it (simulation grade, unlike the discrete reports of `dpdist.local.randomisers.frequency`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, gammaln, log_ndtr, ndtr, ndtri, ndtri_exp

from dpdist.errors import BudgetError
from dpdist.kernels.unit_vectors import UNITS, lifted_products, products, rounded_reports, rounded_sum
from dpdist.local.survey.protocol import Domain, Randomiser
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.randomness.draws import Draws

Floats = NDArray[np.float64]
SAFE = 1 - 1e-9
"""This part of epsilon is used; the rest is for the rounding of incomplete beta functions and the like."""
TAIL = 12.0
"""Reports of normal numbers are clamped at so many standard deviations (beyond them: a chance of 4e-33)."""
GAUSSIAN_FROM = 50
"""From this size on `PrivUnitG`, which needs no inverse of an incomplete beta function."""


def best_vector(size: int, epsilon: float) -> PrivUnit | PrivUnitG:
    """The randomiser with the least noise, for vectors of two coordinates and more."""
    return PrivUnitG(size, epsilon) if size >= GAUSSIAN_FROM else PrivUnit(size, epsilon)


@dataclass(frozen=True)
class _Vector(Randomiser):
    """Reports ``scale (a g + b v)`` for normal g."""

    size: int
    epsilon: float

    domain: ClassVar[Domain] = "ball"
    lifted: ClassVar[bool]

    def __post_init__(self) -> None:
        if not (self.size >= 1 and self.epsilon > 0):
            raise BudgetError(f"{self.name} needs a size of at least 1 and epsilon > 0, got {self}")

    @property
    @abstractmethod
    def scale(self) -> float:
        """What ``a g + b v`` is multiplied by to be unbiased."""

    @property
    @abstractmethod
    def limit(self) -> float:
        """No coordinate of ``a g + b v`` is beyond it."""

    @abstractmethod
    def _weights(self, G: Floats, V: Floats, draws: Draws) -> tuple[Floats, Floats]:
        """The numbers a and b of every user."""

    @property
    def width(self) -> int:
        return self.size + 1

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype((np.int32, (self.size,)))

    @property
    def units(self) -> int:
        return int(self.limit * UNITS)

    @property
    def grid(self) -> float:
        return self.scale / UNITS

    @property
    def influence(self) -> float:
        return 2 * self.limit * self.scale

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int32]:
        reports = np.empty(values.shape, np.int32)
        rounded_reports(*self._parts(values, draws), float(self.units), reports)
        return reports

    def summarise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        total = np.zeros(self.size, np.int64)
        rounded_sum(*self._parts(values, draws), float(self.units), total)
        return total

    def _parts(self, values: NDArray[Any], draws: Draws) -> tuple[Floats, Floats, Floats, Floats]:
        V = np.ascontiguousarray(values, dtype=np.float64)
        G = draws.normals((len(V), self.size + self.lifted))
        return G, V, *self._weights(G, V, draws)

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(reports.sum(axis=0, dtype=np.int64))

    def decode(self, total: Floats, n_users: int) -> Floats:
        return total / n_users

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((np.abs(reports.astype(np.int64)) <= self.units).all(axis=1))


@dataclass(frozen=True)
class _Cap:
    """A cap ``<z, u> >= threshold``: its chance, how often a report lies in it, and the mean of ``<z, u>``."""

    threshold: float
    chance: float
    inside: float
    mean: float
    square: float
    """Mean of ``<z, u>^2``."""


def _inside(chance: Any, epsilon: float) -> Any:
    """How often the cap is hit, ``q E / (1 - q + q E)``: the density ratio of cap and complement is E."""
    weight = chance * math.exp(min(epsilon * SAFE, 700.0))
    return weight / (1 - chance + weight)


@dataclass(frozen=True)
class PrivUnit(_Vector):
    """A point z of the unit sphere in ``size + 1`` dimensions, drawn from a cap around u with probability p.

    The record v becomes the unit vector ``u = (v, sqrt(1 - ||v||^2))``, whose last coordinate is not reported. With
    probability ``p = q E / (1 - q + q E)``, ``E = e^epsilon``, z is uniform on the cap ``<z, u> >= gamma`` (of chance
    q), otherwise on its complement; ``z / m`` is reported, ``m = E <z, u>``. The density takes two values whose ratio
    is E, for any u: pure epsilon. gamma makes m largest, which nobody can beat by more than a constant (Bhowmick,
    Duchi, Freudiger, Kapoor and Rogers 2018; Asi, Feldman and Talwar 2022; seed 001, in place of Algorithm 1).

    Examples
    --------
    >>> [round(PrivUnit(20, epsilon).noise_std, 2) for epsilon in (1.0, 2.0, 4.0)]
    [2.48, 1.25, 0.63]
    """

    tag: ClassVar[str] = "PrivUnit"

    name: ClassVar[str] = "privunit"
    lifted: ClassVar[bool] = True

    @property
    def cap(self) -> _Cap:
        return _sphere_cap(self.size + 1, self.epsilon)

    @property
    def scale(self) -> float:
        return 1.0 / self.cap.mean

    @property
    def limit(self) -> float:
        return 1.0 + 2.0**-20

    @property
    def noise_std(self) -> float:
        across = (1 - self.cap.square) / self.size
        along = self.cap.square - self.cap.mean**2
        return math.sqrt(max(across, along)) * self.scale

    def _weights(self, G: Floats, V: Floats, draws: Draws) -> tuple[Floats, Floats]:
        dot, norm2, scale = (np.empty(len(V)) for _ in range(3))
        lifted_products(G, V, dot, norm2, scale)
        cap, half = self.cap, self.size / 2
        hit = draws.uniforms(len(V)) < cap.inside
        where = 1.0 - draws.uniforms(len(V))  # in (0, 1]
        # by symmetry both are lower tails, which keep their digits
        t = 2 * betaincinv(half, half, np.where(hit, cap.chance, 1 - cap.chance) * where) - 1
        t = np.where(hit, np.maximum(-t, cap.threshold), np.minimum(t, np.nextafter(cap.threshold, -1.0)))
        a = np.sqrt((1 - t * t) / np.maximum(norm2 - dot * dot, 1e-300))
        return a, (t - a * dot) * scale


@dataclass(frozen=True)
class PrivUnitG(_Vector):
    """As `PrivUnit`, with a normal vector of variance 1/d in place of the uniform point; for many coordinates.

    ``t = sqrt(d) <z, u>`` is a standard normal number beyond gamma with probability p, and below it otherwise; the rest
    of z is free. The density ratio takes the same two values, so it is exactly epsilon-LDP, and
    ``m = phi(gamma) / sqrt(d) (p/q - (1 - p)/(1 - q))`` (Asi, Feldman and Talwar 2022).

    Examples
    --------
    >>> [round(PrivUnitG(100, epsilon).noise_std, 2) for epsilon in (1.0, 2.0, 4.0)]
    [2.52, 1.27, 0.66]
    """

    tag: ClassVar[str] = "PrivUnitG"

    name: ClassVar[str] = "privunitg"
    lifted: ClassVar[bool] = True

    @property
    def cap(self) -> _Cap:
        return _normal_cap(self.epsilon)

    @property
    def scale(self) -> float:
        return 1.0 / self.cap.mean

    @property
    def limit(self) -> float:
        return TAIL

    @property
    def noise_std(self) -> float:
        return math.sqrt(max(1.0, self.cap.square - self.cap.mean**2)) * self.scale

    def _weights(self, G: Floats, V: Floats, draws: Draws) -> tuple[Floats, Floats]:
        dot, norm2, scale = (np.empty(len(V)) for _ in range(3))
        lifted_products(G, V, dot, norm2, scale)
        cap = self.cap
        hit = draws.uniforms(len(V)) < cap.inside
        where = 1.0 - draws.uniforms(len(V))  # in (0, 1]
        t = ndtri(np.where(hit, cap.chance, 1 - cap.chance) * where)
        t = np.where(hit, np.maximum(-t, cap.threshold), np.minimum(t, np.nextafter(cap.threshold, -1.0)))
        return np.ones(len(V)), (t - dot) * scale


@dataclass(frozen=True)
class Hemisphere(_Vector):
    """A point of the sphere in the half around ``+-v`` with probability ``E / (1 + E)``.

    The sign is + with probability ``(1 + ||v||) / 2``. Reported with length
    ``B = (E + 1)/(E - 1) sqrt(pi) Gamma((d + 1)/2) / Gamma(d/2)``: unbiased, and pure epsilon because the two halves
    have probabilities between ``1/(1 + E)`` and ``E/(1 + E)`` (Duchi, Jordan and Wainwright 2018; seed 000, equation
    5.75, and seed 004, appendix C, where the scale is left open).

    Examples
    --------
    >>> round(Hemisphere(32, 1.0).noise_std, 3)
    2.691
    """

    tag: ClassVar[str] = "Hemisphere"

    name: ClassVar[str] = "hemisphere"
    lifted: ClassVar[bool] = False

    @property
    def scale(self) -> float:
        half = math.exp(gammaln((self.size + 1) / 2) - gammaln(self.size / 2))
        return math.sqrt(math.pi) * half / math.tanh(self.epsilon * SAFE / 2)

    @property
    def limit(self) -> float:
        return 1.0 + 2.0**-20

    @property
    def noise_std(self) -> float:
        return self.scale / math.sqrt(self.size)

    def _weights(self, G: Floats, V: Floats, draws: Draws) -> tuple[Floats, Floats]:
        dot, length = products(G, V)
        norm = np.minimum(np.sqrt(np.einsum("ij,ij->i", V, V)), 1.0)
        sign = np.where(draws.uniforms(len(V)) < (1 + norm) / 2, 1.0, -1.0)
        odds = math.exp(-self.epsilon * SAFE)
        sign *= np.where(draws.uniforms(len(V)) < 1 / (1 + odds), 1.0, -1.0)
        sign *= np.where(dot >= 0, 1.0, -1.0)
        return sign / np.maximum(length, 1e-300), np.zeros(len(V))


@dataclass(frozen=True)
class GaussianVector(_Vector):
    """The vector with independent normal noise of standard deviation ``diameter / mu``.

    mu is the largest for which mu-GDP is (epsilon, delta)-DP. The diameter of the unit ball is 2, and it is what
    counts, since any two records must be told apart no better (seed 001, Algorithm 1, forgets it: its true epsilon at
    nominally 1 is 1.6). Use it where the server multiplies reports and removes the noise again; the others have less.

    Parameters
    ----------
    size, epsilon, delta : int, float, float
    diameter : float, default 2
        Largest distance of two values; sqrt(2) for ``svec(x x')`` of unit vectors.

    Examples
    --------
    >>> round(GaussianVector(5, 1.0, 1e-6).noise_std, 2)
    8.45
    """

    tag: ClassVar[str] = "GaussianVector"

    delta: float = 1e-6
    diameter: float = 2.0

    name: ClassVar[str] = "gaussian"
    lifted: ClassVar[bool] = False
    has_sums: ClassVar[bool] = True
    has_counts: ClassVar[bool] = True
    sums_of_totals: ClassVar[bool] = True

    @property
    def cost(self) -> Cost:
        return Cost("gaussian", _mu(self.epsilon, self.delta))

    @property
    def noise_std(self) -> float:
        return self.diameter / _mu(self.epsilon, self.delta)

    @property
    def scale(self) -> float:
        return max(1.0, self.noise_std)

    @property
    def limit(self) -> float:
        return TAIL + 1.0

    def _weights(self, G: Floats, V: Floats, draws: Draws) -> tuple[Floats, Floats]:
        one = np.ones(len(V))
        return one * (self.noise_std / self.scale), one / self.scale

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        """One normal vector for all of them."""
        return self.draw_around(values.sum(axis=0), len(values), generator)

    def draw_counted(
        self, values: NDArray[Any], counts: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return self.draw_around(counts @ values, int(counts.sum()), generator)

    def draw_around(self, total: Floats, n_users: int, generator: np.random.Generator) -> NDArray[np.int64]:
        noise = math.sqrt(n_users) * self.noise_std * generator.standard_normal(self.size)
        return np.rint((total + noise) / self.grid).astype(np.int64)


_mu = lru_cache(maxsize=256)(gdp_mu)  # it is asked for in every block of users


@lru_cache(maxsize=256)
def _sphere_cap(d: int, epsilon: float) -> _Cap:
    """The best cap of the sphere in d dimensions."""
    half = (d - 1) / 2
    log_scale = gammaln(d / 2) - gammaln(half) - math.log(math.pi) / 2 - math.log(d - 1)

    def chance(g: Any) -> Any:
        return 0.5 * betainc(half, 0.5, 1 - g * g)

    def mean(g: Any) -> Any:
        q = chance(g)
        tail = np.exp(half * np.log1p(-g * g) + log_scale)  # E <z, u> 1{<z, u> >= g} for uniform z
        p = _inside(q, epsilon)
        return tail * (p / q - (1 - p) / (1 - q))

    gamma = _largest_at(mean, np.linspace(0.0, 0.999, 400))
    q, m = float(chance(gamma)), float(mean(gamma))
    p = float(_inside(q, epsilon))
    # E t^2 1{t >= g} = (q + (d - 1) g tail) / d, by parts
    tail = float(np.exp(half * np.log1p(-gamma * gamma) + log_scale))
    above = (q + (d - 1) * gamma * tail) / d
    square = p * above / q + (1 - p) * (1 / d - above) / (1 - q)
    return _Cap(gamma, q, p, m, square)


@lru_cache(maxsize=256)
def _normal_cap(epsilon: float) -> _Cap:
    """The best half-line for a standard normal number, in its units."""

    def mean(log_q: Any) -> Any:
        gamma = -ndtri_exp(log_q)
        q = np.exp(log_q)
        p = _inside(q, epsilon)
        return np.exp(-gamma * gamma / 2) / math.sqrt(2 * math.pi) * (p / q - (1 - p) / (1 - q))

    log_q = _largest_at(mean, np.linspace(math.log(1e-8), math.log(0.5), 400))
    gamma = -float(ndtri_exp(log_q))
    q = float(np.exp(log_ndtr(-gamma)))
    p = float(_inside(q, epsilon))
    density = math.exp(-gamma * gamma / 2) / math.sqrt(2 * math.pi)
    square = 1 + gamma * density * (p / q - (1 - p) / float(ndtr(gamma)))
    return _Cap(gamma, q, p, density * (p / q - (1 - p) / (1 - q)), square)


def _largest_at(function: Any, places: Floats) -> float:
    """Where a smooth function is largest: the best place of a grid, refined four times."""
    for _ in range(5):
        with np.errstate(all="ignore"):  # a cap of no chance has no mean
            best = int(np.nanargmax(function(places)))
        low, high = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
        places = np.linspace(low, high, 101)
    return float(places[len(places) // 2])
