"""Layers point one way: what each room may import, checked on the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dpdist"

LIBRARY = {
    "errors", "identity", "html", "patience", "objects", "charts", "data", "privacy", "kernels", "losses",
    "constraints", "solvers", "engine",
}  # fmt: skip
METHODS = LIBRARY | {"method", "estimators", "queries"}
JOBS = METHODS | {"central", "local", "problems", "runs", "reports"}
ROOMS = {
    "errors": set(),
    "html": set(),
    "identity": {"errors"},
    "patience": set(),
    "objects": {"errors", "patience"},
    "charts": {"html"},
    "constraints": set(),
    "losses": set(),
    "kernels": {"errors", "losses"},
    "privacy": {"errors", "html", "identity", "objects", "patience"},
    "data": {"errors", "html", "objects", "patience", "privacy.randomness", "privacy.budget"},
    "solvers": {"constraints"},
    "engine": {"errors", "identity", "patience", "objects", "data", "privacy", "kernels"},
    "queries": {"errors", "kernels", "losses", "solvers", "privacy", "engine"},
    "method": LIBRARY,
    "estimators": LIBRARY | {"method"},
    "central": METHODS,
    "local": METHODS,
    "problems": LIBRARY | {"estimators", "local"},
    "runs": LIBRARY,
    "reports": LIBRARY | {"estimators", "runs"},
    "jobs": JOBS,
    "figures": JOBS | {"jobs"},
    "cluster": JOBS | {"jobs"},
    "cli": JOBS | {"jobs", "figures", "cluster"},
}
OUTSIDE = {
    "errors": set(),
    "html": set(),
    "identity": {"numpy"},
    "patience": set(),
    "objects": {"obstore", "zarr"},
    "charts": {"numpy"},
    "kernels": {"numpy", "numba", "scipy"},
    "losses": {"numpy", "numba", "scipy"},
    "constraints": {"numpy"},
    "solvers": {"numpy", "scipy"},
    "privacy": {"numpy", "scipy", "mpmath", "dp_accounting", "obstore", "psycopg"},
    "data": {"numcodecs", "numpy", "zarr", "pyarrow"},
    "engine": {"numpy", "dask", "distributed"},
    "method": {"numpy"},
    "estimators": {"numpy", "sklearn"},
    "central": {"numpy", "scipy", "sklearn"},
    "local": {"numpy", "scipy", "sklearn"},
    "queries": {"numpy"},
    "problems": {"numpy", "scipy", "sklearn", "zarr"},
    "runs": {"numpy", "zarr"},
    "reports": {"numpy", "yaml"},
    "jobs": {"numpy", "sklearn", "yaml"},
    "figures": {"matplotlib", "numpy", "pyarrow", "scipy", "yaml"},
    "cluster": {"httpx", "kr8s", "yaml"},
    "cli": {"click", "rich", "zarr"},
}
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # "from dpdist import losses" names a room, too
            names |= {f"dpdist.{a.name}" for a in node.names} if node.module == "dpdist" else {node.module or ""}
    return names


def stdlib(name: str) -> bool:
    import sys

    return name.split(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in imports(path):
        if stdlib(name):
            continue
        top, _, rest = name.partition(".")
        if top == "dpdist":
            inside = rest.split(".")[0] == room
            allowed = any(rest == a or rest.startswith(a + ".") for a in ROOMS[room])
            assert inside or allowed, f"{room} must not import {name}"
        else:
            assert top in OUTSIDE[room], f"{room} must not import {name}"


def test_only_the_engine_knows_dask():
    knows = {p.relative_to(PACKAGE).parts[0] for p in MODULES if {"dask", "distributed"} & {
        n.split(".")[0] for n in imports(p)}}  # fmt: skip
    assert knows == {"engine"}
