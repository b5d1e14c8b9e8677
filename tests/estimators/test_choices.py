"""Parameters that are objects: names and objects, what sets them, and what is refused because nobody would read it."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dpdist import Ledger, LinearRegression, LogisticRegression, Mean, Minimizer, SampleAndAggregate, local
from dpdist.central import (
    SVRG,
    AcceleratedGradient,
    AcceleratedMirror,
    Attention,
    ClipNorm,
    ClippedMean,
    FrankWolfe,
    GradientDescent,
    HardThresholding,
    Sample,
    Truncate,
    TruncatedMean,
)
from dpdist.constraints import L1Ball
from dpdist.errors import BudgetError, DpdistError
from dpdist.jobs.registry import ESTIMATORS, estimator_class
from dpdist.local.frequency.histogram import UnaryEncoding
from dpdist.local.mean.mean_methods import (
    GaussianProjected,
    HybridReports,
    OneBitReports,
    ProjectedReports,
    SampledCoordinates,
)
from dpdist.method import Method

COMMON = {"epsilon": 10.0, "delta": 1e-6, "row_norm": 2.0, "random_state": 0, "cluster": "threads"}
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
Y = (X @ [2.0, -1.0, 0.0] > 0).astype(int)


def classifier(**options):
    return LogisticRegression(**{"classes": [0, 1], **COMMON, **options})


def offered():
    """Every object that a parameter of an estimator may be."""
    return [
        pytest.param(name, parameter, kind, id=f"{name}-{parameter}-{kind.__name__}")
        for name in ESTIMATORS
        for parameter, kinds in estimator_class(name).offers.items()
        for kind in kinds.values()
    ]


# -- names and objects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "object"), [("gradient", GradientDescent()), ("svrg", SVRG())])
def test_a_name_is_the_object_with_its_defaults(name, object):
    by_name, by_object = (classifier(solver=solver).fit(X, Y) for solver in (name, object))
    assert by_name.plan_ == by_object.plan_ and np.array_equal(by_name.coef_, by_object.coef_)
    assert by_name.solver_ == by_object.solver_ == name


@pytest.mark.parametrize(("estimator", "parameter", "kind"), offered())
def test_every_object_is_made_without_arguments_and_known_by_its_name(estimator, parameter, kind):
    made = kind()
    kinds = estimator_class(estimator).offers[parameter]
    assert kinds[kind.name] is kind and kind.tag
    assert made == kind() and hash(made) == hash(kind())
    assert repr(made).startswith(f"{kind.__name__}(")
    assert pickle.loads(pickle.dumps(made)) == made
    # what is decided later is no parameter: it cannot be set, and is not shown
    assert not {"public", "statement", "reason"} & set(kind.parameters())
    assert all(f"{name}=" in repr(made) for name in kind.parameters()) and "public=" not in repr(made)
    if issubclass(kind, Method):
        assert made.public is None and made.statement is None


def test_a_fit_changes_no_parameter():
    solver = GradientDescent()
    model = classifier(solver=solver).fit(X, Y)
    assert model.solver is solver and solver == GradientDescent() and model.n_iter_ == 10


# -- getting and setting ----------------------------------------------------------------------------------------------


def test_get_params_lists_the_fields_of_objects():
    model = classifier(solver=SVRG(n_inner=4), gradient=ClipNorm(0.5), rows="all")
    deep, flat = model.get_params(), model.get_params(deep=False)
    assert {name: deep[name] for name in deep if "__" in name} == {
        "solver__n_rounds": None, "solver__start": None, "solver__n_inner": 4, "solver__batch_rate": 0.02,
        "solver__step_size": None, "gradient__clip_norm": 0.5,
    }  # fmt: skip
    assert not [name for name in flat if "__" in name] and flat["solver"] == SVRG(n_inner=4)
    # fields of losses and sets as well
    assert Minimizer(constraint=L1Ball(3.0)).get_params()["constraint__radius"] == 3.0


def test_set_params_puts_another_object_in_its_place():
    solver = GradientDescent(n_rounds=4)
    model = classifier(solver=solver)
    assert model.set_params(solver__n_rounds=7) is model
    assert model.solver == GradientDescent(n_rounds=7) and solver.n_rounds == 4
    assert model.plan(1000, 3)["gradient"].count == 7
    assert model.set_params(solver__combine="last").solver == GradientDescent(n_rounds=7, combine="last")


def test_a_name_becomes_an_object_where_a_field_is_set():
    assert classifier(solver="svrg").set_params(solver__n_inner=3).solver == SVRG(n_inner=3)
    assert classifier(rows="sample").set_params(rows__rate=0.1).rows == Sample(0.1)
    assert Mean().set_params(method__scale=2.0).method == TruncatedMean(2.0)
    assert SampleAndAggregate().set_params(combine__n_blocks=9).combine == ClippedMean(9)


@pytest.mark.parametrize(
    "params",
    [
        {"solver": "frank-wolfe", "solver__n_rounds": 40},
        {"solver__n_rounds": 40, "solver": "frank-wolfe"},  # in any order: plain ones come first
        {"solver": FrankWolfe(), "solver__n_rounds": 40},
    ],
)
def test_kind_and_field_are_set_together(params):
    model = Minimizer("squared", solver=SVRG(n_inner=9)).set_params(**params)
    assert model.solver == FrankWolfe(n_rounds=40)


def test_other_nested_parameters_are_set_as_ever():
    model = Minimizer(constraint=L1Ball(3.0)).set_params(constraint__radius=2.0, epsilon=0.5)
    assert model.constraint == L1Ball(2.0) and model.epsilon == 0.5


def test_a_value_that_cannot_be_is_refused_when_it_is_set():
    with pytest.raises(BudgetError, match="n_rounds must be a whole number"):
        classifier(solver="gradient").set_params(solver__n_rounds=0)
    with pytest.raises(BudgetError, match="batch_rate must lie in"):
        classifier(solver=SVRG()).set_params(solver__batch_rate=2.0)


def test_auto_reads_no_field_and_says_who_would():
    model = classifier()
    with pytest.raises(BudgetError) as refused:
        model.set_params(solver__n_inner=3)
    assert str(refused.value) == (
        "solver__n_inner=3 has nobody to read it while solver='auto': it belongs to Katyusha, SVRG, SVRGPlusPlus. Set "
        "solver first"
    )
    with pytest.raises(BudgetError, match=r"none of .* has it"):
        model.set_params(gradient__n_rounds=3)
    assert model.solver == "auto" and model.gradient == "auto"


def test_an_unknown_field_names_its_owner_and_what_there_is():
    with pytest.raises(BudgetError) as refused:
        classifier(solver="gradient").set_params(solver__n_inner=3)
    assert str(refused.value) == (
        "solver__n_inner: GradientDescent has no parameter 'n_inner'; it belongs to Katyusha, SVRG, SVRGPlusPlus. It "
        "has n_rounds, start, step_size, combine, certify, curvature_target"
    )
    with pytest.raises(BudgetError, match=r"AcceleratedMirror has no parameter 'combine'; it belongs to Accelerat"):
        classifier(solver=AcceleratedMirror()).set_params(solver__combine="last")
    for decided in ("public", "statement", "reason", "tail"):
        with pytest.raises(BudgetError, match=rf"has no parameter '{decided}'\. It has n_rounds"):
            classifier(solver="gradient").set_params(**{f"solver__{decided}": None})


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda: classifier(solver="gradent"), "solver='gradent' is not known; did you mean 'gradient'"),
        (lambda: classifier(gradient="truncat"), "gradient='truncat' is not known; did you mean 'truncate'"),
        (lambda: classifier(rows="samples"), "rows='samples' is not known; did you mean 'sample'"),
        (lambda: classifier(rows="auto"), "rows='auto' is not known; choose one of 'all', 'sample', 'split'"),
        (lambda: SampleAndAggregate(combine="atention", radius=1.0, delta=1e-6), "did you mean 'attention'"),
        (lambda: Mean("trimm", second_moment=1.0, delta=1e-6), "method='trimm' is not known; did you mean 'trim'"),
        (lambda: classifier(solver=ClipNorm()), r"got ClipNorm\(clip_norm=None\), which is for gradient="),
        (lambda: classifier(gradient=GradientDescent()), "gradient takes a name or an object: .*which is for solver="),
        (lambda: classifier(rows=0.1), "rows takes a name or an object: .*got 0.1"),
        (lambda: classifier(solver=GradientDescent), r"solver takes .*got <class .*; write GradientDescent\(\)"),
        (lambda: classifier(solver=None), "solver takes a name or an object: .*got None"),
        (lambda: SampleAndAggregate(combine=7, radius=1.0, delta=1e-6), "combine takes a name or an object: .*got 7"),
        (lambda: local.Histogram(categories=3, method="oeu"), "method='oeu' is not known; did you mean 'oue'"),
        (lambda: local.SparseRegression(method=SVRG()), "method takes a name or an object: .*got SVRG"),
    ],
)
def test_a_wrong_kind_or_name_is_refused_before_a_row_is_read(model, match):
    model = model()
    with pytest.raises(BudgetError, match=match):
        model.plan(1000, 3)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (LogisticRegression, {"clip_norm": 0.5}, "it belongs to gradient; write gradient=ClipNorm(clip_norm=0.5)"),
        (LinearRegression, {"scale": 2.0}, "it belongs to gradient; write gradient=ClipCoordinate(scale=2.0)"),
        (Minimizer, {"n_rounds": 4}, "it belongs to solver; write solver=AcceleratedGradient(n_rounds=4)"),
        (Minimizer, {"n_inner": 4}, "it belongs to solver; write solver=Katyusha(n_inner=4) (or of SVRG,"),
        (Minimizer, {"rate": 0.1}, "it belongs to rows; write rows=Sample(rate=0.1)"),
        (Mean, {"scale": 2.0}, "it belongs to method; write method="),
        (SampleAndAggregate, {"n_blocks": 9}, "it belongs to combine; write combine=Attention(n_blocks=9)"),
        (local.SparseRegression, {"n_rounds": 3}, "it belongs to method; write method="),
    ],
)
def test_the_constructor_says_where_a_parameter_belongs(kind, given, says):
    with pytest.raises(TypeError, match=re.escape(f"{kind.__name__} has no parameter {next(iter(given))!r}: {says}")):
        kind(**given)


def test_a_parameter_of_nobody_is_a_plain_mistake():
    with pytest.raises(TypeError, match="epsilom"):
        Minimizer(epsilom=1.0)
    with pytest.raises(BudgetError, match="Minimizer has no parameter 'epsilom'; did you mean 'epsilon'"):
        Minimizer().set_params(epsilom=1.0)


def test_set_params_says_where_a_parameter_belongs():
    model = LogisticRegression(solver="gradient")
    with pytest.raises(BudgetError, match=r"no parameter 'n_rounds': it belongs to solver; write solver=\w+\(n_"):
        model.set_params(n_rounds=3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"solver": "objective", "rows": "sample", "alpha": 0.01}, "rows='sample' .*solver='objective'.*'all'"),
        (
            {"solver": "frank-wolfe", "gradient": "scale-rows", "constraint": L1Ball(1.0)},
            "'frank-wolfe' can use.*'residual'",
        ),
        ({"solver": "svrg", "gradient": Truncate(1.0)}, "gradient='truncate' .*solver='svrg'.*'norm'"),
        ({"solver": "gradient", "gradient": "shrink", "feature_bound": 1.0}, "gradient='shrink' .*solver='gradient'"),
        ({"solver": HardThresholding(n_nonzero=2), "rows": Sample(0.1)}, "rows='sample' .*solver='iht'.*'all'"),
    ],
)
def test_combinations_that_make_no_sense_name_both_and_what_works(options, match):
    ledger = Ledger(":memory:")
    with pytest.raises(DpdistError, match=match):
        classifier(**options, ledger=ledger).fit(X, Y)


# -- scikit-learn's tools ---------------------------------------------------------------------------------------------


def test_clones_have_equal_objects():
    model = classifier(solver=SVRG(n_inner=4), gradient=ClipNorm(0.5), rows="all")
    copy = clone(model)
    assert copy.get_params() == model.get_params() and copy is not model
    copy.set_params(solver__n_inner=9)
    assert model.solver == SVRG(n_inner=4) and copy.solver == SVRG(n_inner=9)


def test_fitted_models_are_pickled_with_their_objects():
    model = classifier(solver=GradientDescent(3), gradient=ClipNorm(0.5)).fit(X, Y)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.solver == model.solver and copy.gradient == model.gradient and copy.plan_ == model.plan_
    assert np.array_equal(copy.coef_, model.coef_)


def test_a_pipeline_reaches_fields_through_its_steps():
    pipeline = make_pipeline(Normalizer(), classifier(row_norm=1.0, solver="gradient"))
    pipeline.set_params(logisticregression__solver__n_rounds=6, logisticregression__epsilon=5.0)
    assert pipeline[-1].solver == GradientDescent(6) and pipeline[-1].epsilon == 5.0
    assert pipeline.get_params()["logisticregression__solver__n_rounds"] == 6
    assert pipeline.fit(X, Y)[-1].n_iter_ == 6


def test_a_grid_searches_kinds_and_fields_together():
    grid = {"solver": ["gradient", AcceleratedGradient(n_rounds=1)], "solver__n_rounds": [2, 5]}
    search = GridSearchCV(classifier(ledger=Ledger(":memory:")), grid, cv=2, error_score="raise").fit(X, Y)
    tried = [(p["solver"] if isinstance(p["solver"], str) else p["solver"].name, p["solver__n_rounds"])
             for p in search.cv_results_["params"]]  # fmt: skip
    assert sorted(tried) == [("accelerated", 2), ("accelerated", 5), ("gradient", 2), ("gradient", 5)]
    best = search.best_estimator_
    assert best.n_iter_ == best.solver.n_rounds == search.best_params_["solver__n_rounds"]
    assert (best.solver_ == "accelerated") == isinstance(best.solver, AcceleratedGradient)


def test_reprs_show_objects_as_they_are_written():
    model = LogisticRegression(classes=[0, 1], solver=FrankWolfe(n_rounds=40), rows=Sample(0.1))
    shown = repr(model)
    assert "solver=FrankWolfe(n_rounds=40, start=None, combine='auto')" in re.sub(r"\s+", " ", shown)
    assert "rows=Sample(rate=0.1)" in shown and "public" not in shown
    assert eval(shown, {**globals()}).get_params() == model.get_params()
    assert repr(SampleAndAggregate(combine=Attention(9))) == "SampleAndAggregate(combine=Attention(n_blocks=9))"


def test_pages_of_models_show_their_objects():
    page = classifier(solver=GradientDescent(3)).fit(X, Y)._repr_html_()
    assert "GradientDescent" in page


@pytest.mark.parametrize(
    "solver, name",
    [
        (FrankWolfe(split=True), "split"),
        (FrankWolfe(public=3), "public"),
        (GradientDescent(reason="mine"), "reason"),
    ],
)
def test_what_a_fit_decides_is_refused_where_a_user_sets_it(solver, name):
    with pytest.raises(BudgetError, match=rf"{type(solver).__name__}\({name}=\.\.\.\): a fit decides {name}"):
        LinearRegression(solver=solver, constraint=L1Ball(1.0), feature_bound=1.0, residual_bound=1.0, **COMMON).plan(
            400, 3
        )


def test_a_method_of_reports_does_not_take_the_fidelity_of_its_fit():
    model = local.Histogram(4, method=UnaryEncoding(fidelity="sum"))
    with pytest.raises(BudgetError, match=r"a fit decides fidelity.*UnaryEncoding has p, q"):
        model.plan(400, 1)


@pytest.mark.parametrize("rate", ["0.1", None, True, np.nan, [0.1]])
def test_a_rate_that_is_no_number_is_refused_in_words(rate):
    with pytest.raises(BudgetError, match=r"rate must lie in \(0, 1\]"):
        Sample(rate)
    with pytest.raises(BudgetError, match=r"batch_rate must lie in \(0, 1\]"):
        SVRG(batch_rate=rate)


@pytest.mark.parametrize("chance", ["0.5", [0.5], 2.0, 0, np.nan])
@pytest.mark.parametrize("name", ["p", "q"])
def test_probabilities_of_bits_that_cannot_be_are_refused_where_they_are_set(name, chance):
    with pytest.raises(BudgetError, match=f"{name} must lie between 0 and 1"):
        UnaryEncoding(**{name: chance})


@pytest.mark.parametrize("kind", [HybridReports, OneBitReports])
def test_coordinates_cannot_be_sampled_from_one_number(kind):
    model = local.Mean("interval", method=kind(n_sampled=2), low=0.0, high=1.0)
    with pytest.raises(BudgetError, match="n_sampled=2 is more than there are coordinates"):
        model.plan(400, 1)
    model.set_params(method__n_sampled=1).plan(400, 1)


@pytest.mark.parametrize(
    "kind, name, value",
    [
        (HybridReports, "scale", -1.0),
        (OneBitReports, "n_sampled", 0),
        (SampledCoordinates, "n_sampled", "all"),
        (ProjectedReports, "n_projections", 2.5),
        (GaussianProjected, "seed", -1),
    ],
)
def test_a_law_of_reports_refuses_what_cannot_be_where_it_is_set(kind, name, value):
    with pytest.raises(DpdistError, match=f"^{name} must be .* got {re.escape(repr(value))}"):
        kind(**{name: value})


def test_there_are_no_more_projections_than_coordinates():
    method = ProjectedReports(n_projections=7)
    model = local.Mean("l1", method=method, radius=1.0, l1_radius=1.0)
    with pytest.raises(BudgetError, match="n_projections must be a number from 1 to 6, got 7"):
        model.plan(400, 6)
    model.plan(400, 7)


@pytest.mark.parametrize(
    "params, says",
    [
        ({"constraint__radius": 1.0}, r"constraint__radius=1\.0 has nobody to read it while constraint=None"),
        ({"loss__threshold": 1.0}, r"loss__threshold=1\.0 has nobody to read it while loss='logistic'"),
    ],
)
def test_a_field_of_no_object_is_refused_in_words(params, says):
    with pytest.raises(BudgetError, match=says):
        Minimizer().set_params(**params)


@pytest.mark.parametrize("solver, says", [(3, "got 3"), (FrankWolfe, r"write FrankWolfe\(\)")])
def test_a_field_of_what_is_no_solver_names_what_is(solver, says):
    with pytest.raises(BudgetError, match=rf"solver takes a name or an object.*{says}"):
        Minimizer(solver=solver).set_params(solver__n_rounds=1)


def test_a_class_in_place_of_a_set_is_refused_before_a_row_is_read():
    with pytest.raises(BudgetError, match="constraint must have a method 'project', for example"):
        Minimizer(constraint=L1Ball, **COMMON).plan(400, 3)
