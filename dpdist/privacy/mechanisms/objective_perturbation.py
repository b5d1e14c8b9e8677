"""Objective perturbation: (epsilon, delta)-DP and no more.

Its `Cost` is a pair: delta is a public field of the mechanism, epsilon is what the plan calibrates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated, check_positive
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import Integers, dyadic_above, rounded_gaussian

OUTPUT_SHARE = 0.01
"""Share of epsilon and of delta that pays for not knowing the minimiser exactly."""
TAIL_SHARE = 0.01
"""Share of delta that pays for a linear term longer than `ObjectivePerturbation.longest_term`."""
CURVATURE_SHARE = 0.1
"""Largest share of epsilon that the change of curvature may take: it sets the least regularisation."""
TERM_BITS = 40
"""The linear term is rounded to a grid of about this many bits below its standard deviation."""


@dataclass(frozen=True)
class ObjectivePerturbation(Mechanism):
    """The minimiser of a convex objective to which a random linear term was added (objective perturbation).

    For rows ``z_i`` with losses ``f_i(w) = l(<x_i, w>, y_i)``, every l convex with ``|l'| ||x_i|| <= G`` and
    ``0 <= l'' ||x_i||^2 <= L`` for all w, the release is the minimiser over all of R^p of

        J(w) = sum_i f_i(w) + D/2 ||w||^2 + <b, w>,    b ~ N(0, sigma^2 I_p)

    with ``zeta`` the largest change of the gradient between neighbours (2 G for replace-one, G for add-or-remove-one):

        D = max(ridge, L / (e^(epsilon_1/10) - 1)),    epsilon' = epsilon_1 - ln(1 + L/D)
        sigma = zeta / mu,    2 delta(epsilon', mu) = delta_1

    and ``delta(epsilon, mu)`` that of a Gaussian release of sensitivity mu and standard deviation 1.

    Parameters
    ----------
    delta : float
        Of one release, all included.
    lipschitz, curvature : float
        ``G`` and ``L``.
    ridge : float
        The regularisation of the sum that is wanted anyway; at least this much is used.
    neighbours : Neighbours
        The relation for which `cost` holds.
    strength : float, optional
        Epsilon of one release, all included.

    Notes
    -----
    *Exact minimiser, continuous b.* ``b -> w`` is a bijection, Lipschitz in both directions, so the densities of w on
    neighbours have the ratio ``phi(b)/phi(b + s) * det ratio``. The Hessians differ by one rank-one matrix (two for
    replace-one): the determinants' ratio is at most ``1 + L/D``. ``s`` is ``l' x`` (minus ``m' x'`` of the other row):
    its size depends on w, the *directions* u, u' of the rows do not (Chaudhuri, Monteleoni and Sarwate 2011; Kifer,
    Smith and Thakurta 2012; with ``zeta = G`` under replace-one, as it is often quoted, this is false). What is left of
    the log-ratio, ``(2 <b, s> + |s|^2) / (2 sigma^2)``, is convex in the two sizes, each in [-G, G], hence largest at a
    corner, where ``s = +-G (u - u')`` or ``+-G (u + u')``: it is at most the larger one of ``mu_j |N_j| + mu_j^2 / 2``,
    N_j standard normal, ``mu_j = G |u -+ u'| / sigma``. The delta of a release, ``E (1 - e^(epsilon - log-ratio))_+``,
    grows with the log-ratio, so that it is at most ``2 delta(epsilon', mu_1) + 2 delta(epsilon', mu_2)``, with
    ``mu_1^2 + mu_2^2 = (2 G / sigma)^2 = mu^2`` whatever the angle. As a function of ``mu^2`` the second derivative of
    ``delta(epsilon, mu)`` has the sign of ``epsilon^2 - mu^2 - mu^4 / 4``; where it is positive up to mu, the function
    is convex and 0 at 0, and rows in one line are the worst: ``2 delta(epsilon', mu)``. Elsewhere (deltas of a tenth)
    twice that is what is kept to. Where a row is added or removed there is one direction, and nothing to add up.
    Compared with bounding ``|<b, s>|`` by a quantile, as published, the noise is 1.12 to 1.31 times less at epsilon 1.
    The split gives the curvature at most a tenth of epsilon, which needs half the noise of the usual equal split (seed
    000, section 3.1, as corrected).

    *What is really released* is ``w + r`` plus Gaussian noise, where the vector r, at most ``tau`` long, collects what
    separates the computed point from w (approximate minima perturbation: Iyengar, Near, Song, Thakkar, Thakurta and
    Wang 2019). Given w, the data determine b, hence r: this is a second release, of sensitivity ``2 tau`` given the
    first, at `OUTPUT_SHARE` of epsilon and delta, and the costs add. ``tau`` has three parts: the solver's tolerance,
    the grid of the released vector, and the **rounding of b**. The linear term that is used is ``g round(b/g)``, drawn
    exactly as integers. Rounding b is no post-processing of the release, but it moves the gradient of J by at most
    ``g sqrt(p)/2`` and hence the minimiser by at most ``g sqrt(p)/(2 D)``: the point computed with the rounded b is an
    approximate minimiser of the problem with the continuous b, and only that one needs a density.

    The solver's tolerance is proved for terms of norm at most `longest_term`; longer ones have a probability of
    `TAIL_SHARE` of delta.

    Examples
    --------
    >>> mechanism = ObjectivePerturbation(1e-5, lipschitz=1.0, curvature=0.25, ridge=10.0).at(1.0)
    >>> mechanism.cost
    Cost(kind='approximate', parameter=1.0, delta=1e-05)
    >>> round(mechanism.regularisation, 2), round(mechanism.term_std, 2)
    (10.0, 8.03)
    """

    tag: ClassVar[str] = "ObjectivePerturbation"

    delta: float
    lipschitz: float
    curvature: float
    ridge: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    strength: float | None = None

    norm: ClassVar[float] = 2
    one_row_only: ClassVar[str] = (
        "the linear term of a perturbed objective hides one row only. Use solver='gradient' or solver='output'"
    )

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise BudgetError(f"objective perturbation needs delta in (0, 1), got {self.delta!r}; take 1e-6, say")
        for name in ("lipschitz", "curvature"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.ridge < math.inf:
            raise BudgetError(f"ridge must be a finite number of at least 0, got {self.ridge!r}")
        super().__post_init__()

    @property
    def cost(self) -> Cost:
        """(epsilon, delta)-DP."""
        return Cost("approximate", calibrated(self.strength), self.delta)

    @property
    def shift(self) -> float:
        """``zeta``, the largest change of the sum of gradients between neighbours."""
        return self.neighbours.sum_factor * self.lipschitz

    @property
    def regularisation(self) -> float:
        """``D``."""
        return max(self.ridge, self.curvature / math.expm1(min(CURVATURE_SHARE * self._epsilon, 700.0)))

    @property
    def term_std(self) -> float:
        """``sigma``, the standard deviation of a coordinate of b."""
        left = self._epsilon - math.log1p(self.curvature / self.regularisation)
        mu = term_mu(left, (1 - OUTPUT_SHARE - TAIL_SHARE) * self.delta, self.neighbours)
        return self.shift / mu * (1 + 1e-9)

    @property
    def term_grid(self) -> float:
        """What b is rounded to multiples of: a power of two."""
        return math.ldexp(1.0, math.frexp(self.term_std)[1] - TERM_BITS)

    def longest_term(self, n_parameters: int) -> float:
        """What the norm of b exceeds with probability `TAIL_SHARE` of delta at most, on either of two neighbours."""
        tail = math.sqrt(2 * math.log(1 / (TAIL_SHARE * self.delta)))
        rounding = math.sqrt(n_parameters) * self.term_grid
        return (self.term_std * (math.sqrt(n_parameters) + tail) + rounding + self.shift) * (1 + 1e-9)

    def linear_term(self, n_parameters: int, bits: Bits) -> NDArray[np.float64]:
        """A fresh b, rounded to `term_grid`; every number is exact. It must never leave the release."""
        grid = self.term_grid
        scale = dyadic_above(Fraction(self.term_std) / Fraction(grid))
        return rounded_gaussian(scale, n_parameters, bits).astype(np.float64) * grid

    @property
    def _epsilon(self) -> float:
        return (1 - OUTPUT_SHARE) * calibrated(self.strength)

    @property
    def _output(self) -> Gaussian:
        return Gaussian(gdp_mu(OUTPUT_SHARE * calibrated(self.strength), OUTPUT_SHARE * self.delta))

    def noise_std(self, sensitivity: float) -> float:
        """Of the noise that is added to the minimiser (the linear term is the larger part of the randomness)."""
        return self._output.noise_std(sensitivity)

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """The approximate minimiser with Gaussian noise for ``sensitivity_units = 2 tau``."""
        return self._output.release(units, sensitivity_units, bits)


@lru_cache(maxsize=256)
def term_mu(epsilon: float, delta: float, neighbours: Neighbours) -> float:
    """The most that gradients of neighbours may differ by, in standard deviations of a coordinate of b.

    Examples
    --------
    >>> round(term_mu(1.0, 1e-5, Neighbours.REPLACE_ONE), 4), round(gdp_mu(1.0, 5e-6), 4)
    (0.2575, 0.2575)
    """
    mu = gdp_mu(epsilon, delta / 2)
    one_line = neighbours is not Neighbours.REPLACE_ONE or epsilon >= mu * math.sqrt(1 + mu**2 / 4)
    return mu if one_line else gdp_mu(epsilon, delta / 4)
