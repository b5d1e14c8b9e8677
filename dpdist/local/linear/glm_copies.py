"""Generalised linear models from noisy copies of the records, through polynomials: seed 001, Algorithms 5 and 6.

A user sends, in one Gaussian report, ``z_0`` and K further noisy copies of x, and a noisy ``y x`` (`Copies`). The
product of k copies' inner products with w has the mean ``<w, x>^k`` whatever the noise, so that a polynomial in place
of the slopes of the loss has gradients that can be had without bias (`CopiesProtocol`). The server walks from group to
group of users with `dpdist.solvers.loops.intermediate_gradient` (`learn`).

As printed the reports have half of the noise that they need (Algorithm 1), and the radius is counted twice: the
polynomials are fitted in ``t = <x, w>`` in [-1, 1] already. Here the budget is shared as mu^2, 1/4 for z_0, 1/4 for
all copies and 1/2 for ``y x``, where the printed algorithm gives every copy its part of epsilon. The noise is
multiplied degree + 1 times all the same: at degree 1 it takes a million users, at degree 3 the parameter never leaves
its start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.kernels.bases import chebyshev_fit, chebyshev_to_monomial, monomial_error
from dpdist.kernels.copies import copies_gradient
from dpdist.local.linear.generalised_linear import GeneralisedLinear
from dpdist.local.randomisers.vectors import GaussianVector
from dpdist.local.statistics.labelled import LabelledRow, bounded_records
from dpdist.local.survey.protocol import Block, Domain, LocalProtocol, Statistic
from dpdist.privacy.randomness.draws import Draws
from dpdist.solvers.loops import drive, intermediate_gradient

Floats = NDArray[np.float64]

FINENESS = 2.0**20
RANGE = 2.0**11
"""A user's gradient is rounded to 2**-20 of its root mean square and clamped at 2**11 of them: sums are exact."""


@dataclass(frozen=True)
class Copies(Statistic):
    """``(x/2, x/sqrt(4 K), ..., x/sqrt(4 K), x y/sqrt(2))`` in units of the bounds of x and y (cheb-collect).

    A vector of the unit ball: the squared norms are at most 1/4, 1/4 and 1/2. A Gaussian report of it with noise s is
    one of x with noise 2 s, K more with ``sqrt(4 K) s``, and one of ``x y`` with ``sqrt(2) s``.
    """

    tag: ClassVar[str] = "Copies"

    n_features: int
    degree: int
    row_norm: float
    label_bound: float

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")
    domain: ClassVar[Domain] = "ball"

    @property
    def n_copies(self) -> int:
        """K: one for the first power, two more for the second, and so on."""
        return self.degree * (self.degree + 1) // 2

    @property
    def size(self) -> int:
        return (self.n_copies + 2) * self.n_features

    @property
    def scales(self) -> Floats:
        """What the parts of the vector are to be multiplied by to be x, x and x y."""
        return np.array([2.0, 2.0 * math.sqrt(self.n_copies), math.sqrt(2.0)])

    def values(self, block: Block, state: Any = None) -> Floats:
        X, y = bounded_records(block, self.row_norm, self.label_bound)
        weights = 1 / self.scales
        return np.hstack([X * weights[0], *[X * weights[1]] * self.n_copies, X * (y * weights[2])[:, None]])


@dataclass(frozen=True)
class LabelledCopies(Copies):
    """``(z/sqrt(2), z/sqrt(2 K), ..., z/sqrt(2 K))`` for ``z = x y`` in units of the bounds: for losses of the margin.

    A Gaussian report of it with noise s is one of z with noise ``sqrt(2) s``, and K more with ``sqrt(2 K) s``: half of
    mu^2 for the first and half for all others. Seed 000, Algorithms 5.1.33 and 5.1.34, send x and y one by one, and
    spend 3 epsilon (exactly accounted: 13.1 at nominal 10).
    """

    tag: ClassVar[str] = "LabelledCopies"

    @property
    def size(self) -> int:
        return (self.n_copies + 1) * self.n_features

    @property
    def scales(self) -> Floats:
        return np.array([math.sqrt(2.0), math.sqrt(2.0 * self.n_copies)])

    def values(self, block: Block, state: Any = None) -> Floats:
        Z = LabelledRow(self.n_features, self.row_norm, self.label_bound).values(block)
        weights = 1 / self.scales
        return np.hstack([Z * weights[0], *[Z * weights[1]] * self.n_copies])


@dataclass(frozen=True)
class CopiesProtocol(LocalProtocol):
    """The mean gradient at a public point, from reports of `Copies`; the state is that point, in the unit ball.

    ``G = r ((sum_k p_k t_k) z_0 - (sum_k q_k t_k) z_y)`` per user, for ``h2'(r t) = sum_k p_k t^k`` and
    ``B h1'(r t) = sum_k q_k t^k``, r the radius in units of the rows, B the bound of the labels. For a loss of the
    margin (`LabelledCopies`) it is the first part alone, and p that of its slope. A poisoned report moves a coordinate
    of n times the estimate by at most ``units grid``.

    Parameters
    ----------
    statistic : Copies
    randomiser : GaussianVector
    radius : float
        r.
    partition, natural : tuple of float
        p and q.
    """

    tag: ClassVar[str] = "CopiesProtocol"

    radius: float = 1.0
    partition: tuple[float, ...] = ()
    natural: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        terms = self.copies.degree + 1
        labelled = not isinstance(self.statistic, LabelledCopies)
        if len(self.partition) != terms or len(self.natural) != (terms if labelled else 0):
            raise BudgetError(f"polynomials of degree {self.copies.degree} have {terms} coefficients, got {self}")

    @property
    def has_sums(self) -> bool:
        return False

    @property
    def noise_std(self) -> float:
        return self._root_mean_square(1)

    @property
    def total_std(self) -> float:
        """Bound of the root mean square of the norm of a user's G, at any point of the ball and for any record."""
        return self._root_mean_square(self.copies.n_features)

    @property
    def grid(self) -> float:
        return self.noise_std / FINENESS

    @property
    def units(self) -> int:
        return int(RANGE * FINENESS)

    def accumulate(self, reports: NDArray[Any], state: Any = None) -> NDArray[np.int64]:
        """The sum of G at ``state`` (at 0, if there is none)."""
        d = self.copies.n_features
        w = np.zeros(d) if state is None else np.ascontiguousarray(state, dtype=np.float64)
        total = np.zeros(d, np.int64)
        partition, natural = np.array(self.partition), np.array(self.natural)
        scales = self.copies.scales * self.randomiser.grid
        copies_gradient(reports, w, partition, natural, scales, self.grid / self.radius, float(self.units), total)
        return total

    def summarise(self, block: Block, draws: Draws, state: Any = None) -> NDArray[np.int64]:
        return self.accumulate(self.randomise(block, draws), state)

    def estimate(self, total: Floats, n_users: int) -> Floats:
        return np.asarray(total, dtype=np.float64) / n_users

    @property
    def copies(self) -> Copies:
        """What is sent."""
        assert isinstance(self.statistic, Copies)
        return self.statistic

    def _root_mean_square(self, n_coordinates: int) -> float:
        """``E t_k^2 <= (1 + s_1^2)^k`` and ``E z_j^2 <= 1 + s^2``; the factors are independent."""
        noise = self.randomiser.noise_std * self.copies.scales
        powers = (1 + noise[1] ** 2) ** np.arange(len(self.partition))

        def part(coefficients: tuple[float, ...], std: float) -> float:
            # (a + b + ...)^2 <= (|a| + |b| + ...)^2, and the root mean square of a sum is at most that of its terms
            return float(np.abs(coefficients) @ np.sqrt(powers)) * math.sqrt(1 + n_coordinates * std**2)

        first = part(self.partition, noise[0])
        return self.radius * (math.hypot(first, part(self.natural, noise[2])) if self.natural else first)


def copies_protocol(
    loss: GeneralisedLinear,
    n_features: int,
    degree: int,
    epsilon: float,
    delta: float,
    *,
    radius: float,
    row_norm: float,
    label_bound: float,
) -> CopiesProtocol:
    """The protocol for a loss, whose slopes become Chebyshev polynomials of that degree.

    Parameters
    ----------
    radius : float
        Public bound of the norm of the coefficients.
    """
    statistic = Copies(n_features, degree, row_norm, label_bound)
    r = radius * row_norm
    partition, natural = (_powers(slope, r, degree) for slope in (loss.partition_slope, loss.natural_slope))
    scaled = tuple(float(q) * label_bound for q in natural)
    return CopiesProtocol(
        statistic, GaussianVector(statistic.size, epsilon, delta), r, tuple(map(float, partition)), scaled
    )


def margin_protocol(
    powers: Floats, n_features: int, epsilon: float, delta: float, *, radius: float, row_norm: float
) -> CopiesProtocol:
    """The protocol for a loss of the margin, whose slope at ``r t`` has these coefficients of ``1, t, t^2, ...``."""
    statistic = LabelledCopies(n_features, len(powers) - 1, row_norm, 1.0)
    law = GaussianVector(statistic.size, epsilon, delta)
    return CopiesProtocol(statistic, law, radius * row_norm, tuple(map(float, powers)))


def approximation_error(loss: GeneralisedLinear, radius: float, degree: int) -> float:
    """How far the polynomials are off the slopes of the loss, at most, on linear predictors up to ``radius``.

    >>> from dpdist.local.linear.generalised_linear import LogisticModel
    >>> [round(approximation_error(LogisticModel(), 3.0, degree), 3) for degree in (1, 3)]
    [0.067, 0.011]
    """
    slopes = (loss.partition_slope, loss.natural_slope)
    return max(monomial_error(lambda t, f=f: f(radius * t), _powers(f, radius, degree)) for f in slopes)  # type: ignore[misc]


def learn(protocol: CopiesProtocol, ask: Callable[[int, Floats], Floats], sizes: list[int]) -> Floats:
    """Coefficients in the unit ball (cheb-learn): one step of the stochastic intermediate gradient method per group.

    Parameters
    ----------
    protocol : CopiesProtocol
    ask : callable
        ``(group, w)`` to the mean gradient at w of that group of users.
    sizes : list of int
        Of the groups.
    """
    asked = iter(range(len(sizes)))
    slope = np.polynomial.polynomial.polyder(np.array(protocol.partition))
    steepest = float(np.abs(np.polynomial.polynomial.polyval(np.linspace(-1, 1, 201), slope)).max())
    loop = intermediate_gradient(
        L2Ball(1.0).project,
        protocol.copies.n_features,
        len(sizes),
        smoothness=protocol.radius * steepest,
        noise=protocol.total_std / math.sqrt(min(sizes)),
        radius=1.0,
    )
    return drive(loop, lambda w: ask(next(asked), w))


def _powers(slope: Callable[[Floats], Floats], radius: float, degree: int) -> Floats:
    return chebyshev_to_monomial(chebyshev_fit(lambda t: slope(radius * t), degree))
