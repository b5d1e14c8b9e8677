"""A run is a model again: loaded, it predicts, explains itself, is scored and has a card; nothing is charged."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dpdist import Dataset, Ledger, load_run
from dpdist.central import MissingCovariateRegression
from dpdist.cli.card import command as card
from dpdist.cli.predict import command as predict
from dpdist.cli.score import command as score
from dpdist.data.ingestion import ingest
from dpdist.errors import DataError, DpdistError, NoIntervals
from dpdist.estimators.predicting import score_of
from dpdist.jobs.job import load_job
from dpdist.jobs.predictions import scored
from dpdist.jobs.run import run_job
from dpdist.runs.directory import OutputError

N = 3000
SECRET = "<i>|town*"
METHODS = {
    "dp-newton": ["data.n=2000", "data.d=3"],
    "dp-adassp": ["data.n=2000", "data.d=3"],
    "pca-central": ["data.n=2000"],
    "dp-em-kgmm": ["data.n=4000"],
    "krr": ["data.n=5000"],
    "cov-threshold-dp": [],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: Any) -> Path:
    """Runs of a regression and a classifier on a table with units, and the table."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"age": rng.uniform(0, 100, N), SECRET: rng.choice(["A", "B"], N)})
    table["price"] = 1000 * table["age"] + 20_000 * (table[SECRET] == "B") + rng.normal(size=N) * 1000
    table["cheap"] = np.where(table["price"] < 60_000, "yes", "no")
    table.to_csv(folder / "t.csv", index=False)
    asked: Any = {"features": ["age"], "levels": {SECRET: ["A", "B"]}, "ranges": {"age": (0, 100)}}
    ingest(
        folder / "t.csv",
        folder / "x.zarr",
        **{**asked, "ranges": {"age": (0, 100), "price": (0, 1.25e5)}},
        label="price",
    )
    ingest(folder / "t.csv", folder / "c.zarr", label="cheap", label_levels=["no", "yes"], **asked)
    budget = "budget: {epsilon: 1000000.0, delta: 1.0e-6}\n"
    (folder / "x.yaml").write_text(
        f"method: dp-adassp\nestimator: LinearRegression\ndata: {{path: {folder}/x.zarr}}\n"
        f"params: {{gradient: {{label_bound: 1.0}}, row_norm: 2.0, fit_intercept: false}}\n"
        f"{budget}ledger: {folder}/ledger.sqlite\noutput: {folder}/x\n"
    )
    (folder / "c.yaml").write_text(
        f"method: auto\nestimator: LogisticRegression\ndata: {{path: {folder}/c.zarr}}\n"
        f"params: {{classes: ['no', 'yes'], row_norm: 2.0}}\n{budget}ledger: {folder}/ledger.sqlite\n"
        f"output: {folder}/c\n"
    )
    for name in ("x", "c"):
        run_job(load_job(folder / f"{name}.yaml"))
    return folder


def called(command: Any, *words: object) -> str:
    result = CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", METHODS)
def test_a_loaded_run_is_the_model_that_was_fitted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[Any] = []
    from dpdist.jobs import run

    keep = run.recorded_model
    monkeypatch.setattr(run, "recorded_model", lambda model, arrays: (fitted.append(model), keep(model, arrays))[1])
    settings = [*METHODS[name], "params.random_state=0", f"output={tmp_path}/r", f"ledger={tmp_path}/l"]
    run_job(load_job(name, settings))
    model, loaded = fitted[0], load_run(tmp_path / "r")
    assert type(loaded) is type(model) and loaded.guarantee_ == model.guarantee_
    skipped = {"releases_", "plan_", "history_", "guarantee_"}
    for attribute, value in vars(model).items():
        if attribute.endswith("_") and attribute not in skipped:
            np.testing.assert_array_equal(getattr(loaded, attribute), value, err_msg=attribute)
    assert loaded.plan_.describe() == json.loads(json.dumps(model.plan_.describe()))
    assert repr(loaded) and loaded._repr_html_()
    assert {k: v for k, v in loaded.get_params().items() if k not in ("ledger", "cluster", "run_id")} == {
        k: v for k, v in model.get_params().items() if k not in ("ledger", "cluster", "run_id")
    }
    rows = np.random.default_rng(0).normal(size=(5, model.n_features_in_)) / 4
    for answer in ("predict", "predict_proba", "transform"):
        if hasattr(model, answer):
            np.testing.assert_array_equal(getattr(loaded, answer)(rows), getattr(model, answer)(rows))
    if not isinstance(model._inferred, str):
        assert str(loaded.summary()) == str(model.summary())


def test_what_cannot_be_loaded_says_so(tmp_path: Path, place: Path) -> None:
    settings = ["data.n=65000", "params.random_state=0", f"output={tmp_path}/r", f"ledger={tmp_path}/l"]
    run_job(load_job("kway-fourier", settings))
    with pytest.raises(OutputError, match=r"local.Marginals cannot be made of its record: _tables.*released\.zarr"):
        load_run(tmp_path / "r")
    with pytest.raises(OutputError, match="no run at"):
        load_run(tmp_path / "nothing")
    record = json.loads((place / "x" / "run.json").read_text())
    for change, match in ((("status", "started"), "not finished"), (("fitted", None), "--resume writes it again")):
        folder = tmp_path / match[:4]
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({**record, change[0]: change[1]}))
        with pytest.raises(OutputError, match=match):
            load_run(folder)


@pytest.mark.parametrize("name", ["ledger", "cluster", "epsilon", "fit", "_ledger_", "guarantee_", "plan_"])
def test_a_record_sets_nothing_but_fitted_attributes(place: Path, tmp_path: Path, name: str) -> None:
    record = json.loads((place / "x" / "run.json").read_text())
    record["fitted"]["attributes"][name] = "elsewhere"
    shutil.copytree(place / "x", tmp_path / "x")
    (tmp_path / "x" / "run.json").write_text(json.dumps(record))
    with pytest.raises(OutputError, match="is damaged"):
        load_run(tmp_path / "x")


def test_a_table_is_predicted_in_its_own_units_and_nothing_is_charged(place: Path, tmp_path: Path) -> None:
    model, table = load_run(place / "x"), pd.read_csv(place / "t.csv")
    account = json.loads((place / "x/run.json").read_text())["dataset"]["account"]
    with closing(Ledger(place / "ledger.sqlite")) as ledger:
        before = len(list(ledger.history(account)))
    new = table.drop(columns="price").astype({"age": object})
    new.loc[3, "age"], new.loc[4, SECRET] = "forty", "C"
    new.to_csv(tmp_path / "new.csv", index=False)
    said = called(predict, place / "x", tmp_path / "new.csv", "--output", tmp_path / "p.csv")
    assert "3,000 rows" in said and "the guarantee covers the model, not them" in said
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["row", "predicted price"] and found.index[
        found["predicted price"].isna()
    ].tolist() == [
        3,
        4,
    ]
    expected = model.predict(table)
    assert found["row"].tolist() == list(range(1, N + 1))
    np.testing.assert_allclose(found["predicted price"].dropna(), np.delete(expected, [3, 4]))
    assert np.abs(expected - table["price"]).mean() < 2000
    called(predict, place / "x", place / "x.zarr", "--output", tmp_path / "p.parquet")
    np.testing.assert_allclose(pq.read_table(tmp_path / "p.parquet")["predicted price"].to_numpy(), expected)
    with closing(Ledger(place / "ledger.sqlite")) as ledger:
        assert len(list(ledger.history(account))) == before


def test_classes_and_their_probabilities(place: Path, tmp_path: Path) -> None:
    called(predict, place / "c", place / "t.csv", "--output", tmp_path / "p.csv", "--probabilities")
    found, model = pd.read_csv(tmp_path / "p.csv"), load_run(place / "c")
    table = pd.read_csv(place / "t.csv")
    assert list(found.columns) == ["row", "prediction", "probability of no", "probability of yes"]
    assert (found["prediction"] == model.predict(table)).all()
    np.testing.assert_allclose(found["probability of yes"], model.predict_proba(table)[:, 1])


def test_a_score_says_that_it_is_the_curators(place: Path) -> None:
    table = pd.read_csv(place / "t.csv")
    for name, label in (("x", "price"), ("c", "cheap")):
        model = load_run(place / name)
        of_table = json.loads(called(score, place / name, place / "t.csv", "--json"))
        of_rows = json.loads(called(score, place / name, place / f"{name}.zarr", "--json"))
        assert of_table["score"] == pytest.approx(model.score(table, table[label])) and of_table["private"] is False
        assert of_rows["score"] == pytest.approx(of_table["score"], rel=1e-3) and of_table["n_rows"] == N
    said = called(score, place / "x", place / "t.csv")
    assert "The curator's side" in said and "under no guarantee" in said and "R squared" in said


@pytest.mark.parametrize(("name", "label"), [("x", "price"), ("c", "cheap")])
def test_rows_without_a_label_or_an_answer_are_counted(place: Path, tmp_path: Path, name: str, label: str) -> None:
    """A row without a label is no wrong answer: the score is that of the rows that have one."""
    table = pd.read_csv(place / "t.csv", dtype=str)
    kept = table.iloc[10:]
    table.loc[:3, label] = ""
    table.loc[4:9, "age"] = "?"
    table.to_csv(tmp_path / "t.csv", index=False)
    kept.to_csv(tmp_path / "kept.csv", index=False)
    of_all, of_kept = (json.loads(called(score, place / name, tmp_path / f, "--json")) for f in ("t.csv", "kept.csv"))
    assert of_all["score"] == pytest.approx(of_kept["score"], rel=1e-12)
    assert (of_all["n_rows"], of_all["n_left_out"], of_kept["n_left_out"]) == (N - 10, 10, 0)
    assert "2,990 (10 left out: without a label, or" in called(score, place / name, tmp_path / "t.csv")
    assert "left out" not in called(score, place / name, tmp_path / "kept.csv")
    said = called(predict, place / name, tmp_path / "t.csv", "--output", tmp_path / "p.csv")
    assert "3,000 rows, 6 without a prediction (a value cannot be used)." in said
    model, X = load_run(place / name), np.zeros((4, 3))
    X[0, 0] = np.nan
    y = np.array([1.0, 2.0, np.nan, 1.0]) if name == "x" else np.array(["no", "yes", "", "no"])
    found = score_of(model, Dataset.from_arrays(X=X, y=y))
    assert (found["n_rows"], found["n_left_out"]) == (2, 2)


@pytest.mark.filterwarnings("ignore:no column of the dataset declares missing cells")
@pytest.mark.parametrize(
    ("method", "estimator", "data", "params"),
    [
        ("pair-dpgd", "PairwiseRanker", "c", "{classes: ['no', 'yes'], row_norm: 2.0}"),
        ("dp-gem-clip", "MixedRegression", "x", "{noise_std: 0.5, radius: 1.5, init: spectral}"),
        ("dp-gem-clip", "MissingCovariateRegression", "x", "{noise_std: 0.5, radius: 1.5}"),
    ],
)
def test_models_without_an_intercept_are_fitted_to_tables(
    place: Path, tmp_path: Path, method: str, estimator: str, data: str, params: str
) -> None:
    """Coefficients are told in the units of the table where they are those of a linear model."""
    (tmp_path / "j.yaml").write_text(
        f"method: {method}\nestimator: {estimator}\ndata: {{path: {place}/{data}.zarr}}\nparams: {params}\n"
        f"budget: {{epsilon: 4.0, delta: 1.0e-6}}\nledger: {tmp_path}/l\noutput: {tmp_path}/r\n"
    )
    record = run_job(load_job(tmp_path / "j.yaml"))
    assert (record["original_units"] is not None) == (estimator != "MixedRegression")
    model = load_run(tmp_path / "r")
    if estimator == "PairwiseRanker":
        with pytest.raises(DataError, match="no score of labels row by row"):
            model.score(str(place / "c.zarr"))
    elif estimator == "MixedRegression":
        with pytest.raises(DataError, match="no score of labels row by row"):
            scored(model, str(place / "x.zarr"))
    else:
        table = pd.read_csv(place / "t.csv")
        assert np.corrcoef(model.predict(table), table["price"])[0, 1] > 0.8
        assert 1e4 < model.predict(table).mean() < 1.25e5  # in the units of the label


def test_classes_are_told_in_the_units_of_the_table_one_by_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 100, 40_000)})
    table["kind"] = np.array(["a", "b", "c"])[
        (table["age"] / 34 + rng.normal(size=40_000) / 3).clip(0, 2.9).astype(int)
    ]
    table.to_csv(tmp_path / "t.csv", index=False)
    ingest(tmp_path / "t.csv", tmp_path / "x.zarr", features=["age"], ranges={"age": (0, 100)}, label="kind",
           label_levels=["a", "b", "c"])  # fmt: skip
    (tmp_path / "j.yaml").write_text(
        f"method: dp-newton\nestimator: LogisticRegression\ndata: {{path: {tmp_path}/x.zarr}}\n"
        f"params: {{classes: [a, b, c], row_norm: 1.0}}\nbudget: {{epsilon: 8.0, delta: 1.0e-6}}\n"
        f"ledger: {tmp_path}/l\noutput: {tmp_path}/r\n"
    )
    run_job(load_job(tmp_path / "j.yaml"))
    model = load_run(tmp_path / "r")
    units = model.original_units()
    same = [[1.0, 0, 0, 0, 0, 0]]  # the hypothesis that the slope of the first class is 0 is the same in all units
    statistic = model.wald_test(same).statistic
    np.testing.assert_allclose(units.wald_test(same).statistic, statistic, rtol=1e-6)
    assert model.wald_test([[1.0, 1, 0, 0, 0, 0]]).p_value >= 0  # of one class
    for found in (model, units):
        with pytest.raises(NoIntervals, match="each class has a fit of its own"):
            found.wald_test([[1.0, 0, 1, 0, 0, 0]])


def test_rows_with_cells_that_stay_empty_are_predicted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 100, 500), "size": rng.uniform(0, 10, 500)})
    table["price"] = table["age"] + 10 * table["size"]
    table.loc[::5, "age"] = np.nan
    table.loc[3, "size"] = np.inf
    table.to_csv(tmp_path / "t.csv", index=False)
    bounds = {"age": (0.0, 100.0), "size": (0.0, 10.0), "price": (0.0, 200.0)}
    ingest(tmp_path / "t.csv", tmp_path / "x.zarr", features=["age", "size"], ranges=bounds, label="price",
           missing={"age": "keep"}, on_bad="zero")  # fmt: skip
    model = MissingCovariateRegression(noise_std=0.5, radius=1.5, epsilon=50.0, delta=1e-6, random_state=0)
    found = model.fit(str(tmp_path / "x.zarr")).predict(str(tmp_path / "x.zarr")).compute()
    assert np.flatnonzero(np.isnan(found)).tolist() == [3]
    rows = table.drop(index=3)
    np.testing.assert_array_equal(model.predict(rows), np.delete(found, 3))


def test_what_cannot_be_predicted_is_refused_with_what_to_do(place: Path, tmp_path: Path) -> None:
    from dpdist.jobs.predictions import predictions, scored

    model = load_run(place / "x")
    with pytest.raises(DataError, match="no probabilities of classes"):
        next(predictions(model, str(place / "t.csv"), probabilities=True))
    (tmp_path / "t.csv").write_text("age\n1\n")
    with pytest.raises(DataError, match="no column"):
        next(predictions(model, str(tmp_path / "t.csv")))
    with pytest.raises(DataError, match="no dataset at"):
        scored(model, str(tmp_path / "no.zarr"), format="zarr")
    model._encoding, model._feature_columns = None, ()
    with pytest.raises(DataError, match="knows no names of columns"):
        next(predictions(model, str(place / "t.csv")))
    for output, match in (("p.txt", "must end in"), ("t.csv", "exists already"), ("no/p.csv", "there is no folder")):
        result = CliRunner().invoke(
            predict, [str(place / "x"), str(place / "t.csv"), "--output", str(tmp_path / output)]
        )
        assert isinstance(result.exception, DpdistError) and match in str(result.exception)
        assert "partial" not in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]


def test_the_card_says_what_is_known_and_marks_what_is_not(place: Path, tmp_path: Path) -> None:
    markdown = called(card, place / "x")
    for words in (
        "One that predicts does so",
        "# Model card",
        "To be written by whoever publishes",
        "Replacing all data of any one row",
        "3,000",
    ):
        assert words in markdown
    assert "from 0 to 100, as -1 to 1" in markdown and "\\<i\\>\\|town\\*" in markdown and "<i>" not in markdown
    assert "Change of price for one unit of each column, with intervals of 95 %" in markdown
    classes = called(card, place / "c")
    assert "Change of the log-odds of cheap = 'yes' for one unit of each column" in classes
    called(card, place / "x", "--output", tmp_path / "card.html")  # what the name says
    html = (tmp_path / "card.html").read_text()
    assert html.startswith("<!DOCTYPE html>") and "&lt;i&gt;|town*" in html and "<i>" not in html
    assert "<script" not in html and "price" in html
    simulated = [*METHODS["dp-newton"], "params.random_state=0", f"output={tmp_path}/r", f"ledger={tmp_path}/l"]
    run_job(load_job("dp-newton", simulated))
    assert "must not be published" in called(card, tmp_path / "r")


def test_the_report_and_info_show_declarations_and_units(place: Path) -> None:
    from dpdist.cli.info import command as info

    page = (place / "x" / "report.html").read_text()
    assert "In the units of the table" in page and "from 0 to 100, as -1 to 1" in page
    record = json.loads((place / "x" / "run.json").read_text())
    units = record["original_units"]
    print(record["inference"])
    assert units["label"] == "price" and units["names"][-1] == "intercept"
    assert units["coefficients"][0][0] == pytest.approx(1000, rel=0.05)
    low, high = units["intervals"][0][0]
    assert low < units["coefficients"][0][0] < high
    assert "from 0 to 100, as -1 to 1" in called(info, place / "x.zarr")
    assert json.loads(called(info, place / "x.zarr", "--json"))["encoding"]["ranges"]["price"] == [0.0, 1.25e5]


def test_means_are_told_in_the_units_of_the_table(place: Path, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        f"method: auto\nestimator: local.Mean\ndata: {{path: {place}/x.zarr}}\nparams: {{low: -1.0, high: 1.0}}\n"
        f"budget: {{epsilon: 50.0}}\nledger: {tmp_path}/l\noutput: {tmp_path}/r\n"
    )
    record = run_job(load_job(tmp_path / "m.yaml"))
    units = record["original_units"]
    assert units["names"] == [*record["dataset"]["columns"]["X"]] and units["label"] is None
    means, ends = np.array(units["coefficients"][0]), np.array(units["intervals"][0])
    scaled = np.array([[row["coefficient"], row["low"], row["high"]] for row in record["inference"]["rows"]])
    np.testing.assert_allclose(means[0], 50 * (scaled[0, 0] + 1))  # a year of 100 is a fiftieth of [-1, 1]
    np.testing.assert_allclose(ends[0], 50 * (scaled[0, 1:] + 1))
    np.testing.assert_allclose(np.column_stack([means, ends])[1:], scaled[1:])  # shares of levels stay
    assert "Means of the columns, with intervals of 95 %" in (tmp_path / "r" / "report.html").read_text()
    np.testing.assert_allclose(load_run(tmp_path / "r").original_units().mean_, means)


def test_shares_are_told_by_the_names_of_their_categories(tmp_path: Path) -> None:
    answers = np.random.default_rng(0).choice(["often", "never", "no answer"], size=20_000)
    Dataset.from_arrays(tmp_path / "a.zarr", X=answers)
    (tmp_path / "j.yaml").write_text(
        f"method: auto\nestimator: local.Histogram\ndata: {{path: {tmp_path}/a.zarr}}\n"
        f"params: {{categories: [often, never, no answer]}}\nbudget: {{epsilon: 4.0}}\n"
        f"ledger: {tmp_path}/l\noutput: {tmp_path}/r\n"
    )
    run_job(load_job(tmp_path / "j.yaml"))
    shown = (tmp_path / "r" / "report.html").read_text().partition("How sure it is</h2>")[0]
    assert shown.count("no answer") > 2 and "numbered from 0" not in shown


KINDS = {
    "pair-dpgd": "PairwiseRanker, params: {classes: ['no', 'yes'], row_norm: 2.0}",
    "pair-metric-dpgd": "MetricLearner, params: {classes: ['no', 'yes'], row_norm: 2.0}",
    "dp-gem-clip": "MissingCovariateRegression, params: {noise_std: 0.1, radius: 1.0}",
    "saa-clipmean": "SampleAndAggregate, params: {radius: 1.0}",
    "mixed": "MixedRegression, params: {noise_std: 0.1, radius: 1.0, start: [0.5]}",
}


@pytest.fixture(scope="module")
def without_intercept(place: Path, tmp_path_factory: Any) -> Path:
    """Runs on a table with ranges of estimators that have no intercept, or no coefficients; one with empty cells."""
    folder = tmp_path_factory.mktemp("kinds")
    table = pd.read_csv(place / "t.csv")
    # b, of y = b x: half of the range of the label, and its middle where the feature is in its middle
    table["price"] = 62_500 + 30_000 * (table["age"] / 50 - 1)
    table.loc[::7, "age"] = np.nan
    table.to_csv(folder / "t.csv", index=False)
    asked: Any = {"features": ["age"], "ranges": {"age": (0, 100), "price": (0, 1.25e5)}, "label": "price"}
    ingest(folder / "t.csv", folder / "kept.zarr", missing={"age": "keep"}, **asked)
    ingest(folder / "t.csv", folder / "full.zarr", on_bad="drop", **asked)
    data = {"dp-gem-clip": f"{folder}/kept.zarr", "mixed": f"{folder}/full.zarr", "saa-clipmean": f"{folder}/full.zarr"}
    for name, words in KINDS.items():
        (folder / f"{name}.yaml").write_text(
            f"{{method: {name.replace('mixed', 'dp-gem-clip')}, estimator: {words}, "
            f"data: {{path: {data.get(name, f'{place}/c.zarr')}}}, budget: {{epsilon: 100.0, delta: 1.0e-6}}, "
            f"ledger: {folder}/ledger.sqlite, output: {folder}/{name}}}"
        )
        run_job(load_job(folder / f"{name}.yaml"))
    return folder


def test_coefficients_without_an_intercept_have_units_as_well(without_intercept: Path, place: Path) -> None:
    ranker, table = load_run(without_intercept / "pair-dpgd"), pd.read_csv(place / "t.csv")
    units, scores = ranker.original_units(), ranker.decision_function(table)
    by_hand = table["age"] * units.coef_[0] + (table[SECRET] == "A") * units.coef_[1]
    by_hand += (table[SECRET] == "B") * units.coef_[2] + units.intercept_
    np.testing.assert_allclose(scores, by_hand, atol=1e-9)
    assert "intercept" in repr(units) and (without_intercept / "pair-dpgd/report.html").exists()
    with pytest.raises(DataError, match="up to their sign only"):
        load_run(without_intercept / "mixed").original_units()


def test_labels_given_the_cells_that_are_there_are_in_the_units_of_the_table(
    without_intercept: Path, tmp_path: Path
) -> None:
    model, table = load_run(without_intercept / "dp-gem-clip"), pd.read_csv(without_intercept / "t.csv")
    assert model.original_units().coef_[0] == pytest.approx(600, rel=0.15)
    found = model.predict(table)
    here = table["age"].notna()
    assert np.abs(found - table["price"])[here].mean() < 5000 and np.allclose(found[~here], 62_500)
    for source in ("t.csv", "kept.zarr"):
        called(predict, without_intercept / "dp-gem-clip", without_intercept / source, "--output", tmp_path / "p.csv")
        written = pd.read_csv(tmp_path / "p.csv")["predicted price"]
        # a row of which nothing is there has no answer
        np.testing.assert_allclose(written[here], found[here])
        assert written[~here].isna().all()
        (tmp_path / "p.csv").unlink()
    assert "R squared" in called(score, without_intercept / "dp-gem-clip", without_intercept / "t.csv")


def test_a_method_that_only_some_parameters_have_predicts_the_same_on_the_command_line(
    without_intercept: Path, tmp_path: Path
) -> None:
    place, table = without_intercept / "saa-clipmean", pd.read_csv(without_intercept / "t.csv").dropna()
    table.to_csv(tmp_path / "t.csv", index=False)
    called(predict, place, tmp_path / "t.csv", "--output", tmp_path / "p.csv")
    model = load_run(place)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["predicted price"], model.predict(table))
    found = json.loads(called(score, place, tmp_path / "t.csv", "--json"))
    assert found["score"] == pytest.approx(model.score(table, table["price"]))


@pytest.mark.parametrize("name", ["pair-dpgd", "pair-metric-dpgd", "mixed"])
def test_what_is_not_compared_with_labels_has_no_score_and_says_so(
    without_intercept: Path, place: Path, name: str
) -> None:
    from dpdist.jobs.predictions import predictions, scored

    model = load_run(without_intercept / name)
    source = without_intercept / "t.csv" if name == "mixed" else place / "t.csv"
    for rows in (source, without_intercept / "full.zarr" if name == "mixed" else place / "c.zarr"):
        with pytest.raises(DataError, match="no score of labels row by row"):
            scored(model, str(rows))
    if name != "mixed":
        with pytest.raises(DataError, match=r"load_run\(RUN\) has (decision_function|transform) of rows"):
            next(predictions(model, str(source)))
