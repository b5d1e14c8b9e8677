"""The public numbers of a fit, without an estimator."""

from __future__ import annotations

from typing import Any

from dpdist import Budget
from dpdist.central.linear.bounding import GRADIENTS, ROWS
from dpdist.central.linear.linear_method import Problem
from dpdist.estimators.choices import chosen
from dpdist.losses import Loss, by_name
from dpdist.method import Public
from tests.central.linear.objects import objects

SMALL = Public(1000, 5, Budget(1.0, 1e-6))


def problem(loss: str | Loss, public: Public = SMALL, **options: Any) -> Problem:
    """A problem of 1000 rows and 5 features at (1, 1e-6), or of other public numbers."""
    loss = by_name(loss) if isinstance(loss, str) else loss
    given = {"penalty": None, "constraint": None, **objects(**options)}
    for name, offered in (("gradient", GRADIENTS), ("rows", ROWS)):
        if name in given:
            given[name] = chosen(name, given[name], offered)
    return Problem(public=public, loss=loss, **given)
