"""`audit_reports`: try to catch a report telling more than it claims.

In the local model a single report is what has to be private, so a run of the audit is one user: many users with one
record report, many with another. A report, and what it adds to the server's sum, are scored by the linear combination
that tells the two apart best on trial, or along the line between the two records' values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpdist.jobs import job_data as inputs
from dpdist.jobs.audit import record
from dpdist.jobs.choosing import chosen_method
from dpdist.jobs.job import Job, make_estimator
from dpdist.local.survey.levels import Leveled
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.audit.black_box import Claim, Score, Vectors, audit_black_box
from dpdist.privacy.audit.worst_neighbours import Arrays, Pair
from dpdist.privacy.randomness.draws import SystemDraws

PER_RUN = 50
"""Users on either side for each run that is asked for: a report costs microseconds."""
TRIALS_PER_RUN, LEARN_PER_RUN = 8, 8
AT_ONCE_PER_RUN = 2


def audit_reports(job: Job, *, n_runs: int, tell: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Audit a single report of the method of a job; the arguments and the result are those of `audit_job`."""
    width, model = int(job.data.get("d", 1)), make_estimator(job)
    size = inputs.to_be_written(int(job.data.get("n", 10**5)), width)
    protocol, pairs = model.protocol(size.n_rows, width), model.worst_neighbours(size.n_rows, width)
    method, _ = chosen_method(job, model, size)
    state = model.first_point(width)
    done, total = 0, n_runs * (TRIALS_PER_RUN * len(pairs) + LEARN_PER_RUN + PER_RUN)

    def run(pair: Pair, n: int) -> tuple[Vectors, Vectors]:
        nonlocal done
        drawn = _drawn(protocol, pair[0], state, n), _drawn(protocol, pair[1], state, n)
        done += n
        if tell is not None:
            tell(done, total)
        return drawn

    def more_scores(pair: Pair) -> Iterator[Score]:
        # single answers are told apart by what is learnt: their reports are no vectors in the space of the values
        if not isinstance(protocol.statistic, Leveled) and protocol.statistic.domain != "answers":
            yield _along(protocol, pair, state)

    claim = Claim(
        protocol.randomiser.epsilon,
        protocol.randomiser.delta,
        protocol.cost.parameter if protocol.cost.kind == "gaussian" else None,
    )
    found = audit_black_box(
        run,
        pairs,
        lambda: claim,
        n_trials=TRIALS_PER_RUN * n_runs,
        n_learn=LEARN_PER_RUN * n_runs,
        n_runs=PER_RUN * n_runs,
        n_at_once=AT_ONCE_PER_RUN * n_runs,
        more_scores=more_scores,
    )
    about = {"what": protocol.protects.what, "parts": protocol.protects.per_row}
    return record(job, method, claim, found, rows=1, features=width) | {"protects": about}


def _along(protocol: LocalProtocol, pair: Pair, state: Vectors) -> Score:
    """How far a report lies in the direction from one record's value to the other's."""
    one, other = (protocol.statistic.values(records, state) for records in pair)
    if protocol.statistic.domain == "category":
        one, other = (np.eye(protocol.statistic.size)[values] * (values >= 0)[:, None] for values in (one, other))
    direction = (one - other)[0]
    return lambda outputs: outputs[:, : len(direction)] @ direction[: outputs.shape[1]]


def _drawn(protocol: LocalProtocol, records: Arrays, state: Vectors, n_users: int) -> Vectors:
    """What each of many users with the same record adds to the sum, after the reported vector where that is another."""
    block = {name: np.repeat(values, n_users, axis=0) for name, values in records.items()}
    reports = protocol.randomise(block, SystemDraws(), state)
    added = np.stack([protocol.randomiser.accumulate(reports[i : i + 1]) for i in range(n_users)])
    if reports.shape == (n_users, protocol.statistic.size) != added.shape:
        added = np.hstack([reports, added])
    return added.astype(np.float64)
