"""Mixtures and other models with a hidden part, with nobody to trust."""

from __future__ import annotations

from dpdist.jobs.registry.registered import RegisteredMethod

METHODS = (
    RegisteredMethod("ldp-gem", "Gradient EM for two components, two lines or missing cells, one report of every user",
                     {}, outputs=("coef_",), trust="local",
                     estimators=("local.TwoComponentMixture", "local.MixedRegression",
                                 "local.MissingCovariateRegression"),
                     guarantee="either", spec="07, section 7", source="seed 002, after Theorem 2"),
)  # fmt: skip
