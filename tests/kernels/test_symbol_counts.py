"""Sums over a table of symbols are those of plain loops."""

from __future__ import annotations

import numpy as np

from dpdist.kernels.symbol_counts import OPEN, by_column, by_row, counts


def test_sums_over_symbols_are_those_of_indicators():
    rng = np.random.default_rng(0)
    symbols = rng.choice(np.array([0, 1, 2, 3, OPEN], np.uint8), (20, 30))  # three classes, one that is no answer
    given = np.stack([symbols == k for k in range(3)]).astype(np.int64)
    of_columns, of_rows = counts(symbols, 4)
    for k in range(4):
        assert np.array_equal(of_columns[:, k], (symbols == k).sum(axis=0))
        assert np.array_equal(of_rows[:, k], (symbols == k).sum(axis=1))
    numbers = rng.integers(-1000, 1000, (30, 3))
    assert np.array_equal(by_row(symbols, numbers), np.einsum("sij,jk->iks", given, numbers))
    tables = rng.integers(-1000, 1000, (20, 3, 3))
    assert np.array_equal(by_column(symbols, tables), np.einsum("sij,iks->jk", given, tables))
