"""Bounded rows with little signal, gross errors or two minima, judged by the expected loss."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import scipy
from scipy.special import expit

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.losses import Biweight
from dpdist.problems.generation import Generation, Placing, check_share, unit_rows
from dpdist.problems.metrics import Array
from dpdist.problems.nonconvex_problems import At, Gap, two_classes
from dpdist.problems.problem import Parameters, Problem, parameters

BASINS = 0.7, 0.3
"""Shares of the rows that follow the truth of `bimodal_biweight`, and its opposite."""
THRESHOLD, NOISE = 0.5, 0.1


def bimodal_biweight(n_rows: int, n_features: int = 2, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Regression where 70 % of the rows follow the truth and 30 % its opposite: biweight losses have two minima.

    ``x`` uniform in the unit ball, the truth of norm 0.7, noise of standard deviation 0.1; judged by ``Biweight(0.5)``.
    """
    generation = Generation("synthetic.bimodal_biweight", placing, n_features=n_features)
    truth = generation.directions(1, n_features, 0.7)[0]

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        sides = np.where(generator.random(len(X)) < BASINS[0], 1.0, -1.0)
        return sides * (X @ truth) + NOISE * generator.standard_normal(len(X))

    return generation.dataset(n_rows, truth, labels, "float64", rows=_in_ball)


def bounded_glm(
    n_rows: int, n_features: int = 20, *, shape: Literal["ball", "cube"] = "ball", n_nonzero: int = 0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:  # fmt: skip
    """Logistic model of bounded rows, ``P(y = 1) = sigmoid(<x, truth>)``: little signal, judged by squares.

    Parameters
    ----------
    shape : {"ball", "cube"}
        ``x`` uniform in the unit ball, and the truth of l2 norm 0.9; or in ``[-1, 1]^d``, and of l1 norm 0.9.
    n_nonzero : int
        Entries of the truth that are not 0; 0 for all.
    """
    generation = Generation("synthetic.bounded_glm", placing, n_features=n_features, shape=shape, n_nonzero=n_nonzero)
    truth = _bounded_truth(generation, n_features, shape, n_nonzero)
    return generation.dataset(
        n_rows, truth, lambda generator, X: generator.random(len(X)) < expit(X @ truth), rows=_ROWS[shape]
    )


def bounded_robust(
    n_rows: int, n_features: int = 20, *, shape: Literal["ball", "cube"] = "ball", n_nonzero: int = 0,
    outliers: float = 0.3, **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:  # fmt: skip
    """Regression on bounded rows with gross errors: ``y = <x, truth> + noise`` clipped to [-2, 2].

    The noise is normal with standard deviation 0.1, or uniform on [-2, 2] for a share ``outliers`` of the rows. Other
    parameters are those of `bounded_glm`; models are judged by ``Biweight(2)``.
    """
    check_share("outliers", outliers)
    given = {"n_features": n_features, "shape": shape, "n_nonzero": n_nonzero, "outliers": outliers}
    generation = Generation("synthetic.bounded_robust", placing, **given)
    truth = _bounded_truth(generation, n_features, shape, n_nonzero)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        gross = generator.random(len(X)) < outliers
        noise = np.where(gross, generator.uniform(-2, 2, len(X)), NOISE * generator.standard_normal(len(X)))
        return np.clip(X @ truth + noise, -2, 2)

    return generation.dataset(n_rows, truth, labels, "float64", rows=_ROWS[shape])


def _in_ball(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    directions = unit_rows(generator.standard_normal(shape))
    return directions * generator.random((shape[0], 1)) ** (1 / shape[1])


_ROWS = {"ball": _in_ball, "cube": lambda generator, shape: generator.uniform(-1, 1, shape)}


def _bounded_truth(generation: Generation, n_features: int, shape: str, n_nonzero: int) -> np.ndarray:
    if shape not in _ROWS:
        raise DataError(f'shape must be "ball" or "cube", got {shape!r}')
    if not 0 <= n_nonzero <= n_features:
        raise DataError(f"n_nonzero must lie between 0 and n_features = {n_features}, got {n_nonzero!r}")
    generator = generation.truth_generator()
    truth = generator.standard_normal(n_features)
    if n_nonzero:
        truth[generator.permutation(n_features)[n_nonzero:]] = 0.0
    return truth * (0.9 / np.linalg.norm(truth, 2 if shape == "ball" else 1))


class ProbabilityGap(Gap):
    """Two classes by squares of probabilities, ``E (s(<x, w>) - y)^2``, whose excess is that of the probabilities."""

    answer = Answer.CLASSES
    what = "excess of the expected squared difference between label and probability, on fresh rows"

    def objective(self, w: Array) -> float:
        return float(np.mean((expit(self.world.X @ w) - np.exp(self.world.law[:, 1])) ** 2))

    def reference(self, X: Array, y: Array) -> Any:
        positive = y == max(self.world.labels or [1])
        return _fitted(X, lambda u: _square(expit(u), positive))


def _square(p: Array, y: Array) -> tuple[Array, Array]:
    return (p - y) ** 2, 2 * (p - y) * p * (1 - p)


def _fitted(X: Array, slope: Any) -> At:
    def whole(w: Array) -> tuple[float, Array]:
        value, derivative = slope(X @ w)
        return float(np.mean(value)), derivative @ X / len(X)

    return At(scipy.optimize.minimize(whole, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B").x)


class BiweightGap(Gap):
    """Regression by a biweight loss, over the true law of the labels of fresh rows (``law``: labels and weights)."""

    what = "excess of the expected biweight loss over that of the truth, on fresh rows"
    threshold: ClassVar[float] = 2.0

    def objective(self, w: Array) -> float:
        y, weights = self.world.law
        return float(np.mean(Biweight(self.threshold).value((self.world.X @ w)[:, None], y) @ weights))

    def reference(self, X: Array, y: Array) -> Any:
        loss = Biweight(self.threshold)
        return _fitted(X, lambda u: (loss.value(u, y), loss.derivative(u, y)))


class BimodalGap(BiweightGap):
    """The same where there are two minima."""

    what = "excess of the expected Biweight(0.5) loss over that of the truth, on fresh rows"
    threshold = THRESHOLD

    def reference(self, X: Array, y: Array) -> Any:
        loss, start = Biweight(self.threshold), self.world.truth

        def whole(w: Array) -> tuple[float, Array]:
            u = X @ w
            return float(np.mean(loss.value(u, y))), loss.derivative(u, y) @ X / len(X)

        return At(scipy.optimize.minimize(whole, start, jac=True, method="L-BFGS-B").x)


_NORMAL, _NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
_NORMAL_WEIGHTS = _NORMAL_WEIGHTS / _NORMAL_WEIGHTS.sum()
_UNIFORM = (np.arange(40) + 0.5) / 10 - 2


def _robust_law(X: np.ndarray, truth: np.ndarray, values: Parameters) -> Any:
    noise = np.concatenate([NOISE * _NORMAL, _UNIFORM])
    gross = values["outliers"]
    weights = np.concatenate([(1 - gross) * _NORMAL_WEIGHTS, np.full(40, gross / 40)])
    return np.clip((X @ truth)[:, None] + noise, -2, 2), weights


def _bimodal_law(X: np.ndarray, truth: np.ndarray, values: Parameters) -> Any:
    u = (X @ truth)[:, None]
    labels = np.column_stack([u + NOISE * _NORMAL, -u + NOISE * _NORMAL])
    return labels, np.concatenate([share * _NORMAL_WEIGHTS for share in BASINS])


PROBLEMS = (
    Problem(
        "bimodal-biweight",
        "regression with two minima: 70 % of the rows follow a line, 30 % its opposite",
        bimodal_biweight,
        parameters(d=2),
        (BimodalGap,),
        _bimodal_law,
    ),
    Problem(
        "bounded-glm",
        "two classes with little signal: x uniform in the unit ball or the cube, judged by squares",
        bounded_glm,
        parameters(shape="ball", n_nonzero=0, labels=(-1, 1)),
        (ProbabilityGap,),
        lambda X, truth, values: two_classes(expit(X @ truth)),
    ),
    Problem(
        "bounded-robust",
        "regression with gross errors: x uniform in the unit ball or the cube",
        bounded_robust,
        parameters(shape="ball", n_nonzero=0, outliers=0.3),
        (BiweightGap,),
        _robust_law,
    ),
)
