"""Pictures: what is drawn are the numbers of the Parquet file, and no legend lies on them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow.parquet as parquet
import pytest

from dpdist import local
from dpdist.figures import drawing
from dpdist.figures.bounds import BOUNDS
from dpdist.figures.drawing import covers_data, picture
from dpdist.figures.figure_file import load_figure
from dpdist.figures.run_figure import run_figure
from dpdist.problems.catalog import PROBLEMS
from dpdist.solvers.subspaces import chance_error

SVG = "{http://www.w3.org/2000/svg}"
FIGURE = """\
title: A test
metric: error
real: {name: Something, get: nowhere}
job:
  estimator: local.SparseRegression
  method: nldp-marginal
  data: {generate: hard-instance}
  params: {n_nonzero: 2, design: sign, label_bound: 1.0, radius: 0.5}
  budget: {epsilon: 1.0}
series:
  - {label: one coordinate}
  - {label: vector, set: {params.method.reports: vector}}
panels:
  - title: users
    x: data.n
    values: [500, 1000, 4000]
    bounds: [{label: rate, of: one-report}, {label: b, of: labels}]
  - {title: privacy, x: data.d, values: [8, 16], lines: {key: budget.epsilon, values: [0.5, 2.0]}}
presets:
  quick: {seeds: 3, set: {data.n: 2000, data.d: 8, data.n_nonzero: 2}}
  full: {seeds: 3, set: {data.n: 2000, data.d: 8, data.n_nonzero: 2}}
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    place = tmp_path_factory.mktemp("drawn")
    (place / "small.yaml").write_text(FIGURE)
    figure = load_figure(place / "small.yaml")
    record = run_figure(figure, place)
    return figure, record, parquet.read_table(record["files"]["parquet"]).to_pylist()


def points(root: ElementTree.Element, name: str) -> np.ndarray:
    """Of the first path of an element, in points from the lower left corner."""
    found = root.find(f".//*[@id='{name}']")
    assert found is not None, name
    path = found.find(f".//{SVG}path")
    assert path is not None
    numbers = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
    height = float(root.get("viewBox", "").split()[3])
    return np.array(numbers).reshape(-1, 2) * [1, -1] + [0, height]


def test_the_points_of_the_picture_are_the_numbers(drawn: Any) -> None:
    figure, record, rows = drawn
    root = ElementTree.parse(record["files"]["svg"]).getroot()
    with matplotlib.rc_context(drawing._STYLE):
        canvas = picture(figure, rows)
    expected: dict[str, dict[float, list[float]]] = {}
    lines = ["budget.epsilon=0.5", "budget.epsilon=2.0"]
    bounds = ["rate", "b"]
    for row in rows:
        panel = [panel.name for panel in figure.panels].index(row["panel"])
        if row["bound"]:
            name = f"{panel}-bound-{bounds.index(row['series'])}"
        else:
            line = lines.index(row["line"]) if row["line"] else 0
            name = f"{panel}-{figure.series.index(row['series'])}-{line}"
        expected.setdefault(name, {}).setdefault(row["x"], []).append(row["error"])
    assert sorted(expected) == ["0-0-0", "0-1-0", "0-bound-0", "0-bound-1", "1-0-0", "1-0-1", "1-1-0", "1-1-1"]
    for name, at in expected.items():
        axes = canvas.axes[int(name[0])]
        numbers = [(x, np.median(errors)) for x, errors in sorted(at.items())]
        places = axes.transData.transform(numbers) * 72 / canvas.dpi
        np.testing.assert_allclose(points(root, name), places, atol=1e-4, err_msg=name)
    curves = [line for axes in canvas.axes for line in axes.lines if line.get_gid()]
    assert len(curves) == len(expected), "no line that has no numbers"


def test_bounds_are_those_of_the_jobs(drawn: Any) -> None:
    from dpdist.privacy.audit.lower_bounds import sparse_regression_rates

    rows = [row for row in drawn[2] if row["bound"] == "one-report"]
    assert [row["x"] for row in rows] == [500, 1000, 4000]
    for row in rows:
        assert row["error"] == sparse_regression_rates(int(row["x"]), 8, 2, 1.0)["one-report"]
    assert not [row for row in drawn[1]["rows"] if row["series"] == "rate"], "no curves among what runs returned"


def test_what_the_plan_of_principal_components_foresees_is_that_of_the_true_gap() -> None:
    """The published setting has a gap of 1/400 and is foreseen to be at chance."""
    published = load_figure("exp-6.1-low-synth").cells[-1].job
    assert BOUNDS["planned-subspace"](published) == chance_error(40, 5)
    easy = load_figure("exp-6.1-low-real").cells[0].job
    truth = PROBLEMS["factor-rows"].generate({**easy.data, "n": 10}).truth
    gap = float(np.subtract(*np.linalg.eigvalsh(truth)[:-3:-1]))
    model = local.PCA(1, row_norm=1.0, epsilon=easy.epsilon, gap=gap)
    foreseen = model.outlook(easy.data["n"], easy.data["d"]).predicted_error
    assert BOUNDS["planned-subspace"](easy) == pytest.approx(foreseen, rel=1e-9)


def test_the_caption_says_what_holds(drawn: Any) -> None:
    figure, record, rows = drawn
    small = drawing._small_print(figure, [row for row in rows if not row["bound"]])
    for words in (
        "(a) n 500 to 4k, d 8; (b) n 2k, d 8 to 16",
        "error: distance of the coefficients from the truth (l2 norm)",
        "epsilon 0.5, 1, 2; delta 0",
        "seeds 0 to 2 (median; band: best and worst)",
        "preset quick",
        "not Something itself, but generated rows like it stand in",
    ):
        assert words in small, small
    text = Path(record["files"]["svg"]).read_text()
    assert "stand in" in text, "a comment of the SVG says what its outlines spell"


def test_the_legend_of_the_figure_fits(drawn: Any) -> None:
    figure, _, rows = drawn
    names = [f"a method with a name that is long, number {k}" for k in range(7)]
    wide = replace(figure, series=(*figure.series, *names))
    with matplotlib.rc_context(drawing._STYLE):
        canvas = picture(wide, rows)
        canvas.set_dpi(200)  # as the PNG is
        canvas.canvas.draw()
    (legend,) = canvas.legends
    inside, panels = legend.get_window_extent(), [axes.get_tightbbox() for axes in canvas.axes]
    assert canvas.bbox.x0 <= inside.x0 and inside.x1 <= canvas.bbox.x1
    assert all(panel.y0 >= inside.y1 for panel in panels), "and is below the panels"


def test_numbers_below_a_panel_do_not_run_into_each_other(drawn: Any) -> None:
    figure, _, rows = drawn
    crowded = [{**row, "x": row["x"] * share} for row in rows for share in (1.0, 1.02, 1.3)]
    with matplotlib.rc_context(drawing._STYLE):
        canvas = picture(figure, crowded)
    for axes in canvas.axes:
        shown = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_visible()]
        assert len(shown) > 1 and all(one.x1 < other.x0 for one, other in pairwise(shown))
        assert len(shown) < len(axes.get_xticks())


@pytest.mark.parametrize("crowd", [0, 1, 2])
def test_no_legend_lies_on_a_curve(crowd: int) -> None:
    """One curve in a corner; curves all over the panel; wide bands."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    canvas = Canvas(figsize=(3, 2.5))
    FigureCanvasAgg(canvas).draw()
    axes = canvas.subplots()
    rng = np.random.default_rng(crowd)
    if crowd == 2:
        axes.fill_between([0, 1], [0.0, 0.0], [1.0, 1.0])
    for _ in range(1 + 30 * (crowd == 1)):
        axes.plot(np.linspace(0, 1, 9), rng.random(9) if crowd else np.linspace(0.5, 1, 9))
    if crowd == 1:
        axes.set_yscale("log")
    handles = [Line2D([], [], label=f"epsilon = {k}") for k in range(4)]
    if crowd == 1:
        assert covers_data(axes, axes.legend(handles=handles, loc="center")), "the control"
    drawing._place_legend(axes, handles)
    assert not covers_data(axes, axes.get_legend())
    # in another way: no point of a curve between its corners is inside
    box, share = axes.get_legend().get_window_extent(), np.linspace(0, 1, 50)[:, None]
    for line in axes.lines:
        corners = axes.transData.transform(line.get_xydata())
        for one, other in pairwise(corners):
            assert not any(box.contains(*point) for point in one + share * (other - one))
    for band in axes.collections:
        assert box.y0 > axes.transData.transform((0, 1))[1] or not band


def test_a_panel_that_has_no_place_for_a_legend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "covers_data", lambda *_: True)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas()
    FigureCanvasAgg(canvas)
    with pytest.raises(drawing.DpdistError, match="no place for a legend"):
        drawing._place_legend(canvas.subplots(), [])
