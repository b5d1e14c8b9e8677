"""The public numbers of a fit, without an estimator."""

from __future__ import annotations

from typing import Any

from dpdist import Budget
from dpdist.central.course import Problem
from dpdist.losses import Loss, by_name


def problem(loss: str | Loss, **options: Any) -> Problem:
    """A problem of 1000 rows and 5 features at (1, 1e-6)."""
    loss = by_name(loss) if isinstance(loss, str) else loss
    given = {"n_rows": 1000, "n_features": 5, "budget": Budget(1.0, 1e-6), "penalty": None, "constraint": None}
    return Problem(loss=loss, **{**given, **options})
