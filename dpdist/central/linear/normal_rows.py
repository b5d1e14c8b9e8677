"""How far from the best fit solvers end with noise, on rows that are normal: from a spectrum, without any rows.

For normal rows of covariance ``diag(lambda)`` and predictors ``u = w'z`` the gradient of a mean loss is
``lambda_j (c(s) w_j - c(m) w*_j)`` (Stein's lemma): w* the minimiser, s and m the standard deviations of u at w and at
w*, c(s) the mean of ``l''`` at normal predictors of standard deviation s. So two numbers follow a coordinate, the
part ``a_j`` of w*_j that it has reached and its variance ``v_j``, and all of them meet in s. The excess is exact
in s and in the covariance of u and ``w*'z``: a large error costs what it costs, not its square.

`Rows` holds several cases at once, for what is not public; directions that are alike are counted, not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpdist.losses import Loss
from dpdist.solvers.filtered_newton import UNSURE
from dpdist.solvers.joint_gradients import CHANGED, ERROR_OF_HESSIAN, LOOKS

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
P = ParamSpec("P")
T = TypeVar("T")

NODES = np.linspace(-6.0, 6.0, 1201)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
SIZES = np.geomspace(1e-2, 1e3, 200)
"""Standard deviations of predictors for which a loss is tabled."""
ABSCISSAE, SHARES = np.polynomial.legendre.leggauss(24)
SHARES = SHARES / 2
FIXED_POINT = 60
"""Rounds in which a fixed point of s is found."""


def remembered(find: Callable[P, T]) -> Callable[P, T]:
    """A function whose results are kept, where its arguments have a hash (a loss of a user's may have none)."""
    kept: Any = lru_cache(maxsize=256)(find)

    @wraps(find)
    def found(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            hash(args)
        except TypeError:
            return find(*args, **kwargs)
        value: T = kept(*args, **kwargs)
        return value

    return found


@dataclass(frozen=True)
class Rows:
    """What is not known of rows and labels, in several cases.

    Attributes
    ----------
    moments : array of shape (cases, directions)
        Mean squares of a row in a direction; the constant feature, if there is one, is the last direction.
    weights : array of shape (cases, directions)
        Squared coordinates of the minimiser.
    counts : array of shape (directions,)
        How many directions are alike.
    constant : float
        The constant feature; 0 for none.
    residuals : array of shape (cases,)
        Standard deviation of real labels about their predictors.
    """

    moments: Matrix
    weights: Matrix
    counts: Vector
    constant: float
    residuals: Vector

    def sum(self, values: Matrix) -> Vector:
        """Over all directions."""
        found: Vector = values @ self.counts
        return found

    @property
    def squares(self) -> Vector:
        """Variance of the best predictors."""
        return self.sum(self.moments * self.weights)

    def cases(self) -> Iterator[Rows]:
        """Each by itself, all directions apart."""
        counts = self.counts.astype(int)
        for k in range(len(self.moments)):
            parts = [np.repeat(values[k], counts)[None] for values in (self.moments, self.weights)]
            yield Rows(parts[0], parts[1], np.ones(counts.sum()), self.constant, self.residuals[k : k + 1])

    def with_constant(self, constant: float) -> Rows:
        """The same rows with a constant feature of another size, if they have one."""
        if not self.constant:
            return self
        scale = np.append(np.ones(len(self.counts) - 1), (constant / self.constant) ** 2)
        return replace(self, moments=self.moments * scale, weights=self.weights / scale, constant=constant)


@dataclass(frozen=True)
class Response:
    """How curved a mean loss is at normal predictors of each of `SIZES`, and where all are 0."""

    curvature: Vector
    at_zero: float

    def slope(self, squares: Vector) -> Vector:
        """c(s), by the square of s; beyond the table it falls as that of a loss with bounded derivatives."""
        s = np.sqrt(np.maximum(squares, 0.0))
        found: Vector = np.interp(s, np.append(0.0, SIZES), np.append(self.at_zero, self.curvature))
        return found / np.maximum(s / SIZES[-1], 1.0) if np.ptp(self.curvature) > 0 else found

    def linearised(self, squares: Vector) -> Vector:
        """The standard deviation of predictors that a linear model at 0 sees."""
        found: Vector = np.sqrt(squares) * self.slope(squares) / self.at_zero
        return found

    def unlinearised(self, seen: Vector, steepest: float) -> Vector:
        """The inverse of `linearised`, up to that part of the largest there is."""
        sizes = SIZES[SIZES <= 8.0]
        table = np.maximum.accumulate(self.linearised(sizes**2))
        return np.interp(np.minimum(seen, steepest * table[-1]), table, sizes)

    def excess(self, rows: Rows, reached: Matrix, variances: Matrix) -> Vector:
        """Of the mean loss, where coordinates have those means (relative to the minimiser's) and variances.

        The mean loss grows by ``c(s) / 2`` with the square of s; what is not quadratic in it is integrated.
        """
        best = rows.squares
        missed = rows.sum(rows.moments * ((1 - reached) ** 2 * rows.weights + variances))
        squares = rows.sum(rows.moments * (reached**2 * rows.weights + variances))
        way = (squares - best)[:, None]
        bent = self.slope(best[:, None] + (way + way * ABSCISSAE) / 2) - self.slope(best)[:, None]
        found: Vector = (self.slope(best) * missed + way[:, 0] * (bent @ SHARES)) / 2
        return found


@remembered
def response(loss: Loss) -> Response:
    """Of the mean over both labels; of real labels that of the squared loss, whose curvature they are to have."""
    if loss.labels == "real":
        return Response(np.ones(len(SIZES)), 1.0)
    u = SIZES[:, None] * NODES
    curvature = (loss.derivative(u, 1.0) + loss.derivative(u, -1.0)) / 2 @ (WEIGHTS * NODES) / SIZES
    return Response(curvature, float(curvature[0]))


def descent(
    rows: Rows,
    response: Response,
    *,
    noise: float,
    step: Vector,
    momentum: Vector,
    ridge: float,
    rounds: int,
    tail: int,
) -> Vector:
    """Excess after noisy gradients of the mean loss, each followed by the proximal step of a ridge.

    ``noise`` is the standard deviation of a coordinate, ``step`` one of each case or of each of its directions, and
    ``tail`` how many of the last points are averaged.
    """
    best = response.slope(rows.squares)[:, None]
    step, momentum = step if step.ndim > 1 else step[:, None], momentum[:, None]
    slopes = np.ones(len(rows.counts))
    slopes[-1] = 0.0 if rows.constant else 1.0
    shrink = 1 / (1 + step * ridge * slopes)
    at = before = np.zeros_like(rows.moments)
    spread, old, joint = (np.zeros_like(rows.moments) for _ in range(3))
    total, counted = np.zeros_like(rows.moments), 0
    for t in range(rounds):
        ahead = at + momentum * (at - before)
        variance = (1 + momentum) ** 2 * spread + momentum**2 * old - 2 * (1 + momentum) * momentum * joint
        s = rows.sum(rows.moments * (ahead**2 * rows.weights + variance))
        curvature = rows.moments * response.slope(s)[:, None]
        kept = shrink * (1 - step * curvature)
        before, at = at, kept * ahead + shrink * step * rows.moments * best
        old, joint, spread = (
            spread,
            kept * ((1 + momentum) * spread - momentum * joint),
            kept**2 * variance + (shrink * step * noise) ** 2,
        )
        if t >= rounds - tail:
            total, counted = total + at, counted + 1
    if tail > 1:  # the mean of many points has the variance of the noise alone
        averaged = (noise / np.maximum(curvature, 1e-100)) ** 2 / tail
        return response.excess(rows, total / counted, np.minimum(spread, averaged))
    return response.excess(rows, at, spread)


def perturbed(rows: Rows, response: Response, *, term: float, ridge: float, noise: float) -> Vector:
    """Excess of a minimiser with a random linear term, for the mean loss, and noise on the released point."""
    best = response.slope(rows.squares)[:, None]
    squares = rows.squares
    for _ in range(FIXED_POINT):
        curvature = rows.moments * response.slope(squares)[:, None]
        reached = rows.moments * best / (curvature + ridge)
        variances = (term / (curvature + ridge)) ** 2
        found = rows.sum(rows.moments * (reached**2 * rows.weights + variances))
        squares = np.sqrt(squares * found)
    return response.excess(rows, reached, variances + noise**2)


@dataclass(frozen=True)
class Filter:
    """What `filtered_newton` knows beforehand, for a prediction of where it ends: public numbers.

    Attributes
    ----------
    kinds : sequence of str
        What each round asks before its gradient.
    gradients : sequence of float or array of shape (cases,)
        Standard deviations of the noise of the sums, round by round.
    moment, hessian : float
        Those of an entry of the second moment and of a Hessian, off the diagonal.
    margins, constant : float
        Variance of the margins, and of the part of the constant feature, before anything is known.
    known : float
        Which part of the noise of a matrix counts as its error.
    moved : float
        Squared relative error of a Hessian at the point where a step ends.
    revised : callable
        The variance of the margins that the first gradient suggests, where they are what they are.
    level : float or None
        Standard deviation of the coordinate of the constant feature where steps begin at the best constant.
    resized : callable or None
        The same as ``revised`` where all releases are asked at the end; None where they are not.
    unlinearised : callable or None
        The variance of margins by that of a linear fit; None where curvature is the same everywhere.
    """

    kinds: Sequence[str]
    gradients: Sequence[float | Vector]
    moment: float | Vector
    hessian: float
    margins: float
    constant: float
    known: float
    moved: float
    revised: Callable[[Vector, Vector], Vector]
    level: float | None = None
    resized: Callable[[Vector, Vector], Vector] | None = None
    unlinearised: Callable[[Vector], Vector] | None = None


def newton(rows: Rows, response: Response, n: float, ridge: float, filter: Filter) -> Vector:
    """Excess after Newton steps with the gains of `filtered_newton`, in the directions of the rows.

    ``ridge`` is that of the sum. Errors of matrices make gains small, and do little else once matrices are denoised.
    """
    x, counts = n * rows.moments, rows.counts
    best = response.slope(rows.squares)[:, None]
    slopes = np.ones(len(counts))
    slopes[-1] = 0.0 if rows.constant else 1.0
    lengths = rows.sum(x * slopes)[:, None]
    spread = filter.margins * n / lengths * slopes
    if rows.constant:
        spread = spread + filter.constant / rows.constant**2 * (1 - slopes)
    at, variances = np.zeros_like(x), np.zeros_like(x)
    left, noise_left = np.ones_like(x), np.zeros_like(x)  # as the filter sees them, by the Hessians that it has
    if filter.level is not None:  # without the slopes the best constant is a smaller one
        at[:, -1], variances[:, -1], spread[:, -1] = best[:, 0] / response.at_zero, filter.level**2, filter.level**2
    error, curvature = response.at_zero * filter.moment, np.full(len(x), response.at_zero)
    reused = "hessian" not in filter.kinds
    seen: list[tuple[Matrix, Matrix, Matrix]] = []
    for number, (kind, std) in enumerate(zip(filter.kinds, filter.gradients, strict=True)):
        squares = rows.sum(rows.moments * (at**2 * rows.weights + variances))
        now = response.slope(squares)
        if kind != "gradient":
            curvature = now
            error = filter.hessian if kind == "hessian" else filter.moment * float(np.max(now))
        h = curvature[:, None] * x + ridge * slopes
        if number == 0:
            noise = _variance(std, error, filter.known, spread, rows, slopes, reused)
            signal = (x * response.at_zero) ** 2 * spread * slopes / noise
            factor = filter.revised(rows.sum((signal / (1 + signal)) ** 2), rows.squares)[:, None]
            spread = prior = spread * np.where(slopes > 0, factor, 1.0)
            if filter.unlinearised is not None:
                signal = h * spread * h / _variance(std, error, filter.known, spread, rows, slopes, reused)
                made = signal / (1 + signal) * (x * best) / np.maximum(h, np.finfo(float).tiny)
                squares = filter.unlinearised(rows.sum(rows.moments * slopes * made**2 * rows.weights))
                ratio = (response.slope(squares) / response.at_zero) ** (UNSURE if reused else 1.0)
                h, error = (ratio * curvature)[:, None] * x + ridge * slopes, error * float(ratio.max())
        noise = _variance(std, error, filter.known, spread, rows, slopes, reused)
        gain, deviation = spread * h / (h * spread * h + noise), np.reshape(std, (-1, 1))
        true = x * now[:, None] + ridge * slopes
        seen.append((at, h * at - (true * at - x * best), deviation))
        at = at - gain * (true * at - x * best)
        variances = (1 - gain * true) ** 2 * variances + (gain * deviation) ** 2
        left, noise_left = (1 - gain * h) * left, (1 - gain * h) ** 2 * noise_left + (gain * deviation) ** 2
        spread = (1 - gain * h) ** 2 * spread + gain**2 * (noise + filter.moved * h * h * spread)
    if not reused:
        at, variances = _joint(rows, seen, at, h, error, spread, prior)
    if filter.resized is not None:  # all releases tell how large slopes are, and what is kept of the steps
        own, moved = filter.margins * n / lengths * slopes, 1 - left
        noise = noise_left + np.finfo(float).tiny
        shown = moved**2 * own / (moved**2 * own + noise)
        own = own * filter.resized(rows.sum(shown**2), rows.squares)[:, None]
        kept = np.where(slopes > 0, moved * own / (moved**2 * own + noise), 1.0)
        at, variances = kept * at, kept**2 * variances
    return response.excess(rows, at, variances)


def _joint(
    rows: Rows,
    seen: Sequence[tuple[Matrix, Matrix, Matrix]],
    at: Matrix,
    h: Matrix,
    error: float | Vector,
    spread: Matrix,
    prior: Matrix,
) -> tuple[Matrix, Matrix]:
    """What all gradients say together, as in `dpdist.solvers.joint_gradients`: means and variances of coordinates.

    Of each gradient where it was asked, what it says of the minimiser times the Hessian, and its noise.
    """
    for _ in range(LOOKS):
        weights, precision = [], 1 / np.maximum(prior, np.finfo(float).tiny)
        for point, _, std in seen:
            apart = (point - at) ** 2 * rows.weights + spread
            changed = CHANGED**2 * rows.sum(rows.moments * apart) / 2
            even = rows.sum(h * apart) / rows.counts.sum()
            known = std**2 + (error**2 * (rows.sum(apart - spread) + ERROR_OF_HESSIAN**2 * rows.sum(spread)))[:, None]
            weights.append(h / (known + changed[:, None] * (h * apart + even[:, None]) * h))
            precision = precision + weights[-1] * h
        spread = 1 / precision
        at = spread * sum(weight * said for weight, (_, said, _) in zip(weights, seen, strict=True))
        variances = spread**2 * sum((weight * std) ** 2 for weight, (_, _, std) in zip(weights, seen, strict=True))
    return at, variances


def _variance(
    std: float | Vector, error: float | Vector, known: float, spread: Matrix, rows: Rows, slopes: Vector, reused: bool
) -> Matrix:
    total = rows.sum(spread)
    if reused:
        total = rows.sum(spread * (1 - slopes)) + float(slopes @ rows.counts) * (spread * slopes).max(axis=1)
    variance: Vector = std**2 + (known * error) ** 2 * total
    return variance[:, None]


def least_squares(rows: Rows, n: float, steps: Sequence[Vector], moment: Vector, known: float) -> Vector:
    """Excess of half the squared error after two noisy looks, of which each direction takes what it is worth.

    ``steps`` are the standard deviations of the noise of ``X'y`` and of the gradient, ``moment`` those of the matrix.
    """
    spread, x = rows.weights, n * rows.moments
    for std in steps:
        variance = (std**2 + (known * moment) ** 2 * rows.sum(spread))[:, None]
        spread = spread * variance / (x * x * spread + variance)
    return rows.sum(x * spread) / (2 * n)
