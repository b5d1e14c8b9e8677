"""The table of the smoothed truncation, evaluated as its description says, against quadrature in 40 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from dpdist.kernels.smooth_table import LARGEST_BETA, PIECES, SIZES, SMALLEST_BETA, cube_root, smooth_table
from tests.kernels.test_truncation import BETAS, near, smoothed


def looked_up(u, table):
    """The larger of the cubic and of the polynomial of the piece, in exact arithmetic with the table's numbers."""
    u = mpmath.mpf(u)
    v = abs(u) * table.stretch
    q = v * v + table.shift
    y = 1 / q
    piece = int(mpmath.nint(y))
    value = mpmath.mpf(0)
    for power in range(0, len(table.coefficients), PIECES):
        value = value * (y - piece) + (table.coefficients[power + piece] if piece < PIECES else 0)
    return mpmath.sign(u) * max(abs(u) * (1 - table.cubic * (q - table.shift)), value)


@pytest.mark.parametrize("beta", BETAS)
def test_values_are_those_of_the_integral(beta):
    table = smooth_table(beta)
    switch = np.sqrt(2) / (1 + 6.5 / np.sqrt(beta))
    around = near(beta)[:, None] * np.array([1 - 1e-9, 1 + 1e-9])
    rng = np.random.default_rng(1)
    sizes = [0.0, 1e-3, switch / 2, switch * (1 - 1e-9), switch * (1 + 1e-9), 30.0, 1e6]
    sizes += [*rng.choice(around.ravel(), 4), *rng.uniform(0, 20, 4)]
    with mpmath.workdps(40):
        for u in [*sizes, -1.0, -1e7]:
            assert abs(looked_up(u, table) - smoothed(u, beta)) < 3e-13, u
        assert abs(table.limit - looked_up(1e100, table)) < 1e-12


def test_every_size_of_a_table_has_compiled_code():
    for beta in np.geomspace(SMALLEST_BETA, LARGEST_BETA, 9):
        table = smooth_table(float(beta))
        assert len(table.coefficients) % PIECES == 0 and len(table.coefficients) // PIECES in SIZES
        assert not any(table.coefficients[PIECES - 1 :: PIECES])  # of the last piece, where the cubic holds


def test_cube_roots_are_rounded_once():
    for x in (5e-324, 1e-300, 0.1, 2.0, 27.0, 1e300):
        with mpmath.workdps(60):
            exact = mpmath.cbrt(mpmath.mpf(x))
            assert cube_root(x) == float(exact)


def test_coefficients_are_the_same_everywhere():
    # from decimal arithmetic: these digits hold on every machine
    table = smooth_table(1.0)
    assert [v.hex() for v in (table.limit, table.shift, table.coefficients[-PIECES])] == [
        "0x1.498bf217dcff2p-1",
        "0x1.6b312ea8fc379p-5",
        "0x1.498bf217dce71p-1",
    ]
