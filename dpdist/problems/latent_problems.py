"""Generated rows with something that nobody sees: the component of a row, the sign of a line, a cell.

The truth is b, in a random direction, ``snr`` times as long as the noise; conventions are those of
`dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np
import scipy
import sklearn

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.kernels.latent import Latent, MissingCells, MixedLines, TwoComponents, distance
from dpdist.problems.generation import Generation, Placing, check_share
from dpdist.problems.metrics import Array, TruthMetric
from dpdist.problems.problem import Problem, parameters

REFERENCE_ROUNDS = 30


def two_components(
    n_rows: int, n_features: int = 5, *, snr: float = 3.0, noise_std: float = 1.0, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Rows ``z b + noise_std e`` with fair signs z and normal e.

    Parameters
    ----------
    snr : float
        Length of b over ``noise_std``.
    noise_std : float
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        With the array X only.
    truth : ndarray of shape (n_features,)
        b; -b is the same law.

    Examples
    --------
    >>> data, truth = two_components(1000, 4)
    >>> data.arrays, float(np.linalg.norm(truth).round(9))
    ({'X': ArraySpec(dtype='float64', shape=(1000, 4))}, 3.0)
    """
    generation, truth = world_of("latent.two_components", placing, n_features, snr, noise_std)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        drawn = generator.standard_normal((shape[0], shape[1] + 1))
        return np.sign(drawn[:, :1]) * truth + noise_std * drawn[:, 1:]

    return generation.dataset(n_rows, truth, rows=rows)


def mixed_regression(
    n_rows: int, n_features: int = 5, *, snr: float = 3.0, noise_std: float = 1.0, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Normal rows x with labels ``z <b, x> + noise_std e``, z a fair sign.

    Parameters
    ----------
    snr, noise_std
        As in `two_components`.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset, truth
        As `two_components`, with labels.
    """
    generation, truth = world_of("latent.mixed_regression", placing, n_features, snr, noise_std)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        drawn = generator.standard_normal((len(X), 2))
        return np.sign(drawn[:, 0]) * (X @ truth) + noise_std * drawn[:, 1]

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.standard_normal(shape)

    return generation.dataset(n_rows, truth, labels, "float64", rows=rows)


def missing_cells(
    n_rows: int,
    n_features: int = 5,
    *,
    snr: float = 1.0,
    noise_std: float = 1.0,
    missing_rate: float = 0.1,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Normal rows x with labels ``<b, x> + noise_std e``, where every cell is missing (NaN) with some probability.

    Parameters
    ----------
    snr, noise_std
        As in `two_components`.
    missing_rate : float
        The probability, the same for all cells.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset, truth
        As `two_components`, with labels; the dataset declares its missing cells.

    Examples
    --------
    >>> data, truth = missing_cells(1000, 4, missing_rate=0.3)
    >>> data.schema.missing, bool(0.25 < np.isnan(data.read(0, 1000)["X"]).mean() < 0.35)
    (('0', '1', '2', '3'), True)
    """
    check_share("missing_rate", missing_rate)
    generation, truth = world_of("latent.missing_cells", placing, n_features, snr, noise_std, missing_rate=missing_rate)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return X @ truth + noise_std * generator.standard_normal(len(X))

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.standard_normal(shape)

    def hidden(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return generator.random(X.shape) < missing_rate

    return generation.dataset(n_rows, truth, labels, "float64", rows=rows, hidden=hidden)


def mixture(
    n_rows: int,
    n_features: int = 2,
    *,
    n_components: int = 3,
    snr: float = 4.0,
    noise_std: float = 1.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Rows around one of several centres, each as often, with normal noise.

    Parameters
    ----------
    n_components : int
    snr : float
        Norm of a centre over ``noise_std``; the centres are spread evenly over a circle in a random plane.
    noise_std : float
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        With the array X only.
    truth : ndarray of shape (n_components, n_features)
        The centres.
    """
    if n_components < 2 or n_features < 2:
        raise DataError("a mixture has two components or more, in two columns or more")
    given = {"n_features": n_features, "n_components": n_components, "snr": snr, "noise_std": noise_std}
    generation = Generation("latent.mixture", placing, **given)
    plane = np.linalg.qr(generation.truth_generator().standard_normal((n_features, 2)))[0]
    angles = 2 * math.pi * np.arange(n_components) / n_components
    truth = snr * noise_std * np.column_stack([np.cos(angles), np.sin(angles)]) @ plane.T

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        which = generator.integers(n_components, size=shape[0])
        return truth[which] + noise_std * generator.standard_normal(shape)

    return generation.dataset(n_rows, truth, rows=rows)


def world_of(
    name: str, placing: Placing, n_features: int, snr: float, noise_std: float, **law: float
) -> tuple[Generation, np.ndarray]:
    """A generation, and b in a random direction."""
    if not (noise_std > 0 and math.isfinite(noise_std)):
        raise DataError(f"noise_std must be a positive number, got {noise_std!r}")
    generation = Generation(name, placing, n_features=n_features, snr=snr, noise_std=noise_std, **law)
    return generation, generation.directions(1, n_features, snr * noise_std)[0]


def em(model: Latent, X: Array, y: Any, first: Array, n_rounds: int = REFERENCE_ROUNDS) -> Array:
    """The EM algorithm without privacy.

    >>> data, truth = two_components(4000, 3)
    >>> rows = data.read(0, 4000)["X"]
    >>> found = em(TwoComponents(1.0), rows, None, truth + 0.3)
    >>> bool(distance(TwoComponents(1.0), found, truth) < 0.1)
    True
    """
    b = np.array(first, dtype=np.float64)
    for _ in range(n_rounds):
        b = model.maximum(X, y, b)
    return b


class SignlessDistance(TruthMetric):
    """Coefficients of a model that does not change with their sign."""

    answer = Answer.UP_TO_SIGN
    what = "distance to the true coefficients or to minus them, whichever is less, over their length"
    kind: type[Latent] = TwoComponents

    @property
    def model(self) -> Latent:
        """That of the rows."""
        return self.kind(self.world.parameters["noise_std"])

    def error(self, model: Any) -> float:
        return distance(self.model, model.coef_, self.world.truth) / float(np.linalg.norm(self.world.truth))

    def trivial(self) -> float:
        return 1.0

    def reference(self, X: Array, y: Any) -> Any:
        """The EM algorithm from the truth, which is what a good start leads to."""
        return SimpleNamespace(coef_=em(self.model, X, y, self.world.truth))


class LineDistance(SignlessDistance):
    """The same for mixed lines."""

    kind = MixedLines


class DistanceWithMissingCells(SignlessDistance):
    """Coefficients of a regression with missing cells, whose sign is known."""

    answer = Answer.COEFFICIENTS
    what = "distance to the true coefficients, over their length"
    kind = MissingCells


def matched(centres: Array, truth: Array) -> float:
    """The largest distance of a centre to its own true one, for the best way to pair them.

    >>> matched(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 0.3], [1.0, 0.0]]))
    0.3
    """
    distances = np.linalg.norm(centres[:, None] - truth[None], axis=2)
    return float(distances[scipy.optimize.linear_sum_assignment(distances)].max())


class CentreDistance(TruthMetric):
    """Centres of a mixture, in any order."""

    answer = Answer.CENTRES
    what = "largest distance of a centre to its true one"

    def error(self, model: Any) -> float:
        return matched(model.means_, self.world.truth)

    def trivial(self) -> float:
        """Of centres at 0."""
        return float(np.linalg.norm(self.world.truth, axis=1).max())

    def reference(self, X: Array, y: Any) -> Any:
        """The EM algorithm from the true centres."""
        return sklearn.mixture.GaussianMixture(
            len(self.world.truth), covariance_type="diag", means_init=self.world.truth, random_state=0
        ).fit(X)


PROBLEMS = (
    Problem(
        "two-components",
        "mixtures: rows around b or around -b, normal",
        two_components,
        parameters(n=10_000, d=5, snr=3.0, noise_std=1.0),
        (SignlessDistance,),
    ),
    Problem(
        "mixed-regression",
        "mixtures: labels around <b, x> or around -<b, x>, normal rows",
        mixed_regression,
        parameters(n=20_000, d=5, snr=3.0, noise_std=1.0),
        (LineDistance,),
    ),
    Problem(
        "missing-cells",
        "regression of normal rows with missing cells",
        missing_cells,
        parameters(n=20_000, d=5, snr=1.0, noise_std=1.0, missing_rate=0.1),
        (DistanceWithMissingCells,),
    ),
    Problem(
        "mixture",
        "mixtures: rows around one of several centres on a circle, normal",
        mixture,
        parameters(n=50_000, d=2, n_components=3, snr=4.0, noise_std=1.0),
        (CentreDistance,),
        shared=("n_components",),
    ),
)
