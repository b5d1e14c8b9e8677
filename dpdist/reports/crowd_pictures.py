"""The picture of labels that were found from a crowd: how sure they are, and how able its users."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.charts import bars, figure
from dpdist.html import number, table

_STEPS = 10


def crowd(arrays: Mapping[str, NDArray[Any]]) -> str:
    """How many labels are how sure, and how many users how able; empty for other results.

    Parameters
    ----------
    arrays : mapping
        The released arrays of a run: ``label_probabilities``, and ``abilities`` or ``confusion`` where there are any.
    """
    chances = arrays.get("label_probabilities")
    if chances is None or chances.ndim != 2:
        return ""
    sure = np.asarray(chances, dtype=np.float64).max(axis=1)
    text = (
        f"Labels are as sure as the model of independent users has it: by it, {number(float(np.sum(1 - sure)), 3)} of "
        f"{len(sure)} are wrong."
    )
    parts = [f"<p>{text}</p>", _counted(sure, 1 / chances.shape[1], "chance of the label", "labels")]
    able = arrays.get("abilities")
    if able is None and arrays.get("confusion") is not None:
        able = np.diagonal(arrays["confusion"], axis1=1, axis2=2).mean(axis=1)
    if able is not None:
        parts.append(_counted(np.asarray(able, dtype=np.float64), 0.0, "chance to be right", "users"))
    return "".join(parts)


def _counted(values: NDArray[np.float64], low: float, what: str, whose: str) -> str:
    """How many values are in each of some equal intervals from ``low`` to 1."""
    counts, edges = np.histogram(np.clip(values, low, 1.0), bins=_STEPS, range=(low, 1.0))
    labels = [f"{a:.2f} to {b:.2f}" for a, b in itertools.pairwise(edges)]
    said = f"Half of the {len(values)} {whose} have a {what} of {number(float(np.median(values)), 3)} or more."
    shown = [float(count) for count in counts]
    return figure(
        lambda width: bars(labels, shown, title=f"Bar chart: {whose} by {what}", description=said, width=width),
        f"How many {whose} have which {what}. {said}",
        table([what, whose], list(zip(labels, counts.tolist(), strict=True)), f"{whose} by {what}"),
    )
