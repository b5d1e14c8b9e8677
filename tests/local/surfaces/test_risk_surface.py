"""Surfaces of losses from one report of every user, and their minimisers."""

from __future__ import annotations

import itertools
import warnings
from math import comb

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from dpdist import Dataset, Ledger
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.identity import tagged
from dpdist.local import RiskSurface, Survey, aggregate, encode
from dpdist.local.statistics.loss_cells import LossCells
from dpdist.local.surfaces.risk_surface import REPORTERS, CodingSurface
from dpdist.local.surfaces.surface_losses import (
    LOSSES,
    AbsoluteLoss,
    CustomLoss,
    LogisticSurface,
    QuantileLoss,
    WelschLocation,
)
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.problems.catalog import PROBLEMS
from dpdist.solvers.bernstein import (
    averaged_bernstein,
    bernstein_basis,
    bernstein_coefficients,
    bernstein_gradient,
    bernstein_value,
    minimise_bernstein,
)

rng = np.random.default_rng(0)


@tagged("bowl")
def bowl(w, X):
    return ((X - w) ** 2).sum(axis=1)


def fitted(X, y=None, loss="welsch", seed=0, **options):
    options = {"low": 0.0, "high": 1.0, "epsilon": 1.0, "ledger": Ledger(":memory:"), "random_state": seed, **options}
    return RiskSurface(loss, **options).fit(*([X] if y is None else [X, y]))


# -- the polynomial -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4, 16])
def test_the_basis_is_a_partition_and_that_of_the_definition(k):
    t = np.linspace(0, 1, 23)
    basis = bernstein_basis(k, t)
    np.testing.assert_allclose(basis.sum(axis=1), 1, atol=1e-13)
    for v in range(k + 1):
        np.testing.assert_allclose(basis[:, v], comb(k, v) * t**v * (1 - t) ** (k - v), atol=1e-13)


@pytest.mark.parametrize("h", [1, 2, 4, 8])
def test_iterates_are_those_of_the_alternating_sum(h):
    """``sum_{i=1}^h C(h, i) (-1)^(i-1) B^(i-1)``, the form of the source."""
    k = 6
    values = rng.normal(size=k + 1)
    B = bernstein_basis(k, np.arange(k + 1) / k)
    expected = sum(comb(h, i) * (-1) ** (i - 1) * np.linalg.matrix_power(B, i - 1) for i in range(1, h + 1)) @ values
    np.testing.assert_allclose(bernstein_coefficients(values, h), expected, atol=1e-10)


@pytest.mark.parametrize("h", [1, 2, 4, 8])
def test_polynomials_of_the_first_degree_are_their_own_surfaces(h):
    cells = 0.3 + np.add.outer(np.arange(5) / 4, -2 * np.arange(5) / 4)
    points = rng.random((20, 2))
    found = bernstein_value(bernstein_coefficients(cells, h), points)
    np.testing.assert_allclose(found, 0.3 + points @ [1.0, -2.0], atol=1e-12)


def test_errors_of_smooth_functions_fall_with_the_order():
    def smooth(t):
        return np.exp(-((t - 0.4) ** 2) / 0.2)

    t = np.linspace(0, 1, 101)[:, None]
    errors = [np.abs(bernstein_value(bernstein_coefficients(smooth(np.arange(11) / 10), h), t) - smooth(t[:, 0])).max()
              for h in (1, 2, 4, 8)]  # fmt: skip
    assert all(later < earlier / 1.5 for earlier, later in itertools.pairwise(errors)) and errors[-1] < 3e-3


@pytest.mark.parametrize("shape", [(5,), (4, 6), (3, 4, 5)])
def test_values_gradients_and_minima_in_several_parameters(shape):
    c, p = rng.normal(size=shape), len(shape)
    points = rng.random((20, p))
    for point, value in zip(points, bernstein_value(c, points), strict=True):
        bases = [bernstein_basis(size - 1, t) for size, t in zip(shape, point, strict=True)]
        direct = sum(c[v] * np.prod([b[i] for b, i in zip(bases, v, strict=True)]) for v in np.ndindex(*shape))
        assert abs(value - direct) < 1e-12
        steps = np.eye(p) * 1e-6
        slopes = [
            (bernstein_value(c, (point + e)[None])[0] - bernstein_value(c, (point - e)[None])[0]) / 2e-6 for e in steps
        ]
        np.testing.assert_allclose(bernstein_gradient(c, point), slopes, atol=1e-6)
    dense = np.array(list(itertools.product(np.linspace(0, 1, 40), repeat=p)))
    best = minimise_bernstein(c)
    assert ((best >= 0) & (best <= 1)).all()
    assert bernstein_value(c, best[None])[0] <= bernstein_value(c, dense).min() + 1e-9
    assert np.abs(minimise_bernstein(c, ridge=1e9) - 0.5).max() < 1e-6


# -- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [WelschLocation(0.3), AbsoluteLoss(), QuantileLoss(0.8), LogisticSurface(2.0), CustomLoss(bowl, 0.0, 3.0)],
    ids=lambda loss: loss.name,
)
def test_values_are_the_losses_at_the_cells_and_stay_in_the_range(loss):
    statistic = LossCells(loss, 2, -1.0, 2.0, degree=3)
    X, y = rng.normal(size=(60, 2)) * 3, rng.integers(0, 2, 60).astype(float)
    X[0], X[1, 0], X[2] = np.nan, np.inf, 1e200
    block = {"X": X, "y": y}
    values = statistic.values(block)
    assert values.shape == (60, 16) and (np.abs(values) <= 1).all() and not values[:2].any()
    smallest, largest = loss.bounds(-1.0, 2.0, 2)
    axis = [-1.0, 0.0, 1.0, 2.0]
    for cell, w in enumerate(itertools.product(axis, repeat=2)):
        for i in range(3, 60):
            x, W = X[i : i + 1], np.array([w])
            direct = float(np.clip(loss(W, x, y[i : i + 1] if loss.labelled else None)[0], smallest, largest))
            assert abs(statistic.restore(values[i, cell]) - direct) < 1e-9
    few = rng.integers(0, 16, (60, 2))
    np.testing.assert_array_equal(statistic.values_at(block, few), np.take_along_axis(values, few, axis=1))


def test_bounds_of_losses_hold_in_the_whole_box():
    X = rng.normal(size=(2000, 3))
    for loss, rows in (
        (QuantileLoss(0.9), np.clip(X, -1, 2)),
        (AbsoluteLoss(), np.clip(X, -1, 2)),
        (LogisticSurface(1.5), X * 10),
        (WelschLocation(0.1), X),
    ):
        w, y = rng.uniform(-1, 2, (2000, 3)), rng.integers(0, 2, 2000)
        values = loss(w, rows, y)
        smallest, largest = loss.bounds(-1.0, 2.0, 3)
        assert smallest <= values.min() and values.max() <= largest * (1 + 1e-12)


@pytest.mark.parametrize("reporter", ["auto", "one-bit"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_any_two_losses_give_any_report_with_nearly_the_same_chance(reporter, epsilon):
    randomiser = RiskSurface(low=0.0, high=1.0, reporter=reporter, epsilon=epsilon).decided(10**6, 2).randomiser
    law = randomiser.law
    odds = (law.signs - law.least) / law.least if law.signs else 1.0
    if law.outside:
        odds = max(odds, law.inside / law.outside)
    assert odds**randomiser.k <= np.exp(epsilon)


def test_the_printed_one_bit_report_is_caught():
    """Seed 000, Algorithm 5.1.32: with a public y a bit of chance ``exp(eps (|y| - |y - v|)) / 2``, at eps = ln 2."""
    epsilon = np.log(2) * (1 - 1e-9)

    def chance(v, y):
        return np.exp(epsilon * (abs(y) - abs(y - v))) / 2

    assert (1 - chance(0.0, 1.5)) / (1 - chance(1.0, 1.5)) > 1e6, "a bit of 0 all but rules out a loss of 1"


@pytest.mark.parametrize(
    "n, p, epsilon, degree",
    [(10**4, 1, 1.0, 4), (10**4, 1, 0.3, 3), (3 * 10**4, 2, 1.0, 4), (600, 1, 1.0, 2), (800, 2, 1.0, 1),
     (10**9, 1, 8.0, 16)],
)  # fmt: skip
def test_the_degree_follows_public_numbers_and_leaves_enough_users_to_a_cell(n, p, epsilon, degree):
    assert RiskSurface(low=0.0, high=1.0, epsilon=epsilon).decided(n, p).degree == degree
    assert n >= 200 * (degree + 1) ** p


# -- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "n, p, band, seeds",
    [(30_000, 2, 0.006, 5), (10_000, 1, 0.0017, 5), (300_000, 3, 0.016, 2),
     pytest.param(300_000, 3, 0.016, 5, marks=pytest.mark.slow)],
)  # fmt: skip
def test_excess_risks_are_in_their_bands(n, p, band, seeds):
    errors = []
    for seed in range(seeds):
        generated = PROBLEMS["two-clusters"].generate({"n": n, "d": p, "random_state": seed})
        model = fitted(generated.dataset, loss=WelschLocation(0.35), seed=seed)
        errors.append(generated.metric(model).error(model))
    assert np.mean(errors) <= band and generated.metric(model).trivial() > 0.02


def test_cells_are_unbiased_and_their_error_as_stated():
    """16 cells within 5 standard errors: fails by chance with 1e-5, and the seed is fixed."""
    X = rng.random((200_000, 2))
    model = fitted(X, degree=3, order=1, seed=2)
    statistic = model.decided(*X.shape).statistic
    exact = statistic.restore(statistic.values({"X": X[:50_000]}).mean(axis=0)).reshape(4, 4)
    z = (model.surface_ - exact) / model.cell_std_
    assert np.abs(z).max() < 5 and 0.5 < np.sqrt(np.mean(z**2)) < 1.5


def test_medians_and_quantiles_of_columns():
    X = np.column_stack([rng.beta(2, 5, 200_000), rng.beta(5, 2, 200_000)])
    for q, loss in ((0.5, QuantileLoss()), (0.75, QuantileLoss(0.75)), (0.5, "absolute")):
        model = fitted(X, loss=loss, epsilon=4.0)
        assert np.abs(model.coef_ - np.quantile(X, q, axis=0)).max() < 0.1
    assert abs(model.minimum_ - np.abs(X - np.median(X, axis=0)).sum(axis=1).mean()) < 0.03, "the mean distance"


def test_a_logistic_fit_points_to_the_truth():
    X = rng.normal(size=(100_000, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.random(100_000) < 1 / (1 + np.exp(-X @ [2.0, -1.0]))
    model = fitted(X, y.astype(float), loss="logistic", low=-3.0, high=3.0, epsilon=4.0)
    assert (
        np.abs(model.coef_ - [2.0, -1.0]).max() < 1.0 and model.value([[2.0, -1.0]])[0] < model.value([[-2.0, 1.0]])[0]
    )


def test_reports_do_not_depend_on_chunks_and_the_question_is_published():
    X = rng.random((9000, 2))
    found = [
        fitted(Dataset.from_arrays(X=X, partition_rows=rows, row_order="arrival")).surface_ for rows in (9000, 700)
    ]
    np.testing.assert_array_equal(*found)
    survey = Survey(RiskSurface(QuantileLoss(0.9), low=0.0, high=1.0).protocol(30_000, 2))
    assert Survey.from_json(survey.to_json()) == survey
    assert (
        survey.fingerprint != Survey(RiskSurface(QuantileLoss(0.8), low=0.0, high=1.0).protocol(30_000, 2)).fingerprint
    )


@pytest.mark.parametrize("loss", sorted(set(LOSSES) - {"custom"}))
@pytest.mark.parametrize("reporter", sorted(REPORTERS))
def test_devices_are_asked_about_any_named_loss_and_send_what_is_counted(loss, reporter):
    """The absolute loss was none that a question could name."""
    protocol = RiskSurface(loss, low=0.0, high=1.0, reporter=reporter).protocol(30_000, 2)
    survey = Survey(protocol)
    again = Survey.from_json(survey.to_json())
    assert again == survey and again.fingerprint == survey.fingerprint
    X = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, 0.5, 5e-324], size=(300, 2))
    sent = again.protocol.randomise({"X": X, "y": X[:, 0]}, StreamDraws(np.random.Generator(np.random.Philox(3))))
    found = aggregate(survey, encode(survey, sent))
    assert found.n_users == 300 and np.isfinite(found.estimate).all()


# -- wrong inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters, columns, error, says", [
    ({"low": None}, 1, MissingBound, "low is missing"),
    ({"low": 2.0}, 1, BudgetError, "low must lie below high"),
    ({}, 5, DataError, "at most 4 columns"),
    ({"loss": "welch"}, 1, BudgetError, "did you mean 'welsch'"),
    ({"loss": np.sum}, 1, BudgetError, r"public range: pass CustomLoss\(function, smallest, largest\)"),
    ({"loss": CustomLoss(bowl)}, 1, MissingBound, "a loss has a range"),
    ({"loss": CustomLoss(tagged("one-argument")(lambda w: w[:, 0]), 0.0, 1.0)}, 1, DataError, "with TypeError"),
    ({"loss": CustomLoss(tagged("divides")(lambda w, X: 1 / 0), 0.0, 1.0)}, 1, DataError, "division by zero"),
    ({"reporter": "bit"}, 1, BudgetError, "choose one of"),
    ({"degree": 9}, 2, BudgetError, r"100 cells.*degree=3 fits, or 20000 users"),
    ({"order": 9}, 1, BudgetError, "order"),
    ({"ridge": -1.0}, 1, BudgetError, "ridge"),
    ({"ridge": "people"}, 1, BudgetError, "'population'"),
    ({"reporter": "coding", "epsilon": 20.0}, 1, BudgetError, "n_strings = 64 public numbers are too few"),
    ({"delta": 1e-6, "reporter": "one-bit"}, 1, BudgetError, "pure guarantee"),
    ({"loss": CustomLoss(tagged("pairs")(lambda w, X: X @ w.T), 0.0, 1.0)}, 1, DataError, r"shape \(8, 8\)"),
])  # fmt: skip
def test_wrong_parameters_are_refused_before_anything_is_charged(parameters, columns, error, says):
    ledger = Ledger(":memory:")
    options = {"loss": "welsch", "low": 0.0, "high": 1.0, "ledger": ledger, **parameters}
    with pytest.raises(error, match=says):
        RiskSurface(options.pop("loss"), **options).fit(np.zeros((4000, columns)))
    assert ledger.accounts() == []


def test_losses_without_a_range_or_a_function_are_refused():
    for arguments in ((bowl, 1.0, 1.0), (bowl, 0.0, np.inf)):
        with pytest.raises(BudgetError, match="a loss has a range"):
            CustomLoss(*arguments)
    for arguments in ((bowl, "least", 1.0), (bowl, 0.0, [1.0])):
        with pytest.raises(BudgetError, match=r"(smallest|largest) must be a number, got"):
            CustomLoss(*arguments)
    with pytest.raises(BudgetError, match="needs a function"):
        fitted(rng.random((2000, 1)), loss=CustomLoss())
    model = fitted(rng.random((2000, 1)))
    for w, got in (([[2.0]], "others"), ([[np.nan]], "others"), ([0.1], r"shape \(1,\)"), ([["a"]], "no number")):
        with pytest.raises(DataError, match=rf"w must be numbers in \[0, 1\] of shape \(m, 1\), got .*{got}"):
            model.value(w)
    before = model.value([[0.4]])[0]
    assert model.set_params(high=2.0).value([[0.4]])[0] == before, "what is set later is for the next fit"
    with pytest.raises(NotFittedError, match="not fitted"):
        RiskSurface().value([[0.1]])


def failing(how):
    """The squares, but for the record .123."""

    def squares(w, X):
        found, one = ((X - w) ** 2)[:, 0], X[:, 0] == 0.123
        if not one.any():
            return found
        if how == "raises":
            raise ValueError(str(X[one]))
        if how == "leaves":
            raise SystemExit(3)
        if how == "another shape":
            return found[~one]
        if how == "in place":
            X *= np.nan
            raise ValueError
        found = found.astype(complex if how == "complex" else object)
        found[one] = {"complex": 1j, "text": "a", "list": [1, 2], "none": None}[how]
        return found

    return tagged(f"failing-{how}")(squares)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["raises", "leaves", "another shape", "in place", "complex", "text", "none"])
def test_a_loss_that_fails_for_one_record_does_so_in_silence_and_for_that_record_alone(how):
    X = rng.random((200, 1))
    statistic = LossCells(CustomLoss(failing(how), 0.0, 1.0), 1, 0.0, 1.0, 3)
    cells = rng.integers(0, 4, (200, 2))
    fine = statistic.values_at({"X": X}, cells)
    X[77] = 0.123
    found = statistic.values_at({"X": X}, cells)
    assert (found[77] == 0).all()
    np.testing.assert_array_equal(np.delete(found, 77, 0), np.delete(fine, 77, 0))
    assert np.isfinite(fitted(np.tile(X, (10, 1)), loss=statistic.loss).coef_).all()


def test_what_a_loss_says_of_a_record_is_not_heard(capsys):
    @tagged("talkative")
    def talkative(w, X):
        if (X > 0.95).any():  # one record is enough, and no made-up one is so large
            warnings.warn("a large one", stacklevel=1)
            print("a large one")
        return ((X - w) ** 2).sum(axis=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(np.linspace(0, 1, 2000)[:, None], loss=CustomLoss(talkative, 0.0, 1.0))
    assert not any(capsys.readouterr())


def test_a_loss_that_looks_at_other_records_is_refused():
    @tagged("centred")
    def centred(w, X):
        return (X - X.mean(axis=0) - w)[:, 0] ** 2

    with pytest.raises(DataError, match="number of its own"):
        fitted(rng.random((2000, 1)), loss=CustomLoss(centred, 0.0, 1.0))


def test_published_reports_have_more_noise_and_say_so():
    """All of them are unbiased; splitting epsilon over the cells costs more than any other."""
    own = np.random.default_rng(7)
    X, found = np.clip(own.normal(0.3, 0.1, (60_000, 1)), 0, 1), {}
    truth = fitted(X, epsilon=30.0, degree=3, order=1).surface_
    for reporter in ("one-bit", CodingSurface(n_strings=32), "transform", "split"):
        model = fitted(X, reporter=reporter, epsilon=2.0, degree=3, order=1)
        assert np.abs(model.surface_ - truth).max() < 5 * model.cell_std_ + 0.02
        found[reporter if isinstance(reporter, str) else reporter.name] = model.cell_std_
    assert found["one-bit"] < found["coding"] < found["transform"]
    few, many = (RiskSurface(low=0.0, high=1.0, reporter="split", degree=k).decided(10**6, 2) for k in (2, 4))
    assert many.expected_error(None) / few.expected_error(None) == pytest.approx(25 / 9, rel=0.01)


def test_means_over_balls_are_those_of_the_polynomial():
    own = np.random.default_rng(8)
    coefficients = own.normal(size=(5, 4))
    averaged = averaged_bernstein(coefficients, 0.1)
    at = np.array([[0.5, 0.5], [0.2, 0.7]])
    around = own.normal(size=(40_000, 2))
    around *= (0.1 * np.sqrt(own.random(40_000)) / np.linalg.norm(around, axis=1))[:, None]
    for point in at:
        exact = bernstein_value(coefficients, point + around)
        assert abs(bernstein_value(averaged, point[None])[0] - exact.mean()) < 0.005
    assert np.abs(averaged - coefficients).max() > 0.04
    np.testing.assert_allclose(averaged_bernstein(coefficients, 0.0), coefficients, atol=1e-9)


def test_convex_losses_may_be_minimised_with_the_penalty_of_the_source():
    own = np.random.default_rng(9)
    X = own.normal(size=(50_000, 2)) / 3
    y = own.random(50_000) < 1 / (1 + np.exp(-X @ [1.0, -0.7]))
    options = {"loss": "logistic", "low": -2.0, "high": 2.0, "epsilon": 4.0}
    plain, penalised, smooth = (
        fitted(X, y, **options, **more) for more in ({}, {"ridge": "population"}, {"smoothing": 0.5})
    )
    assert np.linalg.norm(penalised.coef_) < np.linalg.norm(plain.coef_)
    assert fitted(X, y, **options, ridge=50_000 ** (-1 / 12)).coef_.tolist() == penalised.coef_.tolist()
    assert (plain.surface_ == smooth.surface_).all() and (plain.coef_ != smooth.coef_).any()
    assert smooth.coef_[0] > 0.3 > -0.2 > smooth.coef_[1]
