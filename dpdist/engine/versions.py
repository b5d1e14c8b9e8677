"""Which versions a process runs: tasks are pickled here and unpickled there, so both sides have to be the same.

A worker with another dpdist may clip, truncate or add differently from what the plan was calibrated for, and nothing in
the sum would show it. So a run is refused before anything is charged, and a worker that joins later refuses its tasks.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

EXACT = ("dpdist",)
MINOR = ("numpy", "numba")
"""Compiled kernels and pickled arrays change between 2.1 and 2.2, not between 2.1.0 and 2.1.1."""


@functools.cache
def _here() -> tuple[tuple[str, str], ...]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in (*EXACT, *MINOR):
        try:
            full = version(name)
        except PackageNotFoundError:
            full = "missing"
        found[name] = full if name in EXACT else ".".join(full.split(".")[:2])
    return tuple(found.items())


def versions() -> dict[str, str]:
    """What has to be equal everywhere: dpdist, and Python, numpy and numba up to their minor version.

    Examples
    --------
    >>> sorted(versions())
    ['dpdist', 'numba', 'numpy', 'python']
    """
    return dict(_here())


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What differs between two processes, in words; empty if nothing does.

    Examples
    --------
    >>> difference({"dpdist": "0.2.0", "numpy": "2.4"}, {"dpdist": "0.1.0", "numpy": "2.4"})
    'dpdist 0.1.0 instead of 0.2.0'
    """
    names = sorted({*here, *there})
    return ", ".join(
        f"{name} {there.get(name, 'missing')} instead of {here.get(name, 'missing')}"
        for name in names
        if here.get(name) != there.get(name)
    )
