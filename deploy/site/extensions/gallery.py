"""``jobs`` and ``figures``: pages that are made of the files in ``pipelines/``, so that none of them can be forgotten.

``jobs`` lists every method with its job; of those in `PICTURED`, which take a second, the job is run and what it
released is drawn. ``figures`` lists every figure with what it shows: the comment at the head of its file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PIPELINES = Path(__file__).parents[3] / "pipelines"
PICTURED = ("dp-newton", "dp-adassp", "m2-goe", "pca-central", "cov-threshold-dp", "krr", "local-bernstein")


def comment(text: str) -> str:
    """The comment that a file begins with, without the commands in it."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("#   "):
            lines.append(line.removeprefix("#").strip())
    return "\n".join(lines).strip()


def jobs() -> str:
    """Every registered method and its job, as Markdown."""
    from dpdist.jobs.registry import METHODS

    parts = []
    for trust, title in (("central", "A trusted coordinator"), ("local", "Nobody is trusted")):
        parts.append(f"## {title}\n")
        for method in METHODS.values():
            if method.trust == trust:
                text = (PIPELINES / f"{method.id}.yaml").read_text()
                parts += [
                    f"### {method.id}\n\n{method.title}. *{method.source}*\n\n{comment(text)}\n",
                    f"```yaml\n{yaml_only(text)}\n```\n",
                ]
                if method.id in PICTURED:
                    parts.append(f"```{{raw}} html\n{picture(method.id)}\n```\n")
    return "\n".join(parts)


def figures() -> str:
    """Every figure of the literature that is made again, with what it shows."""
    parts = []
    for path in sorted((PIPELINES / "figures").glob("*.yaml")):
        text = path.read_text()
        head = yaml.safe_load(text)
        parts.append(f"### {path.stem}\n\n**{head['title']}** ({head['source']}). {comment(text)}\n\n"
                     f"`dpdist figures {path.stem}`\n")  # fmt: skip
    return "\n".join(parts)


def yaml_only(text: str) -> str:
    """A file without its comment."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(lines[first:]).strip()


def picture(name: str) -> str:
    """What a method released on its own generated data, as its report draws it."""
    from dpdist.estimators.representation import released
    from dpdist.html import STYLE
    from dpdist.jobs.job import load_job
    from dpdist.jobs.run import run_job
    from dpdist.runs.storage import result_store

    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/run"
        run_job(load_job(name, ["params.random_state=0", f"output={place}", f"ledger={folder}/ledger.sqlite"]))
        arrays = result_store(place).read_arrays("released.zarr")
        arrays.pop("history", None)
        array, values = next((n, v) for n, v in arrays.items() if v.size > 1)
        # a blank line would end the raw block
        drawn = f'<style>{STYLE}</style><div class="dpdist">{released(array, values)}</div>'
        return "\n".join(line for line in drawn.splitlines() if line.strip())


class Made(SphinxDirective):
    """Markdown that is made when the pages are built."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(__file__)
        lines = {"jobs": jobs, "figures": figures}[self.name]().splitlines()
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(StringList(lines, source=self.name), 0, section, match_titles=True)
        return section.children


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("jobs", Made)
    app.add_directive("figures", Made)
    return {"parallel_read_safe": False}
