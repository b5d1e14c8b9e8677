"""Nothing that anybody can see depends on un-noised data.

Fits on neighbouring datasets, harmless and vicious ones, are compared in everything but the released values: how
often was asked, what was warned, raised, logged and named, what the ledger and the files show.
"""

from __future__ import annotations

import logging
import sqlite3
import warnings

import numpy as np
import pytest
import zarr

from dpdist import Dataset, Ledger, LinearRegression, LogisticRegression, Minimizer
from dpdist.central import SVRG, AcceleratedMirror, ClipNorm, GradientDescent, Sample
from dpdist.constraints import GemanMcClure, L1Ball
from dpdist.data.dataset_schema import ATTRIBUTE
from dpdist.engine import workers

N, D = 3000, 4

RUN = workers.LocalThreads._run


def base() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) / 2
    return X, (X[:, 0] > 0).astype(int)


def nan_row(X, y):
    X[17] = np.nan


def huge_row(X, y):
    X[17] = 1e308


def infinite_row(X, y):
    X[0, 1] = -np.inf


def all_nan(X, y):
    X[:] = np.nan


def one_class(X, y):
    y[:] = 1


def undeclared_label(X, y):
    y[5] = 99


def separable(X, y):
    X[:, 0] = np.where(y, 1e3, -1e3)


def all_zero(X, y):
    X[:] = 0


def subnormal(X, y):
    X[:] = 5e-324


CHANGES = [nan_row, huge_row, infinite_row, all_nan, one_class, undeclared_label, separable, all_zero, subnormal]
MODELS = {
    "logistic": lambda **k: LogisticRegression(classes=[0, 1], **k),
    "accelerated": lambda **k: LogisticRegression(classes=[0, 1], solver="accelerated", **k),
    "sampled": lambda **k: LogisticRegression(
        classes=[0, 1], rows=Sample(0.1), solver=GradientDescent(n_rounds=10), **k
    ),
    # the noise of a difference is a function of released values; with steps that long its bound is always the largest
    "svrg": lambda **k: LogisticRegression(
        classes=[0, 1], solver=SVRG(n_rounds=2, n_inner=4, batch_rate=0.1, step_size=1e9), **k
    ),
    "mirror": lambda **k: LogisticRegression(
        classes=[0, 1], solver=AcceleratedMirror(n_rounds=5), constraint=L1Ball(5.0), **k
    ),
    "random": lambda **k: LogisticRegression(
        classes=[0, 1], solver=GradientDescent(6, combine="random", start=[0.1, 0.0, 0.0, 0.0, 0.2]), **k
    ),
    "min-noisy": lambda **k: LogisticRegression(classes=[0, 1], solver=GradientDescent(6, combine="min-noisy"), **k),
    "smooth penalty": lambda **k: Minimizer("squared", GemanMcClure(0.1), gradient=ClipNorm(1.0), **k),
    "three classes": lambda **k: LogisticRegression(classes=[0, 1, 2], solver=GradientDescent(n_rounds=3), **k),
    "squared": lambda **k: LinearRegression(gradient=ClipNorm(1.0), **k),
}


def visible(make, X, y, folder, monkeypatch, caplog) -> dict:
    """Fit, and collect whatever could be seen from outside."""
    seen: dict = {}
    names: list[str] = []

    def spy(self, tasks):
        names.extend(task.func.__name__ for task in tasks)
        return RUN(self, tasks)

    monkeypatch.setattr(workers.LocalThreads, "_run", spy)
    caplog.clear()
    folder.mkdir()
    Dataset.from_arrays(folder / "rows.zarr", X=X, y=y, dataset_id="same", partition_rows=1024)
    store = zarr.open_group(folder / "rows.zarr", mode="r+")
    store.update_attributes({ATTRIBUTE: {**store.attrs[ATTRIBUTE], "edition": "same"}})  # else it is random
    dataset = Dataset.open(store)
    ledger = Ledger(folder / "ledger.sqlite")
    model = make(epsilon=1.0, delta=1e-6, row_norm=1.0, ledger=ledger, run_id="run", cluster="threads")
    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.DEBUG):
        warnings.simplefilter("always")
        try:
            model.fit(dataset)
        except Exception as error:
            seen["exception"] = repr(error)
    seen["warnings"] = [(w.category, str(w.message)) for w in caught]
    seen["log"] = [r.getMessage() for r in caplog.records if r.name.startswith("dpdist")]
    seen["tasks"] = names
    seen["fitted"] = sorted(k for k in vars(model) if k.endswith("_"))
    seen["iterations"] = getattr(model, "n_iter_", None)
    seen["releases"] = [(r.index, r.name, r.release_id, r.noise_std, r.sensitivity) for r in model.releases_]
    seen["history"] = [h.shape for h in model.history_]
    seen["guarantee"] = model.guarantee_
    (record,) = ledger.history("same")
    seen["ledger"] = [(r.release_id, r.index, r.name, r.mechanism, r.noise_std, r.cost) for r in record.releases]
    ledger.close()
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        seen["journal"] = db.execute(
            "SELECT release_id, run_id, epoch, dtype, shape, length(bytes) FROM dpdist_values ORDER BY rowid"
        ).fetchall()
    seen["files"] = sorted(p.name for p in folder.iterdir() if p.name != "rows.zarr")
    seen["sizes"] = [p.stat().st_size for p in sorted(folder.glob("ledger.sqlite*"))]
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_neighbouring_and_vicious_data_look_alike(name, tmp_path, monkeypatch, caplog):
    expected = visible(MODELS[name], *base(), tmp_path / "base", monkeypatch, caplog)
    assert "exception" not in expected and expected["log"]
    for change in CHANGES:
        X, y = base()
        change(X, y)
        got = visible(MODELS[name], X, y, tmp_path / change.__name__, monkeypatch, caplog)
        differing = {key for key in expected if got.get(key) != expected[key]} | (set(got) - set(expected))
        assert not differing, f"{change.__name__} shows in {sorted(differing)}"


def test_released_values_are_finite_whatever_the_data():
    for change in CHANGES:
        X, y = base()
        change(X, y)
        model = LogisticRegression(classes=[0, 1], epsilon=1.0, delta=1e-6, row_norm=1.0).fit(X, y)
        assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
