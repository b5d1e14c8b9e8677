"""What a user waits for outside of kernels: compiling, plans, rounds."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time

import dask
import numpy as np

from dpdist import Dataset
from dpdist.estimators.outlook import outlook
from dpdist.privacy.accounting import calibration
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.budget import Budget
from dpdist.privacy.mechanisms.additive import Gaussian
from tests.benchmarks.engine import rounds
from tests.benchmarks.measure import BENCHMARKS, benchmark

FIRST_FITS = {
    "mean": "dpdist.Mean(epsilon=1.0, delta=1e-6, second_moment=1.0).fit(X)",
    "saa": "dpdist.SampleAndAggregate(epsilon=1.0, delta=1e-6, radius=2.0).fit(X, y)",
    "logistic": "dpdist.LogisticRegression(classes=[-1, 1], epsilon=1.0, delta=1e-6, row_norm=2.0).fit(X, y)",
}
COMPILE = """
import json, time, warnings
import dask, numpy as np, dpdist
from numba.core import event
warnings.simplefilter("ignore")
dask.config.set(num_workers=1)
under_way, seconds, n = [], 0.0, 0
class Listener(event.Listener):
    def on_start(self, _):
        under_way.append(time.thread_time())
    def on_end(self, _):
        global seconds, n
        begun, n = under_way.pop(), n + 1
        if not under_way:
            seconds += time.thread_time() - begun
event.register("numba:compile", Listener())
X = np.random.default_rng(0).normal(size=(200, 4)); y = np.sign(X[:, 0])
{fit}
print(json.dumps([seconds, n]))
"""


def _first_fit(name: str) -> tuple[float, str]:
    found = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", COMPILE.replace("{fit}", FIRST_FITS[name])], check=True, capture_output=True,
                text=True, env={**os.environ, "NUMBA_CACHE_DIR": folder},
            )  # fmt: skip
        found.append(json.loads(done.stdout))
    seconds, n = min(found)
    return seconds, (
        f"CPU seconds of compiling {n} functions in a first fit ({name}) with a cold cache; 'dpdist warm' does it "
        "before. The limit of large ones: two fifths are LLVM's, whose unrolled rows are worth 5 % of every pass, the "
        "rest numba's Python over the steps that are written into one loop"
    )


for _name in FIRST_FITS:
    benchmark(f"cold-{_name}", "<= 1.5")(functools.partial(_first_fit, _name))


@benchmark("round-main-thread", "<= 0.25")
def round_main_thread() -> tuple[float, str]:
    rows = Dataset.from_arrays(X=np.ones((64, 4)), y=np.arange(64) % 2, partition_rows=32)

    def seconds(n: int) -> float:
        start = time.thread_time()
        rounds(rows, n)
        return time.thread_time() - start

    with dask.config.set(num_workers=2):
        few, many = (min(seconds(n) for _ in range(5)) for n in (20, 420))
    return (many - few) / 400 * 1000, (
        "CPU milliseconds of the main thread for a round of a gradient of 4 columns, two threads, a ledger in memory. "
        "The limit: a third is exact noise, a fifth the two transactions that come before and after it, each checked "
        "against a ledger that was taken back, a fifth the rows that this thread sums itself"
    )


@benchmark("outlook-pld", "<= 0.5")
def outlook_pld() -> tuple[float, str]:
    """The question that takes longest: a sample of the rows, many rounds, a fit that is useless."""

    def predicted(n: int, epsilon: float) -> float:
        items = [Item("gradient", Gaussian(), count=300, sampling=Poisson(0.02))]
        return 1e5 / (n * calibration.calibrate(items, Budget(epsilon, 1e-8))["gradient"].mechanism.strength)

    predicted(1, 1.0)  # imports what only such plans need
    found = []
    for _ in range(3):
        calibration._calibrated.cache_clear()
        start = time.process_time()
        outlook(predicted, 1.0, "an example", 10_000, 0.5, 1e-8)
        found.append(time.process_time() - start)
    return min(found), "CPU seconds to say how many rows or how much epsilon 300 rounds on samples of 2 % would need"


WAITS = [
    name
    for name, (_, function) in BENCHMARKS.items()
    if getattr(getattr(function, "func", function), "__module__", None) == __name__
]
"""The rows of the page of the documentation."""
