"""Tables of several columns, with nobody to trust."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(
    RegisteredMethod,
    estimators=("local.Marginals",),
    spec="04, section 11",
    guarantee="epsilon",
    outputs=("estimates_",),
    trust="local",
)

METHODS = (
    _row("kway-fourier", "Tables of any few columns: users send one bit about a random parity",
         {"method": "fourier"}, source="seed 000, section 5.1.3 (its baseline)"),
    _row("kway-cheb", "Tables of any few columns: a bit about a random conjunction (kept for comparison)",
         {"method": "chebyshev"}, source="seed 000, Algorithm 5.1.35, with one report in place of all"),
)  # fmt: skip
