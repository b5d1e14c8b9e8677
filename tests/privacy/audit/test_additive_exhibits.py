"""Additive noise as it is printed is caught, where ours passes. Confidence 1 - 1e-6, everything seeded."""

from __future__ import annotations

import math

import pytest

from dpdist.privacy.accounting.closed_forms import gdp_delta
from tests.privacy.exhibits import additive
from tests.privacy.exhibits.table import EXHIBITS, audit


@pytest.mark.parametrize("name", ["gaussian-classical", "snapping"])
def test_the_exhibits_of_the_table(name):
    found = audit(next(e for e in EXHIBITS if e.id == name))
    assert found["ours"] <= found["epsilon"] < found["printed"]


def test_the_classical_formula_is_enough_up_to_one_and_falls_short_beyond():
    def true_delta(epsilon, delta):
        return gdp_delta(epsilon, epsilon / math.sqrt(2 * math.log(1.25 / delta)))

    assert all(true_delta(epsilon, delta) < delta for epsilon in (0.1, 0.5, 1.0) for delta in (1e-3, 1e-6, 1e-9))
    assert true_delta(10.0, 1e-6) == pytest.approx(1.9e-6, rel=0.05)
    assert true_delta(*additive.CLASSICAL) > 1.3 * additive.CLASSICAL[1]


def test_a_value_is_always_reached_from_itself():
    """The control of the attack: it never says of the other value what it says of the first."""
    assert additive.float_laplace(1).sum() == 0
