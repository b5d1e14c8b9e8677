"""The direction of the mean of ``x y``: a polynomial of the first or second degree in the place of the loss.

``f(y u)`` becomes ``p_0 + p_1 y u + p_2 u^2``, whose mean at w is ``p_0 + p_1 <w, b> + p_2 w'S w`` with ``b = E x y``
and ``S = E x x'``. Of the first degree, the least value in a ball is in the direction of b, whatever the loss: the
right one where features have the same variance in all directions. Public rows make it so: users standardise theirs by
``z = A x``, ``A S A' = 1``, and shorten them then (shortened before, nothing would be bounded). The right direction may
be of no use in a ball, where hardly varying features take all of the length; between it and b there is a path
(`Direction`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.identity import ADDED
from dpdist.kernels.clip import clip_l2
from dpdist.local.linear.glm_method import GlmMethod, GlmProblem
from dpdist.local.linear.glm_public import KEPT, Standardised, public_numbers, some_matrix, whitening
from dpdist.local.linear.moment_regression import PRODUCT_SHARE
from dpdist.local.randomisers.vectors import best_vector
from dpdist.local.statistics.feature_maps import Mapped
from dpdist.local.statistics.labelled import LabelledRow
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import DECIDED, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.spectral import psd_floor, quadratic_on_ball

Floats = NDArray[np.float64]
RIDGES = np.concatenate([[0.0], np.logspace(-9, 3, 49)])
"""Times the mean of the second moments: what is added to each of them."""
LENGTHS = np.linspace(0.05, 1.0, 20)
"""Of coefficients, in units of the radius."""
NODES = 40
"""Of a mean over a normal margin."""


@dataclass(frozen=True)
class Whitened(Standardised):
    """``A x``, with a public A: no centre is taken off, since there is no intercept."""

    tag: ClassVar[str] = "Whitened"

    def __call__(self, X: Floats) -> Floats:
        return super().__call__(X)[:, :-1]


@dataclass(frozen=True)
class Direction(GlmMethod):
    """The direction of the mean of ``x y`` on the sphere, or the least value of a polynomial of degree 2 in the ball.

    With public rows, degree 1 takes the best point of a path from the right direction, ``S^-1 b``, to b, in the ball.

    Parameters
    ----------
    degree : {1, 2}, default 1
        2 is for two classes, where features vary unlike in different directions and no rows are public; with these, S
        is theirs. On rows that are alike in all directions it has more noise and nothing else.
    """

    tag, name = "Direction", "direction"
    measures: ClassVar[str] = "expected norm of the noise in the mean of x y, over the bound of a record"
    reads_public: ClassVar[bool] = True

    degree: int = field(default=1, metadata=ADDED)
    features: Whitened | None = field(default=None, kw_only=True, repr=False, metadata={**DECIDED, **ADDED})
    row_norm: float = field(default=1.0, kw_only=True, repr=False, metadata={**DECIDED, **ADDED})
    """Of the rows that are reported about."""
    products: tuple[tuple[float, ...], ...] | None = field(
        default=None, kw_only=True, repr=False, metadata={**DECIDED, **ADDED}
    )
    """S of public rows, standardised and shortened."""

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        if self.degree not in (1, 2):
            raise BudgetError(f"degree must be 1 or 2, got {self.degree!r}")
        if self.degree == 2:
            statement.powers(self.name, 2)
        assert statement.need("radius") and statement.need("row_norm")
        return self._with(public, statement, row_norm=statement.need("row_norm"))

    def given(self, public_X: Any) -> Self:
        rows, centre, covariance = public_numbers(public_X, self.public.n_features)
        matrix = some_matrix(whitening(covariance + np.outer(centre, centre)))
        d, k = self.public.n_features, len(matrix)
        made = Whitened(d, k, (0.0,) * d, tuple(map(tuple, matrix.tolist())))
        white = made(rows)
        norm = float(np.quantile(np.linalg.norm(white, axis=1), KEPT))
        white = clip_l2(white, norm)
        products = tuple(map(tuple, (white.T @ white / len(white)).tolist()))
        return replace(self, features=made, row_norm=norm, products=products)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        size = self.public.n_features if self.features is None else self.features.n_components
        bounds = {"row_norm": self.row_norm, "label_bound": self.statement.label_bound}
        of: LabelledRow | JointStatistics = LabelledRow(size, **bounds)
        if self.degree == 2 and self.features is None:
            of = JointStatistics(size, **bounds, share=PRODUCT_SHARE)
        law = best_vector(of.size, self.public.budget.epsilon)
        return [LocalProtocol(of if self.features is None else Mapped(self.features, of), law)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        found, of = self.estimate(oracle), self.protocols[0].statistic
        b, S = found, None
        if isinstance(of, JointStatistics):
            S, b = of.moments(found)
        elif self.products is not None:
            S = np.array(self.products)
        axes, noise = np.eye(len(b)), np.zeros_like(b)
        if self.features is not None:
            # A = U s V': orthonormal coordinates V'x = s^-1 U' z of the directions that vary
            left, sizes, right = np.linalg.svd(np.array(self.features.matrix), full_matrices=False)
            sizes = np.maximum(sizes, 1e-12 * sizes[0])
            back, axes = left.T / sizes[:, None], right.T
            assert S is not None
            S, b = back @ S @ back.T, back @ b
            noise = (of.restore(np.ones(len(b)))[0] * self.protocols[0].noise_std / sizes) ** 2 / self.public.n_rows
            if self.degree == 1:
                return self.fitted(axes @ self._on_path(S, b, noise), float("nan"))
        if self.degree == 1:
            return self.fitted(b / max(float(np.linalg.norm(b)), 1e-300), float("nan"))
        assert S is not None
        r, powers = self.statement.need("row_norm"), self.statement.powers(self.name, 2)
        w = quadratic_on_ball(psd_floor(2 * powers[2] / r**2 * S), powers[1] / r * b, 1.0)
        return self.fitted(axes @ w, float("nan"))

    def _on_path(self, S: Floats, b: Floats, noise: Floats) -> Floats:
        """The best of ``c (S + m)^-1 b`` in the unit ball, m from 0 (``S^-1 b``) to infinity (b).

        ``S^-1 b`` is the right direction, but where some features hardly vary most of its length, and most of the
        noise, is theirs. What is best is seen from S and b: the mean of the loss for normal margins of these moments,
        whose mean is cleared of what the noise in b, of those variances, adds to it. Labels that are no signs have no
        margins: m is 0.
        """
        values, turn = np.linalg.eigh(S)
        values, along = np.maximum(values, 1e-12 * values[-1]), turn.T @ b
        spread = (turn**2).T @ noise
        if self.statement.loss.labels != "signs":
            w = along / values
            return np.asarray(turn @ (w / max(float(np.linalg.norm(w)), 1e-300)))
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        best, least = np.zeros_like(b), math.inf
        for ridge in values.mean() * RIDGES:
            w = along / (values + ridge)
            length = max(float(np.linalg.norm(w)), 1e-300)
            mean = float(w @ along - (spread / (values + ridge)).sum()) / length
            std = math.sqrt(max(float(w**2 @ values) / length**2 - mean**2, 0.0))
            u = self.statement.need("radius") * LENGTHS[:, None] * (mean + std * nodes)
            risks = self.statement.loss.value(u, 1.0) @ weights
            if risks.min() < least:
                best, least = turn @ (w * (LENGTHS[risks.argmin()] / length)), float(risks.min())
        return np.asarray(best)

    def expected_error(self, plan: Plan) -> float:
        protocol, n = self.protocols[0], self.public.n_rows
        share = 1 - PRODUCT_SHARE if isinstance(protocol.statistic, JointStatistics) else 1.0
        return protocol.noise_std * math.sqrt(self.public.n_features / (share * n))
