"""Bad input gets one clear error that says what to do, and nothing is charged."""

from __future__ import annotations

import re
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger, LinearRegression, LogisticRegression, Minimizer
from dpdist.central import SVRG, AcceleratedGradient, ClipNorm, GradientDescent, Sample, Truncate
from dpdist.constraints import L1Ball
from dpdist.errors import (
    BudgetError,
    BudgetExceeded,
    ClusterError,
    DataError,
    DpdistError,
    LedgerError,
    MissingBound,
)
from dpdist.losses import Huber
from dpdist.privacy.mechanisms.additive import SymmetricGaussian

GOOD = {"classes": [0, 1], "epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "solver": GradientDescent(n_rounds=2)}
X = np.random.default_rng(0).normal(size=(500, 3))
Y = (X[:, 0] > 0).astype(int)


def test_a_run_id_with_other_parameters_is_refused():
    ledger, dataset = Ledger(":memory:"), Dataset.from_arrays(X=X, y=Y)
    LogisticRegression(**GOOD, ledger=ledger, run_id="a").fit(dataset)
    refused(LedgerError, "different plan", LogisticRegression(**GOOD, alpha=1.0, ledger=ledger, run_id="a"), dataset)


def refused(error, match, model, *data):
    with pytest.raises(error, match=match) as caught:
        model.fit(*data)
    assert isinstance(caught.value, DpdistError)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"row_norm": None}, MissingBound, "row_norm is missing: pass a public bound"),
        ({"row_norm": -1.0}, MissingBound, "row_norm must be a positive finite number"),
        ({"row_norm": np.inf}, MissingBound, "row_norm must be a positive finite number"),
        ({"classes": None}, MissingBound, "classes is missing"),
        ({"classes": [1]}, MissingBound, "at least two"),
        ({"epsilon": 0.0}, BudgetError, "epsilon must be a positive"),
        ({"epsilon": -1.0}, BudgetError, "epsilon must be a positive"),
        ({"epsilon": np.nan}, BudgetError, "epsilon must be a positive"),
        ({"delta": 1.0}, BudgetError, "delta must lie in"),
        ({"delta": None}, BudgetError, "needs delta > 0"),
        ({"solver": "newtone"}, BudgetError, "'auto', 'gradient', 'accelerated'"),
        ({"rows": "some"}, BudgetError, "'all', 'sample'"),
        ({"gradient": "huber"}, BudgetError, "'norm'"),
        ({"gradient": "truncate"}, MissingBound, "second_moment"),
        ({"neighbours": "replace"}, BudgetError, "'replace-one'"),
        ({"neighbours": "add-or-remove-one"}, MissingBound, "n_public"),
        ({"epsilon": "1"}, BudgetError, "epsilon must be a number"),
        ({"row_norm": "1"}, MissingBound, "row_norm"),
        ({"row_norm": 1e100}, MissingBound, "1e60"),
        ({"alpha": np.nan}, BudgetError, "alpha"),
        ({"alpha": -1.0}, BudgetError, "alpha"),
        ({"l1_ratio": 2.0}, BudgetError, "l1_ratio"),
        ({"constraint": "ball"}, BudgetError, "'project'"),
        ({"random_state": 0.5}, BudgetError, "random_state"),
        ({"classes": "ab"}, MissingBound, "at least two"),
        ({"classes": 2}, MissingBound, "at least two"),
        ({"classes": [[0], [1]]}, MissingBound, "at least two"),
        ({"constraint": L1Ball}, BudgetError, r"'project'.*write L1Ball\(\.\.\.\)"),
        ({"fit_intercept": "no"}, BudgetError, "fit_intercept must be True or False"),
        ({"ledger": 3}, BudgetError, "ledger must be the path"),
        ({"run_id": 3}, BudgetError, "run_id must be a text"),
    ],
    ids=lambda v: repr(v) if isinstance(v, dict) else "",
)
def test_parameters(change, error, match):
    refused(error, match, LogisticRegression(**{**GOOD, **change}), X, Y)


@pytest.mark.parametrize(("loss", "fix"), [(3, "Huber"), (Huber, r"write Huber\(\)"), (ClipNorm(1.0), "Huber")])
def test_what_is_no_loss(loss, fix):
    model = LinearRegression(loss=loss, row_norm=1.0, delta=1e-6)
    refused(BudgetError, f"loss must be a name or a Loss.*{fix}", model, X, Y)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: L1Ball("1"), ValueError, "radius must be a positive finite number, got '1'"),
        (lambda: GradientDescent(combine="best"), BudgetError, "'last'"),
        (lambda: GradientDescent(n_rounds=0), BudgetError, "n_rounds"),
        (lambda: GradientDescent(n_rounds="3"), BudgetError, "n_rounds"),
        (lambda: ClipNorm(1e300), MissingBound, "clip_norm.*1e60"),
        (lambda: Truncate(-1.0), MissingBound, "scale must be a positive"),
        (lambda: Sample(0.0), BudgetError, "rate must lie in"),
        (lambda: SVRG(batch_rate=1.5), BudgetError, "batch_rate must lie in"),
        (lambda: SVRG(n_inner=0), BudgetError, "n_inner"),
    ],
)
def test_objects_refuse_what_cannot_be_when_they_are_made(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_noise_for_another_norm_is_refused_before_the_first_of_several_lines_is_charged():
    class WrongNoise(AcceleratedGradient):
        tag = "WrongNoise"

        def lines(self):
            first, second = super().lines()
            return [first, replace(second, mechanism=SymmetricGaussian())]

    ledger, dataset = Ledger(":memory:"), Dataset.from_arrays(X=X, y=Y, dataset_id="rows")
    model = LogisticRegression(**{**GOOD, "solver": WrongNoise(n_rounds=2)}, ledger=ledger)
    said = "SymmetricGaussian needs a bound of the Frobenius norm.*GradientSum bounds the l2 norm"
    refused(BudgetError, said, model, dataset)
    assert ledger.history("rows") == []
    with pytest.raises(BudgetError, match=said):
        model.plan(500, 3)


@pytest.mark.parametrize(
    ("change", "units", "match"),
    [
        ({"solver": "objective"}, {"grouped": True}, "item 'minimum'.* hides one row only. Use solver='gradient'"),
        (
            {"rows": Sample(0.1), "n_public": 500},
            {},
            "item 'gradient' is asked of a sample, in which rows of one person",
        ),
    ],
)
def test_a_plan_refuses_units_with_several_rows_that_a_fit_refuses(change, units, match):
    model = LogisticRegression(**{**GOOD, **change})
    dataset = Dataset.from_arrays(X=X, y=Y, unit="person", max_rows_per_unit=2, **units)
    refused(BudgetError, match, model, dataset)
    with pytest.raises(BudgetError, match=match):
        model.plan(500, 3, dataset.schema.units)


def test_the_squared_loss_needs_a_clip():
    model = LinearRegression(epsilon=1.0, delta=1e-6, row_norm=1.0)
    refused(MissingBound, "clip_norm is missing", model, X, X[:, 0])


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ((X, Y[:-1]), "rows"),
        ((X.astype(object), Y), "object dtype"),
        ((X, np.where(Y, "a", "b")), "classes="),
        ((X, None), "requires y"),
        ((X.astype(complex), Y), "[Cc]omplex"),
    ],
    ids=["lengths", "object X", "other kind of labels", "no labels", "complex"],
)
def test_arrays(data, match):
    with pytest.raises(ValueError, match=match):
        LogisticRegression(**GOOD).fit(*data)


def test_a_dask_array_of_unknown_length():
    unknown = da.from_array(X, chunks=(100, 3))
    unknown = unknown[unknown[:, 0] > -9]
    refused(DataError, "compute_chunk_sizes", LogisticRegression(**GOOD), unknown, da.from_array(Y))


def test_a_dataset_without_labels():
    refused(DataError, re.escape("select(X=..., y=...)"), LogisticRegression(**GOOD), Dataset.from_arrays(X=X))


def test_a_large_delta_is_warned_about():
    with pytest.warns(UserWarning, match="not below 1/n_rows"):
        LogisticRegression(**{**GOOD, "delta": 0.01}).fit(X, Y)


def test_an_exceeded_budget_is_refused_and_says_what_is_left():
    ledger = Ledger(":memory:")
    dataset = Dataset.from_arrays(X=X, y=Y)
    ledger.set_limit(dataset.id, Budget(1.5, 1e-5))
    model = LogisticRegression(**GOOD, ledger=ledger)
    model.fit(dataset)
    refused(BudgetExceeded, r"asked \(epsilon 1.*left \(epsilon 0.5", model, dataset)
    assert len(ledger.history(dataset.id)) == 1


def test_a_ledger_that_cannot_be_written(tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder should be")
    dataset = Dataset.from_arrays(X=X, y=Y)
    with pytest.raises(LedgerError, match="name a directory"):
        LogisticRegression(**GOOD, ledger=taken / "ledger.sqlite").fit(dataset)


def test_an_unreachable_scheduler_times_out(monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 0.5)
    ledger = Ledger(":memory:")
    dataset = Dataset.from_arrays(X=X, y=Y)
    model = LogisticRegression(**GOOD, ledger=ledger, cluster="tcp://127.0.0.1:9")
    refused(ClusterError, "cannot reach the Dask scheduler", model, dataset)
    assert ledger.history(dataset.id) == []


def test_minimizer_takes_any_loss_by_name_or_object():
    with pytest.raises(ValueError, match="loss='logit' is not known; did you mean 'logistic'"):
        Minimizer("logit", epsilon=1.0, delta=1e-6, row_norm=1.0).fit(X, Y)
