"""Fits of blocks: those of NumPy and scikit-learn, one block at a time, and quiet whatever the rows are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from dpdist.kernels.blocks import least_squares_blocks, logistic_blocks

SIZE = 60
FITS = [least_squares_blocks, logistic_blocks]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10 * SIZE + 7, 4)) * [1.0, 0.01, 30.0, 1.0]
    u = X @ [1.0, -50.0, 0.0, 0.5] + 0.3
    return X, u + rng.standard_t(2, len(X)), np.where(u + rng.logistic(size=len(X)) > 0, 1.0, -1.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("intercept", [False, True])
def test_least_squares_are_those_of_scikit_learn(rows, dtype, alpha, intercept):
    X, y = rows[0].astype(dtype), rows[1]
    found = least_squares_blocks(X, y, SIZE, alpha=alpha, intercept=intercept)
    assert found.shape == (10, 4 + intercept)
    for i, w in enumerate(found):
        part = slice(i * SIZE, (i + 1) * SIZE)
        if alpha == 0:
            Z = np.column_stack([X[part].astype(float), np.ones(SIZE)])[:, : 4 + intercept]
            assert w == pytest.approx(np.linalg.lstsq(Z, y[part], rcond=None)[0], rel=1e-6, abs=1e-9)
        else:
            model = Ridge(alpha * SIZE, fit_intercept=intercept).fit(X[part].astype(float), y[part])
            assert w[:4] == pytest.approx(model.coef_, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
def test_logistic_fits_are_those_of_scikit_learn(rows, intercept):
    X, y = rows[0], rows[2]
    found = logistic_blocks(X, y, SIZE, alpha=0.05, intercept=intercept)
    for i, w in enumerate(found):
        part = slice(i * SIZE, (i + 1) * SIZE)
        model = LogisticRegression(C=1 / (0.05 * SIZE), fit_intercept=intercept, tol=1e-10, max_iter=10_000)
        model.fit(X[part], y[part])
        assert w[:4] == pytest.approx(model.coef_[0], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("fit", FITS)
def test_a_block_has_the_same_bits_wherever_it_is(rows, fit):
    X, y = rows[0], rows[1] if fit is least_squares_blocks else rows[2]
    whole = fit(X, y, SIZE)
    for i in (0, 3, 9):
        part = slice(i * SIZE, (i + 1) * SIZE)
        assert np.array_equal(fit(X[part].copy(), y[part].copy(), SIZE)[0], whole[i])
    assert len(fit(X[: SIZE - 1], y[: SIZE - 1], SIZE)) == 0


@pytest.mark.parametrize("fit", FITS)
def test_null_rows_are_left_out_of_their_block(rows, fit):
    X, y = rows[0].copy(), (rows[1] if fit is least_squares_blocks else rows[2]).copy()
    whole = fit(X, y, SIZE)
    X[3, 1], X[5, 0], y[8] = np.nan, np.inf, np.nan
    found = fit(X, y, SIZE)
    X[[3, 5]], y[[3, 5, 8]] = 1.0, np.nan  # only good rows count
    assert np.array_equal(fit(X, y, SIZE)[0], found[0]) and not np.array_equal(found[0], whole[0])
    assert np.array_equal(found[1:], whole[1:])
    if fit is logistic_blocks:
        y[8] = 0.0
        assert np.array_equal(fit(X, y, SIZE)[0], found[0])


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("spoil", ["zeros", "equal", "huge", "tiny", "nan", "twice", "one"])
def test_hopeless_blocks_are_quiet_and_harm_no_other(rows, fit, spoil):
    X, y = rows[0].copy(), rows[2].copy()
    whole = fit(X, y, SIZE)
    block = X[SIZE : 2 * SIZE]
    if spoil == "zeros":
        block[:] = 0
    elif spoil == "equal":
        block[:] = block[0]
    elif spoil == "huge":
        block[::2] = 1e308
    elif spoil == "tiny":
        block[:] = 5e-324
    elif spoil == "nan":
        block[:] = np.nan
    elif spoil == "twice":
        block[:, 1] = block[:, 0]
    else:
        block[1:] = np.nan
    with np.errstate(all="raise"):
        found = fit(X, y, SIZE)
    assert np.array_equal(np.delete(found, 1, 0), np.delete(whole, 1, 0))
    if fit is least_squares_blocks:
        assert np.isnan(found[1]).all()


def test_separable_blocks_give_a_direction():
    X = np.linspace(-1, 1, SIZE)[:, None]
    found = logistic_blocks(X, np.sign(X[:, 0]), SIZE, intercept=False)
    assert np.isfinite(found).all() and found[0, 0] > 5
