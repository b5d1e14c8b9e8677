"""Sparse linear regression in the local model: a few of many features matter, and every user reports once.

======================= ======================================================================= =====================
method                  parameters (with ``n_nonzero`` and ``noise_bound``)                     source
======================= ======================================================================= =====================
ldp-iht                 ``method="iht", design="sign"``                                         000, Algorithm 5.3.41
ldp-iht-subgauss        ``method="iht", design="isotropic"``                                    004, Algorithm 2
ldp-iht-general         ``method="iht", design="general"``                                      004, Algorithm 4
ldp-iht-nonlinear       ``method="iht", link=...``                                              000, Algorithm 5.3.44
nldp-marginal           ``method="marginal"``: one round of ldp-iht                             -
ldp-two-phase           ``method="two-phase"``                                                  -
nldp-sparse-lr          ``method="statistics"`` (``threshold="soft"``: as published)            004, Algorithm 1
nldp-ols                ``method="statistics", threshold=None``                                 004, Remark 3
nldp-sparse-lr-public   ``method="public-covariance"``, public rows in ``fit``                  004, Algorithm 3
nldp-sparse-lr-heavy    ``label_moment=(q, M)`` with any of the last two                        004, Theorem 5
label-ldp-iht           ``private="label"``                                                     000, Algorithm 5.3.42
label-ldp-lasso         ``private="label", method="lasso"``                                     000, section 5.3.3
label-ldp-iht-nonlinear ``private="label", link=...``                                           000, Algorithm 5.3.45
======================= ======================================================================= =====================

Seeds 000 and 004, as corrected here: see `dpdist.local.statistics.residuals`, `dpdist.local.linear.label_private` and
`dpdist.local.sparse.rounds`. Every report is epsilon-private for any record, and each user sends one, so that rounds
cost nothing; thresholds, projections and inverses are post-processing of reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.data import Dataset
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.inputs import check_public_rows
from dpdist.estimators.parameters import check_between, check_bound, check_count
from dpdist.estimators.parameters import choice as one_of
from dpdist.local.linear.label_private import LabelLasso, LabelThresholding
from dpdist.local.linear.links import LINKS, Link, refuse_even
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.sparse.rounds import IterativeThresholding, Marginal, SparseMethod, TwoPhase, automatic
from dpdist.local.sparse.sparse_statement import Design, General, Isotropic, Sign, SparseProblem
from dpdist.local.sparse.statistics import FromStatistics, WithPublicDesign
from dpdist.local.survey.reports import FIDELITIES
from dpdist.method import Method, Public, by_name

PRIVATE = ("record", "label")
RECORD_METHODS = by_name(IterativeThresholding, Marginal, TwoPhase, FromStatistics, WithPublicDesign)
LABEL_METHODS = by_name(LabelThresholding, LabelLasso)
DESIGNS = by_name(Sign, Isotropic, General)
MOST_JOINT = 30
"""With more features than that, a joint report of second moments needs tens of millions of users."""


@dataclass(eq=False, repr=False)
class SparseRegression(RegressorMixin, LocalEstimator):
    """``y = f(<x, theta>) + noise`` with few nonzero coefficients and no intercept.

    Features are taken to have a mean square of about 1 (divide them by public scales before). All bounds are public
    guesses: a wrong one costs accuracy, never privacy.

    Parameters
    ----------
    n_nonzero : int
        How many coefficients may differ from 0, about as many as are expected to matter.
    method : str or SparseMethod
        See the table at the top of this module. "auto": with private labels "iht"; with public rows
        "public-covariance"; for a general design with unknown covariance "statistics" up to 30 features and
        "two-phase" beyond; otherwise "iht" or "two-phase", by the predicted error, features that are missed included
        (`method_reason_` lists the predictions).
    private : {"record", "label"}
        "label": features are public, and the guarantee covers the label only: exact sums of features are released. In
        the ledger such a run counts like any other, so keep datasets whose features are private out of it.
    link : Link or {"identity", "wave"}
        f; see `dpdist.local.linear.links`.
    design : {"sign", "isotropic", "general"}, Sign, Isotropic or General
        Features that are -1 or 1, independent and fair; dense and uncorrelated; or correlated,
        ``General(eigenvalues=(low, high), covariance=...)`` with what is public of ``E x x'``.
    radius : float
        R: norm of the coefficients, at most.
    noise_bound : float
        C: about the size of the noise in a label. Required (unless ``label_bound`` is given).
    feature_bound, row_norm : float, optional
        Where features are cut, and rows are scaled down. Default: 1 and ``sqrt(d)`` for signs; for dense features
        nothing (2.5 if they are reported one by one) and 1.05 to 1.2 times ``sqrt(d)``. With private labels,
        public features are cut at 8.
    label_bound : float, optional
        Where labels are clipped (after ``f^{-1}``). Default: ``2 R + C``; for "statistics" and "public-covariance" two
        standard deviations, ``2 sqrt(R^2 + C^2 / 4)``.
    label_moment : (q, M), optional
        ``E |y|^(2 q) <= M`` for labels with heavy tails: sets where they are clipped, by the number of users.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
        0.
    method_, method_reason_ : str
        What was done, and why.
    noise_std_ : dict
        Predicted noise of a nonzero coefficient.
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> from dpdist.problems.sparse_problems import sparse_design
    >>> data, truth = sparse_design(50_000, 16, n_nonzero=2, random_state=1)
    >>> model = SparseRegression(2, design="sign", noise_bound=0.05, epsilon=2.0, random_state=0).fit(data)
    >>> bool(np.linalg.norm(model.coef_ - truth) < 0.1), model.method_
    (True, 'iht')
    """

    answers = (Answer.NUMBERS, Answer.COEFFICIENTS)
    offers: ClassVar[Mapping[str, Offered]] = {"method": {**RECORD_METHODS, "lasso": LabelLasso}, "design": DESIGNS}

    n_nonzero: int = 5
    method: str | SparseMethod = "auto"
    _: KW_ONLY
    private: str = "record"
    link: Link | str = "identity"
    design: str | Design = "general"
    radius: float = 1.0
    noise_bound: float | None = None
    feature_bound: float | None = None
    row_norm: float | None = None
    label_bound: float | None = None
    label_moment: tuple[float, float] | None = None

    def offered(self, parameter: str) -> Offered:
        return LABEL_METHODS if parameter == "method" and self.private == "label" else super().offered(parameter)

    def fit(self, X: Any, y: Any = None, *, public_X: Any = None, **others: Any) -> Self:
        """Fit to arrays or to a stored dataset.

        Parameters
        ----------
        X, y : array-likes, or a Dataset
        public_X : array-like or Dataset, optional
            Features of other people, without labels, that are public: for ``method="public-covariance"``.
        """
        return self._fit(X, y, public_X=public_X, **others)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """``f(<x, theta>)``."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype="numeric")
        return self._link.value(X @ self.coef_)

    def _chosen(self, public: Public, **beside: Any) -> SparseMethod:
        problem, rows = self._problem(public.n_features), beside.get("public_X")
        if self.private == "label":
            asked = chosen("method", self.method, LABEL_METHODS)
            found: SparseMethod = (LabelThresholding() if asked == "auto" else asked).decide(public, problem)
            return found
        method = chosen("method", self.method, RECORD_METHODS)
        if method == "auto":
            method = self._automatic(public, problem, rows is not None)
        found = method if method.public is not None else method.decide(public, problem)
        if not isinstance(found, WithPublicDesign):
            return found
        if rows is not None:
            return found.given(_public_blocks(rows, public.n_features))
        if "public_X" in beside and problem.unknown:
            raise MissingBound(
                "method='public-covariance' needs second moments: pass fit(..., public_X=rows) or "
                "design=General(covariance=...), or choose design='isotropic' if features are uncorrelated"
            )
        return found

    @staticmethod
    def _automatic(public: Public, problem: SparseProblem, has_public_rows: bool) -> SparseMethod:
        """The method by public numbers, with its reason."""
        if has_public_rows:
            return replace(WithPublicDesign(), reason="there are public rows")
        if problem.unknown:
            small = public.n_features <= MOST_JOINT
            reason = f"the covariance is not known, and there are {public.n_features} features (limit {MOST_JOINT})"
            return replace(FromStatistics() if small else TwoPhase(), reason=reason)
        return automatic(public, problem)

    def _problem(self, n_features: int) -> SparseProblem:
        design = chosen("design", self.design, DESIGNS)
        if isinstance(design, General) and design.covariance is not None:
            matrix = np.asarray(design.covariance, dtype=np.float64)
            if matrix.shape != (n_features, n_features) or not np.isfinite(matrix).all():
                raise BudgetError(f"covariance must be a finite matrix of shape {(n_features, n_features)}")
            design = replace(design, covariance=matrix)
        return SparseProblem(
            n_features=n_features,
            n_nonzero=min(self.n_nonzero, n_features),
            noise_bound=float(self.noise_bound or 0.0),
            radius=float(self.radius),
            design=design,
            link=self._link,
            feature_bound=_number(self.feature_bound),
            row_norm=_number(self.row_norm),
            label_bound=_number(self.label_bound),
            label_moment=None if self.label_moment is None else (float(self.label_moment[0]), self.label_moment[1]),
        )

    @property
    def _link(self) -> Link:
        return LINKS[self.link] if isinstance(self.link, str) else self.link

    def _trivial_error(self, method: Method) -> float:
        return self.radius

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.method_, self.method_reason_ = method.name, method.reason

    def _check_parameters(self) -> None:
        super()._check_parameters()
        one_of("private", self.private, PRIVATE)
        self._check_method()
        chosen("design", self.design, DESIGNS)
        one_of("fidelity", self.fidelity, FIDELITIES)
        if isinstance(self.link, str):
            one_of("link", self.link, tuple(LINKS))
        elif not isinstance(self.link, Link):
            raise BudgetError(f"link must be a name or a dpdist.local.linear.links.Link, got {self.link!r}")
        else:
            refuse_even(f"link={self.link!r}", self.link.value, self.link.derivative)
        check_count("n_nonzero", self.n_nonzero)
        check_bound("radius", self.radius)
        check_between("epsilon", self.epsilon, 1e-6, 1e4)
        for name in ("noise_bound", "feature_bound", "row_norm", "label_bound"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        if self.noise_bound is None and self.label_bound is None and self.label_moment is None:
            raise MissingBound(
                "noise_bound is missing: pass a public guess of the size of the noise in a label (with radius it sets "
                "where labels are clipped), or label_bound itself"
            )
        self._check_pairs()

    def _check_method(self) -> None:
        """Refuse a method for the other kind of privacy."""
        try:
            chosen("method", self.method, LABEL_METHODS if self.private == "label" else RECORD_METHODS)
        except BudgetError as error:
            raise BudgetError(f"{error} (for private={self.private!r})") from None

    def _check_pairs(self) -> None:
        design = chosen("design", self.design, DESIGNS)
        pairs = {"label_moment": self.label_moment, "eigenvalues": getattr(design, "eigenvalues", None)}
        for name, pair in pairs.items():
            if pair is None:
                continue
            if not (isinstance(pair, list | tuple) and len(pair) == 2):
                raise MissingBound(f"{name} must be two numbers, got {pair!r}")
            for value in pair:
                check_bound(name, value)
        if isinstance(design, General) and design.eigenvalues[0] > design.eigenvalues[1]:
            raise MissingBound(f"eigenvalues must be (smallest, largest), got {design.eigenvalues!r}")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _public_blocks(public: Any, n_features: int) -> Iterator[NDArray[Any]]:
    """Public rows, a partition at a time."""
    stored = isinstance(public, Dataset)
    blocks = (public.read(*part)["X"] for part in public.partitions) if stored else [np.asarray(public)]
    for rows in blocks:
        check_public_rows(rows, n_features)
        yield rows
