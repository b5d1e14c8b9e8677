"""Covariance matrices of a released second moment: post-processing, alike for both models of trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpdist.errors import BudgetError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import chosen
from dpdist.estimators.moment_release import FromMoment, Matrix, MomentNoise
from dpdist.estimators.parameters import check_bound
from dpdist.method import Choice, Method, by_name
from dpdist.solvers.covariances import shrink_diagonal, threshold_entries
from dpdist.solvers.spectral import psd_floor


@dataclass(frozen=True)
class CovarianceRule(Choice):
    """How a covariance is made of a released second moment."""

    parameter = "method"

    def covariance(self, matrix: Matrix, noise: MomentNoise) -> Mapping[str, Any]:
        """Fitted attributes, without the underscore at the end."""
        raise NotImplementedError


@dataclass(frozen=True)
class ThresholdedCovariance(CovarianceRule):
    """Entries that do not stand out of noise and sampling are 0; variances are drawn to their mean by what noise does.

    Parameters
    ----------
    multiple : float, default 1
        Of the threshold ``sqrt(2 log(p (p - 1))) sqrt(d_i d_j / n + s^2)``; .75 is better where the noise dominates.
    soft : bool, default False
        Move the entries that are kept towards 0 by the threshold.

    Examples
    --------
    >>> from dpdist import SparseCovariance
    >>> from dpdist.problems.matrix_problems import block_cov
    >>> data, truth = block_cov(10_000, 8, random_state=0)
    >>> model = SparseCovariance(row_norm=1.25, method=ThresholdedCovariance(multiple=1.5),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).support_[0].tolist(), truth[0].round(2).tolist()
    ([True, True, True, True, False, False, False, False], [0.12, 0.06, 0.06, 0.06, 0.0, 0.0, 0.0, 0.0])
    """

    tag, name = "ThresholdedCovariance", "threshold"

    multiple: float = 1.0
    soft: bool = False

    def __post_init__(self) -> None:
        check_bound("multiple", self.multiple)
        if not isinstance(self.soft, bool | np.bool_):
            raise BudgetError(f"soft must be True or False, got {self.soft!r}")

    def covariance(self, matrix: Matrix, noise: MomentNoise) -> Mapping[str, Any]:
        diagonal = shrink_diagonal(np.diag(matrix), noise.diagonal_std)
        kept = threshold_entries(matrix, diagonal, noise.n_rows, noise.off_diagonal_std, self.multiple, self.soft)
        support = kept != 0
        np.fill_diagonal(support, val=True)
        return {
            "covariance": psd_floor(kept, trace_max=noise.row_norm**2),
            "sparse_covariance": kept,
            "support": support,
        }


@dataclass(frozen=True)
class NoisyCovariance(CovarianceRule):
    """The release itself, with eigenvalues below 0 moved up to it: for comparison.

    Examples
    --------
    >>> from dpdist import SparseCovariance
    >>> from dpdist.problems.matrix_problems import block_cov
    >>> data, truth = block_cov(10_000, 3, random_state=0)
    >>> model = SparseCovariance(row_norm=1.25, method=NoisyCovariance(), epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).covariance_.round(1).tolist()
    [[0.3, 0.1, 0.1], [0.1, 0.3, 0.1], [0.1, 0.1, 0.3]]
    """

    tag, name = "NoisyCovariance", "noisy"

    def covariance(self, matrix: Matrix, noise: MomentNoise) -> Mapping[str, Any]:
        return {"covariance": psd_floor(matrix)}


COVARIANCES = by_name(ThresholdedCovariance, NoisyCovariance)


@dataclass(eq=False, repr=False)
class Covariances(FromMoment):
    """A covariance matrix, most of whose entries off the diagonal are 0; the mean of the rows is taken as 0.

    Parameters
    ----------
    method : {"threshold", "noisy"}, ThresholdedCovariance or NoisyCovariance

    Attributes
    ----------
    covariance_ : array of shape (p, p)
        Without negative eigenvalues; with ``"threshold"`` of a trace of at most ``row_norm^2``, as the true one.
    sparse_covariance_ : array of shape (p, p)
        With exact zeros, but perhaps with negative eigenvalues (``"threshold"`` only).
    support_ : array of bool of shape (p, p)
        Which entries are kept (``"threshold"`` only).
    """

    answers: ClassVar[tuple[Answer, ...]] = (Answer.COVARIANCE,)

    of_answer: ClassVar[tuple[str, ...]] = ("method",)

    method: str | CovarianceRule = "threshold"

    def _rule(self) -> CovarianceRule:
        found: CovarianceRule = chosen("method", self.method, COVARIANCES, auto=False)
        return found

    def _answer(self, matrix: Matrix, noise: MomentNoise) -> Mapping[str, Any]:
        for name in ("sparse_covariance_", "support_"):
            if hasattr(self, name):  # of an earlier fit by another rule
                delattr(self, name)
        return self._rule().covariance(matrix, noise)

    def _check_answer(self, n_features: int) -> None:
        self._rule()

    def _foreseen(self, noise: MomentNoise) -> float | None:
        rule = self._rule()
        return noise.detection_level(rule.multiple) if isinstance(rule, ThresholdedCovariance) else noise.frobenius

    def _measures(self, method: Method) -> str:
        if isinstance(self._rule(), ThresholdedCovariance):
            return "size from which an entry off the diagonal stands out of noise and sampling, for even variances"
        return "expected Frobenius norm of the noise"

    def _said(self, noise: MomentNoise) -> Sequence[str]:
        p, level = noise.n_features, noise.off_diagonal_std * math.sqrt(2 * math.log(noise.n_features**2))
        entry = noise.row_norm**2 / (4 * p)
        if level <= entry or not isinstance(self._rule(), ThresholdedCovariance):
            return ()
        return [
            f"entries below {level:.2g} cannot be told from the noise, and if the variances of {p} columns are alike, "
            f"those of correlation 1/4 are at most {entry:.2g}: the answer will be about a multiple of the identity. "
            f"The noise would have to be {level / entry:.2g} times smaller: take more rows, a larger epsilon or fewer "
            "columns"
        ]
