"""Losses at public points, added up: against NumPy, for rows that are bad, and wherever a row stands."""

from __future__ import annotations

import numpy as np

from dpdist.kernels.value_sums import loss_table
from dpdist.losses import Biweight, Sigmoid


def test_scores_are_sums_of_values():
    X, y = np.random.default_rng(0).normal(size=(150, 3)) / 4, np.random.default_rng(1).normal(size=150)
    points = np.random.default_rng(2).normal(size=(700, 3))
    whole = {"row_norm": 5.0, "grid": 2.0**-36, "bound": 0.5}
    found = loss_table(X, y, points, Biweight(1.0), **whole) * 2.0**-36
    values = Biweight(1.0).value(X @ points.T, y[:, None])
    np.testing.assert_allclose(found, values.sum(axis=0) - 150 * 0.5, atol=1e-6)
    centred = loss_table(X, y, points, Biweight(1.0), **whole, centred=True) * 2.0**-36
    np.testing.assert_allclose(centred, (values - Biweight(1.0).value(0.0, y[:, None])).sum(axis=0), atol=1e-6)
    bad = np.vstack([X, [[np.nan] * 3, [np.inf, 0, 0], [0, 0, 0]]]), np.append(y, [0.0, 0.0, np.nan])
    assert np.array_equal(loss_table(*bad, points, Biweight(1.0), **whole) * 2.0**-36, found)


def test_what_a_row_adds_does_not_depend_on_where_it_stands():
    """Products of matrices round by place: one row that is replaced would move the losses of all others."""
    rng = np.random.default_rng(3)
    X, y, points = rng.normal(size=(97, 4)), rng.choice([-1.0, 1.0], 97), rng.normal(size=(70, 4))

    def table(rows):
        return loss_table(X[rows], y[rows], points, Sigmoid(), row_norm=2.0, bound=0.5, grid=2.0**-46)

    one_by_one = sum(table([i]) for i in range(97))
    for order in (np.arange(97), np.arange(97)[::-1], rng.permutation(97)):
        assert np.array_equal(table(order), one_by_one)
