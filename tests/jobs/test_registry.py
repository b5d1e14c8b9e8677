"""Every method can be named, built and run by its example; every example belongs to a method."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml

from dpdist.errors import DpdistError
from dpdist.jobs.job import load_job, make_estimator
from dpdist.jobs.registry import (
    ALIASES,
    ESTIMATORS,
    METHODS,
    NO_METHODS,
    OWNED_BY_OTHER_KEYS,
    TABLES,
    estimator_class,
    named,
)
from dpdist.jobs.shipped import figures

PIPELINES = Path(__file__).parents[2] / "pipelines"


def test_every_method_has_its_pipeline_and_every_pipeline_its_method():
    assert {path.stem for path in PIPELINES.glob("*.yaml")} == set(METHODS)


def test_no_name_stands_for_two_methods():
    """In tables that are written apart, a second row would take the place of the first in silence."""
    names = [name for table in TABLES for method in table.METHODS for name in (method.id, *method.aliases)]
    assert len(names) == len(set(names)) == len(METHODS) + len(ALIASES)


@pytest.mark.parametrize("name", METHODS)
def test_the_pipeline_is_a_job_of_its_method_that_leaves_nothing_behind(name):
    method = METHODS[name]
    job = load_job(PIPELINES.parent / method.pipeline)
    assert job.method is method
    assert job.output is None and job.ledger is None
    assert "generate" in job.data and job.data["store"] is None
    text = (PIPELINES / f"{name}.yaml").read_text()
    assert f"dpdist run {name}" in text, "an example says how it is run"
    assert "random_state" not in (yaml.safe_load(text)["params"] or {}), "an example is no simulation"


@pytest.mark.parametrize("name", METHODS)
def test_the_entry_describes_its_estimators(name):
    method = METHODS[name]
    assert method.id == name and method.title and method.spec and method.source and method.estimators
    for estimator in method.estimators:
        model = estimator_class(estimator)(**method.parameters)
        assert {key: model.get_params()[key] for key in method.parameters} == dict(method.parameters)
        assert set(method.parameters).isdisjoint(OWNED_BY_OTHER_KEYS)
    assert method.summary["pipeline"] == f"pipelines/{name}.yaml"


def test_parameters_that_make_two_methods_differ():
    """Two ids with the same estimators and parameters would be one method with two names."""
    seen = {
        (m.estimators[0], tuple(sorted((k, repr(v)) for k, v in m.parameters.items())), m.needs)
        for m in METHODS.values()
    }
    assert len(seen) == len(METHODS)


IDS = """
laplace gaussian-analytic gdp discrete-gaussian discrete-laplace grid-release em-gumbel permute-and-flip
report-noisy-max oneshot-topk krr sue oue olh hadamard-response subset-selection duchi-1d piecewise hybrid duchi-l2
privunit privunitg ldp-gauss coord-sampling composition zcdp rdp pld subsampling shuffling parallel ledger odometer
filter rng audit-cp audit-one-run fixed-point-sum sanitise noise-once neighbours
nc-dp-pgd nc-dp-gd-mom nc-dp-gld nc-dp-fw-l2 glm-fw-l2 robreg-fw-l2 nc-dp-fw-l1 glm-fw-l1 robreg-fw-l1
exp-nc-first exp-nc-sosp nc-population-grad nc-linear-lb
nc-dp-pmd nc-expmech-net sosp-dp-gd sosp-dp-gd-so sosp-dp-tr sosp-dp-str sosp-select
dp-gd dp-agd dp-sgd dp-svrg dp-svrgpp dp-katyusha dp-accmd dp-md dp-fw-l1 out-pert obj-pert saa-nrs saa-clipmean
trim-mean-ss rgd-trim catoni-mean rgd-catoni rgd-catoni-stoch clip-gd exp-fast-erm exp-heavy
ldp-avg-1d ldp-avg-vec linear-surrogate-ldp hermite-poly-ldp hinge-ldp general-linear-ldp sigm
exp-5.1 exp-5.2 exp-5.3 exp-5.4 exp-surfaces exp-kway exp-densities
local-bernstein local-bernstein-1bit local-bernstein-genprot approx-convex-min kway-cheb kway-fourier smooth-query-trig
nldp-glm-pub nldp-glm-pubcov nldp-nlr-pub
l2-hemisphere coord-sample scalar-ldp ldp-iht ldp-iht-subgauss ldp-iht-general ldp-iht-nonlinear label-ldp-iht
label-ldp-iht-nonlinear label-ldp-lasso dp-iht-erm dp-iht-peeling nldp-sparse-lr nldp-sparse-lr-heavy nldp-ols
nldp-sparse-lr-public nldp-marginal ldp-two-phase minimax-curves hard-instance
catoni-phi catoni-psi mean-dp mean-dp-thesis mean-ldp-pure mean-ldp-gauss
ldp-vec-gauss ldp-vec-privunit ldp-vec-duchi l1-mean-proj l1-mean-direct mom-select l1-recover l1-linreg-proj
l1-linreg-gram l1-linreg-pubcov krr-rff krr-rff-gram krr-rff-pub sgll-losses cheb-collect cheb-learn
catoni-smoothed-mean private-robust-mean ht-dp-fw ht-dp-fw-full ht-dp-fw-robreg ht-private-lasso residual-clip-fw
dp-fw-linf-clip peeling peeling-zcdp shrink ht-dp-iht residual-clip-iht ht-sparse-opt sparse-mean-ht
second-moment-map m2-goe m2-uppertri-gauss m2-two-sided-wishart m2-l2-knorm m2-laplace m2-wishart-approx m2-sulq
pca-central spca-fps spca-support spca-diag cov-noisy cov-threshold-dp glasso glasso-cov-perturb glasso-output-capped
ldp-m2-goe ldp-m2-sphere ldp-m2-laplace pca-ldp cov-threshold-ldp glasso-ldp lb-spiked lb-sparse-cov
spca-nonprivate-ref exp-6.1-low-synth exp-6.1-low-real exp-6.1-high exp-6.2 exp-6.3
ladp-rr mv-private ds-em exp-crowd ds-private ds-init ds-auto ds-multiclass ds-full-ldp
dp-gem-clip dp-gem-full dp-gem-split dp-spectral-init dp-em dp-gem-precond dp-em-suffstat dp-em-kgmm ldp-gem
pair-dpgd pair-metric-dpgd pair-noisy-ogd pair-outpert pair-pgd-matrix
off-pair-c off-pair-strc on-pair-c on-pair-strc fb-on-pair-c fb-on-pair-strc buf-fifo buf-reservoir buf-rsx pair-giga
exp-pair-auc exp-pair-metric pair-online-to-batch pair-loss-auc pair-loss-metric pair-grad-cheb pair-grad-blocks
mixture-packing-lb exp-5.5 exp-5.6 exp-5.7 exp-5.8 exp-5.9 exp-5.10 exp-nldp exp-scaling
"""
"""What the literature on these methods calls them, their parts and their experiments."""


@pytest.mark.parametrize("name", IDS.split())
def test_every_id_of_the_literature_is_found(name):
    assert (named(name) is None) == (name in NO_METHODS)


@pytest.mark.parametrize("name", NO_METHODS)
def test_an_id_that_is_no_method_says_what_is_there(name):
    other = NO_METHODS[name]
    assert named(name) is None and other.what and set(other.methods) <= set(METHODS)
    drawn = re.findall(r"dpdist figures ([\w.-]+)", other.what)
    assert other.library or other.methods or other.settings or drawn == [name]
    assert set(drawn) <= set(figures())
    if other.library:
        module, _, thing = other.library.rpartition(".")
        assert thing in vars(importlib.import_module(module)) or importlib.import_module(other.library)
    for key, value in other.settings.items():
        if value not in ("NUMBER", "NAME") and other.methods:
            section, _, parameter = key.partition(".")
            job = load_job(other.methods[-1])
            assert section == "data" or parameter in make_estimator(job).get_params()


def test_an_unknown_estimator_is_named():
    with pytest.raises(DpdistError, match=r"no estimator is called 'Logistic'.*LogisticRegression"):
        estimator_class("Logistic")
    assert all(isinstance(estimator_class(name), type) for name in ESTIMATORS)
