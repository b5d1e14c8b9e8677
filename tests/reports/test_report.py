"""The report: complete, escaped, true to the released numbers, and readable in a real browser."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from dataclasses import asdict

import numpy as np
import pytest
from click.testing import CliRunner

from dpdist import LinearRegression, LogisticRegression
from dpdist.central import GradientDescent
from dpdist.cli.report import command
from dpdist.estimators.representation import fitted_html
from dpdist.html import number
from dpdist.reports import pictures
from dpdist.reports.report import render, write_report
from dpdist.runs.directory import OutputError
from tests.reports.browser import contrast, open_browser
from tests.runs.fitted_runs import arrays_of, fit, record, write
from tests.test_html import EVIL, harmless

SECTIONS = [
    "What was asked",
    "What was released",
    "What is guaranteed",
    "Budget before and after",
    "Convergence",
    "Noise against signal",
    "How good it is",
    "The plan",
    "Provenance",
]
SCHEMES = [(1200, False), (1200, True), (400, False), (400, True)]


@pytest.fixture(scope="module")
def fitted():
    return fit(LogisticRegression, classes=[0, 1], solver="gradient")


@pytest.fixture(scope="module")
def run(fitted):
    return record(*fitted)


@pytest.fixture(scope="module")
def arrays(fitted):
    return arrays_of(fitted[0])


@pytest.fixture(scope="module")
def sampled():
    model, dataset = fit(LogisticRegression, 2_000, 60, classes=[0, 1], rows="sample", random_state=0)
    return record(model, dataset), arrays_of(model)


def sections(page):
    return [title for title in SECTIONS if re.search(rf"<h2 [^>]*>{title}</h2>", page)]


# -- content ------------------------------------------------------------------------------------------------------


def test_a_report_says_everything(run, arrays):
    page = render(run, arrays)
    text = harmless(page).text
    assert sections(page) == SECTIONS
    assert run["guarantee"]["text"] in text and "right at most 73.2 % of the time" in text
    for value in arrays["coef"].ravel():
        assert number(float(value)) in text
    assert number(float(arrays["intercept"].item())) in text
    for said in ("1.5 of 3 spent", "excess log-loss", "generated: logit", run["dataset"]["id"], "random_state: 0"):
        assert said in text
    assert all(version in text for version in run["environment"].values())
    assert "Simulation" not in text and "Not finished" not in text


def test_what_a_record_lacks_leaves_out_its_section(run, arrays):
    without_history = {k: v for k, v in arrays.items() if k != "history"}
    assert "Convergence" not in sections(render(run, without_history))
    assert "How good it is" not in sections(render({**run, "metrics": None}, arrays))
    no_limit = render({**run, "budget": {**run["budget"], "limit": None}}, arrays)
    assert "No limit is set" in no_limit and "Budget before and after" in sections(no_limit)
    memory = {"ledger": None, "before": {"epsilon": 0, "delta": 0}, "after": {"epsilon": 1, "delta": 0}, "limit": None}
    assert "Ledger:" not in render({**run, "budget": memory}, arrays)
    private = {**run["dataset"], "n_rows": None, "arrays": {"X": {"dtype": "float64", "shape": [None, 12]}}}
    text = harmless(render({**run, "dataset": private}, arrays)).text
    assert "a private number of rows" in text and "private x 12" in text and "20,000 rows" not in text


@pytest.mark.parametrize("key", ["asked", "dataset", "guarantee", "plan", "releases", "metrics", "budget", "released"])
def test_every_part_of_a_record_may_be_absent(run, arrays, key):
    harmless(render({k: v for k, v in run.items() if k != key}, arrays))
    harmless(render({**run, key: None}, arrays))


def test_intervals_are_a_picture_and_a_table_or_a_reason():
    row = {
        "name": "age " + EVIL,
        "coefficient": 2.0,
        "standard_error": 0.5,
        "z": 4.0,
        "p": 6e-5,
        "low": 1.0,
        "high": 3.0,
    }
    other = {**row, "name": "dose", "coefficient": -0.5, "low": -1.5, "high": 0.5, "noise_share": None, "z": None}
    found = {"level": 0.95, "rows": [{**row, "noise_share": 0.25}, other], "notes": ["rests on " + EVIL]}
    page = harmless(pictures.intervals(found)).text
    assert "1 of 2 intervals do not contain 0." in page and "25%" in page and "standard error" in page
    assert pictures.intervals(found).count('class="whisker"') == 2 + 2 + 0  # two rows, drawn twice
    assert "No standard errors: too few rows" in harmless(pictures.intervals({"none": "too few rows" + EVIL})).text
    assert pictures.intervals(None) == ""


def test_what_was_expected_stands_beside_what_was_stated_after_the_fit():
    model = LogisticRegression(classes=[0, 1], row_norm=1.0, epsilon=0.02, delta=1e-6)
    outlook = asdict(model.outlook(200, 30))
    page = pictures.expected(outlook, 0.25)
    assert f"{outlook['low']:.2g} to " in page and outlook["unknown"] in page and "0.25" in page
    assert "Before the charge:" in page and f"n_rows &gt;= {outlook['n_needed']:,}" in page
    plain = asdict(LogisticRegression(**model.get_params() | {"rows": "sample", "epsilon": 8.0}).outlook(10**6, 3))
    assert "makes it wide" not in pictures.expected(plain, None) and "after it" not in pictures.expected(plain, None)
    assert not pictures.expected(None, None) and not pictures.expected({**outlook, "predicted_error": None}, 1.0)


def test_a_run_that_was_only_started_has_a_report():
    page = render({"format": "dpdist-run/1", "id": "dp-gd", "run_id": "a", "status": "started"}, {})
    assert "Not finished" in harmless(page).text and "released no arrays" in page


def test_a_simulation_is_announced(sampled):
    text = harmless(render(*sampled)).text
    assert "Simulation." in text and "NO guarantee" in text and "Nothing of this holds for a simulation" in text


@pytest.mark.parametrize(
    "released",
    [
        {"mean": np.float64(0.5)},
        {"counts": np.arange(30)},
        {"matrix": np.random.default_rng(0).normal(size=(20, 20))},
        {"support": np.array([3, 17, 4])},
        {"history": np.zeros((5, 2)), "quantiles": np.linspace(0, 1, 5)},
        {"history": np.zeros(7), "x": np.zeros(3)},
        {"labels": np.array(["a", "b"])},
        {"scale": np.array([np.inf])},
        {},
    ],
    ids=lambda r: " ".join(r) or "nothing",
)
def test_results_of_other_kinds_go_through_the_same_report(run, released):
    harmless(render(run, released))


def test_noise_of_a_direct_release_becomes_whiskers(run):
    described = {"mean": {"dtype": "float64", "shape": [3], "noise_std": 0.125}}
    page = render({**run, "released": {"path": None, "arrays": described}}, {"mean": np.arange(3.0)})
    assert 'class="whisker"' in page and "0.125" in page


def test_columns_and_classes_name_the_coefficients():
    model, dataset = fit(
        LogisticRegression, 2_000, 3, classes=[0, 1, 2], solver=GradientDescent(n_rounds=4), random_state=0
    )
    changed = record(model, dataset)
    changed["dataset"]["columns"] = {"X": ["age", "height", "weight"]}
    changed["asked"]["params"]["classes"] = ["red", "green", "blue"]
    page = render(changed, arrays_of(model))
    assert "green, weight" in harmless(page).text and "Single numbers" not in page
    # three problems of four rounds each are four rounds of one matrix
    assert "convergence over 4 released iterates" in page


# -- hostile and large --------------------------------------------------------------------------------------------


def poisoned(value, path=""):
    """Every text of a record, with markup in it; keys too where anybody may choose them."""
    if isinstance(value, dict):
        free = path in (".asked", ".asked.params", ".environment", ".dataset.columns")
        return {(k + EVIL if free else k): poisoned(v, f"{path}.{k}") for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, path) for v in value]
    keep = path in (".format", ".guarantee.relation")
    return value + EVIL if isinstance(value, str) and not keep else value


def test_nothing_in_a_record_can_become_markup(run, arrays):
    evil = poisoned({**run, "dataset": {**run["dataset"], "columns": {"X": ["c"] * 12}}})
    evil["dataset"]["columns"] = {"X": [f"c{i}{EVIL}" for i in range(12)]}
    page = render(evil, {**arrays, "more" + EVIL: np.arange(3.0), "one" + EVIL: np.float64(1)})
    parsed = harmless(page)
    assert parsed.text.count(EVIL) > 60
    assert "<script" not in page and "<img" not in page


def test_a_long_result_makes_a_small_file(run):
    rng = np.random.default_rng(0)
    long = {"coef": rng.normal(size=(1, 20_000)), "history": rng.normal(size=(400, 20_000))}
    releases = [{**run["releases"][1], "index": i} for i in range(5000)]
    page = render({**run, "releases": releases}, long)
    assert len(page) < 200_000
    largest = np.sort(np.abs(long["coef"].ravel()))[::-1]
    assert "The 40 largest of 20,000 entries" in page
    assert number(largest[39]) in page and f">{number(largest[40])}<" not in page


def test_nothing_is_loaded_from_elsewhere(run, arrays):
    page = render(run, arrays)
    addresses = set(re.findall(r"(?:https?:)?//[^\s\"'<)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|src=", page)


# -- numbers ------------------------------------------------------------------------------------------------------


def test_convergence_is_computed_from_the_released_iterates():
    rounds = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0], [3.0, 5.5]])
    cells = [float(v) for v in re.findall(r"<td class=.n.>(.*?)</td>", pictures.convergence(rounds))]
    assert cells[::2] == pytest.approx([6.265, 1.5, 0.5], abs=1e-3)  # distance to the last
    assert cells[1::2] == pytest.approx([5, 1, 0.5])  # length of the step
    assert pictures.convergence(rounds[:2]) == ""


def test_noise_is_shown_beside_the_size_of_the_release(run):
    page = harmless(pictures.noise(run["releases"]))
    gradients = [r for r in run["releases"] if r["name"] == "gradient"]
    assert "Line chart: noise against signal of" in str(page.all("svg")) and "smoothness" in page.text
    for release in gradients:
        assert number(release["rms"]) in page.text and number(release["noise_std"]) in page.text
    share = 100 * gradients[-1]["noise_std"] / gradients[-1]["rms"]
    assert f"the noise is {number(share, 2)} % of the size" in page.text
    assert pictures.noise([]) == "" and pictures.noise([{"name": "selection", "noise_std": None, "rms": 1.0}]) == ""


def test_metrics_show_the_private_the_plain_and_the_trivial_error(run):
    text = harmless(pictures.metrics(run["metrics"])).text
    assert all(said in text for said in ("0.0123", "0.0004", "0.31", "excess log-loss"))
    harmless(pictures.metrics({"error": 0.0, "nonprivate_error": 0.0, "trivial_error": 1.0, "what": EVIL}))
    assert pictures.metrics({"error": None, "what": "nothing"}) == pictures.metrics(None) == ""


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
@pytest.mark.parametrize("epsilon,delta", [(1e-3, 0.0), (1.0, 0.0), (1.0, 1e-6), (2000.0, 1e-6), (1.0, 0.5)])
def test_the_guarantee_in_plain_words(run, arrays, relation, epsilon, delta):
    held = {**run["guarantee"], "epsilon": epsilon, "delta": delta, "relation": relation, "unit": "patient"}
    text = harmless(render({**run, "guarantee": held}, arrays)).text
    assert ("whether one patient is in the data" in text) == (relation == "add-or-remove-one")
    assert ("Whatever came out" in text) == (delta == 0)
    if epsilon == 1 and delta == 0:
        assert "between 26.8 % and 73.2 % afterwards" in text
    if epsilon == 1 and delta == 1e-6:
        assert "beyond 75.2 %, or below 24.8 %, with a chance of at most 1e-05" in text
    if delta == 0.5:
        assert "nothing can be said about a single outcome" in text


# -- files and the command ----------------------------------------------------------------------------------------


def test_a_report_is_rendered_again_from_the_files_of_a_run(run, arrays, tmp_path):
    folder = write(tmp_path / "run", run, arrays)
    path = write_report(folder)
    assert path == folder / "report.html" and path.read_text() == render(run, arrays)
    path.write_text("old")
    result = CliRunner().invoke(command, [str(folder)])
    assert result.exit_code == 0 and result.output.strip() == str(path)
    assert path.read_text() == render(run, arrays)
    assert sorted(p.name for p in folder.iterdir()) == ["released.zarr", "report.html", "run.json"]
    result = CliRunner().invoke(command, [str(folder), "--json"])
    assert json.loads(result.output) == {"report": str(path)}


def test_help_has_examples():
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0 and "Examples:" in result.output and "dpdist report runs/dp-gd\n" in result.output


def damaged(folder, what):
    if what == "no directory":
        shutil.rmtree(folder)
    elif what == "no record":
        (folder / "run.json").unlink()
    elif what == "cut off":
        (folder / "run.json").write_text('{"format": ')
    elif what == "another format":
        (folder / "run.json").write_text('{"format": "dpdist-run/9"}')
    elif what == "a list":
        (folder / "run.json").write_text("[]")
    elif what == "wrong types":
        (folder / "run.json").write_text('{"format": "dpdist-run/1", "guarantee": {"epsilon": "x", "delta": []}}')
    elif what == "no arrays":
        shutil.rmtree(folder / "released.zarr")
    elif what == "a directory in its place":
        (folder / "report.html").mkdir()


@pytest.mark.parametrize(
    "what,said",
    [
        ("no directory", "expected the output directory of dpdist run"),
        ("no record", "expected the output directory of dpdist run"),
        ("cut off", "damaged"),
        ("another format", "expected the format dpdist-run/1"),
        ("a list", "expected the format dpdist-run/1"),
        ("wrong types", "not what dpdist run writes"),
        ("no arrays", "cannot be read"),
        ("a directory in its place", "cannot be written"),
    ],
)
def test_what_is_wrong_with_a_directory_is_said(run, arrays, tmp_path, what, said):
    folder = write(tmp_path / "run", run, arrays)
    damaged(folder, what)
    with pytest.raises(OutputError, match=said):
        write_report(folder)
    assert not list(tmp_path.glob("run/.report*"))


# -- in a browser -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(run, arrays, sampled, fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    named = {
        **run,
        "dataset": {**run["dataset"], "columns": {"X": [f"a rather long column name {i}" for i in range(12)]}},
    }
    regression, _ = fit(LinearRegression, 5_000, 5, loss="huber", solver=GradientDescent(n_rounds=3), random_state=0)
    notebook = "".join(f"<p>{shown._repr_html_()}</p>" for shown in (fitted[1], fitted[0].plan_, regression.guarantee_))
    texts = {
        "few": render(named, arrays),
        "many": render(*sampled),
        "hostile": render(poisoned(run), {"x" + EVIL: arrays["coef"]}),
        "started": render({"format": "dpdist-run/1", "status": "started"}, {}),
        "notebook": f'<!DOCTYPE html><html lang="en"><title>n</title>{notebook}{fitted_html(regression)}</html>',
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("width,dark", SCHEMES)
@pytest.mark.parametrize("name", ["few", "many", "hostile", "started", "notebook"])
def test_a_page_is_quiet_readable_and_fits(browser, pages, name, width, dark):
    path = pages / f"{name}.html"
    browser.open(path, width=width, dark=dark)
    browser.script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.requests() == [path.as_uri()]
    assert browser.script("return performance.getEntriesByType('resource').length") == 0
    assert browser.complaints() == []
    assert browser.overflow() <= 0
    contrasts = browser.contrasts()
    assert len(contrasts) > (5 if name == "started" else 80) and contrasts[0][0] >= 4.5, contrasts[:3]
    assert browser.script("return document.querySelectorAll('script, img').length") == 0
    back = browser.script("return getComputedStyle(document.querySelector('section, .card')).backgroundColor")
    assert (contrast(back, "rgb(255, 255, 255)") > 10) == dark


@pytest.mark.parametrize("name", ["few", "many", "notebook"])
def test_a_plan_is_seen_whole_on_half_a_screen(browser, pages, name):
    """It could be scrolled, but nothing showed that there were more columns."""
    browser.open(pages / f"{name}.html", width=500)
    browser.script("for (const d of document.querySelectorAll('details')) d.open = true")
    wider = browser.script(
        "return [...document.querySelectorAll('.scroll')].filter(e => /mechanism.*strength/s.test(e.textContent))"
        ".map(e => e.scrollWidth - e.clientWidth)"
    )
    assert wider and max(wider) <= 0, wider


@pytest.mark.parametrize("name,count", [("few", 7), ("many", 8)])
@pytest.mark.parametrize("width", [1200, 400])
def test_pictures_have_names_descriptions_and_tables(browser, pages, name, count, width):
    browser.open(pages / f"{name}.html", width=width)
    images = browser.accessible("image", "img", "graphics-document")
    assert len(images) == count == browser.script("return document.querySelectorAll('figure').length")
    assert all(len(said) > 15 and described for _, said, described in images)
    assert len({said for _, said, _ in images}) == count
    assert browser.script(
        "return [...document.querySelectorAll('figure')].every(f => f.querySelector('details table'))"
    )


def test_a_page_has_an_outline_landmarks_and_tables_with_headers(browser, pages):
    browser.open(pages / "few.html")
    assert browser.script("return document.documentElement.lang") == "en"
    levels = browser.script("return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert {role for role, _, _ in browser.accessible("banner", "main", "navigation", "contentinfo")} == {
        "banner",
        "main",
        "navigation",
        "contentinfo",
    }
    links = browser.script("return [...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert all(browser.script(f"return document.getElementById('{key}') !== null") for key in links)
    assert browser.script(
        "return [...document.querySelectorAll('table')].every(t => t.caption && t.querySelector('th[scope=row]'))"
    )
    assert len(browser.accessible("rowheader")) > 20 and len(browser.accessible("columnheader")) > 3


def test_print_is_light_whatever_the_screen_is(browser, pages):
    browser.open(pages / "few.html", dark=True)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.cdp("Emulation.setEmulatedMedia", media="print", features=dark)
    assert browser.script("return getComputedStyle(document.querySelector('h1')).color") == "rgb(27, 36, 48)"
    assert browser.script("return getComputedStyle(document.querySelector('nav')).display") == "none"


def test_the_checks_notice_a_bad_page(browser, tmp_path):
    (tmp_path / "other.css").write_text("")
    (tmp_path / "bad.html").write_text(
        '<!DOCTYPE html><link rel="icon" href="data:,"><link rel="stylesheet" href="other.css">'
        "<script>console.error('loud')</script>"
        '<p style="color:#999;background:#fff">pale</p><div style="width:2000px">wide</div>'
        '<svg role="img" width="9" height="9"></svg>'
    )
    browser.open(tmp_path / "bad.html", width=400)
    assert len(browser.requests()) == 2
    assert any("loud" in message for message in browser.complaints())
    assert browser.overflow() > 1000
    ratio, text = browser.contrasts()[0]
    assert ratio == pytest.approx(2.85, abs=0.01) and text.startswith("pale")
    assert [name for _, name, _ in browser.accessible("image", "img", "graphics-document")] == [""]


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)], ids=["CI", "a desk"]
)
def test_without_chromium_a_test_says_how_to_get_it_and_fails_only_where_tests_are_required(monkeypatch, ci, outcome):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="apt-get install chromium chromium-driver"), open_browser():
        pass


# -- mixtures ---------------------------------------------------------------------------------------------------------


def test_components_of_a_mixture_are_a_picture(run):
    """Only where there are any: coefficients of a regression are none."""
    two = {**run, "estimator": "local.TwoComponentMixture", "asked": {**run["asked"], "params": {"noise_std": 0.5}}}
    columns = {**run["dataset"], "columns": {"X": ["height", "age " + EVIL]}}
    text = harmless(render({**two, "dataset": columns}, {"coef": np.array([1.0, 0.0])})).text
    assert "The two nearest centres are 4 standard deviations apart." in text and "height" in text
    means, covariances = np.arange(16.0).reshape(8, 2), np.full((8, 2), 4.0)
    many = {"means": means, "weights": np.full(8, 1 / 8), "covariances": covariances}
    text = harmless(render({**run, "estimator": "GaussianMixture", "dataset": {}}, many)).text
    assert "The 6 heaviest of 8 are drawn" in text and "1.41 standard deviations apart. Below 2 they overlap" in text
    assert "Components" not in sections_of(render({**run, "estimator": "MixedRegression"}, {"coef": np.ones(2)}))
    one = {name: values[:1] for name, values in many.items()}
    assert "There is one component." in harmless(render({**run, "estimator": "GaussianMixture"}, one)).text


def sections_of(page):
    return re.findall(r"<h2 [^>]*>([^<]*)</h2>", page)
