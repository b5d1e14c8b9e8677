"""What methods for generalised linear models have in common in the local model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import need_bound
from dpdist.kernels.bases import chebyshev_fit, chebyshev_to_monomial
from dpdist.local.linear.generalised_linear import GeneralisedLinear
from dpdist.local.local_method import LocalMethod
from dpdist.losses import Loss
from dpdist.method import DECIDED, Noted

Vector = NDArray[np.float64]

RADIUS = "pass a public bound (or guess) of the l2 norm of the coefficients; they lie in a ball of that radius"


@dataclass(frozen=True)
class GlmProblem(Noted):
    """What a user of `GeneralizedLinearModel` states; ``labels`` is the public map of stored labels."""

    tag: ClassVar[str] = "GlmProblem"

    loss: Loss
    radius: float | None
    row_norm: float | None
    label_bound: float
    labels: Prepare

    def need(self, name: str) -> float:
        """A bound that has to be given."""
        return need_bound(name, getattr(self, name), RADIUS if name == "radius" else None)

    @property
    def reach(self) -> float:
        """Largest linear predictor: the radius times the norm of a row."""
        return self.need("radius") * self.need("row_norm")

    def model(self, method: str) -> GeneralisedLinear:
        """The loss, where a method asks for a label that enters linearly."""
        if not isinstance(self.loss, GeneralisedLinear):
            raise BudgetError(
                f"method={method!r} is for losses -y h1(u) + h2(u), and {self.loss.name!r} is none: choose "
                "'direction', 'hermite' or 'copies'"
            )
        return self.loss

    def powers(self, method: str, degree: int, slope: bool = False) -> Vector:
        """Coefficients of ``1, t, ..., t^degree`` for the loss (its slope) at the margin ``y u = reach t``.

        For t in [-1, 1], by Chebyshev polynomials. ``method`` is who asks: it works for losses of the margin only.
        """
        if self.loss.labels != "signs":
            raise BudgetError(
                f"method={method!r} is for two classes, whose loss depends on the label times the linear predictor; "
                f"{self.loss.name!r} is for numbers: choose 'direction' of degree 1, or a method with public rows"
            )
        f = self.loss.derivative if slope else self.loss.value
        return chebyshev_to_monomial(chebyshev_fit(lambda t: f(self.reach * t, 1.0), degree))


@dataclass(frozen=True)
class GlmMethod(LocalMethod):
    """Coefficients in the ball of the statement's radius."""

    solves_with = ("loss", "radius")

    @property
    def no_intervals(self) -> str:
        return (
            f"method={self.name!r} gives coefficients of a given size, or of one that the noise has shrunk. With "
            "method='statistics' or 'public-covariance', of GeneralizedLinearModel and LogisticRegression, there would "
            "be intervals"
        )

    needs_public: ClassVar[bool] = False
    """Whether rows without labels are taken from elsewhere."""
    reads_public: ClassVar[bool] = False
    """Whether it can make use of such rows."""

    statement: GlmProblem = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    @property
    def trivial_error(self) -> float:
        """What ignoring the reports has of the error that is predicted, at most: the mean of x y has a norm of 1."""
        return 1.0

    def given(self, public_X: Any) -> GlmMethod:
        """The method with what it takes from public rows; these may be looked at."""
        raise NotImplementedError

    def fitted(self, w: Vector, error: float) -> Mapping[str, Any]:
        """The attributes, from coefficients in the unit ball and the error of the polynomials."""
        return {"approximation_error": error, "coef": self.statement.need("radius") * w, "intercept": 0.0}
