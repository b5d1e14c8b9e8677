"""Principal components, covariances and precision matrices: as good as stated and predicted, and scikit-learn's."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import sklearn.decomposition

from dpdist import PCA, GraphicalLasso, SecondMoment, SparseCovariance, SparsePCA
from dpdist.central import CovariancePerturbation, OutputPerturbation, ThresholdedCovariance
from dpdist.errors import BudgetError
from dpdist.kernels.moments import moment_grid, second_moment, unpack_symmetric
from dpdist.privacy.budget import Neighbours
from dpdist.problems import matrix_problems as problems
from dpdist.queries.capped_precision import CappedPrecision
from dpdist.solvers.graphical_lasso import glasso
from dpdist.solvers.spectral import psd_floor
from dpdist.solvers.subspaces import chance_error, expected_subspace_error, subspace_error, top_eigenspace

GAUSSIAN = {"epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
PURE = {"epsilon": 1.0, "cluster": "threads"}
SEEDS = range(5)


def standardised(d):
    return math.sqrt(d + 2 * math.sqrt(2 * d))


def mean_error(make, generate, error, seeds=SEEDS):
    found = []
    for seed in seeds:
        data, truth = generate(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found.append(error(make(seed).fit(data), truth))
    return float(np.mean(found))


def subspace(k):
    return lambda model, truth: subspace_error(model.components_.T, top_eigenspace(truth, k)[1])


def spectral(model, truth):
    return np.linalg.norm(model.covariance_ - truth, 2) / np.linalg.norm(truth, 2)


def precise(model, truth):
    wanted = np.linalg.inv(truth)
    return np.linalg.norm(model.precision_ - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize(("budget", "band"), [(GAUSSIAN, 0.087), (PURE, 0.135)])
def test_the_error_of_principal_components(budget, band):
    def generate(seed):
        return problems.spiked_unit(5000, 30, n_components=3, random_state=seed)

    def nonprivate(model, truth):
        return subspace_error(model.components_.T, top_eigenspace(truth, 3)[1])

    error = mean_error(lambda s: PCA(3, row_norm=1.0, random_state=s, **budget), generate, subspace(3))
    plain = mean_error(lambda s: Plain(3), generate, nonprivate)
    assert error <= band
    assert budget is PURE or error <= 2 * plain


class Plain(sklearn.decomposition.PCA):
    """Without privacy, and without centring."""

    def fit(self, data, y=None):
        X = np.asarray(data.source("X").read(0, data.n_rows))
        return super().fit(np.concatenate([X, -X]))


def test_the_error_of_sparse_components():
    def generate(seed):
        return problems.sparse_spiked_unit(4000, 200, n_components=2, n_nonzero=12, random_state=seed)

    error = mean_error(
        lambda s: SparsePCA(2, row_norm=1.0, random_state=s, **GAUSSIAN), generate, subspace(2), range(2)
    )
    dense = mean_error(lambda s: PCA(2, row_norm=1.0, random_state=s, **GAUSSIAN), generate, subspace(2), range(1))
    assert error <= 0.06 < dense


def test_the_support_has_hardly_a_false_column():
    data, truth = problems.sparse_spiked_unit(10_000, 80, n_components=1, n_nonzero=8, random_state=1)
    model = SparsePCA(1, refit=False, multiple=1.0, row_norm=1.0, random_state=0, **GAUSSIAN).fit(data)
    true = np.abs(top_eigenspace(truth, 1)[1][:, 0]) > 1e-9
    assert true.sum() == 8 and not (model.support_ & ~true).any() and model.support_.sum() >= 5


def test_the_error_of_covariances():
    def generate(seed):
        return problems.block_cov(10_000, 60, random_state=seed)

    error = mean_error(lambda s: SparseCovariance(row_norm=1.25, random_state=s, **GAUSSIAN), generate, spectral)
    noisy = mean_error(
        lambda s: SparseCovariance("noisy", row_norm=1.25, random_state=s, **GAUSSIAN), generate, spectral
    )
    assert error <= 0.11 < noisy


@pytest.mark.parametrize(("budget", "band"), [(GAUSSIAN, 0.068), (PURE, 0.083)])
@pytest.mark.parametrize("row_norm", [math.sqrt(1.3 * 15), standardised(15)], ids=["shorter", "recommended"])
def test_the_error_of_precision_matrices(budget, band, row_norm):
    def make(seed):
        return GraphicalLasso(row_norm=row_norm, random_state=seed, **budget)

    def generate(seed):
        return problems.chain_precision(10_000, 15, random_state=seed)

    assert mean_error(make, generate, precise, range(6)) <= band


def test_a_penalty_of_variances_is_most_of_the_error_of_precision_matrices():
    """The control: as published, with the penalty added to every variance, the answer is much further off."""
    truth = problems.chain_precision(10, 15)[1]
    model = GraphicalLasso(row_norm=standardised(15), random_state=0, **GAUSSIAN)
    model.fit(problems.chain_precision(10_000, 15, random_state=0)[0])
    ours = precise(model, truth)
    model.precision_ = glasso(psd_floor(model.second_moment_) + model.penalty_ * np.eye(15), model.penalty_).precision
    assert precise(model, truth) > 1.25 * ours


def test_where_noise_dominates_small_variances_do_not_make_large_precisions():
    """Columns of unequal scale, noise as large as the smallest variances: a floor at 0 gives entries by chance."""
    scale, ours, floored_at_zero = np.exp(np.linspace(-1, 1, 8)), [], []
    truth = problems.chain_precision(10, 8)[1] * np.outer(scale, scale)
    for seed in range(10):
        X = np.random.default_rng(seed).multivariate_normal(np.zeros(8), truth, size=2500)
        model = GraphicalLasso(row_norm=6.5, random_state=seed, **GAUSSIAN).fit(X)
        ours.append(precise(model, truth))
        model.precision_ = glasso(psd_floor(model.second_moment_, 1e-9), model.penalty_).precision
        floored_at_zero.append(precise(model, truth))
    assert max(ours) < 1 < max(floored_at_zero) and np.mean(ours) < 0.8 * np.mean(floored_at_zero)


def test_the_error_of_noise_on_the_solution():
    def make(seed):
        rule = OutputPerturbation(cap=4.0)
        return GraphicalLasso(rule, row_norm=standardised(20), random_state=seed, **GAUSSIAN)

    error = mean_error(make, lambda s: problems.chain_precision(20_000, 20, random_state=s), precise, range(5))
    assert error <= 0.31


@pytest.mark.parametrize(
    ("n", "p", "k", "epsilon"), [(5000, 30, 3, 1.0), (20_000, 15, 2, 0.3), (3000, 40, 2, 1.0), (10_000, 25, 5, 0.5)]
)
def test_the_prediction_is_within_a_quarter_of_the_error(n, p, k, epsilon):
    _, truth = problems.spiked_unit(10, p, n_components=k, random_state=0)
    values = np.linalg.eigvalsh(truth)[::-1]
    keys = {"row_norm": 1.0, "gap": float(values[k - 1] - values[k]), **GAUSSIAN, "epsilon": epsilon}
    look = PCA(k, **keys).outlook(n, p)
    error = mean_error(
        lambda s: PCA(k, random_state=s, **keys),
        lambda s: problems.spiked_unit(n, p, n_components=k, random_state=s),
        subspace(k),
        range(6),
    )
    assert abs(look.predicted_error / error - 1) < 0.25
    assert PCA(k, row_norm=1.0, **GAUSSIAN).outlook(n, p).predicted_error is None  # nothing is guessed


LAWS = {
    "a spectrum that decays": lambda rng, n, p: rng.normal(size=(n, p)) * 0.8 ** np.arange(p),
    "rows far below their bound": lambda rng, n, p: rng.normal(size=(n, p)) * np.where(np.arange(p) < 2, 0.4, 0.15),
    "rows of all lengths": lambda rng, n, p: (
        rng.normal(size=(n, p)) * np.where(np.arange(p) < 2, 1.0, 0.4) * np.sqrt(7 / rng.chisquare(7, size=(n, 1)))
    ),
    "nothing to be found": lambda rng, n, p: rng.normal(size=(n, p)) * 0.02,
}


@pytest.mark.parametrize(("n", "p", "budget"), [(4000, 9, PURE), (8000, 18, GAUSSIAN)], ids=["pure", "with delta"])
@pytest.mark.parametrize("law", LAWS)
def test_the_error_to_expect_after_the_fit_rests_on_no_guess(law, n, p, budget):
    """Within a quarter, or clearly nothing."""
    rotation = np.linalg.qr(np.random.default_rng(p).normal(size=(p, p)))[0]
    expected, found = [], []
    for seed in range(100 * p, 100 * p + 12):
        rows = LAWS[law](np.random.default_rng(seed), n, p) @ rotation.T
        model = PCA(2, row_norm=3.0, random_state=seed, **budget).fit(rows)
        expected.append(model.expected_error_**2)
        found.append(subspace_error(model.components_.T, rotation[:, :2]) ** 2)
    told, measured, chance = math.sqrt(np.mean(expected)), math.sqrt(np.mean(found)), chance_error(p, 2)
    assert 0.75 < told / measured < 1.25 if measured < chance / 2 else told > chance / 2
    moment = SecondMoment(row_norm=3.0, random_state=0, **budget).fit(rows)
    assert PCA(2, gap=9.0).fit(moment).expected_error_ == PCA(2).fit(moment).expected_error_


def test_the_error_to_expect_knows_how_the_noise_lies():
    """Equal noise on a triangle moves two columns against each other more than two means of many columns."""
    rng, p, s = np.random.default_rng(0), 6, 0.004
    for vectors in (np.eye(p), np.linalg.qr(np.c_[np.ones(p), rng.normal(size=(p, p - 1))])[0]):
        matrix, found, upper = vectors @ np.diag([1.0, 0.9, 0.5, 0.5, 0.4, 0.1]) @ vectors.T, [], np.triu_indices(p)
        for _ in range(800):
            noise = np.zeros((p, p))
            noise[upper] = noise.T[upper] = rng.normal(size=len(upper[0])) * s
            found.append(subspace_error(top_eigenspace(matrix + noise, 2)[1], vectors[:, :2]) ** 2)
        told = expected_subspace_error(matrix, 2, s, s, 1e12)
        assert told == pytest.approx(math.sqrt(np.mean(found)), rel=0.08)
    assert expected_subspace_error(np.zeros((4, 4)), 2, 0.1, 0.1, 10) == math.sqrt(2)
    assert expected_subspace_error(np.eye(4), 4, 0.1, 0.1, 10) == 0.0
    assert expected_subspace_error(np.diag([3.0, 1.0]), 1, 0.0, 0.0, math.inf) == 0.0


def test_a_hopeless_fit_says_so_before_it_is_charged():
    look = PCA(3, row_norm=1.0, gap=0.01, **GAUSSIAN).outlook(500, 30)
    assert look.n_needed and "n_rows >=" in look.warnings[0]
    X = np.random.default_rng(0).normal(size=(300, 40))
    for model, match in (
        (SparseCovariance(row_norm=6.0, **GAUSSIAN), "cannot be told from the noise"),
        (GraphicalLasso(row_norm=6.0, **GAUSSIAN), "the answer will be about diagonal"),
        (SparsePCA(1, row_norm=6.0, **{**GAUSSIAN, "epsilon": 0.01}), "no column can stand out"),
    ):
        assert any(match in warning for warning in model.outlook(300, 40).warnings)
        with pytest.warns(UserWarning, match=match):
            model.fit(X)
        moment = SecondMoment(row_norm=6.0, **{**GAUSSIAN, "epsilon": model.epsilon}).fit(X)
        with pytest.warns(UserWarning, match=match):  # of a fitted moment as well
            type(model)(*([1] if isinstance(model, SparsePCA) else [])).fit(moment)


def test_what_sampling_may_do_is_not_blamed_on_the_noise():
    """One large direction and short rows: the noise is small, and the trace is not spread over all columns."""
    keys = {"row_norm": 3.3, "gap": 0.039, "epsilon": 2.0, "delta": 1e-6, "cluster": "threads"}
    look = PCA(2, **keys).outlook(5000, 12)
    assert look.warnings == () and look.n_needed is None
    assert look.predicted_error == look.trivial_error  # of rows that are spread evenly and all at their bound
    assert "less where rows are shorter" in str(look)
    noise = [PCA(2, **{**keys, "epsilon": 0.2}).outlook(n, 12) for n in (5000, 5_000_000)]
    assert "the noise alone" in noise[0].warnings[0] and 5000 < noise[0].n_needed < 5_000_000
    assert noise[1].warnings == () and noise[1].predicted_error < noise[1].trivial_error / 2


def test_without_noise_components_are_those_of_scikit_learn():
    rng, n = np.random.default_rng(5), 1000
    X = np.round(rng.normal(size=(n, 6)) * [3, 2, 1, 0.5, 0.5, 0.5] * 2**10) / 2**10
    X = np.concatenate([X, -X])  # no mean
    r = 2.0**5  # rows are whole multiples of r 2^-20: nothing is truncated
    S = unpack_symmetric(second_moment(X, r)).astype(float) * moment_grid(r) / len(X)
    values, vectors = top_eigenspace(S, 3)
    theirs = sklearn.decomposition.PCA(3, svd_solver="covariance_eigh").fit(X)
    assert subspace_error(vectors, theirs.components_.T) < 1e-8
    assert np.allclose(np.abs(vectors.T @ theirs.components_.T), np.eye(3), atol=1e-8)
    assert np.allclose(values, theirs.explained_variance_ * (len(X) - 1) / len(X), rtol=1e-10)


def test_transform_and_its_inverse():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(5000, 4)) * [1, 0.5, 0.01, 0.01]
    model = PCA(2, row_norm=3.0, random_state=0, **GAUSSIAN).fit(X)
    Z = model.transform(X)
    assert Z.shape == (5000, 2) and np.allclose(Z, X @ model.components_.T)
    assert np.linalg.norm(model.inverse_transform(Z) - X) < 0.05 * np.linalg.norm(X)
    assert np.allclose(model.explained_variance_, (Z**2).mean(axis=0), rtol=0.05)
    assert 0.9 < model.explained_variance_ratio_.sum() <= 1.0 + 1e-9
    with pytest.raises(ValueError, match="features"):
        model.transform(X[:, :3])


def test_covariances_are_positive_and_within_their_trace_and_keep_their_zeros_beside():
    X = np.random.default_rng(7).normal(size=(2000, 8)) * 0.2
    X[:, 1] += X[:, 0]
    model = SparseCovariance(ThresholdedCovariance(soft=True), row_norm=1.0, random_state=0, **GAUSSIAN).fit(X)
    values = np.linalg.eigvalsh(model.covariance_)
    assert values[0] > -1e-12 and values.sum() <= 1.0 + 1e-9
    assert np.array_equal(model.support_, (model.sparse_covariance_ != 0) | np.eye(8, dtype=bool))
    assert model.support_[0, 1] and np.triu(model.support_, 1).sum() <= 3
    assert "Map of the 8 x 8 entries of covariance_" in model._repr_html_()
    model.set_params(method="noisy").fit(X)
    assert not hasattr(model, "support_") and np.linalg.eigvalsh(model.covariance_)[0] > -1e-12


def test_precision_matrices_are_positive_also_where_the_release_is_not():
    X = np.random.default_rng(8).normal(size=(100, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moment = SecondMoment(row_norm=3.0, random_state=0, **GAUSSIAN).fit(X)
        assert np.linalg.eigvalsh(moment.second_moment_)[0] < 0
        model = GraphicalLasso(CovariancePerturbation(multiple=0.1)).fit(moment)
    assert np.linalg.eigvalsh(model.precision_)[0] > 0 and model.penalty_ > 0
    assert np.allclose(model.covariance_ @ model.precision_, np.eye(6), atol=1e-6)


def test_edges_are_found():
    data, truth = problems.chain_precision(100_000, 8, random_state=0)
    model = GraphicalLasso(CovariancePerturbation(multiple=1.0), row_norm=standardised(8), random_state=0, **GAUSSIAN)
    edges = model.fit(data).edges_
    true = (np.abs(np.linalg.inv(truth)) > 1e-6) & ~np.eye(8, dtype=bool)
    assert (edges & true).sum() == true.sum() and (edges & ~true).sum() <= true.sum()


# --- the capped solution ----------------------------------------------------------------------------------------------


def test_a_row_moves_the_capped_solution_by_no_more_than_its_sensitivity():
    rng, worst = np.random.default_rng(9), 0.0
    for n, d, cap, steps in ((6, 3, 2.0, 400), (20, 4, 5.0, 2000)):
        query = CappedPrecision(n, d, 1.0, 0.05, cap, steps)
        bound = query.sensitivity(Neighbours.REPLACE_ONE)
        for _ in range(6):
            X = rng.normal(size=(n, d)) * rng.choice([1e-3, 0.3, 1e3])
            Y = X.copy()
            Y[0] = rng.choice([np.nan, 0.0, 1e300, 1.0]) * rng.normal(size=d)
            units = [query.statistic(query.solution(query.summarise({"X": Z}, None, None))) for Z in (X, Y)]
            (one, grid), (other, _) = units
            change = unpack_symmetric((one - other).astype(float)) * grid
            worst = max(worst, np.linalg.norm(change) / bound)
    assert 0.02 < worst <= 1.0


def test_a_cap_read_off_the_solution_is_caught():
    """The control: with the cap set to the largest eigenvalue of the solution itself a row moves it much further."""
    n, d, penalty = 10, 2, 0.02
    X = np.tile(np.eye(d)[0], (n, 1))
    Y = X.copy()
    Y[0] = np.eye(d)[1]
    far = [CappedPrecision(n, d, 1.0, penalty, 1e3, 5000) for _ in range(2)]
    solutions = [
        unpack_symmetric(q.solution(q.summarise({"X": Z}, None, None))) for q, Z in zip(far, (X, Y), strict=True)
    ]
    own_cap = float(np.linalg.eigvalsh(solutions[1])[-1])  # of one of the two
    honest = CappedPrecision(n, d, 1.0, penalty, own_cap, 20_000)
    moved = np.linalg.norm(solutions[0] - solutions[1])
    assert moved > honest.exact_sensitivity


def test_steps_follow_from_public_numbers_and_are_enough_or_refused():
    model = GraphicalLasso(OutputPerturbation(cap=4.0), row_norm=standardised(20), **GAUSSIAN)
    query = model.decided(20_000, 20).query
    assert 2 * query.distance / query.exact_sensitivity <= 0.11 and query.n_steps < 10_000
    moved = query.penalty * math.sqrt(20 * 19)  # of the pairs, and a margin for rounding
    assert query.distance > 2 * 16 * moved / (query.n_steps + 1)
    with pytest.raises(BudgetError, match=r"n_rows <= .*n_steps >= "):
        GraphicalLasso(OutputPerturbation(cap=4.0, n_steps=50), row_norm=5.0, **GAUSSIAN).plan(20_000, 20)
    with pytest.raises(BudgetError, match="n_rows <= "):
        GraphicalLasso(OutputPerturbation(cap=4.0, penalty=0.5), row_norm=5.0, **GAUSSIAN).plan(10_000_000, 20)


def test_noise_on_the_solution_under_epsilon_alone():
    data, _ = problems.chain_precision(20_000, 3, random_state=0)
    keys = {"row_norm": standardised(3), **PURE}
    model = GraphicalLasso(OutputPerturbation(cap=4.0), random_state=0, **keys).fit(data)
    assert model.guarantee_.delta == 0 and np.linalg.eigvalsh(model.precision_)[0] > 0
    assert not hasattr(model, "second_moment_")
