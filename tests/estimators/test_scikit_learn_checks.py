"""scikit-learn's own checks of every estimator that is not in `tests.central.test_sklearn`.

They run with a large budget and a seed, like those. What is excluded is listed with its reason and must really fail.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpdist import (
    PCA,
    Dataset,
    GaussianMixture,
    GraphicalLasso,
    Mean,
    MetricLearner,
    MissingCovariateRegression,
    MixedRegression,
    PairwiseRanker,
    SecondMoment,
    SparseCovariance,
    SparsePCA,
    TwoComponentMixture,
    local,
)
from dpdist.central import MetricGradient
from dpdist.jobs.registry import ESTIMATORS, estimator_class
from tests.central.test_sklearn import EXCLUDED

SEEDED = {"epsilon": 1e4, "random_state": 0, "cluster": "threads"}
CENTRAL = {**SEEDED, "delta": 1e-6}


class Curator:
    """Declares two classes, and what has the length of rows, as whoever knows the dataset would.

    The checks come with labels and columns of their own, and set ``n_components`` to 1 or 2 wherever it is.
    """

    def fit(self, X, y=None):
        declared = {name: getattr(self, name) for name in ("classes", "start") if hasattr(self, name)}
        if "classes" in declared:
            labels = np.asarray([0, 1] if y is None else y)
            self.classes = [*np.unique(labels.astype(str) if labels.dtype.hasobject else labels)[:2], -7, -8][:2]
        if "start" in declared:
            columns = np.shape(X)[1] if np.ndim(X) == 2 else 1
            self.start = np.linspace(-1.0, 1.0, getattr(self, "n_components", 1) * columns).tolist() or [1.0]
        try:
            return super().fit(X, y)
        finally:
            for name, value in declared.items():
                setattr(self, name, value)


class CuratedMetric(Curator, MetricLearner):
    pass


class CuratedClusters(Curator, GaussianMixture):
    pass


class CuratedMixture(Curator, TwoComponentMixture):
    pass


class CuratedLines(Curator, MixedRegression):
    pass


class CuratedCells(Curator, MissingCovariateRegression):
    pass


class CuratedLocalLogistic(Curator, local.LogisticRegression):
    pass


class CuratedLocalSVC(Curator, local.LinearSVC):
    pass


class FortyFeatures(local.KernelRidge):
    """The checks set ``n_components`` to 1 or 2, as that of a PCA: here it is how many random features there are."""

    def fit(self, X, y=None):
        declared, self.n_components = self.n_components, 40
        try:
            return super().fit(X, y)
        finally:
            self.n_components = declared


MODELS = [
    PCA(1, row_norm=4.0, **CENTRAL),
    SparsePCA(1, row_norm=4.0, **CENTRAL),
    SecondMoment(row_norm=4.0, **CENTRAL),
    GraphicalLasso(row_norm=4.0, **CENTRAL),
    SparseCovariance(row_norm=4.0, **CENTRAL),
    Mean(second_moment=2.0, **CENTRAL),
    CuratedMetric(MetricGradient(block_rows=2), row_norm=4.0, **CENTRAL),
    PairwiseRanker(threshold=0.5, row_norm=4.0, **CENTRAL),
    CuratedClusters(row_norm=4.0, noise_std=1.0, **CENTRAL),
    local.PCA(1, row_norm=4.0, **SEEDED),
    local.SparsePCA(1, row_norm=4.0, **SEEDED),
    local.SecondMoment(row_norm=4.0, **SEEDED),
    local.GraphicalLasso(row_norm=4.0, **SEEDED),
    local.SparseCovariance(row_norm=4.0, **SEEDED),
    local.Mean(low=-4.0, high=4.0, **SEEDED),
    local.LinearRegression(row_norm=4.0, label_bound=150.0, l1_radius=60.0, **SEEDED),
    FortyFeatures(label_bound=150.0, bandwidth=4.0, **SEEDED),
    local.GeneralizedLinearModel("squared", row_norm=4.0, radius=4.0, label_bound=4.0, **SEEDED),
    CuratedLocalLogistic(row_norm=4.0, radius=4.0, **SEEDED),
    CuratedLocalSVC(row_norm=4.0, radius=4.0, **SEEDED),
    local.SparseRegression(1, noise_bound=1.0, **SEEDED),
]
LATENT = {"noise_std": 1.0, "radius": 4.0, **CENTRAL}
SLOW = [CuratedMixture(**LATENT), CuratedLines(**LATENT), CuratedCells(missing_rate=0.1, **LATENT)]
"""Kernels are compiled for every type of numbers that the checks come with."""

LABELS = "the density of a label is asked for with labels: score_samples(X, y)"
OF_LABELS = (MixedRegression, MissingCovariateRegression)
ASK_FOR_SCORES = (
    "check_array_api_input",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
)


def excluded(model):
    """Checks that cannot pass, with the reason."""
    checks = {"check_dtype_object": EXCLUDED["check_dtype_object"]}
    if not isinstance(model, MissingCovariateRegression):
        checks["check_estimators_nan_inf"] = EXCLUDED["check_estimators_nan_inf"]
    if is_classifier(model) or is_regressor(model):
        checks["check_supervised_y_no_nan"] = EXCLUDED["check_supervised_y_no_nan"]
    if is_classifier(model):
        name = "check_classifiers_regression_target"
        checks |= {name: EXCLUDED[name], "check_classifier_not_supporting_multiclass": EXCLUDED[name]}
    if isinstance(model, OF_LABELS):
        checks |= dict.fromkeys(ASK_FOR_SCORES, LABELS)
    if isinstance(model, MetricLearner):
        checks["check_fit2d_1sample"] = "rows are paired: one row is refused, in other words than these"
    if isinstance(model, local.KernelRidge | local.LinearRegression):
        checks["check_regressors_train"] = "200 reports are too few: R squared about .5, and .02 to .25 of the kernel"
    return checks


@parametrize_with_checks(MODELS, expected_failed_checks=excluded, xfail_strict=True)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(SLOW, expected_failed_checks=excluded, xfail_strict=True)
def test_scikit_learn_checks_of_latent_variables(estimator, check):
    check(estimator)


@pytest.mark.parametrize("model", [PCA(1, row_norm=1.0, **CENTRAL), local.SparsePCA(1, row_norm=1.0, **SEEDED)])
def test_what_is_transformed_is_a_frame_where_that_is_asked(model):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)) / 2, columns=["a", "b", "c"])
    found = clone(model).set_output(transform="pandas").fit_transform(X)
    assert list(found.columns) == [f"{type(model).__name__.lower()}0"] and list(found.index) == list(X.index)
    assert list(clone(clone(model).set_output(transform="pandas")).fit(X).transform(X).columns) == list(found.columns)
    pipeline = make_pipeline(clone(model), LinearRegression()).fit(X, X["a"])
    assert np.array_equal(pipeline[:-1].transform(X), found)


@pytest.mark.parametrize(
    "model",
    [
        PCA(1, row_norm=1.0, **CENTRAL),
        local.SparsePCA(1, row_norm=1.0, **SEEDED),
        MetricLearner(MetricGradient(block_rows=2), classes=[0, 1], row_norm=1.0, **CENTRAL),
    ],
)
def test_stored_rows_are_transformed_block_by_block(model):
    """``fit_transform(dataset)`` was charged, and failed then."""
    X = np.random.default_rng(0).normal(size=(50, 3)) / 2
    found = model.fit_transform(Dataset.from_arrays(X=X, y=np.arange(50) % 2)).compute()
    assert np.array_equal(found, model.transform(X))
    assert np.array_equal(model.transform(da.from_array(X, chunks=(20, 3))).compute(), found)
    X[4] = np.nan
    assert np.flatnonzero(np.isnan(model.transform(Dataset.from_arrays(X=X)).compute()).any(axis=1)).tolist() == [4]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_is_shown_before_it_is_fitted(name):
    assert "sk-" in estimator_class(name)()._repr_html_()


def test_a_surface_of_a_loss_that_is_not_known_is_shown():
    assert "sk-" in local.RiskSurface(loss="nobody's")._repr_html_()
