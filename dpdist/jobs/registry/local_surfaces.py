"""Minimisers of any bounded loss, with nobody to trust."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(
    RegisteredMethod,
    estimators=("local.RiskSurface",),
    guarantee="epsilon",
    outputs=("coef_", "surface_"),
    trust="local",
)

METHODS = (
    _row("local-bernstein", "The mean of a bounded loss at all parameters: users report theirs at a random one",
         {"reporter": "hybrid"}, spec="04, section 3", source="seed 000, Algorithm 5.1.31, one report in place of all"),
    _row("local-bernstein-1bit", "The same with one bit from every user",
         {"reporter": "one-bit"}, spec="04, section 4", source="seed 000, Algorithm 5.1.32, made private"),
    _row("local-bernstein-genprot", "The same with the number of one of 64 public numbers (kept for comparison)",
         {"reporter": "coding"}, spec="04, section 5", source="seed 000, Algorithm 5.1.37, by minimal random coding"),
)  # fmt: skip
