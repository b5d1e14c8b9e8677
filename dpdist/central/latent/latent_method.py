"""What a user of a model with a hidden part states, and where its algorithms begin.

A `Statement` holds the model with its public numbers; a `LatentMethod` decides from it what will be released. All of
them go from a public point, or from one that a second moment of the rows was released for (`spectral_point`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.estimator import planned
from dpdist.estimators.iterative_method import IterativeMethod
from dpdist.estimators.parameters import need_delta
from dpdist.identity import ADDED
from dpdist.kernels.latent import Latent, TwoComponents
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import DECIDED, Line, Noted, Oracle, Public, Vector
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import SymmetricGaussian
from dpdist.queries.latent_sums import LabelledMomentSum
from dpdist.queries.moment_sums import SecondMomentSum

START_SHARE = 0.3
"""Of mu^2, for the second moment that a start is made of."""
INSIDE = 1e-9
"""Relative distance from the ball that counts as rounding."""
FEWEST_ROUNDS, MOST_ROUNDS = 4, 25
SLOW_ROUNDS = 20
"""More where components overlap and rows are many: an EM algorithm is slow there."""
OVERLAP, MANY = 1.5, 1e4
"""What counts as that: ``radius`` over ``noise_std``, and rows times epsilon."""


@dataclass(frozen=True)
class Statement(Noted):
    """What a fit was asked for; the fields are parameters of `dpdist.central.latent.latent_models.LatentModel`."""

    tag: ClassVar[str] = "LatentStatement"

    model: Latent
    radius: float
    entry_bound: float | None = None
    second_moment: float | None = None
    start: tuple[float, ...] | None = None
    init: str | None = None
    row_norm: float | None = field(default=None, metadata=ADDED)


@dataclass(frozen=True)
class LatentMethod(IterativeMethod):
    """An EM algorithm.

    Parameters
    ----------
    n_rounds : int, optional
        Public number of rounds. Default: enough to cross the ball, and a few more.
    """

    statement: Statement = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    parameter = "method"
    measures: ClassVar[str] = (
        "expected distance of the coefficients to the truth, noise and sampling, for rows of the model with a truth as "
        "long as radius, from a start that finds it"
    )

    @property
    def no_intervals(self) -> str:
        return (
            "no information matrix is released at the solution of an EM algorithm, by which noise and data would move "
            "it. bootstrap() has intervals, by fits to rows of the model that was found; TwoComponentMixture(method="
            "'clip') has them at once, by its model"
        )

    def _with(self, public: Public, statement: Any, **choices: Any) -> Self:
        decided = super()._with(public, statement, **choices)
        need_delta(public.budget.delta, "gradients")
        decided._check_start()
        return decided

    def _check_start(self) -> None:
        """Refuse a point that is none of the problem's, is outside of the ball, or never moves."""
        statement, d = self.statement, self.public.n_features
        start, init, model, radius = statement.start, statement.init, statement.model, statement.radius
        if init is not None and start is not None:
            raise BudgetError("start is a point and init finds one: pass one of them")
        if init is not None:
            _check_init(model, d)
            return
        if start is None:
            if model.symmetric:
                raise MissingBound(
                    "start is missing: pass a public point that is nearer to the truth than to minus the truth, in the "
                    "ball of norm radius (0 never moves), or init='spectral', which releases one for 30 % of the budget"
                )
            return
        if len(start) != d:
            raise BudgetError(f"start must have {d} numbers, one for each column, got {len(start)}")
        norm = float(np.linalg.norm(start))
        if norm > radius * (1 + INSIDE):
            raise BudgetError(
                f"start has norm {norm:.6g}, outside of the ball of norm radius={radius:g}: begin inside, or declare a "
                "larger radius"
            )
        if norm == 0 and model.symmetric:
            raise BudgetError("start=0 never moves, because b and -b are the same model: pass another point")

    def default_rounds(self, reach: float) -> int:
        """Rounds for a public length of the longest step: across the ball, and as many as noise allows to refine."""
        public, statement = self.public, self.statement
        epsilon, d = public.budget.epsilon, public.n_features
        across = math.ceil(min(2 * statement.radius / reach, MOST_ROUNDS))
        finer = math.ceil(math.log(max(public.n_rows * epsilon / d, 1.0)) / 2)
        if statement.model.empty_cells:  # a step leaves the share 1 - h of an error, h the information of a row
            left = 1.0 - min(min(statement.model.information(statement.radius)), 0.6)
            return min(max(across + math.ceil(finer / -math.log(left)), FEWEST_ROUNDS), MOST_ROUNDS + SLOW_ROUNDS)
        overlap = statement.radius <= OVERLAP * statement.model.noise_std
        slow = SLOW_ROUNDS if overlap and public.n_rows * epsilon > MANY else 0
        return min(max(across + finer, FEWEST_ROUNDS), MOST_ROUNDS) + slow

    # -- where it begins ----------------------------------------------------------------------------------------------

    def before(self) -> list[Line]:
        """What is released before the first round, with its shares: for the start nothing, or a second moment."""
        if self.statement.init is None:
            return []
        query = _start_query(self.statement, self.public.n_features)
        return [Line("second moment", SymmetricGaussian(), query, share=START_SHARE)]

    @property
    def rest(self) -> float:
        """The share that is left for everything else."""
        return 1.0 - sum(line.share for line in self.before())

    def first(self, oracle: Oracle) -> Vector:
        """Where it begins."""
        statement = self.statement
        if statement.init is not None:
            matrix = unpack_symmetric(oracle.ask("second moment") / self.public.n_rows)
            return spectral_point(matrix, statement)
        return np.zeros(self.public.n_features) if statement.start is None else np.array(statement.start)

    # -- what to expect -----------------------------------------------------------------------------------------------

    def spread(self, noise: float, n_rows: float, variance: float = 1.0, gain: float = 1.0) -> float:
        """Root mean square distance that noise of that size in every step, and sampling, end at.

        A step takes the share ``h = gain * information`` of an error away (`Latent.information`), so that noise of
        variance ``v`` in every step adds up to ``v / (h (2 - h))``; the estimate without noise has the variance
        ``sigma^2 / (n * variance * information)``, for columns of that variance.
        """
        model, total = self.statement.model, 0.0
        reach = self.statement.radius * math.sqrt(variance)
        for share, count in zip(model.information(reach), (1, self.public.n_features - 1), strict=True):
            information = max(share, 1e-9)
            h = min(max(gain * information, 1e-9), 1.0)
            total += count * (noise**2 / (h * (2 - h)) + model.noise_std**2 / (n_rows * variance * information))
        return math.sqrt(total)

    def warnings(self) -> Sequence[str]:
        """Whether the noise is expected to move the coefficients as far as they can go."""
        expected, radius = self.expected_error(planned(self)), self.statement.radius
        if expected is None or expected < radius:
            return ()
        return (
            f"noise and sampling are expected to move the coefficients by {expected:.3g}, and radius={radius:g} is as "
            "far as they can go: take more rows, a larger epsilon or fewer rounds",
        )

    @abstractmethod
    def solution(self, oracle: Oracle) -> Vector:
        """The coefficients."""

    @abstractmethod
    def expected_error(self, plan: Plan) -> float | None: ...

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        return {"coef": self.solution(oracle)}

    @abstractmethod
    def lines(self) -> Sequence[Line]: ...


def _start_query(statement: Statement, d: int) -> SecondMomentSum | LabelledMomentSum:
    """Rows (times their label), shortened to the length that they usually have at most."""
    radius, noise = statement.radius, statement.model.noise_std
    if isinstance(statement.model, TwoComponents):
        return SecondMomentSum(d, math.sqrt(radius**2 + d * noise**2))
    return LabelledMomentSum(d, math.sqrt(d * (radius**2 + noise**2)))


def _check_init(model: Latent, d: int) -> None:
    if not model.symmetric:
        raise BudgetError(
            "init='spectral' is for mixtures of two, whose sign is lost: leave it out, 0 is a good start here"
        )
    if d < 2:
        raise BudgetError("init='spectral' finds a direction among two columns or more: pass start instead")


def spectral_point(matrix: Any, statement: Statement) -> Vector:
    """A start from a released second moment (spec 07, section 6.5).

    ``E y y' = b b' + sigma^2 I`` for two components, ``E y^2 x x' = 2 b b' + (|b|^2 + sigma^2) I`` for lines with
    normal rows: the first eigenvector, as long as the gap to the median of the others says, a tenth of radius at least.
    """
    values, vectors = np.linalg.eigh(matrix)
    gap = float(values[-1] - np.median(values[:-1])) / (1 if isinstance(statement.model, TwoComponents) else 2)
    length = math.sqrt(min(max(gap, (0.1 * statement.radius) ** 2), statement.radius**2))
    point: Vector = length * vectors[:, -1]
    return point


def usual_norm(n_features: int) -> float:
    """Of a row of standardised columns: hardly one is longer.

    >>> round(usual_norm(50), 1)
    8.4
    """
    return math.sqrt(n_features + 2 * math.sqrt(2 * n_features))
