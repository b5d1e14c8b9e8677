"""The files that come with the package: a job for every method, and the figures, each by its id.

They are the folder ``pipelines`` of the source, which ``setup.py`` installs inside the package.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpdist.errors import DpdistError
from dpdist.jobs.registry import METHODS, named, not_found
from dpdist.jobs.yaml_lines import nearest, read_text

FIGURES = "figures"
_PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    """Where the files are: in the installed package, or beside it in the source."""
    for place in (_PACKAGE / "pipelines", _PACKAGE.parent / "pipelines"):
        if (place / FIGURES).is_dir():
            return place
    raise DpdistError(f"{_PACKAGE} has no folder pipelines, which comes with dpdist: install it again")


def job_file(job: str | os.PathLike[str]) -> Path:
    """The file of a job: a path, or where there is no such file the id of a method, which means the method's own job.

    Examples
    --------
    >>> job_file("dp-gd").name, job_file("mean-dp").name, job_file("mine.yaml").name
    ('dp-gd.yaml', 'catoni-mean.yaml', 'mine.yaml')
    """
    name = _id(job, "pipelines")
    if name is None:
        return Path(job)
    if (method := named(name)) is not None:
        return folder() / f"{method.id}.yaml"
    if name != str(job):  # written as a path
        return Path(job)
    raise DpdistError(f"there is neither a file (from the current folder) nor a method {name!r}; {not_found(name)}")


def figures(place: str | None = None) -> dict[str, Path]:
    """The files of all figures by their ids: those of the package, or of another folder."""
    found = folder() / FIGURES if place is None else Path(place)
    return {path.stem: path for path in sorted(found.glob("*.yaml"))}


def figure_file(figure: str | os.PathLike[str], place: str | None = None) -> Path:
    """The same for a figure."""
    name = _id(figure, f"pipelines/{FIGURES}")
    if name is None:
        return Path(figure)
    known = figures(place)
    if name in known:
        return known[name]
    if name != str(figure):
        return Path(figure)
    where = "" if place is None else f" in {place}"
    raise DpdistError(f"there is neither a file nor a figure {name!r}{where}; {nearest(name, known)}")


def job_text(method: str) -> str:
    """The job of a method as it is written."""
    return read_text(folder() / f"{METHODS[method].id}.yaml")


def _id(name: str | os.PathLike[str], place: str) -> str | None:
    """What may be an id, also where it is written as the path in the source; None for any other path."""
    text = os.fspath(name)
    if os.path.exists(text) and not os.path.isdir(text):
        return None
    if text.startswith(f"{place}/"):
        text = text[len(place) + 1 :].removesuffix(".yaml")
    return None if os.sep in text or text.endswith((".yaml", ".yml")) else text
