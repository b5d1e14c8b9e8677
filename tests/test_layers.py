"""Layers point one way: what each room may import, checked on the source."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

from dpdist.engine.query import QUERIES, Query

PACKAGE = Path(__file__).parents[1] / "dpdist"

LIBRARY = {
    "errors", "identity", "html", "patience", "objects", "charts", "data", "privacy", "kernels", "losses",
    "mirror_maps", "constraints", "solvers", "engine",
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
    "mirror_maps": set(),
    "constraints": {"mirror_maps"},
    "losses": set(),
    "kernels": {"errors", "losses"},
    "privacy": {"errors", "html", "identity", "objects", "patience", "kernels.stream_cipher"},
    "data": {"errors", "html", "objects", "patience", "privacy.randomness", "privacy.budget"},
    "solvers": {"constraints", "mirror_maps"},
    "engine": {"errors", "identity", "patience", "objects", "data", "privacy", "kernels"},
    "queries": {"errors", "identity", "data.units", "kernels", "losses", "solvers", "privacy", "engine"},
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
    "mirror_maps": {"numpy"},
    "constraints": {"numpy"},
    "solvers": {"numpy", "scipy"},
    "privacy": {"numpy", "scipy", "mpmath", "dp_accounting", "obstore", "psycopg"},
    "data": {"numcodecs", "numpy", "zarr", "pyarrow"},
    "engine": {"numpy", "dask", "distributed"},
    "method": {"numpy"},
    "estimators": {"numpy", "onnx", "pyarrow", "sklearn"},
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
SAME_STEM = {
    "latent_models": {"central/latent", "local/latent"},
    "columns": {"central/mean", "local/mean"},  # the mean of columns: asked of a trusted coordinator, or of the users
    **{stem: {"central/matrices", "local/matrices"} for stem in ("components", "second_moment", "sparse_matrices")},
}
"""Module names in two rooms: one idea on both sides of the trust line."""
UNNOISED_IMPORTS = {
    "dpdist.engine.shards.summarise_shard": {"engine/workers.py"},
    # the sums that the aggregation adds up are of reports, which are private before they leave a row
    "dpdist.engine.workers.connect": {
        "engine/coordinator.py", "engine/local_cluster.py", "local/survey/aggregation.py",
    },
    "dpdist.engine.workers.Workers": {"engine/coordinator.py", "local/survey/aggregation.py"},
    "dpdist.engine.query.Ask": {
        "queries/minimizers.py", "queries/coordinate_gradient_sums.py", "queries/capped_precision.py",
        "queries/pair_minimum.py", "queries/pair_sums.py",
        "queries/loss_tables.py",
        "local/survey/reports.py", "local/linear/label_private.py", "local/crowd/answer_passes.py",
    },
}  # fmt: skip
"""Who may import what hands out sums without noise."""
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(parsed(path)):
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


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def imported_modules(path: Path, known: frozenset[str]) -> set[str]:
    """The modules of the package that a module imports, at its top, for types or inside a function."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in known:  # "from module import name"
                name = name.rpartition(".")[0]
            found |= {name} - {""}
    return found


def test_every_folder_says_what_it_holds():
    for folder in {path.parent for path in MODULES}:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), f"{folder} has no docstring"


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or what a module defines."""
    module, _, rest = name, "", ""
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".rstrip(".")
    for part in filter(None, rest.split(".")):
        fields = getattr(found, "__dataclass_fields__", {})
        found = fields[part] if part in fields else getattr(found, part, None)
    return found is not None


def test_names_in_pages_and_docstrings_exist():
    root = PACKAGE.parent
    pages = [
        root / "README.md",
        *root.glob(".github/*.md"),
        *root.glob("deploy/*.md"),
        *root.glob("deploy/site/[!_a]*/*.md"),
        *root.glob("pipelines/**/*.yaml"),
    ]
    names = defaultdict(set)
    for path in [*pages, *PACKAGE.rglob("*.py")]:
        for name in re.findall(r"`(dpdist(?:\.[A-Za-z_]\w*)+)(?:\(\))?`", path.read_text()):
            names[name].add(path.relative_to(root).as_posix())
    assert len(names) > 100
    assert {name: where for name, where in names.items() if not exists(name)} == {}


def test_paths_in_pages_and_docstrings_exist():
    root = PACKAGE.parent
    pages = [root / "README.md", root / ".github" / "CHANGELOG.md", *root.glob("deploy/*.md")]
    names = defaultdict(set)
    for path in [*pages, *root.glob("pipelines/**/*.yaml"), *PACKAGE.rglob("*.py")]:
        text = path.read_text()
        for name in re.findall(r"(?<![\w./~-])(?:dpdist|tests|pipelines|deploy)/[\w./-]+\.(?:py|md|json|yaml)\b", text):
            names[name].add(path.relative_to(root).as_posix())
    assert len(names) > 10
    assert {name: where for name, where in names.items() if not (root / name).exists()} == {}


def test_tests_stand_in_the_folder_of_what_they_test():
    """But for rooms whose tests are named in the guide: queries are fuzzed, submission meets a Kubernetes."""
    tests = PACKAGE.parent / "tests"
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    guide = (PACKAGE.parent / ".github" / "CONTRIBUTING.md").read_text()
    without = {room for room in rooms if not list((tests / room).rglob("test_*.py"))}
    assert without == set(re.findall(r"\| after a change in `(\w+)/`", guide))
    commands = " ".join(re.findall(r"python -m pytest ([\w ./]+)`", guide))
    for path in re.findall(r"\S+/\S+", commands):
        assert (PACKAGE.parent / path).exists(), path


def test_the_house_in_the_guide_names_every_room():
    house = (PACKAGE.parent / ".github" / "CONTRIBUTING.md").read_text().split("## The house")[1].split("\n## ")[0]
    named = set(re.findall(r"dpdist/(\w+)(?:/|\.py)", house))
    inside = set(re.findall(r"(\w+)/", " ".join(line for line in house.splitlines() if line.startswith("dpdist/"))))
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    alone = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in PACKAGE.rglob("__init__.py")} - {PACKAGE.name}
    assert named == rooms | alone and folders <= inside
    own = {path.parent.name for path in (PACKAGE.parent / "tests").glob("*/__init__.py")} - rooms
    assert own <= set(re.findall(r"(\w+)/", house))


def test_imports_have_no_cycles():
    """Not even with the imports of functions, or those for types: nobody has to import two modules to read one."""
    modules = {dotted(path): path for path in MODULES}
    graph = {name: imported_modules(path, frozenset(modules)) - {name} for name, path in modules.items()}
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_no_module_name_is_in_two_rooms():
    """A command of ``cli/`` is named after what it runs; what else may have one name is listed."""
    folders = defaultdict(set)
    for path in MODULES:
        if path.stem not in {"__init__", "__main__"}:
            folders[path.stem].add(path.relative_to(PACKAGE).parent.as_posix())
    commands = {path.stem for path in (PACKAGE / "cli").glob("*.py") if "@click." in path.read_text()}
    twice = {}
    for stem, where in folders.items():
        others = where - {"cli"} if stem in commands else where
        if len(others) > 1:
            twice[stem] = others
    assert twice == SAME_STEM


def test_a_command_named_like_a_module_runs_it():
    """Whoever looks for `dpdist report` and for the report must not find two ideas under one name."""
    commands = {path.stem: path for path in (PACKAGE / "cli").glob("*.py") if "@click." in path.read_text()}
    modules = {dotted(path): path for path in MODULES}
    for name in modules:
        room, stem = name.split(".")[1], name.rpartition(".")[2]
        if room != "cli" and stem in commands and modules[name].name != "__init__.py":
            reached, new = set(), {dotted(commands[stem])}
            while new:
                reached |= new
                new = set().union(*(imported_modules(modules[one], frozenset(modules)) for one in new)) - reached
            assert name in reached, f"dpdist {stem} never comes to {name}"


def named_imports(path: Path) -> set[str]:
    return {
        f"{node.module}.{alias.name}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_sums_without_noise_are_imported_by_few():
    found = defaultdict(set)
    for path in MODULES:
        for name in named_imports(path) & set(UNNOISED_IMPORTS):
            found[name].add(path.relative_to(PACKAGE).as_posix())
    assert found == UNNOISED_IMPORTS


def test_noise_meets_sums_in_one_function():
    """Totals are explored and given to a mechanism in `Coordinator._draw`, and the workers are asked there only."""
    where = defaultdict(set)
    for path in MODULES:
        for function in ast.walk(parsed(path)):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    of, name = ast.unparse(call.func.value), call.func.attr
                    if name == "explore" or (name == "map" and of.endswith("workers")) or of.endswith(".mechanism"):
                        where[name].add((path.relative_to(PACKAGE).as_posix(), function.name))
    draw = {("engine/coordinator.py", "_draw")}
    assert where["explore"] == where["release"] == draw
    inside = {("engine/coordinator.py", "ask")}  # the function in it
    assert where["map"] == draw | inside | {("local/survey/aggregation.py", "_ask")}


def test_what_is_asked_of_rows_is_in_one_room():
    """Queries see sums without noise, so they stand where they are looked for; reports are private already."""
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] in {"central", "local", "queries"}:
            importlib.import_module(dotted(path))
    queries, new = set(), {Query}
    while new:
        queries |= new
        new = {below for one in new for below in one.__subclasses__()} - queries
    elsewhere = {q for q in queries if q.__module__.startswith("dpdist.") and ".queries." not in q.__module__} - {Query}
    assert {q for q in elsewhere if q.reported is Query.reported} == set()
    assert {q for q in queries if q in QUERIES and q.__module__.startswith("dpdist.")}  # they were imported


def test_the_engine_names_no_mechanism_and_no_estimator():
    words = re.compile(r"\b(fits?|fitted|estimators?|solvers?|n_rounds|penalty)\b", re.IGNORECASE)
    for path in (PACKAGE / "engine").glob("*.py"):
        mechanisms = {name for name in imports(path) if name.startswith("dpdist.privacy.mechanisms")}
        known = {"dpdist.privacy.mechanisms.mechanism", "dpdist.privacy.mechanisms.norms"}
        assert mechanisms <= known, path
        assert not words.search(path.read_text()), path
