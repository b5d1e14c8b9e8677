"""Closed forms: from a budget to the noise and back.

Every function is pure and errs on the safe side: a strength (mu, rho) is the lower end of its bracket, an epsilon,
a delta or a standard deviation the upper end. Nothing here knows plans; `dpdist.privacy.accounting.composition` adds
up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, gammaln, log_ndtr, ndtr, xlog1py

from dpdist.errors import BudgetError
from dpdist.privacy.budget import Budget, Neighbours

# Covers the rounding of the float64 evaluation of ln(delta); it moves mu by less than one part in 1e10.
_SLACK = 1e-10
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


# ------------------------------------------------------------------------------------------------- Gaussian DP
def _mills(x: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """(1 - Phi(x)) / phi(x)."""
    ratio: NDArray[np.float64] = math.sqrt(math.pi / 2) * erfcx(np.asarray(x) / math.sqrt(2))
    return ratio


def _log_gdp_delta(epsilon: float, mu: float) -> float:
    """Return ``ln delta(epsilon)`` of mu-GDP, without cancellation.

    With ``a = epsilon/mu - mu/2`` and ``b = a + mu`` the two terms of the formula are ``phi(a) R(a)`` and
    ``phi(a) R(b)``, R the Mills ratio. For small mu they agree in nearly all digits, so their difference is taken as
    the integral of ``-R'(x) = 1 - x R(x)`` over [a, b] (20 Gauss-Legendre nodes: exact to rounding for mu <= 1/2).
    """
    a = epsilon / mu - mu / 2
    b = epsilon / mu + mu / 2
    if a < -5:  # delta is close to 1: no cancellation, and R(a) would overflow
        return math.log(ndtr(-a) - math.exp(epsilon + log_ndtr(-b)))
    if a > 1e3:  # below exp(-500000); R(a) - R(b) < 1
        return -a * a / 2
    if mu > 0.5:
        difference = float(_mills(a) - _mills(b))
    else:
        x = a + mu * (_NODES + 1) / 2
        difference = mu / 2 * float(_WEIGHTS @ (1 - x * _mills(x)))
    return -a * a / 2 - math.log(2 * math.pi) / 2 + math.log(difference)


def _meets(epsilon: float, mu: float, log_delta: float) -> bool:
    return _log_gdp_delta(epsilon, mu) + _SLACK <= log_delta


def _last_true(holds: Callable[[float], bool], guess: float) -> float:
    """Largest float for which the (decreasing) predicate holds, by bisection on the logarithm; the safe end."""
    low = guess
    while not holds(low):
        low /= 2
    high = 2 * low
    while holds(high):
        low, high = high, 2 * high
    for _ in range(200):
        middle = low * math.sqrt(high / low)
        if not low < middle < high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _log_of(delta: float) -> float:
    if not 0 < delta < 1:
        raise BudgetError(
            f"this noise needs 0 < delta < 1, got delta = {delta!r}: give a delta far below 1/n_rows (1e-6, say), "
            "or use a mechanism that is private without one (Laplace, DiscreteLaplace, PermuteAndFlip)"
        )
    return math.log(delta)


def gdp_delta(epsilon: float, mu: float) -> float:
    """Smallest delta for which mu-GDP gives (epsilon, delta)-DP.

    ``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)``, exact (Balle and Wang 2018; Dong, Roth and Su
    2022); rounded up.

    Examples
    --------
    >>> round(gdp_delta(1.0, 0.26805112) * 1e5, 6)
    1.0
    """
    if mu == 0:
        return 0.0
    return min(1.0, math.exp(min(0.0, _log_gdp_delta(epsilon, mu) + _SLACK)))


@functools.lru_cache(maxsize=1024)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP gives (epsilon, delta)-DP: what a sequence of Gaussian releases may spend.

    Bisection on ln mu of the exact formula of `gdp_delta`; the lower end is returned.

    Examples
    --------
    >>> round(gdp_mu(1.0, 1e-5), 8)
    0.26805112
    """
    Budget(epsilon, delta)
    log_delta = _log_of(delta)
    guess = math.sqrt(2) * epsilon / (math.sqrt(epsilon - log_delta) + math.sqrt(-log_delta))
    return _last_true(lambda mu: _meets(epsilon, mu, log_delta), guess)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 for which mu-GDP gives (epsilon, delta)-DP; the upper end of the bisection."""
    log_delta = _log_of(delta)
    if mu == 0 or _meets(0.0, mu, log_delta):
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(-2 * log_delta)
    while not _meets(high, mu, log_delta):
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high or high - low <= 1e-15 * high:
            break
        if _meets(middle, mu, log_delta):
            high = middle
        else:
            low = middle
    return high


def gdp_compose(mus: Iterable[float]) -> float:
    """``sqrt(sum mu_i^2)``: the composition of Gaussian releases is exactly that (Dong, Roth and Su 2022).

    It holds for adaptive sequences as long as each ``mu_i = sensitivity_i / noise_std_i`` is fixed in advance.
    """
    return math.sqrt(math.fsum(float(mu) ** 2 for mu in mus))


# --------------------------------------------------------------------------------------- zero-concentrated DP
def _renyi_logs(curve: NDArray[np.float64], excess: NDArray[np.float64], log_delta: float) -> NDArray[np.float64]:
    """Epsilon from every order ``1 + excess`` of a Renyi curve (Canonne, Kamath and Steinke 2020)."""
    return curve - np.log1p(1 / excess) - (log_delta + np.log1p(excess)) / excess


def renyi_epsilon(curve: NDArray[np.float64], orders: NDArray[np.float64], delta: float) -> float:
    """Epsilon of a Renyi-DP curve: ``min_a [R(a) + ln(1 - 1/a) - (ln delta + ln a)/(a - 1)]``, at least 0.

    Every order is valid, so the minimum over any grid is.
    """
    return max(0.0, float(np.min(_renyi_logs(curve, orders - 1, _log_of(delta)))) * (1 + 1e-12))


def renyi_delta(curve: NDArray[np.float64], orders: NDArray[np.float64], epsilon: float) -> float:
    """Delta of a Renyi-DP curve at an epsilon, the inverse of `renyi_epsilon`."""
    logs = (orders - 1) * (curve - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return min(1.0, math.exp(min(0.0, float(np.min(logs)) + _SLACK)))


def _best_order(rho: float, value: Callable[[NDArray[np.float64]], NDArray[np.float64]], log_size: float) -> float:
    """Minimise ``value(ln(order - 1))`` by a grid and three refinements around the order of the simple bound."""
    centre, width = 0.5 * math.log(log_size / rho), 12.0
    for _ in range(4):
        grid = centre + width * np.linspace(-1, 1, 121)
        centre = float(grid[np.argmin(value(grid))])
        width /= 40
    return centre


def eps_for_rho(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP at delta, by the tight conversion (Canonne, Kamath and Steinke 2020).

    ``min_{a > 1} [a rho + ln(1 - 1/a) - (ln delta + ln a)/(a - 1)]``; the simple ``rho + 2 sqrt(rho ln(1/delta))``
    is an upper bound of it.

    Examples
    --------
    >>> round(eps_for_rho(0.02435597, 1e-6), 6)
    1.0
    """
    log_delta = _log_of(delta)
    if rho == 0:
        return 0.0

    def value(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return _renyi_logs((1 + np.exp(t)) * rho, np.exp(t), log_delta)

    best = value(np.array([_best_order(rho, value, -log_delta)]))
    simple = rho + 2 * math.sqrt(-rho * log_delta)
    return max(0.0, min(float(best[0]), simple) * (1 + 1e-12))


def delta_for_rho(rho: float, epsilon: float) -> float:
    """Delta of rho-zCDP at an epsilon: the inverse of `eps_for_rho`."""
    if rho == 0:
        return 0.0

    def value(t: NDArray[np.float64]) -> NDArray[np.float64]:
        excess = np.exp(t)
        return excess * ((1 + excess) * rho - epsilon - np.log1p(1 / excess)) - np.log1p(excess)

    # a delta of exp(-(epsilon-rho)^2/(4 rho)) is the simple bound; its order is the centre of the search
    log_size = max(epsilon - rho, rho) ** 2 / (4 * rho)
    best = float(value(np.array([_best_order(rho, value, log_size)]))[0])
    return min(1.0, math.exp(min(0.0, best + _SLACK)))


def rho_for(epsilon: float, delta: float) -> float:
    """Largest rho for which rho-zCDP gives (epsilon, delta)-DP by `eps_for_rho`; the lower end of the bisection.

    Examples
    --------
    >>> round(rho_for(1.0, 1e-6), 8)
    0.02435597
    """
    Budget(epsilon, delta)
    log_delta = _log_of(delta)
    guess = (epsilon / (math.sqrt(epsilon - log_delta) + math.sqrt(-log_delta))) ** 2
    return _last_true(lambda rho: eps_for_rho(rho, delta) <= epsilon, guess)


# ----------------------------------------------------------------------------------------------- Renyi curves
def pure_rdp(epsilon: float, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Renyi curve of any epsilon-DP mechanism: that of randomised response, which dominates all of them.

    ``ln((e^{a eps} + e^{(1-a) eps}) / (1 + e^eps)) / (a - 1)``, at most ``min(eps, a eps^2/2)``. The small term added
    covers the rounding of the logarithms.
    """
    exact = np.logaddexp(orders * epsilon, (1 - orders) * epsilon) - np.logaddexp(0.0, epsilon)
    exact = (exact + 1e-15 * (1 + orders * epsilon)) / (orders - 1)
    curve: NDArray[np.float64] = np.minimum(exact, np.minimum(epsilon, orders * epsilon**2 / 2))
    return curve


def laplace_rdp(epsilon: float, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Renyi curve of Laplace noise of scale ``sensitivity/epsilon`` (Mironov 2017)."""
    exact = np.logaddexp(
        np.log(orders / (2 * orders - 1)) + (orders - 1) * epsilon,
        np.log((orders - 1) / (2 * orders - 1)) - orders * epsilon,
    )
    exact = (exact + 1e-15 * (1 + orders * epsilon)) / (orders - 1)
    return np.minimum(exact, pure_rdp(epsilon, orders))


def _log_excess(rate: float, noise_multiplier: float, order: int) -> float:
    """``ln(e^{(a-1) R(a)} - 1)`` of the Poisson-subsampled Gaussian; a sum of positive terms, so nothing cancels."""
    if not 0 < rate <= 1:
        raise BudgetError(f"a sampling rate lies in (0, 1], got {rate!r}")
    if order != int(order) or order < 2:
        raise BudgetError(f"the closed form holds for integer orders >= 2, got {order!r}")
    k = np.arange(2, order + 1, dtype=np.float64)
    exponent = k * (k - 1) / (2 * noise_multiplier**2)
    log_binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    log_expm1 = exponent + np.log(-np.expm1(-exponent))
    terms = log_binomial + xlog1py(order - k, -rate) + k * math.log(rate) + log_expm1
    # 1e-11 covers the rounding of gammaln up to order 4096
    return float(np.logaddexp.reduce(terms)) + 1e-11


def poisson_rdp(rate: float, noise_multiplier: float, order: int) -> float:
    """Renyi divergence of a Gaussian sum over a Poisson sample, add-or-remove-one, at an integer order.

    ``ln(sum_k C(a,k) (1-q)^{a-k} q^k exp(k(k-1)/(2 z^2))) / (a-1)`` with ``z = noise_std / sensitivity``
    (Mironov, Talwar and Zhang 2019).

    Examples
    --------
    >>> round(poisson_rdp(0.01, 1.0, 8) * 1e4, 6)
    8.936439
    """
    return float(np.logaddexp(0.0, _log_excess(rate, noise_multiplier, order))) / (order - 1)


def wor_rdp(rate: float, noise_multiplier: float, order: int) -> float:
    """Bound on the Renyi divergence of a Gaussian sum over a fixed-size sample, replace-one, at an integer order.

    ``min(a/(2 z^2), ln(2 e^{(a-1) R_poisson(a)} - 1)/(a-1))`` with ``z = noise_std / (replace-one sensitivity)``.
    Why: advanced joint convexity (Balle, Barthe and Gaboardi 2018) bounds the hockey-stick divergence of the
    subsampled pair, in both orders, by that of the Poisson pair, and ``e^{(a-1)R} - 1`` is an integral of the two.

    Examples
    --------
    >>> round(wor_rdp(0.01, 1.0, 8) * 1e3, 6)
    1.781732
    """
    amplified = float(np.logaddexp(0.0, math.log(2) + _log_excess(rate, noise_multiplier, order))) / (order - 1)
    return min(order / (2 * noise_multiplier**2), amplified)


# ----------------------------------------------------------------------------------------------- amplification
def _amplify(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    if not 0 < rate <= 1:
        raise BudgetError(f"a sampling rate lies in (0, 1], got {rate!r}")
    # ln(1 + q(e^eps - 1)); the other form does not overflow
    amplified = (
        math.log1p(rate * math.expm1(epsilon))
        if epsilon < 30
        else epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))
    )
    return min(epsilon, amplified * (1 + 1e-14)), rate * delta


def amplify_poisson(
    epsilon: float, delta: float, rate: float, neighbours: Neighbours = Neighbours.ADD_OR_REMOVE_ONE
) -> tuple[float, float]:
    """``(ln(1 + q (e^eps - 1)), q delta)``: an (epsilon, delta)-DP mechanism run on a Poisson sample of rate q.

    Holds under add-or-remove-one only (Balle, Barthe and Gaboardi 2018). Under replace-one a row that is replaced can
    be in both samples; there the sampled Gaussian is accounted by its own dominating pair (`composition`).
    """
    if neighbours is not Neighbours.ADD_OR_REMOVE_ONE:
        raise BudgetError(
            "amplification by Poisson sampling in this form holds under ADD_OR_REMOVE_ONE only; under REPLACE_ONE use "
            "Gaussian noise (accounted by PLD) or a fixed-size sample (amplify_fixed_size)"
        )
    return _amplify(epsilon, delta, rate)


def amplify_fixed_size(
    epsilon: float, delta: float, rate: float, neighbours: Neighbours = Neighbours.REPLACE_ONE
) -> tuple[float, float]:
    """The same two numbers for a sample of ``m`` of ``n`` rows without replacement, ``q = m/n``, replace-one only."""
    if neighbours is not Neighbours.REPLACE_ONE:
        raise BudgetError(
            "amplification by fixed-size sampling holds under REPLACE_ONE only (the size of the dataset is public); "
            "under ADD_OR_REMOVE_ONE use a Poisson sample"
        )
    return _amplify(epsilon, delta, rate)
