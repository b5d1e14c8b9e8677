"""What to expect of a fit before it is paid for: predicted from public numbers, without any data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

MOST_ROWS = 1e15
MOST_EPSILON = 1e4


@dataclass(frozen=True)
class Outlook:
    """A prediction, and what would be needed where it is bad.

    Attributes
    ----------
    predicted_error : float or None
        Expected error that is due to the noise; None where the method has no formula.
    trivial_error : float or None
        What the predictor that ignores the data can have at most; None where that depends on the scale of the labels.
    what : str
        What the two measure, and under which assumptions.
    n_needed : int or None
        Rows at which half of the trivial error is predicted, where the prediction is no better than trivial.
    epsilon_needed : float or None
        The same for epsilon, with the rows there are.
    warnings : tuple of str
    """

    predicted_error: float | None
    trivial_error: float | None
    what: str
    n_needed: int | None = None
    epsilon_needed: float | None = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.predicted_error is None:
            return "no formula predicts the error of this method"
        trivial = "" if self.trivial_error is None else f" (trivial: at most {self.trivial_error:.3g})"
        return "\n".join([f"predicted error {self.predicted_error:.3g}{trivial}: {self.what}", *self.warnings])


def outlook(
    predict: Callable[[int, float], float | None], trivial_error: float | None, what: str, n_rows: int, epsilon: float
) -> Outlook:
    """Compare a prediction with the trivial predictor and, if it is no better, find what would be.

    Parameters
    ----------
    predict : callable
        ``(n_rows, epsilon)`` to the predicted error, which falls in both.

    Examples
    --------
    >>> print(outlook(lambda n, epsilon: 100 / (n * epsilon), 1.0, "an example", 50, 1.0))
    predicted error 2 (trivial: at most 1): an example
    the noise alone would make this worse than ignoring the data: take n_rows >= 200 or epsilon >= 4
    """
    predicted = predict(n_rows, epsilon)
    if predicted is None or trivial_error is None or predicted < trivial_error:
        return Outlook(predicted, trivial_error, what)

    def enough(error: float | None) -> bool:
        return error is not None and error <= trivial_error / 2

    rows = _smallest(lambda n: enough(predict(math.ceil(n), epsilon)), n_rows, MOST_ROWS)
    more = _smallest(lambda e: enough(predict(n_rows, e)), epsilon, MOST_EPSILON)
    n_needed = None if rows is None else math.ceil(float(f"{rows:.2g}"))
    epsilon_needed = None if more is None else float(f"{more:.2g}")
    ways = [f"n_rows >= {n_needed:,}"] * (n_needed is not None) + [f"epsilon >= {epsilon_needed:g}"] * (
        more is not None
    )
    advice = f": take {' or '.join(ways)}" if ways else ""
    warning = f"the noise alone would make this worse than ignoring the data{advice}"
    return Outlook(predicted, trivial_error, what, n_needed, epsilon_needed, (warning,))


def _smallest(enough: Callable[[float], bool], start: float, limit: float) -> float | None:
    """The smallest number from ``start`` on that is enough, to 5 %."""
    low, high = start, start
    while not enough(high):
        low, high = high, high * 2
        if high > limit:
            return None
    while high > low * 1.05:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
