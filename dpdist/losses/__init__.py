"""Losses of a linear predictor: one small frozen object each, with the constants that privacy and steps rest on.

What a loss is: `dpdist.losses.loss`. Those there are: `dpdist.losses.convex`, `dpdist.losses.nonconvex`, and, with
weights of classes, `dpdist.losses.class_weights`.
"""

from dpdist.losses.class_weights import RestHinge, RestLogistic, WeightedHinge, WeightedLogistic
from dpdist.losses.convex import Huber, Logistic, ResidualSquares, SmoothedHinge, Squared
from dpdist.losses.loss import LARGEST_EXPONENT, Block, Loss
from dpdist.losses.nonconvex import Biweight, Cauchy, NegativeSquare, Sigmoid, SquaredProbability, Welsch

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Logistic, Squared, Huber, Biweight, SmoothedHinge, Sigmoid, SquaredProbability, Welsch, Cauchy, NegativeSquare,
    )
}  # fmt: skip


def by_name(name: str) -> Loss:
    """A built-in loss with its default parameters.

    >>> by_name("huber")
    Huber(threshold=1.345)
    """
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; expected one of {', '.join(sorted(LOSSES))}, or a Loss object")
    return LOSSES[name]()


__all__ = [
    "LARGEST_EXPONENT", "LOSSES", "Biweight", "Block", "Cauchy", "Huber", "Logistic", "Loss", "NegativeSquare",
    "ResidualSquares", "RestHinge", "RestLogistic", "Sigmoid", "SmoothedHinge", "Squared", "SquaredProbability",
    "WeightedHinge", "WeightedLogistic", "Welsch", "by_name",
]  # fmt: skip
