"""The two ways to aggregate the results of blocks (`dpdist.queries.block_results`): how many blocks, how often asked.

For `dpdist.central.aggregate.sample_and_aggregate.SampleAndAggregate`. Everything is decided from public numbers, as in
a `dpdist.method.Method`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.central.aggregate.block_fits import BlockFit
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_count
from dpdist.method import DECIDED, Line, Method, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.attention import MOST_EPSILON, CentreOfAttention
from dpdist.queries.block_results import BlockDeviations, BlockEstimates, BlockResults, BlockSum
from dpdist.solvers.spreads import normal_spread
from dpdist.solvers.standard_errors import Uncertainty

Vector = NDArray[np.float64]

NOISE = 1 / 40
"""Norm of the noise of one round, relative to the radius: more blocks, which are smaller ones, are not worth less."""
CENTRE_SHARE = 0.2
"""Of mu^2, for the first of two rounds."""
SPREAD_SHARE = 0.05
"""Of mu^2, for counts of how far blocks are from the mean, where these tell how sure it is."""
SEEN = 0.15
"""Standard deviation of such a count, relative to all blocks, above which they tell too little."""
REACH = 2.0
"""Standard deviations of the blocks' norm that have to lie in the ball."""
SPREAD = 0.25
"""Radius of the second round over that of the first, without the noise of the first."""
TAIL = 1e-3
"""What the bound of `CentreOfAttention` is worth at most, relative to the diameter, if nearly all blocks agree."""
MOST_POINTS = 5000
"""Blocks whose distances `CentreOfAttention` compares: half of m^2 numbers are held."""


@dataclass(frozen=True)
class Estimand(Noted):
    """What a user of `dpdist.central.aggregate.sample_and_aggregate.SampleAndAggregate` states."""

    tag: ClassVar[str] = "Request"

    fit: BlockFit
    n_parameters: int
    radius: float
    centre: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Aggregation(Method):
    """A way to combine the results of blocks.

    Parameters
    ----------
    n_blocks : int, optional
        Public number of blocks. More blocks need less noise, but the estimator is biased on small ones.
    """

    statement: Estimand = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    measures: ClassVar[str] = (
        "expected norm of the noise in the parameters; trivial is the radius, how far the centre can be off"
    )

    parameter = "combine"
    solves_with = ("centre",)

    n_blocks: int | None = None

    def __post_init__(self) -> None:
        if self.n_blocks is not None:
            check_count("n_blocks", self.n_blocks)

    @property
    def no_intervals(self) -> str:
        return (
            f"by how much blocks differ is not released with combine={self.name!r}, so that no interval is known to be "
            "valid. With combine='clipped-mean' and estimator='least-squares' there would be intervals"
        )

    @property
    def blocks(self) -> int:
        """How many there are, once it is decided."""
        assert self.n_blocks is not None
        return self.n_blocks

    @property
    def most_blocks(self) -> int:
        """So many that blocks still have enough units for every parameter: rows of one unit may be alike."""
        return max(1, self.public.n_units // (self.statement.fit.rows_per_parameter * self.statement.n_parameters))

    @property
    def block_rows(self) -> int:
        """Rows per block, of whole units; those that are left over are not used."""
        return self.public.n_units // self.blocks * self.public.units.max_rows

    @property
    def align(self) -> int:
        return self.block_rows

    @property
    def rounds(self) -> int:
        """How often the blocks are asked for their results."""
        return 1

    @property
    def centre(self) -> Vector:
        given = self.statement.centre
        return np.zeros(self.statement.n_parameters) if given is None else np.array(given)

    def into_ball(self, w: Vector) -> Vector:
        return self.centre + L2Ball(self.statement.radius).project(w - self.centre)

    def _query(self, kind: type[BlockResults], radius: float) -> BlockResults:
        return kind(self.statement.fit, self.block_rows, self.blocks, self.statement.n_parameters, radius)


@dataclass(frozen=True)
class ClippedMean(Aggregation):
    """``c + mean of clip_R(f(block) - c)`` with Gaussian noise of ``2 R / (m mu)`` (saa-clipmean).

    One round has the public centre and radius. Two rounds spend a fifth of mu^2 on it; the second has the first
    release as its centre and the radius ``R/4 + 3 sqrt(p) noise``, and clips what the blocks give, not what the first
    ball left of it: results that lie around the truth on all sides are then cut off on all sides, and their mean stays
    where it is. By default there are two rounds where the second radius is at most half the first.

    Where blocks are fitted by least squares without a penalty, 5 % of mu^2 (6.25 % in one round, which has no centre to
    pay for) is for counts of how far the blocks' parameters are from what was released
    (`dpdist.queries.block_results.BlockDeviations`): their spread over the root of m, with the noise, is the standard
    error.

    Blocks: ``m = min(n / (c p), 80 sqrt(p) / mu)``, with c = 10 rows per parameter (20 for classifiers): with the
    second number the noise of one round has the norm ``R / 40``.

    Parameters
    ----------
    n_blocks : int, optional
    n_rounds : {1, 2}, optional
        Whether a first release finds the centre of a smaller ball. Default: where that pays.

    Examples
    --------
    >>> from dpdist import SampleAndAggregate
    >>> from dpdist.problems.linear_problems import heavy
    >>> data, truth = heavy(20_000, 3, random_state=0)
    >>> model = SampleAndAggregate(radius=2.0, combine=ClippedMean(n_blocks=200, n_rounds=2), fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.3, -0.4,  0.9]), array([-0.3, -0.3,  0.9]))
    """

    tag, name = "ClippedMean", "clipped-mean"

    n_rounds: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_rounds not in (None, 1, 2):
            raise BudgetError(f"n_rounds must be 1 or 2, got {self.n_rounds!r}")

    def decide(self, public: Public, statement: Estimand) -> Self:
        mu, p = gdp_mu(public.budget.epsilon, public.budget.delta), statement.n_parameters
        enough = math.ceil(2 * math.sqrt(p) / (mu * NOISE))
        asked = self._with(public, statement)
        asked = replace(asked, n_blocks=self.n_blocks or min(asked.most_blocks, enough))
        narrow = replace(asked, n_rounds=2).radii[-1] <= statement.radius / 2
        return replace(asked, n_rounds=self.n_rounds or (2 if narrow else 1))

    @property
    def radii(self) -> tuple[float, ...]:
        """The radius of every round."""
        radius, p, budget = self.statement.radius, self.statement.n_parameters, self.public.budget
        if self.n_rounds == 1:
            return (radius,)
        mu = gdp_mu(budget.epsilon, budget.delta) * math.sqrt(CENTRE_SHARE)
        return radius, min(radius, SPREAD * radius + 3 * math.sqrt(p) * 2 * radius / (self.blocks * mu))

    @property
    def rounds(self) -> int:
        return self.n_rounds or 1

    @property
    def no_intervals(self) -> str:
        """Of what is not fitted by least squares: it may be biased on small blocks, which no mean of blocks mends."""
        fit = self.statement.fit
        if fit.unbiased:
            return ""
        return (
            f"by how much {fit.kind} is biased on blocks of {self.block_rows} rows is not known, and the mean of many "
            "blocks is biased as much: an interval around it would miss the truth. With estimator='least-squares' and "
            "alpha=0 there would be one"
        )

    def lines(self) -> Sequence[Line]:
        radii = self.radii
        spread = 0.0 if self.no_intervals else SPREAD_SHARE
        found = [Line("block mean", Gaussian(), self._query(BlockSum, radii[-1]), share=1 - CENTRE_SHARE - spread)]
        if self.n_rounds == 2:
            found.insert(0, Line("centre", Gaussian(), self._query(BlockSum, radii[0]), share=CENTRE_SHARE))
        if spread:
            found.append(Line("spread", Gaussian(), self._query(BlockDeviations, radii[-1]), share=spread))
        return found

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        centre = before = self.centre
        noise = 0.0
        for line in self.lines()[: self.rounds]:
            before = oracle.visit(centre)
            centre = self.into_ball(centre + oracle.ask(line.name, before) / self.blocks)
            noise = oracle.noise_std / self.blocks
        return {
            "estimate": centre,
            "uncertainty": self.no_intervals or self._uncertainty(oracle, centre, before, noise),
        }

    def _uncertainty(self, oracle: Oracle, found: Vector, before: Vector, noise: float) -> Uncertainty | str:
        """The blocks' variance over their number, parameter by parameter, and that of the noise.

        Deviations are counted in the last radius around what was found; the blocks are taken for normal.
        """
        p, radius = self.statement.n_parameters, self.radii[-1]
        counts = oracle.ask("spread", found).reshape(p, -1)
        if oracle.noise_std > SEEN * self.blocks:
            return (
                f"{self.blocks} blocks are too few to tell by how much they differ. With more rows or a larger epsilon "
                "there would be intervals"
            )
        spreads = np.array([normal_spread(each, oracle.noise_std, radius, self.blocks) for each in counts])
        variance = float(np.sum(np.square(spreads)))
        usual = math.sqrt(float(np.sum(np.square(found - before))) + variance)
        if usual + REACH * float(spreads.max()) > radius:
            return (
                f"blocks lie up to {usual + REACH * float(spreads.max()):.2g} from the centre of a ball of radius "
                f"{radius:.2g}, and those outside are moved to its edge, which pulls their mean to the centre. With a "
                "larger radius, or larger and fewer blocks, there would be intervals"
            )
        return Uncertainty(np.diag(np.square(spreads) / self.blocks + noise**2), np.full(p, noise**2))

    def expected_error(self, plan: Plan) -> float:
        noise = plan["block mean"].mechanism.noise_std(2 * self.radii[-1])
        return math.sqrt(self.statement.n_parameters) * noise / self.blocks


class Attention(Aggregation):
    """`CentreOfAttention` of the results (saa-nrs).

    Examples
    --------
    >>> from dpdist import SampleAndAggregate
    >>> from dpdist.problems.linear_problems import linear
    >>> data, truth = linear(200_000, 2, noise_std=0.001, random_state=0)
    >>> model = SampleAndAggregate(radius=2.0, combine=Attention(n_blocks=2000), fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.9,  0.5]), array([-0.9,  0.5]))
    """

    tag, name = "Attention", "attention"

    def decide(self, public: Public, statement: Estimand) -> Self:
        epsilon, delta = public.budget.epsilon, public.budget.delta
        if epsilon > MOST_EPSILON:
            raise BudgetError(
                f"combine='attention' is offered up to epsilon = {MOST_EPSILON:g}, got {epsilon:g}: lower "
                "epsilon, or take combine='clipped-mean'"
            )
        mechanism = CentreOfAttention(delta).at(epsilon)
        mechanism.gamma(statement.n_parameters)  # refuses what no noise is enough for, before anything is charged
        enough = math.ceil(2 / mechanism.beta(statement.n_parameters) * math.log(2 / TAIL))
        asked = self._with(public, statement)
        blocks = self.n_blocks or min(asked.most_blocks, enough, MOST_POINTS)
        if blocks > MOST_POINTS:
            raise BudgetError(
                f"combine='attention' compares all pairs of blocks: n_blocks can be {MOST_POINTS} at most"
            )
        return replace(asked, n_blocks=blocks)

    def lines(self) -> Sequence[Line]:
        query = self._query(BlockEstimates, self.statement.radius)
        return (Line("block centre", CentreOfAttention(self.public.budget.delta), query),)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        return {"estimate": self.into_ball(self.centre + oracle.ask("block centre", oracle.visit(self.centre)))}


COMBINE = by_name(ClippedMean, Attention)
"""Every value of ``combine``, by name."""
