"""Audits of the solvers' whole transcripts on worst-case neighbours, and of faults that they must catch.

One row, whose gradient is +C in every round on D and -C on D': every release then moves by exactly its sensitivity,
whatever the iterate, so the sum of all releases attains the claimed mu. All bounds hold with probability 1 - 1e-6,
which is also the false-alarm rate of each audit that must pass.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import Dataset, Ledger, LinearRegression, Minimizer
from dpdist.central import ClipNorm, GradientDescent, PreconditionedGradient, RobustNewton, Sample, SubspaceNewton
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.sampling import Batch
from dpdist.errors import Forgotten
from dpdist.estimators.outlook import nobody_asks
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Huber
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.ledger.journal import RunJournal
from dpdist.privacy.mechanisms import additive as mechanisms
from dpdist.queries.direction_sums import DirectionHessianSum
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import SecondMomentSum
from dpdist.queries.scaled_rows import ScaledGradientSum, ScaledMomentSum
from tests.central.linear.objects import objects

EPSILON, DELTA = 4.0, 1e-2
SURE = 1 - 1e-6
N_RUNS = 1000
N_CONTROL = 600  # the bound for twice the claim is 7 of its standard deviations above the claim
N_RETRIES = 6
SOLVERS = {
    "dp-gd": {"solver": "gradient"},
    "dp-agd": {"solver": "accelerated"},
    "dp-sgd": {"solver": "gradient", "rows": Sample(1.0), "combine": "tail-average"},
}


def transcript(label: float, **options) -> float:
    """Fit to the single row (1, label) and add up everything that was released."""
    with nobody_asks():  # delta is large here on purpose: it makes mu large and faults visible
        model = LinearRegression(
            gradient=ClipNorm(1.0), row_norm=1.0, fit_intercept=False, cluster="threads",
            **objects(**{"epsilon": EPSILON, "delta": DELTA, "n_rounds": 3, "step_size": 0.1, **options}),
        ).fit(np.ones((1, 1)), np.array([label]))  # fmt: skip
    return float(sum(release.value[0] for release in model.releases_))


def audit(run=transcript, n_runs=N_RUNS, **options):
    delta = options.get("delta", DELTA)
    return audit_two_point(lambda: run(-1e9, **options), lambda: run(1e9, **options), n_runs, delta, SURE)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_transcript_is_as_private_as_claimed(solver):
    result = audit(**SOLVERS[solver])
    claimed = gdp_mu(EPSILON, DELTA)
    assert result.mu_lower <= claimed
    assert result.mu_lower > 0.35 * claimed, "an audit that finds nothing proves nothing"
    assert result.epsilon_lower <= EPSILON


def test_half_the_noise_is_caught(monkeypatch):
    noise = mechanisms.Gaussian._noise
    monkeypatch.setattr(mechanisms.Gaussian, "_noise", lambda self, scale, *rest: noise(self, scale / 2, *rest))
    assert audit(n_runs=N_CONTROL, **SOLVERS["dp-gd"]).mu_lower > gdp_mu(EPSILON, DELTA)


def test_an_unclipped_row_is_caught(monkeypatch):
    summarise = GradientSum.summarise
    monkeypatch.setattr(GradientSum, "summarise", lambda self, *rest: 2 * summarise(self, *rest))
    assert audit(n_runs=N_CONTROL, **SOLVERS["dp-gd"]).mu_lower > gdp_mu(EPSILON, DELTA)


def retried(label: float) -> float:
    """The mean over several runs under one run id, as an attacker would take it."""
    ledger = Ledger(":memory:")
    dataset = Dataset.from_arrays(X=np.ones((1, 1)), y=np.array([label]))
    values = []
    for _ in range(N_RETRIES):
        with nobody_asks():
            model = LinearRegression(
                solver=GradientDescent(n_rounds=1, step_size=0.1), gradient=ClipNorm(1.0), row_norm=1.0,
                fit_intercept=False, cluster="threads", epsilon=EPSILON, delta=DELTA, ledger=ledger, run_id="run",
            ).fit(dataset)  # fmt: skip
        values.append(model.releases_[0].value[0])
    return float(np.mean(values))


def test_a_retry_draws_no_second_noise():
    assert len({retried(0.0) for _ in range(2)}) == 2
    result = audit(retried, 250)
    assert result.mu_lower <= gdp_mu(EPSILON, DELTA)


def test_a_second_noise_on_retry_is_caught(monkeypatch):
    monkeypatch.setattr(RunJournal, "get", lambda self, release_id: None)
    monkeypatch.setattr(RunJournal, "put_within", lambda self, db, release_id, value: value)
    with pytest.raises(Forgotten, match="has been drawn, and its value is missing"):
        audit(retried, 250)  # the ledger knows
    monkeypatch.setattr("dpdist.privacy.ledger.writer.check_uncommitted", lambda db, release: None)
    assert audit(retried, 250).mu_lower > gdp_mu(EPSILON, DELTA)


SAMPLED = {**SOLVERS["dp-sgd"], "rows": Sample(0.1), "n_rounds": 2, "epsilon": 1.0, "delta": 1e-3}


def test_a_poisson_batch_is_as_private_as_claimed():
    assert audit(n_runs=500, **SAMPLED).epsilon_lower <= 1.0


def test_a_batch_that_holds_everybody_is_caught(monkeypatch):
    monkeypatch.setattr(Batch, "rows", lambda self, start, stop: np.arange(stop - start))
    assert audit(n_runs=500, **SAMPLED).epsilon_lower > 1.0


def robust(row: np.ndarray, label: float) -> float:
    """Fit to a single row on scaled rows: what all of it says of the first axis against the second."""
    with nobody_asks():
        model = LinearRegression(
            solver=RobustNewton(1), loss=Huber(1.0), second_moment=1.0, fit_intercept=False, cluster="threads",
            epsilon=2 * EPSILON, delta=DELTA,
        ).fit(row[None], np.array([label]))  # fmt: skip
    moment, gradient = model.releases_[1], model.releases_[3]  # around them, counts of norms and of residuals
    values = (moment.value[0] - moment.value[2]) * moment.sensitivity, -gradient.value.sum() * gradient.sensitivity / 2
    return float(values[0] / moment.noise_std**2 + values[1] / gradient.noise_std**2)


def audit_robust() -> float:
    """How many times the claimed mu is found, on rows and labels far beyond any scale."""
    first, second = np.eye(2) * 1e6
    found = audit_two_point(lambda: robust(first, 1e12), lambda: robust(second, -1e12), 300, DELTA, SURE)
    return found.mu_lower / gdp_mu(2 * EPSILON, DELTA)


def test_a_fit_on_scaled_rows_is_as_private_as_claimed():
    assert 0.2 < audit_robust() <= 1


@pytest.mark.parametrize("kind", [ScaledGradientSum, ScaledMomentSum])
def test_rows_that_are_not_scaled_down_are_caught(kind, monkeypatch):
    summarise = kind.summarise
    monkeypatch.setattr(kind, "summarise", lambda self, *rest: 10 * summarise(self, *rest))
    assert audit_robust() > 1


def with_curvature(row: np.ndarray, label: float, solver: str) -> float:
    """Fit to a single row with a matrix of curvature: the likelihood of the first axis against the second."""
    with nobody_asks():
        model = Minimizer(
            "logistic", solver=SOLVERS_WITH_CURVATURE[solver], row_norm=1.0, fit_intercept=False, cluster="threads",
            epsilon=2 * EPSILON, delta=DELTA,
        ).fit(row[None], np.array([label]))  # fmt: skip
    found = {release.name.split()[0]: release for release in model.releases_}
    matrix, gradient = found["hessian" if "hessian" in found else "second"], found["gradient"]
    first, second = np.eye(2)
    if "hessian" in found:  # along the released gradient, and what is left of the row's length
        first, second = (np.array([c, np.sqrt(1 - c * c)]) for c in gradient.value / np.linalg.norm(gradient.value))
    apart = np.outer(first, first) - np.outer(second, second)
    seen = float(np.sum(apart * unpack_symmetric(matrix.value))) * matrix.sensitivity / np.sqrt(2)
    return seen / matrix.noise_std**2 - float(gradient.value.sum()) * gradient.sensitivity / 2 / gradient.noise_std**2


SOLVERS_WITH_CURVATURE = {
    "dp-pgd-matrix": PreconditionedGradient(1, start=[-50.0, 50.0]),
    "dp-newton-subspace": SubspaceNewton(1),
}


def audit_with_curvature(solver: str) -> float:
    """How many times the claimed mu is found, on rows at their bound, which count most."""
    first, second = np.eye(2)
    found = audit_two_point(
        lambda: with_curvature(first, 1.0, solver), lambda: with_curvature(second, -1.0, solver), 300, DELTA, SURE
    )
    return found.mu_lower / gdp_mu(2 * EPSILON, DELTA)


@pytest.mark.parametrize("solver", SOLVERS_WITH_CURVATURE)
def test_a_fit_with_released_curvature_is_as_private_as_claimed(solver):
    assert 0.1 < audit_with_curvature(solver) <= 1


@pytest.mark.parametrize(
    ("solver", "kind", "times"),
    [
        ("dp-pgd-matrix", SecondMomentSum, 10),
        ("dp-pgd-matrix", GradientSum, 4),
        ("dp-newton-subspace", DirectionHessianSum, 40),
        ("dp-newton-subspace", GradientSum, 4),
    ],
)
def test_a_matrix_or_a_gradient_that_is_not_bounded_is_caught(solver, kind, times, monkeypatch):
    summarise = kind.summarise
    monkeypatch.setattr(kind, "summarise", lambda self, *rest: times * summarise(self, *rest))
    assert audit_with_curvature(solver) > 1


class Events:
    """The order of charges, draws and uses in a fit."""

    def __init__(self, monkeypatch):
        self.seen: list[str] = []
        for owner, method, name in (
            (Ledger, "open_run", "run charged"),
            (Ledger, "record_release", "release recorded"),
            (mechanisms.Gaussian, "release", "noise drawn"),
            (RunJournal, "put_within", "journalled"),
            (Ledger, "commit", "committed"),
        ):
            monkeypatch.setattr(owner, method, self.spy(getattr(owner, method), name))

    def spy(self, function, name):
        def spied(*args, **kwargs):
            result = function(*args, **kwargs)
            self.seen.append(name)
            return result

        return spied

    def check(self) -> None:
        assert self.seen[0] == "run charged" and self.seen.count("run charged") == 1
        each = ["release recorded", "noise drawn", "journalled", "committed"]
        assert self.seen[1:] == each * (len(self.seen) // 4)


def test_every_charge_comes_before_its_noise_and_every_use_after_the_journal(monkeypatch):
    events = Events(monkeypatch)
    transcript(0.0)
    events.check()


def test_a_charge_after_the_release_is_caught(monkeypatch):
    events = Events(monkeypatch)
    record, draw = Coordinator._record, Coordinator._draw

    def late(self, *args):
        value = draw(self, *args)
        record(self, *self._postponed)
        return value

    monkeypatch.setattr(Coordinator, "_record", lambda self, *args: setattr(self, "_postponed", args))
    monkeypatch.setattr(Coordinator, "_draw", late)
    transcript(0.0)
    with pytest.raises(AssertionError):
        events.check()
