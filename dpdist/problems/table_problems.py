"""Generated records of bits whose tables are wanted.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.generation import Generation, Placing
from dpdist.problems.metrics import Array, TruthMetric
from dpdist.problems.problem import Problem, parameters

LATENT, LIFT = 0.3, 0.4
"""How often the hidden bit is 1, and how often it then turns on a column."""
MOST_TABLES = 200


def bits(n_rows: int, n_features: int = 10, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Bits with rates from .05 to .35, of which the first half are more often 1 where a hidden bit is.

    Parameters
    ----------
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        X holds 0 and 1.
    truth : ndarray of shape (2, n_features)
        The chances of a 1 where the hidden bit is 0, and where it is 1.

    Examples
    --------
    >>> data, truth = bits(1000, 4)
    >>> truth.round(2).tolist()
    [[0.05, 0.15, 0.25, 0.35], [0.43, 0.49, 0.25, 0.35]]
    """
    if n_features < 1:
        raise DataError(f"n_features must be at least 1, got {n_features}")
    rates = np.linspace(0.05, 0.35, n_features)
    truth = np.stack([rates, np.where(np.arange(n_features) < n_features // 2, 1 - (1 - rates) * (1 - LIFT), rates)])

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        hidden = (generator.random(shape[0]) < LATENT).astype(np.int64)
        return (generator.random(shape) < truth[hidden]).astype(np.float64)

    return Generation("tables.bits", placing).dataset(n_rows, np.zeros(n_features), rows=rows)[0], truth


class DisjunctionDistance(TruthMetric):
    """Tables, by the disjunctions of some sets of three columns."""

    answer = Answer.TABLES
    what = f"root mean squared error of the shares of records with a 1 in any of three columns ({MOST_TABLES} sets)"

    def error(self, model: Any) -> float:
        return float(np.sqrt(np.mean([(model.disjunction(s) - share) ** 2 for s, share in self._shares()])))

    def trivial(self) -> float:
        return float(np.std([share for _, share in self._shares()]))

    def reference(self, X: Array, y: Any) -> Any:
        return SimpleNamespace(disjunction=lambda columns: float((X[:, columns] > 0.5).any(axis=1).mean()))

    def _shares(self) -> Iterator[tuple[list[int], float]]:
        p = self.world.truth.shape[1]
        sets = list(itertools.combinations(range(p), min(3, p)))
        chosen = np.random.default_rng(0).permutation(len(sets))[:MOST_TABLES]
        for columns in (list(sets[i]) for i in sorted(chosen)):
            none = (1 - self.world.truth[:, columns]).prod(axis=1)
            yield columns, float(1 - none @ [1 - LATENT, LATENT])


PROBLEMS = (
    Problem("bits", "tables: bits that depend on a hidden one", bits, parameters(d=10), (DisjunctionDistance,)),
)
