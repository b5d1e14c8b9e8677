"""The filter: its steps, what it says of its own errors, and that it sees releases only."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from dpdist.central.linear.loss_curvature import loss_curvature
from dpdist.losses import Logistic
from dpdist.solvers.filtered_newton import Noisy, filtered_newton, updated_hessian, whole_hessian
from dpdist.solvers.loops import drive
from dpdist.solvers.margins import Curvature

ROUNDS = ["gradient", *["hessian"] * 4, *["gradient"] * 3]


def rows(n=4000, d=6, seed=0):
    rng = np.random.default_rng(seed)
    Z = np.column_stack([rng.normal(size=(n, d)) @ np.diag(0.9 ** np.arange(d)) / 3, np.full(n, 0.3)])
    y = np.where(rng.random(n) < expit(Z[:, :d] @ rng.normal(0.0, 2.5, d) + 0.5), 1.0, -1.0)
    return Z, y


def solve(Z, y, noise, rng=None, rounds=ROUNDS, ridge=0.0, sized=False, asked=None):
    """The filter with exact answers and Gaussian noise of that size; ``asked`` gets the points of its questions."""
    rng = rng or np.random.default_rng(1)
    d = Z.shape[1]

    def matrix(exact):
        E = np.triu(rng.normal(0.0, noise, (d, d)), 1)
        return Noisy(exact + E + E.T + np.diag(rng.normal(0.0, np.sqrt(2) * noise, d)), np.sqrt(2) * noise)

    def answer(question):
        u = Z @ question.point
        if asked is not None:
            asked.append(question.point)
        if question.kind == "gradient":
            return Noisy(-Z.T @ (y * expit(-y * u)) + rng.normal(0.0, noise, d), noise)
        weights = expit(u) * expit(-u)
        if question.kind == "hessian":
            return matrix((Z * weights[:, None]).T @ Z)
        return Noisy(np.array([weights.sum() + rng.normal(0.0, noise)]), noise)

    loop = filtered_newton(
        matrix(Z.T @ Z), loss_curvature(Logistic()), n_rows=len(Z), row_norm=1.0, constant=float(Z[0, -1]),
        ridge=ridge, rounds=rounds, signal=1e3, sized=sized,
    )  # fmt: skip
    return drive(loop, answer)


def minimiser(Z, y, ridge=0.0):
    slopes = np.r_[np.ones(Z.shape[1] - 1), 0.0]

    def objective(w):
        value = np.logaddexp(0, -y * (Z @ w)).sum() + ridge / 2 * slopes @ w**2
        return value, -Z.T @ (y * expit(-y * (Z @ w))) + ridge * slopes * w

    return minimize(objective, np.zeros(Z.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-6})


@pytest.mark.parametrize("ridge", [0.0, 40.0])
def test_without_noise_it_is_newton_s_method(ridge):
    Z, y = rows()
    found, best = solve(Z, y, 1e-6, ridge=ridge), minimiser(Z, y, ridge)
    assert found.point == pytest.approx(best.x, abs=2e-3)
    assert found.last_step < 1e-2 and found.excess < 1e-2


@pytest.mark.parametrize("margin", [1.0, 3.0])
def test_the_first_step_goes_as_far_as_large_margins_ask(margin):
    """For normal rows to the minimiser but for what rows differ by; Newton's step makes margins of 1.6 at most."""
    rng, n, d = np.random.default_rng(3), 20_000, 6
    Z = np.column_stack([rng.normal(size=(n, d)) / 3, np.full(n, 0.3)])
    w = rng.normal(size=d)
    y = np.where(rng.random(n) < expit(Z[:, :d] @ w * (3 * margin / np.linalg.norm(w)) + 0.3), 1.0, -1.0)
    points, best = [], minimiser(Z, y).x
    solve(Z, y, 1e-3, asked=points)
    assert np.std(Z @ (points[1] - best)) < 0.15 * margin


def test_gradients_of_many_rounds_are_as_good_as_one():
    """Noise that is small against the way: all but the first rounds count, and what is stated of it is true."""
    Z, y = rows(n=10_000)
    best, noise = minimiser(Z, y).x, 3.0
    runs = [solve(Z, y, noise, np.random.default_rng(seed)) for seed in range(40)]
    u = Z @ best
    hessian = (Z * (expit(u) * expit(-u))[:, None]).T @ Z
    one = noise**2 * np.trace(np.linalg.inv(hessian))
    lost = np.mean([(run.point - best) @ hessian @ (run.point - best) for run in runs])
    stated = np.mean([np.sum(hessian * run.noise) for run in runs])
    assert lost < one / 3 and 0.7 < stated / lost < 1.4, (
        lost / one,
        stated / one,
    )  # eight gradients, five of them near


def test_the_mean_curvature_will_do_with_more_rounds():
    Z, y = rows()
    found = solve(Z, y, 1e-6, rounds=["gradient", *["curvature"] * 25])
    assert found.point == pytest.approx(minimiser(Z, y).x, abs=5e-2)


def test_the_spread_it_states_is_the_spread_there_is():
    Z, y = rows()
    best, noise = minimiser(Z, y), 6.0
    runs = [solve(Z, y, noise, np.random.default_rng(seed)) for seed in range(150)]
    off = np.array([run.point - best.x for run in runs])
    H = runs[0].hessian
    measured = np.mean([v @ H @ v for v in off - off.mean(axis=0)])
    stated = np.mean([np.sum(run.hessian * run.noise) for run in runs])
    assert 0.6 < measured / stated < 1.6
    assert np.mean([run.excess for run in runs]) > 0.3 * np.mean([v @ H @ v for v in off]) / 2


@pytest.mark.parametrize("noise", [1e-9, 1e-3, 1.0])
def test_copies_of_a_column_and_next_to_no_noise_leave_everything_solvable(noise):
    Z, y = rows(n=3000)
    Z[:, 1] = Z[:, 0]
    Z[:, 2] = 0.0
    found = solve(Z, y, noise)
    assert np.isfinite(found.point).all() and np.isfinite(found.excess)
    best = minimiser(Z, y, ridge=1e-6).fun
    assert np.logaddexp(0, -y * (Z @ found.point)).sum() < best + 1 + 40 * noise


def test_noise_without_signal_moves_nothing_far():
    """Wilder noise than there are rows: the answer stays at the prior's scale whatever is drawn."""
    Z, y = rows(n=200)
    for seed in range(20):
        found = solve(Z, y, 1e5, np.random.default_rng(seed))
        assert np.sqrt(np.mean((Z @ found.point) ** 2)) < 30


def test_sizes_that_are_asked_at_the_end_keep_a_signal_and_leave_noise():
    Z, y = rows()
    noisy, clear = (solve(Z, y, noise, rounds=["gradient"] * 4, sized=True) for noise in (1e3, 0.1))
    plain = solve(Z, y, 1e3, rounds=["gradient"] * 4)
    assert clear.point == pytest.approx(solve(Z, y, 0.1, rounds=["gradient"] * 4).point, abs=1e-3)
    assert np.linalg.norm(noisy.point[:-1]) < 0.5 * np.linalg.norm(plain.point[:-1])
    for found in (noisy, clear):  # by the Hessian that the steps were made with
        assert all(map(np.allclose, found.left_by(found.hessian), (found.noise, found.shrinkage)))


def test_what_shrinkage_costs_is_never_stated_as_more_than_there_is_to_gain():
    """The noise of the second moment makes rows seem long; the start at 0 costs log 2 a row, whatever they are."""
    rng, d = np.random.default_rng(0), 80
    Z, y = np.column_stack([rng.normal(size=(500, d)) / 20, np.full(500, 0.1)]), rng.choice([-1.0, 1.0], 500)
    runs = [solve(Z, y, 30.0, np.random.default_rng(s), rounds=["gradient", *["curvature"] * 5]) for s in range(5)]
    assert max(run.excess / len(Z) for run in runs) < 2 * np.log(2)


@pytest.mark.parametrize("length", [0.25, 0.33, 0.4])
def test_directions_that_a_reused_moment_hides_do_not_grow_from_round_to_round(length):
    """Short rows in many dimensions: their curvature is below the edge of the noise, and every round errs alike."""
    rng, n, d = np.random.default_rng(4), 20_000, 150
    Z = rng.normal(size=(n, d + 1)) * length / np.sqrt(d)
    Z[:, -1] = 1 / np.sqrt(d)
    y = np.where(rng.random(n) < expit(Z[:, :d] @ rng.normal(0.0, 2 / length, d)), 1.0, -1.0)
    losses = []
    for seed in range(3):
        point = solve(Z, y, 15.0, np.random.default_rng(seed), rounds=["gradient", *["curvature"] * 5]).point
        losses.append(np.logaddexp(0, -y * (Z @ point)).mean())
    assert np.mean(losses) < np.log(2)


def test_a_hessian_of_pure_noise_changes_a_former_one_little():
    rng, d, noise = np.random.default_rng(2), 60, 1.0
    before = 100 * np.eye(d)
    E = np.triu(rng.normal(0.0, noise, (d, d)), 1)
    std = np.sqrt(2) * noise
    found = updated_hessian(Noisy(before, 1e-9), Noisy(50 * np.eye(d) + E + E.T, std))
    assert np.linalg.norm(whole_hessian(found) - 50 * np.eye(d)) < 0.5 * np.linalg.norm(E + E.T)
    assert (
        np.linalg.eigvalsh(whole_hessian(updated_hessian(Noisy(before, 1e-9), Noisy(-1e6 * np.eye(d), std)))).min() > 0
    )


@pytest.mark.parametrize("change", [0.0, 0.3])
def test_what_noise_hides_of_hessians_is_the_mean_of_all_releases(change):
    """Each release alone has more noise than the hidden curvature; from round to round it must not sink towards 0."""
    rng, d, noise = np.random.default_rng(5), 12, 1.0
    shown, hidden, off = np.array([400.0, 60.0]), np.full(d - 2, 2.0), []
    for _ in range(20):
        known = None
        for number in range(5):
            E = rng.normal(0.0, noise, (d, d))
            truth = np.diag(np.concatenate([shown * (1 - change * (number > 0)), hidden]))
            released = Noisy(truth + (E + E.T) / np.sqrt(2), np.sqrt(2) * noise)
            known = released if known is None else updated_hessian(known, released)
        found = whole_hessian(known)
        off.append(found - truth)
        assert 0.5 * hidden.sum() < np.trace(found[2:, 2:]) < 1.7 * hidden.sum()
    off = np.array(off)
    assert np.sqrt(np.mean(off[:, 2:, 2:] ** 2)) < 0.6 * noise and np.abs(off[:, 0, 0]).mean() < 2 * noise


def test_linearised_margins_saturate_and_are_inverted():
    curvature = loss_curvature(Logistic())
    assert curvature.at_zero == 0.25
    assert curvature.average(0.0) == pytest.approx(0.25) and curvature.average(3.0) < 0.12
    for margins in (0.1, 1.0, 2.5):
        assert curvature.margins(curvature.linearised(margins)) == pytest.approx(margins, rel=1e-2)
    assert curvature.margins(1e9) < 8 and Curvature(1.0, lambda s: 1.0).margins(3.0) == pytest.approx(3.0)
