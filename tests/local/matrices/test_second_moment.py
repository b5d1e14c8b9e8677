"""Reports of products of a row: their bounds, their laws, and what a server makes of them."""

from __future__ import annotations

import itertools
import math
import warnings
from contextlib import closing

import numpy as np
import pytest
from scipy.stats import kstest

from dpdist import Ledger, local
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.kernels.packed import packed_scale, packed_size, smat, svec
from dpdist.local import LocalProtocol, Survey, aggregate, encode, write_reports
from dpdist.local.randomisers.products import LaplaceProducts
from dpdist.local.randomisers.vectors import GaussianVector, Hemisphere, PrivUnitG
from dpdist.local.statistics.bounded_values import Ball
from dpdist.local.statistics.second_moments import Products
from dpdist.privacy.accounting.closed_forms import gdp_delta
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws
from dpdist.problems.catalog import PROBLEMS

HOSTILE = (0.0, 1.0, -1.0, 1e300, -1e300, 1e-300, 5e-324, np.nan, np.inf, -np.inf, 0.7)
MECHANISMS = ("privunit", "privunitg", "hemisphere", "goe", "laplace")


def draws(seed=0):
    return StreamDraws(np.random.Generator(np.random.Philox(seed)))


def parameters(mechanism, epsilon=1.0, **others):
    delta = {"delta": 1e-6} if mechanism == "goe" else {}
    return {"mechanism": mechanism, "row_norm": 1.0, "epsilon": epsilon, "random_state": 0, **delta, **others}


def rows(n=4000, d=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(1.0, 0.2, d) / 2


# -- what a row becomes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit_rows", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_lie_in_the_ball_and_within_root_two_of_each_other_whatever_a_record_holds(dtype, unit_rows):
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        X = np.concatenate([
            rng.choice(HOSTILE, (300, 4)), rng.normal(size=(300, 4)) * 10.0 ** rng.integers(-200, 200, (300, 1)),
            1e200 * np.eye(4), 3.0 * np.eye(4),
        ]).astype(dtype)  # fmt: skip
    values = Products(4, 3.0, unit_rows).values({"X": X})
    assert np.isfinite(values).all() and np.linalg.norm(values, axis=1).max() <= 1
    apart = np.linalg.norm(values[:, None] - values, axis=2)
    assert math.sqrt(2) * (1 - 1e-9) < apart.max() <= Products(4, 3.0).diameter == math.sqrt(2)
    null = ~np.isfinite(X).all(axis=1)
    assert null.any() and not values[null].any()
    triangles = values / packed_scale(4)
    l1 = np.abs(triangles[:, None] - triangles).sum(axis=2).max()
    assert l1 <= LaplaceProducts(10, 1.0).l1_diameter < 1.35 * l1  # attained within that by the rows of this test


def test_signs_of_a_row_do_not_matter_and_short_rows_may_be_made_long():
    X = rows(10)
    for unit in (False, True):
        statistic = Products(5, 1.0, unit)
        np.testing.assert_array_equal(statistic.values({"X": X}), statistic.values({"X": -X}))
    assert np.allclose(np.linalg.norm(Products(5, 2.0, True).values({"X": X / 100}), axis=1), 1)
    value = Products(5, 2.0).values({"X": X[:1]})[0]
    assert np.allclose(Products(5, 2.0).restore(value), svec(np.outer(X[0], X[0])))


@pytest.mark.parametrize("unit_rows", [False, True])
def test_the_total_of_a_block_is_the_sum_of_its_values(unit_rows):
    X = rows(5000) * np.random.default_rng(0).lognormal(size=(5000, 1))
    X[3, 1], X[7, 0] = np.nan, np.inf
    statistic = Products(5, 1.3, unit_rows)
    total, summed = statistic.total({"X": X}), statistic.values({"X": X}).sum(axis=0)
    assert np.abs(total - summed).max() < 5000 * 2.0**-18
    again = statistic.total({"X": X[np.random.default_rng(1).permutation(5000)]})
    assert np.array_equal(total, again), "exact, so the order does not matter"


def test_noise_that_is_made_for_nearer_values_is_refused():
    with pytest.raises(BudgetError, match=r"diameter = 1\.0"):
        LocalProtocol(Products(3, 1.0), GaussianVector(6, 1.0, 1e-6, 1.0))
    with pytest.raises(BudgetError, match="'laplace-products' has noise for products x x' of a row"):
        LocalProtocol(Ball(6), LaplaceProducts(6, 1.0))
    survey = Survey(LocalProtocol(Products(3, 1.0), LaplaceProducts(6, 1.0)))
    other = survey.to_json().replace('"Products"', '"Ball"').replace('"n_features": 3', '"size": 6')
    with pytest.raises(DataError):
        Survey.from_json(other)


# -- laws ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_estimates_are_unbiased_with_the_stated_noise_on_and_off_the_diagonal(mechanism):
    """Six standard errors; of all entries together the mean square is what is stated, at most."""
    n, d, runs = 3000, 4, 12
    X = rows(n, d)
    exact = X.T @ X / n
    wrong = []
    for seed in range(runs):
        model = local.SecondMoment(**{**parameters(mechanism, 2.0), "random_state": seed}).fit(X)
        wrong.append(model.second_moment_ - smat(Products(d, 1.0).values({"X": X}).mean(axis=0)))
    wrong = np.array(wrong)
    assert np.abs(exact - smat(Products(d, 1.0).values({"X": X}).mean(axis=0))).max() < 0.2
    on = np.arange(d)
    off = np.triu_indices(d, 1)
    for entries, std in ((wrong[:, on, on], model.diagonal_std_), (wrong[:, off[0], off[1]], model.off_diagonal_std_)):
        count = entries.size
        assert abs(entries.mean()) < 6 * std / math.sqrt(count)
        share = np.mean(entries**2) / std**2
        # the stated one is that of the worst records: caps have less noise along the vector
        assert 0.5 < share < 1 + 6 * math.sqrt(2 / count)


def test_gaussian_reports_are_matrices_of_the_orthogonal_ensemble():
    model = local.SecondMoment(**parameters("goe"))
    noise = model.protocol(1000, 4).randomiser
    assert noise.noise_std == pytest.approx(4.225 * math.sqrt(2), rel=1e-3)  # the table of exact calibration
    fitted = model.fit(rows(1000, 4))
    assert fitted.diagonal_std_ == pytest.approx(noise.noise_std / math.sqrt(1000))
    assert fitted.off_diagonal_std_ == pytest.approx(fitted.diagonal_std_ / math.sqrt(2))


@pytest.mark.parametrize("epsilon, delta, sigma", [(0.5, 1e-4, 5.894), (1, 1e-4, 3.186), (2, 1e-4, 1.734),
                                                   (1, 1e-5, 3.731), (1, 1e-6, 4.225), (4, 1e-5, 1.081)])  # fmt: skip
def test_the_noise_is_calibrated_exactly_for_the_diameter(epsilon, delta, sigma):
    randomiser = (
        local.SecondMoment(mechanism="goe", row_norm=1.0, epsilon=epsilon, delta=delta).protocol(10, 3).randomiser
    )
    assert randomiser.noise_std / math.sqrt(2) == pytest.approx(sigma, rel=3e-4)
    printed = math.sqrt(2 * math.log(1.25 / delta)) / epsilon  # seed 000: for values at distance 1
    assert gdp_delta(epsilon, math.sqrt(2) / randomiser.noise_std) <= delta * (1 + 1e-9)
    if epsilon >= 1:
        assert gdp_delta(epsilon, math.sqrt(2) / printed) > 1.5 * delta, "what was printed is not private"


def test_laplace_reports_have_the_exact_law():
    """Ratios of the probabilities of all reports, from the discrete law; the worst pair is nearly attained."""
    randomiser, n = LaplaceProducts(3, 1.5), 40_000
    assert randomiser.noise_scale / randomiser.steps * 1.5 == pytest.approx(2 / math.sqrt(2) + 1, rel=1e-4)
    rng = np.random.default_rng(0)
    X = np.concatenate([np.eye(2), rng.normal(size=(60, 2)), [[1.0, 1.0], [1.0, -1.0], [np.nan, 0.0]]])
    values = Products(2, 1.0).values({"X": X})
    units = np.rint(values / packed_scale(2) * randomiser.steps)
    distance = max(np.abs(a - b).sum() for a, b in itertools.combinations(units, 2))
    assert 0.75 * randomiser.epsilon < distance / randomiser.noise_scale <= randomiser.epsilon
    report = randomiser.randomise(np.zeros((n, 3)), draws(1))[:, 1] / randomiser.noise_scale
    assert kstest(report, "laplace").pvalue > 1e-7
    assert randomiser.noise_scale > 1e5, "so fine that the discrete law looks continuous"


def test_hemisphere_reports_have_the_stated_variance():
    """``R^2 B^2 / D``: 2.71 r^4 at epsilon = 2, against 7.35 at 1 and 1.69 at 4 (D large)."""
    for epsilon, variance in ((0.5, 26.2), (1.0, 7.35), (2.0, 2.71), (4.0, 1.69)):
        assert Hemisphere(5000, epsilon).noise_std ** 2 == pytest.approx(variance, rel=0.005)


def test_the_default_has_less_noise_than_the_hemisphere():
    """In the same runs: at least 10 % less variance at epsilon 1, and 60 % at 4."""
    X = rows(2000, 12)
    sums = {}
    for mechanism in ("auto", "hemisphere"):
        for epsilon in (1.0, 4.0):
            wrong = []
            for seed in range(4):
                model = local.SecondMoment(**{**parameters(mechanism, epsilon), "random_state": seed}).fit(X)
                wrong.append(svec(model.second_moment_) - Products(12, 1.0).values({"X": X}).mean(axis=0))
            sums[mechanism, epsilon] = np.mean(np.square(wrong))
    # 4 x 78 squares: a standard error of 8 %; the true ratios are .86 and .26
    assert sums["auto", 1.0] < 0.98 * sums["hemisphere", 1.0] and sums["auto", 4.0] < 0.4 * sums["hemisphere", 4.0]
    for epsilon, least in ((1.0, 0.10), (4.0, 0.60)):
        best, half = PrivUnitG(78, epsilon).noise_std ** 2, Hemisphere(78, epsilon).noise_std ** 2
        assert best < (1 - least) * half


def test_sums_of_gaussian_reports_have_the_law_of_reports():
    """Each number of the sum is normal with the mean and the variance of a sum of reports."""
    X, n = rows(600, 3), 600
    protocol = local.SecondMoment(**parameters("goe")).protocol(n, 3)
    mean = protocol.statistic.values({"X": X}).sum(axis=0)
    std = math.sqrt(n) * protocol.noise_std
    for drawn in (
        [protocol.draw_sum({"X": X}, np.random.default_rng(i)) for i in range(400)],
        [protocol.summarise({"X": X}, draws(i)) for i in range(400)],
    ):
        z = (np.array(drawn) * protocol.grid - mean) / std
        assert kstest(z.ravel(), "norm").pvalue > 1e-7


def test_no_array_of_all_products_is_made_for_a_sum(monkeypatch):
    def never(*_):
        raise AssertionError("the products of every user were written down")

    monkeypatch.setattr(Products, "values", never)
    model = local.SecondMoment(**parameters("goe", fidelity="sum")).fit(rows(9000))
    assert model.fidelity_ == "sum"
    with pytest.raises(BudgetError, match=r"privunit has no exact law .* use fidelity='report'"):
        local.SecondMoment(row_norm=1.0, epsilon=1.0, fidelity="sum", random_state=0).fit(rows())


# -- people and their devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_results_do_not_depend_on_chunks_and_are_those_of_reports(mechanism):
    from dpdist import Dataset

    X = rows(9000, 4)
    found = [
        local.SecondMoment(**parameters(mechanism)).fit(Dataset.from_arrays(X=X, partition_rows=part)).second_moment_
        for part in (9000, 1000)
    ]
    assert np.array_equal(*found)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_devices_answer_a_published_question(mechanism, tmp_path):
    model = local.SecondMoment(**parameters(mechanism, 8.0))
    survey = Survey.from_json(Survey(model.protocol(2000, 3)).to_json())
    X = rows(2000, 3)
    reports = [
        encode(survey, survey.protocol.randomise({"X": X[i : i + 100]}, SystemDraws())) for i in range(0, 2000, 100)
    ]
    write_reports(tmp_path / "reports.zarr", reports)
    found = aggregate(survey, tmp_path / "reports.zarr")
    wrong = survey.protocol.statistic.matrix(found.estimate) - X.T @ X / 2000
    expected = survey.protocol.noise_std / math.sqrt(2000)
    assert np.abs(wrong).max() < 6 * expected + 0.05 and found.standard_error == pytest.approx(expected, rel=1e-9)


def test_one_release_is_charged_once_whatever_is_made_of_it(tmp_path):
    moment = local.SecondMoment(row_norm=1.0, epsilon=1.0, ledger=tmp_path / "ledger.sqlite").fit(rows(3000, 4))
    pca = local.PCA(2).fit(moment)
    local.SparsePCA(1).fit(moment), local.SparseCovariance().fit(moment), local.GraphicalLasso().fit(pca)
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        runs = [run for name in ledger.accounts() for run in ledger.history(name)]
    assert len(runs) == 1 and pca.guarantee_ == moment.guarantee_ and pca.guarantee_.epsilon == 1.0
    assert np.array_equal(pca.second_moment_, moment.second_moment_) and pca.fidelity_ == "report"


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"row_norm": None}, MissingBound, "row_norm is missing"),
        ({"mechanism": "goe"}, BudgetError, "mechanism='goe' needs delta > 0"),
        ({"mechanism": "laplace", "delta": 1e-6}, BudgetError, "delta=1e-06 has nobody to read it with mechanism="),
        ({"mechanism": "wishart"}, BudgetError, "wishart"),
        ({"unit_rows": "yes"}, BudgetError, "unit_rows must be True or False"),
        ({"fidelity": "fast"}, BudgetError, "fidelity"),
        ({"most_columns": 3}, DataError, "pass most_columns=5 if that is wanted"),
        ({"row_norm": -1.0}, Exception, "row_norm"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_charged(given, error, says, tmp_path):
    model = local.SecondMoment(**{"row_norm": 1.0, "epsilon": 1.0, "ledger": tmp_path / "ledger.sqlite", **given})
    with pytest.raises(error, match=says):
        model.fit(rows())
    if (tmp_path / "ledger.sqlite").exists():
        with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
            assert not ledger.accounts()


def test_one_column_and_too_many_components_are_refused():
    with pytest.raises(DataError, match=r"one column .*is a single number"):
        local.SecondMoment(row_norm=1.0, epsilon=1.0).fit(np.ones((10, 1)))
    with pytest.raises(BudgetError, match="n_components=6 exceeds the number of columns, 5"):
        local.PCA(6, row_norm=1.0, epsilon=1.0).fit(rows())


def test_moments_of_the_other_model_and_of_other_bounds_are_refused():
    from dpdist import central

    moment = local.SecondMoment(row_norm=1.0, epsilon=1.0, random_state=0).fit(rows())
    with pytest.raises(BudgetError, match=r"of the local model: use the PCA of dpdist\.local"):
        central.PCA(2).fit(moment)
    trusted = central.SecondMoment(row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(rows())
    with pytest.raises(BudgetError, match=r"of the central model: use the PCA of dpdist\.central"):
        local.PCA(2).fit(trusted)
    with pytest.raises(BudgetError, match=r"row_norm=2\.0 has nobody to read it"):
        local.PCA(2, row_norm=2.0).fit(moment)


def test_auto_reads_no_delta_and_says_so():
    with pytest.warns(UserWarning, match="delta=1e-06 has nobody to read it with mechanism='privunit'"):
        model = local.SecondMoment(row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(rows())
    assert model.guarantee_.delta == 0 and model.mechanism_ == "privunit" and "less noise" in model.mechanism_reason_
    wide = local.SecondMoment(row_norm=1.0, epsilon=1.0).decided(1000, 20)
    assert wide.name == "privunitg"


def test_bad_rows_are_null_rows_that_still_report():
    X = rows(3000, 4)
    bad = X.copy()
    bad[::3] = [np.nan, 1.0, np.inf, 1e300]
    zero = X.copy()
    zero[::3] = 0.0
    one, two = (local.SecondMoment(**parameters("goe")).fit(each).second_moment_ for each in (bad, zero))
    assert np.allclose(one, two, atol=1e-12)


# -- audits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_worst_pair_of_records_is_at_right_angles(mechanism):
    model = local.SecondMoment(**parameters(mechanism, row_norm=2.0))
    statistic = model.protocol(1000, 5).statistic
    one, other = (statistic.values(records)[0] for records in model.worst_neighbours(1000, 5)["rows at right angles"])
    assert np.linalg.norm(one - other) == pytest.approx(math.sqrt(2), abs=1e-9)


def test_noise_for_a_sensitivity_of_one_is_caught():
    """Seed 000 forgets sqrt(2): the likelihood ratio of the worst pair says more than was claimed."""
    epsilon, delta, n = 1.0, 0.01, 60_000
    honest = local.SecondMoment(**parameters("goe", epsilon, delta=delta))
    protocol = honest.protocol(1000, 3)
    forgetful = GaussianVector(6, epsilon, delta, 1.0)
    pair = honest.worst_neighbours(1000, 3)["rows at right angles"]
    one, other = (protocol.statistic.values(records)[0] for records in pair)

    def leaked(randomiser):
        """How often a report is e^epsilon times likelier under its own record, less e^epsilon times the other's."""
        scores = [
            randomiser.randomise(np.tile(value, (n, 1)), draws(i)) * randomiser.grid @ (one - other)
            for i, value in enumerate((one, other))
        ]
        cut = epsilon * randomiser.noise_std**2
        return float(np.mean(scores[0] > cut) - math.exp(epsilon) * np.mean(scores[1] > cut))

    assert leaked(protocol.randomiser) < delta + 6 * math.sqrt(delta * 4 / n)
    assert leaked(forgetful) > delta + 6 * math.sqrt(delta * 4 / n)


def test_wide_rows_are_reported_in_small_blocks():
    from dpdist.privacy.randomness.streams import block_size

    for p in (10, 100, 400):
        width = local.SecondMoment(row_norm=1.0, epsilon=1.0).protocol(10, p).width
        assert block_size(width) * packed_size(p) * 8 <= 2**26


@pytest.mark.parametrize("p", [2, 9, 10, 40])
def test_the_plan_says_what_a_report_costs(p):
    model = local.SecondMoment(row_norm=1.0, epsilon=1.0)
    assert model.plan(10_000, p).spent.epsilon == 1.0 and model.plan(10_000, p).spent.delta == 0
    outlook = model.outlook(10_000, p)
    assert outlook.predicted_error == pytest.approx(
        math.sqrt(packed_size(p)) * model.protocol(10_000, p).noise_std / 100, rel=1e-9
    )


def test_published_experiments_are_warned_of():
    """40 columns, 1e5 users, epsilon .5 and a gap of 1/400: at chance, and said before anything is charged."""
    data = PROBLEMS["lb-spiked"].generate({"n": 2000})
    model = local.PCA(5, row_norm=1.0, epsilon=0.5, gap=1 / 400, random_state=0)
    assert model.outlook(100_000, 40).warnings
    with pytest.warns(UserWarning, match="about random"):
        model.fit(data.dataset)
    metric = data.metric(model)
    assert metric.error(model) == pytest.approx(metric.trivial(), rel=0.1)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*delta.*larger.*")
        yield
