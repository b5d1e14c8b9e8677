"""Objective perturbation and private upper bounds: laws, exact privacy loss in one dimension, audits and controls."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.closed_forms import gdp_delta, gdp_mu
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.audit.two_point import two_point_bound
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.objective_perturbation import (
    OUTPUT_SHARE,
    TAIL_SHARE,
    ObjectivePerturbation,
    term_mu,
)
from dpdist.privacy.mechanisms.upper_bound import UpperBound
from dpdist.privacy.randomness.bits import StreamBits
from tests.privacy.exhibits.perturbation import QuotedPerturbation

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE
SURE = 1 - 1e-6


def bits(seed: int) -> StreamBits:
    return StreamBits(np.random.Generator(np.random.Philox(seed)))


# One row in one dimension, as (l', l'') of the parameter: |l'| <= 1, 0 <= l'' <= 1
ROWS = {
    "up": (lambda w: np.ones_like(w), lambda w: np.zeros_like(w)),
    "down": (lambda w: -np.ones_like(w), lambda w: np.zeros_like(w)),
    "steep": (np.tanh, lambda w: 1 - np.tanh(w) ** 2),
    "steep, far": (lambda w: np.tanh(w - 1.5), lambda w: 1 - np.tanh(w - 1.5) ** 2),
    "logistic": (lambda w: -expit(-w), lambda w: expit(w) * expit(-w)),
    "none": (np.zeros_like, np.zeros_like),
}


def density(mechanism: ObjectivePerturbation, rows: tuple[str, ...], w: np.ndarray) -> np.ndarray:
    """Of the exact minimiser: b is a function of it, with derivative -(Hessian)."""
    ridge = mechanism.regularisation
    b = -ridge * w - sum(ROWS[row][0](w) for row in rows)
    return stats.norm.pdf(b, scale=mechanism.term_std) * (ridge + sum(ROWS[row][1](w) for row in rows))


def true_delta(mechanism: ObjectivePerturbation, pair: tuple[tuple[str, ...], ...], epsilon: float) -> float:
    """The larger hockey-stick divergence of two neighbours, by quadrature."""
    far = (12 * mechanism.term_std + 3) / mechanism.regularisation
    w, step = np.linspace(-far, far, 400_001, retstep=True)
    p, q = (density(mechanism, rows, w) for rows in pair)
    assert p.sum() * step == pytest.approx(1, abs=1e-6) and q.sum() * step == pytest.approx(1, abs=1e-6)
    factor = math.exp(epsilon)
    return float(max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum()) * step)


def pairs(neighbours: Neighbours):
    names = [name for name in ROWS if name != "none"]
    for base in (("none",), ("logistic", "steep")):
        if neighbours is REPLACE:
            yield from (((*base, a), (*base, b)) for a, b in itertools.combinations(names, 2))
        else:
            yield from (((*base, a), base) for a in names)


@pytest.mark.parametrize("neighbours", [REPLACE, ADD], ids=lambda n: n.value)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (1.0, 1e-3), (0.2, 1e-5), (4.0, 1e-6)])
def test_the_exact_minimiser_keeps_its_part_of_the_budget(neighbours, epsilon, delta):
    mechanism = ObjectivePerturbation(delta, 1.0, 1.0, 0.0, neighbours).at(epsilon)
    worst = max(true_delta(mechanism, pair, (1 - OUTPUT_SHARE) * epsilon) for pair in pairs(neighbours))
    assert worst <= (1 - OUTPUT_SHARE - TAIL_SHARE) * delta
    # the same quadrature with a quarter less noise would notice
    less = 0.75 * mechanism.term_std

    class Less(ObjectivePerturbation):
        term_std = less

    broken = Less(delta, 1.0, 1.0, 0.0, neighbours).at(epsilon)
    assert max(true_delta(broken, pair, epsilon) for pair in pairs(neighbours)) > delta


def test_the_quoted_noise_is_caught_under_replace_one():
    """True delta at (1, 1e-5): more than 45 times the claim; under add-or-remove-one the same noise is right."""
    quoted = QuotedPerturbation(1e-5, 1.0, 1.0, 0.0).at(1.0)
    assert max(true_delta(quoted, pair, 1.0) for pair in pairs(REPLACE)) > 45e-5
    assert max(true_delta(quoted, pair, 1.0) for pair in pairs(ADD)) < 1e-5
    assert quoted.term_std == pytest.approx(ObjectivePerturbation(1e-5, 1.0, 1.0, 0.0).at(1.0).term_std / 2)


def minimisers(mechanism: ObjectivePerturbation, slope: float, n: int, seed: int) -> np.ndarray:
    """Of ``slope w + D/2 w^2 + b w``, one row far from its label, with terms from the mechanism's own sampler."""
    return -(mechanism.linear_term(n, bits(seed)) + slope) / mechanism.regularisation


@pytest.mark.parametrize(("kind", "private"), [(ObjectivePerturbation, True), (QuotedPerturbation, False)])
def test_audit_of_the_sampler(kind, private):
    """A million runs each, seeded: the quoted noise claims epsilon 4 and loses more."""
    epsilon, delta, n = 4.0, 1e-5, 1_000_000
    mechanism = kind(delta, 1.0, 1.0, 0.0).at(epsilon)
    result = two_point_bound(minimisers(mechanism, -1.0, n, 1), minimisers(mechanism, 1.0, n, 2), delta, SURE)
    assert (result.epsilon_lower <= epsilon) == private
    assert result.mu_lower > 0.8 * 2 / mechanism.term_std, "an audit that finds nothing proves nothing"


# ---------------------------------------------------------------------------------------------- calibration
def corner_delta(mu: float, epsilon: float, angle: float) -> float:
    """``E (1 - e^(epsilon - loss))_+`` of two rows at that angle, where an adversary chooses both sizes by b."""
    z, step = np.linspace(-9, 9, 1201, retstep=True)
    along, across = np.meshgrid(z, z, indexing="ij")
    first, other = np.array([1.0, 0.0]), np.array([math.cos(angle), math.sin(angle)])
    losses = []
    for sizes in itertools.product((-1, 1), repeat=2):
        s = mu / 2 * (sizes[0] * first - sizes[1] * other)
        losses.append(along * s[0] + across * s[1] + s @ s / 2)
    found = np.maximum(1 - np.exp(epsilon - np.max(losses, axis=0)), 0)
    return float((found * np.exp(-(along**2 + across**2) / 2)).sum() * step**2 / (2 * math.pi))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-3), (3.0, 1e-2)])
def test_rows_in_one_line_are_the_worst_and_meet_the_delta(epsilon, delta):
    mu = term_mu(epsilon, delta, REPLACE)
    found = [corner_delta(mu, epsilon, angle) for angle in np.linspace(0, math.pi, 9)]
    assert max(found) <= delta * (1 + 1e-3) and max(found) == max(found[0], found[-1]) > 0.99 * delta
    assert corner_delta(1.1 * mu, epsilon, 0.0) > 1.2 * delta


def test_where_rows_in_one_line_may_not_be_the_worst_deltas_of_both_directions_add_up():
    """At a delta so large that the bound is not convex, each of two directions counts as if it were the longest."""
    epsilon, delta = 0.01, 0.3
    mu = term_mu(epsilon, delta, REPLACE)
    assert gdp_delta(epsilon, mu) == pytest.approx(delta / 4) and term_mu(epsilon, delta, ADD) > mu
    assert max(corner_delta(mu, epsilon, angle) for angle in np.linspace(0, math.pi, 9)) < delta


def test_the_linear_term_is_no_longer_than_it_has_to_be():
    """2 delta(epsilon', zeta / sigma) is its part of delta; the curvature costs a tenth; less than as published."""
    mechanism = ObjectivePerturbation(1e-5, 2.0, 0.25, 0.0).at(1.0)
    epsilon = 0.99
    assert mechanism.regularisation == pytest.approx(0.25 / math.expm1(epsilon / 10))
    left, t = 0.9 * epsilon, -stats.norm.ppf(0.98e-5 / 4)
    sigma = mechanism.term_std
    assert 2 * gdp_delta(left, 4 / sigma) == pytest.approx(0.98e-5, rel=1e-6)
    published = 4 * (t + math.sqrt(t * t + 2 * left)) / (2 * left)
    assert 1.19 < published / sigma < 1.22
    strong = ObjectivePerturbation(1e-5, 2.0, 0.25, 1e3).at(1.0)
    assert strong.regularisation == 1e3 and strong.term_std < sigma
    assert ObjectivePerturbation(1e-5, 2.0, 0.25, 0.0, ADD).at(1.0).shift == 2.0
    assert mechanism.cost == Cost("approximate", 1.0, 1e-5)
    assert mechanism.noise_std(3.0) == pytest.approx(3.0 / gdp_mu(0.01, 1e-7))
    assert ObjectivePerturbation(1e-5, 2.0, 0.25, 0.0).at(1e5).term_std > 0


def test_half_the_noise_of_the_equal_split():
    equal = 2 * math.sqrt(8 * math.log(2 / 1e-5) + 4)
    assert ObjectivePerturbation(1e-5, 1.0, 0.25, 10.0).at(1.0).term_std < 0.55 * equal


def test_the_linear_term_has_the_planned_law():
    """Kolmogorov-Smirnov on 20 000 draws, seeded."""
    mechanism = ObjectivePerturbation(1e-5, 1.0, 0.25, 10.0).at(1.0)
    b = mechanism.linear_term(20_000, bits(0))
    assert stats.kstest(b / mechanism.term_std, "norm").pvalue > 1e-3
    assert np.all(b / mechanism.term_grid == np.round(b / mechanism.term_grid))
    assert mechanism.term_grid <= mechanism.term_std * 2.0**-39
    lengths = [np.linalg.norm(mechanism.linear_term(5, bits(s))) for s in range(200)]
    assert max(lengths) < mechanism.longest_term(5) < 4 * max(lengths)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ObjectivePerturbation(0.0, 1.0, 1.0, 0.0),
        lambda: ObjectivePerturbation(1e-5, 0.0, 1.0, 0.0),
        lambda: ObjectivePerturbation(1e-5, 1.0, math.inf, 0.0),
        lambda: ObjectivePerturbation(1e-5, 1.0, 1.0, -1.0),
        lambda: ObjectivePerturbation(1e-5, 1.0, 1.0, 0.0).cost,
        lambda: ObjectivePerturbation(1e-5, 1.0, 1.0, 0.0).at(-1.0),
        lambda: UpperBound(0.0),
        lambda: UpperBound(1e-6).at(0.0),
    ],
)
def test_errors(make):
    with pytest.raises(BudgetError):
        make()


# ---------------------------------------------------------------------------------------------- upper bounds
def test_an_upper_bound_fails_as_rarely_as_it_says():
    """At delta 0.01 the bound is below the larger of two neighbours in 1 % of 20 000 draws (seeded) and no more."""
    mechanism = UpperBound(0.01).at(0.1)
    drawn = mechanism.release(np.full(20_000, 500), 1.0, bits(3)).astype(float)
    rate = np.mean(drawn < 501)
    assert 0.005 < rate <= 0.012
    assert np.std(drawn) == pytest.approx(mechanism.noise_std(1.0), rel=0.05)
    assert mechanism.cost == Cost("approximate", 0.1, 0.01)
