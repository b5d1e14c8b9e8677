"""What names a job on the command line: a file, or the id of a method; and how a shell completes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class JobName(click.ParamType):
    """A text that `dpdist.jobs.shipped.job_file` understands.

    Parameters
    ----------
    files : bool
        Whether it may be a file; ids are completed where no file begins like them.
    """

    name = "job"

    def __init__(self, files: bool = True) -> None:
        self.files = files

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Ids that begin like this, or what makes the shell complete files."""
        if self.files and (not incomplete or _begins_a_file(incomplete)):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in self.ids() if name.startswith(incomplete)]

    def ids(self) -> list[Any]:
        """All ids and aliases."""
        from dpdist.jobs.registry import ALIASES, METHODS

        return [*METHODS, *ALIASES]


class FigureName(JobName):
    """The same for a figure."""

    name = "figure"

    def ids(self) -> list[Any]:
        """Of the figures that come with the package."""
        from dpdist.jobs.shipped import figures

        return list(figures())


def _begins_a_file(incomplete: str) -> bool:
    path = Path(incomplete).expanduser()
    folder, start = (path, "") if incomplete.endswith("/") else (path.parent, path.name)
    return folder.is_dir() and any(each.name.startswith(start) for each in folder.iterdir())
