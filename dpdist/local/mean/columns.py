"""Means of columns, of which every user reports what a chosen epsilon allows.

=================== ================================================ ==================== ============================
domain              methods (the first is "auto")                    parameters           ids
=================== ================================================ ==================== ============================
``"interval"``      ``"hybrid"``, ``"one-bit"``, ``"piecewise"``,    ``low, high``        ldp-avg-1d, duchi-1d,
                    ``"laplace"``, ``"gaussian"``                                         piecewise, hybrid
``"box"``           ``"sample-coordinates"``, ``"one-bit"``          ``low, high``        ldp-avg-vec, coord-sampling
``"l2"``            ``"privunitg"`` or ``"privunit"``,               ``radius``           ldp-vec-privunit, privunit,
                    ``"hemisphere"``, ``"gaussian"``                                      privunitg, ldp-vec-duchi,
                                                                                          duchi-l2, ldp-vec-gauss,
                                                                                          ldp-gauss
``"l1"``            ``"direct"``, ``"projected"``,                   ``radius``,          l1-mean-direct, l1-mean-proj,
                    ``"projected-gaussian"``                         ``l1_radius``        l1-recover, mom-select
``"heavy-tailed"``  ``"hybrid"``, ``"one-bit"``, ``"gaussian"``      ``second_moment``    mean-ldp-pure, mean-ldp-gauss
=================== ================================================ ==================== ============================

Gaussian methods have an (epsilon, delta) guarantee, all others a pure one. Seed 000, sections 5.1 and 7.2, and seed
001, sections 3 and 4, as corrected there and here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.inference import COLUMNS, Inferred, feature_names, vector_parameters
from dpdist.estimators.parameters import check_between, check_bound, check_count, check_end, choice
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.mean.mean_methods import METHODS, GaussianReports, MeanMethod, automatic
from dpdist.local.mean.mean_statement import DOMAINS, Records
from dpdist.local.survey.levels import check_levels
from dpdist.method import Method, Public
from dpdist.privacy.budget import Budget


@dataclass(eq=False, repr=False)
class Mean(LocalEstimator):
    """The mean of every column, from one report of every user.

    Parameters
    ----------
    domain : {"interval", "box", "l2", "l1", "heavy-tailed"}
        What is known of a record: one number in ``[low, high]``; several such numbers; a vector of norm at most
        ``radius``; the same, where the mean has an l1 norm of at most ``l1_radius``; or only how large the mean square
        of an entry is about.
    method : str or MeanMethod
        Law of the reports, see the table of this module; "auto" takes the one with the least noise.
    low, high : float, optional
        For intervals and boxes.
    radius : float, optional
        For "l2" and "l1".
    l1_radius : float, optional
        For "l1"; where it is not known, what does not stick out of the noise is set to 0 ("direct" only).
    second_moment : float, optional
        For "heavy-tailed": public guess of the mean square of an entry; it sets the scale, and a factor of 10 in it
        costs a factor of 2 in the error.
    n_groups : int, default 1
        Take the mean of that many groups of users, and of these the one in the middle (`median_select`). For groups
        that might be corrupted as a whole; otherwise one group is better.
    epsilon_levels : sequence of float, optional
        Public levels of privacy, in place of ``epsilon``, for intervals and "l2": ``fit(X, y)`` then takes every user's
        own epsilon as y, a public number that must not depend on the record, and each reports at the largest level that
        is not above it. The means of the levels are weighted by the inverse of their variances.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    mean_ : array of shape (n_features,)
    standard_error_ : float
        Of an entry of the mean of the reports (before an l1 norm is used), at the worst records; public. What is lost
        by a truncation is not in it.
    method_, method_reason_ : str
        What "auto" chose, and why.
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(20, 60, size=(50_000, 1))
    >>> model = Mean("interval", low=0.0, high=100.0, epsilon=1.0, random_state=0).fit(X)
    >>> bool(abs(model.mean_[0] - 40) < 5 * model.standard_error_), model.method_
    (True, 'hybrid')
    """

    answers = (Answer.MEANS,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    domain: str = "box"
    method: str | MeanMethod = "auto"
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    radius: float | None = None
    l1_radius: float | None = None
    second_moment: float | None = None
    n_groups: int = 1
    epsilon_levels: Sequence[float] | None = None

    @property
    def labelled(self) -> bool:  # type: ignore[override]
        """Whether every user's epsilon is read."""
        return self.epsilon_levels is not None

    def fit(self, X: Any, y: Any = None, **others: Any) -> Self:
        """Fit to an array (``fit(X)``) or to the array X of a stored dataset (``fit(dataset)``).

        y is ignored, unless there are ``epsilon_levels``: then it is (or the dataset's array y) every user's epsilon.
        """
        return self._fit(X, y, **others)

    def _chosen(self, public: Public, **beside: Any) -> MeanMethod:
        if self.domain == "interval" and public.n_features != 1:
            raise DataError(
                f"domain='interval' is for one number per user, got {public.n_features} columns; use domain='box'"
            )
        check_between("n_groups", self.n_groups, 1, public.n_rows)
        method = chosen("method", self.method, METHODS)
        if method == "auto":
            method = automatic(self.domain, public.n_features, self.epsilon)
        numbers = {
            name: getattr(self, name)
            for name in ("domain", "low", "high", "radius", "l1_radius", "second_moment", "n_groups")
        }
        levels = () if self.epsilon_levels is None else tuple(float(level) for level in self.epsilon_levels)
        found: MeanMethod = method.decide(public, Records(**numbers, levels=levels))
        return found

    def _parameters(self, method: Method, known: Any) -> Inferred | str:
        found = vector_parameters(
            known,
            self.mean_,
            feature_names(self, self.n_features_in_),
            "Rests on the noise of a report at the worst record, and on records in a range varying as much as they "
            "can: rather too wide, the more so the larger epsilon is.",
        )
        return found if isinstance(found, str) else replace(found, alone=COLUMNS)

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.method_, self.method_reason_ = method.name, method.reason

    def _check_parameters(self) -> None:
        super()._check_parameters()
        Budget(self.epsilon, self.delta or 0.0)
        choice("domain", self.domain, DOMAINS)
        self._check_method(chosen("method", self.method, METHODS))
        for name in ("low", "high"):
            if getattr(self, name) is not None:
                check_end(name, getattr(self, name), 1e60)
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise MissingBound(f"low must lie below high, got low={self.low!r} and high={self.high!r}")
        for name in ("radius", "l1_radius", "second_moment"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        if self.epsilon_levels is not None:
            self._check_levels(self.epsilon_levels)
        check_count("n_groups", self.n_groups)

    def _check_method(self, method: Any) -> None:
        if method == "auto":
            return
        offered = [name for name, kind in METHODS.items() if self.domain in kind.domains]
        if self.domain not in method.domains:
            raise BudgetError(
                f"method={method.name!r} is not for domain={self.domain!r}; choose one of "
                f"{', '.join(map(repr, ['auto', *offered]))}"
            )

    def _check_levels(self, levels: Sequence[float]) -> None:
        if self.domain not in ("interval", "l2") or isinstance(chosen("method", self.method, METHODS), GaussianReports):
            raise BudgetError("epsilon_levels are for domain='interval' and domain='l2', with methods without a delta")
        check_levels(levels)
