"""Mixtures and other models with a hidden part, where a coordinator may see the rows."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_em = partial(
    RegisteredMethod,
    estimators=("TwoComponentMixture", "MixedRegression", "MissingCovariateRegression"),
    outputs=("coef_",),
)

METHODS = (
    _em("dp-gem-clip", "Gradient EM with clipped gradients, for two components, two lines or missing cells",
        {"method": "clip"}, spec="07, section 6.1", source="seed 000, Algorithm 7.2.55; seed 002, Algorithm 1"),
    _em("dp-gem-full", "Gradient EM with truncated coordinates, for comparison",
        {"method": "truncate"}, spec="07, section 6.2", source="seed 000, Algorithm 7.2.56"),
    _em("dp-gem-split", "Gradient EM with truncated coordinates of disjoint parts of the rows, in one pass",
        {"method": "split"}, spec="07, section 6.3", source="seed 002, Algorithm 2"),
    _em("dp-spectral-init", "Gradient EM from a released second moment, for when no start is known",
        {"method": "clip", "init": "spectral"}, estimators=("MixedRegression", "TwoComponentMixture"),
        spec="07, section 6.5", source="spec 07, for the open problem of seed 002, section 7"),
    _em("dp-em", "EM for two components with truncated coordinates, for comparison",
        {"method": "em"}, estimators=("TwoComponentMixture",), spec="07, section 6.4",
        source="seed 000, Algorithm 7.2.57"),
    _em("dp-gem-precond", "Gradient EM for two lines, weighed by a released covariance of the rows",
        {"method": "precondition"}, estimators=("MixedRegression",), spec="07, section 6.6", source="spec 07"),
    _em("dp-em-suffstat", "EM for two lines from a released covariance and released sums, for comparison",
        {"method": "statistics"}, estimators=("MixedRegression",), spec="07, section 6.6", source="spec 07"),
    RegisteredMethod("dp-em-kgmm", "Normal mixtures of several components: weights, means and variances",
                     {"method": "em"}, estimators=("GaussianMixture",), outputs=("means_", "weights_", "covariances_"),
                     spec="07, section 6.7", source="spec 07, for the open problem of seed 002, section 7"),
)  # fmt: skip
