"""Private labels and public features: the report is a label, drawn once, and the server has the features.

The guarantee covers the label only: ``P(report | y) <= e^epsilon P(report | y')`` for any two labels. So the unit of
its plan and of its charge is a label, and an account about whole rows is not charged for it
(`dpdist.privacy.protected_units`). The clip is what makes it hold. Seed 000, Algorithms 5.3.42 and 5.3.45, adds noise
for labels that differ by 4 C at most, which no assumption on the model gives: with its constants the true epsilon at
nominally 1 is 12 to 62 (linear) and more than 1000 (with a link).

The report of a user is a function of the run's key, so it can be read again in every pass without being drawn anew: a
new draw per pass would be a new report, and T of them would cost T epsilon.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import choice
from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.grid import power_grid
from dpdist.kernels.moments import unpack_symmetric
from dpdist.kernels.packed import packed_size
from dpdist.local.linear.links import IDENTITY, LARGEST_LABEL, Link
from dpdist.local.randomisers.scalars import GaussianScalar, OneBit, best_scalar
from dpdist.local.sparse.rounds import SparseMethod
from dpdist.local.sparse.sparse_statement import LINK_MODES, General, SparseProblem
from dpdist.local.statistics.residuals import LinkMode
from dpdist.local.survey.protocol import Domain, LocalProtocol, Randomiser, Statistic
from dpdist.local.survey.reports import Reports
from dpdist.method import Oracle, Public
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.protected_units import LABEL, Protected
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.draws import Draws
from dpdist.solvers.linear import quadratic_l1
from dpdist.solvers.sparse import refit, sparse_from_statistics, threshold_gradients

Floats = NDArray[np.float64]

FACTOR_BITS = 20
"""Public features and functions of a report are rounded to 2**-20 of their bound, so that sums are exact."""
PUBLIC_WIDTHS = 8.0
"""Public features are cut at it: in standard deviations, far enough out to be without effect."""
MOST_PACKED = 3000
"""With more features than that, passes over the rows take the place of their second moments."""
N_PASSES = 20
"""Of steps of length 1, each of which halves the error at least."""


@dataclass(frozen=True)
class Label(Statistic):
    """The label, clipped to ``[-bound, bound]``, in units of the bound.

    With a link, ``f^{-1}(y)`` takes its place before it is clipped; after the report it would be biased. A label that
    is not finite is 0. ``arrays`` has the features too, for the server: they take no part in the report.

    Examples
    --------
    >>> Label(2.0).values({"y": np.array([1.0, 5.0, np.nan])}).ravel().tolist()
    [0.5, 1.0, 0.0]
    """

    tag: ClassVar[str] = "Label"

    bound: float
    link: Link = IDENTITY

    arrays: ClassVar[tuple[str, ...]] = ("X", "y")
    domain: ClassVar[Domain] = "box"

    def __post_init__(self) -> None:
        if not 1e-60 <= self.bound <= 1e60:
            raise BudgetError(f"Label needs a positive bound, got {self.bound!r}")

    @property
    def size(self) -> int:
        return 1

    def values(self, block: Block, state: Any = None) -> Floats:
        y = np.asarray(block["y"], dtype=np.float64).reshape(-1, 1)
        bad = ~np.isfinite(y)
        y = self.link.inverse(np.clip(np.where(bad, 0.0, y), -LARGEST_LABEL, LARGEST_LABEL))
        return np.where(bad | ~np.isfinite(y), 0.0, np.clip(y / self.bound, -1.0, 1.0))

    def restore(self, mean: Floats) -> Floats:
        return mean * self.bound


@dataclass(frozen=True)
class LabelReports(LocalProtocol):
    """Reports of labels, added up with the public features.

    The sum without a state is that of ``x x'`` (packed) and of ``x y`` with the report for y. At a state theta, it is
    the gradient ``x f'(u) (f(u) - y)``, ``u = <x, theta>``.

    Parameters
    ----------
    statistic : Label
    randomiser : Randomiser
        Of one number.
    n_features : int
    feature_bound : float
        Public features are cut at it.
    whole : bool
        Whether features are whole numbers (signs): then they are not rounded.
    radius : float
        Of theta, for the range of a gradient.
    link : Link
    """

    tag: ClassVar[str] = "LabelReports"

    n_features: int
    feature_bound: float
    whole: bool = False
    radius: float = 1.0
    link: Link = IDENTITY

    @property
    def protects(self) -> Protected:
        return Protected("the label (the features are taken for public)", LABEL)

    @property
    def has_sums(self) -> bool:
        """No: the products of reports and features have a law of their own."""
        return False

    @property
    def feature_grid(self) -> float:
        """Unit of a feature."""
        return 1.0 if self.whole else power_grid(self.feature_bound, FACTOR_BITS)

    @property
    def factor_bound(self) -> float:
        """Of ``f'(u) (f(u) - y)``."""
        start = float(np.abs(self.link.value(np.zeros(1))[0]))
        slope = self.link.slopes[1]
        reach = self.feature_bound * math.sqrt(self.n_features) * self.radius
        label = self.randomiser.influence / 2 * self.statistic.restore(np.ones(1))[0]
        return float(slope * (start + slope * reach + label))

    @property
    def units(self) -> int:
        x = int(self.feature_bound / self.feature_grid)
        return x * max(x, self.randomiser.units, 2**FACTOR_BITS)

    def summarise(self, block: Block, draws: Draws, state: Any = None) -> NDArray[np.int64]:
        reports = self.randomise(block, draws)
        X, _ = bounded_rows(block["X"], np.zeros(len(block["X"])), feature_bound=self.feature_bound)
        X = np.rint(X / self.feature_grid)
        if state is not None:
            # at most 2**20 units each and 4096 users: exact, in whatever order they are added
            return np.rint(self._gradient(X, reports, state) @ X).astype(np.int64)
        short = X.astype(np.float32) if self.whole and len(X) < 2**24 else X  # sums of signs are exact in both
        products = (short.T @ short)[np.triu_indices(self.n_features)]
        exact = len(X) * self.units <= 2**53
        dtype = np.float64 if exact else np.int64
        labelled = reports.astype(dtype) @ X.astype(dtype, copy=False)
        return np.concatenate([products.astype(np.int64), labelled.astype(np.int64)])

    def accumulate(self, reports: NDArray[Any], state: Any = None) -> NDArray[np.int64]:
        """Refused: reports of labels mean something beside the features of their users only."""
        raise BudgetError(
            "reports of labels are added up with the public features of their users: use summarise, or "
            "SparseRegression(private='label')"
        )

    def moments(self, total: Floats, n_users: int) -> tuple[Floats, Floats]:
        """``X'X / n`` and ``X'y / n``, with the reports for y."""
        cut = packed_size(self.n_features)
        b = self.statistic.restore(self.randomiser.decode(total[cut:], n_users))
        return unpack_symmetric(total[:cut]) * (self.feature_grid**2 / n_users), b * self.feature_grid

    def mean_gradient(self, total: Floats, n_users: int) -> Floats:
        """Of the half squared loss."""
        return total * (power_grid(self.factor_bound, FACTOR_BITS) * self.feature_grid / n_users)

    def estimate(self, total: Floats, n_users: int) -> Floats:
        """The sum over the number of users, as it is: `moments` and `mean_gradient` read it."""
        return np.asarray(total, dtype=np.float64)

    def _gradient(self, X: Floats, reports: NDArray[Any], theta: Floats) -> Floats:
        """``f'(u) (f(u) - y)`` of every user, in units."""
        u = np.zeros(len(X))
        for j in np.flatnonzero(theta):
            u += X[:, j] * (theta[j] * self.feature_grid)
        one = self.randomiser.decode(np.ones(1), 1)[0]  # what a report of 1 stands for
        y = self.statistic.restore(reports.astype(np.float64) * one)
        factors = self.link.derivative(u) * (self.link.value(u) - y)
        grid = power_grid(self.factor_bound, FACTOR_BITS)
        factors = np.clip(np.where(np.isfinite(factors), factors, 0.0), -self.factor_bound, self.factor_bound)
        return np.rint(factors / grid)


@dataclass(frozen=True)
class LabelPasses(Reports):
    """Gradient steps on the same reports: the rows are asked ``n_passes`` times under one key.

    What is released are the sums of all passes, from which anybody can follow the steps (`follow`).

    Parameters
    ----------
    n_passes, n_rows, n_nonzero : int
    radius, step : float
    """

    tag: ClassVar[str] = "LabelPasses"

    n_passes: int = N_PASSES
    n_rows: int = 1
    n_nonzero: int = 1
    radius: float = 1.0
    step: float = 1.0

    @property
    def passes(self) -> int:
        return self.n_passes

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        """All passes, under one fresh key."""
        key = bits.words(4).tobytes()
        totals: list[NDArray[Any]] = []

        def asked(theta: Floats) -> NDArray[Any]:
            totals.append(ask((key, theta)))
            return totals[-1]

        self.follow(asked)
        return np.stack(totals)

    def follow(self, total: Callable[[Floats], NDArray[Any]]) -> Floats:
        """The last point of the steps, given the sum at each point."""
        protocol = self.protocol
        assert isinstance(protocol, LabelReports)

        def gradient(theta: Floats) -> Floats:
            return protocol.mean_gradient(np.asarray(total(theta)).astype(np.float64), self.n_rows)

        start = np.zeros(protocol.n_features)
        return threshold_gradients(gradient, start, self.n_nonzero, self.radius, self.step, self.n_passes)


@dataclass(frozen=True)
class LabelMethod(SparseMethod):
    """label-ldp-iht, label-ldp-lasso and label-ldp-iht-nonlinear.

    From the exact second moments of the features and the reported labels, or, with many features or the gradient of a
    link, by `N_PASSES` passes over the same reports.

    Parameters
    ----------
    reports : {"auto", "gaussian", "one-bit"}
        The law of the report of a label.
    link_mode : {"invert", "gradient"}
        Whether users put ``f^{-1}(y)`` in the place of y (less noise), or the gradient goes through f.
    """

    laws: ClassVar[tuple[str, ...]] = ("auto", "gaussian", "one-bit")

    link_mode: LinkMode = "invert"

    def decide(self, public: Public, statement: SparseProblem) -> Self:
        choice("link_mode", self.link_mode, LINK_MODES)
        return super().decide(public, statement)

    @property
    def curved(self) -> bool:
        return self.link_mode == "gradient" and self.statement.link.slopes != (1.0, 1.0)

    @property
    def bound(self) -> float:
        """Where labels are clipped: ``2 R + C``, plus ``|f(0)|`` where a link stays outside."""
        problem = self.statement
        if problem.label_bound is not None or not self.curved:
            return self.residual_bound
        return self.residual_bound + float(np.abs(problem.link.value(np.zeros(1))[0]))

    @property
    def protocols(self) -> Sequence[LabelReports]:
        problem, budget = self.statement, self.public.budget
        statistic = Label(self.bound, IDENTITY if self.curved else problem.link)
        law: Randomiser = best_scalar(float(budget.epsilon))
        if self.reports == "gaussian":
            law = GaussianScalar(1, float(budget.epsilon), float(budget.delta))
        elif self.reports == "one-bit":
            law = OneBit(1, float(budget.epsilon))
        cut = problem.feature_bound or (1.0 if problem.sign else PUBLIC_WIDTHS)
        link = problem.link if self.curved else IDENTITY
        whole = problem.sign and cut == 1.0
        return [LabelReports(statistic, law, problem.n_features, cut, whole, problem.radius, link)]

    @property
    def in_passes(self) -> bool:
        """Whether the rows are read several times."""
        return self.curved or self.statement.n_features > MOST_PACKED

    def queries(self) -> Sequence[Reports]:
        problem = self.statement
        if not self.in_passes:
            return super().queries()
        low, high = problem.link.slopes
        step = 1.0 if self._fast else 1.0 / problem.eigenvalues[1]
        if self.curved:
            step *= 2 / (low**2 + high**2)
        steps = (N_PASSES, self.public.n_rows, problem.n_nonzero, problem.radius, step)
        return [LabelPasses(self.protocols[0], self.fidelity, *steps)]

    @property
    def std(self) -> float:
        steep = self.statement.link.slopes[0] if self.curved else 1.0
        return self.bound * self.protocols[0].noise_std / math.sqrt(self.public.n_rows) / steep

    @property
    def _fast(self) -> bool:
        return not isinstance(self.statement.design, General)

    def coefficients(self, oracle: Oracle) -> Floats:
        total = self.total(oracle)
        if self.in_passes:
            query = self.queries()[0]
            assert isinstance(query, LabelPasses)
            left = iter(total)
            return query.follow(lambda theta: next(left))
        return self._from_moments(*self.protocols[0].moments(total, self.public.n_rows))

    @abstractmethod
    def _from_moments(self, S: Floats, b: Floats) -> Floats:
        """The coefficients, of second moments with the reports for the labels."""


class LabelThresholding(LabelMethod):
    """Iterative hard thresholding, with steps of length 1 where features are independent, otherwise with shorter ones.

    (Seed 000, Algorithm 5.3.42, prints the sign of a step that moves away from the solution.)
    """

    tag, name = "LabelThresholding", "iht"

    def _from_moments(self, S: Floats, b: Floats) -> Floats:
        problem = self.statement
        if not self._fast:
            return sparse_from_statistics(S, b, problem.n_nonzero, problem.radius)
        start = np.zeros(problem.n_features)
        return threshold_gradients(lambda theta: S @ theta - b, start, problem.n_nonzero, problem.radius, 1.0, N_PASSES)


class LabelLasso(LabelMethod):
    """The lasso with penalty ``sd sqrt(2 ln(d) / n)``, sd the noise of a report, then least squares on the largest
    ``n_nonzero`` coefficients, which removes what the penalty has shrunk."""

    tag, name = "LabelLasso", "lasso"

    def _from_moments(self, S: Floats, b: Floats) -> Floats:
        penalty = self.std * math.sqrt(2 * math.log(max(2, self.statement.n_features)))
        return refit(S, b, quadratic_l1(S, b, penalty=penalty), self.statement.n_nonzero)
