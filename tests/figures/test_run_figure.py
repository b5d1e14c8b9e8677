"""Figures: what is wrong with a file is said with its line; runs are done once; the numbers are the runs' own."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from dpdist import LogisticRegression, MetricLearner
from dpdist.central import SVRG, GradientDescent, MetricGradient
from dpdist.errors import DataError
from dpdist.estimators.outlook import nobody_asks
from dpdist.figures import run_figure as figures
from dpdist.figures.bounds import BOUNDS
from dpdist.figures.figure_file import load_figure
from dpdist.figures.measures import Gap, ProjectedGradient, along, minimise, sparse_minimum
from dpdist.figures.run_figure import run_figure
from dpdist.jobs.job import JobError, make_estimator
from dpdist.losses import Huber, Logistic, Sigmoid
from dpdist.problems import linear_problems as synthetic
from dpdist.problems.catalog import PROBLEMS

FIGURES = sorted((Path(__file__).parents[2] / "pipelines" / "figures").glob("*.yaml"))
SOURCES = {
    "exp-6.1-low-synth": "seed 000, figure 6.3",
    "exp-6.1-low-real": "seed 000, section 6.1.6",
    "exp-6.1-high": "seed 000, section 6.1.6",
    "exp-6.2": "seed 000, section 6.2.5",
    "exp-6.3": "seed 000, section 6.3.6",
    "exp-l1-ball": "seed 000, section 3.1, Algorithm 3.1.4",
    "exp-perturbation": "seed 000, section 3.1",
    "exp-hard-instance": "seed 000, section 5.3.2; seed 004, Theorem 1",
    "exp-scaling": "seed 000, section 5.3.2; seed 004, Theorem 1",
    "exp-l1-mean": "seed 001, Algorithm 2",
    "exp-l1-regression": "seed 001, Algorithm 3",
    "exp-krr": "seed 001, Algorithm 4",
    "exp-cheb": "seed 001, Algorithms 5 and 6",
    "exp-ht-lasso": "seed 003, section 4, Algorithms 1 and 2",
    "exp-ht-logistic": "seed 003, section 4, Algorithm 1",
    "exp-ht-robust": "seed 003, section 4, Theorem 3",
    "exp-ht-sparse": "seed 003, section 5, Algorithms 3 and 5",
    "exp-ht-l0-logistic": "seed 003, section 5.2, Algorithm 5",
    "exp-ht-mean": "seed 003, section 5.2, Algorithm 5 and Theorem 9",
    "exp-ht-hard": "seed 003, section 5.2, Theorem 9",
    "exp-pair-auc": "seed 000, section 3.3.5",
    "exp-pair-metric": "seed 000, section 3.3.5",
    "exp-nldp": "seed 004, Algorithms 1 and 3",
    "exp-nc-first": "seed 000, section 4.1.5",
    "exp-nc-sosp": "seed 000, section 4.3.3; Theorem 4.2.4",
}
"""The parts of the seeds that a figure draws and that have no figure of their own there."""
SMALL = """\
title: A test
metric: gap
job:
  estimator: LogisticRegression
  data: {generate: logit}
  params: {classes: [0, 1], row_norm: 1.0, fit_intercept: false}
  budget: {epsilon: 1.0, delta: 1.0e-4}
series:
  - {label: plain, set: {method: dp-gd, params.solver.n_rounds: 4}}
  - {label: accelerated, set: {method: dp-agd}}
panels:
  - {title: privacy, x: passes, lines: {key: budget.epsilon, values: [0.5, 1.0]}}
  - {x: data.n, values: {quick: [1000, 2000], full: [1000, 2000, 4000]}, series: [plain]}
presets:
  quick: {seeds: 2, set: {data.n: 2000, data.d: 3}}
  full: {seeds: 3, set: {data.n: 4000, data.d: 3}}
"""


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "small.yaml"
    found.write_text(SMALL)
    return found


def problems_of(tmp_path, old: str, new: str) -> str:
    path = tmp_path / "wrong.yaml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(JobError) as error:
        load_figure(path)
    return str(error.value)


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("preset", ["quick", "full"])
def test_the_figures_of_the_source_are_valid(path, preset):
    figure = load_figure(path, preset)
    number = path.stem.removeprefix("fig-").removeprefix("exp-")
    numbered = f"seed 000, figure {number}" if number[0].isdigit() else figure.source
    assert figure.source == SOURCES.get(path.stem, numbered)
    assert f"dpdist figures {path.stem}" in path.read_text()
    assert figure.n_seeds >= (5 if preset == "full" else 2)
    for cell in figure.cells:
        assert cell.job.params["random_state"] == cell.seed == cell.job.data["random_state"]


@pytest.mark.slow
@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("preset", ["quick", "full"])
def test_every_method_of_a_figure_can_be_planned(path, preset):
    """What is wrong with a method's parameters is found before anything runs; here without running."""
    figure = load_figure(path, preset)
    for cell in {(cell.panel, cell.series, cell.line, cell.x): cell for cell in figure.cells}.values():
        figures._check(cell.job)


def test_the_figures_of_the_seeds_are_there():
    there = {path.stem for path in FIGURES}
    assert there >= {f"fig-3.{i}" for i in range(1, 9)} | {f"exp-5.{i}" for i in range(1, 11)} | SOURCES.keys()
    stand_ins = {"covertype-like", "ijcnn-like", "adult-like", "adult-like-income", "rcv1-like"}
    for name in there:
        figure = load_figure(name)
        stands_in = bool({cell.job.data["generate"] for cell in figure.cells} & stand_ins)
        assert stands_in == (figure.real is not None), f"{name} has to say what its rows stand in for"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("metric: gap", "metric: gap\nreal: {name: Table, from: there}", "line 3: real.from: unknown key"),
        ("metric: gap", "metric: gap\nreal: {name: Table}", "line 3: real.get: missing"),
        ("series: [plain]}", "series: [plain], bounds: [{label: a, of: one}]}", "line 13: .*unknown bound 'one'"),
        ("x: passes,", "x: passes, bounds: [{label: a, of: labels}],", "line 12: panels.1.bounds: .*without lines"),
        ("metric: gap", "metric: gaap", "line 2: metric: unknown metric 'gaap'; did you mean 'gap'"),
        ("title: A test", "titel: A test", "line 1: titel: unknown key; did you mean 'title'"),
        ("method: dp-gd,", "method: dp-gdd,", "line 9: method: unknown method 'dp-gdd'"),
        (
            "params.solver.n_rounds: 4",
            "params.solver.n_rouds: 4",
            "line 9: params.solver.n_rouds: .*did you mean 'n_rounds'",
        ),
        ("params.solver.n_rounds: 4", "params.n_rounds: 4", "line 9: params.n_rounds: .*write solver"),
        ("row_norm: 1.0", "row_norm: wide", "line 6: params.row_norm: expected a number"),
        ("fit_intercept: false", "fit_intercept: true", "line 6: params.fit_intercept: set it to false"),
        ("{generate: logit}", "{path: rows.zarr}", "line 5: data.path: .*what stands in for it"),
        ("row_norm: 1.0", "row_norm: 1.0, random_state: 3", "line 6: params.random_state: leave it out"),
        ("values: [0.5, 1.0]", "values: 0.5", "line 12: panels.1.lines.values: expected a list"),
        ("[1000, 2000]", "[many]", "line 13: panels.2.values: a position is a number, got 'many'"),
        ("series: [plain]", "series: [plane]", "line 13: panels.2.series.1: .*did you mean 'plain'"),
        ("label: accelerated", "label: plain", "two series are called 'plain'"),
        ("x: passes,", "x: passes, values: [1],", "line 12: panels.1.values: x: passes takes none"),
        ("seeds: 2", "seeds: 0", "line 15: presets.quick.seeds: expected the number of seeds"),
        ("  full: {seeds: 3, set: {data.n: 4000, data.d: 3}}\n", "", "presets.full: expected keys"),
        ("x: data.n,", "x: data.m,", "data.m: unknown key"),
        (
            "metric: gap",
            "metric: distance",
            "line 2: metric: the problem 'logit' judges nothing by distance, and dp-gd",
        ),
        (
            SMALL.partition("job:")[2].partition("panels:")[0],
            """
  data: {generate: box}
  budget: {epsilon: 1.0}
series:
  - {label: plain, set: {method: duchi-1d, params.low: -1, params.high: 1}}
""",
            "line 2: metric: gap needs a method that minimises one objective; take error",
        ),
    ],
)
def test_errors_name_the_line(tmp_path, old, new, message):
    import re

    assert re.search(message, problems_of(tmp_path, old, new), re.DOTALL)


def test_what_a_method_needs_is_missed_before_anything_runs(tmp_path, monkeypatch):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.replace("row_norm: 1.0, ", ""))
    monkeypatch.setattr(figures.Bench, "run", lambda *_: pytest.fail("ran"))
    with pytest.raises(JobError, match="row_norm is missing"):
        run_figure(load_figure(path), tmp_path / "out")


def test_a_figure_is_drawn_and_its_numbers_are_those_of_the_runs(path, tmp_path):
    figure = load_figure(path)
    told = []
    record = run_figure(figure, tmp_path / "out", tell=lambda done, total, cell: told.append((done, total)))
    assert len(figure.cells) == 2 * 2 * 2 + 2 * 2
    assert len(told) == 10, "the run at 2000 rows and epsilon 1 is in both panels, and done once"
    for file in record["files"].values():
        assert Path(file).stat().st_size > 1000
    assert Path(record["files"]["svg"]).read_text().startswith("<?xml")
    table = parquet.read_table(record["files"]["parquet"]).to_pylist()
    assert set(table[0]) == set(figures.COLUMNS)

    # one of them by hand
    data, _ = synthetic.logit(2000, 3, random_state=1)
    model = LogisticRegression(
        classes=[0, 1], row_norm=1.0, fit_intercept=False, epsilon=0.5, delta=1e-4, random_state=1,
        ledger=None, cluster="threads", solver=GradientDescent(n_rounds=4),
    ).fit(data.read(0, 2000)["X"], data.read(0, 2000)["y"])  # fmt: skip
    rows = data.read(0, 2000)
    X, y = rows["X"], np.where(rows["y"] == 1, 1.0, -1.0)

    def objective(w):
        return np.mean(np.log1p(np.exp(-y * (X @ w)))) + 1e-4 / 2 * w @ w

    mine = [r for r in table if r["series"] == "plain" and r["line"] == "budget.epsilon=0.5" and r["seed"] == 1]
    assert [row["final"] for row in mine] == [False] * 4 + [True]
    assert [row["x"] for row in mine] == [1, 2, 3, 4, 5], "the smoothness is a pass as well"
    assert mine[0]["error"] == pytest.approx(mine[0]["trivial_error"])
    difference = objective(np.zeros(3)) - objective(model.coef_[0])
    assert mine[-1]["trivial_error"] - mine[-1]["error"] == pytest.approx(difference, rel=1e-9)
    assert mine[-1]["nonprivate_error"] == 0
    for row in table:
        assert row["epsilon"] <= (0.5 if row["line"].endswith("0.5") else 1.0) and row["delta"] <= 1e-4
        assert row["accountant"] == "gdp" and row["metric"] == "gap" and row["preset"] == "quick"
        assert row["error"] > 0


def test_the_gap_follows_the_order_of_the_classes():
    generated = PROBLEMS["logit"].generate({"n": 20_000, "d": 3})
    rows = generated.dataset.read(0, 20_000)
    common = {"row_norm": 1.0, "fit_intercept": False, "epsilon": 5.0, "delta": 1e-6, "random_state": 1}
    one, two = (LogisticRegression(classes=c, **common).fit(rows["X"], rows["y"]) for c in ([0, 1], [1, 0]))
    for model in (one, two):
        gap = Gap(generated, model)
        assert gap.error(model) < gap.trivial() / 10 and gap.nonprivate(rows["X"], rows["y"]) == 0
    assert Gap(generated, one).error(two) > gap.trivial()


def test_finished_runs_are_kept_and_new_ones_paid_for(path, tmp_path):
    out = tmp_path / "out"

    def runs(**options):
        told = []
        record = run_figure(load_figure(path, **options), out, tell=lambda *_: told.append(1))
        return len(told), Path(record["files"]["svg"]).read_bytes()

    first, picture = runs()
    assert first == 10
    assert runs() == (0, picture), "the same numbers make the same file"
    assert runs(n_seeds=3)[0] == 5
    kept = sorted((out / "small.runs").glob("*.json"))
    kept[0].write_text('{"points": [[')  # cut off
    assert runs()[0] + runs(n_seeds=3)[0] == 1
    assert runs(settings=["params.alpha=0.01"])[0] == 10


def test_an_interrupted_figure_goes_on(path, tmp_path, monkeypatch):
    run, done = figures.Bench.run, []

    def stops(self, job):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(1)
        return run(self, job)

    monkeypatch.setattr(figures.Bench, "run", stops)
    with pytest.raises(KeyboardInterrupt):
        run_figure(load_figure(path), tmp_path / "out")
    assert len(list((tmp_path / "out" / "small.runs").glob("*.json"))) == 3
    monkeypatch.setattr(figures.Bench, "run", run)
    told = []
    run_figure(load_figure(path), tmp_path / "out", tell=lambda *_: told.append(1))
    assert len(told) == 7


def test_no_budget_is_spent(path, tmp_path, monkeypatch):
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "ledger.sqlite"))
    run_figure(load_figure(path), tmp_path / "out")
    assert not (tmp_path / "ledger.sqlite").exists()
    kept = json.loads(next((tmp_path / "out" / "small.runs").glob("*.json")).read_text())
    assert kept["asked"]["ledger"] is None


def test_errors_along_a_run_end_with_the_model():
    data, _ = synthetic.logit(3000, 4)
    rows = data.read(0, 3000)
    common = {"classes": [0, 1], "row_norm": 1.0, "fit_intercept": False, "epsilon": 1.0, "delta": 1e-5}
    short = {"rows": "sample", "solver": GradientDescent(n_rounds=60)}
    for options in (short, {"solver": SVRG(n_rounds=2)}, {"solver": "accelerated"}):
        model = LogisticRegression(**common, random_state=0, cluster="threads", **options).fit(rows["X"], rows["y"])
        points = along(model)
        passes = [point[0] for point in points]
        assert passes == sorted(passes) and points[-1][2] is model and np.all(points[0][2].coef_ == 0)
        assert 2 < len(points) <= 41
    # the mean of the last half: after the last gradient it is nearly what is returned
    sampled = LogisticRegression(**common, **short, random_state=0, cluster="threads")
    points = along(sampled.fit(rows["X"], rows["y"]))
    step = np.abs(sampled.history_[-1] - sampled.history_[-2]).max()
    assert np.abs(points[-2][2].coef_ - sampled.coef_).max() < step


def test_a_model_without_coefficients_has_its_end_only():
    rng = np.random.default_rng(0)
    solver, X, y = MetricGradient(n_rounds=3, block_rows=10), rng.normal(size=(100, 3)), rng.integers(2, size=100)
    options = {"row_norm": 1.0, "epsilon": 1.0, "delta": 1e-5, "random_state": 0, "cluster": "threads"}
    model = MetricLearner(solver, classes=[0, 1], **options).fit(X, y)
    assert len(model.history_) == 3 and [point[2] for point in along(model)] == [model]


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)])
def test_the_minimum_is_one(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) * [1, 2, 3, 0.1, 1]
    y = np.sign(rng.normal(size=400) + X[:, 0])
    w = minimise(X, y, loss, lambda v, step: v / (1 + 0.01 * step))
    gradient = X.T @ loss.derivative(X @ w, y) / 400 + 0.01 * w
    assert np.abs(gradient).max() < 1e-9


@pytest.mark.parametrize("rows", [200, 400])
def test_the_sparse_minimum_is_found(rows):
    """Against all supports."""
    rng = np.random.default_rng(rows)
    X, loss = rng.normal(size=(rows, 6)), Logistic()
    y = np.sign(X @ [2.0, 0, -1, 0, 0, 0.5] + rng.logistic(size=rows))

    def prox(v, step):
        return v / (1 + 0.01 * step)

    def objective(w):
        return float(np.mean(loss.value(X @ w, y))) + 0.005 * w @ w

    found = sparse_minimum(X, y, loss, prox, 2, minimise(X, y, loss, prox), objective)
    least = min(
        objective(np.put_along_axis(w := np.zeros(6), np.array(s), minimise(X[:, s], y, loss, prox), 0) or w)
        for s in map(list, itertools.combinations(range(6), 2))
    )
    assert np.count_nonzero(found) == 2 and objective(found) == pytest.approx(least, abs=1e-12)


def test_a_table_in_place_of_what_stands_in_for_it(path, tmp_path):
    from dpdist.data import Dataset

    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 4))
    y = np.where(X[:, 0] + rng.normal(size=1500) > 0, 2, 1)
    Dataset.from_arrays(tmp_path / "rows.zarr", X=X, y=y)
    path.write_text(SMALL.replace("metric: gap", "metric: gap\nreal: {name: Rows, get: from here, unit_rows: true}"))
    settings = [f"data.path={tmp_path / 'rows.zarr'}"]
    record = run_figure(load_figure(path, settings=settings, n_seeds=2), tmp_path / "out")
    rows = parquet.read_table(record["files"]["parquet"]).to_pylist()
    assert {row["table"] for row in rows} == {str(tmp_path / "rows.zarr")}
    assert {(row["n"], row["d"]) for row in rows} == {(1000, 3), (1500, 3)}, "no more than there are"
    all_rows = [row for row in rows if row["n"] == 1500 and row["final"] and row["panel"].startswith("(a)")]
    units = X[:, :3] / np.linalg.norm(X[:, :3], axis=1, keepdims=True)
    signs = np.where(y == 2, 1.0, -1.0)
    w = minimise(units, signs, Logistic(), lambda v, step: v / (1 + 1e-4 * step))
    least = np.mean(np.log1p(np.exp(-signs * (units @ w)))) + 1e-4 / 2 * w @ w
    assert {round(row["trivial_error"], 9) for row in all_rows} == {round(np.log(2) - least, 9)}
    assert "rows of Rows" in Path(record["files"]["svg"]).read_text()
    # the same with errors on rows that were held out
    path.write_text(SMALL.replace("metric: gap", "metric: error"))
    record = run_figure(load_figure(path, settings=settings, n_seeds=1), tmp_path / "out")
    rows = parquet.read_table(record["files"]["parquet"]).to_pylist()
    assert {row["what"] for row in rows} == {"log-loss on rows held out"} and {row["n"] for row in rows} == {1000, 1350}
    for row in rows:
        assert row["trivial_error"] == pytest.approx(np.log(2)) and row["nonprivate_error"] < 0.6
        assert row["nonprivate_error"] - 0.01 < row["error"] < 0.9


def test_a_table_that_is_not_there_or_not_public(path, tmp_path):
    from dpdist.data import Dataset
    from dpdist.privacy.budget import Budget
    from dpdist.privacy.ledger.ledger import Ledger

    path.write_text(SMALL.replace("metric: gap", "metric: gap\nreal: {name: Rows, get: ask the archive}"))

    def refused(place, match):
        with pytest.raises(DataError, match=match):
            run_figure(load_figure(path, settings=[f"data.path={place}"]), tmp_path / "out")

    refused(tmp_path / "gone.zarr", r"data\.path: .*gone\.zarr.* Rows: ask the archive\. .*logit stands in for it")
    X = np.random.default_rng(0).normal(size=(50, 3))
    Dataset.from_arrays(tmp_path / "bare.zarr", X=X)
    refused(tmp_path / "bare.zarr", "has no array 'y'.* Rows: ask the archive")
    Dataset.from_arrays(tmp_path / "three.zarr", X=X, y=np.arange(50) % 3)
    refused(tmp_path / "three.zarr", "has 3 different labels; expected 2")
    dataset = Dataset.from_arrays(tmp_path / "private.zarr", X=X, y=np.arange(50) % 2)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.set_limit(dataset.account, Budget(9.0, 1e-5))
    options = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6}
    LogisticRegression(**options, ledger=ledger, cluster="threads").fit(dataset)
    refused(tmp_path / "private.zarr", "a ledger limits what may be told .* only tables that are public")


def test_speed_is_measured_for_every_number_of_workers(path, tmp_path):
    path.write_text(SMALL.replace("metric: gap", "metric: speed"))
    record = run_figure(load_figure(path, n_seeds=2), tmp_path / "out")
    rows = parquet.read_table(record["files"]["parquet"]).to_pylist()
    assert all(row["error"] > 0 and row["trivial_error"] is None and row["nonprivate_error"] is None for row in rows)
    kept = json.loads(next((tmp_path / "out" / "small.runs").glob("*.json")).read_text())
    assert kept["points"][-1][2] == pytest.approx(kept["n"] / kept["seconds"], rel=0.1)
    assert "users per second" in Path(record["files"]["svg"]).read_text()
    one, two = (load_figure(path, settings=[f"cluster={{workers: {k}}}"]).cells[0].job for k in (1, 2))
    assert figures.digest(one, "speed") != figures.digest(two, "speed")
    assert figures.digest(one, "gap") == figures.digest(two, "gap"), "which do not depend on who computes"


def test_the_numbers_say_what_auto_became(tmp_path):
    path = tmp_path / "auto.yaml"
    series = "- {label: plain, set: {method: auto, params.solver: {GradientDescent: {n_rounds: 2}}}}"
    panel = "  - {x: data.n, values: [1000], series: [plain]}\n"
    head, rest = SMALL.split("series:\n")
    path.write_text(f"{head}series:\n  {series}\npanels:\n{panel}presets:{rest.split('presets:')[1]}")
    record = run_figure(load_figure(path, n_seeds=1), tmp_path / "out")
    assert {row["method"] for row in parquet.read_table(record["files"]["parquet"]).to_pylist()} == {"dp-gd"}


def test_projected_gradients_vanish_where_proximal_steps_stay_and_are_below_their_bounds():
    job = load_figure("exp-nc-first").cells[0].job
    generated = PROBLEMS["sphere-sigmoid"].generate({"n": 3000, "d": 4, "labels": (-1, 1)})
    quiet = make_estimator(job).set_params(epsilon=1e8, delta=0.1, cluster="threads", solver__n_rounds=400)
    with nobody_asks():
        quiet.fit(generated.dataset)
    metric = ProjectedGradient(generated, quiet)
    rows = generated.dataset.read(0, 3000)
    plain = np.linalg.norm(Sigmoid().derivative(np.zeros(3000), rows["y"]) @ rows["X"] / 3000)
    assert metric.error(quiet) < 0.05 * metric.trivial() and metric.trivial() == pytest.approx(plain, rel=1e-2)
    for n in (2000, 200_000):
        small = replace(job, data={**job.data, "n": n, "d": 4})
        on_rows, in_population = BOUNDS["gradient"](small), BOUNDS["population-gradient"](small)
        assert in_population - on_rows == pytest.approx(0.25 * np.sqrt(4 * np.log(n) / n), rel=1e-6)
        assert metric.error(quiet) < on_rows
