"""Newton steps that weigh each release by what is already known: a Kalman filter for the minimiser.

The state is a point ``w`` and a matrix ``S``, how far from it the minimiser may be; both are functions of releases
and public numbers. A noisy gradient ``g = H (w - w*) + noise`` then moves the point by the gain
``K = S H (H S H + R)^-1``, R the variance of the noise:

* directions whose signal is below their noise move little: shrinkage, damping, floor and ridge are one thing;
* gradients of all rounds are averaged by their precision, so that T of them cost about as much as one with the whole
  budget;
* at w = 0 the Hessian of a logistic loss is exactly a quarter of the second moment, and the first gradient tells how
  large margins are: for normal rows it is that of a quadratic with the mean curvature at the minimiser's margins
  (Stein), and the first step goes there at once, where Newton's would need one round per unit of margin;
* where Hessians are released, all gradients are asked at the end what they say together
  (`dpdist.solvers.joint_gradients`): how far each was from the minimiser is known then. Where that ends far from the
  loop, whose steps it came from, the loop is right: margins so steep that most rows have no curvature left;
* where Hessians are too noisy, steps begin at the best margin for all rows, which released counts of the classes tell;
* there, and where nothing public tells the size of a slope, they end by asking all releases once more how large slopes
  are (`dpdist.solvers.prior_sizes`). Where their signal is below the noise, the start or the best constant remains,
  however rare a class is.

Later Hessians are released, or only their mean curvature, which scales the second moment. The numbers below were
measured on logistic problems (Gaussian noise, several laws of rows); those that the answers are judged by are others.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpdist.solvers.denoising import denoised
from dpdist.solvers.joint_gradients import ERROR_OF_HESSIAN, Joint, Seen, joint
from dpdist.solvers.margins import MARGINS, Curvature
from dpdist.solvers.prior_sizes import around_mean, evidence, made_margins, shrunken, weighed_by_size
from dpdist.solvers.spectral import solve_psd

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

CONSTANT = 9.0
"""That of the constant feature's part."""
LEAST_COUNTED = 0.01
"""Of the rows, whatever the noisy second moment says."""
LEAST_LENGTH = 0.02
"""Of a row, squared and relative to its bound, whatever the noisy trace says."""
ERROR_OF_REUSED = 0.5
"""Which part of the noise counts of a second moment that stands for all Hessians: its error is in every step. With a
part c, where it hides a curvature of ``2 sqrt(d)`` of its noise, the edge, steps are ``1 / c`` times as long as they
should be; above 2 the distance grows from round to round."""
MOVED_HESSIAN = 0.49
"""Squared relative error of a Hessian at the point where a step ends: curvature changes on the way."""
CURVATURE_RATIO = (0.05, 1.2)
"""How far the curvature may change between two rounds."""
HESSIAN_FLOOR = 0.05
"""Least eigenvalue of a Hessian, relative to its noise."""
CHANGES = (0.0, *np.geomspace(1e-6, 1.0, 25))
"""By how much entries of a Hessian may change from point to point, squared and relative to its eigenvalues."""
SCARCE = 30.0
"""Signal to noise (rows x mu / sqrt(features)) below which the prior may shrink by what the first gradient says."""
UNSURE = 0.5
"""Power of the change of curvature that the first step allows for, where no Hessian shows it later: rows in two heaps
have half the margins that normal rows of the same linear fit would have."""
CONTRADICTED = 4.0
"""Times what the end of the loop falls short, which counts no error of Hessians: where gradients together fall short by
more of it, the last Hessian is too flat to tell what the first ones told, and the end of the loop stands."""
LEAST_LEFT = 0.3
"""Of the prior's variance, in the error that is stated: where a gradient shows nothing there may be something."""


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
    prior : array of shape (d, d)
        Covariance of the minimiser's coordinates before the first step.
    most : float
        Excess of the objective (a sum) at the start, at most.
    n_rows : float
        How many rows there are in the sums, by their weights.
    last_step : float
        Decrease of the objective (a sum) in the last step, by that Hessian, without what noise alone is expected to
        give.
    steps : sequence of (array, array)
        The gain of each step, and the variances of the noise in its gradient; none where gradients count together.
    kept : array of shape (d, d), optional
        What was kept of all of them together, where that was asked at the end.
    """

    point: Vector
    noise: Matrix
    shrinkage: Matrix
    hessian: Matrix
    prior: Matrix
    most: float
    n_rows: float
    last_step: float = math.inf
    steps: Sequence[tuple[Matrix, Vector]] = ()
    kept: Matrix | None = None

    def left_by(self, hessian: Matrix) -> tuple[Matrix, Matrix]:
        """What ``noise`` and ``shrinkage`` are where the Hessian was another one than the steps were made with."""
        assert self.steps
        noise, shrinkage = np.zeros_like(hessian), np.eye(len(hessian))
        for gain, variance in self.steps:
            left = np.eye(len(hessian)) - gain @ hessian
            noise, shrinkage = left @ noise @ left.T + (gain * variance) @ gain.T, left @ shrinkage
        return (noise, shrinkage) if self.kept is None else _scaled(self.kept, noise, shrinkage)

    @property
    def excess(self) -> float:
        """Expected excess of the objective (a sum): noise, shrinkage, and what the last step still gained."""
        noise = float(np.sum(self.hessian * self.noise)) / 2
        left = float(np.sum(self.hessian * (self.shrinkage @ self.prior @ self.shrinkage.T))) / 2
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
    labels: Noisy | None = None,
    sized: bool = False,
) -> Generator[Question, Noisy, Solution]:
    """Newton steps with filter gains, from 0.

    Parameters
    ----------
    second_moment : Noisy
        ``sum z z'`` over bounded rows whose last entry is ``constant``, with the noise of `SymmetricGaussian`.
    curvature : Curvature
    n_rows : float
        Public. Where the second moment tells of clearly fewer, the others were null rows: they count nowhere.
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
    labels : Noisy, optional
        Their mean, with noise: steps begin at the best margin for all rows then.
    sized : bool
        Whether all releases are asked at the end how large slopes are. They are where there are labels.
    """
    d = len(second_moment.value)
    slopes = np.ones(d)
    slopes[d - 1 :] = 0.0 if constant else 1.0
    penalty = np.diag(ridge * slopes)
    off_diagonal = second_moment.std / math.sqrt(2)
    n_rows = counted_rows(float(second_moment.value[-1, -1]), second_moment.std, n_rows, constant)
    squares = float(slopes @ np.diag(second_moment.value))
    lengths = max(squares, least_length * n_rows * row_norm**2)
    prior = np.where(slopes > 0, MARGINS * n_rows / lengths, CONSTANT / constant**2 if constant else 0.0)
    known = Noisy(curvature.at_zero * second_moment.value, curvature.at_zero * second_moment.std)
    start = whole_hessian(known)
    moments = start / (curvature.at_zero * n_rows)
    loss_part, error = start, curvature.at_zero * off_diagonal
    origin = w = np.zeros(d)
    noise, shrinkage, turn = np.zeros((d, d)), np.eye(d), np.eye(d)
    spread = before = np.diag(prior)
    most = n_rows * curvature.value_at_zero
    found = Solution(w, noise, shrinkage, start + penalty, before, most, n_rows)
    reused = "hessian" not in rounds
    steps: list[tuple[Matrix, Vector]] = []
    seen: list[Seen] = []
    tied: float | None = 0.0 if sized else None
    for number, kind in enumerate(rounds):
        if kind == "curvature":
            mean = (yield Question("curvature", number, w)).value[0] / n_rows
            ratio = float(np.clip(mean / curvature.at_zero, *CURVATURE_RATIO))
            loss_part, error = ratio * start, ratio * curvature.at_zero * off_diagonal
        elif kind == "hessian":
            released = yield Question("hessian", number, w)
            known = updated_hessian(known, released)
            loss_part, error = whole_hessian(known), known.std / math.sqrt(2)
        hessian = loss_part + penalty
        gradient = yield Question("gradient", number, w)
        g, variance = gradient.value + ridge * slopes * w, np.full(d, gradient.std**2)
        if number == 0:
            if labels is not None and curvature.level is not None:
                level = curvature.level(shrunken(float(labels.value[0]), labels.std))
                sums = start[:, -1] / (curvature.at_zero * constant)
                sums[-1] = n_rows * constant
                origin = w = np.append(w[:-1], level.margin / constant)
                g = level.offset * sums + level.scale * g
                variance *= level.scale**2
                mean, std = sums[:-1] / n_rows, level.scale * curvature.slope_at_zero * labels.std / level.curvature
                prior, turn, tied = around_mean(
                    mean, constant, lengths / n_rows, off_diagonal / n_rows, level.margin, std
                )
                prior *= np.where(slopes > 0, MARGINS, 1.0)
                spread = (turn * prior) @ turn.T
                variance[:-1] += (level.offset * off_diagonal / constant) ** 2
                ratio = level.curvature / curvature.at_zero
                loss_part, error = ratio * loss_part, ratio * error
                hessian = loss_part + penalty
            total = variance + _of_error(error, spread, slopes, reused)
            factor = evidence(g, hessian @ turn, prior, slopes, total, curvature.larger_margins, scarce=signal < SCARCE)
            spread = (turn * np.where(slopes > 0, factor * prior, prior)) @ turn.T
            before = (turn * np.where(slopes > 0, max(factor, LEAST_LEFT) * prior, prior)) @ turn.T
            total = variance + _of_error(error, spread, slopes, reused)
            around = moments - np.outer(moments[-1], moments[-1]) / constant**2 if constant else moments
            made = made_margins(g, _gain(hessian, spread, total), total, around)
            ratio = curvature.at_margins(curvature.margins(made)) ** (UNSURE if reused else 1.0)
            loss_part, error = ratio * loss_part, ratio * error
            hessian = loss_part + penalty
        signal_part = hessian @ spread @ hessian
        total = variance + _of_error(error, spread, slopes, reused)
        gain = _gain(hessian, spread, total)
        step = -gain @ g
        w = w + step
        left = np.eye(d) - gain @ hessian
        spread = left @ spread @ left.T + gain @ (np.diag(total) + MOVED_HESSIAN * signal_part) @ gain.T
        spread = (spread + spread.T) / 2
        of_gradient = (gain * variance) @ gain.T
        of_noise = float(np.sum(hessian * (of_gradient + gain @ hessian @ noise @ hessian @ gain.T))) / 2
        noise = left @ noise @ left.T + of_gradient
        shrinkage = left @ shrinkage
        gained = float(step @ hessian @ step) / 2 - of_noise
        steps.append((gain, variance))
        seen.append(Seen(w - step, g, variance))
        found = Solution(w, noise, shrinkage, hessian, before, most, n_rows, max(gained, 0.0), steps)
    if not reused:
        together = joint(seen, hessian, error, moments, before, origin, w, spread)
        if _falls_short(together, found, origin) <= CONTRADICTED * _falls_short(found, found, origin):
            w, noise, shrinkage = together.point, together.noise, together.shrinkage
            found = replace(found, point=w, noise=noise, shrinkage=shrinkage, steps=())
    if tied is None:
        return found
    reached = np.eye(d) - shrinkage
    kept, size = weighed_by_size(w - origin, reached, noise, turn, prior, slopes, tied)
    noise, shrinkage = _scaled(kept, noise, shrinkage)
    return replace(
        found,
        point=origin + kept @ (w - origin),
        noise=noise,
        shrinkage=shrinkage,
        prior=(turn * np.where(slopes > 0, size * prior, prior)) @ turn.T,
        kept=kept,
    )


def _falls_short(of: Solution | Joint, end: Solution, origin: Vector) -> float:
    """Twice the excess of the objective that noise and shrinkage leave, where the loop's end tells the way.

    What is left of the way to it is known up to the end's own noise, which is taken off.
    """
    left = of.shrinkage @ (end.point - origin)
    hidden = of.shrinkage @ end.noise @ of.shrinkage.T
    short = float(left @ end.hessian @ left - np.sum(end.hessian * hidden))
    return float(np.sum(end.hessian * of.noise)) + max(short, 0.0)


def updated_hessian(before: Noisy, released: Noisy) -> Noisy:
    """What is known of a Hessian after a former one, of another point, and a release: their mean by precision.

    In the eigenvectors of the former one its entries have changed by one ratio, and beyond it by ``q h_i h_j`` in the
    mean square, q the most likely of `CHANGES`. An entry that noise hides is the mean of all releases so far, one that
    stands out is the last. Both are noisy: `whole_hessian` is what steps rest on.
    """
    values, vectors = np.linalg.eigh(whole_hessian(before))
    raw, old, new = vectors.T @ released.value @ vectors, before.std**2 / 2, released.std**2 / 2
    ratio = float(np.clip(values @ np.diag(raw) / (values @ values), *CURVATURE_RATIO))
    rest = raw - ratio * (vectors.T @ before.value @ vectors)
    twice = 1 + np.eye(len(values))
    old, sizes = ratio**2 * old, ratio**2 * values[:, None] * values
    likelihood = []
    for q in CHANGES:
        variance = twice * (old + q * sizes + new)
        likelihood.append(-float((np.log(variance) + rest**2 / variance).sum()))
    known = old + CHANGES[int(np.argmax(likelihood))] * sizes
    gain = known / (known + new)
    value = ratio * before.value + vectors @ (gain * rest) @ vectors.T
    return Noisy((value + value.T) / 2, math.sqrt(2 * new * float((gain * twice).sum() / twice.sum())))


def whole_hessian(found: Noisy) -> Matrix:
    """Without most of its noise, and positive."""
    error = found.std / math.sqrt(2)
    return denoised(found.value, error, floor=HESSIAN_FLOOR * error)


def error_of_hessian(rounds: Sequence[str]) -> float:
    """Which part of the noise of a Hessian counts as its error."""
    return ERROR_OF_HESSIAN if "hessian" in rounds else ERROR_OF_REUSED


def counted_rows(square: float, std: float, n_rows: float, constant: float) -> float:
    """Rows that are in the sums, by their weights: the noisy square of the constant feature counts them.

    Up to two standard deviations; without a constant feature the public number.
    """
    if not constant:
        return n_rows
    return min(n_rows, max((square + 2 * std) / constant**2, LEAST_COUNTED * n_rows))


def _gain(hessian: Matrix, spread: Matrix, variance: Vector) -> Matrix:
    """That of a gradient, by what is known of the distance and the variance of its error."""
    return np.asarray(solve_psd(hessian @ spread @ hessian + np.diag(variance), hessian @ spread).T)


def _scaled(kept: Matrix, noise: Matrix, shrinkage: Matrix) -> tuple[Matrix, Matrix]:
    """What noise has left, and what is left of the distance, where that much is kept of a point."""
    return kept @ noise @ kept.T, np.eye(len(kept)) - kept @ (np.eye(len(kept)) - shrinkage)


def _of_error(error: float, spread: Matrix, slopes: Vector, reused: bool) -> float:
    """Variance of a gradient that the error of the Hessian makes of the distance.

    An error that is the same in all rounds is weighed by the largest distance that there may still be in a direction:
    what was learned of others does not make steps there shorter.
    """
    total = float(np.trace(spread))
    if not reused:
        return (ERROR_OF_HESSIAN * error) ** 2 * total
    d = int(slopes.sum())
    of_slopes = spread[:d, :d]
    total += d * float(np.linalg.eigvalsh(of_slopes)[-1]) - float(np.trace(of_slopes))
    return (ERROR_OF_REUSED * error) ** 2 * total
