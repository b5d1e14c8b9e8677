"""How a fitted model shows itself: as text at a prompt and as HTML in a notebook.

Everything shown is a parameter, public, or released: fitted attributes hold nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr

from dpdist.charts import LARGEST, bars, binned, figure, histogram, tiles
from dpdist.html import Markup, card, details, facts, is_number, number, records, table

_AT_A_PROMPT = 8
_MOST_TILES = 40
_NOT_RESULTS = {"guarantee_", "plan_", "releases_", "history_", "n_iter_", "solver_", "classes_", "feature_names_in_"}


class ReadableFit(BaseEstimator):
    """An estimator that shows what was released once it is fitted, and as any scikit-learn estimator before."""

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return fitted_text(self, super().__repr__(N_CHAR_MAX))

    def _repr_html_(self) -> str:
        return fitted_html(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        # scikit-learn has one of its own, which notebooks prefer to _repr_html_
        return {"text/plain": repr(self), "text/html": fitted_html(self)}


def fitted_text(model: BaseEstimator, parameters: str) -> str:
    """The parameters, and below them what holds and what was released.

    Parameters
    ----------
    model : estimator
        With ``guarantee_`` and ``plan_`` once it is fitted.
    parameters : str
        How scikit-learn shows the model.
    """
    guarantee = getattr(model, "guarantee_", None)
    if guarantee is None:
        return parameters
    lines = [parameters]
    for name, values in results(model):
        flat = values.ravel()
        shown = ", ".join(number(v) if is_number(v) else str(v) for v in flat[:_AT_A_PROMPT].tolist())
        more = f", ... ({flat.size:,} entries)" if flat.size > _AT_A_PROMPT else ""
        lines.append(f"  {name}: {shown}{more}")
    return "\n".join([*lines, f"  guarantee_: {guarantee.text}"])


def fitted_html(model: BaseEstimator) -> str:
    """A card with the guarantee, the released arrays, the parameters and the plan; unfitted: scikit-learn's diagram."""
    guarantee = getattr(model, "guarantee_", None)
    if guarantee is None:
        return str(estimator_html_repr(model))
    columns = getattr(model, "feature_names_in_", ())
    noise = getattr(model, "noise_std_", {})
    classes = getattr(model, "classes_", ())
    pictures = [released(name, v, columns, classes, noise.get(name)) for name, v in results(model)]
    defaults = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    changed = [(name, repr(value)) for name, value in given.items() if repr(value) != repr(defaults.get(name))]
    sure = (
        [details("How sure it is: standard errors and intervals", model.summary().table())] if _is_sure(model) else []
    )
    return card(
        type(model).__name__,
        guarantee.summary_html(),
        *pictures,
        *sure,
        details("Parameters that are not at their defaults", facts(changed, "Parameters")),
        details("Plan: what was released, with which noise", records(model.plan_.describe(), "Plan")),
    )


def _is_sure(model: Any) -> bool:
    return hasattr(model, "standard_errors_")


def results(model: BaseEstimator) -> Iterator[tuple[str, NDArray[Any]]]:
    """The fitted attributes that hold released numbers, by name."""
    for name, value in vars(model).items():
        if name.endswith("_") and not name.startswith(("_", "n_")) and name not in _NOT_RESULTS:
            array = value if isinstance(value, np.ndarray) else np.asarray(value) if is_number(value) else None
            if array is not None:
                yield name, array


def released(
    name: str,
    values: NDArray[Any],
    columns: Sequence[str] = (),
    rows: Sequence[Any] = (),
    noise_std: float | None = None,
) -> Markup:
    """Pictures of a released array: its entries, or the largest of them and how all are distributed.

    Parameters
    ----------
    name : str
    values : array
        Of any shape. Entries that are not finite are listed but not drawn.
    columns, rows : sequence, optional
        Names along the last and along the first axis, used where their number fits.
    noise_std : float, optional
        Standard deviation of the noise of one entry, drawn as whiskers of twice its size. Only for arrays that were
        released as they are: iterates of a solver carry noise of many rounds, whose size nobody knows.
    """
    flat = np.ravel(values)
    if flat.size == 0:
        return facts([(name, "no entries")], f"Released: {name}")
    if flat.dtype.kind not in "fiub":
        shown = [(_entry(i, values.shape, columns, rows), v) for i, v in enumerate(flat[:LARGEST].tolist())]
        return table(["entry", "value"], shown, f"Released: {name} (the first {len(shown)} of {flat.size:,})")
    flat = flat.astype(np.float64)
    if flat.size == 1:
        error = [] if noise_std is None else [("standard deviation of its noise", noise_std)]
        return facts([(name, float(flat[0])), *error], f"Released: {name}")
    whole = _matrix(name, flat.reshape(values.shape)) if values.ndim == 2 else ""
    return Markup(whole + _largest(name, values.shape, flat, columns, rows, noise_std) + _spread(name, flat))


def _matrix(name: str, values: NDArray[np.float64]) -> str:
    """All entries of a matrix at once, where they are too many to be listed and few enough to be seen."""
    n_rows, n_columns = values.shape
    if values.size <= LARGEST or not 2 <= n_rows <= _MOST_TILES or not 2 <= n_columns <= _MOST_TILES:
        return ""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return ""
    caption = f"All entries of {name}, as released: rows from the top, the deeper coloured the larger in size."
    ends = [("largest", finite.max()), ("smallest", finite.min()), ("median size", np.median(np.abs(finite)))]
    data = table(["entry", "value"], [(end, float(value)) for end, value in ends], caption)
    title = f"Map of the {n_rows} x {n_columns} entries of {name}"
    return figure(
        lambda width: tiles(values, title=title, description=caption, width=width), caption, data, "Show its range"
    )


def _largest(
    name: str,
    shape: tuple[int, ...],
    flat: NDArray[np.float64],
    columns: Sequence[str],
    rows: Sequence[Any],
    noise_std: float | None,
) -> Markup:
    if flat.size > LARGEST:
        size = np.where(np.isfinite(flat), np.abs(flat), np.inf)
        chosen = np.argsort(-size, kind="stable")[:LARGEST]
        what = f"the {LARGEST} largest of {flat.size:,} entries of {name}"
    else:
        chosen, what = np.arange(flat.size), f"the {flat.size} entries of {name}"
    labels = [_entry(int(i), shape, columns, rows) for i in chosen]
    shown = flat[chosen].tolist()
    first = max(zip(labels, shown, strict=True), key=lambda pair: abs(pair[1]) if np.isfinite(pair[1]) else -1.0)
    description = f"The largest in size is {first[0]} with {number(first[1], 3)}."
    caption = f"{what[0].upper()}{what[1:]}, as released{'' if len(columns) else ' (numbered from 0)'}."
    if noise_std is not None:
        caption += f" Whiskers: twice the standard deviation of the noise ({number(noise_std, 3)}) to both sides."
    data = table(["entry", "value"], list(zip(labels, shown, strict=True)), caption)
    return figure(
        lambda width: bars(
            labels,
            shown,
            title=f"Bar chart: {what}",
            description=description,
            width=width,
            whisker=None if noise_std is None else 2 * noise_std,
        ),
        caption,
        data,
    )


def _spread(name: str, flat: NDArray[np.float64]) -> str:
    if flat.size <= LARGEST:
        return ""
    finite = flat[np.isfinite(flat)]
    counts, edges = binned(finite, 40)
    zeros = int(np.count_nonzero(flat == 0))
    caption = f"All {flat.size:,} entries of {name}"
    caption += f", {zeros:,} of them zero" * (zeros > 0)
    caption += f", {flat.size - finite.size:,} of them not finite and not drawn" * (finite.size < flat.size) + "."
    data = table(
        ["from", "to", "entries"],
        [(float(a), float(b), int(c)) for a, b, c in zip(edges[:-1], edges[1:], counts, strict=True) if c],
        caption,
    )
    title = f"Histogram: all {flat.size:,} entries of {name}"
    return figure(lambda width: histogram(finite, title=title, description=caption, width=width), caption, data)


def _entry(i: int, shape: tuple[int, ...], columns: Sequence[str], rows: Sequence[Any]) -> str:
    """Name of an entry: its column's name, or its index; the row in front where there are several."""
    index = [int(k) for k in np.unravel_index(i, shape)]
    last = str(columns[index[-1]]) if len(columns) == shape[-1] else str(index[-1])
    before = [str(k) for k, length in zip(index[:-1], shape[:-1], strict=True) if length > 1]
    if before and len(rows) == shape[0] > 1:
        before[0] = str(rows[index[0]])
    elif len(shape) == 1 and len(rows) == shape[0] != len(columns):
        last = str(rows[index[0]])
    return ", ".join([*before, last])
