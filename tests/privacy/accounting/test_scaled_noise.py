"""The profile of noise whose scale is a smooth bound: against non-central chi-squares, and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ncx2

from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.scaled_noise import pair_delta, smooth_delta, smooth_gamma


def reference(epsilon, a, own, other, p):
    """The same by SciPy's non-central chi-square, of a ball around ``-a / (bent other^2)``."""
    bent = own**-2 - other**-2
    left, centre = a**2 / other**2 - 2 * (epsilon - p * math.log(other / own)), a / (bent * other**2)
    square = left / bent + centre**2
    law = ncx2.cdf if bent > 0 else ncx2.sf
    if square <= 0:
        return 0.0 if bent > 0 else 1 - math.exp(epsilon)
    return law(square / own**2, p, (centre / own) ** 2) - math.exp(epsilon) * law(
        square / other**2, p, ((centre + a) / other) ** 2
    )


@pytest.mark.parametrize("p", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("ratio", [1.003, 1.01, 1.2])
def test_a_pair_is_a_difference_of_two_non_central_chi_squares(p, ratio):
    for a in (0.05, 0.2, 0.5):
        for own, other in ((1.0, ratio), (ratio, 1.0)):
            found = pair_delta(0.5, a, own, other, p)
            assert found == pytest.approx(max(reference(0.5, a, own, other, p), 0.0), rel=1e-8, abs=1e-14)


def test_without_a_change_of_scale_it_is_the_gaussian_mechanism():
    assert smooth_gamma(1.0, 1e-6, 1e-9, 5) == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-4)
    for p in (1, 50):
        assert pair_delta(1.0, 0.3, 1.0, 1.0, p) == pytest.approx(pair_delta(1.0, 0.3, 1.0, 1.0 + 1e-7, p), rel=1e-3)


@pytest.mark.parametrize("p", [1, 7, 60])
def test_the_bound_is_above_every_pair_that_is_allowed_and_not_far_above(p):
    epsilon, beta = 0.7, 0.7 / (4 * (p + 14))
    gamma = smooth_gamma(epsilon, 1e-6, beta, p)
    bound = smooth_delta(epsilon, gamma, beta, p)
    pairs = [
        pair_delta(epsilon, gamma * moved, *scales, p)
        for moved in (0.0, 0.3, 1.0)
        for r in np.exp(np.linspace(0, beta, 40))
        for scales in ((1.0, r), (r, 1.0))
    ]
    assert max(pairs) <= bound <= 1e-6 and bound < 1.25 * max(pairs)
    # the farthest centres are the worst, as the proof says
    apart = [pair_delta(epsilon, gamma * moved, math.exp(beta), 1.0, p) for moved in (0.2, 0.5, 1.0)]
    assert apart == sorted(apart)


def test_scales_that_cost_more_than_there_is_are_refused():
    with pytest.raises(ValueError, match="no noise whose scale follows the data is known to be enough"):
        smooth_gamma(0.1, 1e-6, 1.0, 10)
