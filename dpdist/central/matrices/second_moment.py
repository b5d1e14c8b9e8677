"""Second moments of bounded rows, released once by a trusted coordinator.

================== =================================================================================== ===============
method             parameters                                                                          guarantee
================== =================================================================================== ===============
m2-goe             ``mechanism="goe"``, what ``"auto"`` is with delta but for few columns               (epsilon, delta)
m2-two-sided-wishart  ``mechanism="wishart"``, what ``"auto"`` is without delta, or for few columns    epsilon
m2-l2-knorm        ``mechanism="knorm"``, what ``"auto"`` is for 2 and 3 columns                       epsilon
m2-laplace         ``mechanism="laplace"``: for comparison                                             epsilon
m2-uppertri-gauss  ``mechanism="upper-triangle"``: the published layout, with twice the variance       (epsilon, delta)
m2-wishart-approx  ``mechanism="approx-wishart"``: for comparison                                      (epsilon, delta)
m2-sulq            ``mechanism="sulq"``: for comparison                                                (epsilon, delta)
================== =================================================================================== ===============

Why it is private: rows are clipped to a public norm r and truncated as factors, so that replacing one changes the exact
integer sum by ``v v' - w w'`` with ``|v|, |w| <= r``: ``sqrt(2) r^2`` in the Frobenius norm, ``2 r^2`` in the nuclear
norm, whatever the rows hold. Seed 000, section 6.2 and 6.3, as corrected in spec 06, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

from dpdist.errors import BudgetError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import planned
from dpdist.estimators.moment_release import MomentEstimator, MomentNoise
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import DECIDED, Line, Method, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.closed_forms import gdp_epsilon, gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.audit.worst_neighbours import Pair, orthogonal_rows
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian, Laplace, SymmetricGaussian
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.symmetric_noise import ApproximateWishart, SymmetricKNorm, TwoSidedWishart
from dpdist.queries.moment_sums import SecondMomentSum


@dataclass(frozen=True)
class MomentRows(Noted):
    """What a user of `SecondMoment` states about the rows."""

    tag: ClassVar[str] = "MomentRows"

    row_norm: float
    unit_rows: bool = False
    centre: str | None = None


@dataclass(frozen=True)
class MomentMethod(Method):
    """The sum of ``x x'`` of bounded rows, released once.

    Attributes
    ----------
    query : SecondMomentSum
        Decided.
    """

    statement: MomentRows = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    parameter = "mechanism"
    measures: ClassVar[str] = "expected Frobenius norm of the noise in the second moment"
    without_delta: ClassVar[bool] = False
    """Whether the guarantee has no delta."""

    def decide(self, public: Public, statement: MomentRows) -> Self:
        paired = statement.centre == "pairs"
        if paired and public.neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "centre='pairs' takes rows two by two by their position, and adding or removing one moves all behind "
                "it into other pairs: use neighbours='replace-one', or centre=None"
            )
        if paired and public.n_rows < 2:
            raise BudgetError(f"centre='pairs' needs two rows or more, got n_rows={public.n_rows}")
        query = SecondMomentSum(public.n_features, float(statement.row_norm), bool(statement.unit_rows), paired=paired)
        if not self.without_delta and public.budget.delta == 0:
            raise BudgetError(
                f"mechanism={self.name!r} needs delta > 0: pass delta, far below 1/n_rows (1e-6), or choose "
                "mechanism='wishart' ('knorm' for 2 and 3 columns), which need none"
            )
        return self._with(public, statement, query=query)

    @property
    def budget(self) -> Budget:
        """What is asked, and no delta where there is nobody to spend it."""
        asked = self.public.budget
        return Budget(asked.epsilon, 0.0) if self.without_delta else asked

    @property
    def mechanism(self) -> Mechanism:
        """What the sum is released by."""
        raise NotImplementedError

    def entry_stds(self, mechanism: Mechanism, sensitivity: float) -> tuple[float, float]:
        """Of the noise in the sum: in an entry of the diagonal, and in another one."""
        return mechanism.noise_std(sensitivity), mechanism.noise_std(sensitivity)

    def lines(self) -> Sequence[Line]:
        return [Line("second moment", self.mechanism, self.query)]

    @property
    def divisor(self) -> int:
        """How many rows, or pairs of rows, the mean is of."""
        return self.public.n_rows // self.query.align

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        return {"second_moment": unpack_symmetric(oracle.ask("second moment") / self.divisor)}

    def noise(self, plan: Plan) -> MomentNoise:
        """What is public of the release."""
        public, mechanism = self.public, plan["second moment"].mechanism
        sensitivity = self.query.unit_sensitivity(public.neighbours, mechanism.norm, public.units)
        diagonal, others = self.entry_stds(mechanism, sensitivity)
        n = self.divisor
        return MomentNoise(float(n), public.n_features, self.query.row_norm, diagonal / n, others / n)

    def expected_error(self, plan: Plan) -> float | None:
        return self.noise(plan).frobenius

    @property
    def align(self) -> int:
        return int(self.query.align)


class GaussianMoment(MomentMethod):
    """Noise of the Gaussian orthogonal ensemble: ``s`` on the diagonal, ``s / sqrt(2)`` off it (m2-goe)."""

    tag, name = "GaussianMoment", "goe"

    @property
    def mechanism(self) -> Mechanism:
        return SymmetricGaussian()

    def entry_stds(self, mechanism: Mechanism, sensitivity: float) -> tuple[float, float]:
        s = mechanism.noise_std(sensitivity)
        return s, s / math.sqrt(2)


class UpperTriangleMoment(MomentMethod):
    """Equal Gaussian noise on the entries of the upper triangle, mirrored, as published (m2-uppertri-gauss).

    The sensitivity is that of the triangle, ``sqrt(2) r^2``, and the noise is calibrated exactly; the published ones
    are 1 and ``sqrt(2 log(1.25 / delta)) / epsilon``, which is too little for epsilon >= 1.
    """

    tag, name = "UpperTriangleMoment", "upper-triangle"

    @property
    def mechanism(self) -> Mechanism:
        return Gaussian()


class _MatrixNoiseMoment(MomentMethod):
    def entry_stds(self, mechanism: Mechanism, sensitivity: float) -> tuple[float, float]:
        found: tuple[float, float] = mechanism.entry_stds(sensitivity)  # type: ignore[attr-defined]
        return found


class _PureMatrixNoiseMoment(_MatrixNoiseMoment):
    without_delta = True


class WishartMoment(_PureMatrixNoiseMoment):
    """The difference of two Wishart matrices (m2-two-sided-wishart)."""

    tag, name = "WishartMoment", "wishart"

    @property
    def mechanism(self) -> Mechanism:
        return TwoSidedWishart(self.public.n_features)


class KNormMoment(_PureMatrixNoiseMoment):
    """A random direction of Gamma length (m2-l2-knorm)."""

    tag, name = "KNormMoment", "knorm"

    @property
    def mechanism(self) -> Mechanism:
        return SymmetricKNorm(self.public.n_features)


class LaplaceMoment(MomentMethod):
    """Laplace noise on the upper triangle, by its l1 norm ``(d / sqrt(2) + 1) r^2`` (m2-laplace)."""

    tag, name = "LaplaceMoment", "laplace"
    without_delta = True

    @property
    def mechanism(self) -> Mechanism:
        return Laplace()


class ApproximateWishartMoment(_MatrixNoiseMoment):
    """A Wishart matrix with extra degrees of freedom, less its mean (m2-wishart-approx)."""

    tag, name = "ApproximateWishartMoment", "approx-wishart"

    @property
    def mechanism(self) -> Mechanism:
        return ApproximateWishart(self.public.n_features, self.public.budget.delta)


class SuLQMoment(MomentMethod):
    """The noise of SuLQ: Gaussian on the upper triangle with a standard deviation that grows with d (m2-sulq).

    ``r^2 ((d + 1) sqrt(2 log((d^2 + d) / (2 sqrt(2 pi) delta))) / epsilon + 1 / sqrt(epsilon))`` in the sum, as
    published; it is far more than the budget asks for, and what is charged is what this noise costs.
    """

    tag, name = "SuLQMoment", "sulq"

    @property
    def mechanism(self) -> Mechanism:
        return Gaussian()

    @property
    def budget(self) -> Budget:
        """What the published noise costs: less than what was asked."""
        budget, d = self.public.budget, self.public.n_features
        level = math.sqrt(2 * math.log(max((d * d + d) / (2 * math.sqrt(2 * math.pi) * budget.delta), math.e)))
        std = self.query.bound * ((d + 1) * level / budget.epsilon + 1 / math.sqrt(budget.epsilon))
        public = self.public
        mu = self.query.unit_sensitivity(public.neighbours, 2, public.units) / std
        needed = gdp_mu(budget.epsilon, budget.delta)
        if mu >= needed:
            return budget
        return Budget(max(gdp_epsilon(mu, budget.delta), 1e-9), budget.delta)


MECHANISMS = by_name(
    GaussianMoment,
    UpperTriangleMoment,
    WishartMoment,
    KNormMoment,
    LaplaceMoment,
    ApproximateWishartMoment,
    SuLQMoment,
)


@dataclass(eq=False, repr=False)
class Moments(MomentEstimator):
    """An estimator that releases a second moment under a trusted coordinator; see `SecondMoment`.

    Parameters
    ----------
    mechanism : str or MomentMethod, default "auto"
        The noise of the released second moment.
    unit_rows : bool, default False
        Scale every row to the norm row_norm, shorter ones as well: the directions of the rows alone count.
    centre : {None, "pairs"}
        "pairs": of differences of two rows, which have the covariance of the rows and no mean.
    """

    trust = "central"
    offers: ClassVar[Mapping[str, Offered]] = {"mechanism": MECHANISMS}

    _: KW_ONLY
    mechanism: str | MomentMethod = "auto"
    unit_rows: bool = False
    centre: str | None = None
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Rows at right angles: opposite ones have the same products."""
        return orthogonal_rows(n_rows, n_features)

    def _decided(self, public: Public, **beside: Any) -> Method:
        statement = MomentRows(self.row_norm or 1.0, self.unit_rows, self.centre)
        method = chosen("mechanism", self.mechanism, MECHANISMS)
        if method == "auto":
            return _least_noise(public, statement)
        if method.without_delta and public.budget.delta > 0:
            raise BudgetError(
                f"delta={public.budget.delta:g} has nobody to read it with mechanism={method.name!r}, whose guarantee "
                "has none: leave delta out (or 0), or choose mechanism='goe', which reads it"
            )
        found: Method = method.decide(public, statement)
        return found

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.mechanism_, self.mechanism_reason_ = method.name, method.reason

    def _noise(self, method: Method, plan: Plan) -> MomentNoise:
        assert isinstance(method, MomentMethod)
        return method.noise(plan)

    def _trivial_error(self, method: Method) -> float | None:
        return float(self.row_norm or 1.0) ** 2

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("mechanism", self.mechanism, MECHANISMS)
        if not isinstance(self.unit_rows, bool):
            raise BudgetError(f"unit_rows must be True or False, got {self.unit_rows!r}")
        if self.centre not in (None, "pairs"):
            raise BudgetError(
                f"centre={self.centre!r} is not known; choose None, which takes rows as they are, or 'pairs', which "
                "takes differences of two rows: a mean is never subtracted"
            )


COMPARED: Sequence[type[MomentMethod]] = (GaussianMoment, WishartMoment, KNormMoment)
"""What ``"auto"`` takes one of: every other mechanism has more noise than one of these, whatever the numbers."""


def _least_noise(public: Public, statement: MomentRows) -> MomentMethod:
    """The mechanism with the least noise that the budget pays for; its reason lists those compared.

    A guarantee by epsilon alone is one by epsilon and delta as well, so that noise without delta is always among them:
    for few columns it is the smallest.
    """
    kinds = [kind for kind in COMPARED if kind.without_delta or public.budget.delta > 0]
    found = [kind().decide(public, statement) for kind in kinds]
    sized = sorted(((method.noise(planned(method)).frobenius, method) for method in found), key=lambda each: each[0])
    told = "; ".join(f"{method.name} {size:.3g}" for size, method in sized)
    best = sized[0][1]
    spends = "; it spends no delta" if best.without_delta and public.budget.delta > 0 else ""
    return replace(best, reason=f"the least noise of those compared, by its Frobenius norm: {told}{spends}")


@dataclass(eq=False, repr=False)
class SecondMoment(Moments):
    """The second moment ``(1/n) sum x x'`` of bounded rows: released once, used by whatever is made of it.

    `dpdist.central.PCA`, `SparsePCA`, `SparseCovariance` and `GraphicalLasso` take a fitted one, at no further cost.

    Parameters
    ----------
    mechanism : {"auto", "goe", "wishart", "knorm", "laplace", "upper-triangle", "approx-wishart", "sulq"}
        The noise; ``"auto"``: of Gaussian (with delta), two-sided Wishart and K-norm noise the smallest. For few
        columns (up to 7 at epsilon 1 and delta 1e-6, to 13 at 1e-9) that is one of the two that need no delta: a
        guarantee by epsilon alone, and no delta is charged. An account with ``composition="gaussian"`` does not add
        such charges up: choose ``"goe"`` there.
    row_norm : float
        Public bound of the norm of a row, enforced by clipping. Required. The noise grows with its square: for
        standardised columns about ``sqrt(p + 2 sqrt(2 p))``.
    unit_rows : bool, default False
        Scale every row to that norm, shorter ones as well: the directions of the rows alone count. Often better for
        principal components.
    centre : {None, "pairs"}
        ``"pairs"``: of ``(x_0 - x_1) / sqrt(2), (x_2 - x_3) / sqrt(2), ...``, which have the covariance of the rows
        and no mean, half as many; for ``neighbours="replace-one"`` only, and the order of the rows must not follow
        from their values. Otherwise the rows are taken as they are: a mean is never subtracted.
    most_columns : int, default 5000
        More columns are refused.
    epsilon, delta : float
        The budget of this fit. ``delta=0`` (or none) for a guarantee by epsilon alone.
    neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    second_moment_ : array of shape (p, p)
        Symmetric, unbiased (but for clipping), and indefinite where the noise is larger than the signal.
    off_diagonal_std_, diagonal_std_ : float
        Public standard deviations of the noise in an entry.
    n_samples_ : float
        How many rows, or pairs, the mean is of; public.
    mechanism_, mechanism_reason_ : str
        What ``"auto"`` became and why, with the noise of those compared.
    guarantee_, plan_, releases_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50_000, 4)) * [1.0, 0.5, 0.1, 0.1]
    >>> moment = SecondMoment(row_norm=2.5, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> bool(abs(moment.second_moment_ - np.diag([1.0, 0.25, 0.01, 0.01])).max() < 0.05)
    True
    >>> moment.mechanism_, round(moment.off_diagonal_std_, 5), moment.guarantee_.delta
    ('wishart', 0.0004, 0.0)
    """

    answers = (Answer.SECOND_MOMENTS,)

    mechanism: str | MomentMethod = "auto"
