"""What to expect of a fit before it is paid for: predicted from public numbers, without any data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from dpdist.errors import BudgetError
from dpdist.method import Expected
from dpdist.privacy.accounting.closed_forms import gdp_epsilon, gdp_mu
from dpdist.privacy.accounting.profiles import roughly

MOST_ROWS = 1e15
MOST_EPSILON = 1e4
HOPELESS = 0.9
"""Part of the error of ignoring the data that a fit has to save a tenth of, on the rows that suit it best."""
EXCESS = (
    "expected excess of the mean loss over the best fit, from noise and from what is left to optimise, whatever the "
    "spectrum, the lengths and the predictors of the rows"
)
PRECISION = 0.01
"""How far above the smallest sufficient number the one that is found may lie, relative to it."""

_ASKED = ContextVar("asked", default=True)


@contextmanager
def nobody_asks() -> Iterator[None]:
    """Fits in here warn of nothing, and work out nothing to warn of: one method is fitted thousands of times."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        token = _ASKED.set(False)
        try:
            yield
        finally:
            _ASKED.reset(token)


def somebody_asks() -> bool:
    """Whether a fit says what to expect of it."""
    return _ASKED.get()


@dataclass(frozen=True)
class Outlook:
    """A prediction, and what would be needed where it is bad.

    Attributes
    ----------
    predicted_error : float or None
        Expected error, in the middle of the range where there is one, else what is due to the noise alone; None where
        the method has no formula.
    trivial_error : float or None
        What the predictor that ignores the data can have at most; None where that depends on the scale of the labels.
    what : str
        What the two measure, and under which assumptions.
    n_needed : int or None
        Rows at which half of the trivial error is predicted, where the prediction is no better than trivial.
    epsilon_needed : float or None
        The same for epsilon, with the rows there are.
    warnings : tuple of str
    low, high : float or None
        The range of the error over what is not public.
    unknown : str
        What makes it wide, more than anything else.
    """

    predicted_error: float | None
    trivial_error: float | None
    what: str
    n_needed: int | None = None
    epsilon_needed: float | None = None
    warnings: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    unknown: str = ""

    def __str__(self) -> str:
        if self.predicted_error is None:
            return "no formula predicts the error of this method"
        trivial = "" if self.trivial_error is None else f" (trivial: at most {self.trivial_error:.3g})"
        return "\n".join([f"predicted error {self.shown}{trivial}: {self.what}", *self.warnings])

    @property
    def shown(self) -> str:
        """The range, or the number where there is none."""
        if self.low is None:
            return f"{self.predicted_error:.3g}"
        return f"{self.low:.2g} to {self.high:.2g} (what makes it wide: {self.unknown})"


def outlook_of_range(
    expect: Callable[[int, float], Expected], trivial_error: float | None, n_rows: int, epsilon: float, delta: float
) -> Outlook:
    """The range, and what it would take where even its favourable end is no better than ignoring the data.

    Enough is what halves the error of ignoring the data in a middle case.
    """
    now = expect(n_rows, epsilon)
    found = Outlook(now.typical, trivial_error, EXCESS, low=now.low, high=now.high, unknown=now.unknown)
    if now.least_share < HOPELESS:
        return found
    n_needed, epsilon_needed = _needed(
        lambda n, epsilon: expect(n, epsilon).typical_share, now.typical_share, 1.0, n_rows, epsilon, delta
    )
    said = "even on rows that suit it this fit is expected to be no better than ignoring the data"
    warning = f"{said}{_advice(n_needed, epsilon_needed)}"
    return replace(found, n_needed=n_needed, epsilon_needed=epsilon_needed, warnings=(warning,))


def outlook(
    predict: Callable[[int, float], float | None],
    trivial_error: float | None,
    what: str,
    n_rows: int,
    epsilon: float,
    delta: float = 0.0,
) -> Outlook:
    """Compare a prediction with the trivial predictor and, if it is no better, find what would be.

    Parameters
    ----------
    predict : callable
        ``(n_rows, epsilon)`` to the predicted error, which falls in both. It may take a good part of a second (plans
        that are accounted by privacy loss distributions), so that few questions are asked.
    delta : float
        Of the budget. With Gaussian noise the error falls with the mu of the budget as it does with the rows.

    Examples
    --------
    >>> print(outlook(lambda n, epsilon: 100 / (n * epsilon), 1.0, "an example", 50, 1.0))
    predicted error 2 (trivial: at most 1): an example
    the noise alone would make this worse than ignoring the data: take n_rows >= 200 or epsilon >= 4
    """
    predicted = predict(n_rows, epsilon)
    if predicted is None or trivial_error is None or predicted < trivial_error:
        return Outlook(predicted, trivial_error, what)

    n_needed, epsilon_needed = _needed(predict, predicted, trivial_error, n_rows, epsilon, delta)
    warning = f"the noise alone would make this worse than ignoring the data{_advice(n_needed, epsilon_needed)}"
    return Outlook(predicted, trivial_error, what, n_needed, epsilon_needed, (warning,))


def _needed(
    predict: Callable[[int, float], float | None],
    predicted: float,
    trivial_error: float,
    n_rows: int,
    epsilon: float,
    delta: float,
) -> tuple[int | None, float | None]:
    """Rows, and epsilon, at which half of the trivial error is predicted."""

    def excess(n: float, epsilon: float) -> float:
        try:
            with roughly(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of SciPy, about budgets that are only tried
                error = predict(math.ceil(n), epsilon)
        except BudgetError:  # so large an epsilon that the accountant sees no need for noise
            error = None
        return math.inf if error is None else math.log(max(error, 1e-300) / (trivial_error / 2))

    def mu_of(epsilon: float) -> float:
        return gdp_mu(epsilon, delta) if delta > 0 else epsilon

    def epsilon_of(mu: float) -> float:
        return gdp_epsilon(mu, delta) if delta > 0 else mu

    now = math.log(predicted / (trivial_error / 2))
    rows = _smallest(lambda n: excess(n, epsilon), n_rows, now, MOST_ROWS)
    more = _smallest(lambda mu: excess(n_rows, epsilon_of(mu)), mu_of(epsilon), now, mu_of(MOST_EPSILON))
    n_needed = None if rows is None else math.ceil(float(f"{rows:.2g}"))
    return n_needed, None if more is None else float(f"{epsilon_of(more):.2g}")


def _advice(n_needed: int | None, epsilon_needed: float | None) -> str:
    ways = [] if n_needed is None else [f"n_rows >= {n_needed:,}"]
    ways += [] if epsilon_needed is None else [f"epsilon >= {epsilon_needed:g}"]
    return f": take {' or '.join(ways)}" if ways else ""


def _smallest(excess: Callable[[float], float], start: float, at_start: float, limit: float) -> float | None:
    """Where a logarithm that falls about like ``-2 ln x`` reaches 0, to `PRECISION`; None if it does not, up to limit.

    Secant steps in ``ln x``: upwards until it is reached, then inside the bracket (Illinois variant).
    """
    low, over, end = math.log(start), at_start, math.log(limit)
    step, refused = over / 2, 0
    while True:
        x = min(low + step + PRECISION, end)
        y = excess(math.exp(x))
        if y <= 0:
            break
        if math.isinf(y):  # nothing can be planned there
            refused += 1
            if refused == 3:
                return None
            step = (x - low) / 2 - PRECISION
            continue
        if x == end:
            return None
        slope = (over - y) / (x - low)
        step = y / min(slope, 4.0) if slope > 0.5 else 2 * step
        low, over = x, y
    high, under = x, y
    # aimed at the middle of what is accepted, so that either side can land in it
    left, right, last = over + PRECISION, under + PRECISION, 0
    while high - low > PRECISION and under < -2 * PRECISION:
        x = low + (high - low) * min(max(left / (left - right), 0.02), 0.98)
        y = min(excess(math.exp(x)), 50.0)
        if y <= 0:
            high, under, right = x, y, y + PRECISION
            left, last = (left / 2 if last > 0 else left), 1
        else:
            low, left = x, y + PRECISION
            right, last = (right / 2 if last < 0 else right), -1
    return math.exp(high)
