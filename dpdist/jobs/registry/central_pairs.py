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
    _ranking("pair-outpert", "The best ranking with a ridge penalty, by all pairs of rows, released once with noise",
             {"solver": "output"}, spec="02, section 8", source="spec 02, for seed 000, Algorithms 3.3.14 and 3.3.15"),
    _ranking("off-pair-c", "Means of online descents over pairs of rows, one for some thousands of them, released once",
             {"solver": "giga"}, spec="02, section 6", source="seed 000, Algorithm 3.3.15, as corrected"),
    _ranking("on-pair-c", "Online ranking: noisy copies of the points of a descent over each row and all before it",
             {"solver": {"online": {"memory": "all"}}}, outputs=("coef_", "iterates_"), spec="02, sections 1, 2 and 5",
             source="seed 000, Algorithm 3.3.10, as corrected"),
    _ranking("fb-on-pair-c", "Online ranking: noisy copies of the points of a descent over each row and the last ones",
             {"solver": {"online": {"memory": "fifo"}}}, outputs=("coef_", "iterates_"), spec="02, section 3",
             source="seed 000, Algorithm 3.3.13, as corrected"),
    _ranking("pair-noisy-ogd", "Ranking by a stream of blocks of rows, each compared with blocks before it",
             {"solver": "stream"}, spec="02, section 4", source="spec 02, for seed 000, Algorithms 3.3.9 to 3.3.13"),
    RegisteredMethod("pair-metric-dpgd", "A metric by gradients of the mean loss of all pairs inside blocks of rows",
                     {"solver": "gradient"}, estimators=("MetricLearner",), outputs=("metric_",),
                     spec="02, section 7.2", source="spec 02, for seed 000, section 3.3, example 1"),
)  # fmt: skip
