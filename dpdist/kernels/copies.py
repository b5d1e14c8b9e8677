"""Gradients of a polynomial model from independent noisy copies of a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.kernels.compiled import kernel


@kernel
def copies_gradient(
    reports: Any, w: Any, partition: Any, natural: Any, scales: Any, unit: float, limit: float, total: Any
) -> None:
    """Adds up ``(sum_k p_k t_k) z_0 - (sum_k q_k t_k) z_y`` of all users, in units and each within ``+-limit``.

    Without q there is no ``z_y``, and no second part.

    ``t_k`` is the product of k factors ``<w, z_i>``, whose copies occur in no other factor, so that its mean is
    ``<w, x>^k``.

    Parameters
    ----------
    reports : ndarray of shape (m, (K + 2) d)
        z_0, the copies ``z_1, ..., z_K``, and z_y, of d numbers each; ``K = degree (degree + 1) / 2``.
    w : ndarray of shape (d,)
    partition, natural : ndarray of shape (degree + 1,)
        p and q; q may be empty.
    scales : ndarray of shape (3,)
        What a unit of z_0, of a copy and of z_y (if there is one) stands for.
    unit, limit : float
    total : ndarray of int64, shape (d,)
        Written.
    """
    d = len(w)
    degree = len(partition) - 1
    last = (degree * (degree + 1) // 2 + 1) * d
    labelled = len(natural) > 0
    for i in range(len(reports)):
        first = partition[0]
        second = natural[0] if labelled else 0.0
        at = d
        for k in range(1, degree + 1):
            power = 1.0
            for _ in range(k):
                product = 0.0
                for j in range(d):
                    product += w[j] * reports[i, at + j]
                power *= product * scales[1]
                at += d
            first += partition[k] * power
            if labelled:
                second += natural[k] * power
        first *= scales[0] / unit
        if labelled:
            second *= scales[2] / unit
        for j in range(d):
            value = first * reports[i, j]
            if labelled:
                value -= second * reports[i, last + j]
            value = np.rint(value)
            total[j] += np.int64(min(max(value, -limit), limit))
