"""What every estimator in the local model shares: users who randomise their own rows and report once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self, cast

import numpy as np

from dpdist.data import ROWS, Units
from dpdist.engine.checks import check_one_report
from dpdist.errors import BudgetError, DataError, warn_caller
from dpdist.estimators.estimator import Estimator, planned
from dpdist.local.local_method import Answered, LocalMethod
from dpdist.local.survey.levels import Leveled
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.reports import Fidelity
from dpdist.local.survey.simulation import Collected
from dpdist.method import Method, Public, Vector
from dpdist.privacy.audit.worst_neighbours import Pair, one_category, one_record


@dataclass(eq=False, repr=False)
class LocalEstimator(Estimator):
    """An estimator whose users randomise their own rows.

    Subclasses have the parameters ``epsilon``, ``delta``, ``fidelity``, ``ledger``, ``cluster``, ``run_id``,
    and ``random_state``.

    Parameters
    ----------
    epsilon : float
        What the report of a user may tell, whoever sees it; every user sends one.
    delta : float, optional
        For methods with Gaussian reports only; the others have a pure guarantee and refuse it.
    fidelity : {"report", "sum"}
        As in `dpdist.local.survey.simulation.simulate`.
    """

    _: KW_ONLY
    fidelity: str = "report"

    def protocol(self, n_rows: int, n_features: int, group: int = 0, **beside: Any) -> LocalProtocol:
        """What a user of a group is asked, for devices (`LocalProtocol.randomise`) and `dpdist.local.simulate`.

        ``beside`` is what ``fit`` takes beside rows and labels, such as ``public_X``.
        """
        return self._method_for(n_rows, n_features, **beside).protocols[group]

    def n_questions(self, n_rows: int, n_features: int) -> int:
        """How many groups of users are asked one after another."""
        return len(self._method_for(n_rows, n_features).protocols)

    def fit_reports(self, reports: Collected, n_rows: int, n_features: int, **beside: Any) -> Self:
        """Fit to what real users sent, as `dpdist.local.aggregate` added it up; nothing is charged.

        Parameters
        ----------
        reports : Aggregated
            The answers to ``protocol(n_rows, n_features, **beside)``.
        n_rows, n_features
            Of the question: how many users were expected. Those who came may be more or fewer. What is fitted of each
            of them (abilities) is in the order of their reports.

        Examples
        --------
        >>> from dpdist import local
        >>> model = local.Mean(domain="box", low=0.0, high=1.0, epsilon=1.0)
        >>> survey = local.Survey(model.protocol(50_000, 2))
        >>> reports = local.simulate(survey.protocol, {"X": np.full((40_000, 2), 0.3)}, random_state=0)
        >>> model.fit_reports(reports, 50_000, 2).mean_.round(1).tolist()
        [0.3, 0.3]
        """
        if not isinstance(reports, Collected):
            raise DataError(
                f"reports are added up first, by dpdist.local.aggregate(survey, reports); got {type(reports).__name__}"
            )
        method = self._method_for(n_rows, n_features, **beside)
        if len(method.protocols) != 1:
            raise DataError(
                f"{method.name!r} asks {len(method.protocols)} groups of users one after another, and what it asks "
                "depends on what they answered: reports to one question do not make a fit"
            )
        if reports.protocol != method.protocols[0]:
            raise DataError(
                "these are reports to another question than this estimator asks: make it with the parameters, the "
                "numbers of users and features and the public rows that the question was written with"
            )
        method = replace(method, public=replace(method.public, n_rows=reports.n_users))
        oracle = Answered(method.queries()[0].of_collected(reports), reports.n_users)
        fitted = method.solve(oracle)
        self.n_features_in_ = n_features
        self.plan_, self.guarantee_, self.releases_ = planned(method), reports.guarantee, []
        self.history_ = oracle.history
        self._finish(method, fitted)
        return self

    def first_point(self, n_features: int) -> Vector:
        """The public parameter at which the first group is asked."""
        return np.zeros(n_features)

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Pairs of single records: what has to be private is the report of a user."""
        statistic = self.protocol(n_rows, n_features).statistic
        asked = statistic.statistic if isinstance(statistic, Leveled) else statistic
        pairs = one_category(*asked.two_categories) if asked.domain == "category" else one_record(n_features)
        if isinstance(statistic, Leveled):  # which level a user has is public, so both records have the same
            level = {"y": np.array([statistic.levels[-1]])}
            return {name: ({**one, **level}, {**other, **level}) for name, (one, other) in pairs.items()}
        return pairs

    def _check_units(self, units: Units) -> None:
        check_one_report(units)

    @abstractmethod
    def _chosen(self, public: Public, **beside: Any) -> LocalMethod:
        """The method with all its public choices made, whatever the fidelity."""

    def _decided(self, public: Public, **beside: Any) -> LocalMethod:
        return replace(self._chosen(public, **beside), fidelity=cast(Fidelity, self.fidelity))

    def _method(self, n_rows: int, n_features: int, units: Units, **beside: Any) -> Method:
        method = super()._method(n_rows, n_features, units, **beside)
        if self.delta and not method.budget.delta:
            chose = method.parameter
            says = (
                f"delta={self.delta!r} has nobody to read it with {chose}={method.name!r}, which has a pure guarantee"
            )
            if getattr(self, chose, None) != "auto":
                raise BudgetError(f"{says}: leave it out")
            warn_caller(f"{says} and is what {chose}='auto' became: {method.reason}")
        return method

    def _method_for(self, n_rows: int, n_features: int, units: Units = ROWS, **beside: Any) -> LocalMethod:
        method = super()._method_for(n_rows, n_features, units, **beside)
        assert isinstance(method, LocalMethod)
        return method

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.fidelity_ = self.fidelity
