"""A report of every method of the local model tells no more than it claims, and an audit sees one that does."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dpdist.jobs import audit_local
from dpdist.jobs.audit_local import audit_reports
from dpdist.jobs.job import load_job
from dpdist.jobs.registry import METHODS
from dpdist.local.randomisers.scalars import OneBit
from dpdist.local.statistics.bounded_values import Box
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.randomness.draws import Draws

PIPELINES = Path(__file__).parents[2] / "pipelines"
SLOW = pytest.mark.slow
LOCAL = sorted(name for name, method in METHODS.items() if method.trust == "local")
SEEN = {"duchi-1d": 1.2, "krr": 1.0, "oue": 0.8}
"""Epsilon, of 2, that an audit of this length finds; a bound of 0 would be no evidence that it looks."""
FAINT = ("privunit", "privunitg", "ldp-iht", "label-ldp-iht")
"""Of vectors audits find 0.3 to 1.7, and sometimes nothing: less than one in ten, so not six in a row (1e-6)."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW if n == "heavy-hitters" else ()) for n in LOCAL])
def test_a_report_tells_no_more_than_it_claims(name):
    delta = ("budget.delta=0.01",) if METHODS[name].guarantee != "epsilon" else ()
    job = load_job(PIPELINES / f"{name}.yaml", ("budget.epsilon=2.0", *delta))
    record = audit_reports(job, n_runs=60)
    assert not record["contradicted"], record
    assert record["claimed"]["epsilon"] == 2.0
    assert record["found"]["epsilon"] >= SEEN.get(name, 0.0)
    if name in FAINT:
        others = (audit_reports(job, n_runs=60) for _ in range(5))
        assert any(each["found"]["epsilon"] > 0.1 for each in itertools.chain([record], others))


@dataclass(frozen=True)
class Boasting(OneBit):
    """A sign that costs twice what it claims."""

    def randomise(self, values: np.ndarray, draws: Draws) -> np.ndarray:
        return OneBit(1, 2 * self.epsilon).randomise(values, draws)


def test_a_report_that_tells_more_is_caught(monkeypatch):
    job = load_job(PIPELINES / "duchi-1d.yaml", ("budget.epsilon=2.0",))
    protocol = LocalProtocol(Box(1), Boasting(1, 2.0))
    monkeypatch.setattr(audit_local, "make_estimator", lambda job: SimpleNamespace(protocol=lambda n, d: protocol))
    assert audit_reports(job, n_runs=60)["contradicted"]
