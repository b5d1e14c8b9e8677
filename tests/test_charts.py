"""Charts: valid pictures with names, true to their numbers, for numbers of any size."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from dpdist.charts import NARROW, WIDE, Scale, Series, bars, binned, dots, figure, histogram, lines, shares, span, tiles
from tests.test_html import EVIL, harmless

SVG = "{http://www.w3.org/2000/svg}"
VALUES = {
    "plain": [3.0, -1.0, 2.0, 0.5],
    "equal": [2.0, 2.0, 2.0, 2.0],
    "zero": [0.0, 0.0, 0.0, 0.0],
    "huge": [1.7e308, -1.7e308, 1.0, 0.0],
    "tiny": [5e-324, 1e-320, 0.0, -5e-324],
    "not finite": [math.nan, math.inf, -math.inf, 1.0],
    "nothing finite": [math.nan] * 4,
    "close": [1.0, 1.0 + 1e-15, 1.0 - 1e-15, 1.0],
    "far": [1e-12, 1e12, 1.0, 1e3],
}
X = [1.0, 2.0, 3.0, 4.0]
LABELS = ["a", "b" + EVIL, "a name that is far too long for the space beside a chart", ""]


def charts(values, width=WIDE):
    text = {"title": "name " + EVIL, "description": "said " + EVIL, "width": width}
    series = [Series("one", values, X), Series("two" + EVIL, values[::-1], X)]
    yield bars(LABELS, values, **text)
    yield bars(LABELS, values, whisker=0.5, **text)
    yield bars(LABELS, values, whisker=values, **text)
    yield lines(series, x_label="round", **text)
    yield lines(series, x_label="round", log=True, **text)
    yield dots(LABELS, series, **text)
    yield dots(LABELS, series[:1], log=False, **text)
    yield histogram(np.array([v for v in values if math.isfinite(v)]), **text)
    yield span(0.2, 0.5, 0.8, **text)
    yield tiles(np.stack([values, values[::-1]]), **text)
    yield shares([("epsilon" + EVIL, (1.0, 0.5), 3.0), ("delta", (0.0, 0.0), 0.0)], ["before", "now"], **text)


def numbers_in(root):
    for element in root.iter():
        for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "r"):
            if element.tag != SVG + "svg" and key in element.attrib:
                yield key, float(element.attrib[key])
        for pair in element.attrib.get("points", "").split():
            yield from zip(("x", "y"), map(float, pair.split(",")), strict=True)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_charts_are_valid_named_and_inside_their_frame(values, width):
    for chart in charts(values, width):
        harmless(chart)
        root = ElementTree.fromstring(chart)
        assert root.tag == SVG + "svg" and root.attrib["role"] == "img"
        assert root.attrib["aria-label"] == root.find(SVG + "title").text == "name " + EVIL
        assert root.find(SVG + "desc").text == "said " + EVIL
        frame = [float(v) for v in root.attrib["viewBox"].split()]
        assert frame[2] == width
        for key, value in numbers_in(root):
            assert math.isfinite(value)
            assert -10 <= value <= (frame[2] if key in ("x", "x1", "x2", "cx", "width") else frame[3]) + 10


def test_tiles_are_as_deep_as_their_entries_are_large():
    root = ElementTree.fromstring(tiles(np.array([[4.0, -2.0], [0.0, np.nan]]), title="t", description="d"))
    shown = [(r.attrib["class"], r.attrib.get("fill-opacity")) for r in root.iter(SVG + "rect")]
    assert shown == [("axis", None), ("fill-1", "1.00"), ("fill-2", "0.50")]


def test_bars_point_the_way_of_their_sign_and_are_as_long_as_their_value():
    root = ElementTree.fromstring(bars(["a", "b", "c"], [4.0, -2.0, 1.0], title="t", description="d"))
    boxes = [(float(r.attrib["x"]), float(r.attrib["width"])) for r in root.iter(SVG + "rect")]
    zero = boxes[0][0]
    assert boxes[1][0] + boxes[1][1] == pytest.approx(zero, abs=0.2) and boxes[2][0] == zero
    assert boxes[0][1] / boxes[2][1] == pytest.approx(4, rel=0.01) and boxes[0][1] / boxes[1][1] == pytest.approx(
        2, rel=0.01
    )


def test_whiskers_reach_as_far_as_said():
    root = ElementTree.fromstring(bars(["a"], [10.0], whisker=5.0, title="t", description="d"))
    box = next(root.iter(SVG + "rect"))
    zero, length = float(box.attrib["x"]), float(box.attrib["width"])
    path = next(p for p in root.iter(SVG + "path") if p.attrib["class"] == "whisker").attrib["d"]
    ends = float(path[1:].split()[0]), float(path.split("H")[1].split("M")[0])
    assert ends == pytest.approx((zero + length / 2, zero + 1.5 * length), abs=0.2)


def test_a_log_axis_puts_equal_ratios_at_equal_distances():
    scale = Scale.over([1.0, 1000.0], 0.0, 300.0, log=True)
    assert [scale(v) for v in (1, 10, 100, 1000)] == pytest.approx([0, 100, 200, 300])
    chart = lines([Series("s", [0.0, 1.0, 10.0], [1.0, 2.0, 3.0])], title="t", description="d", x_label="x", log=True)
    points = ElementTree.fromstring(chart).find(SVG + "polyline").attrib["points"].split()
    assert len(points) == 2  # zero has no place on it


@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_round_ordered_inside_and_neither_few_nor_many(log):
    rng = np.random.default_rng(0)
    for _ in range(300):
        low = 10.0 ** rng.uniform(-8, 8)
        high = low * (1 + 10.0 ** rng.uniform(-3, 6))
        scale = Scale.over([low, high], 0, 100, log)
        ticks = scale.ticks(5)
        assert 2 <= len(ticks) <= 12 and ticks == sorted(set(ticks))
        assert all(scale.low * (1 - 1e-6) <= t <= scale.high * (1 + 1e-6) for t in ticks)


def test_bins_hold_every_entry():
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=1000), np.full(10, 3.0), np.array([]), np.array([1.7e308, -1.7e308]), np.zeros(3)):
        counts, edges = binned(values, 20)
        assert counts.sum() == len(values) and len(edges) == len(counts) + 1 and np.isfinite(edges).all()
        assert edges[0] < edges[-1]


def test_shares_fill_up_to_the_whole_and_no_further():
    chart = shares([("e", (1.0, 1.0), 4.0), ("d", (3.0, 5.0), 4.0)], ["before", "now"], title="t", description="d")
    boxes = [r.attrib for r in ElementTree.fromstring(chart).iter(SVG + "rect") if r.attrib["height"] == "18"]
    sizes = [float(b["width"]) / WIDE for b in boxes]
    assert sizes == pytest.approx([1, 0.25, 0.25, 1, 0.75, 0.25], abs=1e-3)
    assert max(float(b["x"]) + float(b["width"]) for b in boxes) <= WIDE + 0.1


def test_a_figure_has_a_caption_a_table_and_both_widths():
    page = harmless(figure(lambda w: bars(["a"], [1.0], title="t", description="d", width=w), EVIL, "<table></table>"))
    assert [s["viewbox"].split()[2] for s in page.all("svg")] == [str(WIDE), str(NARROW)]
    assert EVIL in page.text and page.all("table") and page.all("summary")
