"""The mean loss at every parameter of a box, from one report of every user, and where it is least.

Every user is given a random cell of a public grid of parameters and reports their own loss there. The server has a
noisy mean loss for every cell, makes a smooth function of them by iterated Bernstein operators, and minimises it: any
loss with a range can be minimised, convex or not, and users are asked once.

============= ============================================ ======================== =======================
reporter      what a user sends about the loss of the cell noise at eps .5, 1, 4    id
============= ============================================ ======================== =======================
``hybrid``    a sign or a number, whatever has less noise  4.08, 2.07, .47          local-bernstein
``one-bit``   a sign                                       4.08, 2.16, 1.04         local-bernstein-1bit
``coding``    which of 64 public numbers                   11.5, 5.7, 1.4           local-bernstein-genprot
``transform`` a bit about a public number                  12.2, 8.4, 6.2           (as published, made private)
``split``     Laplace noise on all D cells                 5.7 D, 2.8 D, .7 D       (as published)
============= ============================================ ======================== =======================

The last three are kept for comparison: they have more noise, and ``split`` has sqrt(D) times as much (a user sends all
cells, but each with a share of epsilon). Seed 000, Algorithms 5.1.31, 5.1.32 and 5.1.37, as corrected in spec 04,
sections 3 to 5: the printed bit is not private, and the printed index is averaged in place of what it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.inputs import asked_points
from dpdist.estimators.parameters import check_between, check_count, check_end, choice
from dpdist.identity import ADDED
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.randomisers.coordinates import Reporter
from dpdist.local.randomisers.public_strings import MOST_STRINGS, RandomCoding, TransformedBit
from dpdist.local.randomisers.scalars import LaplaceBox
from dpdist.local.sampled_features import USERS_A_FEATURE, SampledFeatures
from dpdist.local.statistics.loss_cells import LossCells, check_loss
from dpdist.local.surfaces.surface_losses import LOSSES, SurfaceLoss
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import DECIDED, Method, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.audit.worst_neighbours import Pair
from dpdist.solvers.bernstein import averaged_bernstein, bernstein_coefficients, bernstein_value, minimise_bernstein

Floats = NDArray[np.float64]
MOST_PARAMETERS = 4
DEGREES = (3, 16)
"""Between which the rule of a degree stays, where users are enough for as many cells."""
BALANCE = 4.0
"""How far the rule leans to more cells than loose bounds of the polynomial's error and of the noise ask for."""


def most_cells(n_users: int, n_parameters: int) -> int:
    """For each parameter, as far as there are users."""
    return int((n_users / USERS_A_FEATURE) ** (1 / n_parameters) + 1e-9)


@dataclass(frozen=True)
class SurfaceStatement(Noted):
    """What a user of `RiskSurface` states; see there."""

    tag: ClassVar[str] = "SurfaceStatement"

    loss: SurfaceLoss
    low: float
    high: float
    degree: int | None
    order: int
    ridge: float | str
    smoothing: float = field(default=0.0, metadata=ADDED)


@dataclass(frozen=True)
class BernsteinSurface(SampledFeatures):
    """Reports of the loss at one random cell each, by a hybrid of a sign and a number."""

    tag, name = "BernsteinSurface", "hybrid"
    parameter = "reporter"
    unsure: ClassVar[str] = (
        "a surface is smoothed over its cells, which moves its minimum by as much as the noise does. expected_error of "
        "the outlook is the noise of a cell; a generalised linear model with public rows has intervals"
    )
    measures: ClassVar[str] = "standard error of the mean loss of a cell, where the range of the loss is 1"
    solves_with = ("order", "ridge", "smoothing")

    statement: SurfaceStatement = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    degree: int | None = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    def decide(self, public: Public, statement: SurfaceStatement) -> Self:
        p, n = public.n_features, public.n_rows
        asked, degree = self._with(public, statement), statement.degree
        if degree is None:
            noise = math.tanh(public.budget.epsilon / 2)
            balanced = (2 * BALANCE * math.sqrt(n) * noise) ** (1 / (statement.order + p / 2))
            degree = max(1, min(int(np.clip(round(balanced), *DEGREES)), most_cells(n, p) - 1))
        asked = replace(asked, degree=degree)
        asked.check_enough()
        return asked

    def smaller(self) -> Iterator[tuple[str, Self]]:
        fits = most_cells(self.public.n_rows, self.public.n_features) - 1
        if fits > 0:
            yield f"degree={fits}", replace(self, degree=fits)

    @property
    def features_asked(self) -> str:
        assert self.degree is not None
        return f"{self.statistic.size} cells, {self.degree + 1} for each of {self.public.n_features} parameters"

    @property
    def reporter(self) -> Reporter:
        return "hybrid"

    @property
    def statistic(self) -> LossCells:
        statement = self.statement
        assert self.degree is not None
        return LossCells(statement.loss, self.public.n_features, statement.low, statement.high, self.degree)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        statement, (estimates, std) = self.statement, self.cells(oracle)
        assert self.degree is not None
        cells = estimates.reshape((self.degree + 1,) * self.public.n_features)
        surface = bernstein_coefficients(cells, statement.order)
        least = surface
        if statement.smoothing:
            least = averaged_bernstein(surface, statement.smoothing / self.degree)
        side = statement.high - statement.low
        ridge = self.public.n_rows ** (-1 / 12) if isinstance(statement.ridge, str) else statement.ridge
        best = minimise_bernstein(least, ridge * side**2)
        return {
            "coef": statement.low + side * best,
            "minimum": float(bernstein_value(surface, best[None])[0]),
            "surface": surface,
            "cell_std": float(self.statistic.scale[1] * std),
        }

    def cells(self, oracle: Oracle) -> tuple[Floats, float]:
        """The mean loss of every cell, and the largest standard error, in units of half of the range."""
        found = super().solve(oracle)
        return found["estimates"], float(self.stds(found["n_reports"]).max())

    def expected_error(self, plan: Plan) -> float:
        return float(self.stds(self.foreseen_reports)[0]) / 2


class OneBitSurface(BernsteinSurface):
    """The same by one sign."""

    tag, name = "OneBitSurface", "one-bit"

    @property
    def reporter(self) -> Reporter:
        return "one-bit"


@dataclass(frozen=True)
class CodingSurface(BernsteinSurface):
    """The same by the number of one of T public numbers.

    Parameters
    ----------
    n_strings : int from 2 to 256, default 64
        T, at least ``e^(epsilon/2)``; a report is that of a Laplace law up to a part of order 1/T.
    """

    tag, name = "CodingSurface", "coding"

    n_strings: int = 64

    def decide(self, public: Public, statement: SurfaceStatement) -> Self:
        found = super().decide(public, statement)
        law = found.randomiser
        if law.inner_epsilon > math.log(self.n_strings):
            raise BudgetError(
                f"n_strings = {self.n_strings} public numbers are too few for epsilon = {law.epsilon:g}, and losses "
                f"would be told wrong: {MOST_STRINGS} do up to epsilon {2 * math.log(MOST_STRINGS):.3g}; choose "
                f"epsilon of at most {2 * math.log(self.n_strings):.3g}, a larger n_strings, or reporter='hybrid'"
            )
        return found

    @property
    def randomiser(self) -> RandomCoding:  # type: ignore[override]
        return RandomCoding(self.statistic.size, float(self.public.budget.epsilon), self.n_strings)


class TransformSurface(BernsteinSurface):
    """The same by a bit about a public number."""

    tag, name = "TransformSurface", "transform"

    @property
    def randomiser(self) -> TransformedBit:  # type: ignore[override]
        return TransformedBit(self.statistic.size, float(self.public.budget.epsilon))


class SplitSurface(BernsteinSurface):
    """Reports of the losses at all cells, each with a share of epsilon."""

    tag, name = "SplitSurface", "split"

    @property
    def randomiser(self) -> LaplaceBox:  # type: ignore[override]
        return LaplaceBox(self.statistic.size, float(self.public.budget.epsilon))

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [LocalProtocol(self.statistic, self.randomiser)]

    def cells(self, oracle: Oracle) -> tuple[Floats, float]:
        return self.estimate(oracle), self.expected_error_of_one()

    def expected_error_of_one(self) -> float:
        """Of a cell, in units of half of the range."""
        return math.sqrt((self.randomiser.noise_std**2 + 1) / self.public.n_rows)

    def expected_error(self, plan: Plan) -> float:
        return self.expected_error_of_one() / 2


REPORTERS = by_name(BernsteinSurface, OneBitSurface, CodingSurface, TransformSurface, SplitSurface)
"""Laws of the reports, by name."""


@dataclass(eq=False, repr=False)
class RiskSurface(LocalEstimator):
    """The mean of any bounded loss at every parameter of a box, and its minimiser, from one report of every user.

    Parameters
    ----------
    loss : str or SurfaceLoss
        "welsch" (a location that far records cannot move), "absolute" or "quantile" (the median of every
        column), "logistic", or an
        object: ``WelschLocation(scale=0.2)``, ``QuantileLoss(0.9)``, ``LogisticSurface(row_norm=1.0)``,
        ``CustomLoss(function, smallest, largest)``. Parameters are as many as columns, 4 at most.
    low, high : float
        Public range of every parameter.
    reporter : str or object
        "auto" (which is "hybrid"), "hybrid", "one-bit", "coding", "transform" or "split": see the table of this module.
    degree : int, optional
        k: the grid has ``k + 1`` points for each parameter. Default: by a rule, from the number of users.
    order : int, default 4
        How often the Bernstein operator is iterated; a smooth loss gains by a higher one, up to 8.
    ridge : float or "population", default 0
        Adds ``ridge/2 |w - middle of the box|^2`` before minimising, for convex losses; "population" is ``n^(-1/12)``,
        with which the risk of all people, not of those who were asked, is bounded (seed 000, Theorem 5.1.3).
    smoothing : float, default 0
        Minimises the mean of the surface over balls of so many steps of the grid, in which waves of noise vanish; 0.5
        for convex losses (in place of the random walks that seed 000, Lemma 5.1.7, refers to).
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
    ridge: float | str = 0.0
    smoothing: float = 0.0

    @property
    def labelled(self) -> bool:  # type: ignore[override]
        """Whether the loss reads labels."""
        try:
            return bool(chosen("loss", self.loss, LOSSES, auto=False).labelled)
        except BudgetError:  # which a fit raises; it can be shown all the same
            return True

    def fit(self, X: Any, y: Any = None, **others: Any) -> Self:
        """Fit to an array (``fit(X)``), with labels where the loss reads them, or to a stored dataset."""
        return self._fit(X, y, **others)

    def value(self, w: Any) -> Floats:
        """The surface at some parameters, shape (m, n_features)."""
        check_is_fitted(self, "surface_")
        low, high = self._fitted_range
        w = asked_points("w", w, self.n_features_in_, low, high)
        return bernstein_value(self.surface_, (w - low) / (high - low))

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Those of `LocalEstimator`, and records at opposite ends of the box: others may cost the same everywhere."""
        low, high = ({"X": np.full((1, n_features), end), "y": np.array([end])} for end in self._range)
        return {**super().worst_neighbours(n_rows, n_features), "ends of the box": (low, high)}

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
        ridge = self.ridge if isinstance(self.ridge, str) else float(self.ridge)
        stated = SurfaceStatement(loss, *self._range, self.degree, self.order, ridge, float(self.smoothing))
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
        if callable(self.loss) and not isinstance(self.loss, SurfaceLoss):
            raise BudgetError(
                "a loss of your own needs a public range: pass CustomLoss(function, smallest, largest) of "
                f"dpdist.local.surfaces.surface_losses, got {self.loss!r}"
            )
        chosen("loss", self.loss, LOSSES, auto=False)
        chosen("reporter", self.reporter, REPORTERS)
        for name in ("low", "high"):
            if getattr(self, name) is None:
                raise MissingBound(f"{name} is missing: pass the public range of the parameters")
            check_end(name, getattr(self, name), 1e30)
        if not self._range[0] < self._range[1]:
            raise BudgetError(f"low must lie below high, got low={self.low!r} and high={self.high!r}")
        if self.degree is not None:
            check_count("degree", self.degree, low=1)
        check_count("order", self.order)
        check_between("order", self.order, 1, 8)
        if isinstance(self.ridge, str):
            choice("ridge", self.ridge, ("population",))
        else:
            check_between("ridge", self.ridge, 0.0)
        check_between("smoothing", self.smoothing, 0.0, 2.0)
        check_between("epsilon", self.epsilon, 1e-6, 100)
