"""Losses of pairs of rows, where a coordinator may see the rows: rankings and metrics."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_ranking = partial(RegisteredMethod, estimators=("PairwiseRanker",), outputs=("coef_",))

METHODS = (
    _ranking("pair-dpgd", "Ranking by gradients of the mean loss of all pairs of rows, one pass each",
             {"solver": "gradient"}, spec="02, section 7",
             source="spec 02, for seed 000, Algorithms 3.3.14 and 3.3.15"),
    _ranking("pair-pgd-matrix", "Ranking by gradients of all pairs that a released second moment preconditions",
             {"solver": "preconditioned"}, spec="02, section 7", source="spec 02, for correlated columns"),
    _ranking("pair-noisy-ogd", "Ranking by a stream of blocks of rows, each compared with blocks before it",
             {"solver": "stream"}, spec="02, section 4", source="spec 02, for seed 000, Algorithms 3.3.9 to 3.3.13"),
    RegisteredMethod("pair-metric-dpgd", "A metric by gradients of the mean loss of all pairs inside blocks of rows",
                     {"solver": "gradient"}, estimators=("MetricLearner",), outputs=("metric_",),
                     spec="02, section 7.2", source="spec 02, for seed 000, section 3.3, example 1"),
)  # fmt: skip
