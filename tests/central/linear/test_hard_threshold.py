"""Hard thresholding: equal to its non-private twin where noise is absent, as accurate as published, private, small.

Everything random is seeded, or says how likely it is to fail by chance.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from scipy import stats

from dpdist import Budget, Dataset, LogisticRegression, Minimizer
from dpdist.central.linear.hard_threshold import HardThresholding, NoisyThresholding, PeelingDescent
from dpdist.constraints import ElasticNet, L1Ball, L2Ball, hard_threshold
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.outlook import nobody_asks
from dpdist.losses import Logistic
from dpdist.method import Public
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.problems.linear_problems import logit
from dpdist.problems.sparse_problems import heavy_logistic, heavy_sparse
from tests.central.linear.objects import objects
from tests.central.linear.statements import problem
from tests.central.linear.test_frank_wolfe import residual_gradient, rows_of, truncated_gradient
from tests.privacy.accounting.zcdp import total_rho

IHT = {"solver": "iht", "cluster": "threads", "fit_intercept": False, "epsilon": 1.0, "delta": 1e-6, "n_nonzero": 8}
RESIDUAL = {**IHT, "gradient": "residual", "feature_bound": 3.0, "residual_bound": 1.12}
TRUNCATE = {**IHT, "gradient": "truncate", "second_moment": 1.0}
NORM = {**IHT, "gradient": "norm", "row_norm": 1.0}
NO_NOISE = 1e9
SETTING = {"coefficients": (0.25, -0.25, 0.25, -0.25), "noise_std": 0.25}


def minimizer(*args, **options):
    return Minimizer(*args, **objects(**options))


def twin(gradient, d, k, n_rounds, step, refine=lambda w: w):
    """Hard thresholding with exact gradients ``gradient(t, w)`` of the mean."""
    w, points = np.zeros(d), []
    for t in range(n_rounds):
        points.append(w)
        w = refine(hard_threshold(w - step * gradient(t, w), k))
    return w, points


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_without_noise_it_is_hard_thresholding(delta):
    X, y = rows_of(400, 9)
    options = {**RESIDUAL, "epsilon": NO_NOISE, "n_nonzero": 3, "delta": delta}
    model = minimizer("squared", **options).fit(X, y)
    w, points = twin(lambda t, w: residual_gradient(X, y, w, 3.0, 1.12) / 400, 9, 3, 6, 2 / 3)
    np.testing.assert_allclose(model.coef_, w, atol=1e-4)
    np.testing.assert_allclose(model.history_, points, atol=1e-4)
    assert model.n_iter_ == 6 and model.solver_ == "iht" and model.guarantee_.delta == delta


def test_a_split_reads_every_row_once():
    X, y = rows_of(1003, 9)
    options = {**TRUNCATE, "epsilon": NO_NOISE, "n_nonzero": 2, "rows": "split", "n_rounds": 5, "scale": 0.8}
    del options["second_moment"]
    model = minimizer("squared", **options).fit(X, y)
    edges = [t * 1003 // 5 for t in range(6)]

    def gradient(t, w):
        rows = slice(edges[t], edges[t + 1])
        return truncated_gradient(X[rows], y[rows], w, 0.8) / (1003 / 5)

    w, points = twin(gradient, 9, 2, 5, 2 / 3)
    np.testing.assert_allclose(model.coef_, w, atol=1e-4)
    np.testing.assert_allclose(model.history_, points, atol=1e-4)


def test_penalties_and_constraints_refine_the_sparse_point():
    X, y = rows_of(400, 9)
    ridge, ball = ElasticNet(0.2), L2Ball(0.4)
    options = {**RESIDUAL, "epsilon": NO_NOISE, "n_nonzero": 3}
    model = minimizer("squared", ridge, ball, **options).fit(X, y)
    step = 2 / 3 / 1.2
    w, _ = twin(
        lambda t, w: residual_gradient(X, y, w, 3.0, 1.12) / 400,
        9,
        3,
        6,
        step,
        lambda u: ball.project(ridge.prox(u, step)),
    )
    np.testing.assert_allclose(model.coef_, w, atol=1e-4)
    assert np.linalg.norm(model.coef_) <= 0.4 + 1e-12


def test_the_intercept_is_a_coefficient_of_usual_size():
    X, y = rows_of(400, 4)
    options = {**RESIDUAL, "epsilon": NO_NOISE, "n_nonzero": 3, "fit_intercept": True}
    model = minimizer("squared", **options).fit(X, y + 0.5)
    wide = np.column_stack([X, np.ones(400)])  # a third of the bound of a feature
    w, points = twin(lambda t, w: residual_gradient(wide, y + 0.5, w, 3.0, 1.12) / 400, 5, 3, 6, 2 / 3)
    np.testing.assert_allclose([*model.coef_, model.intercept_], w, atol=1e-4)
    assert model.intercept_ > 0.2
    # histories are in the units of the estimator, whose constant feature is as large as the bound
    np.testing.assert_allclose(model.history_, points / np.array([1, 1, 1, 1, 3.0]), atol=1e-4)


def test_noise_on_everything_then_a_public_threshold():
    data, _ = logit(2000, 9, random_state=0)
    options = {**NORM, "epsilon": NO_NOISE, "n_nonzero": 3}
    model = LogisticRegression(classes=[0, 1], alpha=1e-2, **objects(**options)).fit(data)
    rows = data.read(0, 2000)
    X, y = rows["X"], 2.0 * rows["y"] - 1
    step = 0.75 / (0.25 + 1e-2)
    w, _ = twin(
        lambda t, w: Logistic().derivative(X @ w, y) @ X / 2000,
        9,
        3,
        300,
        step,
        lambda u: ElasticNet(1e-2).prox(u, step),
    )
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-3)
    assert model.n_iter_ == 300 and np.count_nonzero(model.coef_) == 3


def test_the_noise_of_a_release_is_what_the_plan_says():
    """Chosen entries minus exact ones, standardised, are standard normal: 48 of them, seeded; chance of a false alarm
    below 1e-6."""
    data, _ = heavy_sparse(20_000, 50, random_state=0, **SETTING)
    rows = data.read(0, 20_000)
    model = minimizer("squared", **RESIDUAL, random_state=3).fit(data)
    z = []
    for release, w in zip(model.releases_, model.history_, strict=True):
        exact = w * 20_000 / (2 / 3) - residual_gradient(rows["X"], rows["y"], w, 3.0, 1.12)
        chosen = np.flatnonzero(release.value)
        assert len(chosen) == 8
        z.extend((release.value - exact)[chosen] / release.noise_std)
        assert release.sensitivity == 2 * 3.0 * 1.12
    # the choice looks at exact values, so the noise of what is chosen is not biased by it
    assert stats.kstest(z, stats.norm.cdf).pvalue > 1e-6
    assert 0.3 < np.mean(np.square(z)) < 2.5


def test_at_most_so_many_coefficients_differ_from_zero():
    data, _ = heavy_sparse(2000, 50, random_state=0)
    for options in (RESIDUAL, TRUNCATE, {**RESIDUAL, "rows": "split"}, {**RESIDUAL, "delta": 0.0},
                    {**IHT, "feature_bound": 3.0, "gradient": "shrink", "constraint": L1Ball(1.0)}):  # fmt: skip
        model = minimizer("squared", **{"constraint": L2Ball(1.0), **options, "n_nonzero": 4}, random_state=0).fit(data)
        assert all(np.count_nonzero(w) <= 4 for w in [*model.history_, model.coef_])


def test_classes_one_against_the_rest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 20))
    y = np.argmax(X[:, :3] + 0.3 * rng.normal(size=(30_000, 3)), axis=1)
    options = {**IHT, "gradient": "residual", "feature_bound": 3.0, "n_nonzero": 4}
    model = LogisticRegression(classes=[0, 1, 2], **objects(**options), random_state=0).fit(X, y)
    assert model.score(X, y) > 0.75
    assert len(model.releases_) == 24 and np.count_nonzero(model.coef_) == 12


def test_public_rules():
    def decided(loss="squared", **options):
        stated = problem(loss, **options)
        return HardThresholding(n_nonzero=2).decide(stated.public, stated)

    residual = decided(gradient="residual", feature_bound=3.0, residual_bound=1.0)
    assert isinstance(residual, PeelingDescent)
    assert (residual.n_rounds, residual.step) == (6, pytest.approx(2 / 3))
    assert decided(gradient="residual", feature_bound=6.0, residual_bound=1.0).step == pytest.approx(1 / 6)
    logistic = decided("logistic", gradient="truncate", second_moment=1.0, penalty=ElasticNet(0.01))
    assert (logistic.n_rounds, logistic.step) == (8, pytest.approx(2 / 3 / 0.26))
    ball = {"gradient": "shrink", "feature_bound": 3.0}
    assert decided(**ball, constraint=L2Ball(1.0)).bounded.bound == pytest.approx(9 * (2**0.5 + 1))
    assert decided(**ball, constraint=L1Ball(1.0)).bounded.bound == pytest.approx(18)
    norm = decided("logistic", gradient="norm", row_norm=1.0)
    assert isinstance(norm, NoisyThresholding) and norm.step == pytest.approx(3.0)
    # 3 sigma(T) sqrt(2 k ln d) <= 1 allows 300 rounds at 2e4 rows, fewer with less data
    for n, rounds in ((20_000, 300), (6000, 100), (1000, 20)):
        public = Public(n, 54, Budget(0.5, 1e-6))
        many = problem("logistic", public, gradient="norm", row_norm=1.0)
        assert HardThresholding(n_nonzero=10).decide(public, many).n_rounds == rounds


def test_a_truncation_balances_bias_and_noise():
    """``scale**2`` is inversely proportional to the noise, and scales with the second moment."""

    def scale(**options):
        public = Public(options.pop("n_rows", 10**6), 5, Budget(1.0, 1e-6))
        given = {"gradient": "truncate", "second_moment": 1.0, **options}
        return HardThresholding(n_nonzero=4).decide(public, problem("squared", public, **given)).bounded.scale

    assert scale(second_moment=4.0) == pytest.approx(2 * scale())
    assert 2.5 < scale() / scale(n_rows=10**5) < 10**0.5 * 1.01
    assert scale(rows="split") < scale()
    smooth = scale(gradient="smooth-truncate")
    assert smooth > scale()  # twice the bias at beta = 1
    assert scale(scale=3.0) == 3.0


def test_plans_and_outlook():
    plan = minimizer("squared", **RESIDUAL).plan(100_000, 200)
    assert total_rho(plan) == pytest.approx(0.02436, rel=2e-3)  # rho(1, 1e-6)
    split = minimizer("squared", **RESIDUAL, rows="split").plan(100_000, 200)
    assert len(split.items) == 6
    # every fold may spend everything
    assert split["step 1"].mechanism.strength == pytest.approx(plan["step"].mechanism.strength * 6**0.5, rel=1e-2)
    for options in (RESIDUAL, {**NORM, "clip_norm": 1.0}):
        near, far = (minimizer("squared", **options).outlook(n, 200).predicted_error for n in (10**4, 10**6))
        assert 0 < far < near


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"n_nonzero": None}, MissingBound, "n_nonzero is missing"),
        ({"n_nonzero": 6}, BudgetError, "exceeds the number of coefficients"),
        ({"feature_bound": None}, MissingBound, "feature_bound is missing"),
        ({"gradient": "shrink"}, MissingBound, "constraint is missing"),
        ({"gradient": "entrywise"}, BudgetError, "'norm'"),
        ({"gradient": "norm"}, MissingBound, "row_norm is missing"),
        ({"gradient": "norm", "row_norm": 1.0, "clip_norm": 1.0, "delta": 0.0}, BudgetError, "delta > 0"),
        ({"gradient": "norm", "row_norm": 1.0, "rows": "split"}, BudgetError, "'all'"),
        ({"rows": "split", "neighbours": "add-or-remove-one", "n_public": 100}, BudgetError, "replace-one"),
        ({"rows": "split", "n_rounds": 101}, BudgetError, "a row for every round"),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, dict) else None,
)
def test_what_is_refused(options, error, words):
    options = {**RESIDUAL, "n_nonzero": 2, **options}
    with pytest.raises(error, match=words):
        minimizer("squared", **options).plan(100, 5)


# --- accuracy ---------------------------------------------------------------------------------------------------------


def mean_excess(n, seeds, **options):
    errors = []
    for seed in seeds:
        data, truth = heavy_sparse(n, 200, random_state=seed, **SETTING)
        errors.append(np.sum((minimizer("squared", random_state=seed, **options).fit(data).coef_ - truth) ** 2))
    return float(np.mean(errors))


def test_accuracy_on_heavy_tails():
    """The zero vector has 0.25. Seeded."""
    assert mean_excess(20_000, range(2), **RESIDUAL) <= 0.004
    assert mean_excess(20_000, range(2), **RESIDUAL, rows="split") <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("options, band", [(RESIDUAL, 0.0006), ({**RESIDUAL, "rows": "split"}, 0.0017)],
                         ids=["full", "split"])  # fmt: skip
def test_bands(options, band, record_property):
    error = mean_excess(100_000, range(5), **options)
    record_property("excess", error)
    print(f"excess {error:.6f}, band {band}")
    assert error <= band


@pytest.fixture(scope="module")
def unseen():
    data, _ = heavy_logistic(100_000, 200, random_state=99)
    rows = data.read(0, data.n_rows)
    return rows["X"], 2.0 * rows["y"] - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [TRUNCATE, {**TRUNCATE, "gradient": "smooth-truncate"}, {**IHT, "gradient": "residual", "feature_bound": 3.0}],
    ids=["truncate", "smooth", "residual"],
)
def test_sparse_logistic_band(options, unseen, record_property):
    """The best predictor has log-loss 0.471, the zero vector 0.693."""
    X, y = unseen
    losses = []
    for seed in range(5):
        data, _ = heavy_logistic(50_000, 200, random_state=seed)
        model = LogisticRegression(classes=[0, 1], alpha=0.01, random_state=seed, **objects(**options)).fit(data)
        losses.append(np.logaddexp(0, -y * (X @ model.coef_[0])).mean())
    record_property("loss", float(np.mean(losses)))
    assert np.mean(losses) <= 0.481


# --- where the rows are -----------------------------------------------------------------------------------------------


def test_partitions_and_streaming_change_no_bit(monkeypatch, tmp_path):
    data, _ = heavy_sparse(2500, 40, store=tmp_path / "rows.zarr", partition_rows=512, dtype="float32")
    rows = data.read(0, 2500)
    fits = [minimizer("squared", random_state=1, **RESIDUAL).fit(data).coef_]
    for partition_rows in (2500, 333):
        again = Dataset.from_arrays(partition_rows=partition_rows, **rows)
        fits.append(minimizer("squared", random_state=1, **RESIDUAL).fit(again).coef_)
    monkeypatch.setattr("dpdist.engine.coordinator.RESIDENT_SHARE", 0.0)
    fits.append(minimizer("squared", random_state=1, **RESIDUAL).fit(data).coef_)
    assert all(np.array_equal(fits[0], other) for other in fits[1:])


WIDE = """
    import sys
    from pathlib import Path

    import numpy as np
    import dpdist.engine.coordinator as coordinator
    from dpdist import Dataset, Minimizer
    from dpdist.central import FrankWolfe, HardThresholding
    from dpdist.constraints import L1Ball

    def peak():  # of this process alone: getrusage starts from that of the parent
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    coordinator.RESIDENT_SHARE = 0.0
    data = Dataset.open(sys.argv[1])
    common = dict(cluster="threads", fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    methods = [
        dict(solver=FrankWolfe(3), constraint=L1Ball(1.0), gradient="residual", feature_bound=2.0, residual_bound=1.0),
        dict(solver=FrankWolfe(3), constraint=L1Ball(1.0), gradient="truncate", second_moment=1.0, rows="split"),
        dict(solver=HardThresholding(3, n_nonzero=8), gradient="residual", feature_bound=3.0, residual_bound=1.0),
        dict(solver=HardThresholding(3, n_nonzero=8), gradient="truncate", second_moment=1.0),
    ]
    small = Dataset.from_arrays(X=np.zeros((4, 20_000), np.float32), y=np.zeros(4))  # compiled code, tables, imports
    for options in methods:
        Minimizer("squared", **common, **options).fit(small)
    before = peak()
    for options in methods:
        assert np.isfinite(Minimizer("squared", **common, **options).fit(data).coef_).all()
    print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of the memory from /proc")
def test_wide_rows_are_streamed_in_little_memory(tmp_path):
    """20 000 features in float32 from Zarr: 80 MB of rows in partitions of 4 MB.

    A thread holds a partition, reads the next one ahead and decompresses it: 4 of them at most, 32 MB for
    2 threads. A gradient per row in float64 would take 160 MB.
    """
    from dpdist.data.dataset_schema import ArraySpec, Schema, new_id
    from dpdist.data.writing import write_group

    n, d = 1000, 20_000
    rng = np.random.default_rng(0)

    def fill(start, stop):
        X = np.zeros((stop - start, d), dtype=np.float32)
        X[:, rng.integers(d, size=200)] = rng.standard_t(5, (stop - start, 200))
        return {"X": X, "y": rng.standard_t(3, stop - start)}

    arrays = {"X": ArraySpec("float32", (n, d)), "y": ArraySpec("float64", (n,))}
    schema = Schema(id=new_id(), arrays=arrays, row_order="arrival", partition_rows=50)
    write_group(tmp_path / "wide.zarr", schema, fill, compression="zstd")
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WIDE), str(tmp_path / "wide.zarr")],
        env={**os.environ, "DASK_NUM_WORKERS": "2"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    grown = int(run.stdout)
    print(f"grown by {grown / 1e6:.0f} MB")
    assert grown < 60e6, f"{grown / 1e6:.0f} MB"


# --- privacy ----------------------------------------------------------------------------------------------------------

EPSILON, DELTA = 16.0, 1e-2


def transcript(label, seeds, **options):
    """Everything that is released on a single row, added up; with one coordinate the choice costs nothing."""
    options = {**RESIDUAL, "epsilon": EPSILON, "delta": DELTA, "n_nonzero": 1, "n_rounds": 2, **options}
    options["random_state"] = next(seeds)
    with nobody_asks():  # delta is large here on purpose
        model = minimizer("squared", **options).fit(np.full((1, 1), 1e6), np.array([label]))
    # the public anchors are taken off again: what is left are the noisy gradients
    anchors = [w[0] / (2 / 3) for w in model.history_]
    return sum(float(r.value[0]) - a for r, a in zip(model.releases_, anchors, strict=True))


def audit(**options):
    seeds = itertools.count()
    return audit_two_point(
        lambda: transcript(-1e9, seeds, **options), lambda: transcript(1e9, seeds, **options), 350, DELTA, 1 - 1e-6
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient": "truncate", "second_moment": 1.0, "residual_bound": None}],
    ids=["residual", "truncate"],
)
def test_releases_are_as_private_as_claimed(options):
    """The values have half of the cost, so mu is at most ``sqrt(rho)``. Seeded."""
    result = audit(**options)
    rho = total_rho(minimizer("squared", **{**RESIDUAL, "epsilon": EPSILON, "delta": DELTA, "n_nonzero": 1}).plan(1, 1))
    assert 0.4 * np.sqrt(rho) < result.mu_lower <= np.sqrt(rho) * (1 + 1e-9)
    assert result.epsilon_lower <= EPSILON


def test_too_little_noise_is_caught(monkeypatch):
    from dpdist.queries.coordinate_gradient_sums import Shifted

    monkeypatch.setattr(Shifted, "sensitivity", lambda self, *rest: 0.5 * self.bound)
    rho = total_rho(minimizer("squared", **{**RESIDUAL, "epsilon": 4.0, "delta": DELTA, "n_nonzero": 1}).plan(1, 1))
    assert audit(epsilon=4.0).mu_lower > np.sqrt(2 * rho)
