"""Generated regressions on smooth functions, which are not linear.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.problems.generation import Generation, Placing
from dpdist.problems.metrics import SmoothExcess
from dpdist.problems.problem import Problem, parameters


def waves(
    n_rows: int, n_features: int = 1, *, noise_std: float = 0.1, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """A smooth regression: x uniform on ``[-1, 1]^d``, ``y = 0.7 sin(3 x_1) cos(2 x_d) + noise`` (normal).

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
        Zeros: the function is always the same, `wave`.

    Examples
    --------
    >>> data, _ = waves(1000, 2)
    >>> rows = data.read(0, 1000)
    >>> bool(np.std(rows["y"] - wave(rows["X"])) < 0.12)
    True
    """
    generation = Generation("populations.waves", placing, n_features=n_features, noise_std=noise_std)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.uniform(-1.0, 1.0, shape)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return wave(X) + noise_std * generator.standard_normal(len(X))

    return generation.dataset(n_rows, np.zeros(n_features), labels, "float64", rows)


def wave(X: np.ndarray) -> np.ndarray:
    """The mean of the labels of `waves`."""
    return 0.7 * np.sin(3 * X[:, 0]) * np.cos(2 * X[:, -1])


PROBLEMS = (
    Problem(
        "waves",
        "regression: x uniform on a cube, y a smooth function of x + noise",
        waves,
        parameters(d=1, noise_std=0.1, public_rows=0),
        (SmoothExcess,),
        lambda X, truth, values: wave(X),
    ),
)
