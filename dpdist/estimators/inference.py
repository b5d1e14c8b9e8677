"""How sure an answer is: standard errors, intervals, tests and a summary, of every estimator that knows them.

A method that knows the error of its solution returns an `dpdist.solvers.standard_errors.Uncertainty` beside it, or says
in words why it does not. What users ask for is here: all of it follows from releases and public numbers, so that it
costs no budget.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpdist.errors import BudgetError, NoIntervals
from dpdist.estimators.wald_tests import WaldTest, check_consistent, right_side, tested
from dpdist.html import Markup, card, number, table
from dpdist.solvers.standard_errors import Uncertainty, quantile, two_sided

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LEVEL = 0.95
COLUMNS = (
    "how two columns vary together is not released, and sums or differences of their means would be more or less sure "
    "than they seem: ask about one column at a time, at a level divided by their number, or about the mean of a column "
    "that is their difference"
)
"""Why there is no test of several means."""
CLASSES = (
    "each class has a fit of its own to the same rows, and how two of them vary together is not released: ask about "
    "the coefficients of one class at a time, at a level divided by the number of classes"
)
"""Why there is no test of several classes."""
MOST_LINES = 300
"""Of the table in reports and records."""


@dataclass(frozen=True)
class Inferred:
    """The parameters of a fit and the covariance of their errors.

    Attributes
    ----------
    names : tuple of str
    values : array of shape (k,)
    covariance : array of shape (k, k), or (k,)
        Variances alone where nothing else is known.
    noise : array of shape (k,)
        The part of its diagonal that is due to the noise of privacy.
    main : array of int
        Positions of those that standard errors and intervals are shown of, in the shape of the fitted attribute.
    basis : str
        What the covariance rests on.
    alone : str
        Why it is not known how parameters of different groups vary together; empty if it is.
    together : int
        Size of the groups of consecutive parameters of which it is known.
    """

    names: tuple[str, ...]
    values: Vector
    covariance: Matrix
    noise: Vector
    main: NDArray[np.int64]
    basis: str = ""
    alone: str = ""
    together: int = 1

    @property
    def errors(self) -> Vector:
        """Standard errors."""
        variances = self.covariance if self.covariance.ndim == 1 else np.diag(self.covariance)
        found: Vector = np.sqrt(np.maximum(variances, 0.0))
        return found

    def covariance_of(self, rows: Matrix) -> Matrix:
        """Of linear combinations of the parameters."""
        spread = rows * self.covariance if self.covariance.ndim == 1 else rows @ self.covariance
        return np.asarray(spread @ rows.T)


@dataclass(frozen=True)
class Summary:
    """A table of parameters: estimate, standard error, z, p and interval, as users of statsmodels know it.

    Attributes
    ----------
    title : str
    rows : list of dict
        Keys ``name``, ``coefficient``, ``standard_error``, ``z``, ``p``, ``low``, ``high`` and ``noise_share``, the
        part of the variance that is due to the noise of privacy.
    level : float
        Of the intervals.
    notes : list of str
    """

    title: str
    rows: list[dict[str, Any]]
    level: float
    notes: list[str]

    @property
    def _head(self) -> list[str]:
        tail = (1 - self.level) / 2
        ends = [f"{number(100 * share, 4)} %" for share in (tail, 1 - tail)]
        return ["", "coefficient", "standard error", "z", "p", *ends, "noise"]

    def _cells(self, row: dict[str, Any]) -> list[Any]:
        share = "" if math.isnan(row["noise_share"]) else f"{row['noise_share']:.0%}"
        return [*(row[key] for key in ("name", "coefficient", "standard_error", "z", "p", "low", "high")), share]

    def __str__(self) -> str:
        shown = [self._head]
        for row in self.rows:
            name, *values, share = self._cells(row)
            coefficient, error, z, p, low, high = values
            cells = [number(coefficient), number(error), f"{z:.3f}", f"{p:.3f}", number(low), number(high)]
            shown.append([name, *cells, share])
        widths = [max(len(line[i]) for line in shown) for i in range(len(shown[0]))]
        lines = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in shown
        ]
        rule = "=" * len(lines[0])
        return "\n".join([self.title, rule, lines[0], "-" * len(rule), *lines[1:], rule, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self.title, self.table(), *(Markup(f"<p>{note}</p>") for note in self.notes))

    def table(self) -> Markup:
        """The rows as HTML."""
        rows = [[*self._cells(row)] for row in self.rows]
        return table(self._head, rows, f"{self.title}: intervals of {self.level:.4g}")


class Inference:
    """What an estimator says of how sure it is, once it is fitted."""

    _inferred: Inferred | str

    @property
    def standard_errors_(self) -> Vector:
        """Standard errors, in the shape of what was fitted: over other rows of the same law, and over the noise."""
        known = self._known()
        return np.asarray(known.errors[known.main])

    def confidence_intervals(self, level: float = LEVEL) -> Vector:
        """Lower and upper ends that contain the truth in a share ``level`` of all fits: shape ``(..., 2)``.

        Each interval by itself; for several at once take ``level = 1 - (1 - 0.95) / k`` (Bonferroni).
        """
        known, reach = self._known(), quantile(check_level(level))
        ends = np.stack([known.values - reach * known.errors, known.values + reach * known.errors], axis=-1)
        return np.asarray(ends[known.main])

    def summary(self, level: float = LEVEL) -> Summary:
        """A table of all parameters: coefficient, standard error, z, p and interval."""
        known = self._known()
        return summary_of(known, self._title(), check_level(level), self._notes())

    def wald_test(self, R: ArrayLike, r: ArrayLike | None = None) -> WaldTest:
        """Whether ``R b = r``, for the fitted parameters b.

        Parameters
        ----------
        R : array_like of shape (k,) or (q, k)
            One row for every hypothesis, with as many entries as there are coefficients, or one more for the intercept,
            which is last; those of several classes one after another.
        r : array_like of shape (q,), optional
            Default: 0.

        Examples
        --------
        >>> from dpdist import LogisticRegression
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(50_000, 2)) / 2
        >>> y = X @ [4.0, 4.0] + rng.logistic(size=50_000) > 0
        >>> model = LogisticRegression(classes=[False, True], row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0)
        >>> test = model.fit(X, y).wald_test([1.0, -1.0])       # are both coefficients the same?
        >>> bool(test.p_value > 0.01), test.degrees_of_freedom
        (True, 1)
        """
        known = self._known()
        rows = hypotheses(R, known)
        values = np.zeros(len(rows)) if r is None else right_side(r, len(rows))
        _need_joint(known, rows)
        size = np.abs(rows).max(axis=1)  # what is asked does not depend on it, and squares of huge numbers overflow
        rows, values = rows / size[:, None], values / size
        check_consistent(rows, values)
        found = tested(rows @ known.values - values, known.covariance_of(rows))
        return replace(found, difference=found.difference * size, standard_errors=found.standard_errors * size)

    def two_sample_test(self, other: Any) -> WaldTest:
        """Whether all parameters but the intercept are those of another fit, to other people.

        The two fits have to be of the same features, with the same meaning, on rows that have nobody in common.
        """
        known = self._known()
        if not isinstance(other, Inference):
            raise BudgetError(f"other must be a fitted estimator of dpdist, got {type(other).__name__}")
        others = other._known()
        if [known.names[i] for i in known.main.ravel()] != [others.names[i] for i in others.main.ravel()]:
            raise BudgetError(
                f"two fits are compared parameter by parameter: one has {_listed(known)}, the other {_listed(others)}. "
                "Fit both to the same features in the same order"
            )
        mine, theirs = known.main.ravel(), others.main.ravel()
        covariance = np.zeros((len(mine), len(mine)))
        for each, own in ((known, mine), (others, theirs)):
            if each.alone and len(own) > each.together:
                raise NoIntervals(each.alone)
            covariance += each.covariance_of(np.eye(len(each.names))[own])
        return tested(known.values[mine] - others.values[theirs], covariance)

    def _known(self) -> Inferred:
        check_is_fitted(self, "_inferred")
        if isinstance(self._inferred, str):
            raise NoIntervals(self._inferred)
        return self._inferred

    def _title(self) -> str:
        return type(self).__name__

    def _notes(self) -> list[str]:
        known = self._known()
        return [note for note in ("noise: the share of the variance that pays for privacy.", known.basis) if note]


def summary_of(known: Inferred, title: str, level: float, notes: list[str]) -> Summary:
    """The table of parameters."""
    reach, errors = quantile(level), known.errors
    with np.errstate(divide="ignore", invalid="ignore"):
        z = known.values / errors
        share = known.noise / np.square(errors)
    rows = [
        {
            "name": name,
            "coefficient": float(known.values[i]),
            "standard_error": float(errors[i]),
            "z": float(z[i]),
            "p": float(two_sided(z[i])),
            "low": float(known.values[i] - reach * errors[i]),
            "high": float(known.values[i] + reach * errors[i]),
            "noise_share": float(min(share[i], 1.0)),
        }
        for i, name in enumerate(known.names)
    ]
    return Summary(title, rows, level, notes)


def record_of(model: Any, level: float = LEVEL) -> dict[str, Any] | None:
    """What a report says of how sure a fitted model is, as plain JSON; None of an estimator of another kind."""
    if not isinstance(model, Inference):
        return None
    try:
        found = model.summary(level)
    except NoIntervals as reason:
        return {"none": str(reason)}
    rows = [{key: _finite(value) for key, value in row.items()} for row in found.rows[:MOST_LINES]]
    left_out = [f"The first {MOST_LINES} of {len(found.rows)} parameters."] if len(found.rows) > MOST_LINES else []
    return {"level": level, "rows": rows, "notes": [*left_out, *found.notes]}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_level(level: Any) -> float:
    """A level that an interval can have."""
    if isinstance(level, bool) or not isinstance(level, numbers.Real) or not 0 < float(level) < 1:
        raise BudgetError(f"level must be a number between 0 and 1, such as 0.95, got {level!r}")
    return float(level)


def hypotheses(R: ArrayLike, known: Inferred) -> Matrix:
    """The rows of R, for all parameters."""
    try:
        rows = np.atleast_2d(np.asarray(R, dtype=np.float64))
    except (TypeError, ValueError):
        rows = np.empty((0, 0, 0))
    shown = known.main.size
    if rows.ndim != 2 or not len(rows) or rows.shape[1] not in (shown, len(known.names)):
        more = "" if shown == len(known.names) else f", or {len(known.names)} with the intercept"
        raise BudgetError(
            f"R must have one row for every hypothesis and {shown} columns, one for every coefficient{more}; got shape "
            f"{np.asarray(R, dtype=object).shape}. For a test of the first one: {[1] + [0] * (min(shown, 4) - 1)}"
            f"{' and so on' if shown > 4 else ''}"
        )
    if not np.isfinite(rows).all() or not rows.any(axis=1).all():
        raise BudgetError("every row of R must be finite numbers that are not all 0: it is a hypothesis about them")
    if rows.shape[1] == len(known.names):
        return rows
    whole = np.zeros((len(rows), len(known.names)))
    whole[:, known.main.ravel()] = rows
    return whole


def _need_joint(known: Inferred, rows: Matrix) -> None:
    """Refuse hypotheses about several parameters where it is not known how these vary together."""
    asked = np.flatnonzero(rows.any(axis=0)) // known.together
    if known.alone and len(set(asked.tolist())) > 1:
        raise NoIntervals(known.alone)


def linear_parameters(
    uncertainties: Sequence[Uncertainty],
    coef: Matrix,
    intercept: Vector | None,
    features: Sequence[str],
    classes: Sequence[Any] = (),
    basis: str = "",
) -> Inferred | str:
    """Coefficients, and for each solution the intercept behind them.

    Parameters
    ----------
    uncertainties : sequence of Uncertainty
        Of coefficients and intercept, one for each solution.
    coef : array of shape (n_solutions, d), or (d,)
    intercept : array of shape (n_solutions,), optional
    features : sequence of str
    classes : sequence
        Their names, where there are several solutions.
    basis : str
    """
    names = [*features, *(["intercept"] if intercept is not None else [])]
    if (invalid := next((each for each in uncertainties if each.invalid), None)) is not None:
        weakest = ", ".join(repr(names[i]) for i in invalid.weakest if i < len(names))
        return f"no interval is valid here: {invalid.invalid}" + (f". Above all: {weakest}" if weakest else "")
    solutions = np.atleast_2d(coef)
    n, d = solutions.shape
    joined = solutions if intercept is None else np.column_stack([solutions, intercept])
    size = joined.shape[1]
    covariance = np.zeros((n * size, n * size))
    for i, each in enumerate(uncertainties):
        covariance[i * size : (i + 1) * size, i * size : (i + 1) * size] = each.covariance
    return Inferred(
        tuple(f"{label}: {name}" for label in classes for name in names) if n > 1 else tuple(names),
        joined.ravel(),
        covariance,
        np.concatenate([each.noise for each in uncertainties]),
        (np.arange(n)[:, None] * size + np.arange(d)).reshape(coef.shape),
        basis,
        CLASSES if n > 1 else "",
        size,
    )


def vector_parameters(
    known: Uncertainty, values: Vector, names: Sequence[str], basis: str = "", constant: str = ""
) -> Inferred | str:
    """The entries of a vector; with ``constant``, the name of the last one, which is shown in the table only."""
    if known.invalid:
        return f"no interval is valid here: {known.invalid}"
    shown = np.arange(len(values) - bool(constant))
    every = (*names, constant) if constant else tuple(names)
    return Inferred(every, np.asarray(values, dtype=np.float64), known.covariance, known.noise, shown, basis)


def feature_names(model: Any, n_features: int) -> list[str]:
    """Of a frame or of a dataset's columns where there are any, else x0, x1, ..."""
    names: Sequence[Any] = getattr(model, "feature_names_in_", getattr(model, "_feature_columns", ()))
    return [str(name) for name in names] if len(names) == n_features else [f"x{j}" for j in range(n_features)]


def _listed(known: Inferred) -> str:
    names = [known.names[i] for i in known.main.ravel()]
    return f"{len(names)} ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
