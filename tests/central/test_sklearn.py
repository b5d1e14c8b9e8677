"""scikit-learn's own checks of estimators, and the tools of scikit-learn that users combine them with.

The checks run with a large budget, so that those of accuracy can pass, and with a seed, so that they are
deterministic. What is excluded is listed with its reason and must really fail: `xfail_strict` makes an exclusion that
is not needed any more an error.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression as NonPrivateLogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpdist import Budget, Dataset, Ledger, LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import ClipNorm, GradientDescent
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError, BudgetExceeded, DataError
from dpdist.losses import Huber


class Curator:
    """Declares the labels before fitting, as whoever knows the dataset would.

    ``classes`` is a required public parameter and the checks come with labels of their own. The parameter is put back
    after the fit, because a fit must not change parameters.
    """

    def fit(self, X, y=None):
        declared = self.classes
        if isinstance(y, np.ndarray) and y.dtype.hasobject:
            y = y.astype(str)  # arrays of objects are refused, and to convert them is the curator's task too
        if declared is None:
            # at least two labels, as a classifier needs; the first few of continuous ones, which are no labels
            found = [] if y is None else np.unique(np.asarray(y))[:5]
            self.classes = found if len(found) > 1 else [*found, -7, -8][:2]
        try:
            return super().fit(X, y)
        finally:
            self.classes = declared


class CuratedLogisticRegression(Curator, LogisticRegression):
    pass


class CuratedLinearSVC(Curator, LinearSVC):
    pass


# The checks use up to ten standardised or uniform features: rows of norm 4 hold most of them.
SEEDED = {"delta": 1e-6, "random_state": 0, "cluster": "threads"}
LARGE = {**SEEDED, "epsilon": 1e4, "row_norm": 4.0, "solver": GradientDescent(n_rounds=40)}

ESTIMATORS = [
    CuratedLogisticRegression(**LARGE),
    CuratedLinearSVC(**LARGE),
    LinearRegression(loss="huber", **LARGE),
    LinearRegression(loss="squared", gradient=ClipNorm(100.0), **LARGE),
    Minimizer("huber", **LARGE),
]

VALUES = "an exception that depends on a value in fit would tell something about a row; "
EXCLUDED = {
    "check_estimators_nan_inf": VALUES + "rows with NaN or inf are null rows; for predict see below",
    "check_supervised_y_no_nan": VALUES + "rows with a label that is NaN or inf are null rows",
    "check_classifiers_regression_target": VALUES + "rows with a label that was not declared are null rows",
    "check_dtype_object": VALUES + "object arrays are refused for their dtype, before a conversion can fail",
}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXCLUDED, xfail_strict=True)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


SMALL = {**SEEDED, "epsilon": 1e3, "row_norm": 2.0, "solver": GradientDescent(n_rounds=5)}
rng = np.random.default_rng(1)
X = rng.normal(size=(400, 3))
Y = (X @ [2.0, -1.0, 0.0] > 0).astype(int)


def classifier(**options):
    return LogisticRegression(**{"classes": [0, 1], **SMALL, **options})


def same(a, b):
    return all(np.array_equal(x.value, y.value) for x, y in zip(a.releases_, b.releases_, strict=True))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_predict_refuses_what_scikit_learn_refuses(estimator):
    model = clone(estimator).fit(X, Y)
    for bad in (np.nan, np.inf):
        wrong = X.copy()
        wrong[0, 0] = bad
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            model.predict(wrong)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3"):
        model.predict(X[:, :2])
    with pytest.raises(NotFittedError):
        clone(estimator).predict(X)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_fit_does_not_look_at_values(estimator):
    """Neighbouring datasets, one of them with a bad row: both are fitted, with no warnings but of two rounds."""
    bad_rows = [np.full(3, np.nan), np.full(3, np.inf), np.array([1e308, -1e308, 5e-324])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "solver=.* is expected to come clearly closer")
        for row in bad_rows:
            wrong = X.copy()
            wrong[0] = row
            model = clone(estimator).set_params(solver__n_rounds=2)
            model = model.set_params(classes=[0, 1]) if is_classifier(model) else model
            assert np.isfinite(clone(model).fit(wrong, Y).coef_).all()
        labels = Y.astype(float)
        labels[0] = np.nan
        assert np.isfinite(clone(model).fit(X, labels).coef_).all()


def test_tags():
    model, tags = classifier(), get_tags(classifier())
    assert is_classifier(model) and is_regressor(LinearRegression())
    assert not is_classifier(Minimizer()) and not is_regressor(Minimizer())
    assert tags.classifier_tags.multi_class and not tags.classifier_tags.poor_score
    for estimator in ESTIMATORS:
        tags = get_tags(estimator)
        assert tags.target_tags.required and tags.target_tags.one_d_labels is False
        assert not tags.input_tags.sparse and not tags.input_tags.allow_nan
        assert tags.requires_fit and not tags.non_deterministic


def test_decision_function_belongs_to_losses_for_two_classes():
    assert hasattr(Minimizer("logistic"), "decision_function")
    assert not hasattr(Minimizer("huber"), "decision_function")
    assert not hasattr(Minimizer("no such loss"), "decision_function")
    assert not hasattr(LinearRegression(), "decision_function")
    model = Minimizer("smoothed-hinge", **SMALL).fit(X, 2 * Y - 1)
    assert np.array_equal(model.predict(X), np.where(model.decision_function(X) > 0, 1, -1))


def test_parameters_of_minimizer_show_on_its_subclasses():
    common = set(Minimizer().get_params()) - {"loss", "penalty"}
    assert len(common) == 17
    for model in (LogisticRegression(), LinearSVC()):
        assert set(model.get_params()) == common | {"classes", "class_weight", "alpha", "l1_ratio"}
    assert set(LinearRegression().get_params()) == common | {"loss", "alpha", "l1_ratio"}
    assert classifier().set_params(epsilon=0.5, alpha=0.1).get_params()["epsilon"] == 0.5
    with pytest.raises(ValueError, match="no parameter 'loss': its loss is fixed"):
        LogisticRegression().set_params(loss="huber")


def test_a_fixed_parameter_is_not_swallowed():
    with pytest.raises(TypeError, match="no parameter 'penalty'"):
        LogisticRegression(penalty="l2")
    with pytest.raises(TypeError, match="loss"):
        LinearSVC(loss="hinge")
    with pytest.raises(TypeError, match="epsilom"):
        LogisticRegression(epsilom=1.0)


def test_repr_shows_what_differs_from_the_defaults():
    assert repr(LogisticRegression(classes=[0, 1], epsilon=0.5)) == "LogisticRegression(classes=[0, 1], epsilon=0.5)"
    assert repr(LinearRegression(loss=Huber(2.0))) == "LinearRegression(loss=Huber(threshold=2.0))"
    assert repr(Minimizer(constraint=L2Ball(3.0))) == "Minimizer(constraint=L2Ball(radius=3.0))"


def test_clone_and_pickle():
    model = classifier().fit(X, Y)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict_proba(X), model.predict_proba(X))
    assert copy.guarantee_ == model.guarantee_ and copy.plan_ == model.plan_
    assert same(clone(model).fit(X, Y), model)


def test_clones_charge_one_ledger():
    ledger = Ledger(":memory:")
    dataset = Dataset.from_arrays(X=X, y=Y)
    ledger.set_limit(dataset.id, Budget(2.5, 1e-5))
    model = classifier(ledger=ledger, epsilon=1.0)
    for _ in range(2):
        clone(model).fit(dataset)
    with pytest.raises(BudgetExceeded):
        clone(model).fit(dataset)


def test_a_pickled_model_keeps_the_path_of_its_ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    dataset = Dataset.from_arrays(X=X, y=Y)
    model = classifier(ledger=ledger).fit(dataset)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.ledger == ledger.path
    copy.fit(dataset)
    assert len(ledger.history(dataset.id)) == 2
    forgetful = pickle.loads(pickle.dumps(classifier(ledger=Ledger(":memory:"))))
    with pytest.raises(BudgetError, match="would forget what was spent"):
        forgetful.fit(dataset)


def test_cross_validation_and_grid_search():
    assert cross_val_score(classifier(solver=GradientDescent(30)), X, Y, cv=4).mean() > 0.9
    model = classifier(solver=GradientDescent(30), ledger=Ledger(":memory:"))
    search = GridSearchCV(model, {"alpha": [1e-3, 10.0]}, cv=3)
    assert search.fit(X, Y).best_params_ == {"alpha": 1e-3}
    reference = NonPrivateLogisticRegression(C=1 / (1e-3 * len(X))).fit(X, Y)
    assert search.score(X, Y) > reference.score(X, Y) - 0.03


def row_norms_to_one(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


@pytest.mark.parametrize("transformer", [FunctionTransformer(row_norms_to_one), Normalizer()], ids=["own", "sklearn's"])
def test_pipeline_with_a_public_row_map(transformer):
    """A map of each row by itself, which learns nothing, keeps the guarantee."""
    pipeline = make_pipeline(transformer, classifier(row_norm=1.0, solver=GradientDescent(30)))
    assert pipeline.fit(X, Y).score(X, Y) > 0.9
    assert same(pipeline[-1], classifier(row_norm=1.0, solver=GradientDescent(30)).fit(row_norms_to_one(X), Y))


def test_column_vectors_are_warned_about_once():
    with pytest.warns(DataConversionWarning) as caught:
        model = classifier().fit(X, Y[:, None])
    assert [w.filename for w in caught if w.category is DataConversionWarning] == [__file__]
    assert same(model, classifier().fit(X, Y))


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.coo_array], ids=["csr_matrix", "coo_array"])
def test_sparse_rows_are_refused(kind):
    with pytest.raises(DataError, match=r"X is a sparse matrix .* dense rows are needed.*X\.toarray\(\)"):
        classifier().fit(kind(X), Y)


def test_frames():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = classifier().fit(frame, pd.Series(Y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert same(model, classifier().fit(X, Y))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"a": "z"}))
    model.fit(Dataset.from_arrays(X=X, y=Y))
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("dtype", ["str", "string", "Int64", "boolean", "Float64"])
def test_labels_of_pandas_and_missing_ones(dtype):
    """A missing label makes a null row, in whatever way pandas stores it."""
    names = {"str": ["no", "yes"], "string": ["no", "yes"], "boolean": [False, True]}.get(dtype, [0, 1])
    y = pd.Series(np.take(names, Y)).astype(dtype)
    assert same(classifier(classes=names).fit(X, y), classifier().fit(X, Y))
    y[5] = None
    undeclared = Y.copy()
    undeclared[5] = 2
    assert same(classifier(classes=names).fit(X, y), classifier().fit(X, undeclared))


@pytest.mark.parametrize(
    "rows",
    [
        "X.astype(str)", "X.tolist() + [['secret', 1.0, 2.0]]", "X.tolist() + [[31337.0]]", "X.tolist() + [[None] * 3]",
        "X[:, 0] + 31337", "X + 31337j", "pd.DataFrame({'a': [1.0, 'secret']})", "pd.DataFrame({'a': ['1', 'secret']})",
    ],
)  # fmt: skip
def test_messages_about_the_rows_quote_no_value(rows):
    rows = eval(rows, {"pd": pd, "X": X})
    with pytest.raises(DataError) as caught:
        classifier().fit(rows, [0, 1] * (len(rows) // 2) + [0] * (len(rows) % 2))
    assert "secret" not in str(caught.value) and "31337" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("labels", [[0, "secret"], [0, [31337]]], ids=repr)
def test_messages_about_the_labels_quote_no_value(labels):
    with pytest.raises(DataError) as caught:
        classifier().fit(X[:2], labels)
    assert "secret" not in str(caught.value) and "31337" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    with pytest.raises(DataError, match="object dtype") as caught:
        LinearRegression(loss="huber", **SMALL).fit(X[:2], [0, {"secret": 1}])
    assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="strings"):
        LinearRegression(loss="huber", **SMALL).fit(X[:2], ["1.0", "2.0"])


def test_xarray():
    model = classifier().fit(xr.DataArray(X, dims=["row", "feature"]), xr.DataArray(Y, dims=["row"]))
    assert same(model, classifier().fit(X, Y))
