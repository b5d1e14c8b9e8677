"""How kernels are compiled."""

from __future__ import annotations

import math
import threading
import time

import numpy as np

from dpdist.kernels.compiled import inlined_kernel, kernel

TYPED = """
def quotient(x, y):
    return x / y
"""


def twice(x):
    return x + x


def test_a_kernel_is_its_python_function_with_the_division_of_numpy():
    compiled = kernel(twice)
    for x in (0.1, -0.0, 5e-324, np.inf, np.float32(3.5), 7):
        assert compiled(x) == twice(x)
    names = {}
    exec(TYPED, names)  # code without a file, which has no place in the cache
    quotient = kernel(names["quotient"])
    with np.errstate(all="ignore"):
        for x, y in [(1.0, 3.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 0.0), (np.inf, np.inf), (5e-324, 2.0)]:
            assert np.array_equal(quotient(x, y), np.float64(x) / np.float64(y), equal_nan=True)
    assert not quotient.stats.cache_path


def test_an_inlined_kernel_is_no_call():
    step = inlined_kernel(twice)

    def caller(x):
        return step(x) + 1.0

    plain, inlined = kernel(twice), kernel(caller)
    assert inlined(2.5) == 6.0
    assert plain.targetoptions.get("inline") is None and step.targetoptions["inline"] == "always"
    assert "twice" not in inlined.inspect_llvm(inlined.signatures[0])


def test_other_threads_run_while_a_kernel_does():
    @kernel
    def work(n):
        total = 0.0
        for i in range(n):
            total = math.sin(total + i)
        return total

    work(1)
    runner, ticks = threading.Thread(target=work, args=(30_000_000,)), 0
    runner.start()
    while runner.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 5  # one that keeps the interpreter leaves at most two
