"""Any estimator on disjoint blocks of rows, where a coordinator may see them."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(RegisteredMethod, estimators=("SampleAndAggregate",))

METHODS = (
    _row("saa-clipmean",
         "Any estimator on disjoint blocks of rows, and the clipped mean of the results with Gaussian noise",
         {"combine": "clipped-mean"}, spec="01, section 3.2",
         source="Nissim, Raskhodnikova and Smith 2007; seed 000, section 3.2"),
    _row("saa-nrs",
         "Any estimator on disjoint blocks of rows, and the result most others are close to (smooth sensitivity)",
         {"combine": "attention"}, spec="01, section 3.1",
         source="Nissim, Raskhodnikova and Smith 2007; seed 000, Algorithm 3.2.5, as corrected"),
)  # fmt: skip
