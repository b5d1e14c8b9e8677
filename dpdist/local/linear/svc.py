"""Support vector machines in the local model: the hinge, or any other loss of the label times the linear predictor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.errors import BudgetError
from dpdist.estimators.answer_kinds import Answer
from dpdist.local.linear.glm import TwoClasses
from dpdist.local.linear.glm_direction import Direction
from dpdist.local.linear.glm_method import GlmMethod
from dpdist.local.linear.links import is_even
from dpdist.losses import Loss

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Hinge(Loss):
    """``max(0, 1 - y u)``: polynomials in its place are smooth, so that its corner needs no smoothing.

    >>> Hinge().value(np.array([-1.0, 0.0, 2.0]), 1.0).tolist()
    [2.0, 1.0, 0.0]
    """

    tag: ClassVar[str] = "Hinge"

    name: ClassVar[str] = "hinge"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    derivative_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = math.inf

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(np.maximum(0.0, 1.0 - np.multiply(y, u)))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(np.where(np.multiply(y, u) < 1, -np.asarray(y, dtype=np.float64), 0.0))


@dataclass(eq=False, repr=False)
class LinearSVC(TwoClasses):
    """A linear classifier of two classes, in the ball ``||w|| <= radius``, without an intercept.

    Parameters
    ----------
    loss : "hinge" or Loss
        Of `dpdist.losses`, for labels -1 and +1; convex, and a function of the label times the linear predictor.
    method : str or GlmMethod
        "auto" (which is "direction"), "direction", "hermite" or "copies": see `dpdist.local.linear.glm`.
    classes : sequence
        The two labels; public. A record with another one is empty. Required.
    radius, row_norm, epsilon, delta, fidelity
        As in `dpdist.local.linear.glm.GeneralizedLinearModel`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_, intercept_, method_, method_reason_, approximation_error_
        As in `dpdist.local.linear.glm.GeneralizedLinearModel`.
    classes_ : array
    guarantee_, plan_, releases_, history_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 2)) / 3
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = LinearSVC(classes=["no", "yes"], radius=2.0, row_norm=1.0, epsilon=1.0, random_state=0)
    >>> model.fit(X, y).predict([[1.0, 0.0], [-1.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    answers = (Answer.CLASSES,)

    loss: str | Loss = "hinge"  # type: ignore[assignment]

    @property
    def _loss(self) -> Loss:
        return Hinge() if isinstance(self.loss, str) else self.loss

    def _check_loss(self) -> None:
        good = self.loss == "hinge" if isinstance(self.loss, str) else isinstance(self.loss, Loss)
        if not good or self._loss.labels != "signs" or not self._loss.convex:
            raise BudgetError(
                "loss must be 'hinge', or a convex loss of dpdist.losses for labels -1 and +1 such as SmoothedHinge(); "
                f"got {self.loss!r}"
            )
        if is_even(lambda u: self._loss.value(u, 1.0)):
            raise BudgetError(
                f"loss={self.loss!r} is an even function of the label times the linear predictor, so that it does not "
                "depend on the label: choose one that falls, such as 'hinge'"
            )

    def _automatic(self, rows: Any, n_features: int) -> GlmMethod:
        return Direction(reason="the direction takes the fewest users")
