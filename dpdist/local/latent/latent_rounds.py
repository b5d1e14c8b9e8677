"""Gradient EM in the local model: one report of every user, about the gradient of the own row, in disjoint groups.

=========== ============================================= =============================================================
method      parameters                                    a report
=========== ============================================= =============================================================
ldp-gem     ``method="l2"``, the default                  the gradient, clipped in the l2 norm (PrivUnit)
ldp-gem     ``method="coordinate"``                       one coordinate of it, drawn by the user, clipped
ldp-gem     ``method="truncate"``                         all coordinates, truncated, with normal noise: as published
=========== ============================================= =============================================================

Claimed in seed 002 after Theorem 2, without an algorithm; spec 07, section 7. Every user is in one group and answers
once at the group's point, so that rounds cost nothing: the report is epsilon-private for any two records, and the
points are post-processing of reports.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import check_bound, check_count
from dpdist.kernels.latent import Latent
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.vectors import GaussianVector, best_vector
from dpdist.local.statistics.latent_gradients import BallGradients, BoxGradients, TruncatedGradients
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import DECIDED, Noted, Oracle, Public
from dpdist.privacy.accounting.plan import Plan

ROUNDS = 4
SKEWED = 1.5
"""The clip norm of the gradients of missing cells, over that of the others."""
FAILURE = 0.05
INSIDE = 1e-9


@dataclass(frozen=True)
class LocalStatement(Noted):
    """What a fit was asked for; the fields are parameters of `dpdist.local.latent.latent_models.LocalLatentModel`."""

    tag: ClassVar[str] = "LocalLatentStatement"

    model: Latent
    radius: float
    start: tuple[float, ...]


@dataclass(frozen=True)
class LocalEM(LocalMethod):
    """Steps along means of reports, one group of users for each.

    Parameters
    ----------
    n_rounds : int, default 4
        Public number of groups.
    step_size : float, default 1
        Public.
    """

    statement: LocalStatement = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    measures: ClassVar[str] = (
        "expected distance of the coefficients to the truth, noise and sampling in the last group, for rows of the "
        "model with a truth as long as radius, from a start that finds it"
    )

    n_rounds: int = ROUNDS
    step_size: float = 1.0

    def __post_init__(self) -> None:
        check_count("n_rounds", self.n_rounds)
        check_bound("step_size", self.step_size)

    def decide(self, public: Public, statement: LocalStatement) -> Self:
        start, radius, d = statement.start, statement.radius, public.n_features
        if len(start) != d:
            raise BudgetError(f"start must have {d} numbers, one for each column, got {len(start)}")
        norm = float(np.linalg.norm(start))
        if norm > radius * (1 + INSIDE):
            raise BudgetError(
                f"start has norm {norm:.6g}, outside of the ball of norm radius={radius:g}: begin inside, or declare a "
                "larger radius"
            )
        if norm == 0 and statement.model.symmetric:
            raise BudgetError("start=0 never moves, because b and -b are the same model: pass another point")
        if self.n_rounds > public.n_rows:
            raise BudgetError(f"n_rounds={self.n_rounds} groups of {public.n_rows} users: some would be empty")
        return self._with(public, statement)

    @property
    @abstractmethod
    def question(self) -> LocalProtocol:
        """Of every group, at its point."""

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [self.question] * self.n_rounds

    @property
    def no_intervals(self) -> str:
        return (
            "no information matrix is estimated at the solution of an EM algorithm, by which noise and data would move "
            "it. bootstrap() has intervals, by fits to rows of the model that was found"
        )

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        ball, b = L2Ball(self.statement.radius), np.array(self.statement.start)
        for t in range(self.n_rounds):
            b = ball.project(b - self.step_size * self.estimate(oracle, t, b))
        return {"coef": b}

    @property
    def noise(self) -> float:
        """Of a coordinate of the mean of a group."""
        question = self.question
        scale = float(np.abs(question.statistic.restore(np.ones(question.statistic.size))).max())
        return scale * question.noise_std / math.sqrt(max(1, self.public.n_rows // self.n_rounds))

    def expected_error(self, plan: Plan) -> float:
        model, total = self.statement.model, 0.0
        n, counts = self.public.n_rows / self.n_rounds, (1, self.public.n_features - 1)
        for share, count in zip(model.information(self.statement.radius), counts, strict=True):
            h = min(max(share, 1e-6), 1.0)
            total += count * ((self.step_size * self.noise) ** 2 + model.noise_std**2 / n) / (h * (2 - h))
        return math.sqrt(total)

    def warnings(self) -> list[str]:
        """Whether the noise is expected to move the coefficients as far as they can go."""
        noise = self.step_size * self.noise * math.sqrt(self.public.n_features)
        if noise < self.statement.radius:
            return []
        return [
            f"the noise is expected to move the coefficients by {noise:.3g}, and radius={self.statement.radius:g} is "
            "as far as they can go: take more users, a larger epsilon or fewer rounds"
        ]


@dataclass(frozen=True)
class BallReports(LocalEM):
    """The gradient, clipped in the l2 norm, as one private vector.

    Parameters
    ----------
    n_rounds : int, default 4
    step_size : float, default 1
    clip_norm : float, optional
        Public bound of the norm. Default: ``noise_std sqrt(n_features)``, for missing cells 1.5 times that.
    """

    tag, name = "BallReports", "l2"

    clip_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_norm is not None:
            check_bound("clip_norm", self.clip_norm)

    @property
    def question(self) -> LocalProtocol:
        model, d, epsilon = self.statement.model, self.public.n_features, float(self.public.budget.epsilon)
        if d < 2:
            raise BudgetError("method='l2' is for two columns or more: use method='coordinate'")
        usual = SKEWED if model.empty_cells else 1.0
        clip_norm = float(self.clip_norm or usual * model.noise_std * math.sqrt(d))
        return LocalProtocol(BallGradients(model, d, clip_norm), best_vector(d, epsilon))


@dataclass(frozen=True)
class CoordinateReports(LocalEM):
    """One coordinate of the gradient, drawn by the user, clipped.

    Parameters
    ----------
    n_rounds : int, default 4
    step_size : float, default 1
    entry_clip : float, optional
        Public bound of a coordinate. Default: ``2 noise_std``.
    """

    tag, name = "CoordinateReports", "coordinate"

    entry_clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.entry_clip is not None:
            check_bound("entry_clip", self.entry_clip)

    @property
    def question(self) -> LocalProtocol:
        model, d, epsilon = self.statement.model, self.public.n_features, float(self.public.budget.epsilon)
        clip = float(self.entry_clip or 2 * model.noise_std)
        return LocalProtocol(BoxGradients(model, d, clip), SampleCoordinates(d, epsilon))


class TruncatedReports(LocalEM):
    """All coordinates, truncated at the published scale, with normal noise: for comparison, it needs very many users.

    ``s = m^(1/4) sqrt(epsilon v) / (ln(1/0.05) ln^(1/4)(1/delta))`` for m users in a group (seed 002, Theorem 3), v the
    bound of the mean square of a coordinate of a gradient. Needs delta.
    """

    tag, name = "TruncatedReports", "truncate"

    def decide(self, public: Public, statement: LocalStatement) -> Self:
        if not public.budget.delta:
            raise MissingBound("method='truncate' has normal noise, which needs delta: pass delta, far below 1/n_rows")
        return super().decide(public, statement)

    @property
    def question(self) -> LocalProtocol:
        statement, public = self.statement, self.public
        d, epsilon, delta = public.n_features, float(public.budget.epsilon), float(public.budget.delta)
        moment = statement.model.second_moment(statement.radius, statement.radius)
        level = math.log(1 / FAILURE)
        m = public.n_rows / self.n_rounds
        scale = m**0.25 * math.sqrt(epsilon * moment) / (level * math.log(1 / delta) ** 0.25)
        statistic = TruncatedGradients(statement.model, d, math.sqrt(level), scale)
        return LocalProtocol(statistic, GaussianVector(d, epsilon, delta))
