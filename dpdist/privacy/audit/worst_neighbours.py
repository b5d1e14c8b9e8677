"""Made-up datasets that differ in one unit and are as easy to tell apart as can be, as a family of methods offers them.

Rows that differ are far beyond any bound, so that clipping, scaling and noise do to them what they do to the worst
real row. Which pairs are the worst for its kind of answer, a family of methods says (`Estimator.worst_neighbours`):
labels as different as can be for models of a label, opposite rows for means, orthogonal rows for second moments (two
outer products of norm 1 are farthest apart, at Frobenius distance sqrt(2), if the rows are orthogonal), and single
records for reports of users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Pair = tuple[Arrays, Arrays]
"""The arrays of either dataset."""

FAR = 1e6
"""Features of a row that differs; longer rows would lose nothing by being cut off."""
FAR_LABEL = 1e9


def labelled_rows(n_rows: int, n_features: int, labels: tuple[Any, Any]) -> dict[str, Pair]:
    """Pairs for models of a label, which differ in the label of a row, or in what it pulls at.

    * "alone": all other rows are zero, so that nothing hides the row, which has one label or the other;
    * "in a crowd": the same among rows at random;
    * "against the rest": all other rows pull the first coefficient one way, the row pulls the other way, and the
      second up or down. Losses that saturate have their largest gradients where a row is on the wrong side.
    """
    one, other = labels
    zeros = np.zeros((n_rows, n_features))
    crowd = np.random.default_rng(0).standard_normal((n_rows, n_features))
    against = []
    for sign in (-1.0, 1.0):
        X = zeros.copy()
        X[:, 0] = 1.0
        X[0, :2] = -0.5 * FAR, sign * FAR
        against.append({"X": X, "y": _labels(n_rows, other, other)})
    pairs: dict[str, Pair] = {}
    for name, rest in (("alone", zeros), ("in a crowd", crowd)):
        X = rest.copy()
        X[0] = FAR
        pairs[name] = {"X": X, "y": _labels(n_rows, one, one)}, {"X": X, "y": _labels(n_rows, one, other)}
    return pairs | {"against the rest": (against[0], against[1])}


def one_against_others(n_rows: int, n_features: int, labels: tuple[Any, Any]) -> dict[str, Pair]:
    """The pair for losses of pairs: one positive row, at either end, among negative ones."""
    y = np.array([labels[1], *[labels[0]] * (n_rows - 1)])
    ends = np.full(n_features, FAR)
    one, other = _replaced(np.zeros((n_rows, n_features)), ends, -ends)
    return {"one positive row": ({**one, "y": y}, {**other, "y": y})}


def opposite_rows(n_rows: int, n_features: int) -> dict[str, Pair]:
    """Pairs for means: a row at one end of every range, or at the other, where the rest is zero or at random."""
    crowd = np.random.default_rng(0).standard_normal((n_rows, n_features))
    ends = np.full(n_features, FAR)
    rests = {"opposite rows": np.zeros((n_rows, n_features)), "opposite rows in a crowd": crowd}
    return {name: _replaced(rest, ends, -ends) for name, rest in rests.items()}


def orthogonal_rows(n_rows: int, n_features: int) -> dict[str, Pair]:
    """The pair for second moments, whose rest is zero."""
    axes = FAR * np.eye(2, n_features)
    return {"orthogonal rows": _replaced(np.zeros((n_rows, n_features)), axes[0], axes[1])}


def rows_across(n_rows: int, n_features: int, along: NDArray[np.float64]) -> dict[str, Pair]:
    """The pair for models in which x and -x are alike: rows opposite across a direction, and both slightly along it."""
    across = np.zeros(n_features)
    across[np.argmin(np.abs(along))] = 1.0
    across -= along * (across @ along) / (along @ along)
    rest = np.zeros((n_rows, n_features))
    return {"rows across": _replaced(rest, FAR * (across + 1e-3 * along), FAR * (1e-3 * along - across))}


def one_category(one: Any, other: Any) -> dict[str, Pair]:
    """Pairs of single records for questions with categories; NaN is none."""
    first, last, none = ({"X": np.array([category])} for category in (one, other, np.nan))
    return {"two categories": (first, last), "a category and none": (first, none)}


def one_record(n_features: int) -> dict[str, Pair]:
    """Pairs of single records for questions about features and a label."""
    ones = np.ones((1, n_features))
    rising = np.arange(1, n_features + 1, dtype=np.float64)[None] * FAR
    high, low, near = np.array([FAR_LABEL]), np.array([-FAR_LABEL]), np.array([1.0])
    return {
        "opposite rows": ({"X": FAR * ones, "y": near}, {"X": -FAR * ones, "y": near}),
        "opposite labels": ({"X": ones, "y": high}, {"X": ones, "y": low}),
        "a row and none": ({"X": rising, "y": high}, {"X": 0 * ones, "y": np.array([np.nan])}),
    }


def _labels(n_rows: int, rest: Any, own: Any) -> NDArray[Any]:
    harmless = 1.0 if rest in (-FAR_LABEL, FAR_LABEL) else rest
    return np.array([own, *[harmless] * (n_rows - 1)])


def _replaced(rest: NDArray[np.float64], one: NDArray[np.float64], other: NDArray[np.float64]) -> Pair:
    X, Z = rest.copy(), rest.copy()
    X[0], Z[0] = one, other
    return {"X": X}, {"X": Z}
