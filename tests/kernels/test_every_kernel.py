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
