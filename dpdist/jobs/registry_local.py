"""The methods of the local model: users randomise their own rows, and nobody is trusted with them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from dpdist.jobs.entry import Method

PURE: Literal["epsilon"] = "epsilon"
APPROXIMATE: Literal["(epsilon, delta)"] = "(epsilon, delta)"


def _fixed(**parameters: Any) -> Mapping[str, Any]:
    return MappingProxyType(parameters)


def _histogram(id: str, title: str, source: str) -> Method:
    return Method(
        id=id,
        title=title,
        estimators=("local.Histogram",),
        parameters=_fixed(method=id),
        spec="00, section 5",
        source=source,
        trust="local",
        guarantee=PURE,
        outputs=("frequencies_", "unbiased_frequencies_"),
    )


def _mean(
    id: str, title: str, spec: str, source: str, *, needs: tuple[str, ...] = (), aliases: tuple[str, ...] = (),
    guarantee: Literal["epsilon", "(epsilon, delta)"] = PURE, **parameters: Any,
) -> Method:  # fmt: skip
    return Method(
        id=id,
        title=title,
        estimators=("local.Mean",),
        parameters=_fixed(**parameters),
        spec=spec,
        source=source,
        trust="local",
        guarantee=guarantee,
        outputs=("mean_",),
        needs=needs,
        aliases=aliases,
    )


def _regression(
    id: str, title: str, estimator: str, spec: str, source: str, *, needs: tuple[str, ...] = (),
    guarantee: Literal["epsilon", "(epsilon, delta)"] = PURE, **parameters: Any,
) -> Method:  # fmt: skip
    return Method(
        id=id,
        title=title,
        estimators=(estimator,),
        parameters=_fixed(**parameters),
        spec=spec,
        source=source,
        trust="local",
        guarantee=guarantee,
        outputs=("coef_",),
        needs=needs,
    )


_WANG = "Wang, Blocki, Li and Jha 2017"
_DUCHI = "Duchi, Jordan and Wainwright 2018; seed 000, section 5.1"

LOCAL: tuple[Method, ...] = (
    _histogram("krr", "Frequencies of categories: users send theirs, or any other", f"{_WANG}; seed 000, section 5.1"),
    _histogram("sue", "Frequencies of categories: one noisy bit for each, symmetric (basic RAPPOR)", _WANG),
    _histogram("oue", "Frequencies of categories: one noisy bit for each, asymmetric", _WANG),
    _histogram("ue", "Frequencies of categories: one noisy bit for each, of two public probabilities", _WANG),
    _histogram("olh", "Frequencies of categories: randomised response about a hash value", _WANG),
    _histogram("hadamard-response", "Frequencies of categories: a row of a Hadamard matrix and a bit",
               "Acharya, Sun and Zhang 2019"),
    _histogram("subset-selection", "Frequencies of categories: a random subset of them", "Ye and Barg 2018"),
    Method(
        id="heavy-hitters",
        title="Frequent codes among billions: prefixes that grow with every group of users",
        estimators=("local.HeavyHitters",),
        parameters=_fixed(),
        spec="00, section 5",
        source="Bassily, Nissim, Stemmer and Thakurta 2017",
        trust="local",
        guarantee=PURE,
        outputs=("found_", "frequencies_"),
    ),
    _mean("duchi-1d", "Mean of a number in a range: one random sign per user", "00, section 6", _DUCHI,
          domain="interval", method="one-bit"),
    _mean("piecewise", "Mean of a number in a range: a report near it, or anywhere", "00, section 6",
          "Wang et al. 2019", domain="interval", method="piecewise"),
    _mean("hybrid", "Mean of a number in a range: a sign or a piecewise report, whatever has less noise",
          "00, section 6", "Wang et al. 2019", domain="interval", method="hybrid"),
    _mean("ldp-avg-1d", "Mean of a number in a range, by the best of these reports", "04, section 1",
          "seed 000, section 5.2", domain="interval", aliases=("scalar-ldp",)),
    _mean("coord-sampling", "Means of columns in a range: users report about a few of them", "00, section 6",
          f"{_DUCHI}; Wang et al. 2019", domain="box", method="sample-coordinates",
          aliases=("coord-sample", "ldp-avg-vec")),
    _mean("duchi-l2", "Mean of vectors in a ball: a random point of a half-sphere", "00, section 6", _DUCHI,
          domain="l2", method="hemisphere", aliases=("l2-hemisphere", "ldp-vec-duchi")),
    _mean("privunit", "Mean of vectors in a ball: a random point of a cap or of the rest of the sphere",
          "00, section 6", "Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018; Asi, Feldman and Talwar 2022",
          domain="l2", method="privunit", aliases=("ldp-vec-privunit",)),
    _mean("privunitg", "Mean of long vectors in a ball: the same with normal vectors", "00, section 6",
          "Asi, Feldman and Talwar 2022", domain="l2", method="privunitg"),
    _mean("ldp-gauss", "Mean of vectors in a ball: normal noise on each", "00, section 6", "seed 001, Algorithm 1",
          guarantee=APPROXIMATE, domain="l2", method="gaussian", aliases=("ldp-vec-gauss",)),
    _mean("mean-ldp-pure", "Means of heavy-tailed columns, softly truncated by the users", "07, section 4.4",
          "seed 000, section 7.2", domain="heavy-tailed", method="hybrid"),
    _mean("mean-ldp-gauss", "The same with normal noise", "07, section 4.5", "seed 000, section 7.2",
          guarantee=APPROXIMATE, domain="heavy-tailed", method="gaussian"),
    _mean("mom-select", "Mean of vectors, as the middle of the means of groups of users", "08, section 3",
          "seed 001, section 3", domain="l2", method="auto", needs=("n_groups",)),
    _mean("l1-mean-direct", "Mean of vectors that is known to have a small l1 norm", "08, section 4",
          "seed 001, section 4, with reports of whole vectors", domain="l1", method="direct"),
    _mean("l1-mean-proj", "The same from reports of a public random projection", "08, section 3",
          "seed 001, Algorithm 2, as corrected", domain="l1", method="projected", aliases=("l1-recover",)),
    _regression("l1-linreg-pubcov", "Regression with a small l1 norm; the features' second moments are public",
                "local.LinearRegression", "08, section 6", "seed 001, section 5", method="public-covariance"),
    _regression("l1-linreg-gram", "Regression with a small l1 norm from reports of second moments",
                "local.LinearRegression", "08, section 6", "seed 001, section 5", method="statistics"),
    _regression("l1-linreg-proj", "Regression with a small l1 norm from noisy projected rows (kept for comparison)",
                "local.LinearRegression", "08, section 5", "seed 001, Algorithm 3, as corrected", guarantee=APPROXIMATE,
                method="projected"),
    _regression("krr-rff-pub", "Kernel ridge regression by random features with a public Gram matrix",
                "local.KernelRidge", "08, section 7", "seed 001, section 6", method="public-covariance"),
    _regression("krr-rff-gram", "Kernel ridge regression by random features, from reports of second moments",
                "local.KernelRidge", "08, section 7", "seed 001, section 6", method="statistics"),
    _regression("krr-rff", "Kernel ridge regression by random features, from noisy rows (kept for comparison)",
                "local.KernelRidge", "08, section 7", "seed 001, Algorithm 4, as corrected", guarantee=APPROXIMATE,
                method="vector"),
    _regression("linear-surrogate-ldp", "Logistic regression: the direction of the mean of label times features",
                "local.LogisticRegression", "04, section 9", "seed 000, section 5.1, in place of Algorithm 5.1.34",
                method="direction"),
    _regression("cheb-learn", "Logistic regression from noisy copies of every row (kept for comparison)",
                "local.LogisticRegression", "08, section 9", "seed 001, Algorithms 5 and 6, as corrected",
                guarantee=APPROXIMATE, method="chebyshev"),
    _regression("ldp-iht", "Sparse regression by hard thresholding, for features that are fair signs",
                "local.SparseRegression", "05, section 2", "seed 000, Algorithm 5.3.41",
                private="record", method="iht", design="sign", link="identity"),
    _regression("ldp-iht-subgauss", "Sparse regression by hard thresholding, for dense uncorrelated features",
                "local.SparseRegression", "05, section 3", "seed 004, Algorithm 2",
                private="record", method="iht", design="isotropic", link="identity"),
    _regression("ldp-iht-general", "Sparse regression by hard thresholding, for correlated features",
                "local.SparseRegression", "05, section 4", "seed 004, Algorithm 4",
                private="record", method="iht", design="general", link="identity"),
    _regression("ldp-iht-nonlinear", "Sparse regression by hard thresholding, through an increasing function",
                "local.SparseRegression", "05, section 6.3", "seed 000, Algorithm 5.3.44",
                private="record", method="iht", design="sign", needs=("link",)),
    _regression("nldp-marginal", "Sparse regression from correlations of features and label, in one round",
                "local.SparseRegression", "05, section 7.1", "seed 000, section 5.3",
                private="record", method="marginal"),
    _regression("ldp-two-phase", "Sparse regression in two rounds: where, then how much",
                "local.SparseRegression", "05, section 7.2", "seed 000, section 5.3",
                private="record", method="two-phase"),
    _regression("nldp-sparse-lr", "Sparse regression from one report of second moments",
                "local.SparseRegression", "05, section 5.1", "seed 004, Algorithm 1",
                private="record", method="statistics"),
    _regression("nldp-sparse-lr-heavy", "The same for labels with heavy tails",
                "local.SparseRegression", "05, section 5.3", "seed 004, Theorem 5",
                private="record", method="statistics", needs=("label_moment",)),
    _regression("nldp-ols", "Linear regression from one report of second moments, not sparse",
                "local.SparseRegression", "05, section 5.4", "seed 004, Remark 3",
                private="record", method={"statistics": {"threshold": "none"}}),
    _regression("nldp-sparse-lr-public", "Sparse regression with public features of other people",
                "local.SparseRegression", "05, section 5.2", "seed 004, Algorithm 3",
                private="record", method="public-covariance"),
    _regression("label-ldp-iht", "Sparse regression with private labels: hard thresholding",
                "local.SparseRegression", "05, section 6.1", "seed 000, Algorithm 5.3.42",
                private="label", method="iht", link="identity"),
    _regression("label-ldp-lasso", "Sparse regression with private labels: the lasso",
                "local.SparseRegression", "05, section 6.2", "seed 000, section 5.3.3",
                private="label", method="lasso", link="identity"),
    _regression("label-ldp-iht-nonlinear", "Sparse regression with private labels, through an increasing function",
                "local.SparseRegression", "05, section 6.4", "seed 000, Algorithm 5.3.45",
                private="label", method="iht", needs=("link",)),
)  # fmt: skip
"""The entries of `dpdist.jobs.registry.METHODS` that trust nobody."""
