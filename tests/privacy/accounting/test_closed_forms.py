"""Closed forms and composition against published numbers, mpmath at 60 digits and dp_accounting."""

from __future__ import annotations

import itertools
import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

from dpdist.errors import BudgetError
from dpdist.privacy.accounting import closed_forms as accounting
from dpdist.privacy.accounting import profiles
from dpdist.privacy.accounting.closed_forms import (
    amplify_fixed_size,
    amplify_poisson,
    delta_for_rho,
    eps_for_rho,
    gaussian_sigma,
    gdp_compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    laplace_rdp,
    poisson_rdp,
    pure_rdp,
    rho_for,
    wor_rdp,
)
from dpdist.privacy.accounting.composition import accountants, total_delta, total_epsilon
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.releases import FixedSize, Poisson, Releases, columns
from dpdist.privacy.budget import Neighbours

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE
RELATION = dp_accounting.NeighboringRelation
EPSILONS = (1e-4, 1e-3, 0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0)
DELTAS = (0.5, 0.1, 1e-2, 1e-6, 1e-12, 1e-30, 1e-100, 1e-300)


def true_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


# ------------------------------------------------------------------------------------------------- Gaussian DP
@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [
        (1, 1e-5, 0.26805112),
        (0.1, 1e-5, 0.03252078),
        (0.2, 1e-5, 0.06133414),
        (1, 1e-4, 0.31390246),
        (4, 1e-5, 0.9249309),
    ],
)
def test_gdp_mu_reproduces_published_values(epsilon, delta, mu):
    assert gdp_mu(epsilon, delta) == pytest.approx(mu, abs=1e-8)


@pytest.mark.parametrize(("epsilon", "delta"), list(itertools.product(EPSILONS, DELTAS)))
def test_gdp_mu_is_the_largest_that_is_true(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert true_delta(epsilon, mu) <= delta < true_delta(epsilon, mu * (1 + 1e-8))
    assert true_delta(epsilon, mu) <= gdp_delta(epsilon, mu) <= delta * (1 + 1e-9)
    back = gdp_epsilon(mu, delta)
    assert epsilon * (1 - 1e-8) <= back <= epsilon * (1 + 1e-14)
    assert true_delta(back, mu) <= delta


def test_gaussian_sigma_is_the_analytic_gaussian():
    assert gaussian_sigma(1, 1e-6) == pytest.approx(4.2247, abs=5e-5)
    assert gaussian_sigma(4, 1e-6, sensitivity=2) == pytest.approx(2 * 1.1935, abs=1e-4)
    for epsilon, delta in itertools.product((0.1, 1.0, 8.0), (1e-5, 1e-9)):
        assert gaussian_sigma(epsilon, delta) == pytest.approx(
            dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6
        )
    assert 1 / gaussian_sigma(1, 1e-6) <= gdp_mu(1, 1e-6)


def test_gdp_edges():
    assert gdp_compose([3.0, 4.0]) == 5.0
    assert gdp_delta(1.0, 0.0) == 0.0 == gdp_epsilon(0.0, 1e-6)
    assert gdp_epsilon(0.1, 0.3) == 0.0  # total variation is below delta
    assert gdp_delta(0.0, 60.0) == 1.0
    assert gdp_delta(1.0, 1e-6) < 1e-300


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, math.nan])
def test_gaussian_noise_needs_delta(delta):
    for call in (gdp_mu, gdp_epsilon, rho_for, eps_for_rho, gaussian_sigma):
        with pytest.raises(BudgetError, match="delta"):
            call(1.0, delta)


# -------------------------------------------------------------------------------------------------------- zCDP
@pytest.mark.parametrize(
    ("epsilon", "delta", "rho"),
    [(1, 1e-5, 0.03055659), (1, 1e-6, 0.02435597), (2, 1e-6, 0.08815268), (0.1, 1e-5, 4.329930e-4)],
)
def test_rho_for_reproduces_published_values(epsilon, delta, rho):
    assert rho_for(epsilon, delta) == pytest.approx(rho, abs=1e-8 * max(rho, 1e-2) / 1e-2)


def test_zcdp_conversions_are_tight_ordered_and_inverse():
    assert eps_for_rho(0.1, 1e-5) == pytest.approx(1.914, abs=1e-3)
    assert gdp_epsilon(math.sqrt(0.2), 1e-5) == pytest.approx(1.760, abs=1e-3)
    for epsilon, delta in itertools.product(EPSILONS, DELTAS):
        rho = rho_for(epsilon, delta)
        simple = (math.sqrt(epsilon - math.log(delta)) - math.sqrt(-math.log(delta))) ** 2
        assert eps_for_rho(rho, delta) <= epsilon < eps_for_rho(rho * (1 + 1e-8), delta)
        assert delta_for_rho(rho, epsilon) == pytest.approx(delta, rel=1e-5)
        assert rho >= simple * (1 - 1e-9)
        assert rho <= gdp_mu(epsilon, delta) ** 2 / 2  # a Gaussian is rho-zCDP, and its exact accounting allows more


def test_tight_conversion_finds_the_minimum():
    for rho, delta in itertools.product((1e-8, 1e-4, 0.02, 1.0, 30.0), (0.1, 1e-6, 1e-40)):
        orders = 1 + np.geomspace(1e-4, 1e9, 200_000)
        best = np.min(orders * rho + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))
        assert eps_for_rho(rho, delta) <= max(best, 0) * (1 + 1e-9)
        assert eps_for_rho(rho, delta) >= max(best, 0) * (1 - 1e-6)


# ------------------------------------------------------------------------------------------------ Renyi curves
def test_sampled_curves_reproduce_published_values():
    assert poisson_rdp(0.01, 1, 8) == pytest.approx(8.936439e-4, rel=1e-6)
    assert wor_rdp(0.01, 1, 8) == pytest.approx(1.781732e-3, rel=1e-6)
    assert poisson_rdp(0.02, 2, 16) == pytest.approx(9.967573e-4, rel=1e-6)
    assert wor_rdp(0.02, 2, 16) == pytest.approx(1.978831e-3, rel=1e-6)
    assert poisson_rdp(1.0, 2.0, 5) == pytest.approx(5 / 8)
    assert wor_rdp(1.0, 2.0, 5) == 5 / 8


@pytest.mark.parametrize(
    ("rate", "noise", "order"), [(1e-6, 0.8, 2), (1e-4, 1.0, 30), (0.3, 3.0, 64), (0.01, 0.5, 512)]
)
def test_poisson_rdp_is_exact_and_on_the_safe_side(rate, noise, order):
    with mpmath.workdps(60):
        q, z = mpmath.mpf(rate), mpmath.mpf(noise)
        total = sum(
            mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(k * (k - 1) / (2 * z**2))
            for k in range(order + 1)
        )
        exact = mpmath.log(total) / (order - 1)
    assert exact <= poisson_rdp(rate, noise, order) <= exact * (1 + 1e-9)


def test_poisson_rdp_composes_like_dp_accounting():
    orders = np.arange(2.0, 65)
    curve = 1000 * np.array([poisson_rdp(0.01, 1.0, int(a)) for a in orders])
    library = RdpAccountant(list(orders)).compose(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0)), 1000
    )
    assert accounting.renyi_epsilon(curve, orders, 1e-5) == pytest.approx(library.get_epsilon(1e-5), rel=1e-9)
    assert accounting.renyi_epsilon(curve, orders, 1e-5) == pytest.approx(2.10775, abs=1e-5)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-3, 0.3, 2.0, 40.0])
def test_pure_and_laplace_curves_cover_the_exact_ones(epsilon):
    orders = np.array([1.001, 1.5, 2.0, 10.0, 1000.0])
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        for a, pure, laplace in zip(orders, pure_rdp(epsilon, orders), laplace_rdp(epsilon, orders), strict=True):
            x = mpmath.mpf(float(a))
            exact = mpmath.log((mpmath.exp(x * e) + mpmath.exp((1 - x) * e)) / (1 + mpmath.exp(e))) / (x - 1)
            assert exact * (1 - mpmath.mpf(10) ** -15) <= pure <= min(epsilon, a * epsilon**2 / 2)
            assert pure <= exact * 1.01 + mpmath.mpf(10) ** -11
            exact = mpmath.log(
                x / (2 * x - 1) * mpmath.exp((x - 1) * e) + (x - 1) / (2 * x - 1) * mpmath.exp(-x * e)
            ) / (x - 1)
            assert exact * (1 - mpmath.mpf(10) ** -15) <= laplace <= pure


# ----------------------------------------------------------------------------------------------- amplification
def test_amplification_and_its_relations():
    epsilon, delta = amplify_poisson(1.0, 1e-6, 0.1, ADD)
    assert epsilon == pytest.approx(math.log(1 + 0.1 * (math.e - 1))) and delta == pytest.approx(1e-7)
    assert amplify_fixed_size(1.0, 1e-6, 0.1, REPLACE)[0] == epsilon
    assert amplify_poisson(800.0, 0.0, 0.5)[0] == pytest.approx(800 + math.log(0.5))
    assert amplify_poisson(30 - 1e-9, 0.0, 0.5)[0] == pytest.approx(amplify_poisson(30.0, 0.0, 0.5)[0], abs=1e-8)
    with pytest.raises(BudgetError, match="ADD_OR_REMOVE_ONE"):
        amplify_poisson(1.0, 0.0, 0.1, REPLACE)
    with pytest.raises(BudgetError, match="REPLACE_ONE"):
        amplify_fixed_size(1.0, 0.0, 0.1, ADD)
    with pytest.raises(BudgetError, match="rate"):
        amplify_poisson(1.0, 0.0, 1.1)


# ------------------------------------------------------------------------------------------------- composition
def gaussian(mu: float, count: int = 1, **more) -> Releases:
    return Releases(Cost("gaussian", mu), count, **more)


def test_the_two_readings_of_a_replace_one_noise_multiplier():
    """PLDAccountant counts noise in norm bounds of one row (half the sensitivity), RdpAccountant in sensitivities."""
    event = dp_accounting.GaussianDpEvent(2.0)
    by_pld = PLDAccountant(RELATION.REPLACE_ONE).compose(event).get_epsilon(1e-5)
    by_rdp = RdpAccountant(neighboring_relation=RELATION.REPLACE_ONE).compose(event).get_epsilon(1e-5)
    assert by_pld == pytest.approx(4.377, abs=1e-3) and by_rdp == pytest.approx(2.166, abs=1e-3)
    # mu is sensitivity/noise: 1 for the first reading, 1/2 for the second, whatever the accountant
    assert total_epsilon([gaussian(1.0)], 1e-5, REPLACE) == pytest.approx(by_pld, abs=1e-3)
    sampled = gaussian(1.0, sampling=Poisson(1.0))
    assert total_epsilon([sampled], 1e-5, REPLACE) == pytest.approx(4.377, abs=2e-3)
    assert total_epsilon([sampled], 1e-5, ADD) == pytest.approx(4.377, abs=2e-3)
    full = gaussian(0.5, sampling=FixedSize(7, 7))
    assert total_epsilon([full], 1e-5, REPLACE) == pytest.approx(2.166, abs=1e-2)
    sampled = gaussian(0.5, 50, sampling=Poisson(0.1))
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(4.0))
    expected = PLDAccountant(RELATION.REPLACE_ONE).compose(event, 50).get_epsilon(1e-5)
    assert total_epsilon([sampled], 1e-5, REPLACE) == pytest.approx(expected, rel=1e-4)
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    expected = PLDAccountant().compose(event, 50).get_epsilon(1e-5)
    assert total_epsilon([sampled], 1e-5, ADD) == pytest.approx(expected, rel=1e-4)


def test_poisson_batches_of_published_length():
    sampled = gaussian(1.0, 1000, sampling=Poisson(0.01))
    assert total_epsilon([sampled], 1e-5, ADD) == pytest.approx(1.8282, abs=5e-4)


def test_fixed_size_is_at_least_as_tight_as_dp_accounting_and_not_below_poisson():
    sampled = gaussian(0.5, 100, sampling=FixedSize(10, 1000))
    ours = total_epsilon([sampled], 1e-5, REPLACE)
    event = dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, dp_accounting.GaussianDpEvent(2.0))
    library = RdpAccountant(neighboring_relation=RELATION.REPLACE_ONE).compose(event, 100).get_epsilon(1e-5)
    poisson = total_epsilon([gaussian(0.5, 100, sampling=Poisson(0.01))], 1e-5, ADD)
    assert poisson < ours <= library


def test_choice_of_accountant():
    poisson, fixed = Poisson(0.1), FixedSize(1, 10)
    selection, laplace, pure = (Releases(Cost(kind, 0.1)) for kind in ("bounded-range", "laplace", "pure"))
    zcdp, one = Releases(Cost("zcdp", 0.01)), gaussian(0.1)
    sampled, deal = gaussian(0.1, sampling=poisson), gaussian(0.1, sampling=fixed)

    def names(*releases: Releases, delta: float = 1e-6, neighbours: Neighbours = REPLACE) -> tuple[str, ...]:
        return accountants(releases, delta, neighbours)

    assert names(one, one) == ("gdp",)
    assert names(selection, laplace, delta=0.0) == ("pure",)
    assert names(selection) == ("pure", "zcdp")
    assert names(one, selection) == ("gdp+pure", "zcdp")
    assert names(one, zcdp) == ("zcdp",)
    assert names(one, laplace) == names(one, pure) == ("gdp+pure", "pld")
    assert names(one, laplace, delta=1e-14) == ("gdp+pure", "rdp")  # too small for FFT in float64
    assert names(zcdp, laplace) == ("rdp",)
    assert names(sampled, one, selection, laplace) == names(sampled) == ("pld",)
    assert names(sampled, neighbours=ADD, delta=1e-14) == names(sampled, zcdp, neighbours=ADD) == ("rdp",)
    assert names(deal, zcdp, laplace) == ("rdp",)
    shuffled = Releases(Cost("laplace", 0.1), sampling=poisson)
    assert names(shuffled, neighbours=ADD) == ("pure", "pld")
    assert names(shuffled) == ("pure",)
    for releases, neighbours in [
        ([sampled, zcdp], REPLACE),
        ([deal], ADD),
        ([Releases(Cost("laplace", 0.1), sampling=fixed)], ADD),
        ([Releases(Cost("zcdp", 0.1), sampling=poisson)], ADD),
        ([sampled, deal], REPLACE),
        ([shuffled, one], REPLACE),
    ]:
        with pytest.raises(BudgetError, match="supported"):
            accountants(releases, 1e-6, neighbours)
    for releases in ([one], [zcdp, laplace]):
        with pytest.raises(BudgetError, match="needs delta > 0"):
            accountants(releases, 0.0, REPLACE)
    with pytest.raises(BudgetError, match="nothing"):
        accountants([], 1e-6, REPLACE)


def test_releases_that_are_only_epsilon_delta_compose_by_addition():
    pair, one, pure = Releases(Cost("approximate", 0.2, 1e-7), 3), gaussian(0.1, 4), Releases(Cost("pure", 0.1))
    assert accountants([pair], 1e-6, REPLACE) == accountants([pair, one, pure], 1e-6, ADD) == ("basic",)
    assert total_epsilon([pair], 1e-6, REPLACE) == pytest.approx(0.6)
    assert total_epsilon([pair, one, pure], 1e-6, REPLACE) == pytest.approx(0.7 + gdp_epsilon(0.2, 7e-7))
    assert total_delta([pair], 0.6 + 1e-12, REPLACE) == pytest.approx(3e-7) and total_delta([pair], 0.5, REPLACE) == 1.0
    assert total_delta([pair, one], 1.6, REPLACE) == pytest.approx(3e-7 + gdp_delta(1.0, 0.2))
    # disjoint parts: the dearest one counts, for delta as for epsilon
    parts = [Releases(Cost("approximate", e, d), fold=("s", i)) for i, (e, d) in enumerate([(0.2, 1e-7), (0.1, 9e-7)])]
    assert total_epsilon(parts, 1e-6, REPLACE) == pytest.approx(0.2)
    assert total_delta(parts, 0.3, REPLACE) == pytest.approx(9e-7)


def test_what_an_epsilon_delta_release_does_not_compose_with():
    pair = Releases(Cost("approximate", 0.2, 1e-7))
    for other in (Releases(Cost("zcdp", 0.01)), gaussian(0.1, sampling=Poisson(0.1))):
        with pytest.raises(BudgetError, match="supported"):
            accountants([pair, other], 1e-6, REPLACE)
    with pytest.raises(BudgetError, match="smaller delta"):
        accountants([pair], 0.9e-7, REPLACE)
    with pytest.raises(BudgetError, match="smaller delta"):
        accountants([pair, gaussian(0.1)], 1e-7, REPLACE)
    with pytest.raises(BudgetError, match="needs delta > 0"):
        accountants([pair], 0.0, REPLACE)
    for cost in (Cost("gaussian", 0.1, 1e-7), Cost("approximate", 0.1, 1.0), Cost("approximate", 0.1, -1e-9)):
        with pytest.raises(BudgetError, match="delta"):
            Releases(cost)
    assert repr(Cost("pure", 0.1)) == "Cost(kind='pure', parameter=0.1)"
    assert repr(pair.cost) == "Cost(kind='approximate', parameter=0.2, delta=1e-07)"


def test_all_accountants_agree_where_they_overlap():
    """The same releases by every accountant that can: each is a bound, the exact one the least."""
    releases = [gaussian(0.1, 4), Releases(Cost("laplace", 0.05), 8), Releases(Cost("pure", 0.1), 3)]
    by = {name: total_epsilon(releases, 1e-6, REPLACE, name) for name in ("gdp+pure", "pld", "rdp", "zcdp")}
    assert by["pld"] < by["rdp"] < by["zcdp"] and by["pld"] < by["gdp+pure"]
    exact = PLDAccountant().compose(dp_accounting.GaussianDpEvent(10.0), 4)
    exact = exact.compose(dp_accounting.LaplaceDpEvent(20.0), 8)
    exact = exact.compose(dp_accounting.dp_event.DiscreteLaplaceDpEvent(0.1, 1), 3).get_epsilon(1e-6)
    assert by["pld"] == pytest.approx(exact, rel=2e-3)
    only = [gaussian(0.1, 9)]
    assert total_epsilon(only, 1e-6, REPLACE, "pld") == pytest.approx(gdp_epsilon(0.3, 1e-6), rel=1e-4)
    assert total_epsilon(only, 1e-6, REPLACE, "pld") >= gdp_epsilon(0.3, 1e-6)
    assert total_epsilon(only, 1e-6, REPLACE, "rdp") == pytest.approx(eps_for_rho(0.045, 1e-6), rel=1e-3)


def test_published_compositions_of_pure_mechanisms():
    pure = [Releases(Cost("pure", 0.1), 100)]
    assert total_epsilon(pure, 0.0, REPLACE) == pytest.approx(10)
    assert total_epsilon(pure, 1e-6, REPLACE, "zcdp") == pytest.approx(5.22, abs=0.01)
    assert total_epsilon([Releases(Cost("bounded-range", 0.1), 100)], 1e-6, REPLACE) == pytest.approx(2.42, abs=0.01)
    # 30 randomised responses at .2: the optimal composition lies on a grid 2 epsilon_0 wide, at 5.2 and below
    assert total_epsilon([Releases(Cost("pure", 0.2), 30)], 1e-6, REPLACE) == pytest.approx(5.01, abs=0.02)


def test_pure_pld_is_randomised_response():
    for epsilon in (1e-4, 0.1, 3.0):
        distribution = profiles._pure_pld(epsilon, 2.0**-12)
        for x in (-0.9 * epsilon, 0.0, 0.5 * epsilon):
            exact = (math.exp(epsilon) - math.exp(x)) / (1 + math.exp(epsilon))
            assert exact * (1 - 1e-12) <= distribution.get_delta_for_epsilon(x)
            if abs(x) < epsilon - 2.0**-12:
                assert distribution.get_delta_for_epsilon(x) == pytest.approx(exact, rel=1e-3)


def test_one_coordinate_is_the_worst_direction_of_laplace_noise():
    """The PLD of vector Laplace noise is that of one coordinate: splitting the l1 shift never reveals more."""
    for total, part in itertools.product((0.1, 1.0, 3.0), (0.1, 0.5)):
        h = 1e-3
        one = pld.from_laplace_mechanism(1 / total, value_discretization_interval=h)
        two = pld.from_laplace_mechanism(1 / (total * part), value_discretization_interval=h).compose(
            pld.from_laplace_mechanism(1 / (total * (1 - part)), value_discretization_interval=h)
        )
        for epsilon in np.linspace(-total, total, 21):
            assert two.get_delta_for_epsilon(float(epsilon)) <= one.get_delta_for_epsilon(float(epsilon)) + 1e-12


def test_pld_covers_the_rounding_of_its_convolutions():
    count, mu = 10**6, 0.3
    releases = [gaussian(mu / 1000, count, sampling=Poisson(1.0))]
    for delta in (1e-6, 1.2e-8):
        assert total_epsilon(releases, delta, ADD) >= gdp_epsilon(mu, delta)
    with pytest.raises(BudgetError, match="PLD needs delta"):
        accountants(releases, 1e-9, REPLACE)


@pytest.mark.parametrize(
    ("releases", "neighbours"),
    [
        ([gaussian(0.2, 5)], REPLACE),
        ([gaussian(0.2, 5), Releases(Cost("zcdp", 0.01))], REPLACE),
        ([gaussian(0.2, 5), Releases(Cost("laplace", 0.1))], REPLACE),
        ([gaussian(0.5, 20, sampling=Poisson(0.1))], REPLACE),
        ([gaussian(0.5, 20, sampling=FixedSize(1, 10))], REPLACE),
        ([gaussian(0.2, 5), Releases(Cost("zcdp", 0.01)), Releases(Cost("laplace", 0.1))], REPLACE),
    ],
)
def test_total_delta_inverts_total_epsilon(releases, neighbours):
    epsilon = total_epsilon(releases, 1e-6, neighbours)
    assert total_delta(releases, epsilon, neighbours) == pytest.approx(1e-6, rel=0.02)
    assert total_delta(releases, 2 * epsilon, neighbours) < 1e-7


def test_pure_releases_have_delta_zero():
    releases = [Releases(Cost("laplace", 0.1), 10)]
    assert total_delta(releases, 1.0 + 1e-12, REPLACE) == 0.0
    assert 0 < total_delta(releases, 0.5, REPLACE) < 1
    sampled = [Releases(Cost("laplace", 1.0), sampling=Poisson(0.1))]
    assert total_epsilon(sampled, 0.0, ADD) == pytest.approx(math.log(1 + 0.1 * (math.e - 1)))
    assert total_epsilon(sampled, 0.0, REPLACE) == 1.0  # nothing is claimed for the sample under replace-one


def test_parallel_parts_cost_the_maximum_and_splits_add():
    whole = gaussian(0.1)
    parts = [gaussian(0.1 * (i + 1), fold=("a", i)) for i in range(3)]
    other = [gaussian(0.2, fold=("b", i)) for i in range(5)]
    expected = gdp_epsilon(math.sqrt(0.1**2 + 0.3**2 + 0.2**2), 1e-6)
    assert total_epsilon([whole, *parts, *other], 1e-6, REPLACE) == pytest.approx(expected, rel=1e-9)
    assert len(columns([whole, *parts, *other])) == 3
    many = [gaussian(0.1 + 0.01 * i, fold=(s, i)) for s in "abc" for i in range(10)]
    with pytest.raises(BudgetError, match="256"):
        columns(many)


@pytest.mark.parametrize("bad", [lambda: Poisson(0.0), lambda: Poisson(1.5), lambda: FixedSize(5, 4)])
def test_bad_sampling_is_refused(bad):
    with pytest.raises(BudgetError):
        bad()


def test_bad_costs_are_refused():
    for parameter in (-1.0, math.nan, math.inf):
        with pytest.raises(BudgetError, match="cost"):
            gaussian(parameter)
    with pytest.raises(BudgetError, match="count"):
        gaussian(1.0, 0)
