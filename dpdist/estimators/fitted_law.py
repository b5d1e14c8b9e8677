"""The law of rows that a fitted model stands for, to draw others from (`dpdist.estimators.bootstrap`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.latent import Latent

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Rows = tuple[Matrix, NDArray[Any] | None]


@dataclass(frozen=True)
class FittedLaw:
    """How rows come about, by a fitted model.

    Attributes
    ----------
    values : array of shape (k,)
        Its parameters.
    names : tuple of str
    main : array of int
        Positions of those that standard errors are shown of, in the shape of the fitted attribute.
    draw : callable
        ``draw(values, X, rng)``: as many rows, and labels if there are any. X has rows of features where the model does
        not say how these vary, else their shape matters alone.
    read : callable
        The same parameters of another fitted model.
    basis : str
        What is assumed of the rows.
    needs_features : bool
        Whether ``public_X`` has to say how features vary. Where it need not it may, if ``takes_features``.
    takes_features : bool
    """

    values: Vector
    names: tuple[str, ...]
    main: NDArray[np.int64]
    draw: Callable[[Vector, Matrix, np.random.Generator], Rows]
    read: Callable[[Any], Vector]
    basis: str
    needs_features: bool = False
    takes_features: bool = False


def latent_law(model: Latent, coef: Vector, names: Sequence[str]) -> FittedLaw:
    """Of coefficients and something that nobody saw; the sign is that of ``coef`` where there are two."""

    def read(other: Any) -> Vector:
        found: Vector = other.coef_
        return -found if model.symmetric and found @ coef < 0 else found

    return FittedLaw(
        coef,
        tuple(names),
        np.arange(len(coef)),
        lambda b, X, rng: model.draw(X, b, rng),
        read,
        model.assumes,
        takes_features=model.labelled,
    )
