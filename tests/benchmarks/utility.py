"""How far the defaults stay from the non-private optimum, as a share of each method's acceptance band."""

from __future__ import annotations

import functools
import warnings

import numpy as np

from tests.benchmarks.measure import benchmark
from tests.central.linear.test_utility import METHODS, SPARSE_METHODS, Problem, SparseProblem

SEEDS = range(5)
logit50, sparse54 = functools.cache(Problem), functools.cache(SparseProblem)
BANDS = {method: (logit50, "logit50", *case) for method, case in METHODS.items()} | {
    method: (sparse54, "sparse54", *case) for method, case in SPARSE_METHODS.items()
}


def share_of_band(method: str) -> tuple[float, str]:
    problem, name, options, band = BANDS[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the published delta is 1/n_rows
        gap = np.mean([problem().gap(problem().fit(seed, **options)) for seed in SEEDS])
    return float(gap / band), f"objective gap {gap:.1e} of at most {band:.1e}, mean of {len(SEEDS)} seeds ({name})"


for _method in BANDS:
    benchmark(f"utility-{_method}", "<= 1.0")(functools.partial(share_of_band, _method))
