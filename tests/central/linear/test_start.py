"""Where a loop begins, and which of its points is returned."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

from dpdist import Dataset, Ledger, LogisticRegression, Minimizer
from dpdist.central import (
    SVRG,
    AcceleratedGradient,
    AcceleratedMirror,
    ClipNorm,
    FrankWolfe,
    GradientDescent,
    HardThresholding,
    HeavyBall,
    Katyusha,
    MirrorDescent,
    PerturbedObjective,
    PerturbedOutput,
    SaddleEscape,
    Sample,
    SVRGPlusPlus,
    Truncate,
    TrustRegion,
)
from dpdist.constraints import Box, ElasticNet, GemanMcClure, L1Ball, L2Ball, Quartic, Simplex
from dpdist.errors import BudgetError, LedgerError
from dpdist.losses import Logistic, NegativeSquare
from dpdist.method import Oracle
from tests.processes import PROCESSES

N, D = 3000, 3
rng = np.random.default_rng(0)
X = rng.normal(size=(N, D)) / 2
Y = np.where(X @ [2.0, -1.0, 0.0] + 0.3 > 0, 1, -1)
SEEDED = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "random_state": 0, "cluster": "threads"}
EXACT = {**SEEDED, "epsilon": 1e8, "delta": 0.1}

START = (0.25, 0.125, 0.0, 0.1)
WITH_START = {
    "gradient": (GradientDescent, {}),
    "sampled": (GradientDescent, {"rows": Sample(0.1)}),
    "damped": (GradientDescent, {"gradient": Truncate(1.0), "feature_bound": 3.0, "row_norm": None}),
    "clipped": (GradientDescent, {"second_moment": 1.0}),
    "trimmed": (GradientDescent, {"gradient": "trim", "second_moment": 1.0}),
    "in a set": (GradientDescent, {"constraint": L1Ball(0.375)}),
    "accelerated": (AcceleratedGradient, {}),
    "svrg": (SVRG, {}),
    "svrg++": (SVRGPlusPlus, {}),
    "katyusha": (Katyusha, {}),
    "mirror, l1": (MirrorDescent, {"constraint": L1Ball(2.0)}),
    "mirror, l2": (AcceleratedMirror, {"constraint": L2Ball(2.0)}),
    "vertices": (FrankWolfe, {"constraint": L1Ball(2.0), "feature_bound": 1.0, "row_norm": None}),
    "peeling": (
        lambda **k: HardThresholding(n_nonzero=3, **k),
        {"gradient": "residual", "feature_bound": 1.0, "row_norm": None},
    ),
    "thresholding": (lambda **k: HardThresholding(n_nonzero=3, **k), {"gradient": "norm"}),
}


def refused(match, make, *data):
    """The same error from `plan`, which has no rows to read, and from `fit`, which then charges nothing."""
    with pytest.raises(BudgetError, match=match):
        make().plan(N, D)
    ledger, dataset = Ledger(":memory:"), Dataset.from_arrays(X=X, y=Y, dataset_id="rows")
    with pytest.raises(BudgetError, match=match):
        make().set_params(ledger=ledger).fit(dataset)
    assert not ledger.history("rows")


# -- where it begins --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_START)
def test_the_first_question_is_asked_at_the_start(name):
    solver, options = WITH_START[name]
    model = Minimizer(solver=solver(start=START), **{**SEEDED, **options}).fit(X, Y)
    size = (options.get("feature_bound") or 1.0) / (1.0 if "feature_bound" in options else np.sqrt(D))
    np.testing.assert_allclose(model.history_[0], [*START[:D], START[D] / size], rtol=1e-12, atol=1e-15)
    asked = Minimizer(solver=solver(), **{**SEEDED, **options}).fit(X, Y)
    assert not np.array_equal(model.history_[1], asked.history_[1])


@pytest.mark.parametrize("name", [name for name in WITH_START if name != "clipped"])
def test_zero_is_where_it_begins_otherwise(name):
    solver, options = WITH_START[name]
    given, usual = (Minimizer(solver=s, **{**SEEDED, **options}).fit(X, Y) for s in (solver(start=[0] * 4), solver()))
    assert np.array_equal(given.coef_, usual.coef_) and given.intercept_ == usual.intercept_


def test_a_fit_goes_on_where_another_one_ended():
    half, whole = (Minimizer(solver=GradientDescent(n, 2.0), **EXACT) for n in (4, 8))
    half.fit(X, Y)
    rest = Minimizer(solver=GradientDescent(4, 2.0, start=[*half.coef_, half.intercept_]), **EXACT).fit(X, Y)
    whole.fit(X, Y)
    np.testing.assert_allclose(rest.coef_, whole.coef_, atol=1e-5)
    assert rest.intercept_ == pytest.approx(whole.intercept_, abs=1e-5)
    assert abs(half.coef_ - whole.coef_).max() > 0.1


def test_all_classes_begin_there():
    y = np.digitize(X[:, 0], [-0.3, 0.3])
    solver = GradientDescent(2, start=START)
    model = LogisticRegression(classes=[0, 1, 2], solver=solver, fit_intercept=False, **SEEDED)
    with pytest.raises(BudgetError, match=r"start must have 3 numbers.*no intercept.*got 4"):
        model.fit(X, y)
    model.set_params(solver__start=START[:D]).fit(X, y)
    assert all(np.array_equal(model.history_[2 * t], START[:D]) for t in range(3))


@pytest.mark.parametrize("solver", [MirrorDescent, AcceleratedMirror])
@pytest.mark.parametrize("constraint", [L1Ball(2.0), L2Ball(2.0), Simplex(0.375)], ids=repr)
def test_mirror_steps_from_elsewhere_find_the_same_minimum(solver, constraint):
    start = (0.125, 0.125, 0.125, 0.5)
    near, usual = (
        Minimizer(solver=solver(400, start=s), constraint=constraint, **EXACT).fit(X, Y) for s in (start, None)
    )
    np.testing.assert_allclose(near.history_[0][:D], start[:D], atol=1e-12)

    def loss(model):
        return float(np.mean(Logistic().value(X @ model.coef_ + model.intercept_, Y)))

    assert loss(near) == pytest.approx(loss(usual), abs=3e-3)


# -- what is wrong with a start ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "match"),
    [
        ([1.0, np.nan], "start must be a list of finite numbers.*got nan at position 1"),
        ([np.inf, 1.0], "got inf at position 0"),
        ([1e300], "up to 1e60.*got 1e.300 at position 0"),
        ([[1.0, 2.0]], r"got an array of shape \(1, 2\)"),
        ([], r"got \[\]|shape"),
        (3.0, "got 3.0"),
        ("zero", "got 'zero'"),
        ([True, False], r"got \[True, False\]"),
        ([[1.0], [1.0, 2.0]], "different lengths"),
        (np.array([1 + 2j]), "start must be a list"),
    ],
    ids=repr,
)
def test_what_is_no_vector_is_refused_when_the_solver_is_made(start, match):
    for solver in (GradientDescent, SVRG, FrankWolfe):
        with pytest.raises(BudgetError, match=match):
            solver(start=start)


@pytest.mark.parametrize(
    ("solver", "options", "match"),
    [
        (GradientDescent(start=[1.0]), {}, "start must have 4 numbers.*3 coefficients, the intercept last, got 1"),
        (SVRG(start=[1.0] * 5), {}, "start must have 4 numbers.*got 5"),
        (
            GradientDescent(start=[3.0, 4.0, 0.0, 9.0]),
            {"constraint": L2Ball(1.0)},
            r"start=\[3, 4, 0, 9\] is outside of the constraint, 4 from L2Ball\(radius=1.0\): begin at a point",
        ),
        (GradientDescent(start=[1e60, 0, 0, 0]), {"constraint": L2Ball(1.0)}, "outside of the constraint"),
        (AcceleratedGradient(start=START), {"constraint": Box(-0.1, 0.1)}, "outside of the constraint, 0.152"),
        (Katyusha(start=START), {"constraint": L1Ball(0.3)}, "outside of the constraint"),
        (MirrorDescent(start=START), {"constraint": L1Ball(0.3)}, "outside of the constraint"),
        (MirrorDescent(start=START), {"constraint": L1Ball(0.375)}, "never leave the border.*Begin inside of the set"),
        (MirrorDescent(start=START), {"constraint": Simplex(0.375)}, "never leave the border"),
        (
            FrankWolfe(start=START),
            {"constraint": L1Ball(0.4), "feature_bound": 1.0},
            "outside of the constraint",  # where the weight of the constant feature belongs to the set
        ),
        (FrankWolfe(start=START), {"constraint": Simplex(1.0), "feature_bound": 1.0}, "outside of the constraint"),
        (
            HardThresholding(n_nonzero=2, start=START),
            {"feature_bound": 1.0},
            r"start=\[0.25, 0.125, 0, 0.1\] has 3 numbers that are not 0, and n_nonzero=2: keep the largest",
        ),
    ],
)
def test_a_start_that_does_not_fit_the_problem_is_refused_for_free(solver, options, match):
    refused(match, lambda: Minimizer(solver=solver, **{**SEEDED, **options}))


def test_a_set_of_ones_own_may_have_one_start_only():
    class Own(L2Ball):
        def mirror(self, size):
            from dataclasses import replace

            return replace(super().mirror(size), at=None)

    refused("one start, its own", lambda: Minimizer(solver=MirrorDescent(start=START), constraint=Own(1.0), **SEEDED))


@pytest.mark.parametrize("solver", [PerturbedObjective, PerturbedOutput])
def test_one_release_of_a_minimiser_begins_nowhere(solver):
    with pytest.raises(BudgetError, match=r"start=\[0.0\] has nothing to begin.*Leave start out, or"):
        solver(start=[0.0])
    with pytest.raises(TypeError, match="has no parameter 'clip_norm'"):
        solver(clip_norm=1.0)
    with pytest.raises(BudgetError, match=r"has no parameter 'start'; it belongs to.*GradientDescent"):
        Minimizer(solver=solver()).set_params(solver__start=[0.0])
    with pytest.raises(BudgetError, match=r"start.*belongs to"):
        Minimizer().set_params(solver__start=[0.0])


# -- as a parameter ---------------------------------------------------------------------------------------------------


def test_start_is_a_parameter_as_others_are():
    model = Minimizer(solver=GradientDescent(start=np.array(START)), **SEEDED)
    assert model.get_params()["solver__start"] == START
    assert model.set_params(solver__start=[1, 2, 3, 4]).solver == GradientDescent(start=(1.0, 2.0, 3.0, 4.0))
    assert clone(model).get_params() == model.get_params() and hash(model.solver) == hash(clone(model).solver)
    assert eval(repr(model.solver)) == model.solver
    assert model.set_params(solver__start=None).solver == GradientDescent()


def test_a_run_id_with_another_start_is_refused():
    ledger, data = Ledger(":memory:"), Dataset.from_arrays(X=X, y=Y)
    asked = {**SEEDED, "ledger": ledger, "run_id": "a"}
    first = Minimizer(solver=GradientDescent(start=START), **asked).fit(data)
    again = Minimizer(solver=GradientDescent(start=START), **asked).fit(data)
    assert np.array_equal(first.coef_, again.coef_)
    for other in ((0.5, *START[1:]), None):
        with pytest.raises(LedgerError, match="different plan"):
            Minimizer(solver=GradientDescent(start=other), **asked).fit(data)


# -- which point is returned ------------------------------------------------------------------------------------------


def returned(model):
    """The number of the point of the history that was returned."""
    found = [i for i, w in enumerate(model.history_) if np.array_equal(w[:D], model.coef_)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    "options",
    [
        {"solver": GradientDescent(12, combine="random")},
        {"solver": GradientDescent(12, combine="random"), "rows": Sample(0.2)},
        {"solver": GradientDescent(12, combine="random", start=START)},
        {"solver": GradientDescent(12, combine="random"), "gradient": Truncate(1.0)},
        {
            "solver": FrankWolfe(12, combine="random"),
            "constraint": L1Ball(2.0),
            "feature_bound": 1.0,
            "row_norm": None,
        },
    ],
)
def test_random_is_one_of_the_points_at_which_it_asked(options):
    seen = {returned(Minimizer(**{**SEEDED, "random_state": s, **options}).fit(X, Y)) for s in range(8)}
    assert len(seen) > 2 and max(seen) < 12
    again = {returned(Minimizer(**{**SEEDED, "random_state": s, **options}).fit(X[:2000], Y[:2000])) for s in range(8)}
    assert len(again) > 2


def test_every_point_is_as_likely_and_the_rows_have_no_say():
    ledger, counts = Ledger(":memory:"), np.zeros(4)
    model = Minimizer(solver=GradientDescent(4, combine="random"), **{**SEEDED, "random_state": None}, ledger=ledger)
    for i in range(120):
        few = X[i : i + 20]
        data = Dataset.from_arrays(X=few, y=Y[:20], dataset_id="a")
        number = returned(clone(model).set_params(run_id=f"a{i}").fit(data))
        counts[number] += 1
        if i < 3:
            others = Dataset.from_arrays(X=-few, y=-Y[:20], dataset_id="a")
            alike = clone(model).set_params(ledger=Ledger(":memory:"), run_id=f"a{i}").fit(others)
            assert returned(alike) == number
    assert counts.min() >= 8  # one of four fair numbers is below that with probability 1.4e-7


def test_min_noisy_has_the_smallest_released_gradient():
    model = Minimizer(solver=GradientDescent(15, 4.0, combine="min-noisy"), fit_intercept=False, **SEEDED).fit(X, Y)
    gradients = [release.value for release in model.releases_ if release.name == "gradient"]
    assert returned(model) == int(np.argmin([np.linalg.norm(g) for g in gradients])) > 0


def test_min_noisy_in_a_set_has_the_smallest_gradient_mapping():
    ball, step = L2Ball(0.5), 4.0
    model = Minimizer(
        "logistic", None, ball, solver=GradientDescent(15, step, combine="min-noisy"), fit_intercept=False, **SEEDED
    ).fit(X, Y)
    gradients = [release.value / N for release in model.releases_ if release.name == "gradient"]
    moves = [np.linalg.norm(w - ball.project(w - step * g)) for w, g in zip(model.history_, gradients, strict=True)]
    assert returned(model) == int(np.argmin(moves)) != int(np.argmin([np.linalg.norm(g) for g in gradients]))


def test_momentum_returns_points_of_the_set():
    for combine in ("random", "min-noisy"):
        for seed in range(4):
            solver = AcceleratedGradient(10, combine=combine)
            model = Minimizer(constraint=L2Ball(0.5), solver=solver, **{**SEEDED, "random_state": seed}).fit(X, Y)
            assert np.linalg.norm(model.coef_) <= 0.5 + 1e-12


IN_A_SET = {
    "gradient": GradientDescent(2, combine="random"),
    "smallest": GradientDescent(1, combine="min-noisy"),
    "certified": GradientDescent(3, certify="local-minimum"),
    "momentum": HeavyBall(2, combine="random"),
    "accelerated": AcceleratedGradient(2, combine="random"),
    "saddle escape": SaddleEscape(2),
    "trust region": TrustRegion(1),
    "frank-wolfe": FrankWolfe(2, combine="random"),
}


@pytest.mark.parametrize("solver", IN_A_SET)
def test_a_set_without_0_holds_what_is_returned(solver):
    """Whose start may be the answer: the first random iterate, or the last point of a short descent."""
    box = Box(0.5, 2.0)
    options = {**SEEDED, "fit_intercept": False, "constraint": box, "gradient": ClipNorm(), "solver": IN_A_SET[solver]}
    asked, seen = Oracle.visit, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Oracle, "visit", lambda self, w: seen.append(np.array(w)) or asked(self, w))
        for seed in range(4):
            model = Minimizer("sigmoid", **{**options, "random_state": seed}).fit(X[:300], Y[:300])
            assert np.array_equal(box.project(model.coef_), model.coef_)
    assert np.array_equal(seen[0], [0.5] * D) and all(np.array_equal(box.project(w), w) for w in seen)


def test_vertices_tell_no_gradient():
    with pytest.raises(BudgetError, match=r"min-noisy.*FrankWolfe releases which vertex.*use 'last'"):
        FrankWolfe(combine="min-noisy")
    with pytest.raises(BudgetError, match="'random', 'min-noisy'"):
        GradientDescent(combine="best")


def fit_until_killed(folder, run_id, dies_after, here):
    """In a process of its own: says which number was drawn, and dies in the middle of the run."""
    drawn, ask = Oracle.drawn, Oracle.ask
    asked = []

    def telling(self, name, n):
        number = drawn(self, name, n)
        here.send((number, len(asked)))
        return number

    def dying(self, name, *rest):
        if len(asked) == dies_after:
            os.kill(os.getpid(), 9)
        asked.append(name)
        return ask(self, name, *rest)

    Oracle.drawn, Oracle.ask = telling, dying
    here.send(list(random_fit(folder, run_id).coef_))


def random_fit(folder, run_id):
    ledger = Ledger(folder / "ledger.sqlite")
    solver = GradientDescent(40, combine="random")
    options = {**SEEDED, "random_state": None, "ledger": ledger, "run_id": run_id}
    model = Minimizer(solver=solver, **options).fit(Dataset.open(folder / "rows.zarr"))
    ledger.close()
    return model


def test_a_run_that_was_killed_returns_the_point_that_it_would_have(tmp_path):
    Dataset.from_arrays(tmp_path / "rows.zarr", X=X, y=Y)
    numbers = []
    for i, dies_after in enumerate((0, 1, 7)):
        here, there = PROCESSES.Pipe()
        life = PROCESSES.Process(target=fit_until_killed, args=(tmp_path, f"run-{i}", dies_after, there))
        life.start()
        number, already = here.recv()
        life.join()
        assert life.exitcode == -9 and already == 0, "drawn before anything is asked, and killed"
        model = random_fit(tmp_path, f"run-{i}")
        assert returned(model) == number
        numbers.append(number)
    assert len(set(numbers)) > 1


# -- smooth penalties -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "loss"), [(GradientDescent(400, start=[0.0] * D), "logistic"), ("auto", "sigmoid")])
def test_the_gradient_of_a_smooth_penalty_is_added_after_the_release(solver, loss):
    penalty = GemanMcClure(0.05)
    options = {**EXACT, "fit_intercept": False}
    y = np.where(np.arange(N) % 4 == 0, -Y, Y)  # not separable, so that the minimum is near
    model = Minimizer(loss, penalty, solver=solver, **options).fit(X, y)
    without = Minimizer(loss, solver="gradient" if solver == "auto" else solver, **options).fit(X, y)
    assert model.solver_ == "gradient" and model.plan_ == without.plan_
    for ours, theirs in zip(model.releases_[:2], without.releases_[:2], strict=True):
        assert np.array_equal(ours.value, theirs.value)  # the first gradient is asked at the same point
    if solver == "auto":
        return
    clipped = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]

    def objective(w):
        return float(np.mean(Logistic().value(clipped @ w, y))) + penalty.value(w)

    best = minimize(objective, model.coef_, tol=1e-10)
    assert np.linalg.norm(model.coef_ - best.x) < 0.02 and np.linalg.norm(model.coef_ - without.coef_) > 0.3


def test_robust_gradients_take_smooth_penalties_and_shorter_steps():
    options = {**SEEDED, "gradient": Truncate(1.0), "feature_bound": 3.0, "row_norm": None}
    plain, pulled = (Minimizer("logistic", p, **options).fit(X, Y) for p in (None, GemanMcClure(3.0)))
    assert np.linalg.norm(pulled.coef_) < 0.5 * np.linalg.norm(plain.coef_)
    assert pulled._method_for(N, D).step < plain._method_for(N, D).step / 5


def test_a_saddle_is_left_from_where_a_fit_begins():
    scales = np.array([1.0, 0.3, 0.1])
    rows = np.random.default_rng(1).normal(size=(20_000, D)) * scales
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    options = {**SEEDED, "fit_intercept": False, "constraint": L2Ball(1.0), "gradient": ClipNorm(1.0)}
    solver = GradientDescent(40, 0.5, start=[0.0, 0.01, 0.0])
    model = Minimizer(NegativeSquare(), Quartic(1.0), solver=solver, **options)
    model.fit(rows, np.zeros(len(rows)))
    value, vector = np.linalg.eigh(rows.T @ rows / len(rows))
    assert abs(model.coef_ @ vector[:, -1]) == pytest.approx(np.sqrt(value[-1]), rel=0.02)


class NoPenalty:
    """Has a value, and no way to use it."""

    def value(self, w):
        return 0.0


class Unbounded(GemanMcClure):
    curvature_range = (0.0, np.inf)


@pytest.mark.parametrize(
    ("penalty", "options", "match"),
    [
        (NoPenalty(), {}, "penalty must have a proximal step.*or be smooth.*got <.*NoPenalty"),
        (L2Ball(1.0), {}, r"penalty must have a proximal step.*got L2Ball\(radius=1.0\)"),
        (GemanMcClure, {}, "penalty must have a proximal step"),
        (Unbounded(1.0), {}, "curvature_range must be two finite numbers.*inf"),
        (
            Quartic(1.0),
            {},
            r"Quartic\(alpha=1.0, radius=1.0\) knows its curvature on the ball.*L2Ball\(1\)",
        ),
        (Quartic(1.0), {"constraint": L2Ball(2.0)}, "does not keep the coefficients there"),
        (Quartic(1.0), {"gradient": Truncate(1.0)}, "does not keep the coefficients there"),
        *[
            (
                GemanMcClure(0.1),
                options,
                r"needs a penalty with a proximal step.*GemanMcClure\(alpha=0.1\).*use solver='gradient'",
            )
            for options in (
                {"solver": "accelerated"},
                {"solver": "svrg"},
                {"solver": "svrg++"},
                {"solver": "katyusha"},
                {"solver": "mirror", "constraint": L1Ball(1.0)},
                {"solver": "frank-wolfe", "constraint": L1Ball(1.0), "feature_bound": 1.0},
                {"solver": HardThresholding(n_nonzero=2)},
                {"solver": "objective"},
                {"solver": "output"},
            )
        ],
    ],
)
def test_penalties_that_a_solver_cannot_use_are_refused_for_free(penalty, options, match):
    refused(match, lambda: Minimizer("logistic", penalty, **{**SEEDED, **options}))


def test_a_proximal_penalty_takes_its_proximal_step_even_if_it_has_a_gradient():
    class Both(ElasticNet):
        tag = "Both"

        curvature_range = (1.0, 1.0)

        def gradient(self, w):
            raise AssertionError("nobody asks")

        def hessian(self, w):
            raise AssertionError("nobody asks")

    penalties = (Both(0.1), ElasticNet(0.1))
    both, usual = (Minimizer("logistic", p, solver="gradient", **SEEDED).fit(X, Y) for p in penalties)
    assert np.array_equal(both.coef_, usual.coef_)
