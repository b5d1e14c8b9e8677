"""No kernel is without tests of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "dpdist" / "kernels"
MODULES = sorted(path.stem for path in KERNELS.glob("*.py") if path.stem != "__init__")


def uses(test: Path, module: str) -> bool:
    """Whether a test of the file calls what it has from the module."""
    tree = ast.parse(test.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == f"dpdist.kernels.{module}":
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "dpdist.kernels":
            names |= {alias.asname or alias.name for alias in node.names if alias.name == module}
    called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return bool(names & called) and any(
        isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tree.body
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_kernels_has_its_test_module(module):
    test = Path(__file__).parent / f"test_{module}.py"
    assert test.exists(), f"tests/kernels/test_{module}.py is missing: compare the kernel with a plain twin"
    assert uses(test, module), f"{test.name} tests nothing of dpdist.kernels.{module}"


ALLOCATING = {"empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "arange", "array", "copy"}


@pytest.mark.parametrize("module", MODULES)
def test_what_is_compiled_allocates_nothing_and_writes_numbers(module):
    """Numba compiles the texts of errors about shapes for the rest: seconds that a first fit would wait."""
    for function in ast.walk(ast.parse((KERNELS / f"{module}.py").read_text())):
        decorators = getattr(function, "decorator_list", [])
        if isinstance(function, ast.FunctionDef) and any(ast.unparse(d).endswith("kernel") for d in decorators):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    assert node.func.attr not in {*ALLOCATING, "reshape"}, (function.name, ast.unparse(node))
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                    slices = any(isinstance(part, ast.Slice) for part in ast.walk(node.targets[0].slice))
                    assert not slices or isinstance(node.value, ast.Constant) or ast.unparse(node.value) == "np.nan"
