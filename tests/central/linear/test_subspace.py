"""Newton steps in the span of gradients: many features, without a cliff, and never for noise's sake."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.special import expit

from dpdist import Dataset, Ledger, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import SubspaceNewton
from dpdist.constraints import L2Ball
from dpdist.data import Units
from dpdist.errors import BudgetError, MissingBound
from dpdist.privacy.mechanisms.norms import FROBENIUS
from tests.central.linear.test_newton import classes, log_loss
from tests.faults.jobs import at_release, on_file

SIGNS = {"classes": [-1, 1], "delta": 1e-6, "row_norm": 1.0, "cluster": "threads"}
SUBSPACE = {**SIGNS, "solver": "subspace"}


def wide(law, n, d, seed=0):
    """Many columns, of laws that no number of the method was chosen on."""
    rng = np.random.default_rng(seed)
    if law == "groups":  # of ten alike
        X = np.repeat(rng.normal(size=(n, -(-d // 10))), 10, axis=1)[:, :d] + rng.normal(size=(n, d))
    else:  # uncentred, mostly 0
        X = rng.poisson(np.geomspace(2.0, 0.05, d), (n, d)).astype(float)
    X = (X / np.quantile(np.linalg.norm(X, axis=1), 0.9)).astype(np.float32)
    margin = (X - X.mean(axis=0)) @ rng.laplace(size=d).astype(np.float32)
    margin *= 2.0 / margin.std()
    return X, np.where(rng.random(n) < expit(margin), 1, -1)


@pytest.mark.parametrize("law", ["groups", pytest.param("counts", marks=pytest.mark.slow)])
def test_there_is_no_cliff_where_matrices_stop(law):
    """The default of 1001 features is not worse than that of 999 of the same, and both beat a constant."""
    X, y = wide(law, 16_000, 1001)
    for epsilon in (0.3, 3.0):
        losses = {}
        for d in (999, 1001):
            fits = [LogisticRegression(epsilon=epsilon, random_state=s, **SIGNS).fit(X[:, :d], y) for s in range(2)]
            losses[d] = np.mean([log_loss(fit, X[:, :d], y) for fit in fits])
        assert fits[0].solver_ == "subspace" and re.search(r"subspace in 1[12] passes", fits[0].solver_reason_)
        assert losses[1001] < losses[999] + 0.01
        assert losses[1001] < np.log(2) + (0.01 if epsilon < 1 else -0.02)


@pytest.mark.parametrize("law", ["groups", "counts"])
def test_it_beats_gradients_with_a_step_by_the_largest_eigenvalue(law):
    X, y = wide(law, 12_000, 1200)
    ours, plain = (
        LogisticRegression(epsilon=3.0, random_state=0, **SIGNS, solver=s).fit(X, y) for s in ("subspace", "gradient")
    )
    assert log_loss(ours, X, y) < min(log_loss(plain, X, y), np.log(2) - 0.02)


@pytest.mark.parametrize("share", [0.03, 0.4])
@pytest.mark.parametrize("d", [200, 2500])
def test_where_there_is_nothing_to_learn_the_best_constant_remains(share, d):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(4_000, d)) / d**0.5).astype(np.float32)
    y = np.where(rng.random(4_000) < share, 1, -1)
    share = np.mean(y == 1)
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    fits = [LogisticRegression(epsilon=0.2, random_state=s, **SUBSPACE).fit(X, y) for s in range(4)]
    assert np.mean([log_loss(fit, X, y) for fit in fits]) < constant + 0.05


@pytest.mark.parametrize("law", ["factors", "counts", "tails"])
def test_with_few_columns_it_is_near_the_fit_without_privacy_too(law):
    X, y, margin = classes(law)
    best = np.logaddexp(0, -y * margin).mean()
    share = np.mean(y == 1)
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share)) - best
    for times in (1, 3):  # rows three times as long as they may be count less, and are not bent
        fits = [LogisticRegression(epsilon=5.0, random_state=s, **SUBSPACE).fit(times * X, y) for s in range(3)]
        assert np.mean([log_loss(fit, times * X, y) for fit in fits]) - best < 0.05 * constant


def test_the_plan_is_of_matrices_and_of_gradients_whose_first_costs_a_quarter():
    model = LogisticRegression(epsilon=1.0, **SUBSPACE)
    method = model._method_for(100_000, 2500)
    lines = {line.name: line for line in method.lines()}
    assert list(lines) == ["hessian", *(f"gradient {t}" for t in range(1, 7))]
    assert lines["hessian"].mechanism.norm == FROBENIUS and lines["hessian"].count == 6
    assert sum(line.share for line in lines.values()) == pytest.approx(1.0)
    found = model.sensitivities(100_000, 2500)
    length = 1 + 1 / 2500
    assert found["hessian"] == pytest.approx(np.sqrt(2) * length / 4)
    assert found["gradient 2"] == pytest.approx(2 * np.sqrt(length)) == 2 * found["gradient 1"]


def test_the_answer_is_a_function_of_releases_and_public_numbers():
    """Other rows and the same releases: the same directions are asked, and the same answer comes out."""
    X, y = wide("groups", 3_000, 300)
    model = LogisticRegression(epsilon=1.0, random_state=3, **SUBSPACE).fit(X, y)
    method, releases = model._method_for(*X.shape), iter(model.releases_)

    class Replay:
        noise_std = 0.0

        def ask(self, name, state=None, query=None):
            release = next(releases)
            assert release.name == name
            self.noise_std = release.noise_std
            return release.value

        def once(self, name, find):
            return find()

        def visit(self, point):
            return point

    found = method.solve(Replay())["solutions"][0]
    assert np.array_equal(np.ravel(model.coef_), found[:-1])


def test_a_run_that_ends_between_a_gradient_and_its_hessian_goes_on_as_it_was(tmp_path):
    X, y = wide("counts", 2_000, 40)
    named = Dataset.from_arrays(X=X, y=y, dataset_id="survey")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    model = LogisticRegression(epsilon=3.0, **SUBSPACE, run_id="monday", ledger=ledger)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), at_release(3, stop):  # gradient 1, hessian, gradient 2
        model.fit(named)
    before = on_file(tmp_path / "ledger.sqlite")
    assert len(before) == 3
    with at_release(99, stop) as replayed:
        model.fit(named)
    assert [release.name for release in model.releases_][:4] == ["gradient 1", "hessian", "gradient 2", "hessian"]
    assert replayed[:4] == [True] * 3 + [False] and before.items() <= on_file(tmp_path / "ledger.sqlite").items()
    assert ledger.spent("survey").epsilon == pytest.approx(3.0)


def test_each_class_has_directions_of_its_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 4)) / 3
    y = np.argmax(X @ rng.normal(size=(4, 3)) * 4 + rng.gumbel(size=(30_000, 3)), axis=1)
    model = LogisticRegression(epsilon=2.0, random_state=0, **{**SUBSPACE, "classes": [0, 1, 2]}).fit(X, y)
    counts = {item.name: item.count for item in model.plan_.items}
    assert counts["hessian"] == 18 and counts["gradient 1"] == 3 and model.score(X, y) > 0.55


def test_several_rows_of_a_unit_pay_for_all_of_them():
    units = Units("patient", 4, grouped=True)
    model = LogisticRegression(epsilon=1.0, **SUBSPACE)
    assert model.plan(40_000, 500, units) == model.plan(10_000, 500)
    four, one = model.sensitivities(40_000, 500, units), model.sensitivities(10_000, 500)
    assert {name: value / one[name] for name, value in four.items()} == pytest.approx(dict.fromkeys(one, 4))


def test_wild_rows_change_nothing_visible():
    X, y = wide("groups", 2_000, 60)
    model = LogisticRegression(epsilon=1.0, random_state=0, **SUBSPACE)
    plan = model.fit(X, y).plan_
    for value in (np.nan, np.inf, -3e38, 1e-45):
        other = X.copy()
        other[7] = value
        again = LogisticRegression(epsilon=1.0, random_state=0, **SUBSPACE).fit(other, y)
        assert again.plan_ == plan and np.isfinite(again.coef_).all()


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        (LogisticRegression(epsilon=1.0, **SUBSPACE, constraint=L2Ball(1.0)), BudgetError, "leave out the constraint"),
        (LogisticRegression(epsilon=1.0, **SUBSPACE, alpha=0.1, l1_ratio=0.5), BudgetError, "l1_ratio=0"),
        (LogisticRegression(epsilon=1.0, **SUBSPACE, rows="sample"), BudgetError, "rows='sample'"),
        (LinearSVC(epsilon=1.0, **SUBSPACE), BudgetError, "one curvature at 0"),
        (Minimizer("squared", solver=SubspaceNewton(3), epsilon=1.0, delta=1e-6, row_norm=1.0), BudgetError, "two"),
        (LogisticRegression(epsilon=1.0, **{**SUBSPACE, "delta": 0.0}), BudgetError, "delta > 0"),
        (LogisticRegression(epsilon=1.0, **{**SUBSPACE, "row_norm": None}), MissingBound, "row_norm is missing"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_before_a_row_is_read(model, error, says):
    with pytest.raises(error, match=says):
        model.plan(1_000, 3)
