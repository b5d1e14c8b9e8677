"""What a user sets and nothing reads is refused, with who would read it; what is read is known from reading it."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Lasso
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dpdist import Ledger, LinearRegression, LogisticRegression, Minimizer, SampleAndAggregate, local
from dpdist.central import ClipNorm, FrankWolfe, HardThresholding, Truncate
from dpdist.constraints import L1Ball, L2Ball
from dpdist.errors import BudgetError, DataError
from dpdist.jobs import job_data as inputs
from dpdist.jobs.job import load_job, make_estimator
from dpdist.jobs.registry import ESTIMATORS, METHODS, estimator_class
from tests.jobs.recorded import PIPELINES

COMMON = {"epsilon": 1.0, "delta": 1e-6}


def regression(**options):
    return LinearRegression(**{**COMMON, **options})


def classifier(**options):
    return LogisticRegression(**{"classes": [0, 1], **COMMON, **options})


def sparse(**options):
    return local.SparseRegression(2, **{"epsilon": 2.0, "design": "sign", **options})


REFUSED = [
    (lambda: classifier(solver="gradient", row_norm=1.0, residual_bound=0.5), "residual_bound", "gradient='residual'"),
    (lambda: classifier(solver="svrg", row_norm=1.0, residual_bound=0.5), "residual_bound", "solver='frank-wolfe'"),
    (
        lambda: classifier(solver="gradient", gradient=ClipNorm(0.5), row_norm=1.0, second_moment=2.0),
        "second_moment",
        "gradient='truncate'",
    ),
    (
        lambda: regression(gradient=Truncate(1.0), solver="gradient", row_norm=1.0, second_moment=2.0),
        "second_moment",
        "gradient='truncate'",
    ),
    (
        lambda: regression(
            solver="frank-wolfe", constraint=L1Ball(1.0), feature_bound=1.0, residual_bound=1.0, row_norm=1.0
        ),
        "row_norm",
        "solver='gradient'",
    ),
    (
        lambda: Minimizer(
            "squared", solver=HardThresholding(n_nonzero=2), gradient="shrink", constraint=L2Ball(1.0),
            feature_bound=1.0, residual_bound=1.0, **COMMON
        ),
        "residual_bound",
        "gradient='residual'",
    ),
    (lambda: SampleAndAggregate(Lasso(), radius=1.0, alpha=0.5, **COMMON), "alpha", "leave it out"),
    (lambda: SampleAndAggregate(Lasso(), radius=1.0, fit_intercept=False, **COMMON), "fit_intercept", "leave it out"),
    (lambda: SampleAndAggregate(radius=1.0, parameters=len, **COMMON), "parameters", "leave it out"),
    (lambda: local.Mean("box", low=0.0, high=1.0, radius=2.0), "radius", "leave it out"),
    (lambda: local.Mean("l2", "privunitg", radius=2.0, l1_radius=1.0), "l1_radius", "leave it out"),
    (lambda: local.Mean("l2", radius=2.0, low=0.0), "low", "leave it out"),
    (
        lambda: local.GeneralizedLinearModel("logistic", radius=1.0, row_norm=1.0, label_bound=2.0),
        "label_bound",
        "leave it out",
    ),
    (lambda: local.Mean("l2", "privunitg", radius=2.0, delta=1e-6), "delta", "leave it out"),
    (
        lambda: local.GeneralizedLinearModel("logistic", "direction", radius=1.0, row_norm=1.0, delta=1e-6),
        "delta",
        "leave it out",
    ),
    (lambda: local.KernelRidge(alpha=0.1, coef_norm=3.0, label_bound=1.0), "coef_norm", "leave it out"),
    (lambda: sparse(method="marginal", noise_bound=0.1, label_bound=1.0), "noise_bound", "method='iht'"),
    (lambda: sparse(method="iht", noise_bound=0.1, label_moment=(2.0, 3.0)), "label_moment", "method='statistics'"),
    (lambda: sparse(method="statistics", noise_bound=0.1, link="wave"), "link", "method='iht'"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "name", "readers"), REFUSED)
def test_what_nothing_reads_is_refused_before_a_row_is_read(model, name, readers):
    model = model()
    n_features = 3
    with pytest.raises(BudgetError) as refused:
        model.plan(100_000, n_features)
    said = str(refused.value)
    assert said.startswith(f"{name}={getattr(model, name)!r} has nobody to read it") and readers in said
    ledger = Ledger(":memory:")
    with pytest.raises(BudgetError, match=f"{name}=.*has nobody to read it"):
        model.set_params(ledger=ledger, random_state=0).fit(np.zeros((100, n_features)), np.ones(100))
    # the way out that is named works: it is left out
    default = type(model)().get_params(deep=False)[name]
    assert model.set_params(**{name: default}).plan(100_000, n_features).n_releases >= 1


def test_the_reader_that_is_named_reads_it():
    model = classifier(solver="gradient", row_norm=1.0, residual_bound=0.5, feature_bound=1.0)
    with pytest.raises(BudgetError, match=r"choose .* or gradient='residual'"):
        model.plan(1000, 3)
    assert model.set_params(gradient="residual", row_norm=None).plan(1000, 3).n_releases == 5


def test_what_auto_chooses_by_is_a_warning():
    model = classifier(row_norm=1.0, second_moment=2.0, alpha=0.1)
    with pytest.warns(UserWarning, match=r"second_moment=2.0 .* which became 'newton': rows are few.*It is read with"):
        model.plan(1000, 3)
    # but what nothing at all would read is none
    with pytest.raises(BudgetError, match=r"radius=2\.0 has nobody to read it with method='auto': leave it out"):
        local.Mean("box", low=0.0, high=1.0, radius=2.0).plan(1000, 3)


def test_defaults_are_never_refused():
    """A default that somebody writes down is no statement."""
    model = classifier(solver="gradient", row_norm=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clone(model).set_params(**model.get_params(deep=False)).plan(1000, 3).n_releases > 0


# -- all parameters of an estimator at once ---------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{"epsilom": 1.0}, {"solver__nope": 1}, {"constraint__radios": 1.0}, {"rows__rate": 1}])
def test_one_bad_parameter_among_several_changes_none(bad):
    model = classifier(solver="gradient", constraint=L2Ball(1.0))
    before = model.get_params()
    with pytest.raises((BudgetError, ValueError)):
        model.set_params(alpha=0.5, solver__n_rounds=7, classes=[0, 2], **bad)
    assert model.get_params() == before


def test_a_bad_parameter_changes_no_estimator_within():
    inner = Lasso(alpha=2.0)
    model = SampleAndAggregate(inner, radius=1.0)
    with pytest.raises(ValueError, match="alpho"):
        model.set_params(estimator__alpha=3.0, radius=5.0, estimator__alpho=1.0)
    assert inner.alpha == 2.0 and model.radius == 1.0
    model.set_params(estimator__alpha=3.0, combine__n_blocks=9)
    assert model.estimator is inner and inner.alpha == 3.0 and model.combine.n_blocks == 9


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FrankWolfe(step_size=0.1), "FrankWolfe has no parameter 'step_size'; it belongs to AcceleratedGr"),
        (lambda: FrankWolfe(n_round=3), "FrankWolfe has no parameter 'n_round'; did you mean 'n_rounds'"),
        (lambda: ClipNorm(scale=1.0), "ClipNorm has no parameter 'scale'; it belongs to ClipCoordinate, "),
        (lambda: LogisticRegression(epsilom=1.0), "LogisticRegression has no parameter 'epsilom'; did you mean 'eps"),
    ],
)
def test_objects_refuse_what_they_do_not_have(make, says):
    with pytest.raises(TypeError) as refused:
        make()
    assert str(refused.value).startswith(says)


def test_an_unknown_field_is_told_the_nearest_one():
    with pytest.raises(BudgetError, match=r"no parameter 'n_round'; did you mean 'n_rounds'\? It has n_rounds, "):
        classifier(solver="gradient").set_params(solver__n_round=1)
    with pytest.raises(BudgetError, match=r"L2Ball has no parameter 'radios'; did you mean 'radius'"):
        classifier(constraint=L2Ball(1.0)).set_params(constraint__radios=1)


# -- every estimator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_job_s_estimator_is_the_same_after_any_copy(name):
    job = load_job(PIPELINES / f"{name}.yaml")
    model = make_estimator(job)
    deep = model.get_params()
    for copy in (clone(model), pickle.loads(pickle.dumps(model)), type(model)(**model.get_params(deep=False))):
        assert {k: repr(v) for k, v in copy.get_params().items()} == {k: repr(v) for k, v in deep.items()}
    # every parameter and every field can be set to what it is
    settable = {k: v for k, v in deep.items() if k not in ("ledger", "cluster")}
    assert {k: repr(v) for k, v in clone(model).set_params(**settable).get_params().items()} == {
        k: repr(v) for k, v in deep.items()
    }
    size = inputs.size(job)
    plan = model.plan(size.n_rows, size.n_features)
    for copy in (clone(model), pickle.loads(pickle.dumps(model))):
        assert copy.plan(size.n_rows, size.n_features) == plan
    for owner in type(model).offers:
        with pytest.raises(BudgetError, match="nope"):
            clone(model).set_params(**{f"{owner}__nope": 1})
        assert f"{owner}=" in repr(clone(model).set_params(**{owner: next(iter(model.offered(owner).values()))()}))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_refuses_what_it_does_not_read_beside_rows_and_labels(name):
    """Weights with their reason, other names as Python does; first of all, whatever else is wrong or missing."""
    model = estimator_class(name)()
    rows, labels = np.ones((4, 2)), np.array([0, 1, 0, 1])
    with pytest.raises(DataError, match="takes no sample_weight: the weight of a row is data about that row") as caught:
        model.fit(rows, labels, sample_weight=np.full(4, 31337.0))
    assert "31337" not in str(caught.value) and ("class_weight" in str(caught.value)) == hasattr(model, "class_weight")
    with pytest.raises(TypeError, match=rf"{type(model).__name__}.fit takes X, y.*, and no 'verbose'$"):
        model.fit(rows, labels, verbose=True)
    with pytest.raises(TypeError, match=rf"no 'epsilon': write {type(model).__name__}\(epsilon=...\)"):
        model.fit(rows, labels, sample_weight=None, epsilon=1.0)


def test_weights_that_tools_of_scikit_learn_hand_on_are_refused_before_the_charge():
    ledger = Ledger(":memory:")
    X = np.random.default_rng(0).normal(size=(60, 2))
    y, w = (X[:, 0] > 0).astype(int), np.ones(60)
    model = classifier(row_norm=1.0, ledger=ledger)
    with pytest.raises(DataError, match=r"no sample_weight.*class_weight=\{...\}"):
        make_pipeline(Normalizer(), model).fit(X, y, logisticregression__sample_weight=w)
    with pytest.raises(ValueError, match="takes no sample_weight"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=2).fit(X, y, sample_weight=w)
    assert not ledger.accounts()
    fitted = make_pipeline(Normalizer(), model).fit(X, y, logisticregression__sample_weight=None)
    assert len(fitted[-1].coef_)


def test_a_public_frame_of_a_similar_name_is_asked_for():
    with pytest.raises(TypeError, match=r"takes X, y and public_X, and no 'X_public'; did you mean 'public_X'\?"):
        local.LogisticRegression(classes=[0, 1]).fit(np.ones((4, 2)), [0, 1, 0, 1], X_public=np.ones((4, 2)))
