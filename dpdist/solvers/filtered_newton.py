"""Newton steps that weigh each release by what is already known: a Kalman filter for the minimiser.

The state is a point ``w`` and a matrix ``S``, how far from it the minimiser may be; both are functions of releases
and public numbers. A noisy gradient ``g = H (w - w*) + noise`` then moves the point by the gain
``K = S H (H S H + R)^-1``, R the variance of the noise:

* directions whose signal is below their noise move little: shrinkage, damping, floor and ridge are one thing;
* gradients of all rounds are averaged by their precision, so that T of them cost about as much as one with the whole
  budget;
* at w = 0 the Hessian of a logistic loss is exactly a quarter of the second moment, so that the first step is a true
  Newton step.

Later Hessians are released, or only their mean curvature, which scales the second moment. The numbers below were
measured on logistic problems (Gaussian noise, several laws of rows); those that the answers are judged by are others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpdist.solvers.denoising import denoised
from dpdist.solvers.spectral import solve_psd

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

MARGINS = 5.0
"""Variance of the predictors of rows before anything is known of them: margins of two or three."""
CONSTANT = 9.0
"""That of the constant feature's part."""
LEAST_LENGTH = 0.02
"""Of a row, squared and relative to its bound, whatever the noisy trace says."""
ERROR_OF_HESSIAN = 0.15
"""Which part of a Hessian's noise counts: the rest of it falls on directions that the gain does not use."""
ERROR_OF_REUSED = 0.5
"""The same of a second moment that stands for all Hessians: its error is in every step. With a part c, where it hides
a curvature of ``2 sqrt(d)`` of its noise, the edge, steps are ``1 / c`` times as long as they should be; above 2 the
distance grows from round to round."""
MOVED_HESSIAN = 0.49
"""Squared relative error of a Hessian at the point where a step ends: curvature changes on the way."""
CURVATURE_RATIO = (0.05, 1.2)
"""How far the curvature may change between two rounds."""
HESSIAN_FLOOR = 0.1
"""Of what the former Hessian says, direction by direction: less is not believed."""
STEEPEST = 0.94
"""Largest standard deviation of linearised margins over what there can be; beyond it the prior would explode."""
SOLVABLE = 1e-12
"""Condition to which matrices are kept, so that floating-point solvers find them positive."""
SCARCE = 30.0
"""Signal to noise (rows x mu / sqrt(features)) below which the prior may shrink by what the first gradient says."""


class Noisy(NamedTuple):
    """A release, and the standard deviation of its noise (of a matrix: on the diagonal)."""

    value: NDArray[np.float64]
    std: float


@dataclass(frozen=True)
class Question:
    """What a loop wants to know at a public point."""

    kind: Literal["gradient", "hessian", "curvature"]
    round: int
    point: Vector


@dataclass(frozen=True)
class Curvature:
    """What is public of the second derivative of a loss.

    ``at_zero`` is ``l''(0, y)``, the same for all labels; ``average(s)`` its mean at normal margins of standard
    deviation s; ``value_at_zero`` is the loss at 0, and all that can be gained where no loss is negative.
    """

    at_zero: float
    average: Callable[[float], float]
    value_at_zero: float = math.inf

    def linearised(self, margins: float) -> float:
        """The standard deviation of margins that a linear model at 0 sees, where the true one is ``margins``."""
        return margins * self.average(margins) / self.at_zero

    def margins(self, linearised: float) -> float:
        """The inverse of `linearised`, which saturates."""
        grid = np.linspace(0.0, 8.0, 401)
        seen = np.maximum.accumulate([self.linearised(float(m)) for m in grid])
        return float(np.interp(min(linearised, STEEPEST * seen[-1]), seen, grid))


@dataclass
class Solution:
    """Where a loop ended.

    Attributes
    ----------
    point : array
    noise : array of shape (d, d)
        Covariance that the noise of the gradients has left in it.
    shrinkage : array of shape (d, d)
        What is left of the distance between start and minimiser.
    hessian : array of shape (d, d)
        The last one, of the sum.
    prior : array of shape (d,)
        Variances of the minimiser's coordinates before the first step.
    most : float
        Excess of the objective (a sum) at the start, at most.
    last_step : float
        Decrease of the objective (a sum) in the last step, by that Hessian.
    """

    point: Vector
    noise: Matrix
    shrinkage: Matrix
    hessian: Matrix
    prior: Vector
    most: float
    last_step: float = math.inf

    @property
    def excess(self) -> float:
        """Expected excess of the objective (a sum): noise, shrinkage, and what the last step still gained."""
        noise = float(np.sum(self.hessian * self.noise)) / 2
        left = float(np.sum(self.hessian * ((self.shrinkage * self.prior) @ self.shrinkage.T))) / 2
        return noise + min(left, self.most) + self.last_step


def filtered_newton(
    second_moment: Noisy,
    curvature: Curvature,
    *,
    n_rows: float,
    row_norm: float,
    constant: float,
    ridge: float,
    rounds: Sequence[Literal["gradient", "hessian", "curvature"]],
    signal: float,
    least_length: float = LEAST_LENGTH,
) -> Generator[Question, Noisy, Solution]:
    """Newton steps with filter gains, from 0.

    Parameters
    ----------
    second_moment : Noisy
        ``sum z z'`` over bounded rows whose last entry is ``constant``, with the noise of `SymmetricGaussian`.
    curvature : Curvature
    n_rows : float
        Public.
    row_norm : float
        Public bound of the rows' norm, without the constant feature.
    constant : float
        The constant feature; 0 for none.
    ridge : float
        Public ``alpha n_rows``, for all coordinates but the constant one.
    rounds : sequence of str
        What each round asks before its gradient: nothing (``"gradient"``), the Hessian, or the mean curvature.
    signal : float
        Rows x mu / sqrt(features), of public numbers.
    least_length : float
        What the mean of the rows' squared norms is at least, relative to ``row_norm^2``, whatever the noisy trace says.
    """
    d = len(second_moment.value)
    slopes = np.ones(d)
    slopes[d - 1 :] = 0.0 if constant else 1.0
    penalty = np.diag(ridge * slopes)
    off_diagonal = second_moment.std / math.sqrt(2)
    squares = float(np.trace(second_moment.value)) - n_rows * constant**2
    lengths = max(squares, least_length * n_rows * row_norm**2)
    prior = np.where(slopes > 0, MARGINS * n_rows / lengths, CONSTANT / constant**2 if constant else 0.0)
    start = curvature.at_zero * denoised(second_moment.value, off_diagonal, floor=0.05 * off_diagonal)
    loss_part, error = start, curvature.at_zero * off_diagonal
    w, spread, noise, shrinkage = np.zeros(d), np.diag(prior), np.zeros((d, d)), np.eye(d)
    most = n_rows * curvature.value_at_zero
    found = Solution(w, noise, shrinkage, start + penalty, prior, most)
    reused = "hessian" not in rounds
    for number, kind in enumerate(rounds):
        if kind == "curvature":
            mean = (yield Question("curvature", number, w)).value[0] / n_rows
            ratio = float(np.clip(mean / curvature.at_zero, *CURVATURE_RATIO))
            loss_part, error = ratio * start, ratio * curvature.at_zero * off_diagonal
        elif kind == "hessian":
            released = yield Question("hessian", number, w)
            error = released.std / math.sqrt(2)
            loss_part = updated_hessian(loss_part, released.value, error)
        hessian = loss_part + penalty
        gradient = yield Question("gradient", number, w)
        g = gradient.value + ridge * slopes * w
        if number == 0:
            variance = _variance(gradient.std, error, spread, slopes, reused)
            prior = prior * np.where(slopes > 0, _evidence(g, hessian, prior, slopes, variance, curvature, signal), 1.0)
            spread = np.diag(prior)
        signal_part = hessian @ spread @ hessian
        variance = _variance(gradient.std, error, spread, slopes, reused)
        gain = solve_psd(signal_part + variance * np.eye(d), hessian @ spread).T
        step = -gain @ g
        w = w + step
        left = np.eye(d) - gain @ hessian
        spread = left @ spread @ left.T + gain @ (variance * np.eye(d) + MOVED_HESSIAN * signal_part) @ gain.T
        spread = (spread + spread.T) / 2
        noise = left @ noise @ left.T + gradient.std**2 * gain @ gain.T
        shrinkage = left @ shrinkage
        found = Solution(w, noise, shrinkage, hessian, prior, most, float(step @ hessian @ step) / 2)
    return found


def updated_hessian(before: Matrix, released: Matrix, noise: float) -> Matrix:
    """What a released Hessian adds to the former one: a change of scale, and what of the rest is above its noise."""
    ratio = float(np.clip(np.sum(released * before) / np.sum(before * before), *CURVATURE_RATIO))
    scaled = ratio * before + SOLVABLE * ratio * float(np.trace(before)) * np.eye(len(before))
    changed = scaled + denoised(released - scaled, noise)
    root = np.linalg.cholesky(scaled)
    half = scipy.linalg.solve_triangular(root, changed, lower=True)
    values, vectors = np.linalg.eigh(scipy.linalg.solve_triangular(root, half.T, lower=True))
    vectors = root @ vectors
    found: Matrix = (vectors * np.maximum(values, HESSIAN_FLOOR)) @ vectors.T
    return found


def error_of_hessian(rounds: Sequence[str]) -> float:
    """Which part of the noise of a Hessian counts as its error."""
    return ERROR_OF_HESSIAN if "hessian" in rounds else ERROR_OF_REUSED


def _variance(std: float, error: float, spread: Matrix, slopes: Vector, reused: bool) -> float:
    """Of a gradient, as the filter sees it: its noise, and what the error of the Hessian makes of the distance.

    An error that is the same in all rounds is weighed by the largest distance that there may still be in a direction:
    what was learned of others does not make steps there shorter.
    """
    total = float(np.trace(spread))
    if not reused:
        return float(std**2 + (ERROR_OF_HESSIAN * error) ** 2 * total)
    d = int(slopes.sum())
    of_slopes = spread[:d, :d]
    total += d * float(np.linalg.eigvalsh(of_slopes)[-1]) - float(np.trace(of_slopes))
    return float(std**2 + (ERROR_OF_REUSED * error) ** 2 * total)


def _evidence(
    g: Vector, hessian: Matrix, prior: Vector, slopes: Vector, variance: float, curvature: Curvature, signal: float
) -> float:
    """By how much the variance of the slopes is larger than was assumed: most likely given the first gradient.

    With a normal prior of standard deviation 1 on its logarithm. It may shrink only where data are scarce.
    """
    of_slopes = hessian @ np.diag(prior * slopes) @ hessian
    rest = hessian @ np.diag(prior * (1 - slopes)) @ hessian
    rest += max(variance, SOLVABLE * float(np.trace(of_slopes + rest))) * np.eye(len(g))
    weights, vectors = scipy.linalg.eigh(of_slopes, rest)
    z = (vectors.T @ g) ** 2
    logs = np.linspace(-5.0, 4.0, 181)
    variances = 1 + np.exp(logs)[:, None] * np.maximum(weights, 0.0)
    likelihood = -0.5 * (np.log(variances) + z / variances).sum(axis=1) - logs**2 / 2
    linearised = math.sqrt(MARGINS * math.exp(logs[int(np.argmax(likelihood))]))
    factor = curvature.margins(linearised) ** 2 / MARGINS
    return factor if signal < SCARCE else max(1.0, factor)
