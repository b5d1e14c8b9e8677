"""Sparse covariance and precision matrices of rows that a trusted coordinator may see.

===================== ==========================================================================================
method                parameters
===================== ==========================================================================================
cov-threshold-dp      ``SparseCovariance(method="threshold")``
cov-noisy             ``SparseCovariance(method="noisy")``: for comparison
glasso-cov-perturb    ``GraphicalLasso(method="covariance")``: the graphical lasso of a released second moment
glasso-output-capped  ``GraphicalLasso(method=OutputPerturbation(cap=...))``: noise on its solution; for comparison
===================== ==========================================================================================

Seed 000, Algorithms 6.2.48, 6.3.50 and 6.3.51, as corrected in spec 06, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.matrices.second_moment import MECHANISMS, MomentMethod, MomentRows, Moments
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.choices import Offered
from dpdist.estimators.moment_covariances import COVARIANCES, CovarianceRule, Covariances
from dpdist.estimators.moment_precisions import CovariancePerturbation, PrecisionRule, Precisions, precision_attributes
from dpdist.estimators.moment_release import MomentEstimator, MomentNoise
from dpdist.estimators.parameters import check_bound, check_count
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import DECIDED, Line, Method, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import SymmetricGaussian
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.symmetric_noise import SymmetricKNorm
from dpdist.queries.capped_precision import CappedPrecision
from dpdist.solvers.spectral import psd_floor

OF_MOMENT = (
    "second_moment_", "off_diagonal_std_", "diagonal_std_", "n_samples_", "row_norm_", "mechanism_",
    "mechanism_reason_",
)  # fmt: skip
"""Attributes that are of a released second moment."""
ENOUGH, TOO_MUCH = 0.1, 0.5
"""Of the sensitivity: what the distance from the exact solution may add, and from where the method is refused."""
MOST_STEPS = 10_000
SMALLEST_EIGENVALUE = 1e-9
"""Relative to the cap; a precision matrix has to be positive definite."""


@dataclass(eq=False, repr=False)
class SparseCovariance(Covariances, Moments):
    """A covariance matrix of bounded rows, most of whose entries are 0: one released second moment, thresholded.

    Parameters
    ----------
    method : {"threshold", "noisy"}, ThresholdedCovariance or NoisyCovariance
        ``"threshold"``: entries that do not stand out of noise and sampling are 0. ``"noisy"``: the release without
        negative eigenvalues, for comparison.
    row_norm, mechanism, unit_rows, centre, most_columns
        Of the release, as in `dpdist.central.SecondMoment`; a fitted one may be passed to `fit` instead.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    covariance_ : array of shape (p, p)
        Without negative eigenvalues.
    sparse_covariance_, support_ : arrays of shape (p, p)
        With exact zeros, and where they are not (``"threshold"`` only).
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_, guarantee_, plan_, releases_, n_features_in_
        As in `dpdist.central.PCA`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(20_000, 10)) * 0.3
    >>> X[:, 1] = (X[:, 0] + X[:, 1]) / 1.5
    >>> model = SparseCovariance(row_norm=1.5, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> [(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(model.support_, 1)))]
    [(0, 1)]
    """

    offers: ClassVar[Mapping[str, Offered]] = {"mechanism": MECHANISMS, "method": COVARIANCES}

    method: str | CovarianceRule = "threshold"
    _: KW_ONLY
    mechanism: str | MomentMethod = "auto"
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]


# --- noise on the solution --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutputPerturbation(PrecisionRule):
    """Noise on the solution of the graphical lasso, whose eigenvalues are capped (glasso-output-capped).

    Worse than noise on the second moment in all that was measured; for comparison. The sensitivity is that of the exact
    solution, ``sqrt(2) r^2 cap^2 / n``, and twice the distance of what a public number of steps finds.

    Parameters
    ----------
    multiple, penalty
        As in `CovariancePerturbation`; the size of a variance is ``row_norm^2 / p``.
    cap : float
        Public bound of the eigenvalues of the precision matrix. Required.
    n_steps : int, optional
        Default: as many as leave a tenth of the sensitivity, at most 10 000.

    Examples
    --------
    >>> from dpdist import GraphicalLasso
    >>> from dpdist.problems.matrix_problems import chain_precision
    >>> data, truth = chain_precision(20_000, 4, random_state=0)
    >>> model = GraphicalLasso(row_norm=3.6, method=OutputPerturbation(cap=4.0),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).precision_[0, :2].round(1)
    array([1.2, 0.5])
    """

    tag, name = "OutputPerturbation", "output"

    cap: float | None = None
    n_steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cap is not None:
            check_bound("cap", self.cap)
        if self.n_steps is not None:
            check_count("n_steps", self.n_steps)


RULES = by_name(CovariancePerturbation, OutputPerturbation)


@dataclass(frozen=True)
class PerturbedPrecision(Method):
    """The release behind `OutputPerturbation`: the solution, with noise."""

    tag, name = "PerturbedPrecision", "output"

    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    rule: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    parameter = "method"
    unsure: ClassVar[str] = (
        "the penalty sets entries to 0 and moves the others by more than the noise does. SecondMoment has intervals"
    )
    measures: ClassVar[str] = "expected Frobenius norm of the noise in the precision matrix"

    def decide(self, public: Public, statement: MomentRows) -> Self:
        rule: OutputPerturbation = self.rule
        if rule.cap is None:
            raise MissingBound(
                "method='output' needs a cap: write method=OutputPerturbation(cap=...), a public bound of the "
                "eigenvalues of the precision matrix (about 4 for standardised columns); the noise has its square"
            )
        if statement.centre is not None:
            raise BudgetError(f"centre={statement.centre!r} is not for method='output': use method='covariance'")
        public.units.need_counted("method='output' divides by the number of rows inside the release")
        if not public.counted:
            raise BudgetError(
                "method='output' divides by the number of rows, which has to be public: use neighbours='replace-one', "
                "or method='covariance'"
            )
        d, r = public.n_features, float(statement.row_norm)
        noiseless = MomentNoise(float(public.n_rows), d, r, 0.0, 0.0)
        penalty = rule.penalty_at(r**2 / d, noiseless)
        query = CappedPrecision(
            public.n_rows, d, r, float(penalty), float(rule.cap), self._steps(rule, d, r, penalty, public.n_rows),
            bool(statement.unit_rows),
        )  # fmt: skip
        added = 2 * query.distance / query.exact_sensitivity
        if added > TOO_MUCH:
            raise BudgetError(
                f"after {query.n_steps} steps the solution may be so far from the exact one that its noise would grow "
                f"by {added:.0%}: use n_rows <= {_rows_for(query):,}, a penalty of at most "
                f"{penalty * TOO_MUCH / added:.2g} or n_steps >= {math.ceil(query.n_steps * added / TOO_MUCH):,}; "
                "or method='covariance', which is better"
            )
        return self._with(public, statement, query=query, rule=rule)

    @staticmethod
    def _steps(rule: OutputPerturbation, d: int, r: float, penalty: float, n: int) -> int:
        if rule.n_steps is not None:
            return rule.n_steps
        wanted = 4 * penalty * math.sqrt(d * (d - 1)) * n / (math.sqrt(2) * r**2 * ENOUGH)
        return min(MOST_STEPS, max(1, math.ceil(wanted)))

    def lines(self) -> Sequence[Line]:
        pure = self.public.budget.delta == 0
        mechanism: Mechanism = SymmetricKNorm(self.public.n_features) if pure else SymmetricGaussian()
        return [Line("precision", mechanism, self.query)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        released = unpack_symmetric(oracle.ask("precision"))
        return {"precision": psd_floor(released, SMALLEST_EIGENVALUE * self.query.cap)}

    def expected_error(self, plan: Plan) -> float | None:
        p = self.public.n_features
        mechanism = plan["precision"].mechanism
        sensitivity = self.query.unit_sensitivity(self.public.neighbours, mechanism.norm, self.public.units)
        return mechanism.noise_std(sensitivity) * math.sqrt(p * (p + 1) / 2)


def _rows_for(query: CappedPrecision) -> int:
    """For how many rows the distance adds no more than what is allowed."""
    added = 2 * query.distance / query.exact_sensitivity
    return max(1, math.floor(query.n_rows * TOO_MUCH / added))


@dataclass(eq=False, repr=False)
class GraphicalLasso(Precisions, Moments):
    """A precision matrix of bounded rows, most of whose entries are 0: two columns are joined where it is not.

    Attributes are those of scikit-learn's ``GraphicalLasso``; there is no ``location_`` (the mean is taken as 0), and
    no path of the solver. Only pairs of columns are penalised, as there.

    Parameters
    ----------
    method : {"covariance", "output"}, CovariancePerturbation or OutputPerturbation
        Noise on the second moment, or on the solution (with a ``cap``; worse, for comparison).
    row_norm, mechanism, unit_rows, centre, most_columns
        Of the release, as in `dpdist.central.SecondMoment`; a fitted one may be passed to `fit` instead. Use
        standardised columns (by public scales) and about ``sqrt(p + 2 sqrt(2 p))``.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    precision_, covariance_ : array of shape (p, p)
    edges_ : array of bool of shape (p, p)
    penalty_ : float
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_
        As in `dpdist.central.PCA`; not with ``method="output"``, which releases none.
    guarantee_, plan_, releases_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50_000, 4))
    >>> X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    >>> model = GraphicalLasso(row_norm=3.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> bool(model.precision_[0, 1] < -1)
    True
    """

    offers: ClassVar[Mapping[str, Offered]] = {"mechanism": MECHANISMS, "method": RULES}
    rules: ClassVar[Offered] = RULES

    method: str | PrecisionRule = "covariance"
    _: KW_ONLY
    mechanism: str | MomentMethod = "auto"
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]

    def _decided(self, public: Public, **beside: Any) -> Method:
        rule = self._rule()
        if isinstance(rule, OutputPerturbation):
            statement = MomentRows(self.row_norm or 1.0, self.unit_rows, self.centre)
            return PerturbedPrecision(rule=rule).decide(public, statement)
        return super()._decided(public, **beside)

    def _check_takes(self, moment: MomentEstimator, n_features: int) -> None:
        if isinstance(self._rule(), OutputPerturbation):
            raise BudgetError(
                "method='output' puts noise on the solution, and makes nothing of a released second moment: fit to "
                "rows, or choose method='covariance'"
            )
        super()._check_takes(moment, n_features)

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        if not isinstance(method, PerturbedPrecision):
            super()._store(method, fitted)
            return
        for name in OF_MOMENT:
            if hasattr(self, name):  # of an earlier fit by the other method
                delattr(self, name)
        for name, value in precision_attributes(np.asarray(fitted["precision"]), method.query.penalty).items():
            setattr(self, f"{name}_", value)

    def _warnings(self, method: Method) -> Sequence[str]:
        return method.warnings() if isinstance(method, PerturbedPrecision) else super()._warnings(method)

    def _expected_error(self, method: Method, plan: Plan) -> float | None:
        if isinstance(method, PerturbedPrecision):
            return method.expected_error(plan)
        return super()._expected_error(method, plan)

    def _measures(self, method: Method) -> str:
        return method.measures if isinstance(method, PerturbedPrecision) else super()._measures(method)
