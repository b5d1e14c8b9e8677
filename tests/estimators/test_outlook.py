"""What to expect of a fit: the needed numbers are the smallest ones, and few plans are calibrated to find them."""

from __future__ import annotations

import math

import pytest

from dpdist import LogisticRegression
from dpdist.estimators.outlook import MOST_ROWS, PRECISION, outlook
from dpdist.privacy.accounting import calibration
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.profiles import roughly
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.budget import Budget
from dpdist.privacy.mechanisms.additive import Gaussian

DELTA = 1e-6


def asked(law, n=1000, epsilon=0.5, delta=DELTA):
    """The outlook against a trivial error of 1, and how often the law was asked."""
    questions = []

    def predict(rows, e):
        questions.append((rows, e))
        return law(rows, gdp_mu(e, delta) if delta else e)

    return outlook(predict, 1.0, "a test", n, epsilon, delta), len(questions)


LAWS = {
    "as expected": lambda n, mu: (2e4 / (n * mu)) ** 2,
    "slower": lambda n, mu: 2e3 / (n * mu),
    "faster": lambda n, mu: (1e4 / (n * mu)) ** 3.5,
    "with a jump": lambda n, mu: (2e4 / (n * mu)) ** 2 * (3 if n * mu > 12_000 else 1),
    "a bend": lambda n, mu: (2e4 / (n * mu)) ** 2 + (5e3 / (n * mu)) ** 0.5 / 10,
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("delta", [DELTA, 0.0])
def test_the_smallest_sufficient_numbers(law, delta):
    found, questions = asked(law, delta=delta)
    mu = gdp_mu(0.5, delta) if delta else 0.5
    low, high = 1000.0, 1e15
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if law(middle, mu) <= 0.5 else (middle, high)
    # two digits are shown
    assert found.n_needed == pytest.approx(high, rel=PRECISION + 0.05)
    shown = gdp_mu(found.epsilon_needed, delta) if delta else found.epsilon_needed
    assert shown == pytest.approx(mu * high / 1000, rel=PRECISION + 0.05)
    assert questions <= 20


def test_a_law_like_the_rows_takes_three_questions_each():
    assert asked(LAWS["as expected"])[1] <= 1 + 2 * 2


def test_what_no_number_of_rows_reaches():
    found, questions = asked(lambda n, mu: 0.7 + (2e4 / (n * mu)) ** 2)
    assert found.n_needed is None and found.epsilon_needed is None and questions < 60
    assert found.warnings == ("the noise alone would make this worse than ignoring the data",)
    assert asked(lambda n, mu: 2.0 * MOST_ROWS / n, n=10)[0].n_needed is None


def test_errors_that_are_fine_or_unknown_are_asked_for_once():
    assert asked(lambda n, mu: 0.9)[1] == asked(lambda n, mu: None)[1] == 1


@pytest.mark.parametrize("options", [{"rows": "sample"}, {"solver": "svrg"}, {"solver": "svrg++"}])
def test_few_plans_are_calibrated_for_methods_that_sample(options):
    """Each takes a good part of a second."""
    before = calibration._calibrated.cache_info().misses
    common = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 0.0501, "delta": DELTA}
    look = LogisticRegression(**common, **options).outlook(301, 50)
    assert calibration._calibrated.cache_info().misses - before <= 9
    assert look.n_needed > 1000
    better = LogisticRegression(**common, **options).outlook(int(look.n_needed * 1.1), 50)
    assert better.predicted_error < better.trivial_error / 2


@pytest.mark.parametrize("count", [20, 300, 5000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
def test_what_would_be_needed_goes_by_rough_plans_and_noise_does_not(epsilon, count):
    items, budget = [Item("gradient", Gaussian(), count=count, sampling=Poisson(0.01))], Budget(epsilon, 1e-8)
    exact = calibrate(items, budget)
    with roughly():
        rough = calibrate(items, budget)
    assert rough["gradient"].mechanism.strength == pytest.approx(exact["gradient"].mechanism.strength, rel=0.02)
    assert rough["gradient"].mechanism.strength != exact["gradient"].mechanism.strength
    assert calibrate(items, budget) == exact
