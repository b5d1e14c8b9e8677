"""Rows in a frame, and the sizes of columns, against NumPy; the same bits wherever a row stands."""

from __future__ import annotations

import numpy as np

from dpdist.kernels.clip import clip_l2
from dpdist.kernels.whitened_rows import Frame, framed_rows, size_counts

rng = np.random.default_rng(0)
X, y = rng.normal(size=(500, 4)) * [1.0, 10.0, 0.01, 1.0], rng.choice([-1.0, 1.0], 500)
X[3, 1], X[4, 2], y[5], X[6] = np.nan, np.inf, np.nan, 1e200
FRAME = Frame(np.array([1.0, 8.0, 0.01, 2.0]), 1.5, np.array([0.3, 0.0, -0.2, 0.1]), rng.normal(size=(4, 4)))


def test_rows_are_clipped_scaled_clipped_again_centred_and_turned():
    rows, labels = framed_rows(X, y, 12.0, FRAME)
    expected = (clip_l2(clip_l2(X, 12.0) / FRAME.scales, 1.5) - FRAME.centre) @ FRAME.axes
    good = np.isfinite(X).all(axis=1) & np.isfinite(y)
    assert np.allclose(rows[good], expected[good], rtol=1e-9) and np.array_equal(labels[good], y[good])
    assert (labels[~good] == 0).all() and np.isfinite(rows).all()
    scaled, _ = framed_rows(X, y, 12.0, Frame(FRAME.scales))
    assert np.allclose(scaled[good], clip_l2(X, 12.0)[good] / FRAME.scales, rtol=1e-9)


def test_a_row_is_the_same_alone_and_in_company():
    rows = framed_rows(X, y, 12.0, FRAME)[0]
    for i in (0, 6, 123, 499):
        assert np.array_equal(framed_rows(X[i : i + 1], y[i : i + 1], 12.0, FRAME)[0][0], rows[i])


def test_sizes_are_counted_in_octaves():
    counts = size_counts(X, 12.0, 6)
    sizes = np.abs(clip_l2(X, 12.0)) / 12
    for j in range(4):
        expected = [((sizes[:, j] >= 2.0 ** -(k + 1)) & (sizes[:, j] < 2.0**-k)).sum() for k in range(6)]
        assert counts[j].tolist() == expected
    whole = size_counts(np.array([[12.0, 0.0], [-12.0, 5e-324]]), 12.0, 6)
    assert whole[0].tolist() == [2, 0, 0, 0, 0, 0] and whole[1].sum() == 0
