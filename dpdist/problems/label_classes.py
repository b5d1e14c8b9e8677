"""Two classes of a table without their labels, as a mixture of two components: a stand-in for what the sources ran on.

They took two classes of label of ADULT and IPUMS, centred between the means of the classes, and compared with these
(seed 002, figure 8; spec 07, section 8). Centre, size of the noise and truth were taken from the rows without a budget
(D12); here they are public, because the rows are made up: half of the columns are continuous and skewed, the others are
-1 and +1 at rates that the class decides, all are correlated, and the means are near each other.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from scipy.special import ndtri

from dpdist.data.dataset import Dataset
from dpdist.problems.generation import Placing
from dpdist.problems.latent_problems import SignlessDistance, world_of
from dpdist.problems.problem import Problem, parameters

FARTHEST = 4.0
"""Standardised values are cut there."""
LARGEST_MEAN = 0.95
"""Of a column of -1 and +1."""
SKEW = 0.5
NOISE = 1.6
"""About the root of the largest eigenvalue of a class's covariance, which the sources take for the noise."""


def label_classes(
    n_rows: int, n_features: int = 14, *, snr: float = 1.0, noise_std: float = NOISE, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Rows of two classes, as often, around b and -b.

    Parameters
    ----------
    snr : float
        Length of b over ``noise_std``: 0.7 to 1.5 in the tables of the sources.
    noise_std : float
        What is said of the noise; columns have variance 1 within a class, and are correlated.
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
    >>> data, truth = label_classes(1000, 6)
    >>> bool(np.isin(data.read(0, 1000)["X"][:, 3:], [-1.0, 1.0]).all()), bool(abs(truth[3:]).max() < 1)
    (True, True)
    """
    generation, truth = world_of("latent.label_classes", placing, n_features, snr, noise_std)
    half = n_features // 2
    truth[half:] = np.clip(truth[half:], -LARGEST_MEAN, LARGEST_MEAN)
    turned = np.linalg.qr(generation.truth_generator(1).standard_normal((n_features, n_features)))[0]
    factor = turned / np.sqrt(np.arange(1, n_features + 1))
    factor /= np.linalg.norm(factor, axis=1)[:, None]
    mean, deviation = math.exp(SKEW**2 / 2), math.sqrt(math.exp(2 * SKEW**2) - math.exp(SKEW**2))

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        drawn = generator.standard_normal((shape[0], n_features + 1))
        z, g = np.sign(drawn[:, :1]), drawn[:, 1:] @ factor.T
        skewed = (np.exp(SKEW * g) - mean) / deviation
        v = np.clip(np.where(np.arange(n_features) % 2 == 0, g, skewed), -FARTHEST, FARTHEST)
        signs = np.where(g < ndtri((1 + z * np.where(np.arange(n_features) < half, 0.0, truth)) / 2), 1.0, -1.0)
        return np.where(np.arange(n_features) < half, z * truth + v, signs)

    return generation.dataset(n_rows, truth, rows=rows)


PROBLEMS = (
    Problem(
        "label-classes",
        "mixtures: two classes of a table, skewed and 0/1 columns, correlated",
        label_classes,
        parameters(n=40_000, d=14, snr=1.0, noise_std=NOISE),
        (SignlessDistance,),
    ),
)
