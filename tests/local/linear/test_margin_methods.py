"""Losses of the margin: directions, Hermite polynomials and copies; what they reach and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpdist import Ledger
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.kernels.moments import unpack_symmetric
from dpdist.local import GeneralizedLinearModel, LinearSVC, LogisticRegression
from dpdist.local.linear.glm_copies import LabelledCopies, margin_protocol
from dpdist.local.linear.glm_direction import Direction
from dpdist.local.linear.glm_hermite import Hermite
from dpdist.local.linear.glm_polynomials import NoisyCopies
from dpdist.local.linear.noisy_moments import GaussianMeanAndMoments
from dpdist.local.linear.svc import Hinge
from dpdist.local.randomisers.vectors import GaussianVector
from dpdist.local.survey.aggregation import aggregate
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.wire import encode
from dpdist.losses import Huber, Logistic, Sigmoid, SmoothedHinge
from dpdist.privacy.accounting.closed_forms import gdp_delta
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws
from dpdist.solvers.spectral import quadratic_on_ball

D6 = {"delta": 1e-6}


def hinge_problem(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows on the sphere, labels 0 and 1 with log-odds ``12 <x, w>``, w of equal entries and norm 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return X, (rng.random(n) < 1 / (1 + np.exp(-12 * X.sum(axis=1) / math.sqrt(d)))).astype(int)


def hinge_excess(d: int):
    """Of the mean of ``max(0, 1/2 - y <w, x>)``, which is half of our hinge where the radius is 2."""
    X, _ = hinge_problem(100_000, d, 1000)
    w = np.full(d, 1 / math.sqrt(d))
    p = 1 / (1 + np.exp(-12 * X @ w))

    def risk(v: np.ndarray) -> float:
        u = X @ np.ravel(v)
        return float(np.mean(p * np.maximum(0, 0.5 - u) + (1 - p) * np.maximum(0, 0.5 + u)))

    least = min(risk(size * w) for size in np.linspace(0.5, 1, 51))
    return lambda model: risk(model.coef_ / 2) - least


def svc(method="auto", **changes) -> LinearSVC:
    options = {"classes": [0, 1], "radius": 2.0, "row_norm": 1.0, "random_state": 0, "ledger": Ledger(":memory:")}
    return LinearSVC(method=method, **{**options, **changes})


# -- parts ---------------------------------------------------------------------------------------------------------


def test_quadratics_are_least_where_no_point_of_the_ball_is_better():
    rng = np.random.default_rng(0)
    for rank in (0, 2, 4):
        for scale in (0.01, 1.0, 100.0):
            A, b = rng.normal(size=(rank, 4)), rng.normal(size=4) * scale
            M = A.T @ A
            w = quadratic_on_ball(M, b, 1.5)
            points = rng.normal(size=(20_000, 4))
            points *= 1.5 * rng.random((20_000, 1)) ** 0.25 / np.linalg.norm(points, axis=1)[:, None]
            values = np.einsum("ij,jk,ik->i", points, M, points) / 2 + points @ b
            assert np.linalg.norm(w) <= 1.5 * (1 + 1e-9) and w @ M @ w / 2 + w @ b <= values.min() + 1e-9
    assert not quadratic_on_ball(np.eye(3), np.zeros(3), 1.0).any()


@pytest.mark.parametrize("n", [2, 5, 12, 40])
def test_sums_of_means_and_moments_have_the_law_that_is_drawn_directly(n):
    law, generator = GaussianMeanAndMoments(3, 8.0, 1e-6), np.random.default_rng(n)
    V = np.random.default_rng(0).normal(size=(n, 3)) / 3
    V /= np.maximum(1.0, np.linalg.norm(V, axis=1))[:, None]
    by_report = np.array([law.summarise(V, StreamDraws(generator)) for _ in range(4000)])
    at_once = np.array([law.draw_sum(V, generator) for _ in range(4000)])

    def features(sums):  # the moments that are left when the mean is taken off depend on how both hang together
        means, moments = (
            sums[:, :3] * law.copy_grid,
            np.array([unpack_symmetric(row) for row in sums[:, 3:] * law.grid]),
        )
        rest = moments - means[:, :, None] * means[:, None, :] / n
        return np.column_stack(
            [means, moments[:, 0, 1], rest[:, 0, 0], rest[:, 1, 2], np.trace(rest, axis1=1, axis2=2)]
        )

    for one, other in zip(features(by_report).T, features(at_once).T, strict=True):
        assert ks_2samp(one, other).pvalue > 1e-7
    broken = features(np.column_stack([at_once[:, :3], np.roll(at_once[:, 3:], 1, axis=0)]))
    assert n > 5 or ks_2samp(features(by_report)[:, -1], broken[:, -1]).pvalue < 1e-7


def test_hermite_polynomials_of_a_noisy_copy_have_the_powers_for_means():
    """``E H_k = <w, z>^k``; the gradient of the polynomial that is minimised is that of its values."""
    rng, s, n = np.random.default_rng(0), 1.5, 400_000
    w, z = np.array([0.5, -0.4]), np.array([0.6, 0.7])
    u = (z + s * rng.normal(size=(n, 2))) @ w
    H = [np.ones(n), u]
    for k in range(2, 5):
        H.append(u * H[-1] - (k - 1) * s**2 * (w @ w) * H[-2])
    for k in range(5):
        assert abs(H[k].mean() - (w @ z) ** k) < 5 * H[k].std() / math.sqrt(n) + 1e-12
    law = GaussianMeanAndMoments(2, 4.0, 1e-6)
    reports = law.randomise(np.tile(z, (n, 1)), StreamDraws(rng))
    found = law.decode(law.accumulate(reports) * law.grid, n)
    copies = reports * law.copy_grid
    second = np.mean((copies @ w) ** 2) - (w @ w) * (law.copy_std**2 + law.copy_grid**2 / 12)
    assert found[:2] @ w == pytest.approx(np.mean(copies @ w), abs=1e-9)
    assert w @ unpack_symmetric(found[2:]) @ w == pytest.approx(second, abs=1e-6)
    assert abs(found[:2] - z).max() < 5 * law.copy_std / math.sqrt(n)


def test_copies_share_mu_squared_in_halves_and_the_printed_ones_spend_more():
    for degree in (1, 2):
        protocol = margin_protocol(np.ones(degree + 1), 3, 10.0, 1e-6, radius=1.0, row_norm=1.0)
        noise, scales, K = protocol.randomiser.noise_std, protocol.copies.scales, protocol.copies.n_copies
        shares = (2 / (noise * scales)) ** 2 * [1, K]
        assert np.allclose(shares / shares.sum(), [0.5, 0.5])
        assert gdp_delta(10.0, 2 / noise) <= 1e-6 * (1 + 1e-9)

    def printed(epsilon: float, degree: int) -> float:
        """mu of the two numbers x_0, y_0 and of K copies of both, each with the printed noise."""
        K, log = degree * (degree + 1), math.log(1.25e6)
        return math.sqrt(8 * epsilon**2 / (32 * log) + K * 8 * epsilon**2 / (8 * log * K**2))

    assert gdp_delta(10.0, printed(10.0, 1)) > 1e-6 and gdp_delta(1.0, printed(1.0, 1)) < 1e-6
    assert gdp_delta(13.1, printed(10.0, 1)) == pytest.approx(1e-6, rel=0.2)


@pytest.mark.parametrize("degree", [1, 2])
def test_gradients_of_copies_are_unbiased(degree):
    X, y = hinge_problem(20_000, 3, 1)
    y, w = 2.0 * y - 1, np.array([0.4, -0.3, 0.5])
    protocol = svc(NoisyCopies(degree), epsilon=30.0, **D6).decided(20_000, 3).protocols[0]
    reports = protocol.randomise({"X": X, "y": y}, StreamDraws(np.random.default_rng(5)))
    total = protocol.accumulate(reports, w)
    margins = y * (X @ w)
    exact = (2 * np.polynomial.polynomial.polyval(margins, protocol.partition) * y * X.T).mean(axis=1)
    assert np.abs(total * protocol.grid / len(X) - exact).max() < 6 * protocol.noise_std / math.sqrt(len(X))
    parts = protocol.accumulate(reports[:77], w) + protocol.accumulate(reports[77:], w)
    assert (parts == total).all()


def test_any_record_sends_a_valid_report_of_copies():
    X, y = np.ones((6, 2)), np.array([1.0, np.nan, 1e300, -np.inf, 0.0, -1.0])
    X[0, 0], X[2, 1], X[5] = np.nan, 1e300, 5e-324
    values = LabelledCopies(2, 2, 1.0, 1.0).values({"X": X, "y": y})
    assert values.shape == (6, 8) and (np.linalg.norm(values, axis=1) <= 1).all() and not values[[0, 1, 3]].any()


def test_devices_answer_about_margins():
    X, y = hinge_problem(300, 3, 2)
    public = np.random.default_rng(0).normal(size=(50, 3)) @ np.diag([1.0, 5.0, 0.1])
    for method, extra, rows in (("hermite", D6, None), ("copies", D6, None), ("direction", {}, public)):
        decided = svc(method, epsilon=2.0, **extra).decided(10_000, 3)
        decided = decided if rows is None else decided.given(rows)
        survey = Survey(decided.protocols[0], state=[0.1, 0.2, 0.3] if method == "copies" else None)
        assert Survey.from_json(survey.to_json()) == survey
        reports = survey.protocol.randomise({"X": X, "y": 2.0 * y - 1}, SystemDraws())
        found = aggregate(survey, encode(survey, reports))
        total = survey.protocol.accumulate(reports, None if survey.state is None else np.array(survey.state))
        assert found.n_users == 300 and np.allclose(found.total, total * survey.protocol.grid, rtol=1e-15)
    with pytest.raises(BudgetError, match="coefficients"):
        margin_protocol(np.ones(3), 3, 1.0, 1e-6, radius=1.0, row_norm=1.0).__class__(
            LabelledCopies(3, 1, 1.0, 1.0), GaussianVector(6, 1.0, 1e-6), 1.0, (1.0, 1.0, 1.0)
        )


# -- answers -------------------------------------------------------------------------------------------------------


def test_excess_hinge_losses_are_in_their_bands():
    """Degree 2 at epsilon 4; and on rows that are alike in all directions degree 1 is not worse at epsilon 1."""
    excess, found = hinge_excess(5), {}
    for name, method, epsilon in (("two", Hermite(), 4.0), ("one", Hermite(1), 1.0), ("two-1", Hermite(), 1.0)):
        fits = (
            svc(method, epsilon=epsilon, random_state=seed, **D6).fit(*hinge_problem(100_000, 5, seed))
            for seed in range(5)
        )
        found[name] = [excess(model) for model in fits]
    assert np.mean(found["two"]) <= 0.0025
    assert np.mean(found["one"]) < np.mean(found["two-1"]) and np.mean(found["two-1"]) > 0.01


def test_directions_of_two_degrees():
    excess, (X, y) = hinge_excess(5), hinge_problem(100_000, 5, 0)
    one, two = (excess(svc(Direction(degree), epsilon=1.0).fit(X, y)) for degree in (1, 2))
    assert one < 0.001 and two < 0.004
    sums = svc("hermite", epsilon=4.0, fidelity="sum", **D6).fit(X, y)
    assert excess(sums) < 0.005 and sums.fidelity_ == "sum"


def test_correlated_rows_need_public_ones():
    """AR(.9) columns of different scales: the direction is wrong without public rows, and right with them."""
    rng, d, w = np.random.default_rng(0), 4, np.array([1.0, -1.0, 2.0, -20.0])

    def rows(n):
        X = rng.normal(size=(n, d))
        for j in range(1, d):
            X[:, j] = 0.9 * X[:, j - 1] + math.sqrt(0.19) * X[:, j]
        return X * [1.0, 1.0, 1.0, 0.1]

    X, fresh, public = rows(100_000), rows(20_000), rows(2000)
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ w))).astype(int)

    def agreement(**beside):
        model = svc("direction", radius=20.0, row_norm=3.0, epsilon=2.0).fit(X, y, **beside)
        assert 10 < np.linalg.norm(model.coef_) <= 20 * (1 + 1e-9)
        return np.mean((model.decision_function(fresh) > 0) == (fresh @ w > 0))

    assert agreement(public_X=public) > 0.97 > 0.9 > agreement()
    second = svc(Direction(2), radius=2.0, row_norm=3.0, epsilon=2.0).fit(X, y, public_X=public)
    assert np.linalg.norm(second.coef_) <= 2 * (1 + 1e-9)
    flat = np.column_stack([public[:, :3], public[:, 0]])  # three directions in four columns
    assert svc(Direction(2), epsilon=2.0).decided(1000, 4).given(flat).protocols[0].statistic.size == 3


def test_public_rows_do_no_harm_where_features_differ_in_scale():
    """The right direction had nearly all of its length in the feature that hardly varies, and a hinge of .99 then."""
    rng, n, scales = np.random.default_rng(3), 40_000, np.array([1.0, 0.01, 3.0, 0.1, 10.0, 1.0])
    Z, public = rng.normal(size=(n, 6)), rng.normal(size=(2000, 6)) * scales
    X, y = Z * scales, (rng.random(n) < 1 / (1 + np.exp(-2 * Z.sum(axis=1)))).astype(int)
    sign, bounds = 2 * y - 1, {"radius": 0.35, "row_norm": 17.0, "epsilon": 1.0}

    def hinge(**beside):
        model = svc("direction", **bounds).fit(X, y, **beside)
        return float(np.maximum(0, 1 - sign * model.decision_function(X)).mean())

    assert hinge(public_X=public) < 0.7 < 1 < hinge()  # the least in the ball is .63, and 0 has 1


def test_noisy_copies_learn_slowly():
    excess, (X, y) = hinge_excess(5), hinge_problem(400_000, 5, 0)
    assert excess(svc("copies", epsilon=4.0, **D6).fit(X, y)) < 0.03
    assert excess(svc(NoisyCopies(2), epsilon=1.0, **D6).fit(X[:100_000], y[:100_000])) > 0.1
    model = LogisticRegression(
        classes=[0, 1], method="copies", radius=3.0, row_norm=1.0, epsilon=8.0, random_state=0, **D6
    ).fit(X, y)
    assert model.approximation_error_ == pytest.approx(0.067, abs=1e-3) and model.score(X, y) > 0.85


# -- statements ----------------------------------------------------------------------------------------------------


def test_losses_and_classes():
    X, y = hinge_problem(5000, 3, 0)
    for loss in (SmoothedHinge(), Logistic(), "hinge"):
        assert svc("hermite", loss=loss, epsilon=8.0, **D6).fit(X, y).score(X, y) > 0.6
    named = svc(classes=["b", "a"], epsilon=8.0).fit(X, np.where(y, "a", "b"))
    assert named.classes_.tolist() == ["b", "a"] and named.score(X, np.where(y, "a", "b")) > 0.8
    assert named.method_ == "direction" and named.method_reason_
    u, h = np.linspace(-3, 3, 60), 1e-6
    for sign in (-1.0, 1.0):
        slopes = (Hinge().value(u + h, sign) - Hinge().value(u - h, sign)) / (2 * h)
        assert np.allclose(slopes, Hinge().derivative(u, sign))


class Valley(Hinge):
    """``(y u)^2``, whatever the label."""

    def value(self, u, y):
        return np.square(np.multiply(y, u))

    def derivative(self, u, y):
        return 2 * np.asarray(u, dtype=np.float64)


@pytest.mark.parametrize("changes, error, says", [
    ({"method": "chebyshev", **D6}, BudgetError, "'hinge' is none: choose 'direction'"),
    ({"method": "hermite"}, BudgetError, "pass delta > 0"),
    ({"method": Hermite(3), **D6}, BudgetError, "degree must be 1 or 2, got 3: more drown"),
    ({"method": NoisyCopies(3), **D6}, BudgetError, "degree must be 1 or 2"),
    ({"method": Direction(3)}, BudgetError, "degree must be 1 or 2"),
    ({"method": NoisyCopies(n_rounds=101), **D6}, BudgetError, "smaller n_rounds"),
    ({"method": "hermite", "radius": None, **D6}, MissingBound, "radius is missing"),
    ({"loss": Huber()}, BudgetError, "for labels -1 and"),
    ({"loss": Sigmoid()}, BudgetError, "a convex loss"),
    ({"loss": Valley()}, BudgetError, "an even function .* does not depend on the label"),
    ({"loss": "squared"}, BudgetError, "loss must be 'hinge'"),
    ({"classes": [0]}, MissingBound, "two labels"),
    ({"method": "copies", "fidelity": "sum", **D6}, BudgetError, "fidelity='report'"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_charged(changes, error, says):
    X, y = hinge_problem(100, 3, 0)
    ledger = Ledger(":memory:")
    with pytest.raises(error, match=says):
        svc(**{"ledger": ledger, **changes}).fit(X, y)
    assert not ledger.accounts()


def test_public_rows_are_for_who_reads_them():
    X, y = hinge_problem(100, 3, 0)
    for method in ("hermite", "copies"):
        with pytest.raises(DataError, match="takes nothing from public rows"):
            svc(method, **D6).fit(X, y, public_X=X)
    with pytest.raises(BudgetError, match="two classes"):
        GeneralizedLinearModel("squared", Direction(2), label_bound=1.0, radius=1.0, row_norm=1.0).fit(X, y)
    with pytest.raises(BudgetError, match="two classes"):
        GeneralizedLinearModel("poisson", "hermite", label_bound=1.0, radius=1.0, row_norm=1.0, **D6).fit(X, y)
