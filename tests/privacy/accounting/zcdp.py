"""The zCDP of plans, which the accountants of the library know release by release."""

from __future__ import annotations

from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.accounting.releases import column_rho, columns


def total_rho(plan: Plan) -> float:
    """Of a whole plan without samples."""
    return max(column_rho(column) for column in columns(plan.releases))
