"""How accurate a private estimator can be at best: minimax lower bounds.

If few contaminated rows separate many parameters, an estimator that depends little on any row cannot tell them apart
(Barber and Duchi 2014, Theorem 3; seed 003, Lemma 3 and Theorem 9). `dpdist.problems.mean_problems.spiky_sparse`
draws from the hard instance. Local bounds, for sparse regression, are by contraction of information (Duchi, Jordan and
Wainwright 2018; seeds 000, section 5.3, and 004); their hard instance is
`dpdist.problems.sparse_problems.hard_instance`.
"""

from __future__ import annotations

import math

import numpy as np

from dpdist.errors import BudgetError


def lower_bound(radius: float, log_packing: float, n_rows: int, share: float, epsilon: float, delta: float) -> float:
    """Smallest possible worst mean squared error over a packing of mixtures ``(1 - share) P_0 + share P_v``.

    ``radius^2 (M - 1) (e^(-a)/2 - delta (1 - e^(-a)) / (1 - e^(-epsilon))) / (1 + (M - 1) e^(-a))`` with ``M`` members
    and ``a = epsilon ceil(n_rows share)``, computed with logarithms, and 0 where it is negative. It holds for every
    (epsilon, delta)-DP estimator under replace-one.

    Parameters
    ----------
    radius : float
        Half of the smallest distance between the parameters of two members.
    log_packing : float
        ``ln M``.
    n_rows : int
    share : float
        Of contaminated rows.
    epsilon, delta : float

    Examples
    --------
    >>> round(lower_bound(radius=1.0, log_packing=50.0, n_rows=1000, share=0.01, epsilon=1.0, delta=0.0), 9)
    0.5
    >>> lower_bound(radius=1.0, log_packing=50.0, n_rows=1000, share=0.2, epsilon=1.0, delta=1e-6)
    0.0
    """
    if not (0 <= share <= 1 and epsilon > 0 and 0 <= delta < 1 and n_rows >= 1 and radius >= 0):
        raise BudgetError(
            "a lower bound needs n_rows >= 1, share in [0, 1], radius >= 0, epsilon > 0 and delta in [0, 1), got "
            f"{(n_rows, share, radius, epsilon, delta)!r}"
        )
    if not log_packing > 0:
        return 0.0
    a = epsilon * math.ceil(n_rows * share)
    log_others = log_packing + math.log(-math.expm1(-log_packing))
    # ln(e^(-a)/2 - delta (1 - e^(-a)) / (1 - e^(-epsilon))) = -a + ln(1/2 - delta (e^a - 1) / (1 - e^(-epsilon)))
    log_lost = math.log(delta) + a + _log1mexp(a) - _log1mexp(epsilon) if delta > 0 and a > 0 else -math.inf
    if log_lost >= -math.log(2):
        return 0.0
    log_error = log_others - a + math.log(0.5 - math.exp(log_lost)) - float(np.logaddexp(0.0, log_others - a))
    return radius**2 * math.exp(log_error)


def sparse_mean_lower_bound(
    n_rows: int, n_features: int, n_nonzero: int, second_moment: float, epsilon: float, delta: float
) -> tuple[float, float]:
    """The bound for means with ``n_nonzero`` nonzeros of rows with ``E x_j^2 <= second_moment``, and its hard share.

    The packing: sign vectors v with that many nonzeros and pairwise Hamming distance of at least half of it, of which
    there are ``((d - s) / (s/2))^(s/2)``; ``P_0`` is the point 0 and ``P_v`` the point ``sqrt(second_moment / share)
    v``, so means are ``sqrt(share second_moment) v``, at a squared distance of ``share second_moment s / 2`` at least.
    The share is the best of a fine list. The order is ``second_moment s min(s ln(d/s), ln(1/delta)) / (n epsilon)``.

    Returns
    -------
    bound, share : float
        Of the mean squared error; the share of spikes with which it is reached.

    Examples
    --------
    >>> bound, share = sparse_mean_lower_bound(100_000, 300, 5, 1.0, 1.0, 1e-6)
    >>> f"{bound:.1e} at {share:.0e}"
    '2.6e-05 at 9e-05'
    """
    if not 1 <= n_nonzero < n_features:
        raise BudgetError(f"n_nonzero must lie between 1 and n_features - 1, got {n_nonzero!r} of {n_features!r}")
    log_packing = n_nonzero / 2 * math.log((n_features - n_nonzero) / (n_nonzero / 2))
    shares = np.unique(np.rint(np.geomspace(1, n_rows, 400))) / n_rows
    bounds = []
    for share in map(float, shares):
        radius = math.sqrt(share * second_moment * n_nonzero / 2) / 2
        bounds.append((lower_bound(radius, log_packing, n_rows, share, epsilon, delta), share))
    return max(bounds)


def local_sparse_lower_bound(n_rows: int, n_features: int, epsilon: float, *, interactive: bool = False) -> float:
    """Smallest worst mean squared error for one nonzero coefficient of norm 1 and features that are signs.

    ``d (ln d)^2 / (8 n epsilon^2 ln(2 d))`` without interaction (Fano's inequality, with the packing that is best for
    it; seed 000, Theorem 5.3.1), ``4 d / (27 n epsilon^2)`` if users are asked one after another (Theorem 5.3.2); at
    most 1. Proved for ``epsilon <= 1/2``; beyond, take them for orders of magnitude.

    Examples
    --------
    >>> [f"{local_sparse_lower_bound(10**6, 64, 0.5, interactive=asked):.1e}" for asked in (False, True)]
    ['1.1e-04', '3.8e-05']
    """
    _check_local(n_rows, n_features, 1, epsilon)
    if interactive:
        return min(1.0, 4 * n_features / (27 * n_rows * epsilon**2))
    d = n_features
    return min(1.0, d * math.log(d) ** 2 / (8 * n_rows * epsilon**2 * math.log(2 * d)))


def sparse_regression_rates(
    n_rows: int, n_features: int, n_nonzero: int, epsilon: float, delta: float = 0.0, noise: float = 1.0
) -> dict[str, float]:
    """Minimax rates of the distance to k-sparse coefficients, up to constants: curves to draw beside measured errors.

    ============= ================================================ ===========================================
    key           rate                                             source
    ============= ================================================ ===========================================
    non-private   ``C sqrt(k ln(d/k) / n)``                        classical
    central       ``sqrt(k ln d / n) + k ln d sqrt(L) / (n e)``    Cai, Wang and Zhang 2021; ``L = ln(1/delta)``
    labels        ``C sqrt(k ln(d/k) / n) / e``                    seed 000, Theorem 5.3.7
    interactive   ``sqrt(d k / n) / e``                            seed 004, Theorem 6
    one-report    ``sqrt(d k ln(d/k) / n) / e``                    seed 004, Theorem 1, for ``k >= 4 ln d``
    ============= ================================================ ===========================================

    (``e`` is epsilon.) "central" needs delta > 0, otherwise it is left out.

    Parameters
    ----------
    noise : float
        C: standard deviation of the noise in a label.

    Examples
    --------
    >>> rates = sparse_regression_rates(10**6, 64, 4, 1.0, 1e-6)
    >>> sorted(rates, key=rates.get)
    ['non-private', 'labels', 'central', 'interactive', 'one-report']
    """
    _check_local(n_rows, n_features, n_nonzero, epsilon)
    n, d, k = n_rows, n_features, n_nonzero
    choice = max(math.log(d / k), 1.0)
    rates = {"non-private": noise * math.sqrt(k * choice / n)}
    if delta > 0:
        all_of = max(math.log(d), 1.0)
        rates["central"] = math.sqrt(k * all_of / n) + k * all_of * math.sqrt(math.log(1 / delta)) / (n * epsilon)
    rates["labels"] = rates["non-private"] / epsilon
    rates["interactive"] = math.sqrt(d * k / n) / epsilon
    rates["one-report"] = math.sqrt(d * k * choice / n) / epsilon
    return rates


def local_cost(kappa: float, rho: float) -> float:
    """The epsilon of the local bounds for reports of concentrated privacy: ``sqrt(e^(kappa + 2 rho) - 1)``.

    A report with Renyi divergences of at most ``kappa + rho a`` (a Gaussian one has ``kappa = 0, rho = D^2/(2 s^2)``)
    has chi-square divergences of at most its square, which is what the interactive bound needs (seed 000, Theorem
    5.3.4).

    >>> round(local_cost(0.0, 0.5), 4)
    1.3108
    """
    if not (kappa >= 0 and rho >= 0):
        raise BudgetError(f"kappa and rho must not be negative, got {(kappa, rho)!r}")
    return math.sqrt(math.expm1(kappa + 2 * rho))


def _check_local(n_rows: int, n_features: int, n_nonzero: int, epsilon: float) -> None:
    if not (n_rows >= 1 and 1 <= n_nonzero <= n_features and n_features >= 2 and epsilon > 0):
        raise BudgetError(
            "a local bound needs n_rows >= 1, 2 <= n_features, n_nonzero from 1 to n_features and epsilon > 0, got "
            f"{(n_rows, n_features, n_nonzero, epsilon)!r}"
        )


def _log1mexp(a: float) -> float:
    """``ln(1 - e^(-a))`` for a > 0."""
    return math.log(-math.expm1(-a)) if a < math.log(2) else math.log1p(-math.exp(-a))
