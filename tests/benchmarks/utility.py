"""How far the defaults stay from the non-private optimum, as a share of each method's acceptance band."""

from __future__ import annotations

import functools
import warnings

import numpy as np

from tests.benchmarks.measure import benchmark
from tests.central.test_utility import METHODS, Problem

SEEDS = range(5)
problem = functools.cache(Problem)


def share_of_band(method: str) -> tuple[float, str]:
    options, band = METHODS[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the published delta is 1/n_rows
        gap = np.mean([problem().gap(problem().fit(seed, **options)) for seed in SEEDS])
    return float(gap / band), f"objective gap {gap:.1e} of at most {band:.1e}, mean of {len(SEEDS)} seeds (logit50)"


for _method in METHODS:
    benchmark(f"utility-{_method}", "<= 1.0")(functools.partial(share_of_band, _method))
