"""Subspaces: algebraically largest eigenvalues, the Fantope, and what is sparse."""

import math

import numpy as np
import pytest

from dpdist.solvers.subspaces import (
    chance_error,
    fantope_pca,
    fantope_project,
    predicted_subspace_error,
    sparse_eigenspace,
    subspace_error,
    top_eigenspace,
)


def symmetric(p, rng):
    A = rng.normal(size=(p, p))
    return (A + A.T) / 2


def spiked(p, k, s, noise, rng):
    V = np.zeros((p, k))
    V[:s] = np.linalg.qr(rng.normal(size=(s, k)))[0]
    return V, V @ V.T + noise * symmetric(p, rng)


def test_eigenvalues_are_the_largest_ones_and_not_the_largest_in_size():
    values, vectors = top_eigenspace(np.diag([-5.0, 1.0, 0.5, -7.0]), 2)
    assert values.tolist() == [1.0, 0.5]
    assert np.array_equal(vectors, np.eye(4)[:, [1, 2]])


@pytest.mark.parametrize("k", [1, 3, 6])
def test_eigenvectors_are_those_of_the_symmetric_part(k):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 6))
    values, vectors = top_eigenspace(A, k)
    S = (A + A.T) / 2
    assert np.allclose(S @ vectors, vectors * values) and np.allclose(vectors.T @ vectors, np.eye(k))
    assert np.all(np.diff(values) <= 0) and np.allclose(values, np.linalg.eigvalsh(S)[::-1][:k])
    flipped = top_eigenspace(S[::-1, ::-1], k)[1][::-1]  # signs do not depend on the order of the columns
    assert np.allclose(vectors, flipped)


@pytest.mark.parametrize("k", [0, 7])
def test_more_components_than_columns_are_refused(k):
    for find in (lambda: top_eigenspace(np.eye(6), k), lambda: fantope_project(np.eye(6), k)):
        with pytest.raises(ValueError, match="number of columns, 6"):
            find()


def test_the_error_is_the_distance_of_the_projections_also_where_it_is_small():
    rng = np.random.default_rng(1)
    A, B = (np.linalg.qr(rng.normal(size=(9, 3)))[0] for _ in range(2))
    assert math.isclose(subspace_error(A, B), np.linalg.norm(A @ A.T - B @ B.T), rel_tol=1e-12)
    turned = A @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert subspace_error(A, turned) < 1e-14  # 2 (k - ||A'B||^2) has lost all digits there
    errors = [subspace_error(A, np.linalg.qr(rng.normal(size=(9, 3)))[0]) ** 2 for _ in range(2000)]
    assert abs(math.sqrt(np.mean(errors)) - chance_error(9, 3)) < 0.02


def test_the_prediction_is_what_noise_does():
    rng, p, k, s = np.random.default_rng(2), 30, 3, 0.004
    V = np.linalg.qr(rng.normal(size=(p, k)))[0]
    errors = []
    for _ in range(40):
        E = rng.normal(size=(p, p)) * s
        E = np.triu(E, 1) / math.sqrt(2)
        E = E + E.T + np.diag(rng.normal(size=p) * s)
        errors.append(subspace_error(top_eigenspace(V @ V.T * 0.3 + E, k)[1], V))
    assert abs(np.mean(errors) / predicted_subspace_error(s, p, k, 0.3) - 1) < 0.05
    assert predicted_subspace_error(1e9, p, k, 0.3) == chance_error(p, k)


@pytest.mark.parametrize("p, k", [(1, 1), (5, 1), (12, 4), (12, 12)])
def test_the_fantope_projection_is_the_nearest_point_of_the_fantope(p, k):
    rng = np.random.default_rng(p)
    for scale in (1e-3, 1.0, 1e3):
        A = symmetric(p, rng) * scale
        X = fantope_project(A, k)
        values = np.linalg.eigvalsh(X)
        assert math.isclose(np.trace(X), k, rel_tol=1e-10) and values[0] > -1e-12 and values[-1] < 1 + 1e-12
        assert np.allclose(fantope_project(X, k), X, atol=1e-9)
        for _ in range(20):  # <A - X, Y - X> <= 0 for every point Y of the set
            Y = np.linalg.qr(rng.normal(size=(p, k)))[0]
            assert ((A - X) * (Y @ Y.T - X)).sum() <= 1e-9 * scale * p


def test_ties_in_the_fantope_projection():
    assert np.allclose(fantope_project(np.zeros((4, 4)), 2), np.eye(4) / 2)
    assert np.allclose(fantope_project(np.diag([2.0, 2.0, 2.0, -9.0]), 2).diagonal(), [2 / 3, 2 / 3, 2 / 3, 0])


def test_without_a_penalty_the_convex_program_has_the_top_subspace():
    rng = np.random.default_rng(3)
    S = symmetric(15, rng)
    _, V = top_eigenspace(S, 3)
    found = fantope_pca(S, 3, 0.0)
    assert found.converged and np.linalg.norm(found.projection - V @ V.T) < 0.02


def test_the_convex_program_reaches_its_optimum():
    """Against a certificate: the objective is below the sum of the top k eigenvalues of S + Z, any |Z| <= penalty."""
    rng, k, penalty = np.random.default_rng(4), 2, 0.12
    _, S = spiked(25, k, 6, 0.05, rng)
    found = fantope_pca(S, k, penalty, tol=1e-6, max_iter=20_000)
    objective = (S * found.projection).sum() - penalty * np.abs(found.projection).sum()
    Z = np.where(np.abs(found.sparse) > 1e-9, -np.sign(found.sparse), 0.0) * penalty
    Z[Z == 0] = np.clip(-S, -penalty, penalty)[Z == 0]
    bound = top_eigenspace(S + Z, k)[0].sum()
    assert found.converged and objective <= bound + 1e-6 and bound - objective < 0.02


def test_refitting_is_better_than_the_shrunken_subspace_and_has_exact_zeros():
    rng, errors = np.random.default_rng(5), {"plain": [], "shrunken": [], "refitted": []}
    for _ in range(5):
        V, S = spiked(60, 2, 8, 0.08, rng)
        values, vectors, support = sparse_eigenspace(S, 2, 0.15)
        assert not vectors[~support].any() and set(np.flatnonzero(support)) <= set(range(8))
        assert np.all(np.diff(values) <= 0) and np.allclose(vectors.T @ vectors, np.eye(2))
        errors["refitted"].append(subspace_error(vectors, V))
        errors["shrunken"].append(subspace_error(sparse_eigenspace(S, 2, 0.15, refit=False)[1], V))
        errors["plain"].append(subspace_error(top_eigenspace(S, 2)[1], V))
    means = {name: np.mean(found) for name, found in errors.items()}
    assert means["refitted"] < means["shrunken"] and means["refitted"] < means["plain"] / 1.5


def test_a_penalty_above_everything_leaves_as_many_columns_as_components():
    _, vectors, support = sparse_eigenspace(np.diag([1.0, 3.0, 2.0, 0.5]), 2, 1e3)
    assert support.sum() == 2 and np.allclose(vectors.T @ vectors, np.eye(2))
    for S in (np.zeros((3, 3)), -np.eye(3)):
        assert sparse_eigenspace(S, 1, 0.1)[2].sum() >= 1
