"""A calibrated plan meets its budget, uses all of it, and says so."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import gaussian_sigma, gdp_epsilon, gdp_mu, rho_for
from dpdist.privacy.accounting.composition import total_epsilon
from dpdist.privacy.accounting.plan import Item, Plan
from dpdist.privacy.accounting.releases import FixedSize, Poisson
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.guarantee import Guarantee
from dpdist.privacy.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dpdist.privacy.mechanisms.objective_perturbation import ObjectivePerturbation
from dpdist.privacy.mechanisms.selection import ExponentialMechanism, PermuteAndFlip
from dpdist.privacy.mechanisms.upper_bound import UpperBound
from tests.privacy.accounting.zcdp import total_rho

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE

PLANS = {
    "gaussian": ([Item("step", Gaussian(), share=0.01), Item("gradient", Gaussian(), 30, 0.99)], 1e-6, REPLACE, "gdp"),
    "two splits": (
        [
            Item("whole", Gaussian(), 3),
            *(Item(f"a{i}", Gaussian(), 2, fold=("a", i)) for i in range(3)),
            *(Item(f"b{i}", Gaussian(), 1, 1 + i, fold=("b", i)) for i in range(2)),
        ],
        1e-6,
        REPLACE,
        "gdp",
    ),
    "pure": ([Item("x", Laplace(), 5), Item("y", PermuteAndFlip(), share=2)], 0.0, REPLACE, "pure"),
    "pure with delta": ([Item("pick", ExponentialMechanism())], 1e-6, REPLACE, "pure"),
    "few picks": ([Item("pick", ExponentialMechanism()), Item("x", Gaussian())], 1e-6, REPLACE, "gdp+pure"),
    "many picks": ([Item("pick", ExponentialMechanism(), 20), Item("x", Gaussian(), 20)], 1e-6, REPLACE, "zcdp"),
    "discrete gaussian": ([Item("x", DiscreteGaussian(), 20)], 1e-6, REPLACE, "zcdp"),
    "laplace": (
        [Item("x", Laplace(), 30), Item("y", DiscreteLaplace(), 3), Item("z", Gaussian(), 9)],
        1e-6,
        ADD,
        "pld",
    ),
    "everything": (
        [Item("x", Laplace(), 30), Item("y", DiscreteGaussian(), 9), Item("pick", ExponentialMechanism())],
        1e-6,
        ADD,
        "rdp",
    ),
    "objective": ([Item("minimum", ObjectivePerturbation(4e-7, 1.0, 0.25, 9.0), 2)], 1e-6, REPLACE, "basic"),
    "objective and more": (
        [
            Item("minimum", ObjectivePerturbation(9e-7, 1.0, 0.25, 9.0, ADD)),
            Item("rows", UpperBound(1e-8), share=1e-4),
            Item("x", Gaussian(), share=0.1),
        ],
        1e-6,
        ADD,
        "basic",
    ),
    "poisson": ([Item("batch", Gaussian(), 100, sampling=Poisson(0.05))], 1e-6, REPLACE, "pld"),
    "poisson and more": (
        [
            Item("batch", Gaussian(), 50, sampling=Poisson(0.05)),
            Item("start", Gaussian(), share=0.2),
            Item("pick", ExponentialMechanism(), share=0.1),
        ],
        1e-6,
        ADD,
        "pld",
    ),
    "fixed size": (
        [Item("batch", Gaussian(), 100, sampling=FixedSize(50, 1000)), Item("start", Gaussian(), share=0.1)],
        1e-6,
        REPLACE,
        "rdp",
    ),
    "pure sample": ([Item("batch", Laplace(), 20, sampling=Poisson(0.1)), Item("x", Laplace())], 0.0, ADD, "pure"),
}


def spent(plan: Plan, factor: float = 1.0) -> float:
    """Epsilon of the plan with all strengths multiplied, composed anew."""
    releases = [
        dataclasses.replace(item, mechanism=item.mechanism.at(item.mechanism.strength * factor)).releases
        for item in plan.items
    ]
    return total_epsilon(releases, plan.budget.delta, plan.neighbours)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_plan_meets_its_budget_and_uses_it(name, epsilon):
    items, delta, neighbours, accountant = PLANS[name]
    plan = calibrate(items, Budget(epsilon, delta), neighbours)
    if name not in ("few picks", "many picks"):  # there the best accountant depends on epsilon
        assert plan.accountant == accountant
    assert plan.spent.epsilon <= epsilon and plan.spent.delta in (0.0, delta)
    slack = 5e-5 if plan.accountant == "pld" else 1e-6
    assert plan.spent.epsilon >= epsilon * (1 - slack)
    assert spent(plan) <= epsilon * (1 + slack)
    assert spent(plan, 2.0) > epsilon * 1.2  # half the noise breaks the budget
    assert spent(plan, 1.001) > epsilon
    assert (plan.total_mu is not None) == (accountant == "gdp")


def test_best_accountant_wins():
    assert calibrate(PLANS["few picks"][0], Budget(1.0, 1e-6)).accountant == "gdp+pure"
    assert calibrate(PLANS["many picks"][0], Budget(1.0, 1e-6)).accountant == "zcdp"


def test_gaussian_plan_is_the_analytic_gaussian():
    plan = calibrate([Item("sum", Gaussian())], Budget(1.0, 1e-6))
    sigma = 1 / plan["sum"].mechanism.strength
    assert sigma == pytest.approx(gaussian_sigma(1.0, 1e-6), rel=1e-9)
    assert sigma == pytest.approx(dp_accounting.get_sigma_gaussian(1.0, 1e-6), rel=1e-6)
    rounds = calibrate([Item("sum", Gaussian(), 100)], Budget(1.0, 1e-6))
    assert 1 / rounds["sum"].mechanism.strength == pytest.approx(10 * sigma, rel=1e-9)
    assert rounds.total_mu == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-9) and rounds.total_mu <= gdp_mu(1.0, 1e-6)
    assert total_rho(rounds) == pytest.approx(rounds.total_mu**2 / 2)
    assert gdp_epsilon(rounds.total_mu, 1e-6) <= 1.0


def test_shares_are_shares_of_mu_squared():
    plan = calibrate([Item("a", Gaussian(), 2, 20), Item("b", Gaussian(), 5, 80)], Budget(1.0, 1e-6))
    mu2 = gdp_mu(1.0, 1e-6) ** 2
    assert 2 * plan["a"].mechanism.strength ** 2 == pytest.approx(0.2 * mu2, rel=1e-9)
    assert 5 * plan["b"].mechanism.strength ** 2 == pytest.approx(0.8 * mu2, rel=1e-9)


def test_shares_of_a_pure_plan_are_shares_of_epsilon():
    plan = calibrate([Item("a", Laplace(), 2, 1), Item("b", ExponentialMechanism(), 1, 3)], Budget(2.0))
    assert plan["a"].mechanism.cost.epsilon == pytest.approx(0.25, rel=1e-9)
    assert plan["b"].mechanism.cost.epsilon == pytest.approx(1.5, rel=1e-9)
    assert plan.spent.delta == 0.0 and plan.guarantee(False).delta == 0.0


def test_pure_sample_is_amplified():
    plan = calibrate([Item("a", Laplace(), sampling=Poisson(0.1))], Budget(1.0), ADD)
    assert plan["a"].mechanism.strength == pytest.approx(math.log(1 + (math.e - 1) / 0.1), rel=1e-9)
    plan = calibrate([Item("a", Laplace(), sampling=Poisson(0.1))], Budget(1.0), REPLACE)
    assert plan["a"].mechanism.strength == pytest.approx(1.0, rel=1e-9)


def test_parallel_folds_cost_the_maximum_and_splits_add():
    budget = Budget(1.0, 1e-6)
    one = calibrate([Item("x", Gaussian())], budget)["x"].mechanism.strength
    folds = calibrate([Item(f"x{i}", Gaussian(), fold=("s", i)) for i in range(5)], budget)
    assert all(item.mechanism.strength == pytest.approx(one, rel=1e-9) for item in folds.items)
    two = calibrate([Item(f"{s}{i}", Gaussian(), fold=(s, i)) for s in "ab" for i in range(3)], budget)
    assert all(item.mechanism.strength == pytest.approx(one / math.sqrt(2), rel=1e-9) for item in two.items)
    uneven = calibrate([Item("x", Gaussian(), 4, 4, fold=("s", 0)), Item("y", Gaussian(), fold=("s", 1))], budget)
    assert uneven.total_mu == pytest.approx(one, rel=1e-9)
    assert uneven["y"].mechanism.strength == pytest.approx(one / 2, rel=1e-9)  # its share, though its rows pay less


def test_folds_of_sampled_plans_compose_in_parallel_too():
    sampling, budget = Poisson(0.05), Budget(1.0, 1e-6)
    one = calibrate([Item("x", Gaussian(), 10, sampling=sampling)], budget)["x"].mechanism.strength
    folds = [Item(f"x{i}", Gaussian(), 10, sampling=sampling, fold=("s", i)) for i in range(3)]
    assert calibrate(folds, budget)["x1"].mechanism.strength == pytest.approx(one, rel=1e-4)


def test_poisson_batches_need_the_published_noise():
    items = [Item("batch", Gaussian(), 200, sampling=Poisson(0.02))]
    plan = calibrate(items, Budget(1.0, 1e-5), REPLACE)
    multiplier = 1 / plan["batch"].mechanism.strength  # noise over replace-one sensitivity, twice the clip
    assert multiplier == pytest.approx(1.06, abs=0.005) and 2 * multiplier == pytest.approx(2.12, abs=0.005)
    event = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(2 * multiplier))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE).compose(event, 200)
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, abs=1e-4)
    fixed = calibrate([Item("batch", Gaussian(), 200, sampling=FixedSize(20, 1000))], Budget(1.0, 1e-5), REPLACE)
    assert 2 / fixed["batch"].mechanism.strength == pytest.approx(3.70, abs=0.01)


@pytest.mark.parametrize(("batch", "noise"), [(1, 0.58), (100, 0.79), (1000, 2.55), (2000, 4.94), (10000, 24.3)])
def test_fixed_size_batches_need_the_published_noise(batch, noise):
    plan = calibrate([Item("b", Gaussian(), 2400, sampling=FixedSize(batch, 100_000))], Budget(1.0, 1e-4))
    assert 1 / plan["b"].mechanism.strength == pytest.approx(noise, rel=0.01)


def test_discrete_gaussian_is_calibrated_by_zcdp():
    plan = calibrate([Item("x", DiscreteGaussian(), 4)], Budget(1.0, 1e-6))
    assert total_rho(plan) == pytest.approx(rho_for(1.0, 1e-6), rel=1e-8) and total_rho(plan) <= rho_for(1.0, 1e-6)
    assert plan.total_mu is None


def test_calibration_of_a_poisson_plan_is_cheap(monkeypatch):
    from dpdist.privacy.accounting import profiles

    calls = []
    pld = profiles._pld
    monkeypatch.setattr(profiles, "_pld", lambda *args: calls.append(1) or pld(*args))
    calibrate([Item("batch", Gaussian(), 200, sampling=Poisson(0.02))], Budget(1.0, 1e-5), REPLACE)
    calibrate([Item("batch", Gaussian(), 2, sampling=Poisson(1e-3))], Budget(0.1, 1e-7), ADD)
    assert len(calls) <= 30


def test_gaussian_plans_do_not_import_the_accounting_library():
    code = (
        "import sys\n"
        "from dpdist.privacy.accounting.calibration import calibrate\n"
        "from dpdist.privacy.accounting.plan import Item\n"
        "from dpdist.privacy.budget import Budget\n"
        "from dpdist.privacy.mechanisms.additive import Gaussian\n"
        "calibrate([Item('x', Gaussian())], Budget(1.0, 1e-6))\n"
        "sys.exit(any(name.startswith('dp_accounting') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_digest_is_deterministic_and_covers_everything():
    def items(count: int = 3, share: float = 1.0, name: str = "x", fold: tuple[str, int] | None = None) -> list[Item]:
        return [Item(name, Gaussian(), count, share, fold=fold), Item("y", Gaussian())]

    budget = Budget(1.0, 1e-6)
    digest = calibrate(items(), budget).digest()
    assert digest == calibrate(items(), budget).digest() and len(digest) == 64
    others = [
        calibrate(items(4), budget),
        calibrate(items(3, 2.0), budget),
        calibrate(items(name="z"), budget),
        calibrate(items(fold=("s", 0)), budget),
        calibrate(items(fold=("s", 1)), budget),
        calibrate(items(), Budget(1.0, 2e-6)),
        calibrate(items(), budget, ADD),
        calibrate([Item("x", DiscreteGaussian(), 3), Item("y", Gaussian())], budget),
        calibrate([Item("x", Gaussian(), 3, sampling=FixedSize(1, 10)), Item("y", Gaussian())], budget),
        calibrate([Item("x", Gaussian(), 3, sampling=FixedSize(10, 100)), Item("y", Gaussian())], budget),
    ]
    assert len({digest, *(plan.digest() for plan in others)}) == len(others) + 1


def test_digest_refuses_what_it_cannot_identify():
    plan = calibrate([Item("x", Gaussian(), fold=(object(), 0))], Budget(1.0, 1e-6))
    with pytest.raises(BudgetError, match="plain public parameters"):
        plan.digest()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Item("x", Gaussian(), 0), "count"),
        (lambda: Item("x", Gaussian(), 1.5), "count"),
        (lambda: Item("x", Gaussian(), True), "count"),
        (lambda: Item("x", Gaussian(), share=0.0), "share"),
        (lambda: Item("x", Gaussian(), share=-1.0), "share"),
        (lambda: Item("x", Gaussian(), share=math.nan), "share"),
        (lambda: Item("x", Gaussian(), share=math.inf), "share"),
        (lambda: Item("", Gaussian()), "name"),
        (lambda: Item("x", Gaussian(), sampling=0.1), "sampling"),
        (lambda: Item("x", Gaussian(), fold="s"), "fold"),
        (lambda: calibrate([], Budget(1.0, 1e-6)), "nothing"),
        (lambda: calibrate([Item("x", Gaussian()), Item("x", Gaussian())], Budget(1.0, 1e-6)), "unique"),
        (lambda: calibrate([Item("x", Gaussian())], Budget(1.0)), "delta > 0"),
        (lambda: calibrate([Item("x", Gaussian(), sampling=FixedSize(1, 9))], Budget(1.0, 1e-6), ADD), "REPLACE_ONE"),
        (lambda: calibrate([Item("x", Gaussian(), sampling=Poisson(1e-7))], Budget(1.0, 1e-5)), "no noise"),
        (lambda: calibrate([Item("x", Gaussian())], Budget(1.0, 1e-6))["y"], "no item"),
    ],
)
def test_errors(make, message):
    with pytest.raises(BudgetError, match=message):
        make()


def test_description_is_json_and_the_table_shows_every_item():
    plan = calibrate(PLANS["poisson and more"][0], Budget(1.0, 1e-6), ADD)
    rows = json.loads(json.dumps(plan.describe()))
    assert [row["name"] for row in rows] == ["batch", "start", "pick"]
    assert rows[0]["sampling"] == "Poisson(rate=0.05)" and rows[2]["cost"] == "bounded-range"
    assert all(name in str(plan) for name in ("batch", "start", "pick", "ExponentialMechanism", "add-or-remove-one"))


# --------------------------------------------------------------------------------------------------- guarantee
def test_guarantee_of_a_gaussian_plan():
    guarantee = calibrate([Item("x", Gaussian(), 31)], Budget(1.0, 1e-6)).guarantee(simulation=False)
    assert guarantee.text == (
        "Replacing all data of any one row by any other changes the probability of any outcome by at most a factor "
        "e^1 = 2.718, up to 1e-06: 31 Gaussian releases with exactly bounded sensitivity compose to mu = 0.2367 "
        "(closed-form Gaussian DP)."
    )
    assert str(guarantee) == guarantee.text
    report = json.loads(json.dumps(guarantee.to_dict()))
    assert report["relation"] == "replace-one" and report["unit"] == "row" and report["simulation"] is False
    assert (report["epsilon"], report["delta"], report["accountant"]) == (guarantee.epsilon, 1e-6, "gdp")
    assert report["text"] == guarantee.text and report["n_releases"] == 31


def test_guarantee_of_other_plans():
    pure = calibrate([Item("x", Laplace())], Budget(0.5), ADD).guarantee(simulation=False, unit="user")
    assert pure.text == (
        "Adding or removing all data of any one user changes the probability of any outcome by at most a factor "
        "e^0.5 = 1.649: 1 Laplace release with exactly bounded sensitivity, composed by adding their epsilons."
    )
    mixed = calibrate(PLANS["many picks"][0], Budget(1.0, 1e-6)).guarantee(simulation=False)
    assert "20 ExponentialMechanism and 20 Gaussian releases" in mixed.text and "zero-concentrated" in mixed.text


def test_simulation_says_that_nothing_holds():
    guarantee = calibrate([Item("x", Gaussian())], Budget(1.0, 1e-6)).guarantee(simulation=True)
    assert "simulation" in guarantee.text and "NO guarantee holds" in guarantee.text and "seed" in guarantee.text
    assert guarantee.epsilon == pytest.approx(1.0) and guarantee.to_dict()["simulation"] is True


def test_the_sentence_never_promises_more_than_the_number():
    text = Guarantee(1.0000004, 1.0000004e-6, REPLACE, "pld", False, n_releases=2).text
    assert "e^1.00001 " in text and "1.00001e-06" in text
    assert "e^1000," in Guarantee(1000.0, 1e-6, REPLACE, "gdp", False).text
