"""Printed reports of a label that rely on the model for their range, next to ours that clip it."""

from __future__ import annotations

import math

import numpy as np

from dpdist.local.linear.label_private import Label
from dpdist.local.randomisers.scalars import best_scalar
from dpdist.privacy.randomness.draws import SystemDraws

BUDGET = (1.0, 1e-3)
NOISE_BOUND, N_NONZERO = 0.05, 5
LARGEST = math.sqrt(N_NONZERO) + NOISE_BOUND
"""Of a label, for features that are signs and coefficients of norm 1."""


def printed_std(epsilon: float, delta: float) -> float:
    """Noise for labels that differ by ``4 C``, as printed (seed 000, Algorithm 5.3.42)."""
    return math.sqrt(32 * NOISE_BOUND**2 * math.log(1.25 / delta)) / epsilon


def printed_label(which: int, n: int = 1_000_000) -> np.ndarray:
    """Reports of the largest label that the model allows, or of the smallest."""
    return (1 - 2 * which) * LARGEST + printed_std(*BUDGET) * SystemDraws().normals(n)


def our_label(which: int, n: int = 1_000_000) -> np.ndarray:
    """Reports of the same labels, clipped at twice the radius of the coefficients plus the noise."""
    values = Label(2.0 + NOISE_BOUND).values({"y": np.full(n, (1 - 2 * which) * LARGEST)})
    return best_scalar(BUDGET[0]).randomise(values, SystemDraws()).astype(float)
