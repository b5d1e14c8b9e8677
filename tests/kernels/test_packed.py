"""Packed symmetric matrices against loops over pairs of entries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.kernels.packed import ROOT2, packed_scale, packed_size, products_into, smat, svec

ENTRIES = [0.0, -0.0, 5e-324, 1e-200, -0.3, 1.0, 2.5, -1e9, 1e150, 1e308, np.inf, np.nan]


def pairs(d):
    return [(i, j) for i in range(d) for j in range(i, d)]


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_a_vector_has_the_entries_of_the_upper_triangle(d):
    rng = np.random.default_rng(d)
    matrix = rng.choice(ENTRIES[:9], (d, d))
    matrix = np.triu(matrix) + np.triu(matrix, 1).T
    vector = svec(matrix)
    assert len(vector) == packed_size(d) == len(pairs(d))
    assert vector.tolist() == [matrix[i, j] * (1.0 if i == j else math.sqrt(2)) for i, j in pairs(d)]
    assert packed_scale(d).tolist() == [1.0 if i == j else math.sqrt(2) for i, j in pairs(d)]
    back = smat(vector)
    assert np.array_equal(back, back.T) and np.allclose(back, matrix, rtol=1e-15, atol=1e-323)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("d", [1, 2, 5, 12])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("weight", [1.0, -0.25, 1e-3, 0.0])
def test_products_are_those_of_pairs(d, order, weight):
    rng = np.random.default_rng(d)
    for n in (0, 1, 9):
        X = np.asarray(rng.choice(ENTRIES, (n, d)), order=order)
        out = np.full((n, packed_size(d) + 2), 7.0)
        products_into(X, weight, out)
        expected = [
            [weight * x[i] * x[j] if i == j else weight * ROOT2 * x[i] * x[j] for i, j in pairs(d)] + [7.0, 7.0]
            for x in X
        ]
        assert np.array_equal(out, np.array(expected).reshape(out.shape), equal_nan=True)
