"""How a row's contribution is bounded (``gradient=``), and which rows a round reads (``rows=``).

Each is a name or an object with parameters of its own: ``gradient=Truncate(scale=1.5)``, ``rows=Sample(0.02)``.

===================== ====================================================== ==========================================
``gradient=``         contribution of a row to coordinate j                  public numbers
===================== ====================================================== ==========================================
`ClipNorm`            the gradient, scaled down to an l2 norm                row_norm (and clip_norm or second_moment)
`ClipLabel`           squares and products of row and label                  row_norm, label_bound
`ScaleRows`           row and label scaled down together, residuals cut      second_moment or row_norm
`Trim`                order statistics of the coordinates                    second_moment (or scale)
`ClipResidual`        ``clip(x_j, K) clip(l', B)``                           feature_bound, residual_bound
`Shrink`              the same on shrunken labels, ``B = K (R + 1)``         feature_bound, constraint
`ClipCoordinate`      ``clip(l' x_j, c)``                                    scale, feature_bound or second_moment
`Truncate`            ``s phi(l' x_j / s)``                                  second_moment (or scale)
`SmoothTruncate`      ``s h_beta(l' x_j / s)``                               second_moment (or scale)
===================== ====================================================== ==========================================
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass, fields

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_bound, keep_plain
from dpdist.method import Choice, by_name


@dataclass(frozen=True)
class Gradient(Choice):
    """What bounds a row's contribution; its fields are public bounds, or None."""

    parameter = "gradient"

    def __post_init__(self) -> None:
        bounds = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        for name in bounds:
            check_bound(name, getattr(self, name))
        keep_plain(self, bounds)


@dataclass(frozen=True)
class ClipNorm(Gradient):
    """Clip the gradient of a row in the l2 norm.

    Parameters
    ----------
    clip_norm : float, optional
        Public bound on the l2 norm of a row's gradient. Default: what ``row_norm`` and the loss imply; required where
        the loss has no bounded derivative (squared), unless ``second_moment`` is given instead: with
        ``solver="gradient"`` the clip then balances bias and noise, and ``row_norm`` is not needed.
    """

    tag, name = "ClipNorm", "norm"

    clip_norm: float | None = None


@dataclass(frozen=True)
class ClipLabel(Gradient):
    """Clip labels and rows, so that whatever a sum of squares and products takes of a row is bounded.

    For the squared loss: ``X'X``, ``X'y`` and ``y'y`` are all that least squares needs
    (`dpdist.central.linear.sufficient_statistics`).

    Parameters
    ----------
    label_bound : float
        Public bound on the size of a label; larger ones are clipped to it.
    """

    tag, name = "ClipLabel", "label"

    label_bound: float | None = None


class ScaleRows(Gradient):
    """Scale rows down as a whole, label included, and cut residuals off (`dpdist.central.linear.robust_newton`)."""

    tag, name = "ScaleRows", "scale-rows"


@dataclass(frozen=True)
class Scaled(Gradient):
    """Coordinates that are bounded at a scale.

    Parameters
    ----------
    scale : float, optional
        Public. Default: what ``second_moment`` and the budget make best.
    """

    scale: float | None = None


class Truncate(Scaled):
    """Coordinates that are damped softly beyond a scale."""

    tag, name = "Truncate", "truncate"


class SmoothTruncate(Scaled):
    """The same with a smooth map."""

    tag, name = "SmoothTruncate", "smooth-truncate"


class Trim(Scaled):
    """Means of coordinates without their largest and smallest entries.

    Parameters
    ----------
    scale : float, optional
        Where coordinates are cut before. Default: generous, by ``second_moment``.
    """

    tag, name = "Trim", "trim"


class ClipCoordinate(Scaled):
    """Coordinates that are cut off at a scale.

    Parameters
    ----------
    scale : float, optional
        Public. Default: what ``feature_bound`` and the loss imply, else ``second_moment``.
    """

    tag, name = "ClipCoordinate", "coordinate"


class ClipResidual(Gradient):
    """Features and residuals that are cut off at public bounds."""

    tag, name = "ClipResidual", "residual"


class Shrink(Gradient):
    """Features and labels that are cut off at one bound."""

    tag, name = "Shrink", "shrink"


@dataclass(frozen=True)
class Rows(Choice):
    """Which rows a round reads."""

    parameter = "rows"


class All(Rows):
    """All of them."""

    tag, name = "All", "all"


@dataclass(frozen=True)
class Sample(Rows):
    """A Poisson sample.

    Parameters
    ----------
    rate : float, default 0.02
        Chance of each row to be in a round.
    """

    tag, name = "Sample", "sample"

    rate: float = 0.02

    def __post_init__(self) -> None:
        check_rate("rate", self.rate)


class Split(Rows):
    """A part of its own, so that all rounds are one pass."""

    tag, name = "Split", "split"


def check_rate(name: str, rate: float) -> None:
    """A chance that is not 0."""
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 < rate <= 1:
        raise BudgetError(f"{name} must lie in (0, 1], got {rate!r}")


GRADIENTS = by_name(
    ClipNorm, ClipLabel, ScaleRows, Truncate, SmoothTruncate, Trim, ClipCoordinate, ClipResidual, Shrink
)  # fmt: skip
ROWS = by_name(All, Sample, Split)
