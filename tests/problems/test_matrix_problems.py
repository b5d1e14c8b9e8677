"""Generated rows whose second moments are known, and how subspaces and matrices are judged."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.catalog import PROBLEMS
from dpdist.problems.matrix_metrics import leading
from dpdist.problems.matrix_problems import PROBLEMS as MATRICES
from dpdist.problems.matrix_problems import direction_moments, lb_sparse_cov, lb_spiked, sparse_spiked_unit

KINDS = (Answer.SUBSPACE, Answer.SECOND_MOMENTS, Answer.COVARIANCE, Answer.PRECISION)


def judged(name, *answers, **data):
    generated = PROBLEMS[name].generate({"n": 2000, **data})
    model = SimpleNamespace(answers=answers)
    return generated, generated.metric(model)


@pytest.mark.parametrize("problem", MATRICES, ids=lambda problem: problem.name)
def test_the_truth_is_the_mean_of_products(problem):
    n, d = 20_000, 24
    generated = problem.generate({"n": n, "d": d})
    X, truth = generated.dataset.read(0, n)["X"], generated.truth
    products = X[:, :, None] * X[:, None, :]
    z = (products.mean(axis=0) - truth) / np.maximum(products.std(axis=0) / np.sqrt(n), 1e-12)
    assert np.abs(z).max() < 6 and 0.7 < np.sqrt(np.mean(z**2)) < 1.6
    assert np.array_equal(truth, truth.T) or np.allclose(truth, truth.T, rtol=0, atol=1e-15)


def test_moments_of_directions_are_those_of_long_and_short_normal_vectors():
    assert np.allclose(np.trace(direction_moments(np.array([3.0, 0, 0]), np.diag([1.0, 2.0, 1e-4]))), 1)
    far = direction_moments(np.array([1e3, 0.0]), np.eye(2))
    assert far[0, 0] == pytest.approx(1, abs=2e-6) and far[1, 1] == pytest.approx(1e-6, rel=0.01)
    # in two dimensions: E x_1^2 = sqrt(c_1) / (sqrt(c_1) + sqrt(c_2))
    assert direction_moments(np.zeros(2), np.diag([9.0, 1.0]))[0, 0] == pytest.approx(0.75, abs=1e-12)


@pytest.mark.parametrize("answer", KINDS, ids=lambda answer: answer.name)
def test_the_truth_has_no_error_and_plain_moments_have_little(answer):
    name = "chain-precision" if answer is Answer.PRECISION else "spiked-unit"
    generated, metric = judged(name, answer, n=50_000)
    truth = generated.truth
    right = {
        "components_": leading(truth, 2).T,
        "second_moment_": truth,
        "covariance_": truth,
        "precision_": np.linalg.inv(truth),
    }
    assert metric.error(SimpleNamespace(**right)) < 1e-7
    assert 0 < generated.nonprivate(metric) < metric.trivial() / 15


def test_trivial_errors_are_those_of_the_specification():
    settings = (
        ("spiked-unit", 15, 1.86), ("block-cov", 60, 0.600), ("chain-precision", 15, 0.588), ("lb-spiked", 40, 2.958)
    )  # fmt: skip
    for name, d, expected in settings:
        _, metric = judged(name, *KINDS, d=d)
        assert metric.trivial() == pytest.approx(expected, rel=0.005), name


def test_distances_of_subspaces_are_between_nothing_and_orthogonal():
    generated, metric = judged("spiked-unit", Answer.SUBSPACE, d=6)
    orthogonal = SimpleNamespace(components_=np.linalg.eigh(generated.truth)[1][:, :2].T)
    turned = SimpleNamespace(components_=np.array([[0.6, 0.8], [-0.8, 0.6]]) @ leading(generated.truth, 2).T)
    assert metric.error(orthogonal) == pytest.approx(2) and metric.error(turned) < 1e-7


def test_sparse_subspaces_have_few_columns_and_a_reference_that_knows():
    _, truth = sparse_spiked_unit(1, 40, n_components=2, n_nonzero=6)
    assert np.count_nonzero(np.abs(leading(truth, 2)).max(axis=1) > 1e-9) == 6
    generated, metric = judged("sparse-spiked-unit", Answer.SUBSPACE, n=1000, n_nonzero=6)
    rows = generated.dataset.read(0, 1000)["X"]
    dense = SimpleNamespace(components_=leading(rows.T @ rows, 1).T)
    assert metric.nonprivate(rows, None) < metric.error(dense) / 2


def test_hard_instances_are_as_short_and_as_sparse_as_stated():
    _, spiked = lb_spiked(1, 40, n_components=5, signal=1.0)
    assert np.trace(spiked) <= 0.2 and np.ptp(np.linalg.eigvalsh(spiked)) == pytest.approx(1 / 400)
    _, sparse = lb_sparse_cov(1, 40, n_nonzero=2)
    off = (sparse - np.diag(np.diag(sparse))) != 0
    assert np.trace(sparse) == pytest.approx(0.1) and off[:20].sum(axis=1).max() == 2 and off.sum(axis=1).max() <= 4
    assert not off[:20, :20].any() and not off[20:, 20:].any()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("spiked-unit", {"n_components": 25}, "n_components must lie between 1 and n_features = 20, got 25"),
        ("sparse-spiked-unit", {"n_components": 3, "n_nonzero": 2}, "n_nonzero must lie between n_components = 3"),
        ("factor-rows", {"n_components": 60}, "n_components must lie"),
        ("chain-precision", {"strength": 0.5}, r"strength must lie in \[0, 0.5\)"),
        ("block-cov", {"correlation": 1.5}, "correlation is a fraction"),
        ("lb-sparse-cov", {"n_nonzero": 30}, "n_features / 4"),
        ("lb-sparse-cov", {"signal": 3.0}, "these parameters give no covariance matrix"),
    ],
)
def test_bad_parameters_are_named(name, data, message):
    with pytest.raises(DataError, match=message):
        PROBLEMS[name].generate({"n": 10, **data})
