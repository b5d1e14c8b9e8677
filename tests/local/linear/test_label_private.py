"""Sparse regression with private labels: only the label is protected, it is reported once, and sums are exact."""

from __future__ import annotations

import contextlib
import math

import dask.array as da
import numpy as np
import pytest

from dpdist import Budget, Coordinator, Ledger
from dpdist.data import Dataset
from dpdist.errors import BudgetError
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.local import SparseRegression, simulate
from dpdist.local.linear import label_private
from dpdist.local.linear.label_private import Label, LabelLasso, LabelPasses, LabelThresholding
from dpdist.local.linear.links import Wave
from dpdist.local.randomisers.scalars import OneBit
from dpdist.local.sparse.sparse_statement import General
from dpdist.local.survey.reports import Reports
from dpdist.privacy.accounting.closed_forms import gdp_epsilon
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.reported import Reported
from dpdist.privacy.randomness.bits import SystemBits
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.privacy.randomness.streams import Stream
from dpdist.problems.sparse_problems import sparse_design
from tests.privacy.exhibits import local_labels
from tests.privacy.exhibits.table import EXHIBITS, audit


def design(n: int, d: int, k: int, seed: int, **parameters):
    return sparse_design(n, d, n_nonzero=k, random_state=seed, dtype="float32", **parameters)


def error(model: SparseRegression, truth: np.ndarray) -> float:
    return float(np.linalg.norm(model.coef_ - truth) / np.linalg.norm(truth))


def decided(n: int, d: int, k: int = 2, **more):
    """The method of a fit."""
    parameters = {"private": "label", "noise_bound": 0.05, "design": "sign", **more}
    return SparseRegression(k, **parameters)._method_for(n, d)


@pytest.mark.parametrize("link", ["identity", "wave"])
def test_labels_are_in_their_domain(link):
    y = np.array([0.0, 1.0, -50.0, 1e300, -1e300, np.nan, np.inf, -np.inf])
    statistic = Label(2.0) if link == "identity" else Label(2.0, Wave())
    for shape in (-1, (-1, 1)):
        values = statistic.values({"y": y.reshape(shape)})
        assert values.shape == (8, 1) and np.isfinite(values).all() and np.abs(values).max() == 1
        assert not values[5:].any()
    assert statistic.values({"y": np.array([3], dtype=np.int8)}).shape == (1, 1)


def test_a_report_does_not_depend_on_the_features():
    """Only the server's sum does; a report with another x is the same bit for bit."""
    protocol = decided(1000, 3).protocols[0]
    rng = np.random.default_rng(0)
    y = rng.normal(size=1000)
    made = [
        protocol.randomise({"X": X, "y": y}, StreamDraws(Stream(bytes(32), "test").generator(0)))
        for X in (rng.normal(size=(1000, 3)), np.full((1000, 3), np.nan))
    ]
    assert (made[0] == made[1]).all()
    assert protocol.randomiser.epsilon == 1.0 and protocol.statistic.bound == pytest.approx(2.05)
    with pytest.raises(BudgetError, match="features"):
        protocol.accumulate(made[0])


@pytest.mark.parametrize("kind", ["sign", "general"])
def test_sums_are_those_of_the_reports(kind):
    rng = np.random.default_rng(1)
    X = np.sign(rng.normal(size=(3000, 4))) if kind == "sign" else rng.normal(size=(3000, 4))
    y = X @ [0.6, 0.0, 0.0, -0.8]
    protocol = decided(3000, 4, design=kind).protocols[0]
    block = {"X": X, "y": y}

    def draws():
        return StreamDraws(Stream(bytes(32), "test").generator(0))

    reports = protocol.statistic.restore(
        protocol.randomiser.decode(np.ones(1), 1) * protocol.randomise(block, draws()).astype(float)
    )
    S, b = protocol.moments(protocol.summarise(block, draws()).astype(float), 3000)
    tolerance = {"atol": 0.0 if kind == "sign" else 1e-4, "rtol": 1e-12}
    assert np.allclose(S, X.T @ X / 3000, **tolerance) and np.allclose(b, X.T @ reports / 3000, **tolerance)
    theta = np.array([0.5, 0.0, 0.0, -0.5])
    total = protocol.summarise(block, draws(), theta).astype(float)
    assert np.allclose(protocol.mean_gradient(total, 3000), S @ theta - b, atol=1e-3)


def test_public_features_that_are_missing_count_for_nothing():
    data, truth = design(20_000, 6, 1, 0)
    rows = data.read(0, 20_000)
    X, y = rows["X"].copy(), rows["y"].copy()
    X[:50], X[50] = np.nan, 1e30
    y[100:120] = [np.nan, np.inf] * 10
    model = SparseRegression(1, private="label", design="sign", noise_bound=0.05, epsilon=4.0, random_state=0).fit(X, y)
    assert error(model, truth) < 0.05


def test_the_guarantee_names_the_label():
    data, _ = design(2000, 5, 1, 0)
    model = SparseRegression(1, private="label", design="sign", noise_bound=0.05, random_state=0).fit(data)
    text = model.guarantee_.text
    assert "replacing the label (the features are taken for public) of any one row" in text and "all data" not in text
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, 0.0)
    assert "the label" in simulate(model.protocol(2000, 5), data, random_state=0).guarantee.text
    record = SparseRegression(1, "marginal", design="sign", noise_bound=0.05, random_state=0, epsilon=4.0).fit(data)
    assert "all data of any one row" in record.guarantee_.text


def test_no_sums_without_reports():
    data, _ = design(2000, 5, 1, 0)
    with pytest.raises(BudgetError, match="fidelity"):
        SparseRegression(1, private="label", noise_bound=0.05, fidelity="sum").fit(data)
    gaussian = {
        "method": LabelThresholding(reports="gaussian"),
        "delta": 1e-6,
    }  # whose sums have a law, but not their products with features
    with pytest.raises(BudgetError, match="fidelity"):
        SparseRegression(1, private="label", noise_bound=0.05, fidelity="sum", **gaussian).fit(data)


PLANS = {
    "iht": {},
    "lasso": {"method": "lasso"},
    "general": {"design": "general"},
    "inverted": {"link": "wave"},
    "gradient": {"link": "wave", "method": LabelThresholding(link_mode="gradient")},
    "gaussian": {"method": LabelLasso(reports="gaussian"), "delta": 1e-6},
    "one-bit": {"method": LabelThresholding(reports="one-bit")},
}


@pytest.mark.filterwarnings("ignore:coefficients below:UserWarning", "ignore:the noise in:UserWarning")
@pytest.mark.parametrize("name", PLANS)
def test_partitions_change_nothing(name):
    data, _ = design(10_000, 6, 1, 2, link=PLANS[name].get("link", "identity"))
    rows = data.read(0, 10_000)
    parameters = {"private": "label", "design": "sign", "noise_bound": 0.05, "random_state": 1, **PLANS[name]}
    found = [
        SparseRegression(1, **parameters, cluster=cluster).fit(Dataset.from_arrays(partition_rows=part, **rows)).coef_
        for part, cluster in ((10_000, None), (700, "threads"))
    ]
    assert (found[0] == found[1]).all() and np.count_nonzero(found[0]) == 1


def test_passes_read_the_same_reports():
    """With steps of length 0 the point never moves: twenty passes have to bring the same sum twenty times."""
    data, _ = design(10_000, 6, 1, 3)
    protocol = decided(10_000, 6).protocols[0]
    rows = data.read(0, 10_000)
    query = LabelPasses(protocol, "report", 20, 10_000, 1, 1.0, 0.0)
    seen = []

    def ask(state):
        seen.append(state[0])
        return query.summarise_at(0, rows, state, None)

    totals = query.explore(ask, None, None, SystemBits())
    assert totals.shape == (20, 6) and (totals == totals[0]).all() and len(set(seen)) == 1
    assert not (query.explore(ask, None, None, SystemBits()) == totals).all()  # another run has another key
    assert query.passes == 20 and query.reported == protocol.cost


def test_passes_end_where_the_moments_do(monkeypatch):
    """Other reports (the question is another one), the same estimate up to their noise."""
    data, truth = design(20_000, 30, 2, 4)
    parameters = {"private": "label", "design": "sign", "noise_bound": 0.05, "epsilon": 4.0, "random_state": 0}
    packed = SparseRegression(2, **parameters).fit(data)
    monkeypatch.setattr(label_private, "MOST_PACKED", 10)
    passes = SparseRegression(2, **parameters).fit(data)
    assert len(passes.releases_) == 1 and passes.releases_[0].value.shape == (20, 30)
    assert error(packed, truth) < 0.03 and error(passes, truth) < 0.03
    general = SparseRegression(2, **{**parameters, "design": General(eigenvalues=(0.8, 1.2))}).fit(data)
    assert error(general, truth) < 0.03


def test_almost_no_noise_at_a_large_epsilon():
    for link, mode in (("identity", "invert"), ("wave", "invert"), ("wave", "gradient")):
        data, truth = design(5000, 20, 3, 5, link=link)
        model = SparseRegression(
            3, private="label", design="sign", label_bound=30.0 if mode == "gradient" else 4.0,
            link=link, method=LabelThresholding(link_mode=mode), epsilon=40.0, random_state=0,
        ).fit(data)  # fmt: skip
        assert error(model, truth) < 0.01


def test_the_clip_is_what_protects():
    """The labels that the model allows differ by more than the printed noise hides: true epsilon 36 at nominally 1."""
    epsilon, delta = local_labels.BUDGET
    assert gdp_epsilon(2 * local_labels.LARGEST / local_labels.printed_std(epsilon, delta), delta) > 30
    found = audit(next(e for e in EXHIBITS if e.id == "label-ldp-iht"))
    assert found["printed"] > 5 * epsilon and found["ours"] <= epsilon


def test_labels_are_clipped_by_public_numbers():
    plan = decided(1000, 5, link=Wave(), method=LabelThresholding(link_mode="gradient"))
    assert plan.bound == pytest.approx(1 + 2 * 9 + 0.05) and plan.in_passes
    assert decided(1000, 5, link=Wave()).bound == pytest.approx(2 + 0.05 / 7)
    assert decided(1000, 5, method=LabelThresholding(reports="one-bit")).protocols[0].randomiser == OneBit(1, 1.0)
    plan = decided(10_000, 5)
    assert plan.std == pytest.approx(2.05 * 2.071 / 100, rel=1e-3)


# -- the acceptance table ----------------------------------------------------------------------------------------------
CASES = {
    "label-ldp-iht": (20_000, 256, 5, {}, {"epsilon": 1.0}, 0.07),
    "label-ldp-lasso": (10_000, 512, 5, {}, {"epsilon": 2.0, "method": "lasso"}, 0.14),
    "label-ldp-iht-nonlinear": (20_000, 256, 5, {"link": "wave"}, {"epsilon": 1.0, "link": "wave"}, 0.08),
}


def median_error(name: str, n_seeds: int) -> float:
    n, d, k, data, parameters, _ = CASES[name]
    errors = []
    for seed in range(n_seeds):
        rows, truth = design(n, d, k, seed, **data)
        model = SparseRegression(k, private="label", design="sign", noise_bound=0.05, random_state=seed, **parameters)
        errors.append(error(model.fit(rows), truth))
    return float(np.median(errors))


@pytest.mark.parametrize("name", CASES)
def test_utility(name):
    assert median_error(name, 5) <= CASES[name][-1]


@pytest.mark.slow
def test_the_number_of_features_hardly_matters():
    errors = []
    for d in (128, 2048):
        for seed in range(3):
            rows, truth = design(20_000, d, 5, seed)
            model = SparseRegression(5, private="label", design="sign", noise_bound=0.05, random_state=seed).fit(rows)
            errors.append(error(model, truth))
    assert max(errors) < 0.15 and math.isclose(np.median(errors[:3]), np.median(errors[3:]), abs_tol=0.06)


# -- what it is charged for -----------------------------------------------------------------------------------------


def unread(n: int, d: int) -> dict[str, da.Array]:
    """Rows that nobody may read."""

    def fail(block):
        raise AssertionError("data was read")

    return {
        "X": da.zeros((n, d), chunks=(n, d)).map_blocks(fail, dtype=float, meta=np.empty((0, 0))),
        "y": da.zeros(n, chunks=n).map_blocks(fail, dtype=float, meta=np.empty(0)),
    }


def fit_labels(dataset: Dataset, ledger: Ledger, **more) -> SparseRegression:
    settings = {"private": "label", "design": "sign", "noise_bound": 0.05, "random_state": 0, "cluster": "threads"}
    return SparseRegression(1, ledger=ledger, **{**settings, **more}).fit(dataset)


@pytest.mark.parametrize("act", [lambda *a: fit_labels(*a), lambda data, book: simulate_labels(data, book)])
def test_a_limit_about_rows_is_not_emptied_by_a_guarantee_about_labels(act):
    """It holds for labels only, so somebody else's rows would lose their budget to a promise that nobody keeps."""
    ledger = Ledger(":memory:")
    ledger.set_limit("survey", Budget(1.0))
    with pytest.raises(BudgetError, match=r"about one row, and the charge is about one label.*account of their own"):
        act(Dataset.from_arrays(**unread(1000, 3), dataset_id="survey"), ledger)
    assert ledger.spent("survey").epsilon == 0


def simulate_labels(dataset: Dataset, ledger: Ledger) -> None:
    simulate(decided(1000, 3, method=LabelThresholding()).protocols[0], dataset, ledger=ledger, cluster="threads")


@pytest.mark.parametrize("said_by", ["the limit", "the dataset", "nobody"])
def test_an_account_about_labels_pays_epsilon_for_them(said_by):
    rows = design(2000, 4, 1, seed=0)[0].read(0, 2000)
    unit = "label" if said_by == "the dataset" else "row"
    dataset = Dataset.from_arrays(**rows, dataset_id="survey", unit=unit, max_rows_per_unit=1)
    ledger = Ledger(":memory:")
    if said_by != "nobody":
        ledger.set_limit("survey", Budget(2.0), unit="label" if said_by == "the limit" else None)
    model = fit_labels(dataset, ledger)
    (run,) = ledger.history("survey")
    assert (run.epsilon, run.unit) == (1.0, "label") and ledger.account("survey").unit == "label"
    for text in (model.guarantee_.text, model.plan(2000, 4).guarantee(simulation=False).text):
        assert "replacing the label (the features are taken for public) of any one row" in text
    assert "for the label" in str(model.plan_)
    rows = fit_labels(dataset, ledger, private="record", noise_bound=0.5)  # whole rows cover their labels
    assert "replacing all data of any one row" in rows.guarantee_.text
    assert ledger.spent("survey").epsilon == 2.0


def test_a_query_of_labels_needs_a_run_that_says_so():
    data = Dataset.from_arrays(**unread(1000, 3))
    protocol = decided(1000, 3, method=LabelThresholding()).protocols[0]
    with Coordinator(data, Budget(1.0), arrays=dict.fromkeys(("X", "y"), np.asarray), cluster="threads") as run:
        item = run.plan([Item("labels", Reported(protocol.cost))])["labels"]
        with pytest.raises(BudgetError, match="charged for all data, and Reports protects the label"):
            run.release(Reports(protocol), item)


def test_a_dry_run_says_what_of_a_row_is_protected_and_what_the_ledger_would_refuse(tmp_path):
    rows = design(2000, 4, 1, seed=0)[0].read(0, 2000)
    Dataset.from_arrays(tmp_path / "rows.zarr", **rows)
    job = tmp_path / "job.yaml"
    job.write_text(
        f"method: label-ldp-iht\ndata: {{path: {tmp_path}/rows.zarr}}\nbudget: {{epsilon: 1.0}}\n"
        f"params: {{n_nonzero: 1, noise_bound: 0.05, design: sign}}\nledger: {tmp_path}/ledger.sqlite\n"
    )
    dry = run_job(load_job(job), dry_run=True)
    assert "the label (the features are taken for public)" in dry["guarantee"]["text"]
    assert dry["guarantee"]["protects"] == "the label (the features are taken for public)"
    with contextlib.closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        ledger.set_limit(Dataset.open(tmp_path / "rows.zarr").id, Budget(3.0))
    with pytest.raises(BudgetError, match="about one label"):
        run_job(load_job(job), dry_run=True)
