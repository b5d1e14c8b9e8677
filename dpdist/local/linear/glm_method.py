"""What methods for generalised linear models have in common in the local model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.shards import Prepare
from dpdist.estimators.parameters import need_bound
from dpdist.local.linear.generalised_linear import GeneralisedLinear
from dpdist.local.local_method import LocalMethod
from dpdist.method import DECIDED, Noted

Vector = NDArray[np.float64]

RADIUS = "pass a public bound (or guess) of the l2 norm of the coefficients; they lie in a ball of that radius"


@dataclass(frozen=True)
class GlmProblem(Noted):
    """What a user of `GeneralizedLinearModel` states; ``labels`` is the public map of stored labels."""

    tag: ClassVar[str] = "GlmProblem"

    loss: GeneralisedLinear
    radius: float | None
    row_norm: float | None
    label_bound: float
    labels: Prepare

    def need(self, name: str) -> float:
        """A bound that has to be given."""
        return need_bound(name, getattr(self, name), RADIUS if name == "radius" else None)


@dataclass(frozen=True)
class GlmMethod(LocalMethod):
    """Coefficients in the ball of the statement's radius."""

    solves_with = ("loss", "radius")
    needs_public: ClassVar[bool] = False
    """Whether rows without labels are taken from elsewhere."""

    statement: GlmProblem = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    def fitted(self, w: Vector, error: float) -> Mapping[str, Any]:
        """The attributes, from coefficients in the unit ball and the error of the polynomials."""
        return {"approximation_error": error, "coef": self.statement.need("radius") * w, "intercept": 0.0}
