"""Gradient EM: noise as planned, rows in their rounds, errors as stated, and what is refused before a row is read."""

from __future__ import annotations

import math
from contextlib import closing

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpdist import Dataset, Ledger, MixedRegression, TwoComponentMixture
from dpdist.central import ClippedEM, SplitEM, TruncatedEM
from dpdist.engine.coordinator import Coordinator
from dpdist.errors import BudgetError, MissingBound
from dpdist.kernels.latent import MixedLines, TwoComponents, distance
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.problems.latent_problems import em
from tests.estimators.quick_oracle import QuickOracle
from tests.kernels.test_latent import drawn

KINDS = {TwoComponentMixture: TwoComponents(1.0), MixedRegression: MixedLines(1.0)}
SNR = 3.0
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def world(kind, n, d, seed, away=0.25):
    """Rows, the truth, and a start that is ``away`` times its length from it."""
    rng = np.random.default_rng(1000 + seed)
    b, u = rng.normal(size=(2, d))
    b *= SNR / np.linalg.norm(b)
    return (*drawn(KINDS[kind], n, b, seed), b, b + away * SNR * u / np.linalg.norm(u))


def quick(model, X, y, seed):
    """A fit in one process, without engine and ledger; with them where rounds read parts of the rows."""
    method = model.decided(*X.shape)
    if method.parts:
        return model.set_params(random_state=seed, cluster="threads").fit(X, y).coef_
    arrays = {"X": X} if y is None else {"X": X, "y": y}
    return method.solve(QuickOracle(method, arrays, np.random.default_rng(seed)))["coef"]


def errors(kind, n, d, seeds=range(5), **options):
    """Relative errors of fits to rows of the model, and of the algorithm without privacy from the same start."""
    found, plain = [], []
    for seed in seeds:
        X, y, b, start = world(kind, n, d, seed)
        given = {"noise_std": 1.0, "radius": 1.25 * SNR, **BUDGET, **options}
        if "init" not in options:
            given["start"] = start
        model = kind(**given)
        found.append(distance(KINDS[kind], quick(model, X, y, seed), b) / SNR)
        plain.append(distance(KINDS[kind], em(KINDS[kind], X, y, start), b) / SNR)
    return np.array(found), np.array(plain)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "band"), [
    ({"method": ClippedEM(6)}, 0.012),
    ({"method": "clip"}, 0.012),
    ({"method": SplitEM(scale="journal"), "entry_bound": 2.5}, 0.11),
    ({"method": TruncatedEM(scale=1.0)}, 0.02),
])  # fmt: skip
def test_two_components_are_found(options, band):
    found, _ = errors(TwoComponentMixture, 10_000, 5, **options)
    assert np.median(found) <= band


def test_two_lines_are_found():
    found, _ = errors(MixedRegression, 50_000, 10, seeds=range(3), method=ClippedEM(8))
    assert np.median(found) <= 0.010


def test_lines_are_found_without_a_start():
    found, _ = errors(MixedRegression, 20_000, 10, seeds=range(10), method=ClippedEM(5), init="spectral")
    assert np.median(found) <= 0.018 and found.max() <= 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_clipped_gradients_cost_at_most_a_factor_of_two(kind):
    found, plain = errors(kind, 4000, 5, seeds=range(8))
    assert np.median(found) <= 2 * np.median(plain)


@pytest.mark.parametrize(("kind", "options"), [
    (TwoComponentMixture, {"method": "clip"}),
    (TwoComponentMixture, {"method": "truncate", "entry_bound": 2.5}),
    (TwoComponentMixture, {"method": "split", "entry_bound": 2.5}),
    (MixedRegression, {"method": "clip"}),
])  # fmt: skip
def test_the_error_is_what_was_expected(kind, options):
    found, _ = errors(kind, 20_000, 5, **options)
    model = kind(noise_std=1.0, radius=SNR, start=[1.0] * 5, **options, **BUDGET)
    assert 0.5 < np.median(found) * SNR / model.outlook(20_000, 5).predicted_error < 2


@pytest.mark.parametrize("noise", [1 / 1.5, 1.0, 1.5])
@pytest.mark.parametrize("law", ["equal", "unequal", "correlated", "heavy"])
def test_two_components_that_are_not_quite_as_stated_are_no_worse_than_the_start(law, noise):
    rng, n, d = np.random.default_rng(7), 20_000, 6
    b = np.array([2.0, -1.0, 1.0, 0.5, -1.0, 1.0])
    z = np.where(rng.random(n) < (0.8 if law == "unequal" else 0.5), 1.0, -1.0)
    v = rng.standard_t(3, size=(n, d)) / math.sqrt(3) if law == "heavy" else rng.normal(size=(n, d))
    if law == "correlated":
        v = 0.8 * v[:, :1] + 0.6 * v
    X = z[:, None] * b + v
    start = b + np.array([0.5, 0.5, -0.5, 0.3, 0.5, 0.5])
    model = TwoComponentMixture(noise_std=noise, radius=4.0, start=start, **BUDGET)
    assert distance(TwoComponents(1.0), quick(model, X, None, 0), b) < 0.6 * np.linalg.norm(start - b)


# -- privacy -----------------------------------------------------------------------------------------------------------


def test_noise_is_what_the_budget_asks_for():
    """``2 C sqrt(T) / mu`` for clipped sums; ``2 b sqrt(d T) / mu`` for T sums of truncated coordinates."""
    n, d, mu = 5000, 4, gdp_mu(1.0, 1e-5)
    shared = {"noise_std": 1.5, "radius": 3.0, "start": [1.0] * d, **BUDGET}
    found = {}
    for name, method in {
        "clip": ClippedEM(7), "truncate": TruncatedEM(7, scale=2.0), "split": SplitEM(7, scale=2.0)
    }.items():  # fmt: skip
        model = TwoComponentMixture(method, **shared)
        plan, lines = model.plan(n, d), model.decided(n, d).lines()
        found[name] = plan[lines[0].name].mechanism.noise_std(model.sensitivities(n, d)[lines[0].name])
        assert plan.n_releases == 7 and plan.spent.epsilon == pytest.approx(1.0, rel=1e-6)
    bound = 2.0 * 2 * math.sqrt(2) / 3
    assert found["clip"] == pytest.approx(2 * 1.5 * math.sqrt(d) * math.sqrt(7) / mu, rel=1e-6)
    assert found["truncate"] == pytest.approx(2 * bound * math.sqrt(d) * math.sqrt(7) / mu, rel=1e-6)
    assert found["split"] == pytest.approx(2 * bound * math.sqrt(d) / mu, rel=1e-6)


def test_a_start_that_is_released_leaves_the_rest():
    """30 % of mu^2 for the second moment, and one for the curvature that steps follow."""
    model = MixedRegression("clip", noise_std=1.0, radius=3.0, init="spectral", **BUDGET)
    plan, method = model.plan(5000, 4), model.decided(5000, 4)
    sensitivities, mu = model.sensitivities(5000, 4), gdp_mu(1.0, 1e-5)
    shares = {
        line.name: line.count
        * (sensitivities[line.name] / plan[line.name].mechanism.noise_std(sensitivities[line.name])) ** 2
        for line in method.lines()
    }
    assert shares["second moment"] == pytest.approx(0.3 * mu**2, rel=1e-6)
    assert shares["gradient"] == pytest.approx(0.69 * mu**2, rel=1e-6)
    assert sum(shares.values()) == pytest.approx(mu**2, rel=1e-6)


def test_every_row_is_in_one_round_of_parts(monkeypatch):
    folds = []
    release = Coordinator.release

    def watched(self, query, item, state=None, fold=None):
        folds.append(fold)
        return release(self, query, item, state, fold)

    monkeypatch.setattr(Coordinator, "release", watched)
    X = np.random.default_rng(0).normal(size=(1003, 3))
    TwoComponentMixture(
        SplitEM(7), noise_std=1.0, radius=2.0, start=[1.0, 0.0, 0.0], epsilon=1.0, delta=1e-4, random_state=0
    ).fit(Dataset.from_arrays(X=X, row_order="arrival"))
    assert len(folds) == 7 and sum(fold.n_rows for fold in folds) == 1003
    spans = [(fold.start, fold.stop) for fold in folds]
    assert sorted(spans)[0][0] == 0 and all(
        a[1] == b[0] for a, b in zip(sorted(spans), sorted(spans)[1:], strict=False)
    )


def test_bad_rows_add_nothing_and_tell_nothing():
    X, _, _, start = world(TwoComponentMixture, 2000, 3, 0)
    X = X.copy()
    X[:3] = np.nan, np.inf, 1e308
    model = TwoComponentMixture(noise_std=1.0, radius=4.0, start=start, cluster="threads", random_state=0, **BUDGET)
    assert np.isfinite(model.fit(X).coef_).all() and np.linalg.norm(model.coef_) <= 4.0 * (1 + 1e-12)


@pytest.mark.parametrize("cluster", ["threads"])
def test_parts_of_the_rows_give_the_same_fit(cluster):
    X, y, _, start = world(MixedRegression, 3000, 3, 1)
    model = MixedRegression(noise_std=1.0, radius=4.0, start=start, cluster=cluster, random_state=0, **BUDGET)
    whole = clone(model).fit(Dataset.from_arrays(X=X, y=y))
    parts = clone(model).fit(Dataset.from_arrays(X=X, y=y, partition_rows=700))
    assert np.array_equal(whole.coef_, parts.coef_) and len(whole.history_) == whole.n_iter_


# -- a fitted one ------------------------------------------------------------------------------------------------------


def test_what_a_fitted_mixture_says():
    X, _, _, start = world(TwoComponentMixture, 20_000, 4, 2)
    model = TwoComponentMixture(noise_std=1.0, radius=4.0, start=start, random_state=0, **BUDGET).fit(X)
    sides = np.sign(X @ model.coef_)
    assert np.array_equal(model.means_, [model.coef_, -model.coef_])
    assert np.array_equal(model.predict(X), (sides < 0).astype(int))
    shares = model.predict_proba(X)
    assert np.allclose(shares.sum(axis=1), 1) and np.array_equal(shares.argmax(axis=1), model.predict(X))
    normal = [
        -((X - s * model.coef_) ** 2).sum(axis=1) / 2 - 2 * math.log(2 * math.pi) - math.log(2) for s in (1.0, -1.0)
    ]
    assert np.allclose(model.score_samples(X), np.logaddexp(*normal))


def test_what_fitted_lines_say():
    X, y, _, start = world(MixedRegression, 20_000, 3, 2)
    model = MixedRegression(noise_std=1.0, radius=4.0, start=start, random_state=0, **BUDGET).fit(X, y)
    assert np.allclose(model.predict(X[:9]), X[:9] @ model.coef_)
    t = np.linspace(-60, 60, 40_001)
    density = np.exp(model.score_samples(np.repeat(X[:1], t.size, axis=0), t))
    assert density.sum() * (t[1] - t[0]) == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(AttributeError, match="no information matrix is released"):
        model.standard_errors_  # noqa: B018


def test_it_is_an_estimator_of_scikit_learn():
    X, y, _, start = world(MixedRegression, 2000, 3, 3)
    model = MixedRegression(noise_std=1.0, radius=4.0, start=start, random_state=0, **BUDGET)
    pipeline = make_pipeline(FunctionTransformer(), model).fit(X, y)
    assert pipeline.predict(X[:5]).shape == (5,)
    other = clone(model).set_params(method=ClippedEM(3), method__n_rounds=4)
    assert other.fit(X, y).n_iter_ == 4 and other.get_params()["method__n_rounds"] == 4


# -- what is refused ---------------------------------------------------------------------------------------------------

GOOD = {"noise_std": 1.0, "radius": 2.0, "start": [1.0, 0.0, 0.0], **BUDGET}
WRONG = {
    "no sigma": ({"noise_std": None}, "noise_std is missing: pass the standard deviation"),
    "sigma of 0": ({"noise_std": 0.0}, "noise_std must be a positive finite number"),
    "sigma that is none": ({"noise_std": math.nan}, "noise_std must be a positive finite number"),
    "no radius": ({"radius": None}, "radius is missing: pass a public bound"),
    "an endless ball": ({"radius": math.inf}, "radius must be a positive finite number"),
    "no start": ({"start": None}, "start is missing: pass a public point .* or init='spectral'"),
    "a start outside": ({"start": [3.0, 0.0, 0.0]}, "start has norm 3, outside of the ball of norm radius=2"),
    "a start of 0": ({"start": [0.0, 0.0, 0.0]}, "start=0 never moves"),
    "a short start": ({"start": [1.0]}, "start must have 3 numbers, one for each column, got 1"),
    "a start that is none": ({"start": [1.0, math.nan, 0.0]}, "start must be a list of finite numbers"),
    "two starts": ({"init": "spectral"}, "start is a point and init finds one: pass one of them"),
    "an unknown start": ({"init": "random"}, "init='random' is not known"),
    "an unknown method": ({"method": "klip"}, "method='klip' is not known; did you mean 'clip'"),
    "an unknown scale": ({"method": ("truncate", "thesys")}, "scale='thesys' is not known"),
    "no delta": ({"delta": 0.0}, "gradients are released with Gaussian noise, which needs delta > 0"),
    "what nobody reads": ({"entry_bound": 1.0}, "entry_bound=1.0 has nobody to read it with method='clip'"),
    "no such bound": ({"method": "truncate", "entry_bound": -1.0}, "entry_bound must be a positive finite number"),
    "too many parts": ({"method": SplitEM(400)}, "n_rounds=400 parts of 300 rows"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_before_a_row_is_read(name, kind, monkeypatch):
    changes, text = WRONG[name]
    monkeypatch.setattr(Ledger, "charge", lambda *a, **k: pytest.fail("charged"), raising=False)
    with pytest.raises((BudgetError, MissingBound), match=text):
        if isinstance(method := changes.get("method"), tuple):
            changes = {"method": TruncatedEM(scale=method[1])}
        X = np.zeros((300, 3))
        kind(**{**GOOD, **changes}).fit(*((X, np.zeros(300)) if kind.labelled else (X,)))


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_rows_that_may_come_or_go_are_refused_before_anything_is_charged(kind, tmp_path):
    """Also where a start is released first, of all rows."""
    rows = {"X": np.zeros((300, 3))} | ({"y": np.zeros(300)} if kind.labelled else {})
    dataset = Dataset.from_arrays(tmp_path / "rows", **rows)
    with closing(Ledger(":memory:")) as ledger:
        model = kind(
            "split", noise_std=1.0, radius=2.0, init="spectral", neighbours="add-or-remove-one", n_public=300,
            **BUDGET, ledger=ledger,
        )  # fmt: skip
        with pytest.raises(BudgetError, match="disjoint for replace-one only"):
            model.fit(dataset)
        assert ledger.spent(dataset.account).epsilon == 0
    with pytest.raises(BudgetError, match="disjoint for replace-one only"):
        model.plan(300, 3)


def test_a_hopeless_setting_is_foretold():
    """A few rows and a small epsilon: a warning, from public numbers, before anything is charged."""
    model = TwoComponentMixture(**{**GOOD, "epsilon": 0.01})
    look = model.outlook(200, 3)
    assert look.predicted_error > 2.0 and look.warnings
    with pytest.warns(UserWarning, match="as far as they can go: take more rows"):
        model.fit(np.zeros((200, 3)))
