"""Regression and classification by a linear predictor, with nobody to trust."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(RegisteredMethod, guarantee="epsilon", outputs=("coef_",), trust="local")

METHODS = (
    _row("l1-linreg-pubcov", "Regression with a small l1 norm; the features' second moments are public",
         {"method": "public-covariance"}, estimators=("local.LinearRegression",), spec="08, section 6",
         source="seed 001, section 5"),
    _row("l1-linreg-gram", "Regression with a small l1 norm from reports of second moments",
         {"method": "statistics"}, estimators=("local.LinearRegression",), spec="08, section 6",
         source="seed 001, section 5"),
    _row("l1-linreg-proj", "Regression with a small l1 norm from noisy projected rows (kept for comparison)",
         {"method": "projected"}, estimators=("local.LinearRegression",), spec="08, section 5",
         source="seed 001, Algorithm 3, as corrected", guarantee="(epsilon, delta)"),
    _row("krr-rff-pub", "Kernel ridge regression by random features with a public Gram matrix",
         {"method": "public-covariance"}, estimators=("local.KernelRidge",), spec="08, section 7",
         source="seed 001, section 6"),
    _row("krr-rff-gram", "Kernel ridge regression by random features, from reports of second moments",
         {"method": "statistics"}, estimators=("local.KernelRidge",), spec="08, section 7",
         source="seed 001, section 6"),
    _row("krr-rff", "Kernel ridge regression by random features, from noisy rows (kept for comparison)",
         {"method": "vector"}, estimators=("local.KernelRidge",), spec="08, section 7",
         source="seed 001, Algorithm 4, as corrected", guarantee="(epsilon, delta)"),
    _row("linear-surrogate-ldp", "Logistic regression: the direction of the mean of label times features",
         {"method": "direction"}, estimators=("local.LogisticRegression", "local.LinearSVC"), spec="04, section 9",
         source="seed 000, section 5.1, in place of Algorithm 5.1.34"),
    _row("hermite-poly-ldp", "Support vectors from one noisy copy of label times features",
         {"method": "hermite"}, estimators=("local.LinearSVC", "local.LogisticRegression"), spec="04, section 9",
         source="seed 000, section 5.1, in place of Algorithms 5.1.33 and 5.1.34", guarantee="(epsilon, delta)"),
    _row("hinge-ldp", "Support vectors from noisy copies of label times features (kept for comparison)",
         {"method": "copies"}, estimators=("local.LinearSVC",), spec="04, section 7",
         source="seed 000, Algorithm 5.1.33, as corrected", guarantee="(epsilon, delta)"),
    _row("general-linear-ldp", "Two classes by any convex loss, from noisy copies (kept for comparison)",
         {"method": "copies"}, estimators=("local.LogisticRegression",), spec="04, section 8",
         source="seed 000, Algorithm 5.1.34, as corrected", guarantee="(epsilon, delta)"),
    _row("nldp-glm-pubcov", "Logistic regression from the mean of label times features, and public rows for the rest",
         {"method": "public-covariance"}, estimators=("local.LogisticRegression", "local.GeneralizedLinearModel"),
         spec="04, section 15", source="seed 000, Algorithm 5.2.39, with the covariance of public rows"),
    _row("nldp-glm-pub", "Logistic regression from reports of second moments, and public rows for the scale",
         {"method": "statistics"}, estimators=("local.LogisticRegression", "local.GeneralizedLinearModel"),
         spec="04, section 13", source="seed 000, Algorithm 5.2.39, as corrected"),
    _row("nldp-nlr-pub", "Regression through an increasing function (cubes), with public rows",
         {"loss": "cubic", "method": "public-covariance"}, estimators=("local.GeneralizedLinearModel",),
         spec="04, section 14", source="seed 000, Algorithm 5.2.40, as corrected"),
    _row("cheb-learn", "Logistic regression from noisy copies of every row (kept for comparison)",
         {"method": "chebyshev"}, estimators=("local.LogisticRegression",), spec="08, section 9",
         source="seed 001, Algorithms 5 and 6, as corrected", guarantee="(epsilon, delta)"),
)  # fmt: skip
