"""Sparse regression with private records: bounds of what is reported, noise as predicted, and the acceptance table."""

from __future__ import annotations

import math
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone

from dpdist import Ledger
from dpdist.data import Dataset, Units
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.local import SparseRegression, simulate
from dpdist.local.linear.label_private import LabelThresholding
from dpdist.local.linear.links import Link, Wave
from dpdist.local.randomisers.vectors import GaussianVector, best_vector
from dpdist.local.sparse.rounds import IterativeThresholding, Marginal, TwoPhase
from dpdist.local.sparse.sparse_statement import General
from dpdist.local.sparse.statistics import FromStatistics, WithPublicDesign
from dpdist.local.statistics.residuals import BallResiduals, BoxResiduals, Selected, selection
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.problems.sparse_problems import hard_instance, sparse_design

ROWS = {
    "plain": ([1.0, -2.0, 0.5], 0.7),
    "huge": ([1e300, -1e300, 1e300], 1e300),
    "tiny": ([1e-310, 1e-320, 0.0], 1e-310),
    "zero": ([0.0, 0.0, 0.0], 0.0),
    "nan": ([np.nan, 1.0, 1.0], 1.0),
    "inf": ([1.0, np.inf, 1.0], 1.0),
    "label": ([1.0, 1.0, 1.0], np.nan),
    "infinite label": ([1.0, 1.0, 1.0], -np.inf),
}
STATISTICS = {
    "box": BoxResiduals(3, 2.0, 1.5),
    "box with a norm": BoxResiduals(3, 2.0, 1.5, 2.0),
    "box with a gradient": BoxResiduals(3, 2.0, 1.5, link=Wave(), link_mode="gradient"),
    "ball": BallResiduals(3, 2.0, row_norm=1.5),
    "ball, inverted": BallResiduals(3, 2.0, row_norm=1.5, link=Wave(), link_mode="invert"),
    "joint": JointStatistics(3, 1.5, 2.0, 0.4),
    "selected": Selected(BallResiduals(2, 2.0, row_norm=1.5), 3, 2),
    "selected, joint": Selected(JointStatistics(2, 1.5, 2.0, 0.4), 3, 2),
}


def block(*names: str) -> dict[str, np.ndarray]:
    return {"X": np.array([ROWS[name][0] for name in names]), "y": np.array([ROWS[name][1] for name in names])}


def design(n: int, d: int, k: int, seed: int, **parameters):
    return sparse_design(n, d, n_nonzero=k, random_state=seed, dtype="float32", **parameters)


def error(model: SparseRegression, truth: np.ndarray) -> float:
    return float(np.linalg.norm(model.coef_ - truth) / np.linalg.norm(truth))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_values_are_in_their_domain_whatever_the_record(name, scale):
    statistic, theta = STATISTICS[name], scale * np.array([0.5, -1.0, 0.0])
    values = statistic.values(block(*ROWS), theta)
    assert values.shape == (len(ROWS), statistic.size) and np.isfinite(values).all()
    if statistic.domain == "box":
        assert np.abs(values).max() <= 1
    else:
        assert np.linalg.norm(values, axis=1).max() <= 1 + 1e-12
    null = [list(ROWS).index(n) for n in ("zero", "nan", "inf", "label", "infinite label")]
    assert not values[null].any()
    assert values[list(ROWS).index("plain")].any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_stored_types_do_not_matter(dtype):
    X, y = np.array([[1, -1, 1], [0, 2, -1]], dtype=dtype), np.array([[1], [-2]], dtype=dtype)
    for statistic in STATISTICS.values():
        plain = statistic.values({"X": X.astype(float), "y": y[:, 0].astype(float)}, np.array([0.5, 0.0, -0.5]))
        assert (statistic.values({"X": X, "y": y}, np.array([0.5, 0.0, -0.5])) == plain).all()


def test_residuals_are_gradients():
    rng = np.random.default_rng(0)
    X, y, theta = rng.normal(size=(50, 4)), rng.normal(size=50), np.array([0.5, 0.0, -1.0, 0.0])
    rows = {"X": X, "y": y}
    wide = {"residual_bound": 100.0, "row_norm": 100.0}
    linear = BallResiduals(4, **wide)
    assert np.allclose(linear.restore(linear.values(rows, theta)), X * (X @ theta - y)[:, None])
    link = Wave()
    curved = BallResiduals(4, link=link, link_mode="gradient", **wide)
    u = X @ theta
    expected = X * (link.derivative(u) * (link.value(u) - y))[:, None]
    assert np.allclose(curved.restore(curved.values(rows, theta)), expected)
    inverted = BallResiduals(4, link=link, **wide)
    assert np.allclose(inverted.restore(inverted.values(rows, theta)), X * (u - link.inverse(y))[:, None])
    box = BoxResiduals(4, 100.0, feature_bound=50.0)
    assert np.allclose(box.restore(box.values(rows, theta)), X * (u - y)[:, None])


def test_joint_statistics_keep_a_linear_relation():
    """Also for rows that are scaled down: without noise in the labels, the moments have the truth as their solution."""
    rng = np.random.default_rng(1)
    X, truth = 3 * rng.normal(size=(4000, 3)), np.array([0.5, -0.2, 0.1])
    statistic = JointStatistics(3, row_norm=2.0, label_bound=50.0, share=0.5)
    S, b = statistic.moments(statistic.restore(statistic.values({"X": X, "y": X @ truth}).mean(axis=0)))
    assert np.trace(S) < 4 and np.allclose(np.linalg.solve(S, b), truth)


def test_joint_statistics_are_estimated_without_bias_and_with_the_stated_noise():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(20_000, 3))
    y = X @ [0.5, -0.2, 0.1]
    statistic = JointStatistics(3, row_norm=3.0, label_bound=2.0, share=0.6)
    gaussian = GaussianVector(statistic.size, 2.0, 1e-6, statistic.diameter)
    for randomiser in (best_vector(statistic.size, 2.0), gaussian):
        protocol = LocalProtocol(statistic, randomiser)
        exact = protocol.statistic.restore(protocol.statistic.values({"X": X, "y": y}).mean(axis=0))
        scale = protocol.statistic.restore(np.ones(protocol.statistic.size))
        found = [simulate(protocol, {"X": X, "y": y}, random_state=seed).estimate for seed in range(30)]
        z = (np.array(found) - exact) / scale * math.sqrt(len(X)) / protocol.noise_std
        assert np.abs(z.mean(axis=0)).max() < 5.5 / math.sqrt(30)  # 2e-7 for each of 18
        assert 0.8 < z.std() < 1.1


@pytest.mark.parametrize(
    "make",
    [
        lambda: BoxResiduals(3, 1.0),
        lambda: BallResiduals(3, 1.0),
        lambda: BallResiduals(3, 0.0, row_norm=1.0),
        lambda: BallResiduals(3, 1.0, row_norm=math.nan),
        lambda: BallResiduals(3, 1.0, row_norm=1.0, feature_bound=-1.0),
        lambda: BallResiduals(3, 1.0, row_norm=1.0, link_mode="both"),
        lambda: BallResiduals(3, 1.0, row_norm=1.0, link=Wave(0.5)),
        lambda: JointStatistics(3, 1.0, 1.0, 1.0),
        lambda: JointStatistics(3, math.inf, 1.0, 0.5),
        lambda: Selected(BallResiduals(3, 1.0, row_norm=1.0), 2, 3),
    ],
)
def test_bounds_that_are_none_are_refused(make):
    with pytest.raises(BudgetError):
        make()


def test_the_selection_takes_the_first_of_equals():
    assert selection(np.zeros(5), 2).tolist() == [0, 1]
    assert selection(np.array([0.0, -2.0, 1.0, 2.0]), 2).tolist() == [1, 3]


METHODS = {
    "iht, signs": {"method": "iht", "design": "sign"},
    "iht, dense": {"method": "iht", "design": "isotropic"},
    "iht, general": {"method": "iht"},
    "iht, gradient": {"method": IterativeThresholding(link_mode="gradient"), "design": "sign", "link": "wave"},
    "iht, inverted": {"method": "iht", "design": "sign", "link": Wave(8.0)},
    "iht, hemisphere": {"method": IterativeThresholding(reports="hemisphere", n_rounds=3), "design": "sign"},
    "marginal": {"method": Marginal(reports="coordinates"), "design": "isotropic"},
    "two-phase": {"method": "two-phase", "design": "sign"},
    "two-phase, general": {"method": "two-phase"},
    "statistics": {"method": "statistics"},
    "statistics, soft": {"method": FromStatistics(threshold="soft")},
    "statistics, gaussian": {"method": FromStatistics("gaussian", "none"), "delta": 1e-6},
    "heavy": {"method": "statistics", "label_moment": (1.45, 2.0), "noise_bound": None},
    "public": {"method": WithPublicDesign(threshold="soft"), "design": "isotropic"},
    "one feature": {"method": "auto", "n_nonzero": 9},
}


@pytest.mark.filterwarnings("ignore:the noise in:UserWarning", "ignore:coefficients below:UserWarning")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_asks_each_user_once_at_epsilon(name):
    """Whatever is in the rows, and in whatever partitions they come."""
    n, d = 9000, 1 if name == "one feature" else 6
    data, _ = design(n, d, 1, seed=0)
    rows = data.read(0, n)
    X, y = rows["X"].copy(), rows["y"].copy()
    X[:4] = np.array([[np.nan], [np.inf], [3e38], [0.0]])
    y[4:7] = [np.nan, np.inf, -1e300]
    parameters = {"n_nonzero": 2, "noise_bound": 0.1, "epsilon": 1.5, **METHODS[name]}
    model = SparseRegression(**parameters, random_state=3, cluster="threads").fit(X, y)
    assert model.coef_.shape == (d,) and np.isfinite(model.coef_).all()
    threshold = getattr(model.method, "threshold", "auto")
    assert threshold == "none" or np.count_nonzero(model.coef_) <= max(2, 6 * (threshold == "soft"))
    expected = (1.5, 1e-6 if "gaussian" in name else 0.0)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == expected and model.guarantee_.model == "local"
    assert "all data of any one row" in model.guarantee_.text
    folds = [item.fold for item in model.plan_.items]
    assert folds == ([None] if len(folds) == 1 else [(f"slots-{len(folds)}", t) for t in range(len(folds))])
    assert len(model.releases_) == len(folds)
    for group in range(len(folds)):
        protocol = model.protocol(n, d, group)
        assert protocol.randomiser.epsilon == 1.5
        assert pickle.loads(pickle.dumps(protocol)) == protocol
    again = clone(model).fit(Dataset.from_arrays(X=X, y=y, partition_rows=1000))
    assert (again.coef_ == model.coef_).all()
    assert SparseRegression(**{**parameters, "epsilon": 1.6}, random_state=3).plan(n, d).spent.epsilon == 1.6
    outlook = model.outlook(n, d)
    assert outlook.predicted_error > 0


def decided(n: int, d: int, n_nonzero: int = 2, **parameters):
    """The method of a fit to signs."""
    parameters = {"noise_bound": 0.05, "design": "sign", "epsilon": 1.0, **parameters}
    return SparseRegression(n_nonzero, **parameters)._method_for(n, d)


def test_what_auto_decides():
    def found(n, d, *, public=False, k=2, **parameters):
        model = SparseRegression(k, noise_bound=0.05, **parameters)
        method = model._decided(model._public(n, d, Units()), **({"public_X": np.ones((30, d))} if public else {}))
        return method.name, len(method.protocols)

    assert found(10**5, 32, design="sign") == ("iht", 4)
    assert found(10**5, 32, design="sign", epsilon=0.5) == ("iht", 1)
    assert found(10**5, 128, design="sign", epsilon=2.0) == ("two-phase", 2)
    assert found(10**5, 10) == ("statistics", 1)
    assert found(10**5, 60) == ("two-phase", 2)
    assert found(10**5, 60, public=True) == ("public-covariance", 1)
    assert found(10**5, 32, design="sign", private="label") == ("iht", 1)
    reason = decided(10**5, 32).reason
    assert all(f"{name} in {rounds} rounds 0." in reason for name, rounds in (("iht", 4), ("two-phase", 2)))


@pytest.mark.parametrize("n, d, k, epsilon", [(30_000, 40, 3, 4.0), (200_000, 24, 3, 1.0), (40_000, 100, 4, 2.5)])
def test_auto_is_about_as_good_as_the_best_method(n, d, k, epsilon):
    """On settings by which it was not made; 12 coefficients and more each."""
    found = {name: [] for name in ("auto", "iht", "marginal", "two-phase")}
    for seed in range(4):
        data, truth = design(n, d, k, seed=10 + seed, noise_std=0.2)
        for name, errors in found.items():
            model = SparseRegression(
                k, name, design="sign", noise_bound=0.2, epsilon=epsilon, random_state=seed, ledger=Ledger(":memory:")
            ).fit(data)
            errors.append(error(model, truth))
    means = {name: float(np.mean(errors)) for name, errors in found.items()}
    assert means["auto"] <= 1.3 * min(means.values()), means


def test_clips_shrink_with_the_predicted_error():
    bounds = decided(10**6, 32, noise_bound=0.1, method="iht").bounds
    assert bounds[0] == pytest.approx(2.1) and list(bounds) == sorted(bounds, reverse=True)
    assert bounds[1] == pytest.approx(1.1) and bounds[3] >= 0.1
    assert decided(10**3, 32, noise_bound=0.1, method=IterativeThresholding(n_rounds=3)).bounds == (2.1,) * 3


@pytest.mark.parametrize("reports", ["coordinates", "vector", "hemisphere"])
def test_the_noise_is_as_predicted(reports):
    """Of coefficients that are 0, before thresholding: 64 of them, 20 times; 12 % are 6 standard errors."""
    data, truth = design(4000, 65, 1, seed=0)
    plan = decided(4000, 65, n_nonzero=1, method=Marginal(reports=reports))
    protocol = plan.protocols[0]
    found = [simulate(protocol, data, state=np.zeros(65), random_state=seed).estimate for seed in range(20)]
    noise = np.array(found)[:, truth == 0]
    ratio = np.sqrt(np.square(noise).mean()) / plan.std
    assert 0.85 < ratio < 1.12  # the prediction for coordinates is for the worst values


def test_without_noise_it_is_iterative_hard_thresholding():
    """At a large epsilon (the rest is clipping, sampling of coordinates and rounding)."""
    data, truth = design(40_000, 8, 2, seed=4, design="gaussian", noise_std=0.05)
    model = SparseRegression(
        2,
        IterativeThresholding(n_rounds=4),
        design="isotropic",
        noise_bound=0.05,
        row_norm=8.0,
        epsilon=60.0,
        random_state=0,
    ).fit(data)
    assert error(model, truth) < 0.02


@dataclass(frozen=True)
class Cosine(Link):
    """Even, whatever it says of its slopes."""

    slopes = (0.5, 1.0)

    def value(self, u):
        return np.cos(u)

    def derivative(self, u):
        return -np.sin(u)


def test_even_links_are_refused_before_anybody_is_asked():
    ledger = Ledger(":memory:")
    model = SparseRegression(2, design="isotropic", noise_bound=0.05, row_norm=8.0, link=Cosine(), ledger=ledger)
    with pytest.raises(BudgetError, match=r"link=Cosine\(\) is an even function .* mean slope is 0"):
        model.fit("no rows", "nor labels")
    assert ledger.accounts() == []


def test_public_rows_remove_the_bias_of_the_clip():
    data, truth = design(200_000, 4, 2, seed=5, design="gaussian", correlation=0.5, noise_std=0.1)
    public, _ = design(100_000, 4, 2, seed=6, design="gaussian", correlation=0.5)
    parameters = {"method": "public-covariance", "row_norm": 1.5, "label_bound": 6.0}
    model = SparseRegression(2, **parameters, epsilon=16.0, random_state=0).fit(data, public_X=public)
    assert error(model, truth) < 0.03
    from_array = SparseRegression(2, **parameters, epsilon=16.0, random_state=0)
    from_array.fit(data, public_X=public.read(0, 100_000)["X"])
    assert np.allclose(from_array.coef_, model.coef_)
    known = 0.5 ** np.abs(np.subtract.outer(range(4), range(4)))
    biased = SparseRegression(2, **parameters, design=General(covariance=known), epsilon=16.0, random_state=0).fit(data)
    assert error(biased, truth) > 0.2  # the clipped rows are no instrument for the covariance of the others
    with pytest.raises(MissingBound, match="public_X"):
        SparseRegression(2, **parameters).fit(data)
    with pytest.raises(DataError, match="public_X"):
        SparseRegression(2, **parameters).fit(data, public_X=np.zeros((5, 3)))
    with pytest.raises(DataError, match="public_X is not public: it is the dataset of the fit"):
        SparseRegression(2, **parameters).fit(data, public_X=data)


def test_the_printed_radius_is_biased_at_any_number_of_users():
    """With a residual clip of C in the place of 2 R + C only the direction of the gradient is left."""
    data, truth = design(200_000, 8, 2, seed=7)
    parameters = {"method": IterativeThresholding(n_rounds=8), "design": "sign", "epsilon": 8.0, "random_state": 0}
    printed = SparseRegression(2, **parameters, label_bound=0.05).fit(data)
    ours = SparseRegression(2, **parameters, noise_bound=0.05).fit(data)
    assert error(printed, truth) > 0.4 > 0.02 > error(ours, truth)


def test_sums_have_the_distribution_of_reports():
    """For Gaussian reports, whose sums have an exact law: mean and noise of 12 fits each."""
    data, truth = design(20_000, 3, 1, seed=8, design="gaussian", noise_std=0.1)
    parameters = {"method": FromStatistics("gaussian", "none"), "delta": 1e-6, "noise_bound": 0.1}
    found = {}
    for fidelity in ("report", "sum"):
        model = SparseRegression(1, **parameters, epsilon=4.0, fidelity=fidelity)
        found[fidelity] = np.array([clone(model).set_params(random_state=s).fit(data).coef_ for s in range(12)])
    spread = np.sqrt((found["report"].var(axis=0) + found["sum"].var(axis=0)) / 12)
    assert np.abs((found["report"].mean(axis=0) - found["sum"].mean(axis=0)) / spread).max() < 7
    assert np.abs(found["sum"].mean(axis=0) - truth).max() < 0.1
    with pytest.raises(BudgetError, match="fidelity"):
        SparseRegression(1, "statistics", noise_bound=0.1, fidelity="sum").fit(data)


WRONG = {
    "noise_bound": {"noise_bound": None},
    "method": {"method": "lasso"},
    "private": {"private": "features"},
    "design": {"design": "signs"},
    "link": {"link": "exp"},
    "link must be": {"link": math.exp},
    "eigenvalues": {"design": General(eigenvalues=(2.0, 1.0))},
    "label_moment": {"label_moment": 2.0},
    "n_nonzero": {"n_nonzero": 0},
    "delta": {"method": TwoPhase(reports="gaussian")},
    "covariance": {"design": General(covariance=np.eye(3))},
    "coordinates": {"method": FromStatistics(reports="coordinates")},
    "for private='record'": {"method": LabelThresholding()},
    "threshold": {"method": FromStatistics(threshold="firm")},
    "epsilon": {"epsilon": 0.0},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parameters_are_named(name):
    parameters = {"n_nonzero": 2, "noise_bound": 0.1, **WRONG[name]}
    with pytest.raises((BudgetError, MissingBound), match=name):
        SparseRegression(**parameters).plan(1000, 5)


def test_too_few_users_are_told_so():
    data, _ = design(2000, 50, 2, seed=9)
    with pytest.warns(UserWarning, match="as large as they are"):
        SparseRegression(2, "marginal", design="sign", noise_bound=0.1, epsilon=0.2, random_state=0).fit(data)
    with pytest.warns(UserWarning, match="cannot be told from noise"):
        SparseRegression(2, "marginal", design="sign", noise_bound=0.1, epsilon=2.0, random_state=0).fit(data)
    outlook = SparseRegression(2, "marginal", design="sign", noise_bound=0.1, epsilon=0.2).outlook(2000, 50)
    assert outlook.n_needed > 2000 and outlook.warnings


def test_prediction_and_score():
    data, _ = design(50_000, 8, 2, seed=10)
    model = SparseRegression(2, design="sign", noise_bound=0.05, epsilon=2.0, random_state=0).fit(data)
    rows = data.read(0, 1000)
    assert model.score(rows["X"], rows["y"]) > 0.95 and model.predict(rows["X"]).shape == (1000,)


# -- the acceptance table (n smaller in the quick half) ----------------------------------------------------------------
AR = {"design": "gaussian", "correlation": 0.3, "noise_std": 0.5, "norm": "l1"}
SIGNS = {"design": "sign", "noise_bound": 0.05}
GENERAL = {"design": "general", "noise_bound": 0.5}


def public(seed):
    return design(10_000, 20, 2, 1000 + seed, **AR)[0]


QUICK = {
    "ldp-iht": (100_000, 32, 2, {}, {"method": "iht", **SIGNS}, 0.042),
    "ldp-iht by vectors": (100_000, 32, 2, {}, {"method": IterativeThresholding(reports="vector"), **SIGNS}, 0.10),
    "ldp-two-phase": (100_000, 32, 2, {}, {"method": "two-phase", **SIGNS}, 0.045),
    "auto": (100_000, 32, 2, {}, SIGNS, 0.042),
}
SLOW = {
    "ldp-iht, many": (1_000_000, 64, 5, {}, {"method": "iht", **SIGNS}, 0.041),
    "ldp-iht-subgauss": (
        500_000, 32, 3, {"design": "gaussian", "noise_std": 0.5},
        {"method": "iht", "design": "isotropic", "noise_bound": 0.5}, 0.10,
    ),
    "ldp-iht-nonlinear": (1_000_000, 32, 2, {"link": "wave"}, {"method": "iht", "link": "wave", **SIGNS}, 0.041),
    "ldp-iht-general": (
        500_000, 20, 2, {"design": "gaussian", "correlation": 0.5, "noise_std": 0.5},
        {**GENERAL, "method": "iht", "design": General(eigenvalues=(1 / 3, 3.0))}, 0.60,
    ),
    "nldp-sparse-lr": (1_000_000, 5, 2, AR, {"method": "statistics", **GENERAL}, 0.12),
    "nldp-sparse-lr-public": (1_000_000, 20, 2, AR, {"method": "public-covariance", **GENERAL}, 0.11),
    "nldp-sparse-lr-heavy": (
        500_000, 20, 2, {**AR, "noise": "t3"},
        {"method": "public-covariance", "design": "general", "label_moment": (1.45, 2.0)}, 0.12,
    ),
}  # fmt: skip


def median_error(case, n_seeds):
    n, d, k, data, parameters, _ = case
    errors = []
    for seed in range(n_seeds):
        rows, truth = design(n, d, k, seed, **data)
        model = SparseRegression(k, epsilon=1.0, random_state=seed, cluster="threads", **parameters)
        extra = {"public_X": public(seed)} if parameters.get("method") == "public-covariance" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(rows, **extra)
        errors.append(error(model, truth))
    return float(np.median(errors))


@pytest.mark.parametrize("name", QUICK)
def test_utility(name):
    assert median_error(QUICK[name], 5) <= QUICK[name][-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", SLOW)
def test_utility_of_many_users(name):
    assert median_error(SLOW[name], 5) <= SLOW[name][-1]


@pytest.mark.slow
def test_utility_on_the_hard_instance():
    errors = []
    for seed in range(9):
        data, truth = hard_instance(1_000_000, 64, random_state=seed, dtype="float32")
        model = SparseRegression(4, "marginal", design="sign", label_bound=1.0, radius=0.5, random_state=seed)
        errors.append(error(model.fit(data), truth))
    assert np.median(errors) <= 0.081
