"""Second moments from one report of every user, who sends a noisy ``x x'``.

================ ====================================================== ===================== ========================
method           parameters                                             guarantee of a report noise at epsilon 1, 2, 4
================ ====================================================== ===================== ========================
ldp-m2-sphere    ``mechanism="privunitg"`` (``"privunit"`` below 10     epsilon               2.5, 1.3, .66
                 columns), what ``"auto"`` is
(without an id)  ``mechanism="hemisphere"``: as published elsewhere,    epsilon               2.7, 1.6, 1.3
                 for comparison
ldp-m2-goe       ``mechanism="goe"``: normal noise                      (epsilon, delta)      6.0, 3.2, 1.7
ldp-m2-laplace   ``mechanism="laplace"``: for comparison                epsilon               grows with the columns
================ ====================================================== ===================== ========================

(Of an entry of ``svec`` in one report of rows of norm 1; the Gaussian at delta = 1e-6.) Why it is private: the noise is
that of a vector of the unit ball, ``svec(x x') / r^2`` of a row that is clipped to norm r, or for the Gaussian of
vectors at most ``sqrt(2)`` apart, which these are (`Products`). Seed 000, Algorithm 6.1.46, steps 1 to 4, whose noise
is too little by ``sqrt(2)`` and, for epsilon >= 1, by more (spec 06, section 0).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.errors import BudgetError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.moment_release import MomentEstimator, MomentNoise
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.products import LaplaceProducts
from dpdist.local.randomisers.vectors import GaussianVector, Hemisphere, PrivUnit, PrivUnitG, best_vector
from dpdist.local.statistics.second_moments import Products
from dpdist.local.survey.protocol import LocalProtocol, Randomiser
from dpdist.method import DECIDED, Method, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.audit.worst_neighbours import Pair

FAR = 1e3
"""How much longer than they may be rows of an audit are."""


@dataclass(frozen=True)
class MomentUsers(Noted):
    """What a user of `SecondMoment` states about the rows."""

    tag: ClassVar[str] = "MomentUsers"

    row_norm: float
    unit_rows: bool = False


@dataclass(frozen=True)
class MomentReports(LocalMethod):
    """Every user reports ``svec(x x')`` once."""

    statement: MomentUsers = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    parameter = "mechanism"
    measures: ClassVar[str] = "expected Frobenius norm of the noise in the second moment"

    @abstractmethod
    def law(self, size: int) -> Randomiser:
        """The law of a report of so many numbers."""

    def decide(self, public: Public, statement: MomentUsers) -> Self:
        return self._with(public, statement)

    @property
    def statistic(self) -> Products:
        """What a row is to the report."""
        statement = self.statement
        return Products(self.public.n_features, float(statement.row_norm), bool(statement.unit_rows))

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        statistic = self.statistic
        return [LocalProtocol(statistic, self.law(statistic.size))]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        return {"second_moment": self.statistic.matrix(self.estimate(oracle))}

    def entry_stds(self) -> tuple[float, float]:
        """Of the noise in an entry of one report, for rows of norm 1: of the diagonal, and of another one."""
        noise = self.law(self.statistic.size).noise_std
        return noise, noise / math.sqrt(2)  # svec has the entries off the diagonal times sqrt(2)

    def noise(self) -> MomentNoise:
        """What is public of the estimate."""
        public, r = self.public, float(self.statement.row_norm)
        diagonal, others = (r**2 * std / math.sqrt(public.n_rows) for std in self.entry_stds())
        return MomentNoise(float(public.n_rows), public.n_features, r, diagonal, others)

    def expected_error(self, plan: Plan) -> float | None:
        return self.noise().frobenius


class CapProducts(MomentReports):
    """A random point of a cap around the own products, or of the rest of the sphere."""

    tag, name = "CapProducts", "privunit"

    def law(self, size: int) -> Randomiser:
        return PrivUnit(size, self.public.budget.epsilon)


class NormalCapProducts(MomentReports):
    """The same with normal vectors, for many columns."""

    tag, name = "NormalCapProducts", "privunitg"

    def law(self, size: int) -> Randomiser:
        return PrivUnitG(size, self.public.budget.epsilon)


class HalfSphereProducts(MomentReports):
    """A random point of the half-sphere around the own products, or of the other one."""

    tag, name = "HalfSphereProducts", "hemisphere"

    def law(self, size: int) -> Randomiser:
        return Hemisphere(size, self.public.budget.epsilon)


class NormalProducts(MomentReports):
    """The own products with normal noise: a matrix of the Gaussian orthogonal ensemble."""

    tag, name = "NormalProducts", "goe"

    def decide(self, public: Public, statement: MomentUsers) -> Self:
        if not public.budget.delta:
            raise BudgetError(
                f"mechanism={self.name!r} needs delta > 0: pass delta, far below 1/n_rows, or choose mechanism='auto', "
                "which needs none and has less noise"
            )
        return super().decide(public, statement)

    def law(self, size: int) -> Randomiser:
        budget = self.public.budget
        return GaussianVector(size, budget.epsilon, budget.delta, math.sqrt(2.0))


class LaplaceTriangles(MomentReports):
    """The own products with Laplace noise on the upper triangle, by its l1 norm."""

    tag, name = "LaplaceTriangles", "laplace"

    def law(self, size: int) -> Randomiser:
        return LaplaceProducts(size, self.public.budget.epsilon)

    def entry_stds(self) -> tuple[float, float]:
        std = LaplaceProducts(self.statistic.size, self.public.budget.epsilon).entry_std
        return std, std


MECHANISMS = by_name(CapProducts, NormalCapProducts, HalfSphereProducts, NormalProducts, LaplaceTriangles)


@dataclass(eq=False, repr=False)
class ReportedMoments(MomentEstimator, LocalEstimator):
    """An estimator to whom every user reports ``x x'``; see `SecondMoment`.

    Parameters
    ----------
    mechanism : str or MomentReports, default "auto"
        The law of a report.
    unit_rows : bool, default False
        Scale every row to the norm row_norm, shorter ones as well: the directions of the rows alone count.
    """

    trust = "local"
    offers: ClassVar[Mapping[str, Offered]] = {"mechanism": MECHANISMS}

    _: KW_ONLY
    mechanism: str | MomentReports = "auto"
    unit_rows: bool = False

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Single records at right angles, whose products are as far apart as can be, and one that is none."""
        one, other = np.zeros((1, n_features)), np.zeros((1, n_features))
        one[0, 0] = other[0, -1] = FAR * float(self.row_norm or 1.0)
        even = np.full((1, n_features), float(self.row_norm or 1.0))
        return {
            "rows at right angles": ({"X": one}, {"X": other}),
            "a row and none": ({"X": even}, {"X": np.full((1, n_features), np.nan)}),
        }

    def _chosen(self, public: Public, **beside: Any) -> LocalMethod:
        method = chosen("mechanism", self.mechanism, MECHANISMS)
        if method == "auto":
            kind = MECHANISMS[best_vector(public.n_features * (public.n_features + 1) // 2, public.budget.epsilon).name]
            method = replace(kind(), reason="no other report of a vector has less noise; it needs no delta")
        found: LocalMethod = method.decide(public, MomentUsers(self.row_norm or 1.0, self.unit_rows))
        return found

    def _noise(self, method: Method, plan: Plan) -> MomentNoise:
        assert isinstance(method, MomentReports)
        return method.noise()

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.fidelity_ = self.fidelity
        self.mechanism_, self.mechanism_reason_ = method.name, method.reason

    def _trivial_error(self, method: Method) -> float | None:
        return float(self.row_norm or 1.0) ** 2

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("mechanism", self.mechanism, MECHANISMS)
        if not isinstance(self.unit_rows, bool | np.bool_):
            raise BudgetError(f"unit_rows must be True or False, got {self.unit_rows!r}")


@dataclass(eq=False, repr=False)
class SecondMoment(ReportedMoments):
    """The mean of ``x x'``, from one report of every user; used by whatever is made of it.

    `dpdist.local.PCA`, `SparsePCA`, `SparseCovariance` and `GraphicalLasso` take a fitted one, at no further cost.

    Parameters
    ----------
    mechanism : {"auto", "privunit", "privunitg", "hemisphere", "goe", "laplace"}
        The law of a report; "auto" takes the one with the least noise.
    row_norm : float
        Public bound of the norm of a row, enforced by clipping. Required. The noise grows with its square.
    unit_rows : bool, default False
        Scale every row to that norm, shorter ones as well: the directions of the rows alone count. Often better for
        principal components.
    most_columns : int, default 5000
        More columns are refused: a report has p (p + 1) / 2 numbers.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; ``delta`` for ``"goe"`` only, and so is
        ``fidelity="sum"``.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    second_moment_ : array of shape (p, p)
        Symmetric, unbiased (but for clipping), and indefinite where the noise is larger than the signal.
    off_diagonal_std_, diagonal_std_ : float
        Public standard deviations of the noise in an entry (at most).
    n_samples_ : float
    mechanism_, mechanism_reason_ : str
        What "auto" chose, and why.
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50_000, 3)) * [0.5, 0.3, 0.1]
    >>> moment = SecondMoment(row_norm=1.5, epsilon=2.0, random_state=0).fit(X)
    >>> wrong = abs(moment.second_moment_ - np.diag([0.25, 0.09, 0.01])).max()
    >>> bool(wrong < 4 * moment.diagonal_std_), moment.mechanism_
    (True, 'privunit')
    """

    answers = (Answer.SECOND_MOMENTS,)

    mechanism: str | MomentReports = "auto"
