"""Robust regression on scaled rows: what is asked of them, how good the answer is, and what it sees."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpdist import Dataset, Ledger, LinearRegression, Minimizer
from dpdist.central import ClipLabel, RobustNewton, ScaleRows, SufficientStatistics
from dpdist.constraints import ElasticNet, L2Ball
from dpdist.data import Units
from dpdist.errors import BudgetError, MissingBound
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Huber
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import FROBENIUS
from dpdist.queries.scaled_rows import PIECE, NormCounts, ResidualCounts, ScaledGradientSum, ScaledMomentSum
from tests.central.linear.test_newton import Replay
from tests.faults.jobs import at_release, on_file

OPTIONS = {"loss": Huber(1.345), "delta": 1e-6, "second_moment": 0.7, "cluster": "threads"}
TRUNCATED = ("truncate", "smooth-truncate", "trim", "norm")


def table(law, n=20_000, d=10, seed=0):
    """Rows of mean square 1, labels, and what they are without errors; no constant of the method was chosen on them."""
    rng = np.random.default_rng(seed)
    if law == "factors":  # few common causes with long tails, and errors without a mean
        X = rng.lognormal(0, 1, (n, 3)) @ rng.normal(size=(3, d)) + 0.3 * rng.normal(size=(n, d))
        errors = 0.5 * rng.standard_cauchy(n)
    elif law == "scales":  # directions that differ by a factor of 20
        X = (rng.laplace(size=(n, d)) * np.geomspace(1, 0.05, d)) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
        errors = rng.laplace(size=n)
    elif law == "blocks":  # skewed, not centred, blocks of correlated columns
        X = 0.5 * rng.exponential(size=(n, d)) + np.repeat(rng.exponential(size=(n, d // 5)), 5, axis=1)
        errors = 0.6 * rng.standard_t(3, n)
    elif law == "contaminated":  # one label in ten is anything
        X = rng.normal(size=(n, d)) + rng.normal(size=(n, 1))
        errors = np.where(rng.random(n) < 0.1, 50 * rng.choice([-1, 1], n, p=[0.3, 0.7]), 0.7 * rng.normal(size=n))
    else:  # mostly 0
        X = rng.poisson(rng.uniform(0.02, 0.5, d), (n, d)).astype(float)
        errors = 0.6 * rng.logistic(size=n)
    X /= math.sqrt(np.mean(X**2))
    f = X @ rng.normal(size=d)
    f = 1.5 * f / f.std() + 0.5
    return X, f + errors, f


LAWS = ["factors", "scales", "blocks", "contaminated", "counts"]


def error(X, y, f, epsilon=1.0, seed=0, **options):
    """Relative to that of a prediction of 0."""
    model = LinearRegression(**{**OPTIONS, "epsilon": epsilon, "random_state": seed, **options}).fit(X, y)
    return np.mean((model.predict(X) - f) ** 2) / np.mean(f**2)


@pytest.mark.parametrize("law", LAWS)
def test_it_is_better_than_truncated_coordinates_and_gets_better_with_epsilon(law):
    data = table(law)
    errors = {epsilon: np.mean([error(*data, epsilon, s) for s in range(2)]) for epsilon in (0.1, 1.0, 10.0)}
    truncated = [error(*data, solver="gradient", gradient=gradient) for gradient in TRUNCATED]
    assert errors[10.0] < errors[1.0] < errors[0.1] < 0.3
    assert errors[1.0] < 0.01 and errors[1.0] < 0.2 * min(truncated), truncated


@pytest.mark.parametrize("law", LAWS)
def test_squares_without_any_threshold_are_as_good_and_no_guess_makes_them_diverge(law):
    data = table(law)
    errors = [
        error(*data, epsilon, loss="squared", second_moment=guess) for epsilon, guess in ((1.0, 0.7), (0.3, 70.0))
    ]
    assert errors[0] < 0.02 and errors[1] < 0.3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_labels_of_any_size_are_found(scale):
    X, y, f = table("blocks")
    assert error(X, scale * y, scale * f, loss="squared", second_moment=0.7) < 0.02


def test_nothing_that_is_counted_leaves_what_was_stated():
    """Few rows and a small budget: a size that is taken from noise may be anything, and errors its square."""
    data = table("contaminated", 400)
    errors = [error(*data, 0.02, seed, loss="squared", second_moment=0.7) for seed in range(5)]
    assert max(errors) < 5, errors


def test_a_threshold_far_beyond_the_residuals_costs_little():
    """Huber's of 60, or a bound of 60, where residuals are a fortieth: noise as of 60 would be 1600 times as much."""
    data = table("blocks")
    usual = error(*data)
    for options in ({"loss": Huber(60.0)}, {"loss": "squared", "residual_bound": 60.0}):
        assert error(*data, **options) < 20 * usual


@pytest.mark.parametrize("loss", ["squared", Huber(20.0)])
def test_with_more_rows_residuals_are_cut_where_it_was_stated(loss):
    """Of skewed errors the mean is found: with residuals cut at two medians it is .25 off, however many rows."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, size=(100_000, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.exponential(size=len(X)) - 1
    bounds = {"residual_bound": 20.0, "row_norm": 2.0, "delta": 1e-6, "random_state": 0, "gradient": ScaleRows()}
    model = LinearRegression(loss=loss, epsilon=10.0, **bounds).fit(X, y)
    assert abs(model.intercept_) < 0.03 and model.coef_ == pytest.approx([1.0, -1.0, 0.5], abs=0.03)


def test_residuals_are_counted_by_their_size():
    rng = np.random.default_rng(3)
    X, y, w = rng.normal(size=(500, 3)), rng.standard_cauchy(500), np.array([1.0, -2.0, 0.5, 3.0])
    X[0, 0], y[1], X[2], y[3] = np.nan, np.inf, 1e300, 1e308
    counts = ResidualCounts(8.0, 3, 1.2, 0.5).summarise({"X": X, "y": y}, w, None)
    Z, labels = twin(np.delete(X, 2, axis=0), np.delete(y, 2), 1.2, 0.5)
    sizes = np.append(abs(Z @ w - labels), 1.2 / 3**0.5 * abs(w[:3].sum()))
    edges = [np.inf, 8.0, 4.0, 2.0, 1.0]
    assert counts.tolist() == [np.sum((sizes > low) & (sizes <= high)) for high, low in itertools.pairwise(edges)]


@pytest.mark.parametrize("law", LAWS)
def test_more_rows_make_it_better(law):
    few, many = (np.mean([error(*table(law, n), seed=s) for s in range(4)]) for n in (4_000, 40_000))
    assert many < 0.3 * few


@pytest.mark.parametrize("law", LAWS)
def test_it_is_not_worse_than_a_prediction_of_zero_unless_nothing_can_be_told(law):
    """Few rows, little budget, many columns, labels far beyond the threshold; a signal of 2 is little."""
    for n, d, epsilon, threshold in ((500, 10, 0.05, 1.345), (3_000, 50, 0.3, 1.345), (20_000, 10, 3.0, 0.01)):
        data, guess = table(law, n, d), 0.7 * (threshold / 1.345) ** 2
        errors = [error(*data, epsilon, s, loss=Huber(threshold), second_moment=guess) for s in range(5)]
        assert np.mean(errors) < (2.0 if n == 500 else 1.01), errors


def test_the_range_that_is_foreseen_has_the_error():
    """In nine of ten laws and budgets, of half the squared error: Huber's loss is that near its optimum."""
    inside = []
    for law, epsilon in itertools.product(LAWS, (0.1, 0.3)):
        data = table(law, 6_000)
        found = np.mean([error(*data, epsilon, s) for s in range(2)]) * np.mean(data[2] ** 2) / 2
        look = LinearRegression(**OPTIONS, epsilon=epsilon).outlook(*data[0].shape)
        assert look.low < look.predicted_error < look.high
        inside.append(look.low < found < look.high)
    assert sum(inside) >= 9, inside


def test_of_slopes_below_the_noise_little_is_kept():
    """Of a tenth of the threshold: before the releases were asked for their size errors were 7.9 in the mean."""
    errors = []
    for law, seed in itertools.product(LAWS, range(8)):
        X, y, f = table(law, 4_000)
        signal = 0.1 * (f - f.mean()) / f.std()
        bounds = {**OPTIONS, "second_moment": None, "row_norm": 5.0, "epsilon": 0.2, "random_state": seed}
        predicted = LinearRegression(**bounds).fit(X, signal + np.clip(y - f, -3, 3)).predict(X)
        errors.append(np.mean((predicted - predicted.mean() - signal) ** 2) / np.mean(signal**2))
    assert np.mean(errors) < 4


def test_a_guess_that_is_wrong_by_ten_costs_less_than_a_factor_of_two():
    """In the mean of laws and seeds: a single fit varies by as much."""
    data = [table(law) for law in LAWS]

    def mean(guess):
        return math.exp(np.mean([math.log(error(*t, seed=s, second_moment=guess)) for t in data for s in range(2)]))

    right = mean(0.7)
    assert max(mean(7.0), mean(0.07)) < 2 * right


def test_the_answer_is_in_the_units_of_the_data():
    X, y, _ = table("blocks")
    options = {**OPTIONS, "epsilon": 1e4, "random_state": 0}  # noise is drawn anew for other parameters
    model = LinearRegression(**options).fit(X, y)
    scaled = LinearRegression(**{**options, "loss": Huber(1.345 * 64), "second_moment": 0.7 * 64**2 / 16**2})
    scaled.fit(X / 16, y * 64)
    assert scaled.coef_ == pytest.approx(model.coef_ * 16 * 64, abs=2.0)
    assert scaled.intercept_ == pytest.approx(model.intercept_ * 64, abs=0.2)


def twin(X, y, row_norm, constant):
    """Scaled rows, the plain way."""
    good = np.isfinite(X).all(axis=1) & np.isfinite(y)
    Z = np.column_stack([X, np.full(len(X), constant)])[good] if constant else X[good]
    k = row_norm / np.maximum(row_norm, np.linalg.norm(Z, axis=1))
    return Z * k[:, None], y[good] * k


@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_sums_are_those_of_scaled_rows(constant):
    rng = np.random.default_rng(0)
    X, y = rng.standard_t(2, (2 * PIECE + 5, 3)), 5 * rng.normal(size=2 * PIECE + 5)
    X[3], X[4, 1], y[5], X[6] = np.nan, np.inf, np.nan, 0.0
    w = rng.normal(size=3 + (constant > 0))
    gradient = ScaledGradientSum(Huber(1.5), 2.0, 3.0, constant=constant)
    moment = ScaledMomentSum(len(w), 2.0, constant=constant)
    counts = NormCounts(2.0, 5)
    for chosen in (None, np.arange(0, len(X), 2)):
        block, part = {"X": X, "y": y}, slice(None) if chosen is None else chosen
        Z, label = twin(X[part], y[part], 2.0, constant)
        expected = Z.T @ np.clip(Z @ w - label, -1.5, 1.5)
        assert gradient.summarise(block, w, chosen) * gradient.grid == pytest.approx(expected, abs=1e-4)
        matrix = unpack_symmetric(moment.summarise(block, None, chosen) * moment.grid)
        assert matrix == pytest.approx(Z.T @ Z, abs=2e-1)  # rows are truncated before they are multiplied
        norms = np.linalg.norm(X[part], axis=1)
        octaves = [np.sum((norms > 2.0 / 2 ** (j + 1)) & (norms <= 2.0 / 2**j)) for j in range(5)]
        found = counts.summarise(block, None, chosen)
        assert found.tolist() == [np.sum((norms > 2.0) & (norms < np.inf)), *octaves]


def test_rows_in_pieces_of_any_number_have_the_same_sum():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(PIECE + 100, 4)), rng.normal(size=PIECE + 100)
    for query, state in (
        (ScaledGradientSum(Huber(1.0), 1.0, 1.0, constant=0.5), np.ones(5)),
        (ScaledMomentSum(5, 1.0, constant=0.5), None),
        (NormCounts(1.0), None),
        (ResidualCounts(4.0, 20, 1.0, 0.5), np.ones(5)),
    ):
        whole = query.summarise({"X": X, "y": y}, state, None)
        parts = [query.summarise({"X": X[a:b], "y": y[a:b]}, state, None) for a, b in ((0, 7), (7, 7), (7, len(X)))]
        assert np.array_equal(whole, sum(parts))


def test_a_row_that_is_lost_moves_no_other_into_another_count():
    rows = np.random.default_rng(0).normal(size=(40, 9000))
    for row in rows:
        alone, company = (np.sqrt(np.einsum("ij,ij->i", some, some))[0] for some in (row[None], np.array([row, row])))
        query = NormCounts(float(min(alone, company)))  # an edge that only one of the two sums is beyond
        both, one = (query.summarise({"X": X, "y": np.zeros(2)}, None, None) for X in (
            np.array([row, row / 8]), np.array([row, np.full(9000, np.nan)])
        ))  # fmt: skip
        assert np.linalg.norm(both - one) <= query.sensitivity(Neighbours.ADD_OR_REMOVE_ONE)


def test_matrices_are_measured_as_matrices_and_shares_add_up():
    model = LinearRegression(**OPTIONS, epsilon=1.0)
    method = model._method_for(50_000, 6)
    norms, moment, residuals, gradient = lines = method.lines()
    assert moment.mechanism.norm == FROBENIUS and sum(line.share for line in lines) == pytest.approx(1.0)
    assert (norms.count, residuals.count, gradient.count) == (1, 3, 7)
    assert sum(line.count for line in lines) == 12 and model._method_for(5_000, 6).rounds == 8
    assert model.sensitivities(50_000, 6)["row norms"] == pytest.approx(math.sqrt(2))
    fitted = LinearRegression(**OPTIONS, epsilon=1.0, random_state=0).fit(*table("blocks", 2_000)[:2])
    released = {release.name: release for release in fitted.releases_}
    square = released["second moment"].sensitivity / math.sqrt(2)
    assert released["gradient"].sensitivity <= 2 * 1.345 * math.sqrt(square)


def test_many_rounds_leave_gradients_the_most_of_the_budget():
    method = LinearRegression(solver=RobustNewton(400), second_moment=1.0, alpha=0.0, epsilon=1.0, delta=1e-6).decided(
        50_000, 6
    )
    shares = {line.name: line.share for line in method.lines()}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["gradient"] > 0.45 and shares["residuals"] == shares["second moment"]


def test_the_answer_is_a_function_of_releases_and_public_numbers():
    X, y, _ = table("counts", 5_000)
    model = LinearRegression(**OPTIONS, epsilon=1.0, random_state=3).fit(X, y)
    assert (model.solver_, model.gradient_, model.n_iter_) == ("robust-newton", "scale-rows", 8)
    replayed = model._method_for(*X.shape).solve(Replay(model))
    w = replayed["solutions"][0]
    assert np.array_equal(model.coef_, w[:-1]) and model.expected_error_ == replayed["expected_error"]


def test_a_run_that_ends_after_the_norms_goes_on_as_it_was(tmp_path):
    X, y, _ = table("scales", 5_000, 4)
    named = Dataset.from_arrays(X=X, y=y, dataset_id="survey")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    model = LinearRegression(**OPTIONS, epsilon=1.0, run_id="monday", ledger=ledger)

    def stop() -> None:
        raise KeyboardInterrupt

    for reached in (1, 6):  # after the norms; between two gradients
        with pytest.raises(KeyboardInterrupt), at_release(reached, stop) as replayed:
            model.fit(named)
    before = on_file(tmp_path / "ledger.sqlite")
    assert len(before) == 6
    with at_release(99, stop) as replayed:
        model.fit(named)
    assert replayed == [True] * 6 + [False] * 7 and before.items() <= on_file(tmp_path / "ledger.sqlite").items()
    assert ledger.spent("survey").epsilon == pytest.approx(1.0)


def test_wild_numbers_change_nothing_visible():
    X, y, _ = table("factors", 3_000)
    model = LinearRegression(**OPTIONS, epsilon=1.0, random_state=0).fit(X, y)
    for wild in (np.nan, np.inf, -1e308, 5e-324):
        other, labels = X.copy(), y.copy()
        other[7] = labels[8] = wild
        again = LinearRegression(**OPTIONS, epsilon=1.0, random_state=0).fit(other, labels)
        assert again.plan_ == model.plan_ and again.n_iter_ == model.n_iter_
        assert np.isfinite(again.coef_).all()


def test_several_rows_of_a_unit_pay_for_all_of_them():
    units = Units("patient", 4, grouped=True)
    model = LinearRegression(**OPTIONS, epsilon=1.0)
    assert model.plan(40_000, 5, units) == model.plan(10_000, 5)
    assert model.sensitivities(40_000, 5, units)["row norms"] == pytest.approx(
        4 * model.sensitivities(10_000, 5)["row norms"]
    )


def test_one_hot_columns_that_add_up_to_the_constant_work():
    rng = np.random.default_rng(1)
    group, effects = rng.integers(0, 5, 20_000), np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    model = LinearRegression(**OPTIONS, epsilon=1.0, random_state=0)
    model.fit(np.eye(5)[group], effects[group] + rng.standard_t(2, 20_000))
    assert model.predict(np.eye(5)) == pytest.approx(effects, abs=0.15)


def test_a_row_norm_or_a_residual_bound_say_as_much():
    X, y, f = table("counts")
    common = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0, "gradient": ScaleRows()}
    bounded = LinearRegression(loss="huber", row_norm=10.0, **common).fit(X, y)
    cut = LinearRegression(loss="squared", residual_bound=1.345, second_moment=0.7, **common).fit(X, y)
    for model in (bounded, cut):
        assert model.solver_ == "robust-newton"
        assert np.mean((model.predict(X) - f) ** 2) < 0.02 * np.mean(f**2)


def test_a_ridge_penalty_shrinks():
    X, y, _ = table("scales", 5_000)
    lengths = [
        np.linalg.norm(LinearRegression(**OPTIONS, alpha=a, epsilon=10.0, random_state=0).fit(X, y).coef_)
        for a in (0.0, 1.0, 100.0)
    ]
    assert lengths[2] < 0.1 * lengths[1] < 0.1 * lengths[0]


@pytest.mark.parametrize(
    ("more", "exception", "says"),
    [
        ({"constraint": L2Ball(1.0)}, BudgetError, "leave out the constraint"),
        ({"l1_ratio": 0.5, "alpha": 0.1}, BudgetError, "l1_ratio=0"),
        ({"rows": "sample"}, BudgetError, "rows='sample'"),
        ({"delta": 0.0}, BudgetError, "delta > 0"),
        ({"gradient": "truncate"}, BudgetError, "choose one of 'scale-rows'"),
        ({"second_moment": None}, MissingBound, r"second_moment is missing \(or row_norm\)"),
        (
            {"loss": "squared", "second_moment": None, "row_norm": 1.0},
            MissingBound,
            r"second_moment is missing \(or residual_bound\)",
        ),
        ({"loss": "biweight"}, BudgetError, "for Huber's loss"),
        ({"loss": Huber(1e50), "row_norm": 1e50, "second_moment": None}, BudgetError, "sums too small or too large"),
        ({"loss": Huber(1e-50), "row_norm": 1e-10, "second_moment": None}, BudgetError, "sums too small or too large"),
        ({"loss": "squared", "row_norm": 1e-40}, BudgetError, "sums too small or too large"),
        ({"solver": SufficientStatistics(), "loss": "squared", "row_norm": 1e40, "gradient": ClipLabel(1e40),
          "second_moment": None}, BudgetError, "sums too small or too large"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_before_a_row_is_read(more, exception, says):
    with pytest.raises(exception, match=says):
        LinearRegression(**{**OPTIONS, "epsilon": 1.0, "solver": "robust-newton", **more}).plan(1_000, 3)


def test_predictions_are_near_what_happens():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 10))
    f = X @ rng.normal(size=10) / 2 + 0.3
    model = Minimizer("huber", ElasticNet(0.0), second_moment=0.7, epsilon=0.5, delta=1e-6, solver=RobustNewton())
    measured, stated = [], []
    for seed in range(6):
        y = f + rng.normal(size=len(X))
        fit = model.set_params(random_state=seed).fit(X, y)
        measured.append(np.mean((fit.predict(X) - f) ** 2) / 2)
        stated.append(fit.expected_error_)
    look = model.outlook(*X.shape)
    assert look.low < np.mean(measured) < look.high and 1 / 3 < np.mean(stated) / np.mean(measured) < 3
