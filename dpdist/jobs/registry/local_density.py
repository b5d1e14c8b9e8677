"""Densities and other smooth functions of numbers, with nobody to trust."""

from __future__ import annotations

from dpdist.jobs.registry.registered import RegisteredMethod

METHODS = (
    RegisteredMethod(
        "smooth-query-trig",
        "Means of smooth functions, densities among them: users report a random product of cosines",
        {"method": "trigonometric"},
        estimators=("local.DensityQueries",),
        spec="04, section 12",
        source="seed 000, Algorithm 5.1.36, with one report in place of all",
        guarantee="epsilon",
        outputs=("estimates_",),
        trust="local",
    ),
)
