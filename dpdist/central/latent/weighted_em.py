"""EM algorithms that weigh what they release: maximisation steps, and steps by a released covariance of the rows.

================== ============================================================= ==================================
method             parameters                                                    what is released
================== ============================================================= ==================================
dp-em              ``TwoComponentMixture(method="em")``                          T sums of truncated ``tanh(.) y``
dp-gem-precond     ``MixedRegression(method="precondition")``                    ``sum x x'``, T clipped gradients
dp-em-suffstat     ``MixedRegression(method="statistics")``                      ``sum x x'``, T sums of ``tanh(.) y x``
================== ============================================================= ==================================

Seed 000, Algorithm 7.2.57, and spec 07, section 6.6. Truncating ``tanh(.) y``, whose mean is b, pulls towards 0 where
truncating the gradient ``tanh(.) y - b`` does not: dp-em is for comparison. Of the two with a covariance the first has
noise of the size of a residual, the second of a label.

Why it is private: as in `dpdist.central.latent.gradient_em`; rows of ``sum x x'`` are shortened to a public norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpdist.central.latent.gradient_em import ClippedEM, TruncatedEM
from dpdist.central.latent.latent_method import Statement
from dpdist.errors import BudgetError
from dpdist.kernels.latent import MixedLines, TwoComponents
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import Line, Oracle, Public, Vector
from dpdist.privacy.mechanisms.additive import SymmetricGaussian
from dpdist.queries.latent_sums import ComponentResponseSum, LineResponseSum
from dpdist.queries.moment_sums import SecondMomentSum

COVARIANCE_SHARE = 0.2
"""Of mu^2."""
NOISE_FLOOR = 1.0
"""Eigenvalues count for no less than the spectral norm of the noise in them,"""
LEAST = 1e-3
"""and no less than this share of the largest."""


class MapEM(TruncatedEM):
    """The maximisation step itself, every coordinate of ``tanh(.) y`` softly truncated (dp-em).

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, default 1
        Public; below 1 a step goes only a part of the way.
    scale : float or {"optimal", "journal", "thesis"}
        As in `TruncatedEM`, for the second moment of an entry of a row.

    Examples
    --------
    >>> from dpdist import TwoComponentMixture
    >>> from dpdist.problems.latent_problems import two_components
    >>> data, truth = two_components(20_000, 3, snr=3.0, random_state=0)
    >>> model = TwoComponentMixture(noise_std=1.0, radius=3.75, init="spectral", method=MapEM(),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-2.4,  1.6, -0.2]), array([-2.5,  1.7, -0.1]))
    """

    tag, name = "MapEM", "em"

    def decide(self, public: Public, statement: Statement) -> Self:
        if not isinstance(statement.model, TwoComponents):
            raise BudgetError(
                "method='em' is for TwoComponentMixture, whose maximisation step is a mean of rows: use "
                "method='statistics', which weighs by a released covariance, or 'clip'"
            )
        decided = super().decide(public, statement)
        query = ComponentResponseSum(statement.model, decided.query.bounded, public.n_features)
        return replace(decided, query=query)

    @property
    def _moment(self) -> float:
        statement = self.statement
        if not isinstance(self.scale, str):
            return 0.0
        if statement.second_moment is not None:
            return statement.second_moment
        return (statement.entry_bound or statement.radius) ** 2 + statement.model.noise_std**2

    def direction(self, oracle: Oracle) -> Callable[[Vector, Vector], Vector]:
        return lambda b, released: b + released


@dataclass(frozen=True)
class PreconditionedEM(ClippedEM):
    """Clipped gradients, and steps by the inverse of a released covariance of the rows (dp-gem-precond).

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, optional
        Public. Default: 1, the step of the EM algorithm.
    clip_norm : float, optional
        As in `ClippedEM`.

    Examples
    --------
    >>> from dpdist import MixedRegression
    >>> from dpdist.problems.latent_problems import mixed_regression
    >>> data, truth = mixed_regression(20_000, 3, snr=3.0, random_state=0)
    >>> model = MixedRegression(noise_std=1.0, radius=3.75, row_norm=3.5, init="spectral",
    ...     method=PreconditionedEM(n_rounds=8), epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)  # or its mirror image
    (array([-1.7,  2.1,  1.3]), array([-1.7,  2.1,  1.3]))
    """

    tag, name = "PreconditionedEM", "precondition"

    def decide(self, public: Public, statement: Statement) -> Self:
        _check_lines(statement, self.name)
        return super().decide(public, statement)

    @property
    def _finds_step(self) -> bool:
        return False

    def before(self) -> list[Line]:
        query = SecondMomentSum(self.public.n_features, self.row_norm)
        return [*super().before(), Line("covariance", SymmetricGaussian(), query, share=COVARIANCE_SHARE)]

    def direction(self, oracle: Oracle) -> Callable[[Vector, Vector], Vector]:
        inverse = self.inverse(oracle)
        return lambda b, released: inverse @ released

    def inverse(self, oracle: Oracle) -> Any:
        """Of the released covariance; what is mostly noise counts as the noise."""
        n, d = self.public.n_rows, self.public.n_features
        values, vectors = np.linalg.eigh(unpack_symmetric(oracle.ask("covariance") / n))
        noise = oracle.noise_std / n * math.sqrt(2 * d)
        least = max(NOISE_FLOOR * noise, LEAST * float(values[-1]), 1e-12 * self.row_norm**2)
        return (vectors / np.maximum(values, least)) @ vectors.T

    @property
    def gains(self) -> tuple[float, float]:
        step = self.step_size or 1.0
        return step / self.variance, step


class StatisticsEM(PreconditionedEM):
    """The maximisation step from a released covariance and released sums of ``tanh(.) y x`` (dp-em-suffstat).

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, optional
        Public; below 1 a step goes only a part of the way. Default: 1.
    clip_norm : float, optional
        Public bound of the norm of label times row. Default: ``2 sqrt(radius^2 + noise_std^2)`` times that of a row.

    Examples
    --------
    >>> from dpdist import MixedRegression
    >>> from dpdist.problems.latent_problems import mixed_regression
    >>> data, truth = mixed_regression(20_000, 3, snr=3.0, random_state=0)
    >>> model = MixedRegression(noise_std=1.0, radius=3.75, row_norm=3.5, init="spectral",
    ...     method=StatisticsEM(n_rounds=8), epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)  # or its mirror image
    (array([-1.7,  2. ,  1.3]), array([-1.7,  2.1,  1.3]))
    """

    tag, name = "StatisticsEM", "statistics"

    def decide(self, public: Public, statement: Statement) -> Self:
        decided = super().decide(public, statement)
        size = 2 * math.hypot(statement.radius, statement.model.noise_std)
        norm = float(self.clip_norm or size * decided.row_norm)
        n_rounds = self.n_rounds or decided.default_rounds(statement.radius)
        model = statement.model
        assert isinstance(model, MixedLines)
        return replace(decided, n_rounds=n_rounds, clip_norm=norm, query=LineResponseSum(model, decided.row_norm, norm))

    def direction(self, oracle: Oracle) -> Callable[[Vector, Vector], Vector]:
        inverse = self.inverse(oracle)
        return lambda b, released: b + inverse @ released


def _check_lines(statement: Statement, name: str) -> None:
    if not isinstance(statement.model, MixedLines):
        raise BudgetError(
            f"method={name!r} is for MixedRegression, which has a covariance of rows to weigh by: use method='clip'"
        )
