"""Second moments, and what is made of them, with nobody to trust."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_local = partial(RegisteredMethod, trust="local")
_moment = partial(
    _local, estimators=("local.SecondMoment",), outputs=("second_moment_",), spec="06, section 2", guarantee="epsilon"
)
_answer = partial(_local, guarantee="either")
_components = ("components_", "explained_variance_")

METHODS = (
    _moment("ldp-m2-goe", "Second moments: every user sends all products with normal noise",
            {"mechanism": "goe"}, source="seed 000, Algorithm 6.1.46, as corrected", guarantee="(epsilon, delta)"),
    _moment("ldp-m2-laplace", "Second moments: every user sends all products with Laplace noise (kept for comparison)",
            {"mechanism": "laplace"}, source="seed 000, section 6.3.5"),
    _moment("ldp-m2-sphere", "Second moments: every user sends a random point of a sphere near the own products",
            {"mechanism": "auto"}, source="spec 06, for seed 000, section 6.1"),
    _answer("pca-ldp", "Principal components, from one report of every user", {}, estimators=("local.PCA",),
            outputs=_components, spec="06, section 3", source="seed 000, Algorithm 6.1.46"),
    _answer("spca-ldp", "Principal components in few columns, from one report of every user", {"refit": True},
            estimators=("local.SparsePCA",), outputs=(*_components, "support_"), spec="06, section 3",
            source="seed 000, Algorithm 6.1.47"),
    _answer("cov-threshold-ldp", "Covariances of which most are 0, from one report of every user",
            {"method": "threshold"}, estimators=("local.SparseCovariance",), outputs=("covariance_", "support_"),
            spec="06, section 4", source="seed 000, Algorithm 6.2.49"),
    _answer("glasso-ldp", "Sparse precision matrices, from one report of every user", {"method": "covariance"},
            estimators=("local.GraphicalLasso",), outputs=("precision_", "edges_"), spec="06, section 5",
            source="seed 000, Algorithm 6.3.53"),
)  # fmt: skip
