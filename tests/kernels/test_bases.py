"""Random Fourier features, Chebyshev polynomials, and the Walsh-Hadamard transform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from dpdist.kernels.bases import (
    chebyshev_fit,
    chebyshev_to_monomial,
    fourier_features,
    fourier_frequencies,
    fwht,
    monomial_error,
)


def test_fourier_features_have_norm_one_and_the_kernel_as_inner_product():
    X = np.random.default_rng(0).normal(size=(6, 3))
    phi = fourier_features(X, fourier_frequencies(3, 40_000, bandwidth=1.5, seed=1))
    assert np.allclose(np.linalg.norm(phi, axis=1), 1, atol=1e-14)
    kernel = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / (2 * 1.5**2))
    assert np.abs(phi @ phi.T - kernel).max() < 6 * np.sqrt(0.5 / 20_000)


def test_features_of_a_row_do_not_depend_on_the_others_and_extremes_are_null():
    s = fourier_frequencies(5, 14, bandwidth=0.3, seed=2)
    X = np.random.default_rng(0).normal(size=(100, 5))
    whole = fourier_features(X, s)
    assert all((fourier_features(X[i : i + 1], s)[0] == whole[i]).all() for i in range(100))
    with np.errstate(all="raise"):
        odd = fourier_features(np.array([[np.inf, 0, 0, 0, 0], [1e308, 1e308, 0, 0, 0], [1e300, 0, 0, 0, 0]]), s)
    assert np.isnan(odd[0]).any() and np.isnan(odd[1]).any() and np.isclose(np.linalg.norm(odd[2]), 1)
    with pytest.raises(ValueError, match="even"):
        fourier_frequencies(5, 7, 1.0, 0)


@pytest.mark.parametrize(
    ("radius", "degree", "error"),
    [
        (1, 1, 0.0047), (1, 3, 1.12e-4), (2, 1, 0.028), (3, 1, 0.067), (3, 3, 0.011),
        (5, 3, 0.047), (5, 5, 0.015), (10, 9, 0.026),
    ],
)  # fmt: skip
def test_errors_of_polynomials_for_the_slope_of_the_logistic_loss(radius, degree, error):
    def slope(t: np.ndarray) -> np.ndarray:
        return np.tanh(radius * t / 2) / 2

    powers = chebyshev_to_monomial(chebyshev_fit(slope, degree))
    assert monomial_error(slope, powers) == pytest.approx(error, rel=0.06)
    assert np.abs(powers[::2]).max() < 1e-13 and len(powers) == degree + 1


def test_polynomials_are_reproduced_and_the_constant_is_not_doubled():
    powers = np.array([0.7, -1.0, 2.0, 0.25])
    fit = chebyshev_fit(lambda t: np.polynomial.polynomial.polyval(t, powers), 5)
    assert np.allclose(chebyshev_to_monomial(fit), [*powers, 0, 0], atol=1e-12)
    assert chebyshev_to_monomial(np.array([1.0, 0.0, 0.0])).tolist() == [1, 0, 0]


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_walsh_hadamard_transform(size):
    v = np.random.default_rng(size).integers(-9, 9, size=size)
    np.testing.assert_array_equal(fwht(v), hadamard(size) @ v)
    np.testing.assert_array_equal(fwht(fwht(v)), size * v)


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 2)])
def test_no_transform_of_other_lengths(shape):
    with pytest.raises(ValueError, match="power of two"):
        fwht(np.zeros(shape))
