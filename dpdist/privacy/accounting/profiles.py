"""What each accountant of `dpdist.privacy.accounting.composition` makes of everything that one row has to pay."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from dpdist.privacy.accounting import closed_forms as accounting
from dpdist.privacy.accounting.releases import FixedSize, Poisson, Releases, Sampling, column_rho
from dpdist.privacy.budget import Neighbours

_ALL_ORDERS = 1 + np.geomspace(1e-2, 1e6, 600)
_INTEGER_ORDERS = np.array([*range(2, 65), 80, 96, 128, 192, 256, 384, 512, 768, 1024], dtype=np.float64)


class Profile(Protocol):
    """Everything that one row has to pay, composed."""

    def epsilon(self, delta: float) -> float: ...
    def delta(self, epsilon: float) -> float: ...


@dataclass(frozen=True)
class _Sums:
    """gdp, pure, gdp+pure, basic: exact Gaussian DP of the Gaussian part, after which epsilons (and deltas) add."""

    mu: float
    pure: float
    given: float = 0.0

    def epsilon(self, delta: float) -> float:
        rest = delta - self.given
        if self.mu == 0:
            return self.pure if rest >= 0 else math.inf
        return self.pure + accounting.gdp_epsilon(self.mu, rest) if rest > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        rest = epsilon - self.pure
        if rest < 0:
            return 1.0
        return min(1.0, self.given + (accounting.gdp_delta(rest, self.mu) if self.mu > 0 else 0.0))


@dataclass(frozen=True)
class _Zcdp:
    rho: float

    def epsilon(self, delta: float) -> float:
        return accounting.eps_for_rho(self.rho, delta)

    def delta(self, epsilon: float) -> float:
        return accounting.delta_for_rho(self.rho, epsilon)


@dataclass(frozen=True)
class _Renyi:
    curve: np.ndarray
    orders: np.ndarray

    def epsilon(self, delta: float) -> float:
        return accounting.renyi_epsilon(self.curve, self.orders, delta)

    def delta(self, epsilon: float) -> float:
        return accounting.renyi_delta(self.curve, self.orders, epsilon)


def fft_delta(releases: Sequence[Releases]) -> float:
    """Delta given away for the rounding of FFT convolutions in float64, which grows with their number.

    Measured on Gaussians against the closed form: 1e-13 after 1e4 compositions, 5e-11 after 1e6.
    """
    return 1e-12 + 1e-15 * sum(c.count for c in releases)


@dataclass(frozen=True)
class _Pld:
    distribution: Any
    rounding: float

    def epsilon(self, delta: float) -> float:
        return float(self.distribution.get_epsilon_for_delta(delta - self.rounding))

    def delta(self, epsilon: float) -> float:
        return min(1.0, float(self.distribution.get_delta_for_epsilon(epsilon)) + self.rounding)


def _pure_epsilon(release: Releases, neighbours: Neighbours) -> float:
    """Epsilon of one release, amplified where the scheme fits the relation, else as if every row took part."""
    epsilon = release.cost.parameter if release.cost.kind == "approximate" else release.cost.epsilon
    if isinstance(release.sampling, Poisson) and neighbours is Neighbours.ADD_OR_REMOVE_ONE:
        return accounting.amplify_poisson(epsilon, 0.0, release.sampling.rate, neighbours)[0]
    if isinstance(release.sampling, FixedSize) and neighbours is Neighbours.REPLACE_ONE:
        return accounting.amplify_fixed_size(epsilon, 0.0, release.sampling.rate, neighbours)[0]
    return epsilon


def _sums(column: Sequence[Releases], neighbours: Neighbours) -> _Sums:
    mus = [c.cost.parameter * math.sqrt(c.full) for c in column if c.cost.kind == "gaussian"]
    pure = [c.count * _pure_epsilon(c, neighbours) for c in column if c.cost.kind != "gaussian"]
    given = [c.count * c.cost.delta for c in column]
    return _Sums(accounting.gdp_compose(mus), math.fsum(pure), math.fsum(given))


@lru_cache(maxsize=4096)
def _sampled_curve(mu: float, sampling: Sampling) -> np.ndarray:
    formula = accounting.poisson_rdp if isinstance(sampling, Poisson) else accounting.wor_rdp
    return np.array([formula(sampling.rate, 1 / mu, int(a)) for a in _INTEGER_ORDERS])


def _renyi(column: Sequence[Releases]) -> _Renyi:
    orders = _INTEGER_ORDERS if any(c.sampling for c in column) else _ALL_ORDERS
    curve = np.zeros_like(orders)
    for release in column:
        kind, parameter = release.cost.kind, release.cost.parameter
        if parameter == 0:
            continue
        if release.sampling is not None:
            one = _sampled_curve(parameter, release.sampling)
        elif kind == "laplace":
            one = accounting.laplace_rdp(parameter, orders)
        elif kind == "pure":
            one = accounting.pure_rdp(parameter, orders)
        else:  # min: the exponential mechanism is both bounded-range and pure
            one = np.minimum(orders * release.cost.rho, release.cost.epsilon)
        curve += release.count * one
    return _Renyi(curve, orders)


def _gaussian_pld(mu: float, sampling: Sampling | None, neighbours: Neighbours, interval: float) -> Any:
    """Privacy loss distribution of one Gaussian release; the only place where a noise multiplier is converted.

    dp_accounting reads the standard deviation under REPLACE_ONE relative to the norm bound of ONE row's contribution
    and doubles the sensitivity itself (its dominating pair is ``(1-q)N(0) + qN(1)`` against ``(1-q)N(0) + qN(-1)``),
    while ``mu`` is relative to the replace-one sensitivity, twice that bound: hence ``2/mu`` there and ``1/mu`` else.
    Its RdpAccountant reads the same event relative to the sensitivity, so the two must not share this number.
    """
    from dp_accounting import privacy_accountant
    from dp_accounting.pld import privacy_loss_distribution as pld

    relation = privacy_accountant.NeighboringRelation
    if sampling is None:  # one pair for both relations
        return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
    replace = neighbours is Neighbours.REPLACE_ONE
    return pld.from_gaussian_mechanism(
        2 / mu if replace else 1 / mu,
        sampling_prob=sampling.rate,
        neighboring_relation=relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=interval,
    )


def _pure_pld(epsilon: float, interval: float) -> Any:
    """Privacy loss distribution of randomised response, which dominates every epsilon-DP mechanism.

    Its delta is linear in ``e^x`` on [-epsilon, epsilon], so connecting the dots next to the ends loses nothing inside.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    k = math.ceil(epsilon / interval)
    cells = np.unique([-k, 1 - k, k - 1, k])
    x = cells * interval
    deltas = np.where(x <= -epsilon, -np.expm1(x), -np.expm1(np.minimum(x - epsilon, 0)) / (1 + math.exp(-epsilon)))
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, cells, deltas))


ROUGH = ContextVar("rough", default=False)
"""Whether plans are asked for to two digits only, on a grid that is up to 16 times coarser: an eighth of the time."""


@contextmanager
def roughly() -> Iterator[None]:
    """Plans in here are for answers of two digits, never for noise."""
    token = ROUGH.set(True)
    try:
        yield
    finally:
        ROUGH.reset(token)


def _interval(column: Sequence[Releases], scale: float) -> float:
    """Grid of losses: 4096 cells up to ``scale``, the epsilon of interest, but no more than 5e4 in a single release.

    A rare sample with little noise has losses far above epsilon; a coarser grid is as good there, since connecting the
    dots errs by the square of the interval, and only upwards.
    """
    widest = max((c.cost.parameter * (20 + c.cost.parameter) for c in column if c.cost.kind == "gaussian"), default=0.0)
    finest = 2.0 ** math.floor(math.log2(max(min(max(scale, 1e-6), 4.0) / 4096, widest / 5e4)))
    if not ROUGH.get():
        return finest
    # each release errs upwards by about the square of the interval
    times = 16 * math.sqrt(200 / max(200, sum(c.count for c in column)))
    return finest * max(1.0, 2.0 ** math.floor(math.log2(times)))


def _pld(column: Sequence[Releases], neighbours: Neighbours, scale: float) -> _Pld:
    """Convolve the privacy loss distributions of the column."""
    from dp_accounting.pld import privacy_loss_distribution as pld  # 0.7 s: only plans that need it pay

    interval = _interval(column, scale)
    total = pld.identity(value_discretization_interval=interval)
    whole = _sums([c for c in column if c.sampling is None and c.cost.kind == "gaussian"], neighbours).mu
    if whole > 0:
        total = total.compose(_gaussian_pld(whole, None, neighbours, interval))
    for release in column:
        kind, parameter = release.cost.kind, release.cost.parameter
        if parameter == 0 or (kind == "gaussian" and release.sampling is None):
            continue
        if kind == "gaussian":
            one = _gaussian_pld(parameter, release.sampling, neighbours, interval)
        elif kind == "laplace":
            one = pld.from_laplace_mechanism(
                1 / parameter,
                value_discretization_interval=interval,
                sampling_prob=1.0 if release.sampling is None else release.sampling.rate,
            )
        else:
            one = _pure_pld(parameter, interval)
        total = total.compose(one if release.count == 1 else one.self_compose(release.count))
    return _Pld(total, fft_delta(column))


def profile(column: Sequence[Releases], accountant: str, neighbours: Neighbours, scale: float) -> Profile:
    """The composition of what one row has to pay; ``scale`` is the epsilon of interest, for the grid of a PLD."""
    if accountant == "zcdp":
        return _Zcdp(column_rho(column))
    if accountant == "rdp":
        return _renyi(column)
    if accountant == "pld":
        return _pld(column, neighbours, scale)
    return _sums(column, neighbours)
