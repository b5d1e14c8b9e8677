"""Sums over a table of symbols (bytes), row by row and column by column, in integers.

A symbol is a whole number below `OPEN`; `OPEN` stands for an entry that is not there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import kernel

Symbols = NDArray[np.uint8]
Integers = NDArray[np.int64]

OPEN = 255


@kernel
def _counts(symbols: Symbols, of_columns: Integers, of_rows: Integers) -> None:
    for i in range(symbols.shape[0]):
        for j in range(symbols.shape[1]):
            s = symbols[i, j]
            if s < of_rows.shape[1]:
                of_columns[j, s] += 1
                of_rows[i, s] += 1


@kernel
def _by_row(symbols: Symbols, numbers: Integers, sums: Integers) -> None:
    n_classes = numbers.shape[1]
    for i in range(symbols.shape[0]):
        for j in range(symbols.shape[1]):
            s = min(symbols[i, j], n_classes)  # a place for all others costs less than a branch nobody can guess
            for k in range(n_classes):
                sums[i, s, k] += numbers[j, k]


@kernel
def _by_column(symbols: Symbols, tables: Integers, sums: Integers) -> None:
    n_classes = sums.shape[1]
    for i in range(symbols.shape[0]):
        for j in range(symbols.shape[1]):
            s = min(symbols[i, j], n_classes)
            for k in range(n_classes):
                sums[j, k] += tables[i, s, k]


def counts(symbols: Symbols, n_symbols: int) -> tuple[Integers, Integers]:
    """How often every symbol is in each column, and in each row.

    >>> [found.tolist() for found in counts(np.array([[0, 1], [0, OPEN]], dtype=np.uint8), 2)]
    [[[2, 0], [0, 1]], [[1, 1], [1, 0]]]
    """
    n, m = symbols.shape
    of_columns, of_rows = np.zeros((m, n_symbols), np.int64), np.zeros((n, n_symbols), np.int64)
    _counts(symbols, of_columns, of_rows)
    return of_columns, of_rows


def by_row(symbols: Symbols, numbers: Integers) -> Integers:
    """``[i, k, s]``: the sum of ``numbers[j, k]`` over the columns j where row i has the symbol s.

    Symbols from the number of columns of ``numbers`` on count as not there.
    """
    n_classes = numbers.shape[1]
    sums = np.zeros((len(symbols), n_classes + 1, n_classes), np.int64)  # what is added at a time lies side by side
    _by_row(symbols, np.ascontiguousarray(numbers), sums)
    return np.ascontiguousarray(sums[:, :n_classes].transpose(0, 2, 1))


def by_column(symbols: Symbols, tables: Integers) -> Integers:
    """``[j, k]``: the sum over the rows i of ``tables[i, k, s]``, with s the symbol that row i has in column j."""
    n, n_classes, _ = tables.shape
    by_symbol = np.zeros((n, n_classes + 1, n_classes), np.int64)
    by_symbol[:, :n_classes] = tables.transpose(0, 2, 1)
    sums = np.zeros((symbols.shape[1], n_classes), np.int64)
    _by_column(symbols, by_symbol, sums)
    return sums
