"""What a user of sparse regression states: what is known of the features, and public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.linear.links import IDENTITY, Link
from dpdist.method import Choice, Noted

Vector = NDArray[np.float64]

ROW_SLACK = 1.1
"""Rows of d features of mean square 1 are longer than this times sqrt(d) only rarely."""
LINK_MODES = ("invert", "gradient")


@dataclass(frozen=True)
class Design(Choice):
    """What is known of the features of a row, which have a mean square of about 1."""

    parameter = "design"


class Sign(Design):
    """Features that are -1 or 1, independent and fair."""

    tag, name = "Sign", "sign"


@dataclass(frozen=True)
class Isotropic(Design):
    """Features that are dense and uncorrelated."""

    tag, name = "Isotropic", "isotropic"


@dataclass(frozen=True)
class General(Design):
    """Features that are correlated.

    Parameters
    ----------
    eigenvalues : (low, high)
        Public bounds of the eigenvalues of ``E x x'``.
    covariance : array, optional
        ``E x x'``, where it is public.
    """

    tag, name = "General", "general"

    eigenvalues: tuple[float, float] = (0.5, 2.0)
    covariance: Any = None


@dataclass(frozen=True)
class SparseProblem(Noted):
    """What a user of `dpdist.local.sparse.sparse_regression.SparseRegression` states; the fields are its parameters."""

    tag: ClassVar[str] = "SparseProblem"

    n_features: int
    n_nonzero: int
    noise_bound: float
    radius: float = 1.0
    design: Design = Isotropic()
    link: Link = IDENTITY
    feature_bound: float | None = None
    row_norm: float | None = None
    label_bound: float | None = None
    label_moment: tuple[float, float] | None = None

    @property
    def sign(self) -> bool:
        """Whether features are -1 or 1, at random."""
        return isinstance(self.design, Sign)

    @property
    def eigenvalues(self) -> tuple[float, float]:
        """Bounds of those of ``E x x'``."""
        low, high = self.design.eigenvalues if isinstance(self.design, General) else General().eigenvalues
        return float(low), float(high)

    @property
    def covariance(self) -> Vector | None:
        """``E x x'``, where it is public and not the identity."""
        known = self.design.covariance if isinstance(self.design, General) else None
        return None if known is None else np.asarray(known, dtype=np.float64)

    @property
    def inverse_covariance(self) -> Vector | None:
        """None for the identity."""
        return None if self.covariance is None else np.asarray(np.linalg.inv(self.covariance), dtype=np.float64)

    @property
    def unknown(self) -> bool:
        """Whether features are correlated in a way that nobody knows."""
        return isinstance(self.design, General) and self.covariance is None

    def norm_of_rows(self, slack: float = ROW_SLACK) -> float:
        """Where rows are scaled down to."""
        if self.row_norm is not None:
            return self.row_norm
        return math.sqrt(self.n_features) * (1.0 if self.sign else slack)
