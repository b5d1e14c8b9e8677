"""What every registered method plans and releases under a seed, as numbers that hold on any processor.

    python -m tests.jobs.recorded [ID ...]      # writes recorded.json anew, or the entries of these methods

Seeded results are promised to stay what they are: a method is recorded once, when it is added. An entry that changes
says that the law of a method changed, which its commit has to explain.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpdist import Ledger
from dpdist.estimators.inference import record_of
from dpdist.estimators.outlook import nobody_asks
from dpdist.jobs import job_data as inputs
from dpdist.jobs.job import Job, load_job
from dpdist.jobs.planning import checked
from dpdist.jobs.registry import METHODS
from dpdist.method import Method, noting

FILE = Path(__file__).with_name("recorded.json")
PIPELINES = Path(__file__).parents[2] / "pipelines"
N_ROWS = 3000
MORE_ROWS = {"kway-fourier": 63_000}
"""Where fewer are refused."""
DIGITS = 10


@dataclass(frozen=True)
class SeededFit:
    """The method's own job, fitted under a seed on at most `N_ROWS` rows."""

    job: Job
    model: Any
    method: Method
    """What the estimator became."""
    read: set[tuple[type, str]]
    """Which parameters the fit read, each with the class that has it."""


def seeded_fit(name: str) -> SeededFit:
    path = PIPELINES / f"{name}.yaml"
    most = MORE_ROWS.get(name, N_ROWS)
    n = min(load_job(path).data.get("n", most), most)
    job = load_job(path, ["params.random_state=7", f"data.n={n}"])
    model, _ = checked(job, inputs.size(job))
    dataset, generated = inputs.load(job)
    model.set_params(cluster="threads", ledger=Ledger(":memory:"))
    with nobody_asks():  # deltas are large for so few rows
        method = model._method(n, inputs.size(job).n_features, dataset.schema.units)
        with noting() as read:
            model.fit(dataset, **inputs.beside(job, generated))
    return SeededFit(job, model, method, read)


def recorded(fit: SeededFit) -> dict[str, Any]:
    """The plan, the releases and the results of a fit."""
    job, model = fit.job, fit.model
    sure = record_of(model)
    if sure is None or "no standard errors are known" in sure.get("none", ""):
        raise AssertionError(
            f"{job.method.id} has no intervals and does not say why: let solve return them, or set unsure"
        )
    ends = {0: model.releases_[0], len(model.releases_) - 1: model.releases_[-1]}
    found = {
        "accountant": model.plan_.accountant,
        "plan": model.plan_.describe(),
        "n_releases": len(model.releases_),
        "releases": [{"name": r.name, "noise_std": r.noise_std, "sensitivity": r.sensitivity, **summary(r.value)}
                     for r in ends.values()],
        "total": float(sum(np.sum(np.asarray(r.value, dtype=np.float64)) for r in model.releases_)),
        "results": {output: summary(getattr(model, output)) for output in job.method.outputs},
    }  # fmt: skip
    return json.loads(json.dumps(rounded(found)))


def summary(value: Any) -> dict[str, Any]:
    """The shape of an array, its first numbers and its norm."""
    array = np.asarray(value, dtype=np.float64)
    return {"shape": list(array.shape), "first": array.ravel()[:3].tolist(), "norm": float(np.linalg.norm(array))}


def rounded(value: Any) -> Any:
    """Plain values, with so many digits as other processors agree on, and texts where JSON has no number."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return value


if __name__ == "__main__":
    known = json.loads(FILE.read_text()) if FILE.exists() and sys.argv[1:] else {}
    known |= {name: recorded(seeded_fit(name)) for name in sys.argv[1:] or METHODS}
    FILE.write_text(json.dumps({name: known[name] for name in sorted(known)}, indent=1) + "\n")
