"""Sparse regression with private records: what is asked in each round, decided from public numbers.

====================== ==================================== ============================================================
method                 method id                            questions
====================== ==================================== ============================================================
`IterativeThresholding` ldp-iht, ldp-iht-subgauss,          features times clipped residual at the current parameter, to
                       ldp-iht-general, ldp-iht-nonlinear   T disjoint groups of users
`Marginal`             nldp-marginal                        the same once, at 0
`TwoPhase`             ldp-two-phase                        the same once to half of the users; then the others are
                                                            asked about the chosen features only
====================== ==================================== ============================================================

`SparseMethod.std` is the predicted noise of a coefficient.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpdist.constraints import hard_threshold
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_count, choice
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.scalars import Reporter
from dpdist.local.randomisers.vectors import GaussianVector, Hemisphere, best_vector
from dpdist.local.sparse.sparse_statement import LINK_MODES, SparseProblem
from dpdist.local.statistics.residuals import BallResiduals, BoxResiduals, LinkMode, Selected, selection
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol, Randomiser, Statistic
from dpdist.method import DECIDED, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.sparse import in_ball, sparse_from_statistics
from dpdist.solvers.spectral import psd_floor

Vector = NDArray[np.float64]

FOUND = 0.28
"""Four rounds are better than one if the first finds the parameter up to this part of its radius."""
MANY_ROUNDS = 4
WIDTHS = 2.5
"""Where entries of dense features are cut, in standard deviations, if they are reported one by one."""
ONE_BIT_UP_TO = 1.2
"""Signs are as good as any report then, and half as long; they are better where values are -1 or 1."""
SIZES = np.array([0.75, 0.87, 1.0, 1.11, 1.21])
"""Of coefficients that matter, relative to each other; of mean square 1."""
MOVING = 1.1
"""Standard deviation of what decides, of a coefficient against the largest noise, in those of the noise."""
SELECTED_SLACK = 1.5
"""The same for a few features: sqrt(s) plus this, about two standard deviations of their norm."""
FLOOR_SHARE = 0.5
"""Part of the public bound of the smallest eigenvalue at which estimated second moments are floored."""


@dataclass(frozen=True)
class SparseMethod(LocalMethod):
    """What is asked, and what is made of the answers.

    Parameters
    ----------
    reports : str
        The law of the reports; "auto": by coordinates for signs in rounds, else
        `dpdist.local.randomisers.vectors.best_vector`.
    """

    statement: SparseProblem = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    laws: ClassVar[tuple[str, ...]] = ("auto", "vector", "hemisphere", "gaussian")
    unsure: ClassVar[str] = (
        "the coefficients that are not 0 were chosen by their size, and the largest of many noisy ones are larger than "
        "they are. local.LinearRegression with alpha=0 has intervals, of all columns; or fit it to other users and the "
        "columns that were chosen"
    )
    measures: ClassVar[str] = (
        "expected distance of the coefficients to the true ones, if the true ones were found to be the nonzero ones"
    )

    solves_with = ("n_nonzero", "radius")

    reports: str = "auto"

    def decide(self, public: Public, statement: SparseProblem) -> Self:
        choice("reports", self.reports, self.laws)
        if self.reports == "gaussian" and not public.budget.delta:
            raise BudgetError("reports='gaussian' needs delta: pass delta, far below 1/n_rows")
        return self._with(public, statement)

    @property
    @abstractmethod
    def std(self) -> float:
        """Predicted standard deviation of the noise in a coefficient that is kept."""

    @property
    def search_std(self) -> float:
        """The same where it is decided which coefficients are kept: by default, the first round."""
        return self.std

    @abstractmethod
    def coefficients(self, oracle: Oracle) -> Vector:
        """What the answers give."""

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        return {"coef": self.coefficients(oracle), "intercept": 0.0, "noise_std": {"coef_": self.std}}

    def expected_error(self, plan: Plan) -> float:
        return math.sqrt(self.statement.n_nonzero) * self.std

    @property
    def predicted_error(self) -> float:
        """The same with features that are missed, for coefficients of `SIZES` whose norm is the radius."""
        return self._with_missed(self.search_std)

    def _with_missed(self, search: float) -> float:
        """A feature is missed where its coefficient with that noise is below the largest noise of the others, which
        moves as well: that costs its coefficient, and a false one in its place."""
        problem, s = self.statement, self.statement.n_nonzero
        others = problem.n_features - s
        if not others:
            return math.sqrt(s) * self.std
        sizes = SIZES * problem.radius / math.sqrt(s)
        level = float(ndtri(1 - 0.3 / others))  # about the mean of the largest absolute value of so many normal numbers
        missed = ndtr((level - sizes / search) / MOVING)
        false = max(self.std, level * search if self.searches_last else 0.0)
        any_missed = 1 - float(np.prod(1 - missed)) ** (s / len(sizes))
        parts = s * float((missed * (sizes**2 + false**2)).mean()) / max(any_missed, 1e-300)
        return (1 - any_missed) * math.sqrt(s) * self.std + any_missed * math.sqrt(parts + s * self.std**2)

    @property
    def searches_last(self) -> bool:
        """Whether what is kept is chosen by the reports that also estimate it."""
        return True

    def warnings(self) -> list[str]:
        """What public numbers say against a fit."""
        problem, s = self.statement, self.statement.n_nonzero
        if math.sqrt(s) * self.std >= problem.radius:
            return [
                "the noise in the coefficients is expected to be as large as they are: take more users, a larger "
                "epsilon, or fewer features (outlook() says how many)"
            ]
        level = math.sqrt(2 * math.log(max(2, problem.n_features))) * self.search_std
        if level > problem.radius / math.sqrt(s):
            return [
                f"coefficients below {level:.2g} cannot be told from noise among {problem.n_features} features, and "
                f"{s} of them are at most {problem.radius / math.sqrt(s):.2g} if they are alike: expect wrong ones "
                "(see outlook())"
            ]
        return []

    @property
    def curved(self) -> bool:
        """Whether users send the gradient of a link."""
        return False

    @property
    def residual_bound(self) -> float:
        """c of the first round, at 0: ``2 R + C``, beyond which few labels lie; times the slope of a link."""
        problem = self.statement
        return self.reach(2 * problem.radius) if problem.label_bound is None else problem.label_bound

    def reach(self, distance: float) -> float:
        """About the largest residual at that distance from the truth."""
        low, high = self.statement.link.slopes
        noise = self.statement.noise_bound
        return high * distance + noise if self.curved else distance + noise / low

    def vector(self, size: int) -> Randomiser:
        """The randomiser of a vector that ``reports`` names."""
        budget = self.public.budget
        if self.reports == "hemisphere":
            return Hemisphere(size, float(budget.epsilon))
        if self.reports == "gaussian":
            return GaussianVector(size, float(budget.epsilon), float(budget.delta))
        return best_vector(size, float(budget.epsilon))


def unit_std(protocol: LocalProtocol) -> float:
    """Noise of one report in the units of what the statistic stands for (all coordinates alike)."""
    scale = protocol.statistic.restore(np.ones(protocol.statistic.size))
    return float(np.abs(scale).max()) * protocol.noise_std


@dataclass(frozen=True)
class Marginal(SparseMethod):
    """One round: the largest entries of the mean of features times clipped residuals at 0.

    Parameters
    ----------
    reports : {"auto", "coordinates", "vector", "hemisphere", "gaussian"}
    link_mode : {"invert", "gradient"}
        Whether users put ``f^{-1}(y)`` in the place of y (less noise), or the gradient goes through f.

    Attributes
    ----------
    bounds : tuple of float
        Clip of the residuals in each round; decided.
    step : float
    n_kept : int
        Entries that are kept on the way.
    limit : float
        Of the norm on the way.
    """

    tag, name = "Marginal", "marginal"
    laws: ClassVar[tuple[str, ...]] = ("auto", "coordinates", "vector", "hemisphere", "gaussian")

    link_mode: LinkMode = "invert"

    bounds: tuple[float, ...] = field(default=(), kw_only=True, repr=False, metadata=DECIDED)
    step: float = field(default=1.0, kw_only=True, repr=False, metadata=DECIDED)
    n_kept: int = field(default=1, kw_only=True, repr=False, metadata=DECIDED)
    limit: float = field(default=1.0, kw_only=True, repr=False, metadata=DECIDED)

    def decide(self, public: Public, statement: SparseProblem) -> Self:
        choice("link_mode", self.link_mode, LINK_MODES)
        method = super().decide(public, statement)
        unknown = statement.unknown
        s = min(2 * statement.n_nonzero, statement.n_features) if unknown else statement.n_nonzero
        low, high = statement.link.slopes
        step = 1.0 / statement.eigenvalues[1] if unknown else 1.0
        if method.curved:
            step *= 2 / (low**2 + high**2)
        limit = 2 * statement.radius if unknown else statement.radius
        draft = replace(method, bounds=(method.residual_bound,), step=step, n_kept=s, limit=limit)
        return draft._in_rounds()

    def _in_rounds(self) -> Self:
        """The method with the clip of every round."""
        return replace(self, reason=f"1 round: {self.reason}")

    @property
    def curved(self) -> bool:
        return self.link_mode == "gradient" and self.statement.link.slopes != (1.0, 1.0)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [self._residuals(bound) for bound in self.bounds]

    @property
    def std(self) -> float:
        return self._std(self.bounds[-1], len(self.bounds))

    @property
    def search_std(self) -> float:
        return self._std(self.bounds[0], len(self.bounds))

    def coefficients(self, oracle: Oracle) -> Vector:
        inverse = self.statement.inverse_covariance
        theta = np.zeros(self.statement.n_features)
        for t in range(len(self.bounds)):
            gradient = self.estimate(oracle, t, theta)
            if inverse is not None:
                gradient = inverse @ gradient
            theta = in_ball(hard_threshold(theta - self.step * gradient, self.n_kept), self.limit)
        return hard_threshold(theta, self.statement.n_nonzero)

    def _residuals(self, bound: float) -> LocalProtocol:
        """The question for ``x clip(residual, bound)``: by coordinates for signs, as a vector for dense features."""
        problem, epsilon = self.statement, float(self.public.budget.epsilon)
        p, link, mode = problem.n_features, problem.link, self.link_mode
        kind = self.reports if self.reports != "auto" else "coordinates" if problem.sign else "vector"
        if kind == "coordinates":
            cut = problem.feature_bound or (1.0 if problem.sign else WIDTHS)
            statistic: Statistic = BoxResiduals(p, bound, cut, problem.row_norm, link, mode)
            reporter: Reporter = "one-bit" if epsilon <= ONE_BIT_UP_TO else "hybrid"
            return LocalProtocol(statistic, SampleCoordinates(p, epsilon, reporter=reporter))
        cut_or_none = problem.feature_bound or (1.0 if problem.sign else None)
        statistic = BallResiduals(p, bound, cut_or_none, problem.norm_of_rows(), link, mode)
        return LocalProtocol(statistic, self.vector(p))

    def _std(self, bound: float, n_rounds: int) -> float:
        """Of a coordinate after the step of a round with that clip."""
        inverse = self.statement.inverse_covariance
        spread = 1.0 if inverse is None else math.sqrt(float(np.square(inverse).sum()) / len(inverse))
        users = max(1, self.public.n_rows // n_rounds)
        return self.step * spread * unit_std(self._residuals(bound)) / math.sqrt(users)


@dataclass(frozen=True)
class IterativeThresholding(Marginal):
    """``theta <- project(hard(theta - step M g, s))``, g the mean of a group's reports at theta; start 0.

    ``step = 1`` and M the inverse of a public covariance (or the identity); without one, ``step`` is one over the
    public bound of the largest eigenvalue, twice as many entries are kept on the way, and the ball is twice as large
    (seed 004, Algorithm 4). With the gradient of a link of slopes a to b, ``step = 2 / (a^2 + b^2)``.

    Rounds: 4 if the first one's noise is at most 0.28 of the radius, otherwise 1 (2 where the covariance is not
    known). In later rounds the clip shrinks with the error that is left, ``C + 2 R max(2^-t, min(1, 2 sqrt(s) sd))``,
    sd the predicted noise of the round before: the noise of the last round is proportional to what is left to find.
    All of this is decided beforehand, from public numbers.

    Parameters
    ----------
    n_rounds : int, optional
        Public number of rounds, each of which asks its own group of users. Default: by the noise of the first.
    """

    tag, name = "IterativeThresholding", "iht"

    n_rounds: int | None = None

    def decide(self, public: Public, statement: SparseProblem) -> Self:
        if self.n_rounds is not None:
            check_count("n_rounds", self.n_rounds)
        return super().decide(public, statement)

    def _in_rounds(self) -> Self:
        problem, unknown, first = self.statement, self.statement.unknown, self.bounds[0]
        n_rounds, reason = self.n_rounds, self.reason
        if n_rounds is None:
            part = math.sqrt(self.n_kept) * self._std(first, MANY_ROUNDS) / problem.radius
            n_rounds = MANY_ROUNDS if part <= FOUND else 2 if unknown else 1
            reason = f"the noise of the first of {MANY_ROUNDS} rounds would be {part:.2g} of the radius (limit {FOUND})"
        bounds = [first]
        # a clip may shrink where a round is sure to halve the error
        while len(bounds) < n_rounds:
            bounds.append(first if unknown else self._next(bounds, n_rounds))
        reason = f"{n_rounds} round{'s' * (n_rounds > 1)}: {reason}"
        return replace(self, bounds=tuple(bounds), n_rounds=n_rounds, reason=reason)

    @property
    def predicted_error(self) -> float:
        return self._with_missed(self.std)  # a feature that one round misses is left to the next ones

    def _next(self, bounds: Sequence[float], n_rounds: int) -> float:
        """The clip after these."""
        radius = self.statement.radius
        missed = 2 * math.sqrt(self.n_kept) * self._std(bounds[-1], n_rounds) / radius
        left = max(2.0 ** -len(bounds), min(1.0, missed))
        return min(bounds[-1], self.reach(2 * radius * left))


class TwoPhase(SparseMethod):
    """Half of the users choose the features, the others estimate their coefficients: noise without the dimension.

    First `Marginal`, of which the ``n_nonzero`` largest entries are kept. The second half reports ``x_S clip(y)``, or,
    where the covariance of dense features is not known, `JointStatistics` of the chosen ones. Not in the seeds; no
    contradiction to their lower bounds, which are driven by coefficients too small to choose.
    """

    tag, name = "TwoPhase", "two-phase"

    @property
    def first(self) -> Marginal:
        """The search."""
        return Marginal(reports=self.reports).decide(self.public, self.statement)

    @property
    def second(self) -> LocalProtocol:
        """The question about the chosen features."""
        problem = self.statement
        s, bound = problem.n_nonzero, self.residual_bound
        row_norm = math.sqrt(s) if problem.sign else math.sqrt(s) + SELECTED_SLACK
        if problem.unknown:
            inner: Statistic = JointStatistics(s, row_norm, bound, row_norm / (row_norm + bound))
        else:
            cut = problem.feature_bound or (1.0 if problem.sign else None)
            inner = BallResiduals(s, bound, cut, row_norm, problem.link, "invert")
        return LocalProtocol(Selected(inner, problem.n_features, s), self.vector(inner.size))

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [*self.first.protocols, self.second]

    @property
    def std(self) -> float:
        return unit_std(self.second) / math.sqrt(max(1, self.public.n_rows // 2))

    @property
    def search_std(self) -> float:
        return self.first.std * math.sqrt(2)

    @property
    def searches_last(self) -> bool:
        return False

    def coefficients(self, oracle: Oracle) -> Vector:
        problem = self.statement
        found = self.estimate(oracle, 0, np.zeros(problem.n_features))
        inverse = problem.inverse_covariance
        start = hard_threshold(-found if inverse is None else -inverse @ found, problem.n_nonzero)
        chosen = selection(start, problem.n_nonzero)
        answer = self.estimate(oracle, 1, start)
        theta = np.zeros(problem.n_features)
        if problem.unknown:
            statistic = self.second.statistic.statistic  # type: ignore[attr-defined]
            S, b = statistic.moments(answer)
            floored = psd_floor(S, FLOOR_SHARE * problem.eigenvalues[0])
            theta[chosen] = sparse_from_statistics(floored, b, len(chosen), problem.radius)
        elif problem.covariance is not None:
            theta[chosen] = np.linalg.solve(problem.covariance[np.ix_(chosen, chosen)], -answer)
        else:
            theta[chosen] = -answer
        return in_ball(theta, problem.radius)


def automatic(public: Public, statement: SparseProblem) -> SparseMethod:
    """The method with the least predicted error, features that are missed included; its reason lists them all.

    Four rounds are compared only where the first finds the parameter up to 0.28 of its radius: the later clips rest on
    it.
    """
    kinds: list[SparseMethod] = [IterativeThresholding(), Marginal()]
    if public.n_rows > 1:
        kinds.append(TwoPhase())
    found = [kind.decide(public, statement) for kind in kinds]
    if len(found[0].protocols) == 1:  # the same as one round
        del found[1]
    found.sort(key=lambda method: method.predicted_error)
    told = "; ".join(f"{m.name} in {len(m.protocols)} rounds {m.predicted_error:.2g}" for m in found)
    return replace(found[0], reason=f"the least error that is predicted, missed features included: {told}")
