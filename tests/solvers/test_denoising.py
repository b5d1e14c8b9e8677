"""Eigenvalues that noise has moved are brought back."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.solvers.denoising import denoised


def orthogonal_ensemble(rng, d, noise):
    E = np.triu(rng.normal(0.0, noise, (d, d)), 1)
    return E + E.T + np.diag(rng.normal(0.0, noise * np.sqrt(2), d))


@pytest.mark.parametrize("spectrum", ["flat", "decaying", "few"])
def test_eigenvalues_are_nearer_to_the_truth_than_raw_and_clipped_ones(spectrum):
    d, noise, rng = 120, 1.0, np.random.default_rng(5)
    few = np.r_[np.full(5, 300.0), np.zeros(d - 5)]
    values = {"flat": np.full(d, 8.0), "decaying": 400 / np.arange(1, d + 1), "few": few}
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    truth = (Q * values[spectrum]) @ Q.T
    noisy = truth + orthogonal_ensemble(rng, d, noise)
    raw, vectors = np.linalg.eigh(noisy)
    clipped = (vectors * np.maximum(raw, 0)) @ vectors.T
    found = denoised(noisy, noise)
    error = np.linalg.norm(found - truth)
    assert error < 0.8 * np.linalg.norm(noisy - truth) and error <= np.linalg.norm(clipped - truth)
    assert (np.linalg.eigvalsh(denoised(noisy, noise, floor=0.5)) > 0.5 - 1e-9).all()


def test_without_noise_nothing_is_changed():
    matrix = np.array([[2.0, 1.0], [1.0, -3.0]])
    assert denoised(matrix, 0.0) == pytest.approx(matrix)
    assert denoised(matrix, 1e-12) == pytest.approx(matrix)
