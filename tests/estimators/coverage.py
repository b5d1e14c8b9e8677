"""How often intervals contain the truth, over thousands of fits to fresh rows; also a command.

``python -m tests.estimators.coverage CASE [FITS]`` prints the share of one case, by name, or of all (``all``). Those of
`AGAIN` have intervals by fits to rows of their own law, a hundred or more for each: name them one by one, with FITS.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from dpdist import (
    GaussianMixture,
    LinearRegression,
    LogisticRegression,
    Mean,
    MissingCovariateRegression,
    MixedRegression,
    SampleAndAggregate,
    TwoComponentMixture,
    local,
)
from dpdist.central import ClipLabel, SufficientStatistics
from dpdist.errors import NoIntervals
from dpdist.estimators.bootstrap import bootstrapped
from tests.estimators.quick_oracle import quick_fit

D = 10


def normal_rows(rng, n, d=D):
    """Independent, cut at three standard deviations so that no row is longer than 1."""
    return np.clip(rng.normal(size=(n, d)), -3, 3) / (3 * np.sqrt(d))


def correlated_rows(rng, n, d=D, rho=0.8):
    Z = rng.normal(size=(n, d))
    for j in range(1, d):
        Z[:, j] = rho * Z[:, j - 1] + np.sqrt(1 - rho**2) * Z[:, j]
    return np.clip(Z, -3, 3) / (3 * np.sqrt(d))


def bits(rng, n, d=D):
    """0/1 columns, not centred."""
    return (rng.random((n, d)) < 0.3) / np.sqrt(d)


@dataclass(frozen=True)
class Case:
    """A law of rows and labels with a known truth, and a model for it.

    ``least_gap`` is by how much leaving the noise out has to lower the coverage; ``public`` draws public rows.
    """

    model: Callable[[], Any]
    draw: Callable[[np.random.Generator], tuple[Any, Any]]
    truth: np.ndarray
    quick: bool = False
    least_gap: float = 0.03
    public: Callable[[np.random.Generator], Any] | None = None


def classes(law, n, epsilon, **kwargs):
    w = 4.0 * np.linspace(-1, 1, D)

    def draw(rng):
        X = law(rng, n)
        return X, (X @ w + 0.3 + rng.logistic(size=n) > 0).astype(int)

    return Case(
        lambda: LogisticRegression(classes=[0, 1], row_norm=1.0, epsilon=epsilon, delta=1e-6, solver="newton"),
        draw, np.append(w, 0.3), **kwargs,
    )  # fmt: skip


def normal_errors(rng, n):
    return 0.1 * rng.normal(size=n)


def skewed_errors(rng, n):
    return 0.1 * (rng.exponential(size=n) - 1)


def numbers(law, n, epsilon, errors=normal_errors, bound=1.0, **kwargs):
    w = np.linspace(-1, 1, D)

    def draw(rng):
        X = law(rng, n)
        return X, X @ w + 0.1 + errors(rng, n)

    return Case(
        lambda: LinearRegression(gradient=ClipLabel(bound), row_norm=1.0, epsilon=epsilon, delta=1e-6),
        draw, np.append(w, 0.1), **kwargs,
    )  # fmt: skip


def following(sandwich, law, n, epsilon, **kwargs):
    """Errors that are the larger the farther a row is from the middle of one column."""
    w = np.linspace(-1, 1, D)

    def draw(rng):
        X = law(rng, n)
        return X, X @ w + 0.1 + 0.25 * np.sqrt(D) * (X[:, 0] - X[:, 0].mean()) * rng.normal(size=n)

    return Case(
        lambda: LinearRegression(
            gradient=ClipLabel(2.0), row_norm=1.0, epsilon=epsilon, delta=1e-6,
            solver=SufficientStatistics(sandwich=sandwich),
        ),
        draw, np.append(w, 0.1), **kwargs,
    )  # fmt: skip


def columns(law, n, epsilon, **kwargs):
    """Columns that are not centred, with a mean square that is guessed right."""
    scale = 1 / np.sqrt(np.mean(np.square(law(np.random.default_rng(0), 200_000) + 0.1)))
    truth = scale * (law(np.random.default_rng(1), 2_000_000).mean(axis=0) + 0.1)

    return Case(
        lambda: Mean(second_moment=1.0, epsilon=epsilon, delta=1e-6),
        lambda rng: (scale * (law(rng, n) + 0.1), None), truth, **kwargs,
    )  # fmt: skip


def robust(law, n, epsilon, loss="huber", **kwargs):
    """Heavy-tailed errors, and rows as long as their number of features."""
    w = np.linspace(-1, 1, D)

    def draw(rng):
        X = 3 * np.sqrt(D) * law(rng, n)
        return X, X @ w + 0.1 + 0.3 * rng.standard_t(3, size=n)

    return Case(
        lambda: LinearRegression(loss=loss, second_moment=1.0, epsilon=epsilon, delta=1e-6),
        draw, np.append(w, 0.1), **kwargs,
    )  # fmt: skip


def blocks(law, n, epsilon, **kwargs):
    """Blocks whose results vary as much as the noise does."""
    w = np.linspace(-1, 1, 4)

    def draw(rng):
        X = 5 * law(rng, n, 4)
        return X, X @ w + 0.1 + rng.normal(size=n)

    return Case(
        lambda: SampleAndAggregate(radius=4.0, epsilon=epsilon, delta=1e-6), draw, np.append(w, 0.1), **kwargs
    )  # fmt: skip


def asked(method, law, n, epsilon, n_public, **kwargs):
    """One report of every user, for two classes."""
    w = np.array([1.0, -0.5])

    def draw(rng):
        X = 3 * np.sqrt(2) * law(rng, n, 2)
        return X, (X @ w + 0.3 + rng.logistic(size=n) > 0).astype(int)

    return Case(
        lambda: local.LogisticRegression(classes=[0, 1], method=method, epsilon=epsilon),
        draw, np.append(w, 0.3), public=lambda rng: 3 * np.sqrt(2) * law(rng, n_public, 2), **kwargs,
    )  # fmt: skip


def reported(law, n, epsilon, n_public=0, norm=1.0, **kwargs):
    """One report of every user, for numbers; the rows of public ones are all there are."""
    w = np.array([0.6, 0.0, -0.3])

    def draw(rng):
        X = law(rng, n, 3)
        return X, X @ w + 0.1 * rng.uniform(-1, 1, n)

    return Case(
        lambda: local.LinearRegression(row_norm=norm, label_bound=1.0, alpha=0.0, l1_radius=50.0, epsilon=epsilon),
        draw, w, public=(lambda rng: law(rng, n_public, 3)) if n_public else None, **kwargs,
    )  # fmt: skip


def mixture(n, d, length, epsilon, weight=0.5, **kwargs):
    """Two components around b and -b, begun at half of b; ``weight`` of them are around b."""
    b = length * np.linspace(-1, 2, d) / np.linalg.norm(np.linspace(-1, 2, d))

    def draw(rng):
        return np.where(rng.random(n) < weight, 1.0, -1.0)[:, None] * b + rng.normal(size=(n, d)), None

    return Case(
        lambda: TwoComponentMixture(
            noise_std=1.0, radius=1.25 * length, start=b / 2, epsilon=epsilon, delta=1e-6
        ),
        draw, b, **kwargs,
    )  # fmt: skip


CASES: dict[str, Case] = {
    "logistic, independent, 2e4, eps 1": classes(normal_rows, 20_000, 1.0, quick=True),
    "logistic, AR(.8), 1e5, eps 1": classes(correlated_rows, 100_000, 1.0),
    "logistic, 0/1 columns, 2e4, eps 1": classes(bits, 20_000, 1.0),
    "squared, independent, 2e4, eps 1": numbers(normal_rows, 20_000, 1.0),
    "squared, AR(.8), 1e5, eps 1": numbers(correlated_rows, 100_000, 1.0),
    "squared, 0/1 columns, 2e4, eps 1": numbers(bits, 20_000, 1.0, quick=True),
    "squared, skewed errors, AR(.8), 1e5, eps 1": numbers(correlated_rows, 100_000, 1.0, skewed_errors, 2.0),
    "squared, errors that follow a column, 2e4, eps 8": following(True, normal_rows, 20_000, 8.0),
    "squared, errors that follow a column, AR(.8), 1e5, eps 8": following(True, correlated_rows, 100_000, 8.0),
    "squared, errors that follow a 0/1 column, 2e4, eps 8": following(True, bits, 20_000, 8.0),
    "mean, independent, 2e4, eps 1": columns(normal_rows, 20_000, 1.0, quick=True),
    "mean, AR(.8), 1e5, eps 1": columns(correlated_rows, 100_000, 1.0),
    "mean, 0/1 columns, 2e4, eps 1": columns(bits, 20_000, 1.0),
    "Huber, independent, 2e4, eps 1": robust(normal_rows, 20_000, 1.0, quick=True),
    "cut squares, AR(.8), 1e5, eps 1": robust(correlated_rows, 100_000, 1.0, "squared"),
    "cut squares, 0/1 columns, 2e4, eps 1": robust(bits, 20_000, 1.0, "squared"),
    "blocks, independent, 1e5, eps 2": blocks(normal_rows, 100_000, 2.0),
    "blocks, AR(.8), 1e5, eps 4": blocks(correlated_rows, 100_000, 4.0),
    "blocks, 0/1 columns, 2e4, eps 1": blocks(bits, 20_000, 1.0, quick=True),
    "local logistic by statistics, independent, 2e4, eps 8": asked(
        "statistics", normal_rows, 20_000, 8.0, 2000, quick=True
    ),
    "local logistic, public covariance, independent, 2e4, eps 8": asked(
        "public-covariance", normal_rows, 20_000, 8.0, 2000, least_gap=0.001
    ),
    "local logistic, public covariance, AR(.8), 2e4, eps 8": asked(
        "public-covariance", correlated_rows, 20_000, 8.0, 2000, least_gap=0.001
    ),
    "local squares, independent, 2e4, eps 8": reported(normal_rows, 20_000, 8.0, norm=0.7, quick=True),
    "local squares, AR(.8), public rows, 2e4, eps 4": reported(correlated_rows, 20_000, 4.0, 20_000),
    "local squares, 0/1 columns, 2e4, eps 8": reported(bits, 20_000, 8.0),
    "two components, far apart, 2e3, eps 1": mixture(2000, 4, 3.0, 1.0, quick=True),
    "two components, overlapping, 2e4, eps 1": mixture(20_000, 5, 1.2, 1.0),
    "two components, one in ten, 1e4, eps .5": mixture(10_000, 10, 2.0, 0.5, weight=0.1),
}


def by_steps(solver, law, n, epsilon, d=4, **kwargs):
    """Two classes by a solver that releases no Hessian; public rows of the same law."""
    w = 4.0 * np.linspace(-1, 1, d)

    def draw(rng):
        X = law(rng, n, d)
        return X, (X @ w + 0.3 + rng.logistic(size=n) > 0).astype(int)

    return Case(
        lambda: LogisticRegression(classes=[0, 1], row_norm=1.0, epsilon=epsilon, delta=1e-6, solver=solver),
        draw, np.append(w, 0.3), public=lambda rng: law(rng, 500 * d, d), **kwargs,
    )  # fmt: skip


def missing(side, n, epsilon, **kwargs):
    """A regression with a fifth of its cells missing."""
    b = np.array([1.0, -0.5, 0.0])

    def draw(rng):
        X = rng.normal(size=(n, 3))
        y = X @ b + rng.normal(size=n)
        X[rng.random(X.shape) < 0.2] = np.nan
        return X, y

    return Case(
        lambda: side(noise_std=1.0, radius=1.5, missing_rate=0.2, epsilon=epsilon, **kwargs), draw, b,
    )  # fmt: skip


def two_lines(n, epsilon, **kwargs):
    b = np.array([2.0, -1.0, 0.0])

    def draw(rng):
        X = rng.normal(size=(n, 3))
        return X, rng.choice([-1.0, 1.0], n) * (X @ b) + rng.normal(size=n)

    return Case(
        lambda: MixedRegression(noise_std=1.0, radius=3.0, start=[1.0, 0.0, 0.0], epsilon=epsilon, delta=1e-6),
        draw, b, **kwargs,
    )  # fmt: skip


def groups(n, epsilon):
    """Three components, of which one has half of the rows: weights, means and variances."""
    centres = np.array([[3.0, 0.0], [-3.0, 2.0], [0.0, -3.0]])
    weights = np.array([0.5, 0.25, 0.25])

    def draw(rng):
        return centres[rng.choice(3, size=n, p=weights)] + rng.normal(size=(n, 2)), None

    return Case(
        lambda: GaussianMixture(
            3, row_norm=7.0, noise_std=1.0, start=[2, 1, -2, 1, 1, -2], epsilon=epsilon, delta=1e-6
        ),
        draw, np.concatenate([weights, centres.ravel(), np.ones(6)]),
    )  # fmt: skip


AGAIN: dict[str, Case] = {
    "steps, independent, 2e4, eps 2": by_steps("gradient", normal_rows, 20_000, 2.0),
    "preconditioned, 0/1 columns, 5e3, eps 2": by_steps("preconditioned", bits, 5000, 2.0),
    "objective, AR(.8), 3e3, eps 4": by_steps("objective", correlated_rows, 3000, 4.0),
    "missing cells, 5e3, eps 1": missing(MissingCovariateRegression, 5000, 1.0, delta=1e-6),
    "local missing cells, 5e3, eps 8": missing(local.MissingCovariateRegression, 5000, 8.0),
    "two lines, 5e3, eps 1": two_lines(5000, 1.0, least_gap=0.01),
    "three components, 2e4, eps 8": groups(20_000, 8.0),
}
"""Intervals by `dpdist.estimators.bootstrap`."""


@dataclass(frozen=True)
class Found:
    """Shares of intervals of 95 % that contain the truth."""

    share: float
    worst: float
    without_noise: float
    refused: int
    width: float

    def __str__(self):
        return (
            f"covered {self.share:.4f}, the worst parameter {self.worst:.3f}, without the noise "
            f"{self.without_noise:.3f}, standard error {self.width:.3g}, {self.refused} refused"
        )


def fits(case, n_fits, seed):
    """Errors over standard errors, the part of the variance that is due to noise, and standard errors."""
    rng, model, found, refused = np.random.default_rng(seed), case.model(), [], 0
    for _ in range(n_fits):
        X, y = case.draw(rng)
        beside = {} if case.public is None else {"public_X": case.public(rng)}
        try:
            rows = quick_fit(model, X, y, rng, **beside).summary().rows
        except NoIntervals:
            refused += 1
            continue
        values = np.array([[row["coefficient"], row["standard_error"], row["noise_share"]] for row in rows]).T
        found.append([(values[0] - case.truth) / values[1], values[2], values[1]])
    return np.array(found), refused


def simulated(model, copy, public, seed):
    """What is inferred of a model, by 50 fits of its copy and as many of each correction."""

    def fit(_, X, y, seed):
        return quick_fit(copy, X, y, np.random.default_rng(seed))

    return bootstrapped(model, 50, public, seed, fit)._inferred


def fits_again(case, n_fits, seed):
    """`fits` by simulated ones; those of the control have a thousand times the budget, so that they know of no noise.

    The control is made of every fifth.
    """
    rng, model, found, refused = np.random.default_rng(seed), case.model(), [], 0
    own, bare = clone(model), clone(model).set_params(epsilon=1000 * model.epsilon)
    for k in range(n_fits):
        X, y = case.draw(rng)
        quick_fit(model, X, y, rng)
        model.classes_ = np.array([0, 1])
        public = None if case.public is None else case.public(rng)
        try:
            known = simulated(model, own, public, k)
            if k % 5 == 0:
                share = 1 - np.minimum(np.square(simulated(model, bare, public, k).errors / known.errors), 1.0)
        except NoIntervals:
            refused += 1
            continue
        found.append([(known.values - case.truth) / known.errors, share, known.errors])
    return np.array(found), refused


def covered(found):
    values, refused = found
    z, share, errors = values.swapaxes(0, 1)
    inside = np.abs(z) < 1.959964
    bare = np.abs(z) < 1.959964 * np.sqrt(1 - share)
    return Found(
        float(inside.mean()), float(inside.mean(axis=0).min()), float(bare.mean()), refused, float(errors.mean())
    )


if __name__ == "__main__":
    wanted, number = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    for name, case in CASES.items():
        if wanted in ("all", name):
            began = time.time()
            print(
                f"{name}: {covered(fits(case, number, seed=11))}, {number} fits, {time.time() - began:.0f} s",
                flush=True,
            )
    for name, case in AGAIN.items():
        if wanted == name:
            print(f"{name}: {covered(fits_again(case, number, seed=11))}, {number} fits", flush=True)
