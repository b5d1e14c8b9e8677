"""Gradient EM with private gradients: steps ``b <- b + eta (mean gradient + noise)``, projected on a public ball.

=============== ========================================== =================================================
method          parameters                                 what is released
=============== ========================================== =================================================
dp-gem-clip     ``method="clip"``, the default             T sums of gradients of norm C at most
dp-gem-full     ``method="truncate"``                      T sums of truncated coordinates
dp-gem-split    ``method="split"``                         one such sum of each of T parts of the rows
dp-spectral-init  any, with ``init="spectral"``            a second moment besides, for 30 % of mu^2
=============== ========================================== =================================================

Seed 000, Algorithms 7.2.55 and 7.2.56, and seed 002, Algorithms 1 and 2, as corrected in spec 07: the weight of the
expectation step has its factor 2 (D6), noise is calibrated exactly (the printed epsilon-tilde, read literally, has 5 to
10 times too little noise: D7), a truncated coordinate is clamped in integers (D8) and never leaves its scale (D16).

Why it is private: a gradient is bounded as it is added, so that a row moves the sum by ``2 C`` at most, or a coordinate
by twice its bound, whatever the row holds; points in between are post-processing. Parts of the rows are chosen by
position.

The residual gradient is centred at the truth, so that clipping it moves the solution hardly, and its norm is about
``sigma sqrt(d)`` there: that is the default of C, and far better than coordinates that are truncated at the scale of
theory (measured in spec 07, section 9, and stated otherwise in the sources).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from dpdist.central.latent.component_errors import component_errors
from dpdist.central.latent.latent_method import LatentMethod, Statement, usual_norm
from dpdist.central.linear.heavy_tailed import FAILURE, SCALE_SHARE, truncation_scale
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_bound, choice
from dpdist.kernels.latent import TwoComponents
from dpdist.kernels.truncation import ScalarMap, SmoothTruncation, SoftTruncation
from dpdist.method import DECIDED, Line, Oracle, Public, Vector
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.gradient_sums import LargestEigenvalue
from dpdist.queries.latent_sums import LatentCoordinateSum, LatentGradientSum, SeenEigenvalue
from dpdist.solvers.loops import drive, prox_gradient
from dpdist.solvers.standard_errors import Uncertainty

FEW_ROWS = 100
"""Rows times epsilon over columns, below which half of the clip norm is better."""
SKEWED, SKEWED_MANY, MANY_ROWS = 1.5, 3.0, 2e4
"""The clip norm of gradients that are skewed, over the usual one, and from which such number on: their clipped mean is
off by a share that more rows do not take away (spec 07, section 6.1)."""
STEP_SHARE = 0.01
"""Of mu^2, for the largest eigenvalue of the second moment of the rows."""
STABLE = 1.5
"""A step times that eigenvalue: below 2 steps come closer in every direction."""
SCALES = ("optimal", "journal", "thesis")
MOST_PARTS = 12
MANY_ROWS_EACH = (
    "rows of one owner may be alike, so that other owners might differ by more than independent rows. With one row for "
    "each owner there would be intervals"
)


@dataclass(frozen=True)
class GradientEM(LatentMethod):
    """Steps along private mean gradients.

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, optional
        Public. Default: 1, the step of the EM algorithm itself; where rows have labels at most 1.5 over the largest
        eigenvalue of the second moment of the rows, which is released for 1 % of mu^2, so that no step goes too far.

    Attributes
    ----------
    query : LatentGradientSum or LatentCoordinateSum
        What is asked in a round; decided.
    """

    step_size: float | None = None

    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    parts: ClassVar[bool] = False
    """Whether every round reads rows of its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_size is not None:
            check_bound("step_size", self.step_size)

    @property
    def row_norm(self) -> float:
        """Public bound of the norm of a row, stated or that of standardised columns."""
        return self.statement.row_norm or usual_norm(self.public.n_features)

    @property
    def _finds_step(self) -> bool:
        """Whether rows may be longer or more alike than an EM step supposes."""
        return self.step_size is None and self.statement.model.labelled

    def before(self) -> list[Line]:
        start = super().before()
        if not self._finds_step:
            return start
        public = self.public
        kind = SeenEigenvalue if self.statement.model.empty_cells else LargestEigenvalue
        query = kind(public.n_features, self.row_norm, public.n_rows)
        return [*start, Line("curvature", Gaussian(), query, share=STEP_SHARE)]

    def lines(self) -> Sequence[Line]:
        start = self.before()
        if not self.parts:
            return [*start, Line("gradient", Gaussian(), self.query, count=self.rounds, share=self.rest)]
        folds = f"slots-{self.rounds}"
        parts = [
            Line(self._line(t), Gaussian(), self.query, share=self.rest, fold=(folds, t)) for t in range(self.rounds)
        ]
        return [*start, *parts]

    def _line(self, t: int) -> str:
        return f"gradient {t + 1}" if self.parts else "gradient"

    @property
    def rows_of_a_round(self) -> float:
        """The public number that a sum is divided by."""
        return self.public.n_rows / (self.rounds if self.parts else 1)

    def solution(self, oracle: Oracle) -> Vector:
        rounds, divisor = itertools.count(), self.rows_of_a_round
        first, direction = self.first(oracle), self.direction(oracle)

        def gradient(b: Vector) -> Vector:
            return direction(b, oracle.ask(self._line(next(rounds)), oracle.visit(b), self.query) / divisor)

        return self.run(first, self._step(oracle), gradient)

    def run(self, first: Vector, step: float, gradient: Callable[[Vector], Vector]) -> Vector:
        """The loop."""
        ball = L2Ball(self.statement.radius)
        return drive(prox_gradient(first, lambda b, step: ball.project(b), step, self.rounds), gradient)

    def direction(self, oracle: Oracle) -> Callable[[Vector, Vector], Vector]:
        """What is subtracted from a point, of the point and of a released mean."""
        return lambda b, released: released

    def _step(self, oracle: Oracle) -> float:
        if not self._finds_step:
            return self.step_size or 1.0
        largest = float(oracle.ask("curvature")[0] + 3 * oracle.noise_std) / self.public.n_rows
        return min(1.0, STABLE / max(largest, 1e-6 * self.row_norm**2))

    @property
    def variance(self) -> float:
        """Of a column, as the stated norm of a row has it."""
        if not self.statement.model.labelled:
            return 1.0
        return (self.row_norm / usual_norm(self.public.n_features)) ** 2

    @property
    def gains(self) -> tuple[float, float]:
        """What a step multiplies the noise by, and the information of standardised columns."""
        step = self.step_size or (min(1.0, STABLE / self.variance) if self._finds_step else 1.0)
        return step, step * self.variance

    def expected_error(self, plan: Plan) -> float | None:
        mechanism = plan[self._line(0)].mechanism
        sensitivity = self.query.unit_sensitivity(self.public.neighbours, mechanism.norm, self.public.units)
        n = self.rows_of_a_round
        noise, gain = self.gains
        noise *= mechanism.noise_std(sensitivity) / n
        return self.spread(noise, n / self.public.units.max_rows, self.variance, gain)


@dataclass(frozen=True)
class ClippedEM(GradientEM):
    """Gradients clipped in the l2 norm (dp-gem-clip).

    Parameters
    ----------
    n_rounds : int, optional
        Default: enough to cross the ball by steps of ``clip_norm``, and a few more; 25 at most, and 20 more where
        components overlap and rows are many.
    step_size : float, optional
    clip_norm : float, optional
        Public bound C of the norm of a row's gradient. Default: ``noise_std sqrt(n_features)``, half of it for few
        rows, for missing cells 1.5 times it, or 3 times for very many rows; for lines with a stated ``row_norm``,
        ``noise_std row_norm`` over what it is for standardised columns.

    Examples
    --------
    >>> from dpdist import TwoComponentMixture
    >>> from dpdist.problems.latent_problems import two_components
    >>> data, truth = two_components(20_000, 3, snr=3.0, random_state=0)
    >>> model = TwoComponentMixture(noise_std=1.0, radius=3.75, init="spectral", method=ClippedEM(n_rounds=10,
    ...     clip_norm=2.0), epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-2.5,  1.7, -0.1]), array([-2.5,  1.7, -0.1]))
    """

    tag, name = "ClippedEM", "clip"

    clip_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_norm is not None:
            check_bound("clip_norm", self.clip_norm)

    def decide(self, public: Public, statement: Statement) -> Self:
        decided = self._with(public, statement)
        rows = public.n_rows * public.budget.epsilon / public.n_features
        multiple = 0.5 if rows < FEW_ROWS else 1.0
        if statement.model.empty_cells:
            multiple = SKEWED_MANY if rows > MANY_ROWS else SKEWED
        default = multiple * statement.model.noise_std * math.sqrt(public.n_features)
        if statement.model.labelled:
            default *= decided.row_norm / usual_norm(public.n_features)
        clip_norm = float(self.clip_norm or default)
        n_rounds = self.n_rounds or decided.default_rounds(decided.gains[0] * clip_norm)
        return replace(
            decided, n_rounds=n_rounds, clip_norm=clip_norm, query=LatentGradientSum(statement.model, clip_norm)
        )

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        found = dict(super().solve(oracle))
        if isinstance(self.statement.model, TwoComponents):
            found["uncertainty"] = self._uncertainty(found["coef"], oracle.noise_std)
        return found

    def _uncertainty(self, b: Vector, noise_std: float) -> Uncertainty | str:
        """By the model; ``noise_std`` is that of the last sum."""
        if self.public.units.max_rows > 1:
            return MANY_ROWS_EACH
        n, sigma = self.rows_of_a_round, self.statement.model.noise_std
        return component_errors(
            b, sigma, self.query.clip_norm, n, self.step_size or 1.0, self.rounds, noise_std / n, self.statement.radius
        )


@dataclass(frozen=True)
class TruncatedEM(GradientEM):
    """Every coordinate of a gradient softly truncated (dp-gem-full).

    Parameters
    ----------
    n_rounds : int, optional
        Default: the logarithm of the number of rows.
    step_size : float, optional
    scale : float or {"optimal", "journal", "thesis"}
        Public scale of the truncation. ``"optimal"`` balances the worst bias, of ``second_moment``, and the noise;
        ``"journal"`` is ``sqrt(m v e) / (2 ln(d / 0.05))`` (seed 002; e = ``sqrt(ln(1/delta) + epsilon) -
        sqrt(ln(1/delta))``, m rows in a round), ``"thesis"`` is ``sqrt(m v / (2 ln(d / 0.05)))`` (seed 000), both with
        the smoothed truncation.

    Examples
    --------
    >>> from dpdist import TwoComponentMixture
    >>> from dpdist.problems.latent_problems import two_components
    >>> data, truth = two_components(20_000, 3, snr=3.0, random_state=0)
    >>> model = TwoComponentMixture(noise_std=1.0, radius=3.75, init="spectral", method=TruncatedEM(n_rounds=8),
    ...     entry_bound=2.5, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-2.5,  1.6,  0. ]), array([-2.5,  1.7, -0.1]))
    """

    tag, name = "TruncatedEM", "truncate"

    scale: float | str = "optimal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.scale, str):
            choice("scale", self.scale, SCALES)
        else:
            check_bound("scale", self.scale)

    def decide(self, public: Public, statement: Statement) -> Self:
        decided = replace(self._with(public, statement), n_rounds=self.n_rounds or self._theory_rounds(public))
        if decided.parts and decided.rounds > public.n_rows:
            raise BudgetError(f"n_rounds={decided.rounds} parts of {public.n_rows} rows: some would be empty")
        return replace(
            decided, query=LatentCoordinateSum(statement.model, decided._bounded(decided._moment), public.n_features)
        )

    def _theory_rounds(self, public: Public) -> int:
        rounds = math.ceil(math.log(max(public.n_rows, 2)))
        return min(rounds, MOST_PARTS) if self.parts else rounds

    @property
    def _moment(self) -> float:
        """The public bound of the mean square of a coordinate of a gradient."""
        statement = self.statement
        if not isinstance(self.scale, str):
            return 0.0
        if statement.second_moment is not None:
            return statement.second_moment
        return statement.model.second_moment(statement.radius, statement.entry_bound or statement.radius)

    def _bounded(self, moment: float) -> ScalarMap:
        public, d, m = self.public, self.public.n_features, self.rows_of_a_round
        budget = public.budget
        if not isinstance(self.scale, str):
            return SoftTruncation(float(self.scale))
        level = math.log(d / FAILURE)
        if self.scale == "thesis":
            return SmoothTruncation(level, math.sqrt(m * moment / (2 * level)))
        if self.scale == "journal":
            each = math.sqrt(math.log(1 / budget.delta) + budget.epsilon) - math.sqrt(math.log(1 / budget.delta))
            return SmoothTruncation(math.sqrt(level), math.sqrt(m * moment * each) / (2 * level))
        unit = SoftTruncation(1.0)
        items = [line.item for line in self.lines()]
        mechanism: Any = calibrate(items, budget, public.neighbours)[self._line(0)].mechanism
        noise = mechanism.noise_std(public.neighbours.sum_factor * unit.bound * math.sqrt(d)) / m
        return SoftTruncation(SCALE_SHARE * truncation_scale(unit, moment, m, noise))


@dataclass(frozen=True)
class SplitEM(TruncatedEM):
    """The same with rows of its own in every round, so that all rounds are one pass (dp-gem-split).

    Parameters
    ----------
    n_rounds : int, optional
        Parts of the rows. Default: the logarithm of the number of rows, 12 at most.
    step_size : float, optional
    scale : float or {"optimal", "journal", "thesis"}
        As in `TruncatedEM`.

    Examples
    --------
    >>> from dpdist import TwoComponentMixture
    >>> from dpdist.problems.latent_problems import two_components
    >>> data, truth = two_components(20_000, 3, snr=3.0, random_state=0)
    >>> model = TwoComponentMixture(noise_std=1.0, radius=3.75, init="spectral", method=SplitEM(n_rounds=6),
    ...     entry_bound=2.5, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-2.6,  1.7, -0.2]), array([-2.5,  1.7, -0.1]))
    """

    tag, name = "SplitEM", "split"
    parts = True
