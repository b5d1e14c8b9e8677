"""``dpdist bootstrap``: intervals of a finished run by fits to rows of its own law, in its report and on its card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from dpdist import Dataset, Ledger, load_run
from dpdist.cli.card import command as card
from dpdist.cli.intervals_by_fits import command as bootstrap
from dpdist.cli.run import summary
from dpdist.data.ingestion import ingest
from dpdist.errors import BudgetError, DataError, NoIntervals
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.jobs.simulated_intervals import bootstrap_run, public_rows
from dpdist.reports.model_card import model_card
from dpdist.reports.report import write_report
from dpdist.runs.directory import OutputError
from tests.test_html import harmless


def called(command: Any, *words: object) -> str:
    found = CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def of_two_groups(place: Path, **changes: Any) -> dict[str, Any]:
    changes = {"data.n": 1000, "data.d": 3, "params.start": "[1, 0, 0]", "params.random_state": 0, **changes}
    asked = [f"{key}={value}" for key, value in changes.items()]
    return run_job(load_job("dp-em", [*asked, f"output={place}", f"ledger={place}.sqlite"]))


@pytest.fixture(scope="module")
def groups(tmp_path_factory: Any) -> Path:
    place = tmp_path_factory.mktemp("bootstrap") / "run"
    of_two_groups(place)
    return place


@pytest.fixture(scope="module")
def table(tmp_path_factory: Any) -> Path:
    """A classifier whose solver has no formula, of a table with units; and public rows, some of which are bad."""
    folder = tmp_path_factory.mktemp("classes")
    rng = np.random.default_rng(1)

    def drawn(n: int) -> pd.DataFrame:
        return pd.DataFrame({"age": rng.uniform(0, 100, n), "size": rng.uniform(0, 10, n)})

    rows = drawn(3000)
    odds = 0.04 * (rows["age"] - 50) - 0.3 * (rows["size"] - 5)
    rows["late"] = np.where(odds + rng.logistic(size=3000) > 0, "yes", "no")
    rows.to_csv(folder / "t.csv", index=False)
    public = drawn(500)
    public.loc[3, "age"] = np.nan
    public.to_csv(folder / "public.csv", index=False)
    ingest(folder / "t.csv", folder / "x.zarr", features=["age", "size"], ranges={"age": (0, 100), "size": (0, 10)},
           label="late", label_levels=["no", "yes"])  # fmt: skip
    (folder / "job.yaml").write_text(
        f"method: dp-gd\nestimator: LogisticRegression\ndata: {{path: {folder}/x.zarr}}\n"
        "params: {classes: ['no', 'yes'], row_norm: 1.5}\nbudget: {epsilon: 8.0, delta: 1.0e-6}\n"
        f"ledger: {folder}/ledger.sqlite\noutput: {folder}/run\n"
    )
    run_job(load_job(folder / "job.yaml"))
    return folder


def test_a_run_tells_how_to_have_intervals_and_then_shows_them_at_no_cost(groups: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(groups, place)
    record = json.loads((place / "run.json").read_text())
    assert f"dpdist bootstrap {place}" in summary(record, str(place))
    before = Ledger(f"{groups}.sqlite").accounts()
    told = called(bootstrap, place, "--n-fits", 50)
    assert "standard error" in told and "times 50 fits" in told and "Intervals of 95 %" in told
    assert Ledger(f"{groups}.sqlite").accounts() == before
    assert json.loads((place / "run.json").read_text()) == record, "what the run was stays as it is"
    kept = json.loads((place / "bootstrap.json").read_text())
    for row, released in zip(kept["inference"]["rows"], load_run(place).coef_, strict=True):
        assert row["high"] - row["coefficient"] == pytest.approx(1.959964 * row["standard_error"])
        assert 0 < abs(row["coefficient"] - released) < 5 * row["standard_error"]
    page = harmless((place / "report.html").read_text()).text
    assert "No standard errors" in page and "By fits to rows of its own law" in page and "Rests on the model" in page
    assert (
        "<svg" in (place / "report.html").read_text().split("By fits to rows of its own law")[1].split("</section>")[0]
    )
    shown = called(card, place)
    assert "by fits to simulated rows" in shown and "No intervals" not in shown and "lower end" in shown
    (place / "bootstrap.json").write_text("{")
    again = json.loads(called(bootstrap, place, "--n-fits", 50, "--level", 0.8, "--json"))
    narrow = again["inference"]
    assert (
        narrow["level"] == 0.8 and narrow["rows"][0]["standard_error"] == kept["inference"]["rows"][0]["standard_error"]
    )
    assert narrow["rows"][0]["high"] < kept["inference"]["rows"][0]["high"]


def test_how_far_it_is_stands_on_stderr(groups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.cli.progress_bar.EVERY", 0.0)
    place = tmp_path / "run"
    shutil.copytree(groups, place)
    said = CliRunner().invoke(bootstrap, [str(place), "--n-fits", "50", "--json"], catch_exceptions=False)
    n_made = 50 * int(json.loads(said.stdout)["inference"]["notes"][0].split("Of ")[1].split()[0])
    lines = said.stderr.splitlines()
    assert lines[0] == "dpdist: bootstrap, fit 1 of 100 (250 at most)" and len(lines) == n_made
    assert lines[-1] == f"dpdist: bootstrap, fit {n_made} of {n_made} (250 at most)"
    quiet = CliRunner().invoke(bootstrap, [str(place), "--n-fits", "50", "--quiet"], catch_exceptions=False)
    assert quiet.exit_code == 0 and quiet.stderr == ""


def test_intervals_are_in_the_units_of_the_table_too(table: Path) -> None:
    """Per year of age, a hundredth of the range; a public row that cannot be used is left out."""
    place = table / "run"
    assert f"dpdist bootstrap {place} --public DATA" in summary(
        json.loads((place / "run.json").read_text()), str(place)
    )
    with pytest.raises(NoIntervals, match=r"pass public_X \(--public\), public rows"):
        bootstrap_run(place, n_fits=50)
    assert not (place / "bootstrap.json").exists()
    kept = bootstrap_run(place, n_fits=50, public=str(table / "public.csv"))
    assert kept["public_rows"] == 499
    units = kept["original_units"]
    (low, high), (least, most) = units["intervals"][0][:2]
    assert low < 0.04 < high and least < -0.3 < most and high - low < 0.03
    row = kept["inference"]["rows"][0]
    np.testing.assert_allclose(units["coefficients"][0][0], row["coefficient"] / 50, rtol=1e-9)
    assert "without the bias of the method" in called(card, place)
    assert "In the units of the table" in (place / "report.html").read_text()


def test_public_rows_may_be_a_dataset(table: Path) -> None:
    ingest(table / "public.csv", table / "public.zarr", features=["age", "size"], on_bad="drop",
           ranges={"age": (0, 100), "size": (0, 10)})  # fmt: skip
    own = json.loads((table / "run" / "run.json").read_text())["dataset"]
    rows = public_rows(load_run(table / "run"), own, str(table / "public.zarr"), None, ",")
    assert rows.shape == (499, 2) and np.abs(rows).max() <= 1
    (table / "none.csv").write_text("age,size\n")
    with pytest.raises(DataError, match=r"public_X \(--public\) has 0 rows, too few .* pass 40 or more"):
        bootstrap_run(table / "run", public=str(table / "none.csv"))
    with pytest.raises(DataError, match=r"no\.csv"):
        bootstrap_run(table / "run", public="no.csv")


def test_the_rows_of_the_run_are_not_public(table: Path, tmp_path: Path) -> None:
    """Intervals would be made of them without noise, at no charge; what pays from one account is of the same people."""
    with pytest.raises(DataError, match=r"x\.zarr is not public: it is the protected dataset"):
        bootstrap_run(table / "run", n_fits=50, public=str(table / "x.zarr"))
    own = json.loads((table / "run" / "run.json").read_text())["dataset"]
    Dataset.from_arrays(tmp_path / "later.zarr", X=np.zeros((50, 2)), account=own["account"])
    with pytest.raises(DataError, match="or pays from the same account"):
        public_rows(load_run(table / "run"), own, str(tmp_path / "later.zarr"), None, ",")


@pytest.mark.parametrize(
    ("asked", "error", "match"),
    [
        ({"n_fits": 10}, BudgetError, "n_fits must be a whole number of at least 50, got 10"),
        ({"level": 95.0}, BudgetError, "level must be a number between 0 and 1, such as 0.95, got 95.0"),
        ({"random_state": -1}, BudgetError, "random_state must be a whole number of at least 0"),
        ({"public": "no.csv"}, DataError, "knows no names of columns"),
        ({"public": "no.zarr", "format": "zarr"}, DataError, "there is no dataset at"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_kept(groups: Path, asked: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        bootstrap_run(groups, **asked)
    assert not (groups / "bootstrap.json").exists()


def test_runs_that_have_no_law_or_no_end_are_refused(groups: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no run at"):
        bootstrap_run(tmp_path / "nothing")
    means = tmp_path / "means"
    run_job(load_job("trim-mean-ss", ["data.n=2000", f"output={means}", f"ledger={tmp_path}/l"]))
    with pytest.raises(NoIntervals, match="does not say how rows come about"):
        bootstrap_run(means)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "[" * 200_000, '{"format": "dpdist-bootstrap/1", "run_id": "another", "inference": {"rows": []}}'],
    ids=["no end", "a list", "brackets", "another run"],
)
def test_what_is_damaged_or_of_another_run_is_not_shown(groups: Path, tmp_path: Path, text: str) -> None:
    place = tmp_path / "run"
    shutil.copytree(groups, place)
    (place / "bootstrap.json").write_text(text)
    for show in (write_report, lambda place: called(card, place)):
        with pytest.raises(
            OutputError, match="damaged or of another run: remove it, or write it again with dpdist boot"
        ):
            show(place)


def test_numbers_that_no_page_can_show_are_damage_too(groups: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(groups, place)
    run_id = json.loads((place / "run.json").read_text())["run_id"]
    found = {"format": "dpdist-bootstrap/1", "run_id": run_id, "inference": {"rows": [], "notes": [], "level": 10**400}}
    (place / "bootstrap.json").write_text(json.dumps(found))
    for show in (write_report, model_card):
        with pytest.raises(OutputError, match="OverflowError"):
            show(place)
    (place / "run.json").write_text("[" * 200_000)
    with pytest.raises(OutputError, match="is damaged"):
        write_report(place)
