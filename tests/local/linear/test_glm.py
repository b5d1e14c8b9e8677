"""Generalised linear models: the losses, gradients from noisy copies, both methods on the acceptance tables."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dpdist import Dataset
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.kernels.copies import copies_gradient
from dpdist.local import GeneralizedLinearModel, LogisticRegression
from dpdist.local.linear.generalised_linear import MODELS, LogisticModel, SquaredModel
from dpdist.local.linear.glm import Chebyshev
from dpdist.local.linear.glm_copies import RANGE, Copies, CopiesProtocol, copies_protocol
from dpdist.local.linear.links import is_even
from dpdist.local.survey.aggregation import aggregate
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.wire import encode
from dpdist.losses import Logistic, Squared
from dpdist.privacy.accounting.closed_forms import gdp_delta
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws

D6 = {"delta": 1e-6}


def problem(n: int, d: int, radius: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows on the sphere, labels -1 and +1 with log-odds ``2 <x, w>``, w of norm ``radius``."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    w = np.full(d, radius / math.sqrt(d))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-2 * X @ w)), 1, -1), w


def excess(coef: np.ndarray, w: np.ndarray) -> float:
    """Of the logistic risk, over that of w."""
    X, _, _ = problem(100_000, len(w), float(np.linalg.norm(w)), 1000)
    p = 1 / (1 + np.exp(-2 * X @ w))

    def risk(v: np.ndarray) -> float:
        return float(np.mean(p * np.logaddexp(0, -X @ v) + (1 - p) * np.logaddexp(0, X @ v)))

    return risk(np.ravel(coef)) - risk(w)


def model(radius: float = 3.0, **changes) -> GeneralizedLinearModel:
    return GeneralizedLinearModel(**{"radius": radius, "row_norm": 1.0, "random_state": 0, **changes})


# -- losses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", MODELS.values(), ids=lambda loss: loss.name)
def test_slopes_are_those_of_the_functions(loss):
    u, h = np.linspace(-3, 3, 61), 1e-6
    for function, slope in ((loss.natural, loss.natural_slope), (loss.partition, loss.partition_slope)):
        assert np.allclose((function(u + h) - function(u - h)) / (2 * h), slope(u), atol=1e-6)
    for y in (-1.0, 1.0, 0.5):
        assert np.allclose((loss.value(u + h, y) - loss.value(u - h, y)) / (2 * h), loss.derivative(u, y), atol=1e-6)
    assert np.allclose(loss.derivative(u, loss.mean(u)), 0, atol=1e-12)  # at the mean label there is no slope
    assert loss.curvature_bound >= np.diff(loss.partition_slope(u)).max() / (u[1] - u[0]) - 1e-12


def test_the_usual_losses_are_of_this_kind():
    u, y = np.linspace(-800, 800, 101), np.where(np.arange(101) % 2, 1.0, -1.0)
    assert np.allclose(MODELS["logistic"].value(u, y), Logistic().value(u, y))
    assert np.allclose(MODELS["logistic"].derivative(u, y), Logistic().derivative(u, y))
    assert np.allclose(MODELS["squared"].value(u, y) + y**2 / 2, Squared().value(u, y))
    with np.errstate(all="raise"):
        assert np.isfinite(MODELS["poisson"].value(np.array([-1e3, 1e3]), 3.0)).all()


# -- copies --------------------------------------------------------------------------------------------------------


def protocol(degree: int = 1, epsilon: float = 4.0, d: int = 3, radius: float = 3.0, **changes) -> CopiesProtocol:
    bounds = {"radius": radius, "row_norm": 1.0, "label_bound": 1.0, **changes}
    return copies_protocol(LogisticModel(), d, degree, epsilon, 1e-6, **bounds)


def twin(question: CopiesProtocol, reports: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What `CopiesProtocol.accumulate` adds up, user by user, in NumPy."""
    d, degree = len(w), len(question.partition) - 1
    scales = question.copies.scales
    parts = (reports * question.randomiser.grid).reshape(len(reports), -1, d)
    inner = parts[:, 1:-1] @ w * scales[1]
    powers, at = [np.ones(len(reports))], 0
    for k in range(1, degree + 1):
        powers.append(np.prod(inner[:, at : at + k], axis=1))
        at += k
    T = np.column_stack(powers)
    z0, zy = parts[:, 0] * scales[0], parts[:, -1] * scales[2]
    return question.radius * ((T @ question.partition)[:, None] * z0 - (T @ question.natural)[:, None] * zy)


def test_without_noise_it_is_the_gradient_of_the_logistic_loss():
    X, y, w = problem(400, 3, 1.0, 0)
    w = 0.9 * w
    question, unit = protocol(degree=7), 2.0**-24
    sent = np.rint(Copies(3, 7, 1.0, 1.0).values({"X": X, "y": y}) / unit).astype(np.int64)
    total = np.zeros(3, np.int64)
    partition, natural = np.array(question.partition), np.array(question.natural)
    copies_gradient(sent, w, partition, natural, question.copies.scales * unit, 2.0**-30 / 3, 2.0**50, total)
    u = 3 * X @ w
    exact = (3 * Logistic().derivative(u, y)[:, None] * X).sum(axis=0)
    assert np.abs(total * 2.0**-30 - exact).max() / len(X) < 3e-3
    for degree, error in ((1, 0.2), (3, 0.034)):  # r times the error of the polynomial, at most
        question = protocol(degree=degree)
        slopes = np.polynomial.polynomial.polyval(X @ w, question.partition) - y * question.natural[0]
        ours = (3 * slopes[:, None] * X).sum(axis=0)
        assert np.abs(ours - exact).max() / len(X) < error


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_gradients_from_copies_are_those_of_the_twin_and_unbiased(degree):
    X, y, w = problem(20_000, 3, 1.0, 1)
    w, question = 0.7 * w, protocol(degree, epsilon=30.0)
    reports = question.randomise({"X": X, "y": y}, StreamDraws(np.random.default_rng(5)))
    each = twin(question, reports, w)
    total = question.accumulate(reports, w)
    clamped = np.clip(np.rint(each / question.grid), -question.units, question.units)
    assert np.abs(total - clamped.sum(axis=0)).max() <= len(X) * 1e-3 + 1e-9 * np.abs(clamped).sum()
    slopes = np.polynomial.polynomial.polyval(X @ w, question.partition) - y * question.natural[0]
    exact = (3 * slopes[:, None] * X).mean(axis=0)
    assert (np.abs(each.mean(axis=0) - exact) < 6 * each.std(axis=0) / math.sqrt(len(X))).all()
    assert math.sqrt((each**2).sum(axis=1).mean()) < question.total_std * 1.1
    assert (each.std(axis=0) < question.noise_std * 1.1).all()
    # sums of any grouping are the same integers
    parts = question.accumulate(reports[:77], w) + question.accumulate(reports[77:], w)
    assert (parts == total).all() and question.units * 2**31 < 2**63 and RANGE == 2048


def test_one_report_pays_for_all_copies():
    """Together they are one vector of the unit ball; the printed noise (seed 001, Algorithm 1) is half of it."""
    rng = np.random.default_rng(0)
    for degree in (1, 3):
        question = protocol(degree, epsilon=1.0)
        X, y = rng.normal(size=(500, 3)) * 3, rng.normal(size=500) * 3
        values = question.statistic.values({"X": X, "y": y})
        assert (np.linalg.norm(values, axis=1) <= 1).all() and np.linalg.norm(values, axis=1).max() > 0.999
        noise = question.randomiser.noise_std
        assert gdp_delta(1.0, 2 / noise) <= 1e-6 * (1 + 1e-9) < gdp_delta(1.0, 4 / noise)
        scales = question.copies.scales
        shares = (2 / (noise * scales)) ** 2 * [1, question.copies.n_copies, 1]  # of mu^2: all copies together
        assert np.allclose(shares / shares.sum(), [0.25, 0.25, 0.5])


def test_any_record_sends_a_valid_report():
    X = np.ones((8, 3))
    X[0, 0], X[1, 1], X[2], X[3], X[4] = np.nan, np.inf, 1e300, 0.0, 5e-324
    y = np.array([1.0, 1.0, -1e300, 1.0, 1.0, np.nan, -np.inf, 3.0])
    with np.errstate(all="raise", under="ignore"):
        question = protocol(3, 1.0)
        values = question.statistic.values({"X": X, "y": y})
        reports = question.randomise({"X": X, "y": y}, SystemDraws())
        assert question.randomiser.valid(reports).all() and not values[[0, 1, 5, 6]].any()
        assert (np.abs(question.accumulate(reports, np.ones(3))) <= 8 * question.units).all()
    for method, delta in (("direction", None), (Chebyshev(n_rounds=2), 1e-3)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "the noise alone")  # of eight records
            fitted = model(method=method, delta=delta).fit(X, y)
        assert np.isfinite(fitted.coef_).all() and np.linalg.norm(fitted.coef_) <= 3 * (1 + 1e-12)


def test_reports_of_devices_give_the_same_sum_at_the_published_point():
    X, y, w = problem(300, 3, 1.0, 2)
    survey = Survey(protocol(1), round=4, state=list(w))
    assert Survey.from_json(survey.to_json()) == survey
    reports = survey.protocol.randomise({"X": X, "y": y}, SystemDraws())
    found = aggregate(survey, encode(survey, reports))
    assert found.n_users == 300
    assert np.allclose(found.total, survey.protocol.accumulate(reports, w) * survey.protocol.grid, rtol=1e-15)
    assert (survey.protocol.accumulate(reports) != survey.protocol.accumulate(reports, w)).any()


@pytest.mark.parametrize("method", ["direction", Chebyshev(n_rounds=4)], ids=["direction", "chebyshev"])
@pytest.mark.parametrize("partition_rows", [1000, 9000])
def test_coefficients_do_not_depend_on_the_partitions(method, partition_rows, tmp_path):
    X, y, _ = problem(9000, 3, 1.0, 0)
    stored = Dataset.from_arrays(tmp_path / "a.zarr", X=X, y=y, partition_rows=partition_rows)
    options = {"method": method, "delta": None if method == "direction" else 1e-6}
    ours = model(**options, ledger=Ledger(":memory:")).fit(stored)
    assert (ours.coef_ == model(**options).fit(X, y).coef_).all()


# -- estimators ----------------------------------------------------------------------------------------------------


def test_groups_answer_once_and_the_points_are_kept():
    X, y, _ = problem(5000, 3, 1.0, 0)
    fitted = model(method=Chebyshev(n_rounds=7), **D6).fit(X, y)
    assert len(fitted.history_) == 7 and not fitted.history_[0].any()
    assert (fitted.guarantee_.epsilon, fitted.guarantee_.delta) == (1.0, 1e-6)
    assert fitted.approximation_error_ == pytest.approx(0.067, abs=1e-3)
    assert math.isnan(model().fit(X, y).approximation_error_)
    assert pickle.loads(pickle.dumps(fitted)).predict(X[:5]).tolist() == fitted.predict(X[:5]).tolist()
    assert clone(fitted).get_params() == fitted.get_params()


def test_illegal_labels_are_empty_records():
    X, y, _ = problem(4000, 3, 3.0, 0)
    wild = np.where(np.arange(4000) % 2, y, 0)  # half of the labels are none
    counted = model(epsilon=100.0).fit(X, wild).predict(X)
    assert np.abs(counted).max() <= 1 and np.mean(np.sign(counted) == y) > 0.6
    named = LogisticRegression(classes=["a", "b"], radius=3.0, row_norm=1.0, epsilon=100.0, random_state=0)
    named.fit(X, np.where(y > 0, "b", np.where(np.arange(4000) % 2, "a", "c")))
    assert named.classes_.tolist() == ["a", "b"] and named.coef_.shape == (1, 3)
    assert np.allclose(named.predict_proba(X[:9]).sum(axis=1), 1) and named.score(X, np.where(y > 0, "b", "a")) > 0.6


def test_directions_of_counts_and_numbers():
    rng = np.random.default_rng(0)
    X, _, w = problem(40_000, 4, 1.0, 0)
    counts = rng.poisson(np.exp(X @ w))
    options = {"radius": 1.0, "row_norm": 1.0, "epsilon": 8.0, "random_state": 0}
    for loss, y, bound in (("poisson", counts, 6.0), ("squared", X @ w + 0.1 * rng.normal(size=40_000), 2.0)):
        fitted = GeneralizedLinearModel(loss, label_bound=bound, **options).fit(X, y)
        assert np.linalg.norm(fitted.coef_ - w) < 0.35 and fitted.predict(X).shape == (40_000,)


def test_errors_name_what_is_missing():
    X, y, _ = problem(100, 3, 1.0, 0)
    with pytest.raises(MissingBound, match="radius is missing"):
        GeneralizedLinearModel(row_norm=1.0).fit(X, y)
    with pytest.raises(MissingBound, match="row_norm is missing"):
        GeneralizedLinearModel(radius=1.0).fit(X, y)
    with pytest.raises(MissingBound, match="label_bound is missing"):
        model(loss="poisson").fit(X, y)
    with pytest.raises(BudgetError, match="1 or 3"):
        model(method=Chebyshev(degree=2), **D6).fit(X, y)
    with pytest.raises(BudgetError, match="delta > 0"):
        model(method="chebyshev").fit(X, y)
    with pytest.raises(BudgetError, match="smaller n_rounds"):
        model(method=Chebyshev(n_rounds=101), **D6).fit(X, y)
    with pytest.raises(BudgetError, match="'logistic', 'squared', 'poisson'"):
        model(loss="hinge").fit(X, y)
    with pytest.raises(BudgetError, match="GeneralisedLinear"):
        model(loss=Logistic()).fit(X, y)
    with pytest.raises(BudgetError, match="fidelity='report'"):
        model(method="chebyshev", fidelity="sum", **D6).fit(X, y)
    with pytest.raises(MissingBound, match="two labels"):
        LogisticRegression(classes=[0, 1, 2], radius=1.0, row_norm=1.0).fit(X, y)
    with pytest.raises(DataError):
        model().fit(X)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint64", "<U3"])
@pytest.mark.parametrize("public", [False, True])
def test_stored_labels_of_which_one_class_could_never_occur_are_refused_before_anything_is_charged(dtype, public):
    """They were taken for null records: users were asked, and charged, for a direction of one class."""
    X, y, _ = problem(300, 3, 1.0, 0)
    ledger = Ledger(":memory:")
    with pytest.raises(DataError, match=r"for labels -1 and \+1.*classes=\[0, 1\]"):
        model(ledger=ledger).fit(X, (y > 0).astype(dtype), **({"public_X": X[:100]} if public else {}))
    assert ledger.accounts() == []
    for good in ("int8", "float32"):
        assert np.isfinite(model(ledger=Ledger(":memory:")).fit(X, y.astype(good)).coef_).all()


class Squares(SquaredModel):
    """``E[y | u] = u^2``; ``told`` is what it says of its slope."""

    told = staticmethod(lambda u: 2 * u)

    def partition_slope(self, u):
        return np.asarray(u, dtype=np.float64) ** 2

    def mean_slope(self, u):
        return self.told(np.asarray(u, dtype=np.float64))


class RisingSquares(Squares):
    """The same but for a little more where u is above 0; so it is not even."""

    def partition_slope(self, u):
        return super().partition_slope(u) * np.where(np.asarray(u) > 0, 1.001, 1.0)

    def mean_slope(self, u):
        return super().mean_slope(u) * np.where(np.asarray(u) > 0, 1.001, 1.0)


class WrongSlope(Squares):
    told = staticmethod(np.ones_like)


class Constant(Squares):
    def partition_slope(self, u):
        return np.full_like(u, 0.3, dtype=np.float64)

    told = staticmethod(np.zeros_like)


EVEN = (Squares(), WrongSlope(), Constant())


@pytest.mark.parametrize("loss", EVEN, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("method", ["auto", "direction", "public-covariance", "statistics", "chebyshev"])
def test_even_means_of_labels_are_refused_before_a_row_is_read(loss, method):
    """Whoever sends ``x y``, its mean is 0: what would come back is noise of any direction."""
    options = {"loss": loss, "method": method, "label_bound": 1.0, "radius": 1.0, "row_norm": 1.0}
    ledger = Ledger(":memory:")
    asked = GeneralizedLinearModel(**options, epsilon=1.0, delta=1e-6 if method == "chebyshev" else None, ledger=ledger)
    for refused in (lambda: asked.fit("no rows", "nor labels"), lambda: asked.plan(100_000, 3)):
        with pytest.raises(BudgetError, match=r"an even function .* its mean slope is 0"):
            refused()
    assert ledger.accounts() == []


def test_means_that_are_not_quite_even_are_taken():
    assert not is_even(RisingSquares().mean) and is_even(Squares().mean)
    GeneralizedLinearModel(RisingSquares(), radius=1.0, row_norm=1.0, label_bound=1.0).plan(100_000, 3)
    for loss in MODELS.values():
        assert not is_even(loss.mean) and not is_even(loss.mean_slope, -1.0)


@pytest.mark.parametrize("method", ["direction", "hermite", "copies", "chebyshev", "public-covariance", "statistics"])
def test_too_few_users_are_told_how_many_it_takes(method):
    """Ignoring the reports is the measure: the mean of x y (or a gradient) is as long as the bounds allow, at most."""
    options = {"method": method, "delta": D6["delta"] if method in ("hermite", "copies", "chebyshev") else None}
    bounds = {"radius": None, "row_norm": None} if method in ("public-covariance", "statistics") else {"radius": 3.0}
    asked = model(**{"epsilon": 0.5, **options, **bounds})
    few, many = asked.outlook(100, 5), asked.outlook(10**9, 5)
    assert few.trivial_error == many.trivial_error and few.predicted_error > few.trivial_error
    assert few.n_needed and "worse than ignoring the data: take n_rows >=" in few.warnings[0]
    assert many.predicted_error < many.trivial_error / 10 and not many.warnings
    enough = asked.outlook(few.n_needed, 5)
    assert enough.predicted_error == pytest.approx(enough.trivial_error / 2, rel=0.1)


def test_no_gradient_is_longer_than_that_of_ignoring_the_reports():
    X, y, _ = problem(2000, 3, 1.0, 0)
    X[:, 1:] *= 0.1  # almost all along one axis, so that the mean gradient is about as long as one of them
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X, y = np.abs(X), np.ones(len(X))
    chosen = model(method="chebyshev", epsilon=4.0, **D6).decided(10**6, 3)
    for point in (-np.eye(3)[0], np.zeros(3), np.eye(3)[0]):
        gradient = (3 * Logistic().derivative(3 * X @ point, y)[:, None] * X).mean(axis=0)
        assert np.linalg.norm(gradient) <= chosen.trivial_error * (1 + 1e-9)
    assert np.linalg.norm((3 * Logistic().derivative(-3 * X[:, 0], y)[:, None] * X).mean(axis=0)) > 2.0


def test_direction_on_the_acceptance_table():
    found = []
    for seed in range(6):
        X, y, w = problem(100_000, 5, 3.0, seed)
        found.append(excess(model(epsilon=1.0, random_state=seed).fit(X, y).coef_, w))
    assert np.mean(found) < 0.001
    assert excess(np.zeros(5), w) == pytest.approx(0.282, abs=0.005)


@pytest.mark.parametrize(
    ("n", "seeds", "limit"), [(250_000, 2, 0.15), pytest.param(1_000_000, 5, 0.038, marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore:delta = 1e-06 is not below")
def test_chebyshev_on_the_acceptance_table(n, seeds, limit):
    found = []
    for seed in range(seeds):
        X, y, w = problem(n, 5, 3.0, seed)
        found.append(excess(model(method="chebyshev", epsilon=4.0, random_state=seed, **D6).fit(X, y).coef_, w))
    assert np.mean(found) < limit


def test_at_degree_three_the_noise_wins():
    X, y, w = problem(100_000, 5, 3.0, 0)
    fitted = model(method=Chebyshev(degree=3), epsilon=4.0, **D6).fit(X, y)
    assert excess(fitted.coef_, w) > 0.2
