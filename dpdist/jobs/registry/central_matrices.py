"""Second moments, and what is made of them, where a coordinator may see the rows."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_moment = partial(RegisteredMethod, estimators=("SecondMoment",), outputs=("second_moment_",), spec="06, section 1")
_components = ("components_", "explained_variance_")

METHODS = (
    _moment("m2-goe", "Second moments with symmetric Gaussian noise",
            {"mechanism": "goe"}, source="seed 000, section 6.2.3"),
    _moment("m2-uppertri-gauss", "Second moments with equal Gaussian noise on the upper triangle, as published",
            {"mechanism": "upper-triangle"}, source="seed 000, (6.16)"),
    _moment("m2-two-sided-wishart", "Second moments with the difference of two Wishart matrices (budget.delta: 0)",
            {"mechanism": "wishart"}, source="spec 06, for seed 000, Theorem 6.3.4", guarantee="epsilon"),
    _moment("m2-l2-knorm", "Second moments of two or three columns with K-norm noise (budget.delta: 0)",
            {"mechanism": "knorm"}, source="spec 06", guarantee="epsilon"),
    _moment("m2-laplace", "Second moments with Laplace noise, for comparison (budget.delta: 0)",
            {"mechanism": "laplace"}, source="seed 000, Theorem 6.3.5", guarantee="epsilon"),
    _moment("m2-wishart-approx", "Second moments with a Wishart matrix as noise, for comparison",
            {"mechanism": "approx-wishart"}, source="seed 000, Theorem 6.3.6"),
    _moment("m2-sulq", "Second moments with the noise of SuLQ, for comparison",
            {"mechanism": "sulq"}, source="named in seed 000, section 6.3.6"),
    RegisteredMethod("pca-central", "Principal components", {}, estimators=("PCA",), outputs=_components,
                     spec="06, section 3", source="seed 000, section 6.1.3", guarantee="either"),
    RegisteredMethod("spca-fps", "Principal components in few columns", {"refit": True}, estimators=("SparsePCA",),
                     outputs=(*_components, "support_"), spec="06, section 3", source="seed 000, Algorithm 6.1.47",
                     guarantee="either"),
    RegisteredMethod("spca-support", "Which columns principal components are in, hardly ever a false one",
                     {"refit": False, "multiple": 1.0}, estimators=("SparsePCA",), outputs=("support_",),
                     spec="06, section 3", source="seed 000, Theorem 6.1.5", guarantee="either"),
    RegisteredMethod("cov-threshold-dp", "Covariances of which most are 0", {"method": "threshold"},
                     estimators=("SparseCovariance",), outputs=("covariance_", "support_"), spec="06, section 4",
                     source="seed 000, Algorithm 6.2.48", guarantee="either"),
    RegisteredMethod("cov-noisy", "Covariances with all their noise, for comparison", {"method": "noisy"},
                     estimators=("SparseCovariance",), outputs=("covariance_",), spec="06, section 4",
                     source="seed 000, (6.16)", guarantee="either"),
    RegisteredMethod("glasso-cov-perturb", "Sparse precision matrices: the graphical lasso of a released second moment",
                     {"method": "covariance"}, estimators=("GraphicalLasso",), outputs=("precision_", "edges_"),
                     spec="06, section 5", source="seed 000, Algorithm 6.3.51", guarantee="either"),
    RegisteredMethod("glasso-output-capped", "Sparse precision matrices with noise on the solution, for comparison",
                     {"method": "output"}, estimators=("GraphicalLasso",), outputs=("precision_",),
                     spec="06, section 5", source="seed 000, Algorithm 6.3.50", guarantee="either"),
)  # fmt: skip
