"""Small charts as strings of SVG: bars, lines, dots on a common scale, a histogram, a share of a limit, a matrix.

A chart has a fixed width in pixels and text of a fixed size; `figure` draws it twice, for wide and for narrow pages,
and style sheets show one of them (`dpdist.html.STYLE`, which also has the colours, for light and dark). Every chart is
one picture for assistive technology, with a name and a description; `figure` adds its data as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpdist.html import Markup, details, escape, number, percent

WIDE, NARROW = 820, 330
_ROW = 22
_CHARACTER = 7.3
"""Mean advance of a character at 12 px; labels are shortened by it because a string cannot be measured here."""
LARGEST = 40
"""Entries of a long array that are shown one by one."""


_HUGE = 1e300
"""Sizes are drawn up to here and down to its inverse, so that no difference or ratio overflows."""


def _drawable(value: float, log: bool) -> float:
    return min(max(value, 1 / _HUGE if log else -_HUGE), _HUGE)


def _room(value: float) -> float:
    """How far to look around a value that is alone."""
    return abs(value) if abs(value) > 1 / _HUGE else 1.0


@dataclass(frozen=True)
class Scale:
    """Where a value lies on the page: linear or logarithmic, from ``start`` to ``stop`` pixels."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float, stop: float, log: bool = False, zero: bool = False) -> Scale:
        """Cover all finite (positive, if ``log``) values; with ``zero`` also 0.

        Examples
        --------
        >>> Scale.over([2.0, 10.0], 0, 100, zero=True)(5.0)
        50.0
        >>> [number(t) for t in Scale.over([0.002, 4.0], 0, 100, log=True).ticks(5)]
        ['0.001', '0.01', '0.1', '1', '10']
        """
        usable = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = _drawable(min(usable), log), _drawable(max(usable), log)
        if log:
            # whole decades; values that lie together get a finer frame, for which ticks are at 1, 2 and 5
            if high / low >= 10:
                return cls(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high)), start, stop, log)
            return cls(low / 1.25, high * 1.25, start, stop, log)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low <= max(1e-9 * max(abs(low), abs(high)), 1 / _HUGE):
            low, high = low - _room(low) * (not zero), high + _room(high)
        return cls(low, high, start, stop)

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, count: int) -> list[float]:
        """About ``count`` round values on the scale."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            if self.high / self.low > 99.9:
                stride = -(-(last - first) // count)
                return [10.0**e for e in range(first, last + 1, stride) if self._holds(10.0**e)]
            inside = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5) if self._holds(m * 10.0**e)]
            return inside if len(inside) > 2 else Scale(self.low, self.high, 0, 1).ticks(count)
        rough = (self.high - self.low) / count
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough * 0.999)
        return [i * step for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]

    def _holds(self, value: float) -> bool:
        return self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)


@dataclass(frozen=True)
class Series:
    """One line or one kind of dots: a name for the legend and its values."""

    name: str
    values: Sequence[float]
    x: Sequence[float] = ()


def bars(
    labels: Sequence[str],
    values: Sequence[float],
    *,
    title: str,
    description: str,
    width: int = WIDE,
    whisker: float | Sequence[float] | None = None,
) -> Markup:
    """Horizontal bars from zero, with a whisker to both sides where that is given, one for all or one for each."""
    numbers = [number(v, 3) for v in values]
    left = _label_width(labels, width)
    right = width - _text_width(numbers) - 8
    reaches = list(whisker) if isinstance(whisker, Sequence) else [whisker or 0.0] * len(values)
    ends = [w for v, reach in zip(values, reaches, strict=True) for w in (v - reach, v + reach)]
    scale = Scale.over(ends, left, right, zero=True)
    bottom = 4 + _ROW * len(values)
    zero = scale(0.0)
    parts = [_axis_below(scale, 4, bottom, 3 if width < 500 else 6), _line(zero, 4, zero, bottom, "axis")]
    for i, (label, value, text) in enumerate(zip(labels, values, numbers, strict=True)):
        y = 4 + _ROW * i
        parts.append(_text(left - 8, y + 15, _shorten(label, left), "ink end"))
        parts.append(_text(width, y + 15, text, "end"))
        if not math.isfinite(value):
            continue
        x = min(zero, scale(value))
        kind = "fill-1" if value >= 0 else "fill-2"
        hover = f"<title>{escape(label)}: {text}</title>"
        size = f'width="{_px(abs(scale(value) - zero))}" height="14"'
        parts.append(f'<rect class="{kind}" x="{_px(x)}" y="{y + 4}" {size} rx="1.5">{hover}</rect>')
        if reaches[i] and math.isfinite(reaches[i]):
            a, b = _px(scale(value - reaches[i])), _px(scale(value + reaches[i]))
            parts.append(f'<path class="whisker" d="M{a} {y + 7}v8M{a} {y + 11}H{b}M{b} {y + 7}v8"/>')
    return _svg(width, bottom + 22, title, description, parts)


def lines(
    series: Sequence[Series],
    *,
    title: str,
    description: str,
    x_label: str,
    width: int = WIDE,
    log: bool = False,
) -> Markup:
    """Up to three curves over a common axis, told apart by colour and by the pattern of the line."""
    legend, top = _legend([(s.name, i) for i, s in enumerate(series)], width, _swatch)
    height = top + (230 if width >= 500 else 190)
    bottom = height - 40
    y = Scale.over([v for s in series for v in s.values], bottom, top + 8, log, zero=not log)
    marks = y.ticks(5)
    left = _text_width([number(t, 3) for t in marks]) + 10
    x = Scale.over([v for s in series for v in s.x], left, width - 10)
    parts = [legend]
    for tick in marks:
        parts.append(_line(left, y(tick), width - 10, y(tick), "grid"))
        parts.append(_text(left - 8, y(tick) + 4, number(tick, 3), "end"))
    parts.append(_axis_below(x, bottom, bottom, 4 if width < 500 else 8, whole=True))
    parts.append(_text((left + width - 10) / 2, height - 2, x_label, "middle"))
    for i, one in enumerate(series):
        drawn = [(a, b) for a, b in zip(one.x, one.values, strict=True) if math.isfinite(b) and (b > 0 or not log)]
        points = [(x(a), y(b)) for a, b in drawn]
        path = " ".join(f"{_px(a)},{_px(b)}" for a, b in points)
        parts.append(f'<polyline class="curve line-{i + 1}{" dashed" * (i % 2)}" points="{path}"/>')
        if len(points) <= 40:
            parts += [_dot(i, a, b) for a, b in points]
    return _svg(width, height, title, description, parts)


def dots(
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    title: str,
    description: str,
    width: int = WIDE,
    log: bool = True,
) -> Markup:
    """One row per label and one dot per series, joined by a line; the numbers too if there is one series."""
    legend, top = _legend([(s.name, i) for i, s in enumerate(series)], width, _dot)
    left = _label_width(labels, width)
    numbers = [number(v, 3) for v in series[0].values] if len(series) == 1 else []
    right = width - 14 - (_text_width(numbers) if numbers else 0)
    scale = Scale.over([v for s in series for v in s.values], left + 8, right, log, zero=not log)
    bottom = top + 4 + _ROW * len(labels)
    parts = [legend, _axis_below(scale, top + 4, bottom, 3 if width < 500 else 6)]
    for row, label in enumerate(labels):
        y = top + 15 + _ROW * row
        parts.append(_text(left - 8, y + 4, _shorten(label, left), "ink end"))
        if numbers:
            parts.append(_text(width, y + 4, numbers[row], "end"))
        placed = [
            (i, scale(s.values[row]))
            for i, s in enumerate(series)
            if math.isfinite(s.values[row]) and (s.values[row] > 0 or not log)
        ]
        if len(placed) > 1:
            parts.append(_line(min(p for _, p in placed), y, max(p for _, p in placed), y, "link"))
        parts += [_dot(i, p, y, f"{label}, {series[i].name}: {number(series[i].values[row], 3)}") for i, p in placed]
    return _svg(width, bottom + 22, title, description, parts)


def histogram(values: NDArray[np.float64], *, title: str, description: str, width: int = WIDE) -> Markup:
    """How the finite entries of a long array are distributed."""
    counts, edges = binned(values, 40 if width >= 500 else 24)
    height, top = (210 if width >= 500 else 180), 10
    bottom = height - 40
    y = Scale.over([float(counts.max(initial=1))], bottom, top, zero=True)
    marks = [t for t in y.ticks(4) if t == int(t)]
    left = _text_width([number(t) for t in marks]) + 10
    x = Scale(float(edges[0]), float(edges[-1]), left, width - 14)
    parts = []
    for tick in marks:
        parts.append(_line(left, y(tick), width - 14, y(tick), "grid"))
        parts.append(_text(left - 8, y(tick) + 4, number(tick), "end"))
    parts.append(_axis_below(x, bottom, bottom, 3 if width < 500 else 6))
    parts.append(_text((left + width) / 2, height - 2, "value of an entry", "middle"))
    for count, a, b in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if count:
            box = f'x="{_px(x(a) + 0.5)}" y="{_px(y(count))}" width="{_px(max(x(b) - x(a) - 1, 0.5))}"'
            hover = f"<title>{number(a, 3)} to {number(b, 3)}: {number(count)}</title>"
            parts.append(f'<rect class="fill-1" {box} height="{_px(bottom - y(count))}">{hover}</rect>')
    parts.append(_line(left, bottom, width - 14, bottom, "axis"))
    return _svg(width, height, title, description, parts)


def binned(values: NDArray[np.float64], bins: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Counts and edges of finite values; values that are all alike are one bin."""
    values = np.clip(values, -_HUGE, _HUGE)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), 1 / _HUGE):
        room = 0.1 * _room(low)
        return np.array([values.size]), np.array([low - room, high + room])
    return np.histogram(values, bins=bins, range=(low, high))


def shares(
    rows: Sequence[tuple[str, Sequence[float], float]],
    names: Sequence[str],
    *,
    title: str,
    description: str,
    width: int = WIDE,
) -> Markup:
    """Bars that fill up: for each label its parts and the whole; what no part takes is ``left``."""
    legend, top = _legend([*((n, i) for i, n in enumerate(names)), ("left", -1)], width, _box)
    parts = [legend]
    y = top + 4
    for label, amounts, whole in rows:
        parts.append(_text(0, y + 13, label, "ink"))
        parts.append(f'<rect class="fill-0" x="0" y="{y + 20}" width="{width}" height="18" rx="3"/>')
        start = 0.0
        for i, amount in enumerate(amounts):
            size = min(max(amount / whole if whole else 0.0, 0.0) * width, width - start)
            if size > 0:
                box = f'x="{_px(start)}" y="{y + 20}" width="{_px(size)}"'
                hover = f"<title>{escape(label)}, {escape(names[i])}: {number(amount)}</title>"
                parts.append(f'<rect class="fill-{i + 1}" {box} height="18" rx="3">{hover}</rect>')
            start += size
        y += 50
    return _svg(width, y, title, description, parts)


def tiles(matrix: NDArray[np.float64], *, title: str, description: str, width: int = WIDE) -> Markup:
    """A matrix as squares, the deeper coloured the larger in size, in one colour above 0 and another below.

    Entries that are not finite have no square.
    """
    n_rows, n_columns = matrix.shape
    side = min((width - 8) / n_columns, 24.0)
    sizes = np.abs(np.where(np.isfinite(matrix), matrix, 0.0))
    most = float(sizes.max()) or 1.0
    parts = [
        f'<rect class="axis" x="4" y="4" width="{_px(side * n_columns)}" height="{_px(side * n_rows)}" fill="none"/>'
    ]
    for i, j in zip(*np.nonzero(sizes), strict=True):
        kind, size = "fill-1" if matrix[i, j] > 0 else "fill-2", _px(side)
        place = f'x="{_px(4 + side * j)}" y="{_px(4 + side * i)}" width="{size}" height="{size}"'
        parts.append(f'<rect class="{kind}" {place} fill-opacity="{sizes[i, j] / most:.2f}"/>')
    return _svg(width, 8 + side * n_rows, title, description, parts)


def span(low: float, middle: float, high: float, *, title: str, description: str, width: int = WIDE) -> Markup:
    """An interval of probabilities on a scale from 0 to 100 %, and where it started."""
    x = Scale(0.0, 1.0, 60, width - 60)
    parts = [_text(x(middle), 14, "before: " + percent(middle), "middle")]
    parts.append(f'<rect class="fill-0" x="60" y="22" width="{width - 120}" height="18" rx="3"/>')
    parts.append(f'<rect class="fill-1" x="{_px(x(low))}" y="22" width="{_px(x(high) - x(low))}" height="18" rx="3"/>')
    parts.append(_line(x(middle), 19, x(middle), 43, "whisker"))
    parts += [_text(52, 36, "0 %", "end"), _text(width - 52, 36, "100 %")]
    parts.append(_text(x(low) - 2, 58, percent(low), "ink end"))
    parts.append(_text(x(high) + 2, 58, percent(high), "ink"))
    return _svg(width, 64, title, description, parts)


def figure(draw: Callable[[int], Markup], caption: str, data: str, summary: str = "Show the data as a table") -> Markup:
    """A chart for wide and for narrow pages (one is shown), its caption, and its data as a table."""
    return Markup(
        f'<figure><div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'
        f"<figcaption>{escape(caption)}</figcaption>{details(summary, data)}</figure>"
    )


def _svg(width: float, height: float, title: str, description: str, parts: Sequence[str]) -> Markup:
    # The name is an attribute and not a reference to an id: ids of several cells of a notebook would clash.
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {_px(width)} {_px(height)}"><title>{escape(title)}</title><desc>{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _axis_below(scale: Scale, top: float, bottom: float, count: int, whole: bool = False) -> str:
    """Ticks under the plot; grid lines go up to ``top``, or stand out as ticks where that is the bottom."""
    parts = []
    for tick in scale.ticks(count):
        if whole and tick != int(tick):
            continue
        at = scale(tick)
        stroke = (top, bottom, "grid") if top < bottom else (bottom, bottom + 5, "axis")
        parts.append(_line(at, stroke[0], at, stroke[1], stroke[2]))
        parts.append(_text(at, bottom + 18, number(tick, 3), "middle"))
    if top >= bottom:
        parts.append(_line(scale.start, bottom, scale.stop, bottom, "axis"))
    return "".join(parts)


def _legend(
    entries: Sequence[tuple[str, int]], width: float, mark: Callable[[int, float, float], str]
) -> tuple[str, float]:
    """Marks with names, wrapped to the width, and the height they take; nothing for one series."""
    if len(entries) == 1:
        return "", 0.0
    parts = []
    x, y = 0.0, 10.0
    for name, i in entries:
        needs = 26 + _CHARACTER * len(name) + 18
        if x and x + needs > width:
            x, y = 0.0, y + 20
        parts.append(mark(i, x + 9, y) + _text(x + 26, y + 4, name, "ink"))
        x += needs
    return "".join(parts), y + 16


def _swatch(i: int, x: float, y: float) -> str:
    return f'<path class="curve line-{i + 1}{" dashed" * (i % 2)}" d="M{_px(x - 9)} {_px(y)}h22"/>'


def _box(i: int, x: float, y: float) -> str:
    return f'<rect class="fill-{i + 1}" x="{_px(x - 7)}" y="{_px(y - 7)}" width="14" height="14" rx="3"/>'


def _dot(i: int, x: float, y: float, hover: str = "") -> str:
    """A circle, a square or a diamond: shapes stay apart without colour."""
    inside = f"<title>{escape(hover)}</title>" if hover else ""
    if i == 0:
        return f'<circle class="fill-1" cx="{_px(x)}" cy="{_px(y)}" r="4">{inside}</circle>'
    if i == 1:
        return f'<rect class="fill-2" x="{_px(x - 3.5)}" y="{_px(y - 3.5)}" width="7" height="7">{inside}</rect>'
    return f'<path class="fill-3" d="M{_px(x)} {_px(y - 5)}l5 5l-5 5l-5 -5z">{inside}</path>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_px(x1)}" y1="{_px(y1)}" x2="{_px(x2)}" y2="{_px(y2)}"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text{attribute} x="{_px(x)}" y="{_px(y)}">{escape(text)}</text>'


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text_width(texts: Sequence[str]) -> float:
    return _CHARACTER * max(map(len, texts), default=1)


def _label_width(labels: Sequence[str], width: float) -> float:
    return min(_text_width(labels) + 8, 0.38 * width)


def _shorten(label: str, width: float) -> str:
    room = max(round((width - 8) / _CHARACTER), 4)
    return label if len(label) <= room else label[: room - 1] + "\u2026"
