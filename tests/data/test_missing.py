"""Missing cells that are values: declared once, kept by copies, and refused by whoever is not made for them."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from dpdist import PCA, Ledger, LinearRegression, Mean, TwoComponentMixture, local
from dpdist.cli.info import command as info
from dpdist.cli.ingest import command as ingest_command
from dpdist.data import Dataset, ingest
from dpdist.errors import DataError
from dpdist.jobs.job import load_job
from dpdist.jobs.planning import plan_job

CSV = "age,dose,owner,y\n1,2,a,3\n4,,b,6\nNA,8,a,9\n,,c,1\n5,inf,d,2\n7,abc,e,2\n1,1,f,\n"
ASKED: Any = {"features": ["age", "dose"], "label": "y", "on_bad": "zero"}


def table(folder: Path, text: str = CSV) -> Path:
    path = folder / "t.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_declared_cells_are_kept(tmp_path: Path, kind: str) -> None:
    """A missing cell is none; infinity, text and a missing label are faults still, and a null row is infinite."""
    frame = pd.DataFrame(
        {"age": [1, 4, np.nan, np.nan, 5], "dose": [2, np.nan, 8, np.nan, np.inf], "y": [3.0, 6, 9, 1, 2]}
    )
    source, asked = tmp_path / f"t.{kind}", dict(ASKED)
    if kind == "csv":
        source = table(tmp_path)
    elif kind == "parquet":
        frame.to_parquet(source)
    else:
        np.savez(source, X=frame[["age", "dose"]].to_numpy().copy(order="C"), y=frame["y"].to_numpy())
        asked = {"on_bad": "zero"}
    names = ("0", "1") if kind == "npz" else ("age", "dose")
    done = ingest(source, tmp_path / "out", missing=dict.fromkeys(names, "keep"), **asked)
    data = Dataset.open(tmp_path / "out")
    rows = data.read(0, data.n_rows)
    assert done.schema.missing == data.schema.missing == names
    assert np.array_equal(rows["X"][:4], frame[["age", "dose"]].to_numpy()[:4], equal_nan=True)
    assert (
        np.isinf(rows["X"][4:]).all() and np.isnan(rows["y"][4:]).all() and sum(done.bad.values()) == len(rows["y"]) - 4
    )


def test_other_columns_are_as_before(tmp_path: Path) -> None:
    source = table(tmp_path)
    with pytest.raises(DataError, match=r"\(line 4\): age is missing"):
        ingest(source, tmp_path / "out", missing={"dose": "keep"}, features=["age", "dose"], label="y")
    done = ingest(source, tmp_path / "out", missing={"dose": "keep"}, **{**ASKED, "on_bad": "drop"})
    assert done.schema.missing == ("dose",) and done.schema.n_rows == 2


def test_owners_without_a_row_have_infinite_ones(tmp_path: Path) -> None:
    ingest(
        table(tmp_path), tmp_path / "out", missing={"age": "keep", "dose": "keep"}, unit="owner", max_rows=2, **ASKED
    )
    data = Dataset.open(tmp_path / "out")
    rows = data.read(0, data.n_rows)
    null = np.isnan(rows["y"])
    assert null.sum() == 6 and np.isinf(rows["X"][null]).all() and not np.isinf(rows["X"][~null]).any()


def test_what_is_declared_stays_with_the_rows(tmp_path: Path) -> None:
    ingest(table(tmp_path), tmp_path / "out", missing={"dose": "keep"}, **ASKED)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    copy = Dataset.open(tmp_path / "copy")
    assert copy.schema.missing == ("dose",) == copy.select(X="X", label="y").schema.missing
    assert Dataset.open(tmp_path / "copy", arrays=["y"]).schema.missing == ()
    X = np.zeros((9, 3))
    data = Dataset.from_arrays(tmp_path / "written", X=X, y=np.zeros(9), missing=["2"])
    assert data.schema.missing == ("2",) and "empty cells are values in: 2" in repr(data)
    with pytest.raises(DataError, match="there is no such column"):
        Dataset.from_arrays(X=X, missing=["3"])
    assert "missing" not in Dataset.from_arrays(X=X).schema.to_attributes()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"missing": {"doze": "keep"}}, "missing cells of 'doze' cannot be kept.*did you mean 'dose'"),
    ({"missing": {"y": "keep"}}, "missing cells of 'y' cannot be kept.*a label or an owner has to be there"),
    ({"missing": {"owner": "keep"}, "levels": {"owner": ["a", "b"]}}, "a level of its own"),
    ({"missing": {"dose": "impute"}}, "--missing dose=impute: expected indicator .*, keep, or a number"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_what_cannot_be_kept(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        ingest(table(tmp_path), tmp_path / "out", **{**ASKED, **options})


def test_the_command_line_and_the_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    words = ["t.csv", "out", "--features", "age,dose", "--label", "y", "--on-bad", "drop", "-q"]
    run = CliRunner()
    assert "is not of the form COLUMN=keep" in run.invoke(ingest_command, [*words, "--missing", "dose"]).output
    twice = run.invoke(ingest_command, [*words, "--missing", "dose=keep", "--missing", "dose=keep"])
    assert "--missing was given twice" in twice.output
    done = run.invoke(ingest_command, [*words, "--missing", "dose=keep", "--missing", "age=keep"])
    assert done.exit_code == 0 and "empty cells are values in: age, dose" in done.output
    described = run.invoke(info, ["out"]).output
    assert "are values in age, dose" in described and "empty cells stay empty" in described
    assert json.loads(run.invoke(info, ["out", "--json"]).output)["missing"] == ["age", "dose"]


BUDGET: Any = {"epsilon": 1.0, "delta": 1e-6}
OTHERS = [
    LinearRegression(loss="huber", row_norm=1.0, **BUDGET),
    Mean(second_moment=1.0, **BUDGET),
    PCA(1, row_norm=1.0, **BUDGET),
    TwoComponentMixture(noise_std=1.0, radius=1.0, start=[1.0, 0.0], **BUDGET),
    local.Mean(domain="box", low=0.0, high=1.0, epsilon=1.0),
    local.MixedRegression(noise_std=1.0, radius=1.0, start=[1.0, 0.0], epsilon=1.0),
]


@pytest.mark.parametrize("model", OTHERS, ids=lambda model: f"{type(model).__module__}.{type(model).__name__}")
def test_estimators_that_are_not_made_for_them_refuse(model: Any) -> None:
    """Before anything is charged, naming the columns."""
    data = Dataset.from_arrays(X=np.full((50, 2), np.nan), y=np.zeros(50), missing=["0", "1"], account="people")
    with closing(Ledger(":memory:")) as ledger:
        with pytest.raises(DataError, match="are values in the columns '0', '1'"):
            model.set_params(ledger=ledger).fit(data)
        assert ledger.spent("people").epsilon == 0


def test_a_plan_of_a_job_refuses_as_well(tmp_path: Path) -> None:
    Dataset.from_arrays(tmp_path / "rows", X=np.zeros((50, 2)), y=np.zeros(50), missing=["1"])
    job = tmp_path / "job.yaml"
    job.write_text(
        f"method: dp-gd\nestimator: LinearRegression\ndata: {{path: {tmp_path / 'rows'}}}\n"
        "params: {loss: huber, row_norm: 1.0}\nbudget: {epsilon: 1.0, delta: 1.0e-6}\n"
    )
    with pytest.raises(DataError, match="are values in the columns '1'"):
        plan_job(load_job(job))
