"""Generated answers of a crowd to tasks whose true classes are known.

=================== ==================================================================================================
``law``             chances of the users to be right
=================== ==================================================================================================
``"uniform"``       from .6 to .9
``"experts"``       .95 for one of five, .55 for the others
``"adversaries"``   .2 for one of four, from .6 to .9 for the others
``"few-experts"``   1 for ``n^.45`` of n users, 1/2 for the others (seed 000, Theorem 7.1.4);
                    ``"few-experts^0.3"`` for another exponent, below 1
``"beta"``          Beta(4, 2), as the stand-ins of two tables that the source names have it
=================== ==================================================================================================

A wrong answer is any of the other classes. Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.privacy.randomness.streams import block_size
from dpdist.problems.generation import Generation, Placing
from dpdist.problems.metrics import Array, Distance, TruthMetric
from dpdist.problems.problem import Problem, parameters
from dpdist.solvers.dawid_skene import dawid_skene, one_coin

MANY = 1000
"""Users whose abilities the trivial answer, that nobody knows anything, is compared with."""
LAWS = ("uniform", "experts", "adversaries", "few-experts", "beta")


def abilities(law: str, n_rows: int, n: int, generator: np.random.Generator) -> np.ndarray:
    """The chances of n of ``n_rows`` users to be right.

    Examples
    --------
    >>> abilities("uniform", 3, 3, np.random.default_rng(0)).round(2).tolist()
    [0.79, 0.68, 0.61]
    """
    chance = generator.random(n)
    if law == "uniform":
        return 0.6 + 0.3 * chance
    if law == "experts":
        return np.where(chance < 0.2, 0.95, 0.55)
    if law == "adversaries":
        return np.where(generator.random(n) < 0.25, 0.2, 0.6 + 0.3 * chance)
    if _are_few(law):
        return np.where(chance < np.ceil(n_rows ** _exponent(law)) / n_rows, 1.0, 0.5)
    if law == "beta":
        return generator.beta(4.0, 2.0, n)
    raise DataError(f"law must be one of {LAWS}, got {law!r}")


def _are_few(law: Any) -> bool:
    return isinstance(law, str) and law.split("^")[0] == "few-experts"


def _exponent(law: str) -> float:
    """Of the number of experts, 0.45 where none is said."""
    try:
        exponent = float(law.partition("^")[2] or 0.45)
    except ValueError:
        exponent = -1.0
    if not 0 <= exponent < 1:
        raise DataError(f"the exponent of a few experts is a number from 0 to below 1, got {law!r}")
    return exponent


def _stream(n_rows: int, law: str, n_classes: int, answered: float, placing: Placing) -> Generation:
    """Whatever the law of the rows depends on."""
    among = n_rows * _are_few(law)
    return Generation("crowds.crowd", placing, law=law, n_classes=n_classes, answered=answered, among=among)


def crowd(
    n_rows: int,
    n_features: int = 2000,
    *,
    law: str = "experts",
    n_classes: int = 2,
    answered: float = 1.0,
    unit: str = "row",
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """A row of answers for every user, a column for every task.

    Parameters
    ----------
    law : str
        Of the chances to be right, see the table of this module.
    n_classes : int
    answered : float
        The share of the tasks that a user answers; NaN stands for the others.
    unit : {"row", "answer"}
        What the guarantees of the dataset are about.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
        The classes of the tasks.

    Examples
    --------
    >>> data, truth = crowd(100, 50, law="uniform", answered=0.5)
    >>> answers = data.read(0, 100)["X"]
    >>> bool(np.nanmean(answers == truth, where=~np.isnan(answers)) > 0.6), round(float(np.isnan(answers).mean()), 1)
    (True, 0.5)
    """
    abilities(law, 1, 1, np.random.default_rng(0))
    if not 0 < answered <= 1:
        raise DataError(f"answered is the share of the tasks that a user answers, in (0, 1], got {answered!r}")
    if not 2 <= n_classes <= 100:
        raise DataError(f"n_classes must be a whole number from 2 to 100, got {n_classes!r}")
    if unit not in ("row", "answer"):
        raise DataError(f"unit must be 'row' or 'answer', got {unit!r}")
    generation = _stream(n_rows, law, n_classes, answered, placing)
    truth = generation.truth_generator().integers(0, n_classes, n_features)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        able = abilities(law, n_rows, shape[0], generator)
        right = generator.random(shape) < able[:, None]
        wrong = (truth + generator.integers(1, n_classes, shape)) % n_classes
        answers = np.where(right, truth, wrong).astype(np.float64)
        answers[generator.random(shape) >= answered] = np.nan
        return answers

    dataset, _ = generation.dataset(n_rows, np.zeros(n_features), rows=rows, unit=unit)
    return dataset, truth.astype(np.float64)


class WrongLabels(TruthMetric):
    """Labels of tasks."""

    answer = Answer.LABELS
    what = "share of the tasks with a wrong label"

    def error(self, model: Any) -> float:
        return float(np.mean(model.labels_ != self.world.truth))

    def trivial(self) -> float:
        return 1 - 1 / self.world.parameters["n_classes"]

    def reference(self, X: Array, y: Any) -> Any:
        n_classes = self.world.parameters["n_classes"]
        found = one_coin(X)[0] >= 0.5 if n_classes == 2 else dawid_skene(X, n_classes)[0].argmax(axis=1)
        return SimpleNamespace(labels_=found)


class ShareDistance(TruthMetric):
    """Shares of answers, where no label is given."""

    answer = Answer.SHARES
    what = "root mean squared error of the shares of right answers, by their mean over the tasks of a class"

    def error(self, model: Any) -> float:
        n_classes = self.world.parameters["n_classes"]
        off = [model.shares_[self.world.truth == k, k] - self._expected(k) for k in range(n_classes)]
        return float(np.sqrt(np.mean(np.concatenate(off) ** 2)))

    def trivial(self) -> float:
        n_classes = self.world.parameters["n_classes"]
        return abs(self._expected(0) - 1 / n_classes)

    def reference(self, X: Array, y: Any) -> Any:
        n_classes = self.world.parameters["n_classes"]
        there = np.maximum((~np.isnan(X)).sum(axis=0), 1)
        return SimpleNamespace(shares_=np.stack([np.equal(X, k).sum(axis=0) / there for k in range(n_classes)], axis=1))

    def _expected(self, k: int) -> float:
        """The mean chance to be right."""
        values = self.world.parameters
        return float(abilities(values["law"], values.get("n", 10**4), 10**5, np.random.default_rng(0)).mean())


class AbilityDistance(Distance):
    """Abilities of users, who are those of the data."""

    answer = Answer.ABILITIES
    what = "largest distance of a user's ability from the truth"

    def error(self, model: Any) -> float:
        return float(np.abs(model.abilities_ - self._true(len(model.abilities_))).max())

    def trivial(self) -> float:
        return float(np.abs(self._true(MANY) - 0.5).max())

    def reference(self, X: Array, y: Any) -> Any:
        return SimpleNamespace(abilities_=one_coin(X)[1])

    def _true(self, n_rows: int) -> np.ndarray:
        """Drawn again, as they were for the rows."""
        values = self.world.parameters
        placing = Placing(random_state=values["random_state"])
        stream = _stream(n_rows, values["law"], values["n_classes"], values["answered"], placing)
        rows = block_size(len(self.world.truth))
        blocks = [
            abilities(values["law"], n_rows, rows, stream.row_generator(block)) for block in range(-(-n_rows // rows))
        ]
        return np.concatenate(blocks)[:n_rows]


PROBLEMS = (
    Problem(
        "crowd",
        "labels of tasks: answers of a crowd",
        crowd,
        parameters(n=100, d=2000, law="experts", n_classes=2, answered=1.0, unit="row"),
        (WrongLabels, ShareDistance, AbilityDistance),
        shared=("n_classes",),
    ),
    Problem(
        "crowd-web",
        "labels of tasks: 177 users and 2665 tasks of five classes, six answers each (stand-in)",
        crowd,
        parameters(n=177, d=2665, law="beta", n_classes=5, answered=6 / 177, unit="answer"),
        (WrongLabels, ShareDistance),
        shared=("n_classes",),
    ),
    Problem(
        "crowd-adult",
        "labels of tasks: 825 users and 11040 tasks of four classes, eight answers each (stand-in)",
        crowd,
        parameters(n=825, d=11040, law="beta", n_classes=4, answered=8 / 825, unit="answer"),
        (WrongLabels, ShareDistance),
        shared=("n_classes",),
    ),
)
