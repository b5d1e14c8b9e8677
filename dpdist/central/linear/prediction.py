"""The error to expect of a fit, from public numbers alone: a range, and which unknown makes it wide.

Rows and labels are not known before a fit. What there can be of them is spanned by a few extremes:

============ ==========================================================================================================
spectrum     all directions alike; falling as 1/j, or nearly one direction, the signal with the rows or alike in all
lengths      mean squares of the rows' norms, relative to ``row_norm`` squared
predictors   standard deviation of the best ones (of margins, or relative to what bounds real labels)
residuals    that of real labels about them, relative to the same
============ ==========================================================================================================

`dpdist.central.linear.normal_rows` follows a solver through all combinations of them. The least and the largest
excess are the range. What a constant lacks in the same case says whether the fit is worth its budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dpdist.central.linear.normal_rows import Response, Rows, Vector
from dpdist.method import Expected

SPECTRA = ("alike", "falling", "falling, signal alike", "one direction", "one direction, signal alike")
LENGTHS = (1.0, 0.3, 0.05)
MARGINS = (0.5, 2.0, 6.0)
LABELS = (0.05, 0.3)
"""Real predictors, and residuals."""
UNKNOWN = (
    "the spectrum of the rows",
    "the lengths of the rows against row_norm",
    "the size of the best predictors",
    "the size of the residuals",
)
CONSTANT = 0.5
"""Part of the constant feature in the predictors, relative to their standard deviation."""
PARTS = np.linspace(0.0, 1.0, 11)
"""Of the constant's part in the best fit, among which that of the best constant is taken."""
NEARLY = 0.05
"""What the other directions have together, where nearly all is in one."""
MOST_DIRECTIONS = 40
"""Into which a falling spectrum is gathered."""


@dataclass(frozen=True)
class Prediction:
    """What a fit is expected to lack of the best one, and what a constant lacks, in each case."""

    excess: Vector
    gained: Vector
    shape: tuple[int, ...]

    @property
    def typical(self) -> float:
        """Where all unknowns are as likely as each other."""
        return _middle(self.excess)

    @property
    def expected(self) -> Expected:
        """The range, and the unknown of `UNKNOWN` that is to blame."""
        return self.expected_by(UNKNOWN)

    def expected_by(self, unknown: Sequence[str]) -> Expected:
        """The range, and the unknown (one for each axis) that moves the error most while the others stay."""
        logs = np.log(np.maximum(self.excess, 1e-300)).reshape(self.shape)
        moved = [float(np.ptp(logs, axis=axis).mean()) for axis in range(len(self.shape))]
        share = self.excess / self.gained
        return Expected(
            low=float(self.excess.min()),
            typical=self.typical,
            high=float(self.excess.max()),
            unknown=unknown[int(np.argmax(moved))],
            least_share=float(share.min()),
            typical_share=_middle(share),
        )


def predicted(excess: Vector, rows: Rows, response: Response) -> Prediction:
    """Of a solver that ends with that excess in each case of `rows_before_a_fit`."""
    nothing = np.zeros_like(rows.moments)
    alone = nothing.copy()
    alone[:, -1] = 1.0 if rows.constant else 0.0
    # without the slopes the best constant is a smaller one
    gained = np.min([response.excess(rows, part * alone, nothing) for part in PARTS], axis=0)
    return Prediction(excess, gained, tuple(map(len, _values(not rows.residuals.any()))))


def rows_before_a_fit(n_features: int, row_norm: float, constant: float, label_size: float | None) -> Rows:
    """All cases.

    Parameters
    ----------
    n_features : int
        Without the constant one.
    row_norm, constant : float
        Public bound of the rows' norm, and the constant feature (0 for none).
    label_size : float or None
        What bounds real labels; None for two classes.
    """
    cases, scale = list(product(*_values(label_size is None))), label_size or 1.0
    middles, counts = _spectrum(n_features)
    moments, weights = np.empty((len(cases), len(counts))), np.empty((len(cases), len(counts)))
    for k, (spectrum, length, size, _) in enumerate(cases):
        if spectrum == "alike":
            share = np.full(len(counts), 1 / n_features)
        elif spectrum.startswith("one direction"):
            others = max(n_features - 1, 1)
            share = np.where(middles > 1, NEARLY / others, 1 - NEARLY * (n_features > 1))
        else:
            share = 1 / middles
            share = share / (share @ counts)
        part = 1 / n_features if spectrum.endswith("signal alike") else share
        moments[k] = share * length * row_norm**2
        weights[k] = (size * scale) ** 2 * part / moments[k]
    if constant:
        own = np.array([(CONSTANT * size * scale / constant) ** 2 for _, _, size, _ in cases])
        moments = np.column_stack([moments, np.full(len(cases), constant**2)])
        weights, counts = np.column_stack([weights, own]), np.append(counts, 1.0)
    return Rows(moments, weights, counts, constant, np.array([case[3] * scale for case in cases]))


def _values(classes: bool) -> tuple[tuple[Any, ...], ...]:
    return (SPECTRA, LENGTHS, MARGINS, (0.0,)) if classes else (SPECTRA, LENGTHS, LABELS, LABELS)


def _spectrum(n_features: int) -> tuple[Vector, Vector]:
    """Ranks that stand for groups of directions, and how many each stands for."""
    edges = np.geomspace(1, n_features + 1, min(n_features, MOST_DIRECTIONS) + 1)
    edges = np.unique(np.round(edges).astype(int))
    return np.sqrt(edges[:-1] * (edges[1:] - 1.0)), np.diff(edges).astype(float)


def _middle(values: Vector) -> float:
    return math.exp(float(np.log(np.maximum(values, 1e-300)).mean()))
