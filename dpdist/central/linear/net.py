"""The best point of a net, chosen privately (``solver="net"``): the global minimum of any loss of few coefficients.

One pass sums the loss at K public points of a ball; the exponential mechanism chooses one of them with probability
proportional to ``exp(-epsilon n F(w_k) / (2 B))``, F the mean loss with its penalty and B what a row can move a score
by (seed 000, Theorem 4.2.4). With probability ``1 - e^-t`` the choice is at most

    (2 B / (n epsilon)) (ln K + t) + G alpha

above the minimum in the ball, alpha the distance of its points to the net. A descent from the wrong basin stays there;
this finds the right one, for up to four coefficients.

Why it is private: one row moves every score by B at most (`dpdist.queries.loss_tables`), and nothing but the number of
the choice is released: epsilon-DP.

>>> import numpy as np
>>> from dpdist import Minimizer
>>> from dpdist.losses import Biweight
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, size=(3000, 2)) / 2**0.5
>>> y = X @ [0.5, -0.3] * rng.choice([1, -1], size=3000, p=[0.7, 0.3])
>>> model = Minimizer(Biweight(0.5), solver="net", epsilon=1.0, delta=0, row_norm=1.0, fit_intercept=False,
...                   random_state=0).set_params(solver__radius=1.0)
>>> bool(np.linalg.norm(model.fit(X, y).coef_ - [0.5, -0.3]) < 0.1)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm
from dpdist.central.linear.linear_method import LinearMethod, Problem, Vector, bounded_by, need, reads
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_bound
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.selection import ExponentialMechanism
from dpdist.queries.loss_tables import LossTable, Net
from dpdist.solvers.nets import accuracy_of, ball_net, points_for

MOST_COEFFICIENTS = 4
MOST_POINTS, USUAL_POINTS = 200_000, 20_000
WIDEST = 10.0
"""Radius where no penalty says more."""


@dataclass(frozen=True)
class ExponentialNet(LinearMethod):
    """A private choice among the points of a net.

    Parameters
    ----------
    radius : float, optional
        Public: coefficients (and the weight of the constant feature) lie in the ball of that radius. Default: that of
        ``constraint=L2Ball(radius)``, else where the minimum has to be because of a ridge penalty, ``G / strength``,
        and 10 at most; required for a loss whose values have no bound.
    accuracy : float, optional
        alpha, how far a point of the ball may be from the net. Default: ``d / (n epsilon)``, or what 20 000 points
        reach; one that takes more than 200 000 points is refused.

    Examples
    --------
    >>> from dpdist import Minimizer
    >>> from dpdist.constraints import L2Ball
    >>> from dpdist.losses import Biweight
    >>> from dpdist.problems.bounded_problems import bimodal_biweight
    >>> data, truth = bimodal_biweight(2000, random_state=0)
    >>> model = Minimizer(Biweight(0.5), constraint=L2Ball(1.0), solver=ExponentialNet(accuracy=0.05), row_norm=1.0,
    ...     fit_intercept=False, epsilon=1.0, delta=0, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([ 0.1, -0.7]), array([ 0. , -0.7]))
    """

    tag, name = "ExponentialNet", "net"

    n_rounds: int | None = field(default=1, kw_only=True, repr=False, metadata=DECIDED)
    radius: float | None = None
    accuracy: float | None = None

    n_points: int = field(default=0, kw_only=True, repr=False, metadata=DECIDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("radius", "accuracy"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        assert isinstance(problem.gradient, ClipNorm)
        if problem.gradient.clip_norm is not None:
            raise BudgetError(
                f"clip_norm={problem.gradient.clip_norm:g} bounds gradients, and solver='net' asks for none: leave it "
                "out"
            )
        reads(problem, self.name, All)
        need(problem, "row_norm")
        size = problem.n_parameters
        if size > MOST_COEFFICIENTS:
            raise BudgetError(
                f"solver='net' is for up to {MOST_COEFFICIENTS} coefficients, the intercept included, and there are "
                f"{size}: a net of that many would have too many points. Use solver='gradient'"
            )
        if problem.budget.delta > 0:
            raise BudgetError(
                f"delta={problem.budget.delta:g} would be given away: solver='net' makes one choice under epsilon "
                "alone. Pass delta=0"
            )
        radius = self._radius(problem)
        n_points = self._n_points(problem, radius)
        decided = self._with(public, problem, radius=radius, n_points=n_points)
        found = len(decided._points())
        return decided._with(public, problem, n_points=found, accuracy=accuracy_of(size, radius, n_points))

    def lines(self) -> list[Line]:
        return [Line("point", ExponentialMechanism(), self.table(None), count=self.problem.n_problems)]

    def table(self, target: int | None) -> LossTable:
        """What is asked."""
        problem = self.problem
        assert problem.row_norm is not None and self.radius is not None
        return LossTable(problem.loss, problem.row_norm, self.radius, self.n_points, problem.intercept, target)

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem, points = self.problem, self._points()
        costs = np.zeros(len(points))
        if problem.penalty is not None:
            d = problem.n_features
            costs = problem.n_rows * np.array([problem.penalty.value(w[:d]) for w in points])
        return points[int(oracle.ask("point", Net(points, costs), self.table(target))[0])]

    def expected_error(self, plan: Plan) -> float | None:
        """The mean of what the choice is above the best point where the loss is a bowl, ``d B / (n epsilon)``."""
        sensitivity = self.table(None).sensitivity(self.problem.neighbours)
        epsilon = plan["point"].mechanism.cost.parameter
        return self.problem.n_parameters * sensitivity / (self.problem.n_rows * epsilon)

    def _points(self) -> Vector:
        assert self.radius is not None
        return ball_net(self.problem.n_parameters, self.radius, self.n_points)

    def _radius(self, problem: Problem) -> float:
        given = problem.constraint
        if given is not None and not isinstance(given, L2Ball):
            raise BudgetError(
                f"solver='net' has points of a ball: pass constraint=L2Ball(radius) or none, got {given!r}"
            )
        if self.radius is not None:
            if given is not None and self.radius > given.radius:
                raise BudgetError(
                    f"radius={self.radius:g} is outside of the constraint {given!r}: leave one of them out"
                )
            return self.radius
        if given is not None:
            return given.radius
        if not math.isfinite(problem.loss.value_bound):
            raise BudgetError(
                f"radius is missing: values of the loss {problem.loss.name!r} have no bound, so that the noise grows "
                "with the size of the net; pass ExponentialNet(radius=...), the norm that coefficients may have"
            )
        assert problem.row_norm is not None
        steepest = problem.loss.lipschitz(math.hypot(problem.row_norm, problem.intercept))
        ridge = problem.strong_convexity if not problem.intercept else 0.0
        return min(WIDEST, steepest / ridge) if ridge else WIDEST

    def _n_points(self, problem: Problem, radius: float) -> int:
        size = problem.n_parameters
        wanted = self.accuracy or min(radius, size / (problem.public.n_units * problem.budget.epsilon))
        # counted by volume first, in logarithms: what is far too many need not be counted one by one
        edge = math.log(radius) - math.log(wanted) + math.log(size / 4) / 2
        decades = (size * (math.log(math.pi) / 2 + edge) - math.lgamma(size / 2 + 1)) / math.log(10)
        countable = decades < math.log10(4 * MOST_POINTS)
        many = points_for(size, radius, wanted) if countable else MOST_POINTS + 1
        if self.accuracy is None:
            return min(USUAL_POINTS, max(many, 2 * size + 1))
        if many == 1:
            raise BudgetError(
                f"accuracy={self.accuracy:g} takes a net of one point, 0, which is no choice: pass less than "
                f"{radius * math.sqrt(size) / 2:.3g}"
            )
        if many > MOST_POINTS:
            found = f"{many}" if countable else f"about 1e{decades:.0f}"
            raise BudgetError(
                f"accuracy={self.accuracy:g} takes a net of {found} points, more than {MOST_POINTS}: pass "
                f"{accuracy_of(size, radius, MOST_POINTS):.3g} or more, or a smaller radius"
            )
        return many
