"""``deploy/SECURITY.md``: what was lost or restored from a copy, against what happens then; made and checked here.

A dataset with a limit, a run that is done, a copy of everything, and a run that was cut off after its first release.
Then files are lost, or put back from the copy, each alone and together, and two runs are asked for: a new one, and the
one that was cut off. ``DPDIST_WRITE_LOSSES=1 python -m pytest tests/runs/test_lost_files.py -n 0`` writes the rows;
without it, what happens has to be what the page says.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dpdist import Dataset, Ledger
from dpdist.cli import main
from dpdist.engine.progress import Released, watching
from dpdist.errors import DpdistError
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.privacy.ledger import moving
from dpdist.privacy.ledger.journal import Journal

PAGE = Path(__file__).parents[2] / "deploy" / "SECURITY.md"
JOB = """
method: dp-gd
data: {{path: rows.zarr}}
params: {{classes: [0, 1], row_norm: 1.0, solver: {{n_rounds: 2}}}}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
ledger: {ledger}
output: {output}
"""
FILES = {"ledger": "ledger.sqlite", "journal": "journal.sqlite", "run record": "tuesday", "dataset": "rows.zarr"}
REFUSALS = {
    r"is limited by the ledger with the id": "the dataset names another ledger",
    r"older than what the (dataset|run|journal) .* remembers": "the {} remembers a newer ledger",
    r"another history than what the (dataset|run|journal) .* remembers": "the {} remembers another past",
    r"the (run|journal) \S+ belongs to the ledger with the id": "the {} names another ledger",
    r"there is no ledger at": "there is no ledger",
    r"has no charge for it": "the journal has values that the ledger never charged",
    r"kept in the journal with the id": "the ledger names another journal",
    r"its value is missing": "the ledger has seen a value that the journal has not",
    r"for a different plan or dataset|on another version of the dataset": "it is another dataset",
    r"never announced": "the journal has a value that the ledger never announced",
    r"with another past than what the (dataset) .* remembers": "the {} remembers another past",
    r"has never heard of it": "the journal never had the run",
    r"was moved from .* to the ledger": "it says where the account went",
    r"is being moved to": "it says where the account is, and how to finish",
    r"do(es)? not fit into|would exceed|left": "nothing is left of the limit",
}


class Scene:
    """One folder, as it was when a run was cut off, and a copy from before."""

    def __init__(self, folder: Path, beside: bool) -> None:
        self.folder = folder
        self.journal = "journal: journal.sqlite\n" if beside else ""
        table()
        budget("set", "rows.zarr", "--epsilon", "9", "--delta", "1e-5", "--ledger", "ledger.sqlite")
        self.run("monday")
        before = self.values()
        self.keep("copy")
        with watching(stop_after_one), contextlib.suppress(KeyboardInterrupt):
            self.run("tuesday")
        self.seen = self.values()
        assert len(self.seen) == len(before) + 1
        self.keep("now")

    def run(self, output: str, resume: bool = False, ledger: str = "ledger.sqlite") -> dict[str, Any]:
        Path("job.yaml").write_text(JOB.format(output=output, ledger=ledger) + self.journal)
        return run_job(load_job("job.yaml"), resume=resume)

    def values(self) -> dict[tuple[str, str], bytes]:
        """All values that are kept, by their run and release."""
        with contextlib.closing(Journal("journal.sqlite" if self.journal else "ledger.sqlite")) as journal:
            rows = journal._db.read(
                lambda db: db.execute("SELECT run_id, release_id, bytes FROM dpdist_values").fetchall()
            )
        return {(run_id, release_id): bytes(data) for run_id, release_id, data in rows}

    def keep(self, name: str) -> None:
        kept = self.folder.with_name(f"{self.folder.name}-{name}")
        shutil.copytree(self.folder, kept)

    def put_back(self) -> None:
        """Everything as it was when the run was cut off."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.folder.with_name(f"{self.folder.name}-now"), self.folder, dirs_exist_ok=True)

    def lose(self, parts: Sequence[str]) -> None:
        """A dataset that is lost is made again, under the name of its account."""
        for part in parts:
            shutil.rmtree(FILES[part]) if Path(FILES[part]).is_dir() else self._remove(FILES[part])
        if "dataset" in parts:
            table()

    def restore(self, parts: Sequence[str]) -> None:
        for part in parts:
            kept = self.folder.with_name(f"{self.folder.name}-copy") / FILES[part]
            shutil.rmtree(FILES[part]) if Path(FILES[part]).is_dir() else self._remove(FILES[part])
            if kept.is_dir():
                shutil.copytree(kept, FILES[part])
            elif kept.exists():
                shutil.copyfile(kept, FILES[part])

    def _remove(self, name: str) -> None:
        for path in Path().glob(f"{name}*"):
            path.unlink()

    def new_run(self, ledger: str = "ledger.sqlite") -> str:
        """What comes of a run that nobody has begun."""
        try:
            self.run("wednesday", ledger=ledger)
        except DpdistError as error:
            return refused(error)
        return charged(ledger)

    def resumed(self) -> str:
        """What comes of the run that was cut off; none of its values may be drawn again under its name."""
        try:
            done = self.run("tuesday", resume=True)
        except DpdistError as error:
            return refused(error)
        again = self.values()
        same = [name for name in self.seen if name[0] == done["run_id"]]
        if not same:
            return f"a run of its own: {charged('ledger.sqlite')}"
        assert len(same) == 1 and again[same[0]] == self.seen[same[0]], "a value was drawn twice"
        return "goes on with the same values"


def charged(ledger: str) -> str:
    """Whether the ledger counts monday, tuesday and what was charged just now."""
    with contextlib.closing(Ledger(ledger)) as book:
        forgotten = round(3.0 - book.spent("survey").epsilon)
    return ("charged", "**charged; one run is forgotten**", "**charged; two runs are forgotten**")[forgotten]


def refused(error: DpdistError) -> str:
    """Who noticed."""
    for pattern, text in REFUSALS.items():
        if found := re.search(pattern, str(error)):
            return f"refused: {text.format(*found.groups())}"
    raise AssertionError(f"unknown refusal: {error}") from error


def table() -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    Dataset.from_arrays("rows.zarr", X=X, y=(X[:, 0] > 0).astype(int), account="survey")


def budget(*words: str) -> None:
    done = CliRunner().invoke(main, ["budget", *words])
    assert done.exit_code == 0, done.output


def stop_after_one(event: Any) -> None:
    if isinstance(event, Released):
        raise KeyboardInterrupt


def came_to(section: str, titles: Sequence[str], what: str, *outcomes: str) -> None:
    """Write, or check, one row of the page."""
    text = PAGE.read_text()
    head, begin, rest = text.partition(f"\n### {section}\n")
    assert begin, f"{PAGE} has no section {section!r}"
    body, following, tail = re.match(r"(.*?)(\n##|\Z)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    lines = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("| ")]
    rows = {name: tuple(cells) for name, *cells in lines[1:]}
    if os.environ.get("DPDIST_WRITE_LOSSES") == "1":
        rows[what] = outcomes
        intro = body.partition("\n| ")[0].rstrip("\n")
        made = [f"| {' | '.join(cells)} |\n" for cells in (titles, *((name, *cells) for name, cells in rows.items()))]
        made.insert(1, f"|{'---|' * len(titles)}\n")
        PAGE.write_text(f"{head}{begin}{intro}\n\n{''.join(made)}{following}{tail}")
        return
    assert rows.get(what) == outcomes, f"{PAGE} says {rows.get(what)} of {what!r} in {section!r}; it came to {outcomes}"


# -- ledger, journal, run record, dataset ------------------------------------------------------------------------

TOGETHER = [parts for n in range(1, 5) for parts in itertools.combinations(FILES, n)]
CASES = [
    pytest.param(beside, kind, parts, id=f"{'beside' if beside else 'in it'}, {kind}: {', '.join(parts)}")
    for beside, kind, parts in itertools.product([True, False], ["lost", "restored"], TOGETHER)
    if beside or "journal" not in parts  # one file: it is the row of the ledger
]
TITLES = ("what", "a new run", "the run that was cut off, with `--resume`")


@pytest.fixture(scope="module")
def scene(request, tmp_path_factory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    with contextlib.chdir(folder):
        yield Scene(folder, request.param)


@pytest.mark.parametrize(("scene", "kind", "parts"), CASES, indirect=["scene"])
def test_what_was_lost_or_restored(scene, kind, parts):
    section = "With the journal beside the ledger" if scene.journal else "With the journal in the ledger's file"
    outcomes = []
    for ask in (scene.new_run, scene.resumed):
        scene.put_back()
        (scene.lose if kind == "lost" else scene.restore)(parts)
        outcomes.append(ask())
    came_to(section, TITLES, f"{', '.join(parts)}: {kind}", *outcomes)
    if len(parts) == 1:
        assert "forgotten" not in "".join(outcomes), "one loss alone is noticed, or harms nothing"


# -- a move ------------------------------------------------------------------------------------------------------

MOVED = ("what", "a new run in the old ledger", "a new run in the new ledger")


def _cut_off(n: int) -> Callable[[], None]:
    """A move of which the first ``n`` of the three transactions take place."""

    def act() -> None:
        with contextlib.closing(Ledger("ledger.sqlite")) as old, contextlib.closing(Ledger("new.sqlite")) as new:
            done = itertools.count(1)

            def limited(write: Callable[..., Any]) -> Callable[..., Any]:
                def once(work: Callable[..., Any]) -> Any:
                    if next(done) > n:
                        raise KeyboardInterrupt
                    return write(work)

                return once

            old._db.write, new._db.write = limited(old._db.write), limited(new._db.write)  # type: ignore[method-assign]
            with contextlib.suppress(KeyboardInterrupt):
                moving.move(old, "survey", new, "ann")

    return act


def _move(*words: str) -> None:
    budget("move", *(words or ("rows.zarr",)), "--ledger", "ledger.sqlite", "--to", "new.sqlite")


def _gone(name: str) -> None:
    for path in Path().glob(f"{name}*"):
        path.unlink()


def _moved_and(scene: Scene, then: Callable[[], None], *words: str) -> Callable[[], None]:
    def act() -> None:
        _move(*words)
        then()

    return act


@pytest.mark.parametrize("scene", [True], indirect=True, ids=["beside"])
def test_what_a_move_comes_to(scene):
    def put_the_old_one_back() -> None:
        scene.restore(["ledger"])

    acts = {
        "no move": lambda: None,
        "cut off once the new ledger expects the account": _cut_off(1),
        "cut off once the old ledger has closed it": _cut_off(2),
        "cut off before the dataset was told": _cut_off(3),
        "moved": _move,
        "moved; the old ledger is restored from before": _moved_and(scene, put_the_old_one_back),
        "moved without naming the dataset; the old ledger is restored from before": _moved_and(
            scene, put_the_old_one_back, "survey"
        ),
        "moved; the new ledger is lost": _moved_and(scene, lambda: _gone("new.sqlite")),
        "moved; both ledgers are lost": _moved_and(scene, lambda: (_gone("new.sqlite"), _gone("ledger.sqlite"))[0]),
        "the old ledger is restored, then moved": lambda: (put_the_old_one_back(), _move("survey"))[0],
    }
    for what, act in acts.items():
        outcomes = []
        for ledger in ("ledger.sqlite", "new.sqlite"):
            scene.put_back()
            act()
            outcomes.append(scene.new_run(ledger))
        came_to("With a move to another ledger", MOVED, what, *outcomes)
