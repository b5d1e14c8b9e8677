"""What every estimator in the local model shares: users who randomise their own rows and report once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

import numpy as np

from dpdist.data import ROWS, Units
from dpdist.engine.checks import check_one_report
from dpdist.errors import BudgetError, warn_caller
from dpdist.estimators.estimator import Estimator
from dpdist.local.local_method import LocalMethod
from dpdist.local.survey.levels import Leveled
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.reports import Fidelity
from dpdist.method import Method, Public
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

    def protocol(self, n_rows: int, n_features: int, group: int = 0) -> LocalProtocol:
        """What a user of a group is asked, for devices (`LocalProtocol.randomise`) and `dpdist.local.simulate`."""
        return self._method_for(n_rows, n_features).protocols[group]

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
            says = f"delta={self.delta!r} has nobody to read it with method={method.name!r}, which has a pure guarantee"
            if getattr(self, "method", None) != "auto":
                raise BudgetError(f"{says}: leave it out")
            warn_caller(f"{says} and is what method='auto' became: {method.reason}")
        return method

    def _method_for(self, n_rows: int, n_features: int, units: Units = ROWS) -> LocalMethod:
        method = super()._method_for(n_rows, n_features, units)
        assert isinstance(method, LocalMethod)
        return method

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.fidelity_ = self.fidelity
