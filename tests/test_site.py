"""The pages of ``deploy/site``: their blocks run, their links lead somewhere, and nothing of the house is left out."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SITE = Path(__file__).parents[1] / "deploy" / "site"
PAGES = sorted(page for page in SITE.rglob("*.md") if not {"_build", "api"} & set(page.relative_to(SITE).parts))
BLOCK = re.compile(r"^```\{executed\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from sessions import run
said = {}
for page, blocks in json.load(sys.stdin).items():
    for block in blocks:
        first, _, rest = block.partition("\\n")
        raises = first.removeprefix(":raises:").strip() if first.startswith(":raises:") else None
        said[page] = said.get(page, "") + run(page, rest if raises else block, raises) + "\\n"
json.dump(said, sys.stdout)
"""


@pytest.fixture(scope="module")
def executed() -> dict[str, str]:
    """What the blocks of all pages print, each page a session of its own, in one process."""
    blocks = {page.relative_to(SITE).as_posix(): BLOCK.findall(page.read_text()) for page in PAGES}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(SITE / "extensions")],
        input=json.dumps({page: found for page, found in blocks.items() if found}),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_blocks_of_every_page_run(executed):
    assert len(executed) >= 12 and all(said.strip() for said in executed.values())


def test_the_walk_of_an_analyst_ends_at_a_model_that_predicts(executed):
    said = executed["tutorials/analyst.md"]
    assert "in the units of the table (rent)" in said and "dask.array" in said
    assert len(re.findall(r"^\[ ?\d+\. +\d+\.\]$", said, re.MULTILINE)) == 2, said[-500:]


def test_an_operator_is_told_when_the_limit_is_reached(executed):
    said = executed["tutorials/operations.md"]
    assert "left: epsilon 0, delta 8e-07" in said and "True True" in said
    assert "BudgetExceeded: the charge does not fit into the limit of 'shop'" in said and "left (epsilon 0," in said


def test_a_survey_ends_with_shares_tables_and_means_in_units(executed):
    said = executed["tutorials/survey.md"]
    assert "Mean, in the units of the table" in said and re.search(r"^no answer +0\.\d", said, re.MULTILINE)
    assert 35 < float(re.search(r"^age +(\d+\.\d+)", said, re.MULTILINE)[1]) < 65


def test_what_a_walk_imports_was_installed_by_the_line_that_says_how():
    """Start here once imported pandas, which nothing had installed."""
    import tomllib

    root = SITE.parents[1]
    needs = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    line = re.search(r"pip install \.( [\w ]+)?$", (SITE / "start.md").read_text(), re.MULTILINE)[1] or ""
    there = {re.match(r"[\w-]+", need)[0] for need in needs} | {"dpdist", *line.split(), *sys.stdlib_module_names}
    for page in (SITE / "start.md", *sorted((SITE / "tutorials").glob("*.md"))):
        for block in BLOCK.findall(page.read_text()):
            used = set(re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE))
            assert used <= there, f"{page.name} imports {used - there}"


def test_links_lead_to_pages_and_pages_are_in_the_contents():
    contents = {"index"}
    for page in PAGES:
        for entries in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            contents |= {os.path.normpath(page.parent.relative_to(SITE) / entry) for entry in entries.split()}
    for link in re.findall(r"\]\((deploy/[^)#:]+)\)", (SITE.parents[1] / "README.md").read_text()):
        assert (SITE.parents[1] / link).exists(), f"README.md links to {link}"
    for page in PAGES:
        name = page.relative_to(SITE).with_suffix("").as_posix()
        assert name in contents, f"{name} is in no table of contents"
        for link in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{name} links to {link}"


def commands_in(text: str) -> list[str]:
    """What follows ``dpdist`` in shell blocks and in the running text."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").split("\n")
    parts = [part for line in lines for part in re.split(r"&&|[;|]", line.split("#")[0])]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    typed = [found[1] for part in parts if (found := re.match(r"\s*dpdist (.*)", part))]
    return typed + [" ".join(said.split()) for said in re.findall(r"`dpdist\s([^`]*)`", prose)]


def test_every_command_and_option_that_a_page_names_exists():
    import click

    from dpdist.cli import main

    root, n = SITE.parents[1], 0
    for page in (root / "README.md", root / "deploy" / "README.md", *PAGES):
        for typed in commands_in(page.read_text()):
            command, words = main, typed.split()
            while isinstance(command, click.Group) and words and not words[0].startswith("-"):
                inner = command.get_command(click.Context(command), words[0])
                assert inner is not None, f"{page.name}: dpdist {typed}"
                command, words = inner, words[1:]
            known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
            given = {word.partition("=")[0].rstrip(".,") for word in words if word.startswith("--")}
            assert given <= known, f"{page.name}: dpdist {typed}: {given - known}"
            n += 1
    assert n > 100


def test_what_is_included_and_named_is_there():
    root = SITE.parents[1]
    for page in PAGES:
        text = page.read_text()
        for file, start, end in re.findall(
            r"```\{include\} (\S+)\n:start-after: \"(.*)\"\n:end-before: \"(.*)\"", text
        ):
            included = (page.parent / file).read_text()
            assert included.count(start) >= 1 and included.index(start) < included.index(end), (page, start)
        for name in re.findall(r"`((?:tests|deploy|dpdist)/[\w./]+)`", text):
            assert (root / name).exists(), f"{page.name} names {name}"


def test_every_job_and_every_figure_has_a_comment_for_its_place_in_the_gallery():
    pipelines = SITE.parents[1] / "pipelines"
    for path in [*pipelines.glob("*.yaml"), *(pipelines / "figures").glob("*.yaml")]:
        assert path.read_text().startswith("# "), path
    assert all(yaml.safe_load(path.read_text())["title"] for path in (pipelines / "figures").glob("*.yaml"))


def test_every_figure_says_what_it_shows():
    """Beside its first paragraph, what is drawn, and the commands."""
    for path in (SITE.parents[1] / "pipelines" / "figures").glob("*.yaml"):
        head = path.read_text().partition("\ntitle:")[0]
        paragraphs = re.split(r"^#$", head, flags=re.MULTILINE)
        assert any(re.match(r"\s*# \S", paragraph) for paragraph in paragraphs[1:]), path.name


def test_everything_in_the_reference_has_an_example():
    """The tests of the docstrings run them."""
    path = SITE / "extensions" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    listed = [getattr(module, name) for module, names, _ in reference.parts() for name in names]
    own = [vars(item).get("__doc__") if inspect.isclass(item) else item.__doc__ for item in listed]
    lacking = [item.__qualname__ for item, text in zip(listed, own, strict=True) if ">>> " not in (text or "")]
    assert len(listed) > 120 and not lacking


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """With the extra ``docs``, which ``test`` has."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(SITE), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "html" / "tutorials" / "analyst.html").read_text().count("<pre>") > 5


def test_the_command_says_where_the_pages_are_or_how_they_are_built(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from dpdist.cli import docs

    monkeypatch.setattr(docs, "PACKAGE", tmp_path / "dpdist")
    refused = CliRunner().invoke(docs.command, ["--no-open"]).exception
    assert "not built" in str(refused) and "sphinx deploy/site" in str(refused)
    for place in (tmp_path / "deploy/site/_build/html", tmp_path / "dpdist/site"):
        place.mkdir(parents=True)
        (place / "index.html").write_text("")
        assert CliRunner().invoke(docs.command, ["--no-open"]).output.strip() == str(place / "index.html")
