"""Generated problems: the same parameters are the same dataset, and the errors are those of the known truth."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import zarr

from dpdist import LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import ClipNorm
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems import linear_problems as synthetic
from dpdist.problems.catalog import FAMILIES, PROBLEMS

CLASSIFIER = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "random_state": 0}
SMALL = {"n": 3000, "d": 4}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_same_parameters_are_the_same_dataset(name):
    problem = PROBLEMS[name]
    single = "exponent" in problem.parameters
    fixed = {"glm-covertype": 44, "glm-susy": 18}
    data = {"n": 3000, "d": 1 if single else fixed.get(name, 24)}
    one, two = problem.generate(data), problem.generate({**data, "random_state": 0})
    assert one.dataset.id == two.dataset.id == problem.dataset_id(data)
    for array in one.dataset.arrays:
        np.testing.assert_array_equal(one.dataset.read(0, 3000)[array], two.dataset.read(0, 3000)[array])
    ids = {
        problem.dataset_id({**data, **other})
        for other in ({}, {"n": 3001}, {"exponent": 2.0} if single else {"d": 25}, {"random_state": 1})
    }
    assert len(ids) == 4


def test_every_problem_has_a_name_of_its_own_and_a_generator_that_reads_its_parameters():
    assert len(PROBLEMS) == sum(len(family.PROBLEMS) for family in FAMILIES)
    everywhere = {"n", "d", "random_state", "dtype", "store", "labels", "public_rows"}
    for problem in PROBLEMS.values():
        read = inspect.signature(problem.generator).parameters
        assert set(problem.parameters) - everywhere <= set(read), problem.name
        assert problem.metrics and set(problem.shared) <= set(problem.parameters)


def test_whole_numbers_and_their_floats_are_one_dataset():
    logit = PROBLEMS["logit"]
    assert logit.dataset_id({**SMALL, "signal": 6}) == logit.dataset_id(SMALL)


class Knows:
    """A model that predicts what it is told."""

    def __init__(self, *answers, classes=None, log_probabilities=None, values=None, coef=None, abilities=None):
        self.answers, self.classes_, self.predict_log_proba, self.predict = answers, classes, log_probabilities, values
        self.coef_, self.abilities_ = coef, abilities


def probable(classes, log_probabilities):
    return Knows(Answer.PROBABILITIES, classes=np.array(classes), log_probabilities=log_probabilities)


def log_sigmoid(u):
    return -np.logaddexp(0, -u)


def test_the_truth_has_no_error_and_errors_are_those_of_a_plain_average():
    generated = PROBLEMS["logit"].generate(SMALL)
    w = generated.truth

    def log_probabilities(scale):
        def of(X):
            margin = scale * (X @ w)  # sqrt(d)/2 = 1 for d = 4
            return np.column_stack([log_sigmoid(-margin), log_sigmoid(margin)])

        return of

    exact = generated.metrics(probable([0, 1], log_probabilities(1.0)))
    swapped = generated.metrics(probable([1, 0], lambda X: log_probabilities(1.0)(X)[:, ::-1]))
    assert exact["error"] == pytest.approx(0, abs=1e-12) and swapped["error"] == pytest.approx(0, abs=1e-12)
    assert 0 < exact["nonprivate_error"] < 0.01 < 0.2 < exact["trivial_error"]
    # the excess log-loss of half the truth on a million labels: its standard error is below 0.001 (deterministic here)
    data, _ = synthetic.logit(1_000_000, 4)
    rows = data.read(0, 1_000_000)
    losses = [
        -np.take_along_axis(log_probabilities(scale)(rows["X"]), rows["y"][:, None].astype(int), 1).mean()
        for scale in (0.5, 1.0)
    ]
    half = generated.metrics(probable([0, 1], log_probabilities(0.5)))["error"]
    assert half == pytest.approx(losses[0] - losses[1], abs=0.003)


def test_wrong_classes_are_counted_where_there_are_no_probabilities():
    generated = PROBLEMS["multiclass"].generate({**SMALL, "n_classes": 4})
    best = Knows(Answer.CLASSES, values=lambda X: np.argmax(X @ generated.truth.T, axis=1))
    worst = Knows(Answer.CLASSES, values=lambda X: np.argmin(X @ generated.truth.T, axis=1))
    assert generated.metrics(best)["error"] == 0
    assert generated.metrics(worst)["error"] > generated.metrics(best)["trivial_error"] > 0.1
    assert "wrong class" in generated.metrics(best)["what"]


def test_regression_counts_half_the_squared_distance():
    generated = PROBLEMS["linear"].generate({"n": 3000, "d": 4, "noise": "t3"})
    off = Knows(Answer.NUMBERS, values=lambda X: X @ generated.truth + 0.2)
    metrics = generated.metrics(off)
    assert metrics["error"] == pytest.approx(0.02)
    assert metrics["trivial_error"] == pytest.approx(0.5 / 4, rel=0.05), "E <x, w>^2 / 2 = |w|^2 / (2 d)"
    assert metrics["nonprivate_error"] < 1e-4


@pytest.mark.parametrize(
    ("name", "data"), [("linear", {}), ("heavy", {}), ("sparse-design", {"link": "wave", "design": "gaussian"})]
)
def test_the_distance_is_that_of_the_coefficients(name, data):
    generated = PROBLEMS[name].generate({"n": 20_000, "d": 4, **data})
    off = Knows(Answer.NUMBERS, Answer.COEFFICIENTS, coef=generated.truth + 0.3)
    metric = generated.metric(off, distance=True)
    assert metric.error(off) == pytest.approx(0.6) and metric.trivial() == pytest.approx(1)
    assert 0 < generated.nonprivate(metric) < (0.1 if name == "heavy" else 0.02)


def test_what_has_no_distance_says_so():
    generated = PROBLEMS["logit"].generate(SMALL)
    with pytest.raises(DataError, match="'logit' judges nothing by distance, and Knows gives predicted classes"):
        generated.metric(Knows(Answer.CLASSES), distance=True)


@pytest.mark.parametrize(
    ("name", "data", "model"),
    [
        ("logit", {}, LogisticRegression(**CLASSIFIER)),
        ("logit", {}, LinearSVC(**CLASSIFIER)),
        ("logit", {"labels": [-1, 1]}, Minimizer(row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0)),
        ("logit", {"labels": [5, 2]}, LogisticRegression(**{**CLASSIFIER, "classes": [2, 5]})),
        ("multiclass", {}, LogisticRegression(**{**CLASSIFIER, "classes": [0, 1, 2]})),
        ("linear", {}, LinearRegression(row_norm=1.0, gradient=ClipNorm(1.0), epsilon=1.0, delta=1e-6, random_state=0)),
        (
            "linear",
            {},
            Minimizer("squared", row_norm=1.0, gradient=ClipNorm(1.0), epsilon=1.0, delta=1e-6, random_state=0),
        ),
    ],
)
def test_fitted_models_lie_between_the_truth_and_nothing(name, data, model):
    problem, data = PROBLEMS[name], {"n": 30_000, "d": 4, **data}
    problem.check(model, data)
    generated = problem.generate(data)
    metrics = generated.metrics(model.fit(generated.dataset))
    assert 0 <= metrics["nonprivate_error"] < metrics["trivial_error"] / 20
    assert 0 <= metrics["error"] < metrics["trivial_error"] / 4
    assert set(metrics) == {"error", "nonprivate_error", "trivial_error", "what"}


@pytest.mark.parametrize(
    ("name", "data", "model", "message"),
    [
        ("logit", {}, LinearRegression(), "predicted classes, and LinearRegression gives predicted numbers"),
        ("linear", {}, LinearSVC(), "coefficients of a regression, and LinearSVC gives predicted classes"),
        ("linear", {}, Minimizer(), "Minimizer gives log-odds of the labels"),
        ("logit", {}, LogisticRegression(classes=[1, 2]), r"labels \[0, 1\]"),
        ("logit", {}, Minimizer(), r"data.labels: .* has \[0, 1\]: set \[-1, 1\]"),
        ("multiclass", {}, Minimizer(), r"data.generate: .* has \[0, 1, 2\]$"),
        ("multiclass", {}, LogisticRegression(classes=[0, 1]), r"labels \[0, 1, 2\]"),
    ],
)
def test_estimators_that_the_labels_are_not_for_are_refused(name, data, model, message):
    with pytest.raises(DataError, match=message):
        PROBLEMS[name].check(model, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"n": 0}, "data.n must be an integer >= 1"),
        ({"d": 2.5}, "data.d must be an integer"),
        ({"n": True}, "data.n must be an integer"),
        ({"random_state": -1}, "data.random_state"),
        ({"signal": float("nan")}, "data.signal must be a finite number"),
        ({"signal": "big"}, "data.signal"),
        ({"labels": [1, 1]}, "data.labels must be two different integers"),
        ({"dtype": 8}, "data.dtype must be a string"),
        ({"rows": 10}, "data.rows is not a parameter of the problem 'logit'"),
        ({"labels": [-1, 1], "store": "somewhere"}, "data.store keeps the labels"),
    ],
)
def test_bad_values_are_named(data, message):
    with pytest.raises(DataError, match=message):
        PROBLEMS["logit"].generate({**SMALL, **data})


def test_a_store_is_written_once_and_found_again(tmp_path):
    logit, data = PROBLEMS["logit"], {**SMALL, "store": str(tmp_path / "rows.zarr")}
    first = logit.generate(data)
    again = logit.generate(data)
    assert first.dataset.id == again.dataset.id and not again.dataset.in_memory
    in_memory = logit.generate(SMALL)
    assert np.array_equal(again.dataset.read(0, 3000)["X"], in_memory.dataset.read(0, 3000)["X"])
    assert np.array_equal(again.truth, in_memory.truth)
    assert logit.dataset_id(data) is None
    with pytest.raises(DataError, match="not what these parameters generate"):
        logit.generate({**data, "n": 4000})


def test_a_store_that_was_not_finished_is_written_anew(tmp_path):
    logit, data = PROBLEMS["logit"], {**SMALL, "store": str(tmp_path / "rows.zarr")}
    logit.generate(data)
    zarr.open_group(data["store"], mode="r+").attrs["dpdist"] = {"version": 1, "unfinished": True}
    assert logit.generate(data).dataset.n_rows == 3000


def test_a_store_of_somebody_else_is_left_alone(tmp_path):
    theirs = tmp_path / "rows.zarr"
    zarr.open_group(theirs, mode="w").create_array("X", data=np.ones((3, 2)))
    with pytest.raises(DataError, match="exists and is not what"):
        PROBLEMS["logit"].generate({**SMALL, "store": str(theirs)})
    assert zarr.open_group(theirs, mode="r")["X"].shape == (3, 2)


def test_a_store_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"data\.store: cannot"):
        PROBLEMS["logit"].generate({**SMALL, "store": str(tmp_path / "file" / "rows.zarr")})


def test_one_class_only_is_no_reason_to_fail():
    generated = PROBLEMS["logit"].generate({"n": 1, "d": 2})
    model = probable([0, 1], lambda X: np.log(np.full((len(X), 2), 0.5)))
    metrics = generated.metrics(model)
    assert metrics["nonprivate_error"] == metrics["trivial_error"] == pytest.approx(metrics["error"])


@pytest.mark.parametrize("law", ["experts", "adversaries", "few-experts^0.3"])
def test_the_truth_of_abilities_is_how_often_users_are_right(law):
    """300 users, of whom each has 3000 answers: within 5 standard errors."""
    generated = PROBLEMS["crowd"].generate({"n": 300, "d": 3000, "law": law})
    shares = (generated.dataset.read(0, 300)["X"] == generated.truth).mean(axis=1)
    metric = generated.metric(Knows(Answer.LABELS, Answer.ABILITIES, abilities=shares), distance=True)
    assert metric.error(Knows(Answer.ABILITIES, abilities=shares)) < 5 * 0.5 / np.sqrt(3000)
    assert metric.error(Knows(Answer.ABILITIES, abilities=shares[::-1])) > 0.3
    assert 0.35 < metric.trivial() <= 0.5 and generated.nonprivate(metric) < 0.06


@pytest.mark.parametrize("law", ["few", "few-experts^1", "few-experts^-0.1", "few-experts^a"])
def test_laws_of_abilities_that_are_none_are_refused(law):
    with pytest.raises(DataError, match=r"law must be one of|the exponent of a few experts"):
        PROBLEMS["crowd"].generate({"n": 3, "d": 3, "law": law})
