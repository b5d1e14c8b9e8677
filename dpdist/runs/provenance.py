"""What a run ran on: versions and platform, no names of people, machines or paths."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version

PACKAGES = ("dpdist", "numpy", "scipy", "numba", "dask", "distributed", "zarr", "scikit-learn", "dp-accounting")


def environment() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on, and the platform.

    Examples
    --------
    >>> sorted(environment())[:3]
    ['dask', 'distributed', 'dp-accounting']
    """
    versions = {name: version(name) for name in PACKAGES}
    return {**versions, "python": platform.python_version(), "platform": f"{platform.system()}-{platform.machine()}"}


def now() -> str:
    """The time in UTC as ISO 8601, to the second.

    Examples
    --------
    >>> len(now()), now()[-1]
    (20, 'Z')
    """
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
