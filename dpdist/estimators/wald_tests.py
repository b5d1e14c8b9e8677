"""Wald tests: whether linear hypotheses about parameters hold, by differences and their covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.errors import BudgetError
from dpdist.solvers.standard_errors import wald

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
TOGETHER = 1e-9
"""By how much hypotheses may contradict each other: rounding."""


@dataclass(frozen=True)
class WaldTest:
    """Whether linear hypotheses hold: a small ``p_value`` says that they do not.

    Attributes
    ----------
    statistic : float
        Chi-squared with ``degrees_of_freedom`` under the hypothesis.
    degrees_of_freedom : int
    p_value : float
    difference : array
        ``R b - r``.
    standard_errors : array
        Of the differences.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float
    difference: Vector
    standard_errors: Vector

    def __str__(self) -> str:
        degrees = f"{self.degrees_of_freedom} degree{'s' if self.degrees_of_freedom != 1 else ''} of freedom"
        return f"Wald test: chi-squared {self.statistic:.4g} with {degrees}, p = {self.p_value:.3g}"


def tested(difference: Vector, covariance: Matrix) -> WaldTest:
    """The test that all differences are 0."""
    statistic, degrees, p = wald(difference, covariance)
    return WaldTest(statistic, degrees, p, difference, np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def right_side(r: ArrayLike, n: int) -> Vector:
    """The r of ``R b = r``."""
    try:
        values = np.atleast_1d(np.asarray(r, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.empty((0, 0))
    if values.shape != (n,) or not np.isfinite(values).all():
        raise BudgetError(
            f"r must be {n} finite number{'s' if n > 1 else ''}, one for every row of R, got {r!r:.60}: leave it out "
            "for hypotheses R b = 0"
        )
    return values


def check_consistent(rows: Matrix, values: Vector) -> None:
    """Refuse hypotheses that no coefficients fulfil together."""
    nearest = np.linalg.lstsq(rows, values, rcond=None)[0]
    off = np.abs(rows @ nearest - values)
    if (off > TOGETHER * max(1.0, float(np.abs(values).max()))).any():
        raise BudgetError(
            "the rows of R contradict each other: no coefficients fulfil R b = r, and there is nothing to test. Ask "
            "about one of them at a time"
        )
