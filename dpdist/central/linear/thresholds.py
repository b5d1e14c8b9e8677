"""What public numbers say of how large residuals and labels are, where residuals are cut at a threshold."""

from __future__ import annotations

import math

from dpdist.central.linear.linear_method import Problem
from dpdist.errors import MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.losses import Huber

USUAL = 0.5
"""A residual, relative to the threshold."""


def stated_threshold(problem: Problem) -> float | None:
    """At which residuals are cut, if it is public."""
    of_loss = problem.loss.threshold if isinstance(problem.loss, Huber) else math.inf
    found = float(min(of_loss, problem.residual_bound or math.inf))
    return found if math.isfinite(found) else None


def size_of_labels(problem: Problem) -> float | None:
    """What public numbers say of it: no more than of residuals."""
    stated = stated_threshold(problem)
    if stated is not None or problem.second_moment is None:
        return stated
    return math.sqrt(problem.second_moment) / USUAL  # of features of mean square 1


def threshold(problem: Problem) -> float:
    """The same where it has to be."""
    found = stated_threshold(problem)
    if found is None:
        raise MissingBound(f"residual_bound is missing: {BOUNDS['residual_bound']}")
    return found
