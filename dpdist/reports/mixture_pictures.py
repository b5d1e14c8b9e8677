"""The picture of the components of a mixture: where they are, column by column, and how far apart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.charts import LARGEST, Series, dots, figure
from dpdist.html import number, table

MOST_COMPONENTS = 6
"""With colours of their own; the heaviest are drawn."""


def components(run: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Centres of the components of a mixture; empty for other results.

    Parameters
    ----------
    run : mapping
        The record of a run: the estimator, the parameters and the names of the columns are read.
    arrays : mapping
        Its released arrays: ``means``, ``weights`` and ``covariances``, or ``coef`` of two opposite components.
    """
    asked = (run.get("asked") or {}).get("params") or {}
    if str(run.get("estimator", "")).rpartition(".")[2] == "TwoComponentMixture" and "coef" in arrays:
        coef = np.asarray(arrays["coef"], dtype=np.float64)
        means, weights = np.array([coef, -coef]), np.full(2, 0.5)
        deviations = np.full(means.shape, float(asked.get("noise_std") or np.nan))
    elif {"means", "weights", "covariances"} <= arrays.keys():
        means, weights = (np.asarray(arrays[name], dtype=np.float64) for name in ("means", "weights"))
        deviations = np.sqrt(np.asarray(arrays["covariances"], dtype=np.float64))
    else:
        return ""
    named = ((run.get("dataset") or {}).get("columns") or {}).get("X")
    return _picture(means, weights, deviations, named or [f"column {j}" for j in range(means.shape[1])])


def _picture(
    means: NDArray[np.float64], weights: NDArray[np.float64], deviations: NDArray[np.float64], columns: Sequence[str]
) -> str:
    order = np.argsort(-weights, kind="stable")
    shown = order[:MOST_COMPONENTS]
    spread = np.ptp(means[shown], axis=0)
    rows = np.argsort(-spread, kind="stable")[:LARGEST]
    series = [Series(f"component {k}, {100 * weights[k]:.0f} %", means[k, rows].tolist()) for k in shown]
    more = "" if len(shown) == len(weights) else f" The {len(shown)} heaviest of {len(weights)} are drawn."
    caption = f"Centres of the components, by column, where they are farthest apart first.{more}"
    cells = [
        (columns[j], *(f"{number(float(means[k, j]), 3)} ± {number(float(deviations[k, j]), 3)}" for k in order))
        for j in range(means.shape[1])
    ]
    head = ["column", *(f"component {k} ({100 * weights[k]:.0f} %)" for k in order)]
    return f"<p>{_apart(means, deviations)}</p>" + figure(
        lambda width: dots(
            [columns[j] for j in rows],
            series,
            title=f"Dot chart: centres of {len(weights)} components",
            description=_apart(means, deviations),
            width=width,
            log=False,
        ),
        caption,
        table(head, cells, "Centres and standard deviations of the components"),
    )


def _apart(means: NDArray[np.float64], deviations: NDArray[np.float64]) -> str:
    """The distance of the two nearest centres, over the noise along it."""
    if len(means) < 2:
        return "There is one component."
    near = []
    for i, j in itertools.combinations(range(len(means)), 2):
        gap = means[i] - means[j]
        length = float(np.linalg.norm(gap))
        along = np.sqrt(np.mean((deviations[[i, j]] * gap) ** 2, axis=0).sum()) / max(length, 1e-300)
        near.append(length / max(float(along), 1e-300) if np.isfinite(along) else length)
    said = number(min(near), 3)
    overlap = " Below 2 they overlap so far that rows cannot be told apart." if min(near) < 2 else ""
    return f"The two nearest centres are {said} standard deviations apart.{overlap}"
