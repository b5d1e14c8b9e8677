"""Generated rows for losses of pairs: two correlated normal classes, which a score ranks, or near in a few columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np
import sklearn
from scipy.special import log_expit

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed
from dpdist.problems.generation import Generation, Placing, logistic, logistic_law
from dpdist.problems.metrics import Array, TruthMetric
from dpdist.problems.problem import Problem, parameters

INFORMATIVE = 3
"""Columns in which the classes of `pair_metric` differ."""
REFERENCE_ROWS = 4000


def pair_gmm(
    n_rows: int, n_features: int = 20, *, separation: float = 2.0, positive: float = 0.5, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Two normal classes around ``+-(separation / 2) u`` with the same covariance, whose eigenvalues are ``1/sqrt(j)``.

    All rows are divided by twice the root of the trace of the covariance, so that hardly one is longer than 1. The
    direction u and the eigenvectors depend on the number of columns only. Spec 02, section 9.

    Parameters
    ----------
    separation : float
    positive : float
        Probability of the positive class, between 0 and 1.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        With labels 0 and 1.
    truth : ndarray of shape (n_features,)
        The log-odds of a row are ``<x, truth>`` and a constant.

    Examples
    --------
    >>> data, truth = pair_gmm(1000, 5)
    >>> rows = data.read(0, 1000)
    >>> bool(np.median(np.linalg.norm(rows["X"], axis=1)) < 0.6), bool(abs(rows["y"].mean() - 0.5) < 0.1)
    (True, True)
    """
    if not 0 < positive < 1:
        raise DataError(f"positive is the probability of a class, between 0 and 1, got {positive!r}")
    generation = Generation("pairs.gmm", placing, n_features=n_features, separation=separation, positive=positive)
    centre, axes = _world(n_features, separation)
    covariance = axes @ axes.T
    truth = 2 * np.linalg.solve(covariance, centre)
    constant = _log_odds(positive)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        side = np.where(generator.random(shape[0]) < positive, 1.0, -1.0)
        return side[:, None] * centre + generator.standard_normal(shape) @ axes.T

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return generator.random(len(X)) < (1 + np.tanh((X @ truth + constant) / 2)) / 2

    return generation.dataset(n_rows, truth, labels, rows=rows)


def _world(n_features: int, separation: float) -> tuple[np.ndarray, np.ndarray]:
    """Half the way from one centre to the other, and the root of the covariance, of rows that are scaled."""
    generator = Stream(run_key_from_seed(0), "pairs.gmm.world", n_features=n_features).generator(0)
    direction = generator.standard_normal(n_features)
    vectors = np.linalg.qr(generator.standard_normal((n_features, n_features)))[0]
    eigenvalues = np.arange(1, n_features + 1) ** -0.5
    scale = 2 * math.sqrt(eigenvalues.sum())
    centre = separation / 2 * direction / np.linalg.norm(direction)
    return centre / scale, vectors * np.sqrt(eigenvalues) / scale


def _log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def _law(X: Array, truth: Array, values: Mapping[str, Any]) -> Array:
    margin = X @ truth + _log_odds(values["positive"])
    return np.column_stack([log_expit(-margin), log_expit(margin)])


class Misranked(TruthMetric):
    """Scores: the probability that a positive row is ranked behind a negative one, equal scores half."""

    answer = Answer.RANKING
    what = "1 - AUC: the probability that a positive row is ranked behind a negative one, on fresh rows"

    def error(self, model: Any) -> float:
        return self._misranked(np.ravel(model.decision_function(self.world.X)))

    def trivial(self) -> float:
        return 0.5

    def reference(self, X: Array, y: Array) -> Any:
        return sklearn.linear_model.LogisticRegression(C=1e6, max_iter=2000).fit(X, y)

    def _misranked(self, scores: Array) -> float:
        """With each row positive and negative, by the probabilities that are known; not against itself."""
        positive = np.exp(self.world.law[:, 1])
        values, place = np.unique(scores, return_inverse=True)
        p, q = (np.bincount(place, weights=w, minlength=len(values)) for w in (positive, 1 - positive))
        own = positive @ (1 - positive)
        behind = p @ (np.sum(q) - np.cumsum(q)) + (p @ q - own) / 2
        return float(behind / (p.sum() * q.sum() - own))


def pair_metric(
    n_rows: int, n_features: int = 10, *, separation: float = 4.1, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Two normal classes that differ in the first three columns; the others vary three times as much.

    Nearest neighbours by the Euclidean distance see mostly the others. Rows are divided by twice the root of the trace
    of the covariance. Spec 02, section 9; the default separation is that at which its Euclidean accuracy is met.

    Parameters
    ----------
    separation : float
        Distance of the centres, in standard deviations of the first three columns.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        With labels 0 and 1, as often.
    truth : ndarray of shape (n_features,)
        The log-odds of a row are ``<x, truth>``.
    """
    if n_features < INFORMATIVE:
        raise DataError(f"n_features must be at least {INFORMATIVE}, got {n_features!r}")
    generation = Generation("pairs.metric", placing, n_features=n_features, separation=separation)
    spread = np.where(np.arange(n_features) < INFORMATIVE, 1.0, 3.0)
    scale = 2 * math.sqrt(float(spread @ spread))
    centre = np.where(np.arange(n_features) < INFORMATIVE, separation / 2 / math.sqrt(INFORMATIVE), 0.0) / scale
    truth = 2 * centre / (spread / scale) ** 2

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        side = np.where(generator.random(shape[0]) < 0.5, 1.0, -1.0)
        return side[:, None] * centre + generator.standard_normal(shape) * (spread / scale)

    return generation.dataset(n_rows, truth, logistic(truth), rows=rows)


class WrongNeighbours(TruthMetric):
    """Metrics: how often the three nearest of public rows have another label than a fresh row."""

    answer = Answer.METRIC
    what = "probability of a wrong class by the three nearest of 4000 public rows, on fresh rows"

    def error(self, model: Any) -> float:
        return self._wrong(model.metric_)

    def trivial(self) -> float:
        """By the Euclidean distance."""
        return self._wrong(np.eye(self.world.X.shape[1]))

    def reference(self, X: Array, y: Array) -> Any:
        """Fisher's direction."""
        found = sklearn.discriminant_analysis.LinearDiscriminantAnalysis().fit(X, y)
        return SimpleNamespace(metric_=found.coef_.T @ found.coef_)

    def _wrong(self, metric: Array) -> float:
        values, vectors = np.linalg.eigh(metric)
        Z = self.world.X @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        held, asked, probable = Z[:REFERENCE_ROWS], Z[REFERENCE_ROWS:], np.exp(self.world.law[:, 1])
        drawn = np.random.default_rng(0).random(REFERENCE_ROWS) < probable[:REFERENCE_ROWS]
        said = sklearn.neighbors.KNeighborsClassifier(3).fit(held, drawn).predict(asked)
        return float(np.mean(np.where(said, 1 - probable[REFERENCE_ROWS:], probable[REFERENCE_ROWS:])))


PROBLEMS = (
    Problem(
        "pair-gmm",
        "ranking: two normal classes with one covariance, positive rows before negative ones",
        pair_gmm,
        parameters(n=10_000, d=20, separation=2.0, positive=0.5, labels=(0, 1)),
        (Misranked,),
        _law,
    ),
    Problem(
        "pair-metric",
        "metrics: two normal classes that differ in three columns, the others vary three times as much",
        pair_metric,
        parameters(n=100_000, d=10, separation=4.1, labels=(0, 1)),
        (WrongNeighbours,),
        logistic_law,
    ),
)
