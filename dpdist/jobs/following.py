"""What a job makes of the second moment that it releases, under the key ``then``: post-processing, which costs nothing.

``then`` names methods and their parameters, each fitted to the one release: ``then: {pca-central: {n_components: 3},
cov-threshold-dp: {}}``. Everything about them is checked before the release is charged.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

from dpdist.estimators.moment_release import FromMoment, MomentEstimator
from dpdist.jobs.method_parameters import fixed_parameters
from dpdist.jobs.registry import METHODS, RegisteredMethod, estimator_class
from dpdist.jobs.yaml_lines import JobError
from dpdist.jobs.yaml_lines import Problem as Wrong
from dpdist.problems.problem import Problem


@dataclass(frozen=True)
class Following:
    """One answer that is made of a released second moment.

    Attributes
    ----------
    method : RegisteredMethod
    params : mapping
        Parameters of the answer; those of the release are the job's.
    """

    method: RegisteredMethod
    params: Mapping[str, Any]

    @property
    def estimator(self) -> str:
        """The name of the class."""
        return self.method.estimators[0]

    def make(self) -> FromMoment:
        """The estimator."""
        cls = estimator_class(self.estimator)
        return cast(FromMoment, cls(**{**fixed_parameters(self.method, cls), **self.params}))


class Asked(Protocol):
    """What is read of a job here (`dpdist.jobs.job.Job`)."""

    @property
    def then(self) -> tuple[Following, ...]: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def source(self) -> str: ...
    @property
    def locations(self) -> Mapping[str, str]: ...


def releases_moments(estimator: str) -> bool:
    """Whether what an estimator releases is a second moment, of which more can be made.

    Examples
    --------
    >>> releases_moments("SecondMoment"), releases_moments("PCA"), releases_moments("Mean")
    (True, False, False)
    """
    cls = estimator_class(estimator)
    return issubclass(cls, MomentEstimator) and not issubclass(cls, FromMoment)


def made_of_moments(trust: str) -> dict[str, RegisteredMethod]:
    """The methods that make something of a released second moment, by id.

    Examples
    --------
    >>> list(made_of_moments("local"))
    ['pca-ldp', 'spca-ldp', 'cov-threshold-ldp', 'glasso-ldp']
    """
    return {
        method.id: method
        for method in METHODS.values()
        if method.trust == trust and issubclass(estimator_class(method.estimators[0]), FromMoment)
    }


def foresee(job: Asked, moment: Any, n_rows: int, n_features: int, **units: Any) -> list[dict[str, Any]]:
    """Check what follows, from public numbers; for each its method, and the error to expect of it.

    Raises
    ------
    JobError
        Names the key and the line of what cannot be made of the release.
    """
    found = []
    for following in job.then:
        model = following.make()
        with _located(job, following):
            outlook = asdict(model.outlook_of(moment, n_rows, n_features, **units))
        found.append({**_named(following), "outlook": outlook})
    return found


def check_judged(job: Asked, problem: Problem) -> None:
    """Refuse parameters that are not those of a generated problem, where it judges the answer."""
    for following in job.then:
        model = following.make()
        if _is_judged(model, problem):
            with _located(job, following):
                problem.check(model, job.data, following.method.id)


def follow(job: Asked, moment: Any, generated: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Fit what follows to a fitted second moment: a record of each, and the arrays, ``ID.NAME``."""
    records, arrays = [], {}
    for following in job.then:
        model = following.make().fit(moment)
        judged = generated is not None and _is_judged(model, generated.problem)
        records.append({**_named(following), "metrics": generated.metrics(model) if judged else None})
        for name in following.method.outputs:
            arrays[f"{following.method.id}.{name.rstrip('_')}"] = getattr(model, name)
    return records, arrays


def _is_judged(model: FromMoment, problem: Problem) -> bool:
    return any(metric.answer in model.answers for metric in problem.metrics)


@contextlib.contextmanager
def _located(job: Asked, following: Following) -> Iterator[None]:
    """Within it, an error names its key and line."""
    key = f"then.{following.method.id}"
    try:
        yield
    except ValueError as error:
        text = str(error).replace("params.", f"{key}.")
        words = re.findall(r"\w+", text)
        at = next((f"{key}.{word}" for word in words if f"{key}.{word}" in job.locations), key)
        raise JobError(job.source, [Wrong(at, job.locations.get(at, "line 1"), text.removeprefix(f"{at} "))]) from error


def _named(following: Following) -> dict[str, Any]:
    return {"id": following.method.id, "title": following.method.title, "estimator": following.estimator}
