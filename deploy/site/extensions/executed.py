"""``executed``: a block of Python that is run when the pages are built, shown with what it printed.

The blocks of a page are one session, in a folder of its own; a block that raises fails the build, unless it says
``:raises: NameOfTheError``. Nothing on a page can be out of date.
"""

from __future__ import annotations

import textwrap
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sessions import run
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTH = 76
"""Characters that a line of output has room for."""


class Executed(SphinxDirective):
    """Run the block, and show it above its output."""

    has_content = True
    option_spec: ClassVar = {"raises": directives.unchanged, "hidden": directives.flag}

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        said = run(self.env.docname, code, self.options.get("raises"))
        if "hidden" in self.options:
            return []
        block = nodes.literal_block(code, code, language="python")
        if not said:
            return [block]
        said = "\n".join(folded(line) for line in said.split("\n"))
        return [block, nodes.literal_block(said, said, language="none", classes=["output"])]


def folded(line: str) -> str:
    """A sentence that is too long for the page in several lines; a row of a table stays one.

    >>> print(folded("a word " * 12))
    a word a word a word a word a word a word a word a word a word a word a word
    a word
    """
    if len(line) <= WIDTH or "  " in line.strip():
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line.strip(), WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("executed", Executed)
    return {"parallel_read_safe": False}
