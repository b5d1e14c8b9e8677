"""Rankings by private gradients of all pairs: how good, how private, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpdist import Dataset, PairwiseRanker
from dpdist.central import PairGradient
from dpdist.errors import DataError, DpdistError
from dpdist.estimators.outlook import nobody_asks
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.problems.catalog import PROBLEMS
from dpdist.queries.pair_sums import PairSum

BOUNDS = {"classes": [0, 1], "row_norm": 1.0, "radius": 1.0, "delta": 1e-6, "random_state": 0, "cluster": "threads"}
GENERATED = PROBLEMS["pair-gmm"].generate({"n": 10_000})
ROWS = GENERATED.dataset.read(0, 10_000)
X, Y = ROWS["X"], ROWS["y"]


def risk(w, X=X, y=Y):
    """The mean loss of all ordered pairs."""
    s, n, total = X @ w, len(y), 0.0
    for some in np.array_split(s[y == 1], 20):
        total -= 2 * log_expit(2 * (some[:, None] - s[y == 0])).sum()
    same = n * (n - 1) - 2 * (y == 1).sum() * (y == 0).sum()
    return (total + same * math.log(2)) / (n * (n - 1))


def best():
    """In the ball of norm 1, by the same gradients without noise (the bins of which do not matter at 600 steps)."""
    query, w = PairSum(1.0, len(X), X.shape[1]), np.zeros(X.shape[1])
    labels = np.where(Y == 1, 1.0, -1.0)
    for _ in range(600):
        pairs = query.explore(lambda s: query.summarise({"X": X, "y": labels}, s, None), w, None, None)
        w = w + 4 / (len(X) * (len(X) - 1)) * (pairs * query.grid).astype(float)
        w = w / max(1.0, np.linalg.norm(w))
    return w


@pytest.fixture(scope="module")
def fitted():
    return PairwiseRanker("gradient", **BOUNDS).fit(GENERATED.dataset)


def test_a_ranking_is_nearly_as_good_as_without_privacy(fitted):
    metrics = GENERATED.metrics(fitted)
    assert metrics["trivial_error"] == 0.5 and 0.005 < metrics["nonprivate_error"] < 0.012
    assert metrics["error"] <= 0.02
    assert fitted.score(X, Y) == pytest.approx(roc_auc_score(Y, X @ fitted.coef_), abs=1e-3)
    assert 1 - metrics["error"] == pytest.approx(fitted.score(X, Y), abs=0.01)


@pytest.mark.slow
def test_the_excess_is_within_its_band_and_doubled_noise_is_not(monkeypatch):
    """Five seeds; with 4 G/n, twice what one row can do, the same code misses the band."""
    least = risk(best())

    def excess():
        seeds = [{**BOUNDS, "random_state": seed} for seed in range(5)]
        return (
            float(np.mean([risk(PairwiseRanker("gradient", **s).fit(GENERATED.dataset).coef_) for s in seeds])) - least
        )

    ours = excess()
    assert 0 < ours <= 0.0067
    bound = PairSum.bound.fget
    monkeypatch.setattr(PairSum, "bound", property(lambda self: 2 * bound(self)))
    assert excess() > 2 * ours


def test_the_noise_is_that_of_half_the_bound_of_any_pair_loss(fitted):
    n, rounds, mu = 10_000, fitted.n_iter_, gdp_mu(1.0, 1e-6)
    std = fitted.releases_[0].noise_std * 4 / (n * (n - 1))
    assert std == pytest.approx(2 * 4 / n * math.sqrt(rounds) / mu, rel=1e-6), "2 G/n, G = 4 R"


def test_results_do_not_depend_on_partitions(fitted):
    parts = Dataset.from_arrays(X=X, y=Y, partition_rows=777, dataset_id="parts")
    assert np.array_equal(PairwiseRanker("gradient", **BOUNDS).fit(parts).coef_, fitted.coef_)


def test_correlated_columns_and_few_positive_rows_are_ranked_as_well():
    """8 % positive: against logistic regression without privacy, on fresh rows; plain steps come nowhere near."""
    rng = np.random.default_rng(7)
    mix = np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(range(8), range(8))))
    rows = rng.normal(size=(120_000, 8)) @ mix.T / 4
    labels = (rng.random(120_000) < 1 / (1 + np.exp(3.4 - 5 * rows @ [1, -1, 0.5, 0, 0, 0.5, 0, 1]))).astype(int)
    train, test = slice(100_000), slice(100_000, None)
    data = Dataset.from_arrays(X=rows[train], y=labels[train], dataset_id="correlated")
    target = plain_auc(LogisticRegression().fit(rows[train], labels[train]), rows[test], labels[test])
    for solver in ("auto", "preconditioned"):
        model = PairwiseRanker(solver, **{**BOUNDS, "radius": None}).fit(data)
        assert model.score(rows[test], labels[test]) > target - 0.01
    plain = PairwiseRanker("gradient", **{**BOUNDS, "radius": None}).fit(data)
    assert plain.score(rows[test], labels[test]) < target - 0.01


def test_rare_ones_and_columns_of_other_scales_are_ranked_as_well():
    """0/1 columns beside numbers 30 times and more apart, 8 % positive; gradients of rows as they come are far off."""
    rng = np.random.default_rng(11)
    ones = rng.random((120_000, 5)) < [0.02, 0.05, 0.1, 0.3, 0.9]
    spreads = np.geomspace(0.1, 30, 5)
    rows = np.hstack([ones, (rng.normal(size=(120_000, 5)) + 2) * spreads])
    scores = rows @ (rng.normal(size=10) / rows.std(axis=0)) / 2
    labels = (rng.random(120_000) < 1 / (1 + np.exp(np.quantile(scores, 0.94) - scores))).astype(int)
    train, test = slice(100_000), slice(100_000, None)
    data = Dataset.from_arrays(X=rows[train], y=labels[train], dataset_id="scales")
    whole = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows[train], labels[train])
    target = plain_auc(whole, rows[test], labels[test])
    settings = {**BOUNDS, "radius": None, "row_norm": 80.0}
    model = PairwiseRanker(**settings).fit(data)
    assert model.score(rows[test], labels[test]) > target - 0.01
    assert PairwiseRanker("gradient", **settings).fit(data).score(rows[test], labels[test]) < target - 0.03
    close = PairwiseRanker(**{**settings, "radius": 0.5}).fit(data)
    assert np.linalg.norm(close.coef_) <= 0.5 + 1e-6 < np.linalg.norm(model.coef_)


def test_a_small_difference_of_two_columns_is_found():
    """What ranks is that the first two columns are not quite the same, as planned and actual times."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(120_000, 6))
    apart = rows[:, 1].copy()
    rows[:, 1] = rows[:, 0] + 0.1 * apart
    labels = (rng.random(120_000) < 1 / (1 + np.exp(1.5 - 1.5 * apart - 0.5 * rows[:, 2]))).astype(int)
    train, test = slice(100_000), slice(100_000, None)
    whole = LogisticRegression(C=1e4).fit(rows[train], labels[train])
    data = Dataset.from_arrays(X=rows[train], y=labels[train], dataset_id="difference")
    model = PairwiseRanker(**{**BOUNDS, "radius": None, "row_norm": 4.0}).fit(data)
    assert model.score(rows[test], labels[test]) > plain_auc(whole, rows[test], labels[test]) - 0.01


def test_few_rows_fill_the_frame():
    """The noise of the second moment of 8000 shortens all axes; rows that it left short lost .05 to .08, now .02."""
    lost = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows = rng.exponential(size=(20_000, 12)) + 3
        scores = (rows - 4) @ rng.normal(size=12)
        labels = (2 * scores / scores.std() + rng.logistic(size=20_000) > 0).astype(int)
        settings = {**BOUNDS, "radius": None, "row_norm": 15.0, "random_state": seed}
        model = PairwiseRanker("preconditioned", **settings).fit(rows[:8000], labels[:8000])
        whole = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows[:8000], labels[:8000])
        lost.append(plain_auc(whole, rows[8000:], labels[8000:]) - model.score(rows[8000:], labels[8000:]))
    assert np.mean(lost) < 0.04


def test_auto_says_why():
    model = PairwiseRanker(**BOUNDS)
    assert "too few rows" in model.decided(500, 20).reason
    assert "second moment stands out" in model.decided(100_000, 20).reason
    with pytest.raises(DpdistError, match="501 features are too many"):
        PairwiseRanker("preconditioned", **BOUNDS).plan(1000, 501)


def plain_auc(model, X, y):
    return roc_auc_score(y, model.decision_function(X))


def test_numbers_are_labels_above_a_threshold():
    data = Dataset.from_arrays(X=X, y=np.where(Y == 1, 7.5, -2.0), dataset_id=GENERATED.dataset.id)
    settings = {name: value for name, value in BOUNDS.items() if name != "classes"}
    model = PairwiseRanker("gradient", threshold=3.0, **settings).fit(data)
    assert model.score(X, np.where(Y == 1, 4.0, 2.0)) > 0.97


@pytest.mark.parametrize("labels", [np.zeros(300, dtype=int), np.full(300, 9), np.full(300, np.nan)])
def test_one_class_and_foreign_labels_are_no_error(labels):
    with nobody_asks():
        model = PairwiseRanker(PairGradient(n_rounds=2), **BOUNDS).fit(X[:300], labels)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"classes": None}, "classes is missing"),
        ({"threshold": 1.0}, "both say which rows are positive"),
        ({"classes": [0, 1, 2]}, "two different labels"),
        ({"classes": [1, 1]}, "two different labels"),
        ({"row_norm": None}, "row_norm is missing"),
        ({"radius": -1.0}, "radius must be a positive"),
        ({"delta": None}, "needs delta > 0"),
        ({"solver": "output-perturbation"}, "is not known"),
        ({"classes": None, "threshold": np.nan}, "threshold must be a number"),
    ],
)
def test_bad_settings_are_refused_before_a_row_is_read(change, says):
    with pytest.raises(DpdistError, match=says):
        PairwiseRanker(**{**BOUNDS, **change}).plan(1000, 5)


def test_labels_of_another_kind_are_refused():
    with pytest.raises(DataError, match="no label could ever match"):
        PairwiseRanker(**BOUNDS).fit(X[:50], Y[:50].astype(str))
    with pytest.raises(DataError, match=r"threshold=0\.5 is for numbers"):
        PairwiseRanker(**{**BOUNDS, "classes": None, "threshold": 0.5}).fit(X[:50], Y[:50].astype(str))


def test_labels_of_a_score_are_those_of_a_fit(fitted):
    """Objects as well; one for each row."""
    score = fitted.score(X, Y)
    assert fitted.score(X, Y.astype(object)) == fitted.score(X.tolist(), Y.tolist()) == score
    for labels, says in ((Y[:-1], "9999 labels and 10000 rows"), (None, "one label per row"), (X, "one label per row")):
        with pytest.raises(DataError, match=says):
            fitted.score(X, labels)


def test_a_plan_for_other_rows_is_refused():
    query = PairSum(1.0, 100, 3)
    with pytest.raises(DpdistError, match="for 100 rows, and there are 99"):
        query.check_rows(99)


EPSILON, DELTA = 4.0, 1e-2
LABELS = np.array([1.0] + [-1.0] * 19)
BITS = StreamBits(np.random.Generator(np.random.Philox(0)))


QUERY = PairSum(1.0, 20, 2)


def moved(side: float) -> np.ndarray:
    """One positive row among negative ones that all score higher: every pair has nearly the weight 1."""
    rows, w = np.tile([0.9, 0.0], (20, 1)), np.array([40.0, 0.0])
    rows[0] = 0.0, side
    return QUERY.explore(lambda w: QUERY.summarise({"X": rows, "y": LABELS}, w, None), w, None, BITS)


def test_an_audit_passes_and_catches_noise_for_half_of_what_a_row_moves(monkeypatch):
    claimed = gdp_mu(EPSILON, DELTA)
    mechanism, totals = Gaussian().at(claimed), [moved(-1e6), moved(1e6)]

    def found():
        units = QUERY.sensitivity(Neighbours.REPLACE_ONE) / QUERY.grid
        runs = [lambda total=total: float(mechanism.release(total, units, BITS)[1]) for total in totals]
        return audit_two_point(*runs, 1000, DELTA, 1 - 1e-6).mu_lower

    assert 0.6 * claimed < found() <= claimed
    bound = PairSum.bound.fget
    monkeypatch.setattr(PairSum, "bound", property(lambda self: bound(self) / 2))  # G/n
    assert found() > claimed
