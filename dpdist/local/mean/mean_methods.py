"""How users report a vector: the methods of `dpdist.local.mean.columns.Mean`, one class for each law of a report."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_between, check_bound, check_count
from dpdist.local.local_method import LocalMethod, line_of
from dpdist.local.mean.mean_statement import Records
from dpdist.local.mean.small_l1_norm import Projected, denoise, n_projections
from dpdist.local.randomisers.coordinates import Reporter, SampleCoordinates
from dpdist.local.randomisers.scalars import GaussianScalar, Hybrid, LaplaceScalar, OneBit, Piecewise
from dpdist.local.randomisers.vectors import GaussianVector, Hemisphere, PrivUnit, PrivUnitG, best_vector
from dpdist.local.statistics.bounded_values import Ball, Box, Truncated, TruncatedVector
from dpdist.local.survey.levels import Leveled, Levels
from dpdist.local.survey.protocol import LocalProtocol, Randomiser, Statistic
from dpdist.method import DECIDED, Oracle, Public, Vector, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.robust import median_select
from dpdist.solvers.standard_errors import Uncertainty


@dataclass(frozen=True)
class MeanMethod(LocalMethod):
    """Every user reports their vector once, in ``n_groups`` groups; the mean of the reports, or the middle of several.

    Attributes
    ----------
    statistic : Statistic
        What a record is to the report; decided.
    randomiser : Randomiser
        The law of the report; decided.
    """

    statement: Records = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    statistic: Statistic = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    randomiser: Randomiser = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    domains: ClassVar[tuple[str, ...]]
    """Where it is offered."""
    solves_with: ClassVar[tuple[str, ...]] = ("domain",)
    measures: ClassVar[str] = "expected norm of the error of the mean that is due to the reports, at the worst records"

    @abstractmethod
    def _statistic(self) -> Statistic:
        """What a record is to the report."""

    @abstractmethod
    def _law(self, statistic: Statistic, epsilon: float) -> Randomiser:
        """The law of the report, at that epsilon."""

    def decide(self, public: Public, statement: Records) -> Self:
        asked = self._with(public, statement)
        statistic = asked._statistic()
        if statement.levels:
            law: Randomiser = Levels(asked._law(statistic, statement.levels[-1]), statement.levels)
            return replace(asked, statistic=Leveled(statistic, statement.levels), randomiser=law)
        return replace(asked, statistic=statistic, randomiser=asked._law(statistic, self._epsilon(public)))

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [LocalProtocol(self.statistic, self.randomiser)] * self.statement.n_groups

    @property
    def unit(self) -> float:
        """What 1 in a report stands for."""
        statistic: Any = self._records
        return float(statistic.unit if isinstance(statistic, Projected) else statistic.radius)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        protocols = self.protocols
        totals = [self.total(oracle, group) for group in range(len(protocols))]
        sizes = [oracle.size(line_of(group)) for group in range(len(protocols))]
        means = np.array([p.estimate(total, n) for p, total, n in zip(protocols, totals, sizes, strict=True)])
        mean = means[0] if len(means) == 1 else median_select(means)
        error = self.unit * _noise(protocols[0], totals[0], min(sizes))
        found = self._finish(mean, error)
        return {"standard_error": error, "mean": found, "uncertainty": self._uncertainty(mean, error, min(sizes))}

    def _uncertainty(self, mean: Vector, error: float, n_users: int) -> Uncertainty | str:
        """Of the mean of reports: their noise, and for numbers in a range how much they may vary with that mean."""
        statement = self.statement
        if statement.n_groups > 1:
            return (
                f"the mean is one of {statement.n_groups} that was chosen for being in the middle. With n_groups=1 "
                "there would be intervals"
            )
        if statement.domain == "l1":
            return (
                "the l1 norm of the mean sets small entries to 0, which moves them by more than their standard error. "
                "With domain='l2' there would be intervals"
            )
        noises, varied, statistic = np.full(len(mean), error**2), np.zeros(len(mean)), self._records
        scalar = self.randomiser.randomiser if isinstance(self.randomiser, Levels) else self.randomiser
        if isinstance(scalar, OneBit):
            noises = np.maximum(noises - mean**2 / n_users, 0.0)  # a sign has no other variance
        elif isinstance(statistic, Box) and not isinstance(self.randomiser, Levels):
            inside = np.clip(mean, statistic.low, statistic.high)
            varied = (inside - statistic.low) * (statistic.high - inside) / n_users
        return Uncertainty(np.diag(noises + varied), noises)

    def expected_error(self, plan: Plan) -> float | None:
        users = self.public.n_rows // self.statement.n_groups
        return self.unit * self.randomiser.noise_std * math.sqrt(self.public.n_features / users)

    def _finish(self, mean: Vector, error: float) -> Vector:
        """What is known of the mean, used: post-processing of reports."""
        statistic = self._records
        return np.clip(mean, statistic.low, statistic.high) if isinstance(statistic, Box) else mean

    @property
    def _records(self) -> Statistic:
        return self.statistic.statistic if isinstance(self.statistic, Leveled) else self.statistic

    @property
    def _users(self) -> int:
        return self.public.n_rows // self.statement.n_groups

    @staticmethod
    def _epsilon(public: Public) -> float:
        return public.budget.epsilon

    def _gaussian(self, statistic: Statistic, epsilon: float) -> Randomiser:
        if not self.public.budget.delta:
            raise BudgetError(f"method={self.name!r} needs delta > 0: pass delta, far below 1/n_rows")
        kind = GaussianVector if statistic.domain == "ball" else GaussianScalar
        return kind(statistic.size, epsilon, self.public.budget.delta)


@dataclass(frozen=True)
class Numbers(MeanMethod):
    """Reports of numbers: in a range, or truncated at a scale where they have none.

    Parameters
    ----------
    scale : float, optional
        For "heavy-tailed": public scale of the truncation, in place of what ``second_moment`` gives.
    """

    scale: float | None = None

    scalar: ClassVar[Any]
    """The law of one number."""

    def __post_init__(self) -> None:
        if self.scale is not None:
            check_bound("scale", self.scale)

    def _statistic(self) -> Statistic:
        statement, d = self.statement, self.public.n_features
        if statement.domain == "heavy-tailed":
            kind = TruncatedVector if isinstance(self, GaussianReports) else Truncated
            return kind(d, self._scale(kind(d)))
        if self.scale is not None:
            raise BudgetError(
                f"scale={self.scale!r} is the scale of a truncation, for domain='heavy-tailed'; records in "
                f"domain={statement.domain!r} are not truncated: leave it out"
            )
        if statement.domain == "l2":
            radius = statement.need("radius")
            return Ball(d, radius) if isinstance(self, GaussianReports) else Box(d, -radius, radius)
        return Box(d, statement.need("low"), statement.need("high"))

    def _law(self, statistic: Statistic, epsilon: float) -> Randomiser:
        return type(self).scalar(statistic.size, epsilon)

    def _scale(self, statistic: Truncated) -> float:
        """Where bias ``E x^2 / (2 s)`` and noise, which grows with s, are equal."""
        if self.scale is not None:
            return float(self.scale)
        noise = statistic.radius * self._law(statistic, self._epsilon(self.public)).noise_std / math.sqrt(self._users)
        return math.sqrt(self.statement.need("second_moment") / (2 * noise))


@dataclass(frozen=True)
class HybridReports(Numbers):
    """A sign or a piecewise report, whatever has less noise; of several numbers those of a few coordinates.

    Parameters
    ----------
    n_sampled : int or "auto"
        How many coordinates a user reports, where there are several.
    """

    tag, name = "HybridReports", "hybrid"
    domains: ClassVar[tuple[str, ...]] = ("interval", "heavy-tailed")
    scalar: ClassVar[Any] = Hybrid
    reporter: ClassVar[Reporter] = "hybrid"

    n_sampled: int | str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_sampled != "auto":
            check_count("n_sampled", self.n_sampled)

    def _law(self, statistic: Statistic, epsilon: float) -> Randomiser:
        if statistic.size == 1:
            if self.n_sampled not in ("auto", 1):
                raise BudgetError(f"n_sampled={self.n_sampled!r} is more than there are coordinates, which is 1")
            return type(self).scalar(1, epsilon)
        n_sampled: Any = self.n_sampled
        return SampleCoordinates(statistic.size, epsilon, n_sampled, self.reporter)


class OneBitReports(HybridReports):
    """One random sign, of one number or of a few coordinates."""

    tag, name = "OneBitReports", "one-bit"
    domains: ClassVar[tuple[str, ...]] = ("interval", "box", "heavy-tailed")
    scalar: ClassVar[Any] = OneBit
    reporter: ClassVar[Reporter] = "one-bit"


class SampledCoordinates(HybridReports):
    """Hybrid reports of a few coordinates, also where there is only one."""

    tag, name = "SampledCoordinates", "sample-coordinates"
    domains: ClassVar[tuple[str, ...]] = ("box",)

    def _law(self, statistic: Statistic, epsilon: float) -> Randomiser:
        n_sampled: Any = self.n_sampled
        return SampleCoordinates(statistic.size, epsilon, n_sampled, self.reporter)


class PiecewiseReports(Numbers):
    """A number near the own one with a larger density than any other."""

    tag, name = "PiecewiseReports", "piecewise"
    domains: ClassVar[tuple[str, ...]] = ("interval",)
    scalar: ClassVar[Any] = Piecewise


class LaplaceReports(Numbers):
    """The number with Laplace noise."""

    tag, name = "LaplaceReports", "laplace"
    domains: ClassVar[tuple[str, ...]] = ("interval",)
    scalar: ClassVar[Any] = LaplaceScalar


class GaussianReports(Numbers):
    """Numbers or vectors with normal noise."""

    tag, name = "GaussianReports", "gaussian"
    domains: ClassVar[tuple[str, ...]] = ("interval", "l2", "heavy-tailed")

    def _law(self, statistic: Statistic, epsilon: float) -> Randomiser:
        return self._gaussian(statistic, epsilon)


@dataclass(frozen=True)
class Vectors(MeanMethod):
    """Reports of vectors in a ball."""

    vector: ClassVar[Any]

    domains: ClassVar[tuple[str, ...]] = ("l2",)

    def _statistic(self) -> Statistic:
        return Ball(self.public.n_features, self.statement.need("radius"))

    def _law(self, statistic: Statistic, epsilon: float) -> Randomiser:
        return type(self).vector(statistic.size, epsilon)


class CapOrRest(Vectors):
    """A random point of a cap around the own direction, or of the rest of the sphere."""

    tag, name = "CapOrRest", "privunit"
    vector: ClassVar[Any] = PrivUnit


class NormalCapOrRest(Vectors):
    """The same with normal vectors, for long ones."""

    tag, name = "NormalCapOrRest", "privunitg"
    vector: ClassVar[Any] = PrivUnitG


class HalfSphere(Vectors):
    """A random point of the half-sphere around the own direction, or of the other one."""

    tag, name = "HalfSphere", "hemisphere"
    vector: ClassVar[Any] = Hemisphere


class Direct(Vectors):
    """Reports of whole vectors; what is known of the l1 norm of the mean takes noise away afterwards."""

    tag, name = "Direct", "direct"
    domains: ClassVar[tuple[str, ...]] = ("l1",)
    vector: ClassVar[Any] = best_vector
    solves_with = ("domain", "l1_radius")

    def _finish(self, mean: Vector, error: float) -> Vector:
        return denoise(mean, self.statement.l1_radius, error)


@dataclass(frozen=True)
class ProjectedReports(Direct):
    """Reports of a public random projection, from which a mean of small l1 norm is recovered.

    Parameters
    ----------
    n_projections : int, optional
        Default ``epsilon sqrt(n_rows) l1_radius / radius``.
    seed : int, default 0
        Of the projection; public.
    """

    tag, name = "ProjectedReports", "projected"

    n_projections: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_projections is not None:
            check_count("n_projections", self.n_projections)
        check_count("seed", self.seed, low=0)

    def _statistic(self) -> Statistic:
        statement, d = self.statement, self.public.n_features
        radius = statement.need("radius")
        p = n_projections(self._users, d, statement.need("l1_radius") / radius, self._epsilon(self.public))
        if self.n_projections is not None:
            check_between("n_projections", self.n_projections, 1, d)
            p = self.n_projections
        return Projected(d, p, radius, self.seed) if p < d else Ball(d, radius)

    def _finish(self, mean: Vector, error: float) -> Vector:
        if isinstance(self.statistic, Projected):
            return self.statistic.recover(mean, self.statement.need("l1_radius"))
        return super()._finish(mean, error)


class GaussianProjected(ProjectedReports):
    """The same with normal noise."""

    tag, name = "GaussianProjected", "projected-gaussian"

    def _law(self, statistic: Statistic, epsilon: float) -> Randomiser:
        return self._gaussian(statistic, epsilon)


METHODS = by_name(
    HybridReports, OneBitReports, PiecewiseReports, LaplaceReports, GaussianReports, SampledCoordinates,
    NormalCapOrRest, CapOrRest, HalfSphere, Direct, ProjectedReports, GaussianProjected
)  # fmt: skip
"""Laws of the reports, by name."""
REASONS = {
    "sample-coordinates": "a few coordinates with much epsilon have less noise than all with little",
    "direct": "a report of all coordinates is more exact than one of projections, for the same guarantee",
}
FIRST: Mapping[str, type[MeanMethod]] = {
    "interval": HybridReports,
    "box": SampledCoordinates,
    "l1": Direct,
    "heavy-tailed": HybridReports,
}


def automatic(domain: str, n_features: int, epsilon: float) -> MeanMethod:
    """The law with the least noise, and why it is that one."""
    if domain == "l2":
        if n_features == 1:
            reason = "a vector of one coordinate is a number, and no law of numbers has less noise"
            return replace(HybridReports(), reason=reason)
        reason = "no other pure report of a vector has less noise; which of the two depends on its size"
        return replace(METHODS[best_vector(n_features, epsilon).name](), reason=reason)
    if domain == "heavy-tailed" and n_features > 1:
        reason = "the least noise of all reports about sampled coordinates, without a delta"
        return replace(HybridReports(), reason=reason)
    method = FIRST[domain]
    reason = REASONS.get(method.name, "the least noise in the worst case, without a delta")
    return replace(method(), reason=reason)


def _noise(protocol: LocalProtocol, total: NDArray[np.float64], n_rows: int) -> float:
    """Standard error of a value of the mean, at the worst records."""
    if isinstance(protocol.randomiser, Levels):
        return float(1 / math.sqrt(max(protocol.randomiser.weights(total).sum(), 1e-300)))
    return protocol.noise_std / math.sqrt(n_rows)
