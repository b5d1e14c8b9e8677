"""Sparse regression, with nobody to trust or with private labels only."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(
    RegisteredMethod, estimators=("local.SparseRegression",), guarantee="epsilon", outputs=("coef_",), trust="local"
)

METHODS = (
    _row("ldp-iht", "Sparse regression by hard thresholding, for features that are fair signs",
         {"private": "record", "method": "iht", "design": "sign", "link": "identity"}, spec="05, section 2",
         source="seed 000, Algorithm 5.3.41"),
    _row("ldp-iht-subgauss", "Sparse regression by hard thresholding, for dense uncorrelated features",
         {"private": "record", "method": "iht", "design": "isotropic", "link": "identity"}, spec="05, section 3",
         source="seed 004, Algorithm 2"),
    _row("ldp-iht-general", "Sparse regression by hard thresholding, for correlated features",
         {"private": "record", "method": "iht", "design": "general", "link": "identity"}, spec="05, section 4",
         source="seed 004, Algorithm 4"),
    _row("ldp-iht-nonlinear", "Sparse regression by hard thresholding, through an increasing function",
         {"private": "record", "method": "iht", "design": "sign"}, spec="05, section 6.3",
         source="seed 000, Algorithm 5.3.44", needs=("link",)),
    _row("nldp-marginal", "Sparse regression from correlations of features and label, in one round",
         {"private": "record", "method": "marginal"}, spec="05, section 7.1", source="seed 000, section 5.3"),
    _row("ldp-two-phase", "Sparse regression in two rounds: where, then how much",
         {"private": "record", "method": "two-phase"}, spec="05, section 7.2", source="seed 000, section 5.3"),
    _row("nldp-sparse-lr", "Sparse regression from one report of second moments",
         {"private": "record", "method": "statistics"}, spec="05, section 5.1", source="seed 004, Algorithm 1"),
    _row("nldp-sparse-lr-heavy", "The same for labels with heavy tails",
         {"private": "record", "method": "statistics"}, spec="05, section 5.3", source="seed 004, Theorem 5",
         needs=("label_moment",)),
    _row("nldp-ols", "Linear regression from one report of second moments, not sparse",
         {"private": "record", "method": {"statistics": {"threshold": "none"}}}, spec="05, section 5.4",
         source="seed 004, Remark 3"),
    _row("nldp-sparse-lr-public", "Sparse regression with public features of other people",
         {"private": "record", "method": "public-covariance"}, spec="05, section 5.2",
         source="seed 004, Algorithm 3"),
    _row("label-ldp-iht", "Sparse regression with private labels: hard thresholding",
         {"private": "label", "method": "iht", "link": "identity"}, spec="05, section 6.1",
         source="seed 000, Algorithm 5.3.42"),
    _row("label-ldp-lasso", "Sparse regression with private labels: the lasso",
         {"private": "label", "method": "lasso", "link": "identity"}, spec="05, section 6.2",
         source="seed 000, section 5.3.3"),
    _row("label-ldp-iht-nonlinear", "Sparse regression with private labels, through an increasing function",
         {"private": "label", "method": "iht"}, spec="05, section 6.4", source="seed 000, Algorithm 5.3.45",
         needs=("link",)),
)  # fmt: skip
