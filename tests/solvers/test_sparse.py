"""Sparse solutions from second moments, and the non-private reference of the local sparse regressions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpdist.kernels.packed import packed_size, products_into, smat, svec
from dpdist.problems.sparse_problems import sparse_design
from dpdist.solvers.linear import quadratic_l1
from dpdist.solvers.sparse import in_ball, refit, shrunk, sparse_from_statistics, threshold_gradients
from dpdist.solvers.spectral import psd_floor


def thresholded_ols(X: np.ndarray, y: np.ndarray, noise_std: float) -> np.ndarray:
    """``soft(S^-1 b, lam)`` with the thresholds that noise of that size needs: seed 004, equation 2, without privacy.

    (There the 1/2 in front of the square is missing, which halves lam.)
    """
    n, d = X.shape
    inverse = np.linalg.inv(X.T @ X / n)
    lam = noise_std * np.sqrt(2 * np.log(d) / n * np.diag(inverse))
    return shrunk(inverse @ (X.T @ y / n), lam, d, np.inf, "soft")


def problem(n: int, d: int, k: int, seed: int, rho: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data, truth = sparse_design(
        n, d, n_nonzero=k, design="gaussian", correlation=rho, noise_std=0.5, norm="l1", random_state=seed
    )
    rows = data.read(0, n)
    return rows["X"], rows["y"], truth


@pytest.mark.parametrize("seed", range(5))
def test_references_agree_and_find_the_support(seed):
    X, y, truth = problem(20_000, 20, 3, seed)
    S, b = X.T @ X / len(X), X.T @ y / len(X)
    soft = thresholded_ols(X, y, 0.5 / np.sqrt(3))
    iht = sparse_from_statistics(S, b, 3, 1.0)
    lasso = refit(S, b, quadratic_l1(S, b, penalty=0.01), 3)
    for found in (soft, iht, lasso):
        assert np.linalg.norm(found - truth) < 0.03 * np.linalg.norm(truth)
    assert (np.flatnonzero(iht) == np.flatnonzero(truth)).all()
    assert set(np.flatnonzero(soft)) >= set(np.flatnonzero(truth))
    best = refit(S, b, truth, 3)
    assert np.allclose(iht, best, atol=1e-6) and np.allclose(lasso, best, atol=1e-12)


def test_iht_is_no_worse_than_a_local_change_of_the_best_subset():
    """On a design without strong correlation it finds the best subset of all, by brute force."""
    X, y, _ = problem(300, 7, 2, 11)
    S, b = X.T @ X / len(X), X.T @ y / len(X)

    def value(theta):
        return theta @ S @ theta / 2 - b @ theta

    best = min(
        value(refit(S, b, np.isin(range(7), pair).astype(float), 2)) for pair in itertools.combinations(range(7), 2)
    )
    assert value(sparse_from_statistics(S, b, 2, 10.0)) == pytest.approx(best, rel=1e-9)


def test_thresholding_before_the_ball_keeps_both():
    rng = np.random.default_rng(0)
    S = np.eye(6)
    b = 5 * rng.normal(size=6)
    found = threshold_gradients(lambda theta: S @ theta - b, np.zeros(6), 2, 1.5, 1.0, 3)
    assert np.count_nonzero(found) == 2 and np.linalg.norm(found) == pytest.approx(1.5)
    assert in_ball(np.array([0.3, 0.4]), 0.5).tolist() == [0.3, 0.4]


def test_how_a_dense_estimate_is_made_sparse():
    u = np.array([3.0, -1.0, 0.2])
    assert shrunk(u, np.full(3, 0.5), 2, 10.0, "soft").tolist() == [2.5, -0.5, 0.0]
    assert shrunk(u, np.zeros(3), 1, 2.0, "hard").tolist() == [2.0, 0.0, 0.0]
    assert shrunk(u, np.zeros(3), 1, 2.0, None) is u


def test_floor_of_eigenvalues():
    rng = np.random.default_rng(1)
    noisy = rng.normal(size=(8, 8))
    floored = psd_floor(noisy, 0.25)
    values = np.linalg.eigvalsh(floored)
    assert values[0] == pytest.approx(0.25) and np.allclose(floored, floored.T)
    above = np.linalg.eigvalsh((noisy + noisy.T) / 2)
    assert np.allclose(values, np.maximum(above, 0.25))
    assert np.allclose(psd_floor(floored, 0.1), floored)


def test_packing_is_an_isometry():
    rng = np.random.default_rng(2)
    for d in (1, 2, 7):
        A, B = (M + M.T for M in rng.normal(size=(2, d, d)))
        assert svec(A) @ svec(B) == pytest.approx((A * B).sum()) and len(svec(A)) == packed_size(d)
        assert np.allclose(smat(svec(A)), A)
        X = rng.normal(size=(5, d))
        out = np.zeros((5, packed_size(d) + 1))
        products_into(X, 0.5, out)
        assert np.allclose(out[:, :-1], [0.5 * svec(np.outer(x, x)) for x in X]) and not out[:, -1].any()


def test_how_far_apart_packed_products_can_be():
    """At most sqrt(2) for unit vectors, and that for orthogonal ones: what the Gaussian noise is made for."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    out = np.zeros((2000, 6))
    products_into(X, 1.0, out)
    far = np.linalg.norm(out[:1000] - out[1000:], axis=1)
    assert 1.4 < far.max() <= np.sqrt(2) + 1e-12
