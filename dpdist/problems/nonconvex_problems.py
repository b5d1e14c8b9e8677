"""Rows whose loss has saddles, several minima or flat ends, and how far a model is above the best one that is known."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import scipy.optimize
from scipy.special import expit, ndtr

from dpdist.constraints import ElasticNet, GemanMcClure
from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.losses import Biweight, Logistic, Sigmoid
from dpdist.problems.generation import Generation, Placing, check_share, unit_rows
from dpdist.problems.metrics import Array, LogOddsLoss, TruthMetric, WrongClass
from dpdist.problems.problem import Parameters, Problem, parameters

FLIPS, SMALLEST_LOG = 0.15, -690.0
NUMERIC, LEVELS, CORRELATION = 10, 4, 0.6
RARE = 0.09
STRENGTH = 1e-3
"""Of the penalties of seed 000, section 4.3.3."""
BASINS = 0.7, 0.3
"""Shares of the rows that follow the truth of `bimodal_biweight`, and its opposite."""
THRESHOLD, NOISE = 0.5, 0.1


def sphere_sigmoid(n_rows: int, n_features: int = 50, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Two classes that a plane parts: ``x`` uniform on the unit sphere, ``y = 1`` where ``<x, truth> > 0``, else 0.

    Seed 000, section 4.1.5; parameters as in `dpdist.problems.linear_problems.logit`.

    >>> data, truth = sphere_sigmoid(1000, 5, random_state=1)
    >>> rows = data.read(0, 1000)
    >>> bool(np.array_equal(rows["y"] == 1, rows["X"] @ truth > 0))
    True
    """
    generation = Generation("synthetic.sphere_sigmoid", placing, n_features=n_features)
    truth = generation.directions(1, n_features, 1.0)[0]
    return generation.dataset(n_rows, truth, lambda generator, X: X @ truth > 0)


def pca_saddle(
    n_rows: int, n_features: int = 20, *, variance: float = 0.316, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Rows of norm 1 with one large eigenvalue, ``E x x' = variance v v' + rest``; labels mean nothing.

    ``-<w, x>^2 / 2 + ||w||^4 / 4`` has a saddle at 0 and its two minima at ``+-sqrt(variance) v``, the truth.

    Parameters
    ----------
    variance : float
        The largest eigenvalue, above ``1 / n_features``.
    """
    if not 1 / n_features < variance < 1:
        raise DataError(f"variance must lie between 1 / n_features and 1, got {variance!r}")
    generation = Generation("synthetic.pca_saddle", placing, n_features=n_features, variance=variance)
    axis = generation.directions(1, n_features, 1.0)[0]

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        across = generator.standard_normal(shape)
        across = unit_rows(across - np.outer(across @ axis, axis))
        share = generator.beta(variance * n_features / 2, (1 - variance) * n_features / 2, shape[0])
        signs = generator.choice([-1.0, 1.0], shape[0])
        return np.outer(signs * np.sqrt(share), axis) + np.sqrt(1 - share)[:, None] * across

    truth = math.sqrt(variance) * axis
    return generation.dataset(
        n_rows, truth, lambda generator, X: generator.choice([-1.0, 1.0], len(X)), "float64", rows=rows
    )


def quadratic_covertype(
    n_rows: int, n_features: int = 54, *, loss: Literal["logistic", "sigmoid"] = "logistic", **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Ten correlated numbers, one of 4 and one of ``d - 14`` levels, in rows of norm 1; a quadratic score decides.

    15 % of the labels are flipped (seed 000, section 4.3.3, in place of the table of forest covers).

    Parameters
    ----------
    loss : {"logistic", "sigmoid"}
        By which models are judged; it changes no row.
    """
    if n_features < NUMERIC + LEVELS + 2:
        raise DataError(f"n_features must be at least {NUMERIC + LEVELS + 2}, got {n_features}")
    _check_loss(loss)
    generation = Generation("synthetic.quadratic_covertype", placing, n_features=n_features)
    truth = generation.directions(1, n_features, math.sqrt(n_features))[0]
    many = n_features - NUMERIC - LEVELS
    frequencies = np.cumsum(1 / np.arange(1, many + 1)) / np.sum(1 / np.arange(1, many + 1))
    mixing = np.linalg.cholesky(CORRELATION ** np.abs(np.subtract.outer(np.arange(NUMERIC), np.arange(NUMERIC)))).T

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        X = np.zeros(shape)
        X[:, :NUMERIC] = generator.standard_normal((shape[0], NUMERIC)) @ mixing
        X[np.arange(len(X)), NUMERIC + generator.integers(0, LEVELS, shape[0])] = 1.0
        level = np.minimum(np.searchsorted(frequencies, generator.random(shape[0])), many - 1)
        X[np.arange(len(X)), NUMERIC + LEVELS + level] = 1.0
        return unit_rows(X)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return generator.random(len(X)) < _covertype_chance(X, truth)

    return generation.dataset(n_rows, truth, labels, rows=rows)


def _covertype_chance(X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    whole = X / X[:, NUMERIC : NUMERIC + LEVELS].sum(axis=1, keepdims=True)  # before rows got norm 1
    score = whole @ truth / 2 + 0.5 * whole[:, 0] * whole[:, 1]
    return np.where(score > 0, 1 - FLIPS, FLIPS)


def quadratic_ijcnn(
    n_rows: int, n_features: int = 23, *, loss: Literal["logistic", "sigmoid"] = "logistic", **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Uniform directions and a constant column, both of norm ``1/sqrt(2)``; the top 9 % of a quadratic score are 1.

    Without the constant column no linear rule would be better than calling everything 0.

    Parameters
    ----------
    loss : {"logistic", "sigmoid"}
        As in `quadratic_covertype`.
    """
    if n_features < 4:
        raise DataError(f"n_features must be at least 4, got {n_features}")
    _check_loss(loss)
    generation = Generation("synthetic.quadratic_ijcnn", placing, n_features=n_features)
    linear, square = generation.directions(2, n_features - 1, 1.0)
    truth = np.column_stack([np.stack([linear, square]), np.zeros(2)])

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        directions = unit_rows(generator.standard_normal((shape[0], shape[1] - 1)))
        return np.column_stack([directions, np.ones(shape[0])]) / math.sqrt(2)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return _ijcnn_chance(X, truth) > 0.5

    return generation.dataset(n_rows, truth, labels, rows=rows)


def _ijcnn_chance(X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    scores = X @ truth.T * math.sqrt(2 * (X.shape[1] - 1))  # about standard normal
    return np.where(scores[:, 0] + 0.5 * (scores[:, 1] ** 2 - 1) > _rare_score(), 1.0, 0.0)


@functools.cache
def _rare_score() -> float:
    """What ``Z + (Z'^2 - 1) / 2`` exceeds with probability `RARE`, for independent normal numbers."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    above = lambda t: float(weights @ ndtr(0.5 * (nodes**2 - 1) - t)) - RARE  # noqa: E731
    return float(scipy.optimize.brentq(above, -5, 20))


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


def _check_loss(loss: str) -> None:
    if loss not in ("logistic", "sigmoid"):
        raise DataError(f'loss must be "logistic" or "sigmoid", got {loss!r}')


# --- how answers are judged -------------------------------------------------------------------------------------------


class Gap(TruthMetric):
    """How far an objective is above the least value that was found without privacy; trivial is its gap at 0."""

    answer: ClassVar[Answer] = Answer.COEFFICIENTS

    def objective(self, w: Array) -> float:
        """Mean loss plus penalty at coefficients."""
        raise NotImplementedError

    @property
    def least(self) -> float:
        """The least value that is known."""
        return self.objective(self.world.truth)

    def error(self, model: Any) -> float:
        return self.objective(np.ravel(model.coef_)) - self.least

    def trivial(self) -> float:
        return self.objective(np.zeros(self.world.X.shape[1])) - self.least

    def reference(self, X: Array, y: Any) -> Any:
        raise NotImplementedError


class _At:
    """A model that is nothing but coefficients."""

    def __init__(self, coef: Array) -> None:
        self.coef_ = coef


class SaddleGap(Gap):
    """The first component of a law, as `dpdist.losses.NegativeSquare` with ``Quartic(1)`` finds it."""

    what = "gap of the expected objective, -E<w, x>^2 / 2 + ||w||^4 / 4, to its least value"

    def objective(self, w: Array) -> float:
        variance, d = self.world.parameters["variance"], len(w)
        along = (w @ self.world.truth) ** 2 / variance
        square = float(w @ w)
        return float(-(variance * along + (1 - variance) / (d - 1) * (square - along)) / 2 + square**2 / 4)

    def reference(self, X: Array, y: Any) -> Any:
        values, vectors = np.linalg.eigh(X.T @ X / len(X))
        return _At(math.sqrt(values[-1]) * vectors[:, -1])


class PenalisedGap(Gap):
    """Two classes by a loss and its penalty (seed 000, section 4.3.3), on fresh rows with their true chances."""

    answer = Answer.CLASSES
    what = "gap of the objective to its least value, both with the true chances of fresh rows"

    def objective(self, w: Array) -> float:
        return _objective(w, self.world.X, np.exp(self.world.law), self.world.parameters["loss"])[0]

    @functools.cached_property
    def least(self) -> float:
        w = _minimised(self.world.X, np.exp(self.world.law), self.world.parameters["loss"])
        return self.objective(w)

    def reference(self, X: Array, y: Array) -> Any:
        positive = (y == max(self.world.labels or [1])).astype(np.float64)
        return _At(_minimised(X, np.column_stack([1 - positive, positive]), self.world.parameters["loss"]))


def _objective(w: Array, X: Array, chances: Array, name: str) -> tuple[float, Array]:
    """Value and gradient of the loss with its penalty: one that is not convex for the loss that is."""
    loss, u = (Logistic(), X @ w) if name == "logistic" else (Sigmoid(), X @ w)
    value = chances[:, 0] @ loss.value(u, -1.0) + chances[:, 1] @ loss.value(u, 1.0)
    slope = chances[:, 0] * loss.derivative(u, -1.0) + chances[:, 1] * loss.derivative(u, 1.0)
    if name == "logistic":
        penalty = GemanMcClure(STRENGTH)
        return float(value / len(X) + penalty.value(w)), slope @ X / len(X) + penalty.gradient(w)
    return float(value / len(X) + ElasticNet(STRENGTH).value(w)), slope @ X / len(X) + STRENGTH * w


def _minimised(X: Array, chances: Array, name: str) -> Array:
    """The best of the minima that are found from 0 and from three fixed points."""
    starts = [np.zeros(X.shape[1]), *(3 * np.random.default_rng(0).standard_normal((3, X.shape[1])))]
    found = [scipy.optimize.minimize(_objective, w, (X, chances, name), jac=True, method="L-BFGS-B") for w in starts]
    return np.asarray(min(found, key=lambda each: each.fun).x)


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


def _fitted(X: Array, slope: Any) -> _At:
    def whole(w: Array) -> tuple[float, Array]:
        value, derivative = slope(X @ w)
        return float(np.mean(value)), derivative @ X / len(X)

    return _At(scipy.optimize.minimize(whole, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B").x)


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

        return _At(scipy.optimize.minimize(whole, start, jac=True, method="L-BFGS-B").x)


def _two(chance: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.column_stack([1 - chance, chance])), SMALLEST_LOG)


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
        "sphere-sigmoid",
        "two classes that a plane parts: x uniform on the unit sphere",
        sphere_sigmoid,
        parameters(d=50, labels=(-1, 1)),
        (WrongClass, LogOddsLoss),
        lambda X, truth, values: _two((X @ truth > 0).astype(np.float64)),
    ),
    Problem(
        "pca-saddle",
        "rows of norm 1 with one large eigenvalue: -<w, x>^2/2 + |w|^4/4 has a saddle at 0",
        pca_saddle,
        parameters(variance=0.316),
        (SaddleGap,),
    ),
    Problem(
        "quadratic-covertype",
        "two classes by a quadratic score: numbers and levels in rows of norm 1, flipped labels",
        quadratic_covertype,
        parameters(d=54, loss="logistic", labels=(-1, 1)),
        (PenalisedGap,),
        lambda X, truth, values: _two(_covertype_chance(X, truth)),
        shared=("loss",),
    ),
    Problem(
        "quadratic-ijcnn",
        "two classes, 9 % of one, by a quadratic score: directions and a constant column",
        quadratic_ijcnn,
        parameters(d=23, loss="logistic", labels=(-1, 1)),
        (PenalisedGap,),
        lambda X, truth, values: _two(_ijcnn_chance(X, truth)),
        shared=("loss",),
    ),
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
        lambda X, truth, values: _two(expit(X @ truth)),
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
