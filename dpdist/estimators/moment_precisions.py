"""Sparse precision matrices of a released second moment: post-processing, alike for both models of trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpdist.errors import BudgetError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.moment_release import FromMoment, Matrix, MomentNoise
from dpdist.estimators.parameters import check_bound
from dpdist.method import Choice, Method, by_name
from dpdist.solvers.covariances import largest_of
from dpdist.solvers.graphical_lasso import glasso
from dpdist.solvers.spectral import psd_floor

EDGES = 1e-4
"""An entry of a precision matrix counts as an edge above this, relative to the largest entry."""


@dataclass(frozen=True)
class PrecisionRule(Choice):
    """How a sparse precision matrix is made private.

    Parameters
    ----------
    multiple : float, default 0.3
        Of the penalty that finds edges: 1 for edges, .3 for a small error of the matrix.
    penalty : float, optional
        Public penalty instead of the rule.
    """

    parameter = "method"

    multiple: float = 0.3
    penalty: float | None = None

    def __post_init__(self) -> None:
        check_bound("multiple", self.multiple)
        if self.penalty is not None:
            check_bound("penalty", self.penalty)
            if self.multiple != type(self).multiple:
                raise BudgetError(
                    f"multiple={self.multiple!r} has nobody to read it with penalty={self.penalty!r}, which replaces "
                    "the rule that it is of: leave one of them out"
                )

    def penalty_at(self, variance: float, noise: MomentNoise) -> float:
        """``multiple sqrt(2 log(d (d - 1))) sqrt(s^2 + m^2 / n)``, m the size of a variance."""
        if self.penalty is not None:
            return self.penalty
        spread = math.hypot(noise.off_diagonal_std, variance / math.sqrt(noise.n_rows))
        return self.multiple * largest_of(noise.n_features) * spread


@dataclass(frozen=True)
class CovariancePerturbation(PrecisionRule):
    """The graphical lasso of the released second moment (glasso-cov-perturb).

    Its eigenvalues are floored at the penalty first: below that a variance in some direction cannot be told from noise,
    and a smaller one would make entries of the precision matrix large by chance.

    Parameters
    ----------
    multiple, penalty
        As in `PrecisionRule`; the size of a variance is the mean of the released ones.

    Examples
    --------
    >>> from dpdist import GraphicalLasso
    >>> from dpdist.problems.matrix_problems import chain_precision
    >>> data, truth = chain_precision(20_000, 4, random_state=0)
    >>> model = GraphicalLasso(row_norm=3.6, method=CovariancePerturbation(penalty=0.05),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).precision_[0, :2].round(1)
    array([1.2, 0.5])
    """

    tag, name = "CovariancePerturbation", "covariance"


PRECISIONS = by_name(CovariancePerturbation)
NOISE_DOMINATES = 0.1
"""Of the size of a variance: noise above it leaves little but the diagonal."""


@dataclass(eq=False, repr=False)
class Precisions(FromMoment):
    """A precision matrix, most of whose entries are 0: the graphical lasso. The mean of the rows is taken as 0.

    Use standardised units (a public scale for every column). Only pairs of columns are penalised, not variances.

    Parameters
    ----------
    method : {"covariance"} or CovariancePerturbation

    Attributes
    ----------
    precision_ : array of shape (p, p)
        Positive definite; with exact zeros where the released second moment is what was perturbed.
    covariance_ : array of shape (p, p)
        Its inverse.
    edges_ : array of bool of shape (p, p)
        Pairs of columns that depend on each other given all others.
    penalty_ : float
        What was used.
    """

    answers: ClassVar[tuple[Answer, ...]] = (Answer.PRECISION,)
    rules: ClassVar[Offered] = PRECISIONS

    of_answer: ClassVar[tuple[str, ...]] = ("method",)

    method: str | PrecisionRule = "covariance"

    @classmethod
    def _who_reads(cls, name: str, value: Any) -> str:
        if name == "alpha":  # of scikit-learn
            return f"the penalty belongs to method; write method=CovariancePerturbation(penalty={value!r})"
        return super()._who_reads(name, value)

    def _rule(self) -> PrecisionRule:
        found: PrecisionRule = chosen("method", self.method, self.rules, auto=False)
        return found

    def _answer(self, matrix: Matrix, noise: MomentNoise) -> Mapping[str, Any]:
        variance = float(np.mean(np.diag(matrix)))
        if variance <= 0:  # noise alone
            variance = noise.row_norm**2 / noise.n_features
        penalty = self._rule().penalty_at(variance, noise)
        return precision_attributes(glasso(psd_floor(matrix, penalty), penalty).precision, penalty)

    def _check_answer(self, n_features: int) -> None:
        self._rule()

    def _foreseen(self, noise: MomentNoise) -> float | None:
        return noise.detection_level()

    def _measures(self, method: Method) -> str:
        return "size from which a covariance stands out of noise and sampling, for even variances"

    def _said(self, noise: MomentNoise) -> Sequence[str]:
        variance = noise.row_norm**2 / noise.n_features
        self._rule().penalty_at(variance, noise)
        if noise.off_diagonal_std <= NOISE_DOMINATES * variance:
            return ()
        share = noise.off_diagonal_std / variance
        return [
            f"the noise in a covariance is {share:.2g} times what a variance can be on average, row_norm^2 / "
            f"n_features = {variance:.2g}: the answer will be about diagonal. Take {share / NOISE_DOMINATES:.2g} times "
            "less noise: more rows, a larger epsilon or fewer columns"
        ]


def precision_attributes(precision: Matrix, penalty: float) -> Mapping[str, Any]:
    """The fitted attributes that follow from a precision matrix."""
    edges = np.abs(precision) > EDGES * np.abs(precision).max()
    np.fill_diagonal(edges, val=False)
    inverse = np.linalg.inv(precision)
    return {"precision": precision, "covariance": (inverse + inverse.T) / 2, "edges": edges, "penalty": float(penalty)}
