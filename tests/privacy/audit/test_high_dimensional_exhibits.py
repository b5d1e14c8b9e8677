"""Printed versions of high-dimensional methods that are not private are caught, where ours pass.

Audits have a confidence of 1 - 1e-6, and everything is seeded.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpdist.kernels.coordinate_gradients import Residual
from dpdist.kernels.truncation import SmoothTruncation
from dpdist.losses import Squared
from dpdist.privacy.audit.sensitivity_fuzz import SensitivityViolation, adversarial_rows, sensitivity_fuzz
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.selection import select
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed
from dpdist.queries.coordinate_gradient_sums import CoordinateGradientSum
from tests.privacy.exhibits.high_dimensional import literal_smooth_truncation, printed_lasso_range

K, RADIUS, EPSILON, GRID = 1.0, 20.0, 1.0, 2.0**-20


def scores(direction: float) -> np.ndarray:
    """Scores of the vertices +-R e_j of a lasso on one row, in units of the grid, at ``w = R e_1``.

    The row is as large as shrinking allows and its label as wrong as it can be. The residual is then ``K (R + 1)``;
    only the sign of the last coordinate, ``direction``, differs between neighbours.
    """
    x, w = np.array([K, 0.0, 0.0, direction * K]), np.array([RADIUS, 0.0, 0.0, 0.0])
    query = CoordinateGradientSum(Squared(), Residual(K, K * (RADIUS + 1), K), 4)
    block = {"X": x[None, :], "y": np.array([-1e9])}
    half = query.summarise(block, w, None) * query.grid  # of the half squared loss; the printed one is twice that
    g = 2 * half[3]
    assert abs(g) == 2 * K * K * (RADIUS + 1)
    return np.rint(RADIUS * np.array([g, -g]) / GRID).astype(np.int64)  # of -R e_4 and R e_4


def audit(range_sensitivity: float) -> float:
    bits = StreamBits(Stream(run_key_from_seed(0), "test.lasso"))

    def chosen(direction: float) -> int:
        return select(scores(direction), range_sensitivity / GRID, EPSILON, bits)

    return audit_two_point(lambda: chosen(1.0), lambda: chosen(-1.0), 1500, 0.0, 1 - 1e-6).epsilon_lower


def test_the_printed_lasso_is_caught_beyond_its_radius():
    """Two candidates whose scores swap change their odds by half of what the range allows: 5.25 epsilon / 2."""
    true_range = 8 * K**2 * RADIUS * (RADIUS + 1)
    assert true_range / printed_lasso_range(K, RADIUS) == pytest.approx(5.25)
    assert audit(true_range) <= EPSILON
    assert audit(printed_lasso_range(K, RADIUS)) > EPSILON


@pytest.mark.parametrize("radius", [1.0, 3.0, 3.5])
def test_the_printed_lasso_is_private_up_to_three(radius):
    true_range = 8 * K**2 * radius * (radius + 1)
    assert (printed_lasso_range(K, radius) >= true_range) == (radius <= 3)


def fuzz(smooth) -> None:
    """The sum of a smoothed truncation over one column, on adversarial neighbours."""
    bound = SmoothTruncation(1.0).bound

    def units(rows):
        with np.errstate(all="ignore"):
            values = smooth(np.array([float(x[0]) for x in rows])) / GRID
        return [int(np.trunc(values[np.isfinite(values)]).sum())]

    rng = np.random.default_rng(0)
    limit = Fraction(bound) / Fraction(GRID)
    sensitivity_fuzz(units, list(adversarial_rows(1, np.float64, rng)),
                     {Neighbours.ADD_OR_REMOVE_ONE: limit, Neighbours.REPLACE_ONE: 2 * limit}, "inf", rng)  # fmt: skip


def test_the_literal_closed_form_is_caught():
    ours, literal = SmoothTruncation(1.0), literal_smooth_truncation
    inside = np.linspace(0.1, 4.0, 50)
    np.testing.assert_allclose(literal(inside), ours(inside), atol=1e-13)  # the same function, where it is harmless
    assert abs(literal(np.array([1e6]))[0]) > 100 * ours.bound
    assert np.isnan(literal(np.array([0.0]))[0])
    fuzz(ours)
    with pytest.raises(SensitivityViolation):
        fuzz(literal)
