"""Subspaces, covariances and precision matrices from reports: as near as predicted, and in their bands."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import Dataset, local
from dpdist.errors import BudgetError
from dpdist.problems.catalog import PROBLEMS
from dpdist.solvers.subspaces import chance_error

GOE = {"mechanism": "goe", "delta": 1e-6, "fidelity": "sum"}


def spiked(n, d, k, seed, name="spiked-unit", **data):
    return PROBLEMS[name].generate({"n": n, "d": d, "n_components": k, "random_state": seed, **data})


def mean_error(make, generate, seeds=5):
    found = []
    for seed in range(seeds):
        generated = generate(seed)
        model = make(seed).fit(generated.dataset)
        found.append(generated.metric(model).error(model))
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("n", "d", "k", "epsilon", "others"),
    [(100_000, 8, 2, 1.0, GOE), (40_000, 12, 3, 4.0, GOE), (40_000, 6, 1, 2.0, {}), (60_000, 8, 2, 2.0, {})],
    ids=str,
)
def test_the_prediction_is_the_mean_error(n, d, k, epsilon, others):
    """Within a quarter, over ten seeds."""
    truth = np.linalg.eigvalsh(spiked(10, d, k, 0).truth)[::-1]

    def make(seed):
        return local.PCA(
            k, row_norm=1.0, epsilon=epsilon, gap=float(truth[k - 1] - truth[k]), random_state=seed, **others
        )

    predicted = make(0).outlook(n, d).predicted_error
    assert 0.02 < predicted < chance_error(d, k) / 2
    error = mean_error(make, lambda seed: spiked(n, d, k, seed), 10)
    assert 0.75 * error < predicted < 1.25 * error
    after = make(0).fit(spiked(n, d, k, 0).dataset).expected_error_  # of one fit, by eigenvalues with noise
    assert 0.7 * error < after < 1.4 * error


def test_a_gap_that_the_noise_covers_is_warned_of_and_one_that_it_does_not_is_not(recwarn):
    rows = spiked(2000, 6, 2, 0).dataset
    local.PCA(2, row_norm=1.0, epsilon=8.0, gap=0.3, random_state=0).fit(rows)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="about random"):
        local.PCA(2, row_norm=1.0, epsilon=0.1, gap=0.3, random_state=0).fit(rows)


def test_few_columns_are_found_and_the_rest_is_exactly_zero():
    generated = spiked(60_000, 20, 1, 0, "sparse-spiked-unit", n_nonzero=4)
    model = local.SparsePCA(1, row_norm=1.0, epsilon=4.0, random_state=0).fit(generated.dataset)
    true = np.flatnonzero(np.abs(np.linalg.eigh(generated.truth)[1][:, -1]) > 1e-9)
    assert set(np.flatnonzero(model.support_)) <= set(true) and (model.components_[:, ~model.support_] == 0).all()
    plain = local.PCA(1).fit(model)
    metric = generated.metric(model)
    assert metric.error(model) < metric.error(plain) < metric.trivial() / 3
    known = local.SparsePCA(1, n_nonzero=4).fit(model)
    assert known.support_.sum() == 8 and metric.error(known) < metric.error(plain)
    with pytest.raises(BudgetError, match="n_nonzero=1 columns cannot hold n_components=3"):
        local.SparsePCA(3, n_nonzero=1, row_norm=1.0, epsilon=1.0).fit(generated.dataset)


def test_a_covariance_below_the_detection_level_is_warned_of_and_is_about_a_multiple_of_the_identity():
    generated = PROBLEMS["block-cov"].generate({"n": 3000, "d": 16})
    model = local.SparseCovariance(row_norm=1.25, epsilon=0.5, random_state=0)
    with pytest.warns(UserWarning, match="cannot be told from the noise"):
        model.fit(generated.dataset)
    off = model.sparse_covariance_ - np.diag(np.diag(model.sparse_covariance_))
    assert np.count_nonzero(off) <= 4 and np.trace(model.covariance_) <= 1.25**2 * (1 + 1e-9)


def test_what_is_released_is_no_covariance_but_what_is_answered_is():
    X = np.random.default_rng(0).normal(size=(400, 6)) / 3
    moment = local.SecondMoment(row_norm=1.0, epsilon=0.5, random_state=0).fit(X)
    assert np.linalg.eigvalsh(moment.second_moment_)[0] < 0
    found = local.SparseCovariance(method="noisy").fit(moment)
    assert np.linalg.eigvalsh(found.covariance_)[0] > -1e-12
    graph = local.GraphicalLasso().fit(moment)
    assert np.linalg.eigvalsh(graph.precision_)[0] > 0


def test_the_penalty_on_the_solution_belongs_to_a_coordinator():
    with pytest.raises(BudgetError, match="output"):
        local.GraphicalLasso("output", row_norm=1.0, epsilon=1.0).fit(np.ones((10, 3)))


def test_a_fit_that_is_run_again_under_its_name_has_the_same_reports(tmp_path):
    X = Dataset.from_arrays(X=np.random.default_rng(0).normal(size=(3000, 4)) / 2)
    given = {"row_norm": 1.0, "epsilon": 2.0, "run_id": "one", "ledger": tmp_path / "ledger.sqlite"}
    first = local.PCA(1, **given).fit(X)
    again = local.PCA(1, **given).fit(X)
    assert np.array_equal(first.components_, again.components_)


# -- bands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("others", "band"), [({}, 0.14), (GOE, 0.32)], ids=["auto", "goe"])
@pytest.mark.slow
def test_components_are_in_their_bands(others, band):
    def make(seed):
        return local.PCA(2, row_norm=1.0, epsilon=1.0, random_state=seed, **others)

    assert mean_error(make, lambda seed: spiked(200_000, 15, 2, seed)) <= band


@pytest.mark.slow
def test_sparse_components_are_in_their_band():
    def make(seed):
        return local.SparsePCA(1, row_norm=1.0, epsilon=1.0, random_state=seed)

    assert mean_error(make, lambda seed: spiked(400_000, 80, 1, seed, "sparse-spiked-unit")) <= 0.09


@pytest.mark.slow
def test_covariances_are_in_their_band():
    def make(seed):
        return local.SparseCovariance(row_norm=1.25, epsilon=1.0, random_state=seed)

    def generate(seed):
        return PROBLEMS["block-cov"].generate({"n": 500_000, "d": 16, "random_state": seed})

    assert mean_error(make, generate) <= 0.19


@pytest.mark.slow
def test_precision_matrices_are_in_their_band():
    def make(seed):
        return local.GraphicalLasso(row_norm=math.sqrt(8 + 2 * math.sqrt(16)), epsilon=1.0, random_state=seed)

    def generate(seed):
        return PROBLEMS["chain-precision"].generate({"n": 2_000_000, "d": 8, "random_state": seed})

    assert mean_error(make, generate) <= 0.10
