"""Gradients from copies against Python integers and fractions, user by user."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpdist.kernels.copies import copies_gradient


def plain(reports, w, partition, natural, scales, unit, limit):
    """Exact, and rounded once."""
    d, degree = len(w), len(partition) - 1
    total = [0] * d
    for report in reports:
        z = [[int(v) for v in report[at : at + d]] for at in range(0, len(report), d)]
        assert len(z) == degree * (degree + 1) // 2 + 2
        factors = [sum(Fraction(a) * b for a, b in zip(w, copy, strict=True)) * Fraction(scales[1]) for copy in z[1:-1]]
        powers = [Fraction(1)]
        for k in range(1, degree + 1):
            power = Fraction(1)
            for _ in range(k):
                power *= factors.pop(0)
            powers.append(power)
        p, q = (sum(Fraction(c) * t for c, t in zip(series, powers, strict=True)) for series in (partition, natural))
        for j in range(d):
            value = (p * Fraction(scales[0]) * z[0][j] - q * Fraction(scales[2]) * z[-1][j]) / Fraction(unit)
            total[j] += max(-limit, min(round(value), limit))
    return total


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
@pytest.mark.parametrize("d", [1, 3, 8])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_are_those_of_fractions_where_floats_are_exact(degree, d, order, dtype):
    rng = np.random.default_rng(degree * 10 + d)
    width = (degree * (degree + 1) // 2 + 2) * d
    w, (partition, natural) = rng.integers(-3, 4, d) / 4, rng.integers(-4, 5, (2, degree + 1)) / 2
    scales, unit = np.array([0.5, 0.25, 2.0]), 2.0**-3
    for n in (0, 1, 40):
        reports = np.asarray(rng.integers(-3, 4, (n, width)), dtype=dtype, order=order)
        for limit in (2**40, 5):
            total = np.full(d, 7)
            copies_gradient(reports, w, partition, natural, scales, unit, float(limit), total)
            expected = plain(reports, w, partition, natural, scales, unit, limit)
            assert (total - 7).tolist() == expected
            assert n < 40 or any(expected) or degree == 0


def test_no_report_counts_more_than_the_limit():
    w, series, scales = np.array([1e300, -1e300]), np.array([1.0, 1e10]), np.array([1e5, 1e5, 1e5])
    for report in ([2**31 - 1] * 6, [-(2**31), 1, 2**31 - 1, 0, 5, -7], [0] * 6):
        total = np.zeros(2, dtype=np.int64)
        copies_gradient(np.array([report]), w, series, series, scales, 1e-9, 1000.0, total)
        assert np.abs(total).max() <= 1000
