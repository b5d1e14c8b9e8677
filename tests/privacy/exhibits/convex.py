"""Printed versions of the smooth convex methods of seed 000, section 3.1, that break their guarantee."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

# The methods run on logistic loss, rows of norm 1 (so G = 1) and labels +1; all runs at once, one per line.


def _gradient(x: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Of the loss of ``row`` (one, or one per run) at the parameters of all runs."""
    return -expit(-np.sum(x * row, axis=-1))[..., None] * row


def _mean_gradient(x: np.ndarray, X: np.ndarray) -> np.ndarray:
    return -(expit(-x @ X.T) @ X) / len(X)


def printed_svrg(
    X: np.ndarray, epsilon: float, delta: float, n_runs: int, n_epochs: int, n_inner: int, rng: np.random.Generator
) -> np.ndarray:
    """SVRG as printed (Algorithm 3.1.1): steps of one random row, with the noise of a mean over all rows.

    What every step releases, of shape (n_runs, n_steps, d), minus the exact mean gradient at the snapshot, which an
    adversary who knows the other rows knows up to 1/n. A row that is drawn stands there with all its weight, and the
    noise is n times smaller than that: it is seen with probability ``1 - (1 - 1/n)^n_steps``, not delta.
    """
    n, d = X.shape
    noise = math.sqrt(n_epochs * n_inner * math.log(1 / delta)) / (n * epsilon)
    x = np.zeros((n_runs, d))
    seen = []
    for _ in range(n_epochs):
        snapshot, total = x, np.zeros_like(x)
        mean = _mean_gradient(snapshot, X)
        for _ in range(n_inner):
            row = X[rng.integers(n, size=n_runs)]
            g = _gradient(x, row) - _gradient(snapshot, row) + mean + noise * rng.standard_normal(x.shape)
            seen.append(g - mean)
            x = x - 1.0 * g
            total = total + x
        x = total / n_inner
    return np.stack(seen, axis=1)


def printed_katyusha(X: np.ndarray, n_runs: int, n_inner: int, rng: np.random.Generator) -> np.ndarray:
    """One epoch of Katyusha as printed (Algorithm 3.1.2), which adds no noise at all."""
    x = snapshot = np.zeros((n_runs, X.shape[1]))
    mean, total = _mean_gradient(snapshot, X), np.zeros_like(snapshot)
    for _ in range(n_inner):
        y = 0.5 * x + 0.5 * snapshot
        row = X[rng.integers(len(X), size=n_runs)]
        x = x - 2.0 * (_gradient(y, row) - _gradient(snapshot, row) + mean)
        total = total + x
    return 0.5 * total / n_inner + 0.5 * snapshot


def printed_accelerated_mirror(
    X: np.ndarray, epsilon: float, delta: float, n_runs: int, rng: np.random.Generator
) -> np.ndarray:
    """One round of accelerated mirror descent as printed (Algorithm 3.1.4), in the unit l2 ball.

    The z-step is noisy, but y, which is what is returned, minimises a model with the exact gradient.
    """
    noise = math.sqrt(math.log(1 / delta)) / (len(X) * epsilon)
    x = np.zeros((n_runs, X.shape[1]))
    g = _mean_gradient(x, X)
    z = _in_ball(x - (g + noise * rng.standard_normal(x.shape)))  # never used again in the only round
    assert z.shape == x.shape
    return _in_ball(x - 4.0 * g)


def _in_ball(v: np.ndarray) -> np.ndarray:
    return v / np.maximum(1.0, np.linalg.norm(v, axis=-1, keepdims=True))
