"""What is printed of private EM algorithms is caught, where ours passes. Confidence 1 - 1e-6, everything seeded."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.truncation import SmoothTruncation
from dpdist.privacy.accounting.closed_forms import gdp_epsilon
from tests.privacy.exhibits import latent
from tests.privacy.exhibits.high_dimensional import literal_smooth_truncation
from tests.privacy.exhibits.table import EXHIBITS, audit


@pytest.mark.parametrize("name", ["dp-gem-clip", "dp-gem-full", "dp-gem-split"])
def test_the_exhibits_of_the_table(name):
    found = audit(next(e for e in EXHIBITS if e.id == name))
    assert found["ours"] <= found["epsilon"] < 1.4 * found["epsilon"] < found["printed"]


def test_the_printed_budget_is_many_times_too_large():
    """rho = epsilon^2: 8.4 at delta 1e-6 in place of 1."""
    epsilon = latent.printed_budget(1.0, 1e-6)
    assert epsilon == pytest.approx(1.0) and 5 < gdp_epsilon(2**0.5 * epsilon, 1e-6) < 10


def test_the_literal_parts_have_no_bound():
    far = [abs(latent.literal_part(a, 1.0, 3.0, 1000, 10)) for a in (10.0, 1e3, 1e5)]
    assert far[2] > 1e5 * far[1] > 1e9 * far[0] / 1e6 and far[2] > 1e8


def test_the_closed_form_of_the_truncation_has_no_bound_in_floats():
    """D8: at 1e8 it is off by millions; the library's never leaves its limit."""
    printed = np.array([abs(float(literal_smooth_truncation(a, 7.0))) for a in (1e5, 1e6, 1e8)])
    ours = SmoothTruncation(7.0)
    assert printed.max() > 1e3 and np.abs(ours([1e5, 1e6, 1e8, 1e300])).max() <= ours.bound < 0.9428
