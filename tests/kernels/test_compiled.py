"""How kernels are compiled."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dpdist
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


def test_code_is_compiled_anew_where_a_step_of_another_module_was_changed(tmp_path):
    """The derivative is a step of the gradients that stands in another file: what is cached must not outlive it."""
    package = tmp_path / "dpdist"
    shutil.copytree(Path(dpdist.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "pipelines"))
    program = (
        "import numpy as np; from dpdist.kernels import gradients; from dpdist.losses import Logistic; "
        "found = gradients.glm_gradient(np.ones((3, 2)), np.ones(3), np.zeros(2), Logistic(), row_norm=9.0, "
        "clip_norm=9.0, grid=2.0**-28); print(found[0] * 2.0**-28, sum(gradients._fused.stats.cache_hits.values()))"
    )

    def run() -> list[float]:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={"PATH": "", "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip
        return [float(word) for word in done.stdout.split()]

    assert run() == [-1.5, 0.0] and run() == [-1.5, 1.0]
    step = package / "kernels" / "block_pass.py"
    text = step.read_text()
    after = "    call_block(rows.address, rows.params, work, n)\n"
    assert text.count(after) == 1
    step.write_text(text.replace(after, after + "    for k in range(n):\n        work[DERIVATIVE + k] *= 2.0\n"))
    assert run() == pytest.approx([-3.0, 0.0])
