"""A figure's numbers as a picture, by matplotlib: panels side by side, bands over the seeds, fit for print."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context
from typing import Any

import numpy as np

from dpdist.errors import DpdistError
from dpdist.figures.figure import ALONG, AXES, METRICS, Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#6A3D9A", "#000000")
"""Told apart by the colour-blind as well (Okabe and Ito 2008), the light yellow left out."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES: Any = ("-", "--", ":", "-.")
GREY, PALE, DARK = "#666666", "#999999", "#222222"
_WIDTH, _HEIGHT = 3.1, 2.7  # inches of a panel
_STYLE: Any = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "svg.hashsalt": "dpdist",  # the same numbers make the same file
    "path.simplify": False,
}


def need_matplotlib() -> None:
    """Refuse early if the extra is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise DpdistError(
            "figures are drawn by matplotlib, which is not installed: pip install 'dpdist[figures]' (matplotlib>=3.8)"
        )


def draw(figure: Figure, rows: Sequence[dict[str, Any]], svg: str, png: str) -> None:
    """Write the picture of ``rows``, the numbers of a figure, as SVG and as PNG."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    with matplotlib.rc_context(_STYLE):
        count = len(figure.panels)
        size = (max(_WIDTH * count + 0.5, 4.6), _HEIGHT + 1.2)
        canvas = Canvas(figsize=size, layout="constrained")
        FigureCanvasAgg(canvas)
        all_axes = canvas.subplots(1, count, squeeze=False)[0]
        for index, (panel, axes) in enumerate(zip(figure.panels, all_axes, strict=True)):
            here = [row for row in rows if row["panel"] == panel.name]
            _draw_panel(figure, index, axes, here)
        all_axes[0].set_ylabel(METRICS[figure.metric])
        handles = [
            Line2D([], [], color=_colour(i), marker=MARKERS[i % len(MARKERS)], label=label)
            for i, label in enumerate(figure.series)
        ]
        handles.append(Line2D([], [], color=PALE, linewidth=1, label="ignoring the data"))
        if any(row["nonprivate_error"] > 0 for row in rows):
            handles.append(Line2D([], [], color=DARK, linewidth=0.8, label="without privacy"))
        columns = max(2, min(len(handles), int(size[0] / 1.25)))
        small = textwrap.fill(_small_print(figure, rows), int(size[0] * 19))
        legend = canvas.legend(handles=handles, loc="outside lower center", ncols=columns, title=small)
        legend.get_title().set(fontsize=6.5, color=GREY, ha="center", multialignment="center")
        canvas.suptitle(figure.title, fontsize=10)
        canvas.savefig(svg, metadata={"Date": None})
        canvas.savefig(png, dpi=200)


def _draw_panel(figure: Figure, index: int, axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, NullLocator

    panel = figure.panels[index]
    lines = list(dict.fromkeys(row["line"] for row in rows))
    for number, series in enumerate(figure.series):
        for line in lines:
            chosen = [row for row in rows if row["series"] == series and row["line"] == line]
            if not chosen:
                continue
            x, middle, low, high = _over_seeds(chosen, "error")
            style = STYLES[lines.index(line) % len(STYLES)]
            marker = MARKERS[number % len(MARKERS)]
            # a method that releases nothing on its way is one point
            every = max(1, len(x) // 6) if panel.x in ALONG else 1
            axes.plot(x, middle, style, color=_colour(number), marker=marker, markevery=every)
            axes.fill_between(x, low, high, color=_colour(number), alpha=0.15, linewidth=0)
    for line in lines:
        chosen = [row for row in rows if row["line"] == line]
        style = STYLES[lines.index(line) % len(STYLES)]
        for kind, colour in (("trivial_error", PALE), ("nonprivate_error", DARK)):
            x, middle, _, _ = _over_seeds(chosen, kind)
            if max(middle) > 0 and panel.x in ALONG:  # the same all along a run
                axes.axhline(np.median(middle), linestyle=style, color=colour, linewidth=0.8, zorder=1)
            elif max(middle) > 0:
                axes.plot(x, middle, style, color=colour, linewidth=0.8, zorder=1)
    drawn = [row[kind] for row in rows for kind in ("error", "trivial_error")]
    if is_wide(drawn):
        axes.set_yscale("log")
    positions = sorted({row["x"] for row in rows})
    if panel.x in ALONG:
        axes.set_xlim(left=0)
    else:
        if is_wide(positions):
            axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(positions))
        axes.xaxis.set_major_formatter(lambda value, _: _plain(value))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(ALONG.get(panel.x) or AXES.get(panel.x, panel.x))
    axes.set_title(panel.name)
    if lines != [""]:
        name = AXES.get(panel.line or "", panel.line or "")
        keys = [
            Line2D([], [], color=GREY, linestyle=STYLES[i % len(STYLES)], label=f"{name} = {_short(line)}")
            for i, line in enumerate(lines)
        ]
        axes.legend(handles=keys, loc="best")


def _over_seeds(rows: Sequence[dict[str, Any]], key: str) -> tuple[Any, Any, Any, Any]:
    """Positions, and median, least and largest value over the seeds at each."""
    at: dict[float, list[float]] = {}
    for row in rows:
        at.setdefault(row["x"], []).append(row[key])
    x = sorted(at)
    middle, low, high = (np.array([of(at[each]) for each in x]) for of in (np.median, np.min, np.max))
    return np.array(x), middle, low, high


def _small_print(figure: Figure, rows: Sequence[dict[str, Any]]) -> str:
    """What holds for the runs: the true epsilon and delta, how they were accounted, and the seeds."""
    epsilons, deltas = (sorted({_rounded_up(row[key]) for row in rows}, key=float) for key in ("epsilon", "delta"))
    accountants = sorted({row["accountant"] for row in rows})
    seeds = "seed 0" if figure.n_seeds == 1 else f"seeds 0 to {figure.n_seeds - 1} (median; band: best and worst)"
    exact = "; without privacy the gap is 0" if figure.metric == "gap" else ""
    return (
        f"epsilon {', '.join(epsilons)}; delta {_some(deltas)}; accounted by {', '.join(accountants)}; {seeds}; "
        f"preset {figure.preset}; simulated data and noise{exact}"
    )


def _some(words: Sequence[str]) -> str:
    return ", ".join(words) if len(words) <= 3 else f"{words[0]} to {words[-1]}"


def _short(line: str) -> str:
    value = line.partition("=")[2]
    try:
        return _plain(float(value))
    except ValueError:
        return value


def _plain(value: float) -> str:
    """A number as people write it: 0.2, 500, 100k.

    Examples
    --------
    >>> _plain(0.2), _plain(500.0), _plain(20_000.0), _plain(1e6)
    ('0.2', '500', '20k', '1M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and value % size == 0):
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _rounded_up(value: float) -> str:
    """Three digits, rounded up: the exact numbers are in the Parquet file.

    Examples
    --------
    >>> _rounded_up(0.99998), _rounded_up(0.2), _rounded_up(1e-4)
    ('1', '0.2', '0.0001')
    """
    return f"{Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(float(value))).normalize():g}"


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def is_wide(values: Sequence[float]) -> bool:
    """Whether numbers are better shown on a logarithmic axis: all positive, and more than a decade apart.

    Examples
    --------
    >>> is_wide([0.1, 1.0, 4.0]), is_wide([10, 20, 50]), is_wide([0.0, 100.0])
    (True, False, False)
    """
    finite = [v for v in values if math.isfinite(v)]
    return bool(finite) and min(finite) > 0 and max(finite) >= 10 * min(finite)
