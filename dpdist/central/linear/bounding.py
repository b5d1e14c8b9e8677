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

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.problems.linear_problems import heavy
    >>> data, truth = heavy(20_000, 3, random_state=0)
    >>> model = LinearRegression(solver="gradient", gradient=ClipNorm(20.0), row_norm=5.0, alpha=0.0,
    ...     fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.3, -0.4,  0.9]), array([-0.3, -0.3,  0.9]))
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

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.problems.linear_problems import linear
    >>> data, truth = linear(20_000, 3, random_state=0)
    >>> model = LinearRegression(gradient=ClipLabel(1.5), row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.9, -0.4,  0.1]), array([-0.9, -0.4,  0.1]))
    """

    tag, name = "ClipLabel", "label"

    label_bound: float | None = None


class ScaleRows(Gradient):
    """Scale rows down as a whole, label included, and cut residuals off (`dpdist.central.linear.robust_newton`).

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.problems.linear_problems import heavy
    >>> data, truth = heavy(20_000, 3, random_state=0)
    >>> model = LinearRegression(loss="huber", gradient=ScaleRows(), second_moment=40.0, fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.3, -0.3,  0.8]), array([-0.3, -0.3,  0.9]))
    """

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
    """Coordinates that are damped softly beyond a scale.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L2Ball
    >>> from dpdist.problems.linear_problems import heavy
    >>> data, truth = heavy(20_000, 3, random_state=0)
    >>> model = LinearRegression(gradient=Truncate(), second_moment=40.0, constraint=L2Ball(2.0), alpha=0.0,
    ...     fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.4, -0.4,  0.8]), array([-0.3, -0.3,  0.9]))
    """

    tag, name = "Truncate", "truncate"


class SmoothTruncate(Scaled):
    """The same with a smooth map.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L2Ball
    >>> from dpdist.problems.linear_problems import heavy
    >>> data, truth = heavy(20_000, 3, random_state=0)
    >>> model = LinearRegression(gradient=SmoothTruncate(), second_moment=40.0, constraint=L2Ball(2.0), alpha=0.0,
    ...     fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.4, -0.3,  0.9]), array([-0.3, -0.3,  0.9]))
    """

    tag, name = "SmoothTruncate", "smooth-truncate"


class Trim(Scaled):
    """Means of coordinates without their largest and smallest entries.

    Parameters
    ----------
    scale : float, optional
        Where coordinates are cut before. Default: generous, by ``second_moment``.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L2Ball
    >>> from dpdist.problems.linear_problems import heavy
    >>> data, truth = heavy(20_000, 3, random_state=0)
    >>> model = LinearRegression(gradient=Trim(), second_moment=40.0, constraint=L2Ball(2.0), alpha=0.0,
    ...     fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.3, -0.4,  0.9]), array([-0.3, -0.3,  0.9]))
    """

    tag, name = "Trim", "trim"


class ClipCoordinate(Scaled):
    """Coordinates that are cut off at a scale.

    Parameters
    ----------
    scale : float, optional
        Public. Default: what ``feature_bound`` and the loss imply, else ``second_moment``.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L1Ball
    >>> from dpdist.problems.sparse_problems import heavy_sparse
    >>> data, truth = heavy_sparse(20_000, 6, noise_std=0.2, random_state=0)
    >>> model = LinearRegression(gradient=ClipCoordinate(0.7), constraint=L1Ball(1.0), alpha=0.0, fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([ 0.3, -0.2,  0.2, -0.1,  0.1,  0. ]), array([ 0.3, -0.2,  0.2, -0.2,  0.1,  0. ]))
    """

    tag, name = "ClipCoordinate", "coordinate"


class ClipResidual(Gradient):
    """Features and residuals that are cut off at public bounds.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L1Ball
    >>> from dpdist.problems.sparse_problems import heavy_sparse
    >>> data, truth = heavy_sparse(20_000, 6, noise_std=0.2, random_state=0)
    >>> model = LinearRegression(gradient=ClipResidual(), constraint=L1Ball(1.0), feature_bound=2.0,
    ...     residual_bound=1.0, alpha=0.0, fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([ 0.3, -0.3,  0.2, -0.1,  0.1,  0. ]), array([ 0.3, -0.2,  0.2, -0.2,  0.1,  0. ]))
    """

    tag, name = "ClipResidual", "residual"


class Shrink(Gradient):
    """Features and labels that are cut off at one bound.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L1Ball
    >>> from dpdist.problems.sparse_problems import heavy_sparse
    >>> data, truth = heavy_sparse(20_000, 6, noise_std=0.2, random_state=0)
    >>> model = LinearRegression(gradient=Shrink(), constraint=L1Ball(1.0), feature_bound=3.0, alpha=0.0,
    ...     fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([ 0.2, -0.2,  0.1, -0.1,  0. ,  0. ]), array([ 0.3, -0.2,  0.2, -0.2,  0.1,  0. ]))
    """

    tag, name = "Shrink", "shrink"


@dataclass(frozen=True)
class Rows(Choice):
    """Which rows a round reads."""

    parameter = "rows"


class All(Rows):
    """All of them.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver="gradient", rows=All(),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.plan(20_000, 4)
    Plan: (1, 1e-06)-DP of (1, 1e-06), replace-one, by gdp
    name        mechanism  count  strength   cost      sampling  fold
    smoothness  Gaussian   1      0.0236704  gaussian
    gradient    Gaussian   10     0.0744773  gaussian
    """

    tag, name = "All", "all"


@dataclass(frozen=True)
class Sample(Rows):
    """A Poisson sample.

    Parameters
    ----------
    rate : float, default 0.02
        Chance of each row to be in a round.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.central import GradientDescent
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=GradientDescent(n_rounds=20),
    ...     rows=Sample(0.05), epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).plan_
    Plan: (0.99999, 1e-06)-DP of (1, 1e-06), replace-one, by pld
    name        mechanism  count  strength   cost      sampling            fold
    smoothness  Gaussian   1      0.0227799  gaussian
    gradient    Gaussian   20     1.01364    gaussian  Poisson(rate=0.05)
    """

    tag, name = "Sample", "sample"

    rate: float = 0.02

    def __post_init__(self) -> None:
        check_rate("rate", self.rate)


class Split(Rows):
    """A part of its own, so that all rounds are one pass.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L1Ball
    >>> from dpdist.problems.sparse_problems import heavy_sparse
    >>> data, truth = heavy_sparse(20_000, 6, noise_std=0.2, random_state=0)
    >>> model = LinearRegression(solver="frank-wolfe", rows=Split(), constraint=L1Ball(1.0), feature_bound=3.0,
    ...     residual_bound=1.0, alpha=0.0, fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([ 0.3, -0.2,  0.2, -0.1,  0.1,  0. ]), array([ 0.3, -0.2,  0.2, -0.2,  0.1,  0. ]))
    """

    tag, name = "Split", "split"


def check_rate(name: str, rate: float) -> None:
    """A chance that is not 0."""
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 < rate <= 1:
        raise BudgetError(f"{name} must lie in (0, 1], got {rate!r}")


GRADIENTS = by_name(
    ClipNorm, ClipLabel, ScaleRows, Truncate, SmoothTruncate, Trim, ClipCoordinate, ClipResidual, Shrink
)  # fmt: skip
ROWS = by_name(All, Sample, Split)
