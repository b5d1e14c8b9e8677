"""Sparse regression with private records: what is asked in each round, decided from public numbers.

=================== ==================================== ===============================================================
method              method id                            questions
=================== ==================================== ===============================================================
`Descent`           ldp-iht, ldp-iht-subgauss,           features times clipped residual at the current parameter, to T
                    ldp-iht-general, ldp-iht-nonlinear   disjoint groups of users
`Descent`, T = 1    nldp-marginal                        the same once, at 0
`TwoPhase`          ldp-two-phase                        the same once to half of the users; then the others are asked
                                                         about the chosen features only
=================== ==================================== ===============================================================

A plan is what `dpdist.local.sparse.SparseRegression` carries out; `Plan.std` is the predicted noise of a coefficient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import hard_threshold
from dpdist.local.coordinates import SampleCoordinates
from dpdist.local.links import IDENTITY, Link
from dpdist.local.protocol import LocalProtocol, Randomiser, Statistic
from dpdist.local.reports import Fidelity, Reports
from dpdist.local.residuals import BallResiduals, BoxResiduals, LinkMode, Selected, selection
from dpdist.local.scalars import Reporter
from dpdist.local.second_moments import JointStatistics
from dpdist.local.vectors import GaussianVector, Hemisphere, best_vector
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
ROW_SLACK = 1.1
"""Rows of d features of mean square 1 are longer than this times sqrt(d) only rarely."""
SELECTED_SLACK = 1.5
"""The same for a few features: sqrt(s) plus this, about two standard deviations of their norm."""
FLOOR_SHARE = 0.5
"""Part of the public bound of the smallest eigenvalue at which estimated second moments are floored."""


class Ask(Protocol):
    """`dpdist.local.estimator.Questions`, as plans see it."""

    def ask(self, group: int = 0, state: Any = None) -> Vector: ...

    def total(self, group: int = 0, state: Any = None) -> Vector: ...


@dataclass(frozen=True)
class Setting:
    """The public numbers of a fit; the fields are the parameters of `dpdist.local.sparse.SparseRegression`."""

    tag: ClassVar[str] = "Setting"

    n_rows: int
    n_features: int
    n_nonzero: int
    epsilon: float
    delta: float
    noise_bound: float
    radius: float = 1.0
    design: str = "isotropic"
    reports: str = "auto"
    link: Link = IDENTITY
    link_mode: LinkMode = "invert"
    feature_bound: float | None = None
    row_norm: float | None = None
    label_bound: float | None = None
    label_moment: tuple[float, float] | None = None
    eigenvalues: tuple[float, float] = (0.5, 2.0)
    covariance: tuple[tuple[float, ...], ...] | None = None
    threshold: str | None = "auto"
    threshold_scale: float = 0.5
    n_rounds: int | None = None

    @property
    def sign(self) -> bool:
        """Whether features are -1 or 1, at random."""
        return self.design == "sign"

    @property
    def curved(self) -> bool:
        """Whether users send the gradient of a link."""
        return self.link_mode == "gradient" and self.link.slopes != (1.0, 1.0)

    @property
    def inverse_covariance(self) -> Vector | None:
        """None for the identity."""
        return None if self.covariance is None else np.linalg.inv(np.array(self.covariance))

    def norm_of_rows(self, slack: float = ROW_SLACK) -> float:
        """Where rows are scaled down to."""
        if self.row_norm is not None:
            return self.row_norm
        return math.sqrt(self.n_features) * (1.0 if self.sign else slack)

    @property
    def residual_bound(self) -> float:
        """c of the first round, at 0: ``2 R + C``, beyond which few labels lie; times the slope of a link."""
        return self.reach(2 * self.radius) if self.label_bound is None else self.label_bound

    def reach(self, distance: float) -> float:
        """About the largest residual at that distance from the truth."""
        low, high = self.link.slopes
        return high * distance + self.noise_bound if self.curved else distance + self.noise_bound / low


class Plan(ABC):
    """What is asked, and what is made of the answers."""

    reason: str

    @property
    @abstractmethod
    def protocols(self) -> Sequence[LocalProtocol]: ...

    def queries(self, fidelity: Fidelity) -> Sequence[Reports]:
        """One for each group of users."""
        return [Reports(protocol, fidelity) for protocol in self.protocols]

    @property
    @abstractmethod
    def std(self) -> float:
        """Predicted standard deviation of the noise in a coefficient that is kept."""

    @property
    def search_std(self) -> float:
        """The same where it is decided which coefficients are kept: by default, the first round."""
        return self.std

    @abstractmethod
    def solve(self, questions: Ask) -> Vector:
        """The coefficients."""


def residuals(setting: Setting, bound: float) -> LocalProtocol:
    """The question for ``x clip(residual, bound)``: by coordinates for signs, as a vector for dense features."""
    p, link, mode = setting.n_features, setting.link, setting.link_mode
    kind = setting.reports if setting.reports != "auto" else "coordinates" if setting.sign else "vector"
    if kind == "coordinates":
        cut = setting.feature_bound or (1.0 if setting.sign else WIDTHS)
        statistic: Statistic = BoxResiduals(p, bound, cut, setting.row_norm, link, mode)
        reporter: Reporter = "one-bit" if setting.epsilon <= ONE_BIT_UP_TO else "hybrid"
        return LocalProtocol(statistic, SampleCoordinates(p, setting.epsilon, reporter=reporter))
    cut_or_none = setting.feature_bound or (1.0 if setting.sign else None)
    statistic = BallResiduals(p, bound, cut_or_none, setting.norm_of_rows(), link, mode)
    return LocalProtocol(statistic, vector(p, setting))


def vector(size: int, setting: Setting) -> Randomiser:
    """The randomiser of a vector that ``reports`` names."""
    if setting.reports == "hemisphere":
        return Hemisphere(size, setting.epsilon)
    if setting.reports == "gaussian":
        return GaussianVector(size, setting.epsilon, setting.delta)
    return best_vector(size, setting.epsilon)


def unit_std(protocol: LocalProtocol) -> float:
    """Noise of one report in the units of what the statistic stands for (all coordinates alike)."""
    scale = protocol.statistic.restore(np.ones(protocol.statistic.size))
    return float(np.abs(scale).max()) * protocol.noise_std


@dataclass(frozen=True)
class Descent(Plan):
    """``theta <- project(hard(theta - step M g, s))``, g the mean of a group's reports at theta; start 0.

    ``step = 1`` and M the inverse of a public covariance (or the identity); without one, ``step`` is one over the
    public bound of the largest eigenvalue, twice as many entries are kept on the way, and the ball is twice as large
    (seed 004, Algorithm 4). With the gradient of a link of slopes a to b, ``step = 2 / (a^2 + b^2)``.

    Rounds: 4 if the first one's noise is at most 0.28 of the radius, otherwise 1 (2 where the covariance is not
    known). In later rounds the clip shrinks with the error that is left, ``C + 2 R max(2^-t, min(1, 2 sqrt(s) sd))``,
    sd the predicted noise of the round before: the noise of the last round is proportional to what is left to find.
    All of this is decided beforehand, from public numbers.
    """

    tag: ClassVar[str] = "Descent"

    setting: Setting
    bounds: tuple[float, ...]
    step: float
    n_kept: int
    limit: float
    reason: str

    @classmethod
    def of(cls, setting: Setting, n_rounds: int | None = None) -> Descent:
        """The plan by the rules above; ``n_rounds=1`` makes it nldp-marginal."""
        unknown = setting.design == "general" and setting.covariance is None
        s = min(2 * setting.n_nonzero, setting.n_features) if unknown else setting.n_nonzero
        low, high = setting.link.slopes
        step = 1.0 / setting.eigenvalues[1] if unknown else 1.0
        if setting.curved:
            step *= 2 / (low**2 + high**2)
        limit = 2 * setting.radius if unknown else setting.radius
        first = setting.residual_bound
        draft = cls(setting, (first,), step, s, limit, "")
        n_rounds = n_rounds or setting.n_rounds
        reason = "as asked"
        if n_rounds is None:
            part = math.sqrt(s) * draft._std(first, MANY_ROUNDS) / setting.radius
            n_rounds = MANY_ROUNDS if part <= FOUND else 2 if unknown else 1
            reason = f"the noise of the first of {MANY_ROUNDS} rounds would be {part:.2g} of the radius (limit {FOUND})"
        bounds = [first]
        # a clip may shrink where a round is sure to halve the error
        while len(bounds) < n_rounds:
            bounds.append(first if unknown else draft._next(bounds, n_rounds))
        return replace(draft, bounds=tuple(bounds), reason=f"{n_rounds} round{'s' * (n_rounds > 1)}: {reason}")

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [residuals(self.setting, bound) for bound in self.bounds]

    @property
    def std(self) -> float:
        return self._std(self.bounds[-1], len(self.bounds))

    @property
    def search_std(self) -> float:
        return self._std(self.bounds[0], len(self.bounds))

    def solve(self, questions: Ask) -> Vector:
        inverse = self.setting.inverse_covariance
        theta = np.zeros(self.setting.n_features)
        for t in range(len(self.bounds)):
            gradient = questions.ask(t, theta)
            if inverse is not None:
                gradient = inverse @ gradient
            theta = in_ball(hard_threshold(theta - self.step * gradient, self.n_kept), self.limit)
        return hard_threshold(theta, self.setting.n_nonzero)

    def _std(self, bound: float, n_rounds: int) -> float:
        """Of a coordinate after the step of a round with that clip."""
        inverse = self.setting.inverse_covariance
        spread = 1.0 if inverse is None else math.sqrt(float(np.square(inverse).sum()) / len(inverse))
        users = max(1, self.setting.n_rows // n_rounds)
        return self.step * spread * unit_std(residuals(self.setting, bound)) / math.sqrt(users)

    def _next(self, bounds: Sequence[float], n_rounds: int) -> float:
        """The clip after these."""
        missed = 2 * math.sqrt(self.n_kept) * self._std(bounds[-1], n_rounds) / self.setting.radius
        left = max(2.0 ** -len(bounds), min(1.0, missed))
        return min(bounds[-1], self.setting.reach(2 * self.setting.radius * left))


@dataclass(frozen=True)
class TwoPhase(Plan):
    """Half of the users choose the features, the others estimate their coefficients: noise without the dimension.

    First `Descent` with one round, of which the ``n_nonzero`` largest entries are kept. The second half reports
    ``x_S clip(y)``, or, where the covariance of dense features is not known, `JointStatistics` of the chosen ones.
    Not in the seeds; no contradiction to their lower bounds, which are driven by coefficients too small to choose.
    """

    tag: ClassVar[str] = "TwoPhase"

    setting: Setting
    reason: str

    @property
    def first(self) -> Descent:
        """The search."""
        return Descent.of(replace(self.setting, n_nonzero=self.setting.n_nonzero), n_rounds=1)

    @property
    def joint(self) -> bool:
        """Whether second moments are asked for."""
        return self.setting.design == "general" and self.setting.covariance is None

    @property
    def second(self) -> LocalProtocol:
        """The question about the chosen features."""
        setting, s = self.setting, min(self.setting.n_nonzero, self.setting.n_features)
        bound = setting.residual_bound
        row_norm = math.sqrt(s) if setting.sign else math.sqrt(s) + SELECTED_SLACK
        if self.joint:
            inner: Statistic = JointStatistics(s, row_norm, bound, row_norm / (row_norm + bound))
        else:
            cut = setting.feature_bound or (1.0 if setting.sign else None)
            inner = BallResiduals(s, bound, cut, row_norm, setting.link, "invert")
        return LocalProtocol(Selected(inner, setting.n_features, s), vector(inner.size, setting))

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [*self.first.protocols, self.second]

    @property
    def std(self) -> float:
        return unit_std(self.second) / math.sqrt(max(1, self.setting.n_rows // 2))

    @property
    def search_std(self) -> float:
        return self.first.std * math.sqrt(2)

    def solve(self, questions: Ask) -> Vector:
        setting = self.setting
        found = questions.ask(0, np.zeros(setting.n_features))
        inverse = setting.inverse_covariance
        start = hard_threshold(-found if inverse is None else -inverse @ found, setting.n_nonzero)
        chosen = selection(start, setting.n_nonzero)
        answer = questions.ask(1, start)
        theta = np.zeros(setting.n_features)
        if self.joint:
            statistic = self.second.statistic.statistic  # type: ignore[attr-defined]
            S, b = statistic.moments(answer)
            floored = psd_floor(S, FLOOR_SHARE * setting.eigenvalues[0])
            theta[chosen] = sparse_from_statistics(floored, b, len(chosen), setting.radius)
        elif setting.covariance is not None:
            theta[chosen] = np.linalg.solve(np.array(setting.covariance)[np.ix_(chosen, chosen)], -answer)
        else:
            theta[chosen] = -answer
        return in_ball(theta, setting.radius)


def automatic(setting: Setting) -> Plan:
    """Four rounds where they pay, otherwise two phases if the search is sure enough, otherwise one round."""
    descent = Descent.of(setting)
    if len(descent.bounds) > 1 or setting.curved or setting.n_rows < 2:
        return descent
    two = TwoPhase(setting, "")
    smallest = 0.7 * setting.radius / math.sqrt(setting.n_nonzero)
    level = two.search_std * math.sqrt(2 * math.log(max(2, setting.n_features)))
    if level > smallest:
        return descent
    reason = f"half of the users can tell coefficients of {level:.2g} from noise, and they are about {smallest:.2g}"
    return replace(two, reason=reason)
