"""A report of every method of the local model tells no more than it claims, and the audit sees one that does.

The control of every audit: the reports of the same method with four times its epsilon, audited against the claim.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpdist.jobs import audit_local
from dpdist.jobs.audit_local import audit_reports
from dpdist.jobs.job import Job, load_job, make_estimator
from dpdist.jobs.registry import METHODS
from dpdist.local.frequency.histogram import Histogram
from dpdist.local.mean.columns import Mean

PIPELINES = Path(__file__).parents[2] / "pipelines"
SLOW = pytest.mark.slow
LOCAL = sorted(name for name, method in METHODS.items() if method.trust == "local")


def job_of(name: str, epsilon: float) -> Job:
    delta = ("budget.delta=0.01",) if METHODS[name].guarantee == "(epsilon, delta)" else ()
    return load_job(PIPELINES / f"{name}.yaml", (f"budget.epsilon={epsilon}", *delta))


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW if n == "heavy-hitters" else ()) for n in LOCAL])
def test_a_report_tells_no_more_than_it_claims_and_would_be_caught(name, monkeypatch):
    job, loud = job_of(name, 2.0), job_of(name, 8.0)
    record = audit_reports(job, n_runs=60)
    assert not record["contradicted"], record
    assert record["claimed"]["epsilon"] == 2.0
    drawn = audit_local._drawn
    protocol = make_estimator(loud).protocol(int(loud.data.get("n", 10**5)), record["features"])
    monkeypatch.setattr(audit_local, "_drawn", lambda _, *rest: drawn(protocol, *rest))
    control = audit_reports(job, n_runs=200)
    assert control["contradicted"], control


def test_categories_that_differ_are_asked_about():
    """Also where a category is a label, or the first bits of a long code."""
    for model in (
        Histogram(n_categories=7, epsilon=1.0),
        Histogram(categories=["no", "yes", "maybe"], epsilon=1.0),
        Histogram(categories=["no", "yes", "maybe"], epsilon_levels=[0.5, 1.0]),
        make_estimator(job_of("heavy-hitters", 2.0)),
    ):
        statistic = model.protocol(10**4, 1).statistic
        for name, (one, other) in model.worst_neighbours(10**4, 1).items():
            first, second = (statistic.values(records).ravel()[0] for records in (one, other))
            assert first >= 0 and (second < 0 if "none" in name else second not in (-1, first))


LEVELED = {
    "mean": Mean(domain="interval", low=0.0, high=1.0, epsilon_levels=[0.5, 1.0]),
    "histogram": Histogram(n_categories=3, epsilon_levels=[0.5, 1.0]),
}


@pytest.mark.parametrize("name", LEVELED)
def test_which_level_a_user_has_is_no_leak(name, monkeypatch):
    """It is public, so neighbours have the same."""
    model = LEVELED[name]
    monkeypatch.setattr(audit_local, "make_estimator", lambda job: model)
    record = audit_reports(job_of("duchi-1d", 1.0), n_runs=60)
    assert not record["contradicted"] and record["claimed"]["epsilon"] == 1.0
    for one, other in model.worst_neighbours(10**4, 1).values():
        assert np.array_equal(one["y"], other["y"])
