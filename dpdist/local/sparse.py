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

Seeds 000 and 004, as corrected here: see `dpdist.local.residuals`, `dpdist.local.label_private` and
`dpdist.local.sparse_rounds`. Every report is epsilon-private for any record, and each user sends one, so that rounds
cost nothing; thresholds, projections and inverses are post-processing of reports.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.data import Dataset
from dpdist.errors import BudgetError, MissingBound
from dpdist.fitting.columns import features, targets
from dpdist.fitting.inputs import as_dataset, check_public_rows
from dpdist.fitting.outlook import Outlook, outlook
from dpdist.fitting.parameters import check_between, check_bound, check_count
from dpdist.fitting.parameters import choice as one_of
from dpdist.identity import text
from dpdist.local.estimator import LocalEstimator
from dpdist.local.label_private import LabelPlan
from dpdist.local.links import LINKS, Link
from dpdist.local.protocol import LocalProtocol
from dpdist.local.reports import FIDELITIES, Fidelity
from dpdist.local.sparse_rounds import Descent, Plan, Setting, TwoPhase, automatic
from dpdist.local.sparse_statistics import FromStatistics, WithPublicDesign

METHODS = {
    "record": ("auto", "iht", "marginal", "two-phase", "statistics", "public-covariance"),
    "label": ("auto", "iht", "lasso"),
}
DESIGNS = ("sign", "isotropic", "general")
REPORTS = ("auto", "coordinates", "vector", "hemisphere", "gaussian", "one-bit")
THRESHOLDS = ("auto", "iht", "soft", "hard", None)
MOST_JOINT = 30
"""With more features than that, a joint report of second moments needs tens of millions of users."""
ERROR = "expected distance of the coefficients to the true ones, if the true ones were found to be the nonzero ones"


class SparseRegression(RegressorMixin, LocalEstimator):
    """``y = f(<x, theta>) + noise`` with few nonzero coefficients and no intercept.

    Features are taken to have a mean square of about 1 (divide them by public scales before). All bounds are public
    guesses: a wrong one costs accuracy, never privacy.

    Parameters
    ----------
    n_nonzero : int
        How many coefficients may differ from 0, about as many as are expected to matter.
    method : str
        See the table at the top of this module. "auto": with private labels "iht"; with public rows
        "public-covariance"; for a general design with unknown covariance "statistics" up to 30 features and
        "two-phase" beyond; otherwise "iht" with four rounds, "two-phase" or a single round, by the predicted noise.
    private : {"record", "label"}
        "label": features are public, and the guarantee covers the label only: exact sums of features are released. In
        the ledger such a run counts like any other, so keep datasets whose features are private out of it.
    link : Link or {"identity", "wave"}
        f; see `dpdist.local.links`.
    link_mode : {"invert", "gradient"}
        Whether users put ``f^{-1}(y)`` in the place of y (less noise), or the gradient goes through f.
    design : {"sign", "isotropic", "general"}
        Features that are -1 or 1, independent and fair; dense and uncorrelated; or correlated, with eigenvalues of
        ``E x x'`` between ``eigenvalues``.
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
    eigenvalues : (low, high)
        Public bounds of the eigenvalues of ``E x x'``.
    covariance : array, optional
        ``E x x'``, where it is public.
    threshold : {"auto", "iht", "soft", "hard"} or None
        What makes an estimate from moments sparse; "auto" is "iht" for "statistics" and "hard" for
        "public-covariance".
    threshold_scale : float
        For "soft": times the largest that noise alone is expected to be.
    n_rounds : int, optional
        Of "iht"; default by a public rule.
    reports : {"auto", "coordinates", "vector", "hemisphere", "gaussian", "one-bit"}
        The law of the reports. "auto": by coordinates for signs, `dpdist.local.vectors.best_vector` for dense rows;
        "gaussian" needs delta; "one-bit" is for labels.
    epsilon, delta, fidelity
        As in `dpdist.local.estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

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
        As in `dpdist.central.minimizer.Minimizer`.

    Examples
    --------
    >>> from dpdist.data.sparse_designs import sparse_design
    >>> data, truth = sparse_design(50_000, 16, n_nonzero=2, random_state=1)
    >>> model = SparseRegression(2, design="sign", noise_bound=0.05, epsilon=2.0, random_state=0).fit(data)
    >>> bool(np.linalg.norm(model.coef_ - truth) < 0.1), model.method_
    (True, 'iht')
    """

    def __init__(
        self,
        n_nonzero: int = 5,
        method: str = "auto",
        *,
        private: str = "record",
        link: Link | str = "identity",
        link_mode: str = "invert",
        design: str = "general",
        radius: float = 1.0,
        noise_bound: float | None = None,
        feature_bound: float | None = None,
        row_norm: float | None = None,
        label_bound: float | None = None,
        label_moment: tuple[float, float] | None = None,
        eigenvalues: tuple[float, float] = (0.5, 2.0),
        covariance: Any = None,
        threshold: str | None = "auto",
        threshold_scale: float = 0.5,
        n_rounds: int | None = None,
        reports: str = "auto",
        epsilon: float = 1.0,
        delta: float | None = None,
        fidelity: Fidelity = "report",
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_nonzero = n_nonzero
        self.method = method
        self.private = private
        self.link = link
        self.link_mode = link_mode
        self.design = design
        self.radius = radius
        self.noise_bound = noise_bound
        self.feature_bound = feature_bound
        self.row_norm = row_norm
        self.label_bound = label_bound
        self.label_moment = label_moment
        self.eigenvalues = eigenvalues
        self.covariance = covariance
        self.threshold = threshold
        self.threshold_scale = threshold_scale
        self.n_rounds = n_rounds
        self.reports = reports
        self.epsilon = epsilon
        self.delta = delta
        self.fidelity = fidelity
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, public_X: Any = None) -> SparseRegression:
        """Fit to arrays or to a stored dataset.

        Parameters
        ----------
        X, y : array-likes, or a Dataset
        public_X : array-like or Dataset, optional
            Features of other people, without labels, that are public: for ``method="public-covariance"``.
        """
        self._check_parameters()
        dataset = as_dataset(self, X, y).select(X="X", y="y")
        n, p = dataset.n_rows, self.n_features_in_
        method, plan = self._decided(n, p, public_X is not None)
        extra: tuple[Any, ...] = ()
        if isinstance(plan, WithPublicDesign) and public_X is not None:
            extra = plan.moments(_public_blocks(public_X, p))
        elif isinstance(plan, WithPublicDesign) and self.design == "general" and self.covariance is None:
            raise MissingBound(
                "method='public-covariance' needs second moments: pass fit(..., public_X=rows) or covariance, or "
                "choose design='isotropic' if features are uncorrelated"
            )
        for warning in self._warnings(plan):
            warnings.warn(warning, UserWarning, stacklevel=2)
        arrays = {"X": features, "y": targets}
        queries = plan.queries(self.fidelity)
        with self._questions(dataset, arrays, plan.protocols, text((method, plan)), queries) as questions:
            self.coef_ = plan.solve(questions, *extra)
        self.intercept_ = 0.0
        self.method_, self.method_reason_ = method, plan.reason
        self.noise_std_ = {"coef_": plan.std}
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """``f(<x, theta>)``."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype="numeric")
        return self._link.value(X @ self.coef_)

    def outlook(self, n_rows: int, n_features: int) -> Outlook:
        """What to expect of a fit: predicted from public numbers, and what it would take where that is bad."""
        self._check_parameters()
        check_count("n_rows", n_rows)
        check_count("n_features", n_features)

        def predict(n: int, epsilon: float) -> float:
            plan = self._decided(n, n_features, False, epsilon)[1]
            return math.sqrt(min(self.n_nonzero, n_features)) * plan.std

        found = outlook(predict, self.radius, ERROR, n_rows, self.epsilon)
        plan = self._decided(n_rows, n_features, False)[1]
        return found if found.warnings else replace(found, warnings=tuple(self._warnings(plan)))

    def _protocols(self, n_rows: int, n_features: int) -> Sequence[LocalProtocol]:
        return self._decided(n_rows, n_features, False)[1].protocols

    def _decided(self, n_rows: int, n_features: int, public: bool, epsilon: float | None = None) -> tuple[str, Plan]:
        """Name and plan of the method, from public numbers."""
        setting = self._setting(n_rows, n_features, epsilon)
        if self.private == "label":
            method = "lasso" if self.method == "lasso" else "iht"
            return method, LabelPlan(setting, method)
        method, reason = self.method, "as asked"
        if method == "auto" and public:
            method, reason = "public-covariance", "there are public rows"
        elif method == "auto" and setting.design == "general" and setting.covariance is None and not setting.curved:
            small = n_features <= MOST_JOINT
            method = "statistics" if small else "two-phase"
            reason = f"the covariance is not known, and there are {n_features} features (limit {MOST_JOINT})"
        if method == "auto":
            plan = automatic(setting)
            return "two-phase" if isinstance(plan, TwoPhase) else "iht", plan
        if method == "statistics":
            return method, FromStatistics(setting, reason)
        if method == "public-covariance":
            return method, WithPublicDesign(setting, reason)
        if method == "two-phase":
            return method, TwoPhase(setting, reason)
        return method, Descent.of(setting, n_rounds=1 if method == "marginal" else None)

    def _setting(self, n_rows: int, n_features: int, epsilon: float | None = None) -> Setting:
        covariance = None
        if self.covariance is not None:
            matrix = np.asarray(self.covariance, dtype=np.float64)
            if matrix.shape != (n_features, n_features) or not np.isfinite(matrix).all():
                raise BudgetError(f"covariance must be a finite matrix of shape {(n_features, n_features)}")
            covariance = tuple(map(tuple, matrix.tolist()))
        return Setting(
            n_rows=n_rows,
            n_features=n_features,
            n_nonzero=min(self.n_nonzero, n_features),
            epsilon=float(self.epsilon if epsilon is None else epsilon),
            delta=float(self.delta or 0.0),
            noise_bound=float(self.noise_bound or 0.0),
            radius=float(self.radius),
            design=self.design,
            reports=self.reports,
            link=self._link,
            link_mode=self.link_mode,  # type: ignore[arg-type]
            feature_bound=_number(self.feature_bound),
            row_norm=_number(self.row_norm),
            label_bound=_number(self.label_bound),
            label_moment=None if self.label_moment is None else (float(self.label_moment[0]), self.label_moment[1]),
            eigenvalues=(float(self.eigenvalues[0]), float(self.eigenvalues[1])),
            covariance=covariance,
            threshold=self.threshold,
            threshold_scale=float(self.threshold_scale),
            n_rounds=self.n_rounds,
        )

    @property
    def _link(self) -> Link:
        return LINKS[self.link] if isinstance(self.link, str) else self.link

    def _warnings(self, plan: Plan) -> list[str]:
        """What public numbers say against a fit."""
        setting: Setting = plan.setting  # type: ignore[attr-defined]
        p, s = setting.n_features, setting.n_nonzero
        if math.sqrt(s) * plan.std >= setting.radius:
            return [
                "the noise in the coefficients is expected to be as large as they are: take more users, a larger "
                "epsilon, or fewer features (outlook() says how many)"
            ]
        level = math.sqrt(2 * math.log(max(2, p))) * plan.search_std
        if level > setting.radius / math.sqrt(s):
            return [
                f"coefficients below {level:.2g} cannot be told from noise among {p} features, and {s} of them are at "
                f"most {setting.radius / math.sqrt(s):.2g} if they are alike: expect wrong ones (see outlook())"
            ]
        return []

    def _check_parameters(self) -> None:
        super()._check_parameters()
        one_of("private", self.private, tuple(METHODS))
        one_of("method", self.method, METHODS[self.private])
        one_of("design", self.design, DESIGNS)
        one_of("reports", self.reports, REPORTS)
        one_of("link_mode", self.link_mode, ("invert", "gradient"))
        one_of("fidelity", self.fidelity, FIDELITIES)
        if self.threshold not in THRESHOLDS:
            raise BudgetError(f"threshold must be one of {', '.join(map(repr, THRESHOLDS))}, got {self.threshold!r}")
        if isinstance(self.link, str):
            one_of("link", self.link, tuple(LINKS))
        elif not isinstance(self.link, Link):
            raise BudgetError(f"link must be a name or a dpdist.local.links.Link, got {self.link!r}")
        check_count("n_nonzero", self.n_nonzero)
        check_bound("radius", self.radius)
        for name in ("noise_bound", "feature_bound", "row_norm", "label_bound"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        if self.noise_bound is None and self.label_bound is None and self.label_moment is None:
            raise MissingBound(
                "noise_bound is missing: pass a public guess of the size of the noise in a label (with radius it sets "
                "where labels are clipped), or label_bound itself"
            )
        self._check_pairs()
        check_between("threshold_scale", self.threshold_scale, 0.0, 100.0)
        if self.n_rounds is not None:
            check_count("n_rounds", self.n_rounds)
        self._check_reports()

    def _check_pairs(self) -> None:
        pairs = {"eigenvalues": self.eigenvalues, "label_moment": self.label_moment}
        for name, pair in pairs.items():
            if pair is None and name == "label_moment":
                continue
            if not (isinstance(pair, list | tuple) and len(pair) == 2):
                raise MissingBound(f"{name} must be two numbers, got {pair!r}")
            for value in pair:
                check_bound(name, value)
        if self.eigenvalues[0] > self.eigenvalues[1]:
            raise MissingBound(f"eigenvalues must be (smallest, largest), got {self.eigenvalues!r}")

    def _check_reports(self) -> None:
        check_between("epsilon", self.epsilon, 1e-6, 1e4)
        if self.reports == "gaussian" and not self.delta:
            raise BudgetError("reports='gaussian' needs delta: pass delta, far below 1/n_rows")
        if self.reports == "one-bit" and self.private == "record":
            raise BudgetError("reports='one-bit' is for private='label'; choose 'coordinates' or 'vector'")
        joint = self.method in ("statistics", "public-covariance", "two-phase")
        if self.reports == "coordinates" and (joint or self.private == "label"):
            raise BudgetError(f"reports='coordinates' is for rounds of gradients, not for method={self.method!r}")
        if self.reports in ("vector", "hemisphere") and self.private == "label":
            raise BudgetError(f"reports={self.reports!r} is for private='record'; a label is a number")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _public_blocks(public: Any, n_features: int) -> Iterator[NDArray[Any]]:
    """Public rows, a partition at a time."""
    stored = isinstance(public, Dataset)
    blocks = (public.read(*part)["X"] for part in public.partitions) if stored else [np.asarray(public)]
    for rows in blocks:
        check_public_rows(rows, n_features)
        yield rows
