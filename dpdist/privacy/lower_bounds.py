"""How accurate a private estimator can be at best: minimax lower bounds by packing.

If few contaminated rows separate many parameters, an estimator that depends little on any row cannot tell them apart
(Barber and Duchi 2014, Theorem 3; seed 003, Lemma 3 and Theorem 9). `dpdist.data.sparse.spiky_sparse` draws from the
hard instance.
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


def _log1mexp(a: float) -> float:
    """``ln(1 - e^(-a))`` for a > 0."""
    return math.log(-math.expm1(-a)) if a < math.log(2) else math.log1p(-math.exp(-a))
