"""Exported models, run by onnxruntime, say what `predict` says."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from click.testing import CliRunner

from dpdist import LinearRegression, LogisticRegression, Mean, load_run, local, to_onnx
from dpdist.cli import main
from dpdist.data.ingestion import ingest
from dpdist.errors import DataError, DpdistError

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, size=(6_000, 3))
TERMS = {"row_norm": 1.0, "epsilon": 20.0, "delta": 1e-6, "random_state": 0}


def answers(model, rows):
    """What the exported model says, by another implementation than the one that the export compares with."""
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    said = session.run(None, {"X": np.asarray(rows, dtype=np.float64)})
    return dict(zip([output.name for output in session.get_outputs()], said, strict=True))


@pytest.mark.parametrize(
    ("classes", "n"), [(["no", "yes"], 2), ([False, True], 2), ([3, 7], 2), (["a", "b", "c"], 3), ([0.5, 1.5], 2)]
)
@pytest.mark.parametrize("solver", ["newton", "gradient"])  # the second scales long rows down, in predictions too
def test_classes_and_probabilities(classes, n, solver):
    y = np.asarray(classes)[np.digitize(X[:, 0], [0.0] if n == 2 else [-0.3, 0.3])]
    model = LogisticRegression(classes=classes, solver=solver, **TERMS).fit(X, y)
    assert (model.clipped_to_ is None) == (solver == "newton")
    rows = np.concatenate([X, 100 * X[:50], np.zeros((1, 3))])
    said = answers(model, rows)
    assert len(set(said["label"].tolist())) == n
    said_classes, expected = said["label"], model.predict(rows)
    assert (said_classes == (expected.astype(int) if expected.dtype == bool else expected)).all()
    np.testing.assert_allclose(said["probabilities"], model.predict_proba(rows), atol=1e-12)


def test_numbers_of_both_models():
    y = X @ [0.5, 0.0, -0.3]
    for model in (
        LinearRegression(loss="huber", **TERMS).fit(X, y),
        local.LinearRegression(row_norm=1.0, label_bound=1.0, epsilon=20.0, delta=1e-6, random_state=0).fit(X, y),
    ):
        np.testing.assert_allclose(answers(model, X)["prediction"], model.predict(X), rtol=1e-12, atol=1e-12)


def test_a_run_on_a_table_is_exported_in_its_units(tmp_path):
    table = pd.DataFrame({"age": RNG.uniform(0, 120, 4_000), "town": RNG.choice(["A", "B"], 4_000)})
    table["rent"] = 8 * table["age"] + 100 * (table["town"] == "B")
    table.to_csv(tmp_path / "flats.csv", index=False)
    ranges = {"age": (0, 100), "rent": (0, 2000)}
    ingest(
        str(tmp_path / "flats.csv"), str(tmp_path / "flats.zarr"), features=["age"], levels={"town": ["A", "B"]},
        ranges=ranges, label="rent",
    )  # fmt: skip
    job = {
        "method": "auto", "estimator": "LinearRegression", "data": {"path": str(tmp_path / "flats.zarr")},
        "params": {"loss": "huber", "row_norm": 2.0, "random_state": 0}, "budget": {"epsilon": 5.0, "delta": 1e-6},
        "output": str(tmp_path / "run"), "ledger": str(tmp_path / "ledger.sqlite"),
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    assert CliRunner().invoke(main, ["run", str(tmp_path / "job.yaml"), "--quiet"]).exit_code == 0
    done = CliRunner().invoke(main, ["export", str(tmp_path / "run"), "--output", str(tmp_path / "rent.onnx")])
    assert done.exit_code == 0 and done.output.endswith("rent.onnx: 3 columns to prediction\n")
    again = CliRunner().invoke(main, ["export", str(tmp_path / "run"), "--output", str(tmp_path / "rent.onnx")])
    assert again.exit_code == 2 and "exists already; name a new file" in again.output
    other = CliRunner().invoke(main, ["export", str(tmp_path / "run"), "--output", str(tmp_path / "rent.pmml")])
    assert (
        other.exit_code == 2 and "a file that ends in .onnx" in other.output and not (tmp_path / "rent.pmml").exists()
    )
    session = onnxruntime.InferenceSession(str(tmp_path / "rent.onnx"))
    said = session.get_modelmeta().custom_metadata_map
    assert said["columns"].split("\n") == ["age", "town=A", "town=B"] and said["units"] == "of the table"
    assert "simulation" in said["guarantee"].lower() and (said["epsilon"], said["delta"]) == ("5", "1e-06")
    # an age of 120 is beyond its range, and counts as 100
    rows = pd.DataFrame({"age": [20.0, 120.0], "town": ["B", "A"]})
    found = session.run(None, {"X": np.array([[20.0, 0.0, 1.0], [120.0, 1.0, 0.0]])})[0]
    np.testing.assert_allclose(found, load_run(tmp_path / "run").predict(rows), rtol=1e-9)


def test_what_is_no_linear_model_is_refused(monkeypatch):
    with pytest.raises(DataError, match=r"Mean does not predict by a linear map .* LogisticRegression"):
        to_onnx(Mean(second_moment=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X))
    curved = LinearRegression(loss="huber", **TERMS).fit(X, X[:, 0])
    monkeypatch.setattr(
        type(curved), "_linear_predictor", lambda self, rows: np.square(np.asarray(rows)) @ self.coef_.T
    )
    with pytest.raises(DataError, match="only such models are exported"):
        to_onnx(curved)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DpdistError, match=r"pip install 'dpdist\[onnx\]'"):
        to_onnx(None)
