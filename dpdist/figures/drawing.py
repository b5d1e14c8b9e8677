"""A figure's numbers as a picture, by matplotlib: panels side by side, bands over the seeds, fit for print."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from typing import Any

import numpy as np

from dpdist.errors import DpdistError
from dpdist.figures.figure import ALONG, AXES, METRICS, Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#6A3D9A", "#000000")
"""Told apart by the colour-blind as well (Okabe and Ito 2008), the light yellow left out."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES: Any = ("-", "--", ":", "-.")
_BOUND_STYLES: Any = ((0, (6, 2, 1, 2)), (0, (1, 1)), (0, (8, 3)))
GREY, PALE, DARK = "#666666", "#999999", "#222222"
_PLACES = ("upper right", "upper left", "lower left", "lower right", "upper center", "lower center", "center right")
_CLEAR = 0.04
"""Inches between a legend and what is drawn: half a marker and a little."""
_FEW_DECADES = 100.0
_MOST_WIDTH = 0.92
"""Of the picture, for its legend: letters are a little wider at other resolutions."""
_MOST_ROOM = 20
"""Times that a panel is made a tenth higher for a legend."""
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

    with matplotlib.rc_context(_STYLE):
        canvas = picture(figure, rows)
        canvas.savefig(svg, metadata={"Date": None})
        canvas.savefig(png, dpi=200)


def picture(figure: Figure, rows: Sequence[dict[str, Any]]) -> Any:
    """The picture as matplotlib's figure. A curve is the element ``panel-series-line`` of the SVG, by their numbers."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    count = len(figure.panels)
    size = (max(_WIDTH * count + 0.5, 4.6), _HEIGHT + 1.2)
    canvas = Canvas(figsize=size, layout="constrained")
    agg = FigureCanvasAgg(canvas)
    all_axes = canvas.subplots(1, count, squeeze=False)[0]
    keys = [
        (axes, _draw_panel(figure, index, axes, [row for row in rows if row["panel"] == panel.name]))
        for index, (panel, axes) in enumerate(zip(figure.panels, all_axes, strict=True))
    ]
    all_axes[0].set_ylabel(METRICS[figure.metric])
    handles = [
        Line2D([], [], color=_colour(i), marker=MARKERS[i % len(MARKERS)], label=label)
        for i, label in enumerate(figure.series)
    ]
    handles += [
        Line2D([], [], color=GREY, linestyle=_BOUND_STYLES[i % len(_BOUND_STYLES)], label=label)
        for i, label in enumerate(_bound_labels(figure))
    ]
    runs = [row for row in rows if not row["bound"]]
    if any(row["trivial_error"] is not None for row in runs):
        handles.append(Line2D([], [], color=PALE, linewidth=1, label="ignoring the data"))
    if any((row["nonprivate_error"] or 0) > 0 for row in runs):
        handles.append(Line2D([], [], color=DARK, linewidth=0.8, label="without privacy"))
    small = textwrap.fill(_small_print(figure, runs), int(size[0] * 19))
    for columns in range(len(handles), 0, -1):  # as many as fit
        legend = canvas.legend(handles=handles, loc="outside lower center", ncols=columns, title=small)
        legend.get_title().set(fontsize=6.5, color=GREY, ha="center", multialignment="center")
        if legend.get_window_extent().width <= _MOST_WIDTH * canvas.bbox.width:
            break
        legend.remove()
    canvas.suptitle(figure.title, fontsize=10)
    agg.draw()  # now everything has its place, and legends can be put where nothing else is
    canvas.set_layout_engine("none")
    for axes in all_axes:
        _thin(axes)
    for axes, lines in keys:
        if lines:
            _place_legend(axes, lines)
    return canvas


def _draw_panel(figure: Figure, index: int, axes: Any, rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Draw one panel; what its own legend has to explain."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

    panel = figure.panels[index]
    runs, bounds = ([row for row in rows if bool(row["bound"]) is drawn] for drawn in (False, True))
    lines = list(dict.fromkeys(row["line"] for row in runs))
    for number, series in enumerate(figure.series):
        for line in lines:
            chosen = [row for row in runs if row["series"] == series and row["line"] == line]
            if not chosen:
                continue
            x, middle, low, high = _over_seeds(chosen, "error")
            style = STYLES[lines.index(line) % len(STYLES)]
            marker = MARKERS[number % len(MARKERS)]
            # a method that releases nothing on its way is one point
            every = max(1, len(x) // 6) if panel.x in ALONG else 1
            (curve,) = axes.plot(x, middle, style, color=_colour(number), marker=marker, markevery=every)
            curve.set_gid(f"{index}-{number}-{lines.index(line)}")
            axes.fill_between(x, low, high, color=_colour(number), alpha=0.15, linewidth=0)
    for number, label in enumerate(_bound_labels(figure)):
        chosen = [row for row in bounds if row["series"] == label]
        if chosen:
            x, middle, _, _ = _over_seeds(chosen, "error")
            style = _BOUND_STYLES[number % len(_BOUND_STYLES)]
            (curve,) = axes.plot(x, middle, linestyle=style, color=GREY, linewidth=1)
            curve.set_gid(f"{index}-bound-{number}")
    for line in lines:
        chosen = [row for row in runs if row["line"] == line]
        style = STYLES[lines.index(line) % len(STYLES)]
        for kind, colour in (("trivial_error", PALE), ("nonprivate_error", DARK)):
            if chosen[0][kind] is None:
                continue
            x, middle, _, _ = _over_seeds(chosen, kind)
            if max(middle) > 0 and panel.x in ALONG:  # the same all along a run
                axes.axhline(np.median(middle), linestyle=style, color=colour, linewidth=0.8, zorder=1)
            elif max(middle) > 0:
                axes.plot(x, middle, style, color=colour, linewidth=0.8, zorder=1)
    drawn = [row[kind] for row in rows for kind in ("error", "trivial_error") if row[kind] is not None]
    if is_wide(drawn):
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high < _FEW_DECADES * low:  # where powers of ten alone would be few
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(lambda value, _: _plain(value))
            axes.yaxis.set_minor_formatter(NullFormatter())
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
    if lines == [""]:
        return []
    name = AXES.get(panel.line or "", panel.line or "")
    return [
        Line2D([], [], color=GREY, linestyle=STYLES[i % len(STYLES)], label=f"{name} = {_short(line)}")
        for i, line in enumerate(lines)
    ]


def _bound_labels(figure: Figure) -> list[str]:
    return list(dict.fromkeys(label for panel in figure.panels for label, _ in panel.bounds))


def _thin(axes: Any) -> None:
    """Leave out numbers below a panel that would run into those before them."""
    end = -math.inf
    for label in axes.get_xticklabels():
        box = label.get_window_extent()
        if label.get_text() and box.x0 < end:
            label.set_visible(False)
        elif label.get_text():
            end = box.x1 + axes.figure.dpi * _CLEAR


def _place_legend(axes: Any, handles: Sequence[Any]) -> None:
    """Put a legend where no curve and no band is; where there is no such place, make room above them."""
    for _ in range(_MOST_ROOM):
        for place in _PLACES:
            legend = axes.legend(handles=handles, loc=place)
            if not covers_data(axes, legend):
                return
        higher = axes.transAxes.transform((0, 1.1))
        axes.set_ylim(top=axes.transData.inverted().transform(higher)[1])
    raise DpdistError("no place for a legend was found that lies on no curve; take fewer lines in a panel")


def covers_data(axes: Any, legend: Any) -> bool:
    """Whether a legend lies on a curve, on a marker or on a band of a panel, as they are drawn."""
    box = legend.get_window_extent().padded(axes.figure.dpi * _CLEAR)
    paths = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
    paths += [band.get_transform().transform_path(path) for band in axes.collections for path in band.get_paths()]
    return any(path.intersects_bbox(box, filled=False) or box.contains(*path.vertices[0]) for path in paths)


def _over_seeds(rows: Sequence[dict[str, Any]], key: str) -> tuple[Any, Any, Any, Any]:
    """Positions, and median, least and largest value over the seeds at each."""
    at: dict[float, list[float]] = {}
    for row in rows:
        at.setdefault(row["x"], []).append(row[key])
    x = sorted(at)
    middle, low, high = (np.array([of(at[each]) for each in x]) for of in (np.median, np.min, np.max))
    return np.array(x), middle, low, high


def _small_print(figure: Figure, rows: Sequence[dict[str, Any]]) -> str:
    """What holds for the runs: sizes, the error, the true epsilon and delta, how they were accounted, and the seeds."""
    epsilons, deltas = (sorted({_rounded_up(row[key]) for row in rows}, key=float) for key in ("epsilon", "delta"))
    accountants = sorted({row["accountant"] for row in rows})
    seeds = "seed 0" if figure.n_seeds == 1 else f"seeds 0 to {figure.n_seeds - 1} (median; band: best and worst)"
    exact = "; without privacy the gap is 0" if figure.metric == "gap" else ""
    here = {panel.name: [row for row in rows if row["panel"] == panel.name] for panel in figure.panels}
    sizes = _by_panel({name: f"n {_span(some, 'n')}, d {_span(some, 'd')}" for name, some in here.items()})
    errors = _by_panel({name: ", ".join(sorted({row["what"] for row in some})) for name, some in here.items()})
    return (
        f"{sizes}; {METRICS[figure.metric]}: {errors}; epsilon {', '.join(epsilons)}; delta {_some(deltas)}; accounted "
        f"by {', '.join(accountants)}; {seeds}; preset {figure.preset}; simulated noise; {_origin(figure, rows)}{exact}"
    )


def _origin(figure: Figure, rows: Sequence[dict[str, Any]]) -> str:
    """Where the rows come from, and what they stand in for."""
    stored = any(row["table"] for row in rows)
    if figure.real is None:
        return "stored public rows" if stored else "generated rows"
    name = figure.real.name
    return f"rows of {name}" if stored else f"not {name} itself, but generated rows like it stand in"


def _by_panel(texts: Mapping[str, str]) -> str:
    """One text if it is the same for all panels, else those that are alike together, with the letters of the panels."""
    alike: dict[str, list[str]] = {}
    for name, text in texts.items():
        alike.setdefault(text, []).append(name.partition(" ")[0])
    if len(alike) == 1:
        return next(iter(alike))
    return "; ".join(f"{' '.join(names)} {text}" for text, names in alike.items())


def _span(rows: Sequence[dict[str, Any]], key: str) -> str:
    """The least and the largest of some whole numbers.

    Examples
    --------
    >>> _span([{"n": 5000}, {"n": 20_000}], "n"), _span([{"n": 54}], "n")
    ('5k to 20k', '54')
    """
    values = sorted({row[key] for row in rows})
    return _plain(values[0]) if len(values) == 1 else f"{_plain(values[0])} to {_plain(values[-1])}"


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
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(float(value)))):g}"


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
