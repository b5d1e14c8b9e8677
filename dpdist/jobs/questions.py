"""What a job asks of users on their own devices, and what it makes of the reports that come back."""

from __future__ import annotations

import inspect
from typing import Any

from dpdist.errors import DataError
from dpdist.jobs import job_data as inputs
from dpdist.jobs.job import Job, locating, make_estimator
from dpdist.jobs.planning import size_of
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.survey.questionnaire import Survey
from dpdist.local.survey.simulation import Collected


def question(
    job: Job,
    *,
    n_rows: int | None = None,
    n_features: int | None = None,
    round_: int = 0,
    state: Any = None,
) -> Survey:
    """The question of a job in the local model.

    Parameters
    ----------
    job : Job
    n_rows, n_features : int, optional
        The users that are expected, and what each of them knows; with both, the data of the job need not exist.
    round_ : int
        Of a method that asks several groups of users, the number of the group.
    state : sequence of float, optional
        Public numbers that a later group is asked about.
    """
    model, shape, beside = _asked(job, n_rows, n_features)
    with locating(job):
        groups = model.n_questions(*shape)
        if groups > 1 and round_ >= groups:
            raise DataError(f"{job.method.id} asks {groups} groups of users, with the numbers 0 to {groups - 1}")
        protocol = model.protocol(*shape, round_ if groups > 1 else 0, **beside)
        if getattr(protocol.statistic, "packed", False):
            raise DataError(
                "layout='packed' is how a store holds answers, and a device has a list of them: ask with "
                "layout='cells' and as many features as there are tasks; its reports are the same"
            )
        classes = getattr(model, "classes", None)  # on file they are names, which devices turn into -1 and +1
        return Survey(protocol, round_, tuple(map(str, () if classes is None else classes)), state)


def fit_reports(
    job: Job, reports: Collected, *, n_rows: int | None = None, n_features: int | None = None
) -> LocalEstimator:
    """The estimator of a job, fitted to what real users answered to its `question`; parameters as there."""
    model, shape, beside = _asked(job, n_rows, n_features)
    with locating(job):
        return model.fit_reports(reports, *shape, **beside)


def _asked(job: Job, n_rows: int | None, n_features: int | None) -> tuple[LocalEstimator, tuple[int, int], Any]:
    """The estimator, the numbers of users and features, and what ``fit`` takes beside rows."""
    if job.method.trust != "local":
        raise DataError(
            f"{job.source}: {job.method.id} has a trusted coordinator, which asks nobody. 'dpdist methods --trust "
            "local' lists what users can be asked"
        )
    size, model = size_of(job, n_rows, n_features), make_estimator(job)
    beside = {}
    if "public_X" in inspect.signature(type(model).fit).parameters:
        generated = inputs.load(job)[1] if job.data.get("public_rows") else None
        beside = {"public_X": None, **inputs.beside(job, generated)}
    return model, (size.n_rows, size.n_features), beside
