"""No method of a trusted curator is caught leaking more than it claims (`test_audit_local` does reports of users)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpdist.pipeline.audit import audit_job
from dpdist.pipeline.job import load_job
from dpdist.pipeline.registry import METHODS

PIPELINES = Path(__file__).parents[2] / "pipelines"
CENTRAL = sorted(name for name, method in METHODS.items() if method.trust == "central")
SEEN = {"clip-gd": 0.3, "dp-fw-l1": 0.3, "dp-fw-linf-clip": 0.6, "ht-dp-fw": 0.6, "ht-dp-fw-full": 0.6}
"""Epsilon that audits of this length find; a bound of 0 would be no evidence that they look."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CENTRAL)
def test_a_method_leaks_no_more_than_it_claims(name):
    delta = ("budget.delta=0.01",) if METHODS[name].guarantee != "epsilon" else ()
    epsilon = 1.0 if name == "saa-nrs" else 10.0  # its combination is proved private up to 1
    settings = [f"budget.epsilon={epsilon}", *delta]
    if "n_rounds" in load_job(PIPELINES / f"{name}.yaml").params:
        settings.append("params.n_rounds=1")  # all of the budget into one, which shows a fault best
    record = audit_job(load_job(PIPELINES / f"{name}.yaml", tuple(settings)), n_runs=60, n_rows=50)
    assert not record["contradicted"], record
    assert record["claimed"]["epsilon"] <= epsilon
    assert record["found"]["epsilon"] >= SEEN.get(name, 0.0), record
