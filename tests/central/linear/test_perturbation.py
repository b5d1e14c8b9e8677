"""Output and objective perturbation: what is refused, exact solutions, noise as planned, audits, accuracy."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from dpdist import Dataset, Ledger, LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import ClipNorm
from dpdist.constraints import ElasticNet, L2Ball
from dpdist.engine.coordinator import Coordinator
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.outlook import nobody_asks
from dpdist.losses import Biweight, Huber, Logistic
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms import additive as mechanisms
from dpdist.privacy.mechanisms.objective_perturbation import ObjectivePerturbation
from dpdist.problems.linear_problems import logit
from dpdist.queries.minimizers import Minimum, Objective, PerturbedMinimum
from tests.central.linear.objects import objects

SURE = 1 - 1e-6
ADD = {"neighbours": "add-or-remove-one", "n_public": 20_000}
pytestmark = pytest.mark.filterwarnings("ignore:delta = .* is not below")


@pytest.fixture(scope="module")
def data():
    return logit(20_000, 5, random_state=0)[0]


def fit(data, solver, seed=0, **options):
    common = {"classes": [0, 1], "epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "alpha": 1e-2, "cluster": "threads"}
    common["ledger"] = Ledger(":memory:")  # of one relation each
    return LogisticRegression(random_state=seed, **objects(solver=solver, **{**common, **options})).fit(data)


def exact(data, ridge, intercept=0.0, term=0.0):
    """The minimiser of ``sum l + ridge/2 |w|^2 + <term, w>`` by L-BFGS."""
    rows = data.read(0, data.n_rows)
    X, y = rows["X"], 2.0 * rows["y"] - 1
    X = np.column_stack([X, np.full(len(X), intercept)]) if intercept else X

    def objective(w):
        gradient = Logistic().derivative(X @ w, y) @ X + ridge * w + term
        value = np.logaddexp(0, -y * (X @ w)).sum() + ridge / 2 * w @ w + np.sum(term * w)
        return value / len(X), gradient / len(X)

    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 500}
    return minimize(objective, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options).x


# ---------------------------------------------------------------------------------------------- what is released
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("options", [{}, ADD], ids=["replace", "add"])
def test_output_is_the_exact_minimiser_with_the_planned_noise(data, options, fit_intercept):
    """Over 12 seeds the standardised errors have mean square 1 to within 5 standard deviations."""
    models = [fit(data, "output", seed, fit_intercept=fit_intercept, **options) for seed in range(12)]
    intercept = 1 / math.sqrt(5) if fit_intercept else 0.0
    w = exact(data, 200.0, intercept)
    released = np.array([model.releases_[-1].value for model in models])
    errors = (released - w) / models[0].releases_[-1].noise_std
    assert np.mean(errors**2) == pytest.approx(1, abs=5 * math.sqrt(2 / errors.size))
    exact_part = (1 if options else 2) * math.hypot(1, intercept) / 200
    assert exact_part < models[0].releases_[-1].sensitivity < 1.02 * exact_part
    assert np.allclose(models[0].coef_[0], released[0][:5])
    assert models[0].solver_ == "output" and models[0].n_iter_ > 30 and models[0].history_ == []


@pytest.mark.parametrize("options", [{}, ADD], ids=["replace", "add"])
def test_objective_moves_the_minimiser_by_the_planned_term(data, options):
    """``-(gradient + D w)`` at the released point is the linear term, up to the noise of the approximate minimum."""
    models = [fit(data, "objective", seed, fit_intercept=False, alpha=1e-3, **options) for seed in range(12)]
    mechanism = models[0].plan_["minimum"].mechanism
    rows = data.read(0, data.n_rows)
    X, y = rows["X"], 2.0 * rows["y"] - 1
    terms = [
        -(Logistic().derivative(X @ w, y) @ X + mechanism.regularisation * w) / mechanism.term_std
        for w in (model.coef_[0] for model in models)
    ]
    assert np.mean(np.square(terms)) == pytest.approx(1, abs=5 * math.sqrt(2 / np.size(terms)))
    assert mechanism.shift == (1.0 if options else 2.0)
    assert mechanism.regularisation == pytest.approx(20.0)


def test_a_bound_may_be_a_number_of_numpy(data):
    """What failed in the draw, after the charge, where the bound makes the constant feature."""
    for solver in ("output", "objective"):
        found = [fit(data, solver, row_norm=kind(1.0), n_rounds=20).coef_ for kind in (float, np.float64)]
        assert np.array_equal(*found)


def test_the_same_release_however_the_rows_are_stored(data):
    rows = data.read(0, data.n_rows)
    arrays = {"X": rows["X"], "y": rows["y"]}
    for solver in ("output", "objective"):
        released = [
            fit(Dataset.from_arrays(**arrays, partition_rows=size), solver, n_rounds=20).coef_ for size in (777, 20_000)
        ]
        assert np.array_equal(*released)


def test_fewer_rounds_cost_noise_and_not_privacy(data):
    patient = fit(data, "output", fit_intercept=False)
    hasty = fit(data, "output", fit_intercept=False, n_rounds=8)
    assert hasty.n_iter_ == hasty.plan_["minimum"].passes == 8
    assert hasty.releases_[-1].noise_std > 1.5 * patient.releases_[-1].noise_std
    start = hasty.releases_[-1].sensitivity / 2 - 1 / 200  # twice the tolerance, for zeta/D = 2/200
    assert np.linalg.norm(exact(data, 200.0)) > 0 and start > 1e-3


def test_the_end_point_is_within_its_tolerance(data):
    """Un-noised, straight from the query: within a tenth of the tolerance, which is for the worst dataset."""
    objective = Objective(Logistic(), 1.0, 5, 20_000, 20.0)
    rows = data.read(0, data.n_rows)
    block = {"X": rows["X"], "y": 2.0 * rows["y"] - 1}
    for n_rounds, query in [(n, Minimum(objective, n)) for n in (100, 300)]:
        end = query.explore(lambda w, q=query: q.summarise(block, w, None), None, None, None)
        tolerance = objective.tolerance(n_rounds)
        assert np.linalg.norm(end - exact(data, 20.0)) <= tolerance + 1e-8
        assert tolerance < {100: 0.1, 300: 1e-5}[n_rounds]


def test_rows_beyond_the_declared_number_do_not_count():
    rng = np.random.default_rng(0)
    block = {"X": rng.normal(size=(50, 3)), "y": rng.choice([-1.0, 1.0], 50)}
    query = Minimum(Objective(Logistic(), 1.0, 3, 30, 1.0), 10)
    head = {name: rows[:30] for name, rows in block.items()}
    w = np.ones(3)
    assert np.array_equal(query.summarise(block, w, None), query.summarise(head, w, None))
    assert not query.summarise_at(30, block, w, None).any()
    with_all = replace(query, objective=replace(query.objective, n_rows=50))
    assert not np.array_equal(with_all.summarise(block, w, None), query.summarise(head, w, None))


def test_an_understated_n_public_only_changes_the_penalty(data):
    """The solver's rounds are for the rows that there are, not for the number that the sum is divided by."""
    model = fit(data, "output", fit_intercept=False, n_public=2_000)
    query_noise = model.releases_[-1].sensitivity
    assert query_noise > 2 / 20 * 1.005  # the tolerance is that of 20 000 rows with the rounds for 2 000
    errors = (model.coef_[0] - exact(data, 20.0)) / model.releases_[-1].noise_std
    assert np.abs(errors).max() < 6


# ---------------------------------------------------------------------------------------------- several classes
def test_classes_share_the_budget():
    data, _ = logit(3_000, 4, random_state=1)
    rows = data.read(0, 3_000)
    y = rows["y"].astype(int) + (rows["X"][:, 0] > 0.5)
    for solver in ("output", "objective"):
        model = LogisticRegression(
            classes=[0, 1, 2], solver=solver, epsilon=3.0, delta=1e-5, row_norm=1.0, alpha=0.1, random_state=0,
            cluster="threads",
        ).fit(rows["X"], y)  # fmt: skip
        assert model.coef_.shape == (3, 4) and len(model.releases_) == 3
        mechanism = model.plan_["minimum"].mechanism
        if solver == "objective":
            assert mechanism.cost.parameter == pytest.approx(1.0, rel=1e-6)
            assert mechanism.cost.delta == pytest.approx(1e-5 / 3) and model.plan_.accountant == "basic"
        else:
            assert mechanism.strength == pytest.approx(gdp_mu(3.0, 1e-5) / math.sqrt(3))
        assert model.guarantee_.epsilon <= 3.0 and model.guarantee_.delta <= 1e-5


# ---------------------------------------------------------------------------------------------- refusals
BAD = {
    "clip": ({"gradient": ClipNorm(0.5)}, BudgetError, "clip_norm=0.5"),
    "constraint": ({"constraint": L2Ball(1.0)}, BudgetError, "constraint"),
    "lasso": ({"l1_ratio": 0.5}, BudgetError, "l1_ratio=0"),
    "no row norm": ({"row_norm": None}, MissingBound, "row_norm"),
    "delta": ({"delta": 0.0}, BudgetError, "delta > 0"),
    "sample": ({"rows": "sample"}, BudgetError, "rows="),
}


@pytest.mark.parametrize("solver", ["output", "objective"])
@pytest.mark.parametrize("case", BAD)
def test_refused(solver, case):
    options, error, message = BAD[case]
    common = {"classes": [0, 1], "epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "alpha": 1e-2}
    with pytest.raises(error, match=message):
        LogisticRegression(solver=solver, **{**common, **options}).plan(1000, 3)


def test_refused_losses_and_penalties():
    common = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0}
    with pytest.raises(BudgetError, match="alpha > 0"):
        LogisticRegression(classes=[0, 1], solver="output", alpha=0.0, **common).plan(1000, 3)
    LogisticRegression(classes=[0, 1], solver="objective", alpha=0.0, **common).plan(1000, 3)
    for solver in ("output", "objective"):
        with pytest.raises(MissingBound, match="huber"):
            LinearRegression(solver=solver, gradient=ClipNorm(1.0), **common).plan(1000, 3)
        with pytest.raises(BudgetError, match="convex"):
            Minimizer(Biweight(), ElasticNet(0.1), solver=solver, **common).plan(1000, 3)
    # a clip that never acts is no clip
    LogisticRegression(classes=[0, 1], solver="output", gradient=ClipNorm(2.0), **common).plan(1000, 3)


def test_units_with_several_rows():
    """Their linear terms would have to hide all rows of a unit at once."""
    dataset = Dataset.from_arrays(X=np.ones((4, 1)), y=np.zeros(4), unit="user", max_rows_per_unit=2)
    coordinator = Coordinator(dataset, Budget(1.0, 1e-6), arrays={}, ledger=Ledger(":memory:"))
    with coordinator, pytest.raises(BudgetError, match="several rows"):
        coordinator.plan([Item("minimum", ObjectivePerturbation(1e-7, 1.0, 1.0, 0.0))])


def test_the_query_and_its_mechanism_belong_together():
    mechanism = ObjectivePerturbation(1e-6, 1.0, 0.25, 10.0, strength=1.0)
    objective = Objective(Logistic(), 1.0, 3, 100, 10.0)
    query = PerturbedMinimum(objective, 10, None, mechanism)
    with pytest.raises(BudgetError, match="add-or-remove-one"):
        query.sensitivity(Neighbours.ADD_OR_REMOVE_ONE)
    with pytest.raises(BudgetError, match="another one"):
        query.explore(lambda w: np.zeros(6), None, mechanism.at(2.0), None)
    for wrong in (
        replace(query, mechanism=replace(mechanism, lipschitz=0.5)),
        replace(query, mechanism=replace(mechanism, curvature=0.1)),
        replace(query, objective=replace(objective, ridge=5.0)),
        replace(query, mechanism=None),
    ):
        with pytest.raises(BudgetError, match="bounds of the objective"):
            wrong.sensitivity(Neighbours.REPLACE_ONE)


def test_too_many_rows_for_the_penalty():
    with pytest.raises(BudgetError, match="larger penalty"):
        Minimum(Objective(Huber(), 1.0, 3, 10**9, 1e-3), 10**5).sensitivity(Neighbours.REPLACE_ONE)


# ---------------------------------------------------------------------------------------------- planning
@pytest.mark.parametrize("solver", ["output", "objective"])
def test_outlook_is_about_what_comes_out(data, solver):
    """On rows that are equally long in all directions: right to a factor of 3, or inside of the range (8 seeds)."""
    options = {"fit_intercept": False, "alpha": 1e-2}
    w = exact(data, 200.0)
    rows = data.read(0, data.n_rows)
    X, y = rows["X"], 2.0 * rows["y"] - 1

    def value(w):
        return np.logaddexp(0, -y * (X @ w)).mean() + 5e-3 * w @ w

    models = [fit(data, solver, seed, **options) for seed in range(8)]
    gap = np.mean([value(model.coef_[0]) for model in models]) - value(w)
    look = models[0].outlook(20_000, 5)
    if solver == "objective":  # what the penalty costs is in the range

        def loss(w):
            return value(w) - 5e-3 * w @ w

        gap = np.mean([loss(model.coef_[0]) for model in models]) - loss(exact(data, 1e-3))
        assert look.low < gap < look.high
    else:
        assert look.predicted_error / 3 < gap < 3 * look.predicted_error
    sensitivities = models[0].sensitivities(20_000, 5)
    assert sensitivities["minimum"] == pytest.approx(models[0].releases_[-1].sensitivity, rel=1e-9)


def test_output_warns_where_it_is_useless():
    model = LogisticRegression(classes=[0, 1], solver="output", alpha=1e-4, epsilon=0.1, delta=1e-6, row_norm=1.0)
    assert model.outlook(10_000, 20).warnings


def test_rounds_grow_with_the_square_root_of_the_condition():
    common = {"classes": [0, 1], "epsilon": 1.0, "delta": 1e-5, "row_norm": 1.0, "fit_intercept": False}

    def rounds(n, alpha):
        model = LogisticRegression(solver="objective", alpha=alpha, **common)
        return model._method_for(n, 50).n_rounds

    assert 800 < rounds(10**5, 1e-4) < 950
    assert 70 < rounds(10**5, 1e-2) < 100
    assert rounds(10**6, 1e-4) < 1.3 * rounds(10**5, 1e-4)
    output = LogisticRegression(solver="output", alpha=1e-2, **common)._method_for(10**5, 50)
    assert 55 < output.n_rounds < 90


# ---------------------------------------------------------------------------------------------- audits
EPSILON, DELTA, N_RUNS = 8.0, 1e-2, 300

FAR = ObjectivePerturbation(DELTA, 1.345, 1.0, 1.0).at(EPSILON)
CONSTANT = FAR.shift / FAR.term_std


def released(label, seed, **options):
    """Huber fit to the single row (1, label): its gradient is the whole clip, of the label's sign. Seeded."""
    options = objects(**{"solver": "output", "alpha": 1.0, "n_rounds": 12, **options})
    with nobody_asks():
        model = LinearRegression(
            loss="huber", row_norm=1.0, fit_intercept=False, cluster="threads", epsilon=EPSILON, delta=DELTA,
            random_state=seed, **options,
        ).fit(np.ones((1, 1)), np.array([label]))  # fmt: skip
    return float(model.coef_[0])


def audit(**options):
    seeds = itertools.count()  # no two runs share noise
    run = lambda label: released(label, next(seeds), **options)  # noqa: E731
    return audit_two_point(lambda: run(-1e9), lambda: run(1e9), N_RUNS, DELTA, SURE)


def test_passes_that_nobody_would_wait_for_are_refused_at_once():
    model = LinearSVC(classes=[0, 1], row_norm=1e9, alpha=1e-12, epsilon=1e4, delta=1e-6, solver="objective")
    with pytest.raises(BudgetError, match=r"more than 100000 passes .* Take a larger alpha, or solver='gradient'"):
        model.plan(50, 4)


def test_audit_of_output_perturbation():
    result = audit()
    claimed = gdp_mu(EPSILON, DELTA)
    assert 0.3 * claimed < result.mu_lower <= claimed


def test_audit_of_objective_perturbation():
    """Where gradients are constant the exact minimiser is Gaussian with mu = zeta/sigma; output noise hides more."""
    result = audit(solver="objective")
    assert result.epsilon_lower <= EPSILON
    assert 0.3 * CONSTANT < result.mu_lower <= CONSTANT


@pytest.mark.parametrize("solver", ["output", "objective"])
def test_a_quarter_of_the_noise_is_caught(monkeypatch, solver):
    noise = mechanisms.Gaussian._noise
    monkeypatch.setattr(mechanisms.Gaussian, "_noise", lambda self, scale, *rest: noise(self, scale / 4, *rest))
    term = ObjectivePerturbation.linear_term
    monkeypatch.setattr(ObjectivePerturbation, "linear_term", lambda self, *rest: term(self, *rest) / 4)
    assert audit(solver=solver).mu_lower > {"output": gdp_mu(EPSILON, DELTA), "objective": CONSTANT}[solver]


# ---------------------------------------------------------------------------------------------- accuracy
def test_smoothed_hinge_and_huber_fits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) / 2
    signs = np.where(X @ [2.0, -1.0, 0.5] > 0, 1, 0)
    common = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "random_state": 0, "cluster": "threads", "alpha": 1e-2}
    for solver in ("output", "objective"):
        assert LinearSVC(classes=[0, 1], solver=solver, **common).fit(X, signs).score(X, signs) > 0.95
        y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_t(2, size=len(X))
        model = LinearRegression(loss=Huber(0.5), solver=solver, **common).fit(X, y)
        assert np.linalg.norm(model.coef_ - [1.0, -2.0, 0.5]) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "alpha", "band"), [("objective", 1e-4, 1.8e-4), ("output", 1e-2, 3.5e-5)])
def test_published_bands(monkeypatch, solver, alpha, band):
    """logit50 (seed 000, section 3.1) with the defaults: the mean gap of 5 seeds."""
    from tests.central.linear import test_utility

    monkeypatch.setattr(test_utility, "ALPHA", alpha)
    problem = test_utility.Problem()
    gaps = [problem.gap(problem.fit(seed, solver=solver, fit_intercept=seed % 2 == 0)) for seed in range(6)]
    print(f"{solver}, alpha={alpha}: mean gap {np.mean(gaps):.2e}, band {band:.1e}")
    assert 0.02 * band < np.mean(gaps) <= band


@pytest.mark.parametrize(
    ("model", "n", "fits"),
    [
        (LinearRegression(loss="huber", epsilon=1.0), 10**5, 10**4),
        (LinearSVC(classes=[0, 1], epsilon=1.0), 10**6, 10**4),
        (LogisticRegression(classes=[0, 1], alpha=1e-6, epsilon=10.0), 10**5, 10**3),
    ],
)
def test_a_tolerance_that_would_dominate_the_noise_is_refused(model, n, fits):
    model.set_params(solver="objective", delta=1e-6, row_norm=1.0)
    with pytest.raises(BudgetError, match=r"takes .* times the noise of the linear term .* take alpha=") as refused:
        model.plan(n, 20)
    assert model.plan(fits, 20).n_releases == 1
    enough = float(re.search(r"alpha=([0-9.e-]+) or more", str(refused.value)).group(1))
    assert model.set_params(alpha=2 * enough).plan(n, 20).n_releases == 1, "what is advised works"


def test_more_rows_do_not_make_what_a_plan_adds_larger():
    """For every penalty that is not refused: the noise of a coefficient falls, or stays within what rounds add."""
    for model in (LinearRegression(loss="huber"), LinearSVC(classes=[0, 1]), LogisticRegression(classes=[0, 1])):
        model.set_params(solver="objective", delta=1e-6, row_norm=1.0, epsilon=1.0, alpha=1e-3)
        stds = []
        for n in (10**3, 10**4, 10**5):
            method = model._method_for(n, 10)
            mechanism = method.lines()[0].mechanism.at(1.0)
            stds.append(mechanism.term_std / (method.curvature * n + mechanism.regularisation) * (1 + method._slack()))
        assert stds == sorted(stds, reverse=True)
