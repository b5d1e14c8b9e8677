"""The error to expect of a fit to columns that were chosen privately: noise, shrinkage, and what was not found.

A column adds ``n h q sqrt(v)`` to its part of the gradient of the sum, h the mean curvature of the loss, q the root
mean square of its entries and v the mean square of its part of the best predictors; without it ``h v / 2`` is lacking.
It is found where that stands out of the largest noise of a choice. Which columns hide behind others that matter, and
that they are correlated with, no public number tells: the range begins where none does, and ends where one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.special

from dpdist.central.linear.prediction import LENGTHS, UNKNOWN, Prediction
from dpdist.method import Expected
from dpdist.solvers.filtered_newton import ERROR_OF_REUSED, MOVED_HESSIAN, Solution
from dpdist.solvers.margins import MARGINS, Curvature

IDLE = 2.0
"""Standard deviations of its noise below which a weight is one of a column that was chosen for noise."""
COLUMNS_UNKNOWN = (*UNKNOWN[1:3], "how many columns matter", "whether all columns that matter are found")


@dataclass(frozen=True)
class ColumnFit:
    """Public numbers of a fit to chosen columns.

    Attributes
    ----------
    n_rows : int
    n_kept : int
        Columns that are kept.
    n_weights : int
        Those, and the constant one.
    bound, longest : float
        Of a feature, and of a row reduced to the columns.
    unit : float
        Of predictors in the loop.
    rounds : int
        Gradients of the last fit.
    choice : float
        Standard deviation of the noise of a coordinate of the gradient when columns are chosen.
    hidden : float
        What a column may add to the gradient and not be seen.
    """

    n_rows: int
    n_kept: int
    n_weights: int
    bound: float
    longest: float
    unit: float
    rounds: int
    choice: float
    hidden: float

    def expected(
        self, sizes: Sequence[float], curvature: Curvature, noise: Callable[[float], tuple[float, float]]
    ) -> Expected:
        """Over lengths of features, sizes of predictors, how many columns matter, and whether one stays hidden.

        ``noise`` gives the standard deviations of gradient and matrix for rows of a norm.
        """
        matter = (1, self.n_kept)
        cases = [self._case(length, size, of, curvature, noise) for length, size, of in product(LENGTHS, sizes, matter)]
        excess = np.array([[found, found + hidden] for found, hidden, _ in cases])
        gained = np.array([[most, most] for _, _, most in cases])
        shape = (len(LENGTHS), len(sizes), len(matter), 2)
        return Prediction(excess.ravel(), gained.ravel(), shape).expected_by(COLUMNS_UNKNOWN)

    def _case(
        self, length: float, size: float, of: int, curvature: Curvature, noise: Callable[[float], tuple[float, float]]
    ) -> tuple[float, float, float]:
        """Excess of the mean loss, what one column adds to it that hides, and what there is to gain.

        By the recursion of the filter of the last fit, for one coefficient of many.
        """
        n, entry = self.n_rows, self.bound * length**0.5
        row = min(entry * self.n_kept**0.5, self.longest)
        gradient, matrix = noise(row)
        bent = curvature.average(size / self.unit)
        assumed, true = n * curvature.at_zero * entry**2, n * bent * entry**2
        spread, variance, left = MARGINS / row**2, 0.0, 1.0
        for _ in range(self.rounds):
            error = gradient**2 + (ERROR_OF_REUSED * matrix) ** 2 * self.n_weights * spread
            gain = spread * assumed / (spread * assumed**2 + error)
            spread = (1 - gain * assumed) ** 2 * spread + gain**2 * (error + MOVED_HESSIAN * assumed**2 * spread)
            variance, left = (1 - gain * true) ** 2 * variance + (gradient * gain) ** 2, (1 - gain * true) * left
        gained = min(bent * size**2 / 2, curvature.value_at_zero)
        missed = float(scipy.special.ndtr((self.hidden - true * size / (entry * of**0.5)) / self.choice))
        lacking = missed + (1 - missed) * left**2
        of_noise = self.unit**2 * self.n_weights * true * variance / (2 * n)
        behind = (1 - lacking) * gained / of if of > 1 else 0.0
        return of_noise + lacking * gained, behind, gained

    def missed(self, last: Solution) -> float:
        """Expected excess (a sum) of columns that were not found, after a fit.

        As many as were chosen for noise, whose weights do not stand out of it: each has a part of the gradient that is
        as likely anywhere below what the choice hides, and a weight that is no larger than was assumed of others.
        """
        m = self.n_kept
        curvature = np.diag(last.hessian)[:m]
        idle = int(np.sum(last.point[:m] ** 2 < IDLE**2 * np.diag(last.noise)[:m]))
        prior = float((curvature * np.diag(last.prior)[:m]).mean()) * self.unit**2
        return idle * min(self.hidden**2 / (3 * max(float(curvature.mean()), 1e-300)), prior) / 2
