"""The mean loss at every parameter of a box, from one report of every user, and where it is least.

Every user is given a random cell of a public grid of parameters and reports their own loss there. The server has a
noisy mean loss for every cell, makes a smooth function of them by iterated Bernstein operators, and minimises it: any
loss with a range can be minimised, convex or not, and users are asked once.

============ ============================================ ======================== ====================
reporter     what a user sends about the loss of the cell noise at eps .5, 1, 4   id
============ ============================================ ======================== ====================
``hybrid``   a sign or a number, whatever has less noise  4.08, 2.07, .47          local-bernstein
``one-bit``  a sign                                       4.08, 2.16, 1.04         local-bernstein-1bit
============ ============================================ ======================== ====================

Seed 000, Algorithms 5.1.31 and 5.1.32, as corrected in spec 04, sections 3 and 4: the source sends all cells with a
share of epsilon each, or a bit whose printed law is not private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.parameters import check_between, check_count
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.randomisers.coordinates import Reporter
from dpdist.local.sampled_features import SampledFeatures
from dpdist.local.statistics.loss_cells import LossCells, check_loss
from dpdist.local.surfaces.surface_losses import LOSSES, SurfaceLoss
from dpdist.method import DECIDED, Method, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.bernstein import bernstein_coefficients, bernstein_value, minimise_bernstein

Floats = NDArray[np.float64]
MOST_PARAMETERS = 4
USERS_A_CELL = 200
DEGREES = (3, 16)
"""Between which the rule of a degree stays, where users are enough for as many cells."""
BALANCE = 4.0
"""How far the rule leans to more cells than loose bounds of the polynomial's error and of the noise ask for."""


@dataclass(frozen=True)
class SurfaceStatement(Noted):
    """What a user of `RiskSurface` states; see there."""

    tag: ClassVar[str] = "SurfaceStatement"

    loss: SurfaceLoss
    low: float
    high: float
    degree: int | None
    order: int
    ridge: float


@dataclass(frozen=True)
class BernsteinSurface(SampledFeatures):
    """Reports of the loss at one random cell each, by a hybrid of a sign and a number."""

    tag, name = "BernsteinSurface", "hybrid"
    parameter = "reporter"
    measures: ClassVar[str] = "standard error of the mean loss of a cell, where the range of the loss is 1"
    solves_with = ("order", "ridge")

    statement: SurfaceStatement = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    degree: int | None = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    def decide(self, public: Public, statement: SurfaceStatement) -> Self:
        p, n = public.n_features, public.n_rows
        fits = int((n / USERS_A_CELL) ** (1 / p) + 1e-9) - 1
        degree = statement.degree
        if degree is None:
            noise = math.tanh(public.budget.epsilon / 2)
            balanced = (2 * BALANCE * math.sqrt(n) * noise) ** (1 / (statement.order + p / 2))
            degree = max(1, min(int(np.clip(round(balanced), *DEGREES)), fits))
        if degree > fits:
            cells = (degree + 1) ** p
            way_out = f"degree={fits} fits" if fits > 0 else "not even degree=1 fits: take fewer columns"
            raise BudgetError(
                f"{n} users are too few for {cells} cells, {degree + 1} for each of {p} parameters: {USERS_A_CELL} for "
                f"each are needed; {way_out}, or {cells * USERS_A_CELL} users"
            )
        return replace(self._with(public, statement), degree=degree)

    @property
    def reporter(self) -> Reporter:
        return "hybrid"

    @property
    def statistic(self) -> LossCells:
        statement = self.statement
        assert self.degree is not None
        return LossCells(statement.loss, self.public.n_features, statement.low, statement.high, self.degree)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        found, statistic, statement = super().solve(oracle), self.statistic, self.statement
        assert self.degree is not None
        cells = found["estimates"].reshape((self.degree + 1,) * self.public.n_features)
        surface = bernstein_coefficients(cells, statement.order)
        side = statement.high - statement.low
        best = minimise_bernstein(surface, statement.ridge * side**2)
        return {
            "coef": statement.low + side * best,
            "minimum": float(bernstein_value(surface, best[None])[0]),
            "surface": surface,
            "cell_std": float(statistic.scale[1] * self.stds(found["n_reports"]).max()),
        }

    def expected_error(self, plan: Plan) -> float:
        return float(self.stds(self.foreseen_reports)[0]) / 2


class OneBitSurface(BernsteinSurface):
    """The same by one sign."""

    tag, name = "OneBitSurface", "one-bit"

    @property
    def reporter(self) -> Reporter:
        return "one-bit"


REPORTERS = by_name(BernsteinSurface, OneBitSurface)
"""Laws of the reports, by name."""


@dataclass(eq=False, repr=False)
class RiskSurface(LocalEstimator):
    """The mean of any bounded loss at every parameter of a box, and its minimiser, from one report of every user.

    Parameters
    ----------
    loss : str or SurfaceLoss
        "welsch" (a location that far records cannot move), "quantile" (the median of every column), "logistic", or an
        object: ``WelschLocation(scale=0.2)``, ``QuantileLoss(0.9)``, ``LogisticSurface(row_norm=1.0)``,
        ``CustomLoss(function, smallest, largest)``. Parameters are as many as columns, 4 at most.
    low, high : float
        Public range of every parameter.
    reporter : str or object
        "auto" (which is "hybrid"), "hybrid" or "one-bit", see the table of this module.
    degree : int, optional
        k: the grid has ``k + 1`` points for each parameter. Default: by a rule, from the number of users.
    order : int, default 4
        How often the Bernstein operator is iterated; a smooth loss gains by a higher one, up to 8.
    ridge : float, default 0
        Adds ``ridge/2 |w - middle of the box|^2`` before minimising, for convex losses: the source has ``n^(-1/12)``.
    epsilon, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; the guarantee is pure, delta is not used.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Where the surface is least, in the box.
    minimum_ : float
        The surface there.
    surface_ : array of shape (degree_ + 1, ...)
        Coefficients of its polynomial.
    cell_std_ : float
        Standard error of the mean loss of a cell, before it was smoothed; of the cell with the fewest reports.
    degree_ : int
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Notes
    -----
    Noise is largest in the corners of the box; let it be larger than where the minimum may be.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = np.where(rng.random((100_000, 1)) < 0.7, 0.3, 0.8) + rng.normal(0, 0.05, (100_000, 1))
    >>> model = RiskSurface("welsch", low=0.0, high=1.0, epsilon=2.0, random_state=0).fit(x)
    >>> bool(abs(model.coef_[0] - 0.35) < 0.1), bool(model.value([[0.9]])[0] > model.minimum_)
    (True, True)
    """

    answers = (Answer.MINIMISER,)
    offers: ClassVar[Mapping[str, Offered]] = {"loss": LOSSES, "reporter": REPORTERS}

    loss: str | SurfaceLoss = "welsch"
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    reporter: str | BernsteinSurface = "auto"
    degree: int | None = None
    order: int = 4
    ridge: float = 0.0

    @property
    def labelled(self) -> bool:  # type: ignore[override]
        """Whether the loss reads labels."""
        return bool(chosen("loss", self.loss, LOSSES, auto=False).labelled)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to an array (``fit(X)``), with labels where the loss reads them, or to a stored dataset."""
        return self._fit(X, y)

    def value(self, w: Any) -> Floats:
        """The surface at some parameters, shape (m, n_features)."""
        if not hasattr(self, "surface_"):
            raise DataError("this RiskSurface is not fitted yet: call fit first")
        w, p, (low, high) = np.asarray(w, dtype=np.float64), self.n_features_in_, self._fitted_range
        if w.ndim != 2 or w.shape[1] != p or not ((w >= low) & (w <= high)).all():
            raise DataError(f"w must be parameters in [{low:g}, {high:g}], shape (m, {p}); got shape {w.shape}")
        return bernstein_value(self.surface_, (w - low) / (high - low))

    @property
    def _range(self) -> tuple[float, float]:
        assert self.low is not None and self.high is not None
        return float(self.low), float(self.high)

    def _chosen(self, public: Public, **beside: Any) -> BernsteinSurface:
        p = public.n_features
        if p > MOST_PARAMETERS:
            raise DataError(f"a surface of {p} parameters has too many cells: pass at most {MOST_PARAMETERS} columns")
        loss = chosen("loss", self.loss, LOSSES, auto=False)
        method = chosen("reporter", self.reporter, REPORTERS)
        if method == "auto":
            method = BernsteinSurface(reason="the least noise")
        stated = SurfaceStatement(loss, *self._range, self.degree, self.order, float(self.ridge))
        found: BernsteinSurface = method.decide(public, stated)
        check_loss(loss, p, *self._range)  # one of another shape ends before a report
        return found

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        assert isinstance(method, BernsteinSurface)
        self.degree_ = method.degree
        self._fitted_range = (method.statement.low, method.statement.high)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("loss", self.loss, LOSSES, auto=False)
        chosen("reporter", self.reporter, REPORTERS)
        for name in ("low", "high"):
            if getattr(self, name) is None:
                raise MissingBound(f"{name} is missing: pass the public range of the parameters")
            check_between(name, getattr(self, name), -1e30, 1e30)
        if not self._range[0] < self._range[1]:
            raise BudgetError(f"low must lie below high, got low={self.low!r} and high={self.high!r}")
        if self.degree is not None:
            check_count("degree", self.degree, low=1)
        check_count("order", self.order)
        check_between("order", self.order, 1, 8)
        check_between("ridge", self.ridge, 0.0)
        check_between("epsilon", self.epsilon, 1e-6, 100)
