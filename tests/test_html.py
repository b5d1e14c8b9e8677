"""Strings of HTML: what comes from outside stays text, tables can be read aloud, and objects show themselves."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone

from dpdist import Dataset, Guarantee, LogisticRegression, Neighbours
from dpdist.central import GradientDescent
from dpdist.estimators.representation import ReadableFit, fitted_html, fitted_text, released
from dpdist.html import Markup, card, details, escape, facts, number, percent, records, table, warning
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import gdp_epsilon
from dpdist.privacy.accounting.plan import Item, Plan
from dpdist.privacy.budget import Budget
from dpdist.privacy.guarantee import best_guess, suspicion
from dpdist.privacy.mechanisms.additive import Gaussian

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects elements and text, and fails on tags that are not balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open and self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def harmless(text: str) -> Page:
    """Parse, and see that nothing in the page could run."""
    page = Page(text)
    names = {tag for tag, _ in page.elements}
    assert not names & {"script", "iframe", "object", "embed", "img"}
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    return page


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.where(X[:, 0] > 0, "yes" + EVIL, "no")
    return LogisticRegression(
        classes=["yes" + EVIL, "no"], row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0, solver=GradientDescent(3)
    ).fit(X, y)


# -- strings ------------------------------------------------------------------------------------------------------


def test_whatever_comes_from_outside_is_escaped_everywhere():
    pieces = [
        table([EVIL], [[EVIL, EVIL]], EVIL),
        facts([(EVIL, EVIL)], EVIL),
        records([{EVIL: EVIL}], EVIL),
        details(EVIL, ""),
        warning(EVIL, EVIL),
        card(EVIL),
    ]
    for piece in pieces:
        page = harmless(piece)
        assert EVIL in page.text  # and it can be read as what it is


def test_markup_is_not_escaped_twice():
    assert escape(Markup("<b>x</b>")) == "<b>x</b>"
    assert Page(table(["a"], [[Markup("<b>x</b>")]], "c")).all("b")


def test_tables_have_scopes_and_captions():
    page = Page(table(["name", "value"], [["a", 1.0], ["b", None]], "Caption"))
    assert [cell["scope"] for cell in page.all("th")] == ["col", "col", "row", "row"]
    assert len(page.all("caption")) == 1 and len(page.all("td")) == 2
    assert all(cell["scope"] == "row" for cell in Page(facts([("a", 1)], "c")).all("th"))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-300, 5e-324, 1.7e308, -2.5, 123456.0, 9999999.0, 1e-4, 0.99996])
@pytest.mark.parametrize("digits", [3, 4, 6])
def test_numbers_read_back_to_their_digits(value, digits):
    assert float(number(value, digits).replace(",", "")) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))


def test_numbers_of_every_kind():
    assert number(np.int64(12345)) == "12,345" and number(np.float32(0.5)) == "0.5"
    assert number(-0.0) == "0" and number(-math.inf) == "-infinite"
    assert "yes" in facts([("flag", True)], "c") and "&ndash;" in facts([("nothing", None)], "c")


def test_percent_never_promises_more_than_holds():
    for share in np.concatenate([np.linspace(0, 1, 999), 0.5 + np.logspace(-9, -1, 99), 1 - np.logspace(-9, -1, 99)]):
        shown = float(percent(float(share)).removesuffix(" %")) / 100
        assert (shown >= share - 1e-12) if share >= 0.5 else (shown <= share + 1e-12)
        assert abs(shown - share) <= 0.0011


# -- what the words of a guarantee promise ------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon,delta", [(0.1, 0.0), (1.0, 1e-6), (3.0, 0.01), (0.0, 0.2)])
def test_best_guess_is_what_the_worst_mechanism_allows(epsilon, delta):
    # the extreme (epsilon, delta) mechanism: with chance delta it tells the truth, else randomised response
    p = (1 - delta) * np.array([0.0, math.exp(epsilon), 1.0, 0.0]) / (1 + math.exp(epsilon)) + [delta, 0, 0, 0]
    q = p[::-1]
    assert np.maximum(p, q).sum() / 2 == pytest.approx(best_guess(epsilon, delta))


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_a_suspicion_goes_beyond_its_bound_as_rarely_as_said(mu, delta):
    epsilon = gdp_epsilon(mu, delta)
    furthest, chance = suspicion(epsilon, delta)
    loss = math.log(furthest / (1 - furthest))
    # the privacy loss of a Gaussian release is N(mu^2 / 2, mu^2)
    assert norm.sf((loss - mu**2 / 2) / mu) <= chance
    assert chance == pytest.approx(10 * delta)


def test_the_bound_of_a_suspicion_holds_for_a_mechanism_that_uses_all_of_delta():
    # all of delta at one likelihood ratio just beyond the bound: the hardest case of the proof
    epsilon, delta = 1.0, 1e-3
    furthest, chance = suspicion(epsilon, delta)
    ratio = furthest / (1 - furthest) * 1.0001
    event = delta / (1 - math.exp(epsilon) / ratio)
    assert 0.99 * chance < event <= chance


# -- objects ------------------------------------------------------------------------------------------------------


def test_a_guarantee_shows_itself():
    held = Guarantee(1.0, 1e-6, Neighbours.REPLACE_ONE, "gdp", True, EVIL, "31 " + EVIL, 31, 0.2)
    page = harmless(held._repr_html_())
    assert "Simulation" in page.text and held.text in page.text and "73.2 %" in page.text
    real = Guarantee(1.0, 1e-6, Neighbours.REPLACE_ONE, "gdp", False)
    assert "Simulation" not in Page(real._repr_html_()).text


def test_a_plan_shows_itself():
    plan = calibrate([Item("gradient" + EVIL, Gaussian(), count=3)], Budget(1.0, 1e-6), Neighbours.REPLACE_ONE)
    assert "gradient" + EVIL in harmless(plan._repr_html_()).text
    assert isinstance(plan, Plan) and repr(plan) == str(plan) and "epsilon 1," in Page(plan._repr_html_()).text


def test_a_dataset_shows_its_public_description_and_no_value():
    data = Dataset.from_arrays(
        X=np.full((4, 2), 8.25), y=np.full(4, 77), dataset_id=EVIL, unit="patient" + EVIL, max_rows_per_unit=1
    )
    page = harmless(data._repr_html_())
    assert EVIL in page.text and "float64" in page.text and "4 x 2" in page.text
    assert "8.25" not in page.text and "77" not in page.text


def test_a_fitted_model_shows_what_was_released(fitted):
    page = harmless(fitted_html(fitted))
    text = page.text
    assert fitted.guarantee_.text in text and "Simulation" in text and "smoothness" in text and "row_norm" in text
    assert number(float(fitted.coef_[0, 1])) in text and len(page.all("svg")) == 2  # wide and narrow
    assert "classes_" not in text
    plain = fitted_text(fitted, "LogisticRegression()")
    assert plain.startswith("LogisticRegression()\n  coef_: ") and plain.endswith(fitted.guarantee_.text)


def test_an_unfitted_model_looks_as_scikit_learn_draws_it(fitted):
    fresh = clone(fitted)
    assert fitted_text(fresh, "parameters") == "parameters"
    assert "sk-container" in fitted_html(fresh) or "sk-top-container" in fitted_html(fresh)


def test_the_mixin_reaches_prompts_and_notebooks(fitted):
    assert issubclass(LogisticRegression, ReadableFit)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    model = LogisticRegression(classes=[0, 1], row_norm=1.0, epsilon=1.0, delta=1e-6, solver="gradient")
    before = repr(model)
    assert before.startswith("LogisticRegression(") and "coef_" not in before
    model.fit(X, (X[:, 0] > 0).astype(int))
    assert repr(model).startswith(before) and "guarantee_" in repr(model)
    bundle = model._repr_mimebundle_()
    assert bundle["text/html"] == model._repr_html_() and "guarantee" in bundle["text/plain"]


@pytest.mark.parametrize(
    "values",
    [
        np.float64(3.5),
        np.zeros((0,)),
        np.array([1.0, np.nan, np.inf, -2.0]),
        np.full(50, np.nan),
        np.array([1.7e308, -1.7e308, 0.0]),
        np.r_[1.7e308, -1.7e308, np.zeros(60)],
        np.arange(12).reshape(3, 4),
        np.ones((2, 3, 4, 5)),
        np.array([True, False]),
        np.array(["a", EVIL]),
        np.full(100, 7.0),
        np.full(100, 5e-324),
    ],
    ids=range(12),
)
def test_every_released_array_has_a_picture_or_a_table(values):
    page = harmless(released("x", np.asarray(values)))
    assert page.all("table")


def test_entries_are_named_by_column_and_row():
    wide = Page(released("coef", np.arange(6.0).reshape(3, 2), ["age", EVIL], ["red", "green", "blue"]))
    assert "green, age" in wide.text and f"blue, {EVIL}" in wide.text
    assert "1, 0" in Page(released("coef", np.arange(6.0).reshape(3, 2))).text
    assert "blue" in Page(released("intercept", np.arange(3.0), (), ["red", "green", "blue"])).text


def test_whiskers_only_where_the_noise_of_an_entry_is_known():
    with_noise = released("mean", np.array([1.0, 2.0]), noise_std=0.25)
    assert with_noise.count('class="whisker"') == 4 and "0.25" in Page(with_noise).text
    assert 'class="whisker"' not in released("coef", np.array([1.0, 2.0]))
