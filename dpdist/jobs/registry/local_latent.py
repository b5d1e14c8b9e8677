"""Mixtures and other models with a hidden part, with nobody to trust."""

from __future__ import annotations

from dpdist.jobs.registry.registered import RegisteredMethod

METHODS = (
    RegisteredMethod("ldp-gem", "Gradient EM for two components or two lines, one report of every user",
                     {}, estimators=("local.TwoComponentMixture", "local.MixedRegression"), outputs=("coef_",),
                     trust="local", guarantee="either", spec="07, section 7", source="seed 002, after Theorem 2"),
)  # fmt: skip
