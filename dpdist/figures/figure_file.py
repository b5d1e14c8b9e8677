"""A figure: a YAML file that says which simulations to compare, on generated data, and what to vary.

```yaml
title: Gap against passes
source: seed 000, figure 3.1
metric: gap                       # one of METRICS
job:                              # what all runs share, as in a job file
  data: {generate: logit}
  params: {classes: [0, 1], row_norm: 1.0, fit_intercept: false}
  budget: {epsilon: 1.0, delta: 1.0e-4}
series:                           # one colour each
  - {label: gradient descent, set: {method: dp-gd}}
  - {label: sampled, set: {method: dp-sgd, params.solver.n_rounds: 100}}
panels:                           # side by side
  - {title: privacy, x: passes, lines: {key: budget.epsilon, values: [0.2, 1.0]}}
  - {title: rows, x: data.n, values: {quick: [1000, 2000], full: [10000, 100000]}}
presets:
  quick: {seeds: 2, set: {data.n: 2000, data.d: 5}}
  full: {seeds: 10, set: {data.n: 100000, data.d: 50}}
```

``x`` is a key of the job, whose ``values`` are the positions, or ``passes`` or ``rounds``: then every run is a curve,
the error of its released iterates. ``lines`` draws everything once for each value of another key. A panel may have
``series`` of its own: labels of those above, or new ones. Seed k generates data k (added to ``data.random_state``) and
noise k; so the runs are simulations, and no budget is spent. Keys are set in this order, later ones win: job, preset,
``--set``, series, panel, line, x, seed.

``bounds: [{label: rate, of: one-report}]`` draws curves of `dpdist.figures.bounds` into a panel. ``real: {name:
Covertype, get: ...}`` says which table the generated rows stand in for and where to get it; with ``data.path`` beside
``data.generate``, the rows of that table (`dpdist.figures.real_data`) are taken instead.

Everything that is wrong is reported as for jobs, with key and line, before anything runs.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpdist.errors import DataError
from dpdist.figures.bounds import BOUNDS
from dpdist.figures.figure import ALONG, METRICS, PRESETS, Cell, Figure, Panel, Real
from dpdist.jobs.job import Job, JobError, job_of, make_estimator, override, put
from dpdist.jobs.kinds import Reader, shown
from dpdist.jobs.shipped import figure_file
from dpdist.jobs.yaml_lines import Entry, Problem, nearest, parse, read_text

_KEYS = ("title", "source", "about", "metric", "job", "series", "panels", "presets", "real")
_PANEL_KEYS = ("title", "x", "values", "lines", "set", "series", "bounds")
_MOST_RUNS = 100_000


def load_figure(
    path: str | os.PathLike[str], preset: str = "quick", *, settings: Sequence[str] = (), n_seeds: int | None = None
) -> Figure:
    """Read and check the file of a figure.

    Parameters
    ----------
    path : path of a YAML file, or id of a figure that comes with the package
    preset : {"quick", "full"}
    settings : sequence of str
        Overrides of the preset, such as ``"data.n=500"``; what a series or a panel sets stays.
    n_seeds : int, optional
        In place of the preset's.

    Raises
    ------
    JobError
        Names what is wrong.
    """
    path = figure_file(path)
    source = str(path)
    problems: list[Problem] = []
    root = parse(read_text(path), source, problems)
    if not isinstance(root.value, dict):
        text = f"expected the keys of a figure ({', '.join(_KEYS)}), got {shown(root.value)}"
        raise JobError(source, [Problem("", root.where, text)])
    figure = _Reader(root, source, problems).figure(Path(path).stem, preset, settings, n_seeds)
    if problems or figure is None:
        raise JobError(source, problems)
    return figure


def titles(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Title and source of a figure, without its runs."""
    problems: list[Problem] = []
    root = parse(read_text(path), str(path), problems)
    found = root.plain() if isinstance(root.value, dict) else {}
    return str(found.get("title", "")), str(found.get("source", ""))


Series = tuple[str, list[tuple[str, Entry]]]


@dataclass(frozen=True)
class _Line:
    """What one panel, line and position sets."""

    panel: int
    series: list[Series]
    line: Any
    x: Any
    sets: list[tuple[str, Entry]]


class _Reader:
    """Reads one file; collects what is wrong with it."""

    def __init__(self, root: Entry, source: str, problems: list[Problem]) -> None:
        self.root, self.source, self.problems = root, source, problems
        self.reader = Reader(problems)
        self.add = self.reader.add

    def figure(self, name: str, preset: str, settings: Sequence[str], n_seeds: int | None) -> Figure | None:
        """The figure; None if something is wrong."""
        self._known(self.root, "", _KEYS)
        title = self._text(self.root, "title", "") or ""
        source, about = self._text(self.root, "source", "", ""), self._text(self.root, "about", "", "")
        metric = self._text(self.root, "metric", "")
        if metric and metric not in METRICS:
            self.add(
                "metric", self.root.value["metric"].where, f"unknown metric {metric!r}; {nearest(metric, METRICS)}"
            )
        seeds, common = self._preset(preset)
        n_seeds = n_seeds or seeds
        job = self._mapping(self.root, "job", "")
        shared = self._series(self.root.value["series"], "series", []) if "series" in self.root.value else []
        panels, lines = self._panels(preset, shared)
        self.real = self._real()
        if self.problems or job is None or n_seeds is None:
            return None
        base = copy.deepcopy(job)
        for key, entry in common:
            put(base, key, entry, self.problems)
        for setting in settings:
            override(base, setting, self.source, self.problems)
        if n_seeds * sum(len(line.series) for line in lines) > _MOST_RUNS:
            self.add("presets", self.root.where, f"these are more than {_MOST_RUNS} runs; take fewer seeds or values")
        if self.problems:
            return None
        cells = []
        for line in lines:
            for label, sets in line.series:
                tree = copy.deepcopy(base)
                for key, entry in (*sets, *line.sets):
                    put(tree, key, entry, self.problems)
                table = self._table(tree)
                cells += [
                    Cell(line.panel, label, line.line, line.x, seed, self._job(tree, seed), table)
                    for seed in range(n_seeds)
                ]
        self._check(metric or "", panels, cells)
        names = tuple(dict.fromkeys([label for label, _ in shared] + [cell.series for cell in cells]))
        return Figure(
            name, title, source or "", about or "", metric or "", preset, n_seeds, names, tuple(panels), tuple(cells),
            self.real,
        )  # fmt: skip

    def _table(self, tree: Entry) -> str | None:
        """The address of stored rows, which is taken out of the job: the rest of it describes the stand-in."""
        stored = _at(tree, "data.path")
        if stored is None:
            return None
        if _at(tree, "data.generate") is None:
            text = "say as well what stands in for it (data.generate), which names the kind of problem"
            raise JobError(self.source, [Problem("data.path", stored.where, text)])
        if not isinstance(stored.value, str):
            raise JobError(self.source, [Problem("data.path", stored.where, f"expected text, got {stored.value!r}")])
        del tree.value["data"].value["path"]
        return stored.value

    def _real(self) -> Real | None:
        section = self.root.value.get("real")
        if section is None or self._mapping(self.root, "real", "") is None:
            return None
        self._known(section, "real", ("name", "get", "unit_rows"))
        unit_rows = section.value.get("unit_rows")
        if unit_rows is not None and not isinstance(unit_rows.value, bool):
            self.add("real.unit_rows", unit_rows.where, f"expected true or false, got {shown(unit_rows.value)}")
        name, get = (self._text(section, key, "real.") for key in ("name", "get"))
        return Real(name or "", get or "", bool(unit_rows is not None and unit_rows.value))

    def _job(self, tree: Entry, seed: int) -> Job:
        """The job of one seed; what is wrong with it is raised."""
        for key in ("params.random_state", "ledger", "output"):
            entry = _at(tree, key)
            if entry is not None:
                self.add(key, entry.where, "leave it out: the runs of a figure are simulations, by seed")
        if self.problems:
            raise JobError(self.source, self.problems)
        tree = copy.deepcopy(tree)
        put(tree, "params.random_state", Entry(seed, "seeds"), self.problems)
        first = _at(tree, "data.random_state")
        if first is None or isinstance(first.value, int):
            shifted = Entry((first.value if first else 0) + seed, first.where if first else "seeds")
            put(tree, "data.random_state", shifted, self.problems)
        return job_of(tree, self.source, self.problems)

    def _check(self, metric: str, panels: Sequence[Panel], cells: Sequence[Cell]) -> None:
        from dpdist.figures.measures import check  # with the engine, which the titles of figures do not need

        for cell in cells:
            job = cell.job
            try:
                check(metric, job, real=cell.table is not None)
            except DataError as error:
                text = str(error).partition(": ")[2]
                raise JobError(self.source, [Problem("metric", self.root.value["metric"].where, text)]) from error
            if panels[cell.panel].x in ALONG and getattr(make_estimator(job), "fit_intercept", False):
                text = "set it to false: errors along a run are those of the coefficients alone"
                where = job.locations.get("params.fit_intercept", job.locations.get("params", ""))
                raise JobError(self.source, [Problem("params.fit_intercept", where, text)])

    def _preset(self, name: str) -> tuple[int | None, list[tuple[str, Entry]]]:
        section = self._mapping(self.root, "presets", "")
        if section is None:
            return None, []
        self._known(section, "presets", PRESETS)
        for preset in PRESETS:
            self._mapping(section, preset, "presets.")
        chosen = section.value.get(name)
        if chosen is None or not isinstance(chosen.value, dict):
            return None, []
        key = f"presets.{name}"
        self._known(chosen, key, ("seeds", "set"))
        seeds = chosen.value.get("seeds")
        n_seeds = None if seeds is None else self.reader.read(seeds, f"{key}.seeds", frozenset({"whole"}))
        if seeds is None or (n_seeds is not None and n_seeds < 1):
            self.add(f"{key}.seeds", (seeds or chosen).where, "expected the number of seeds, at least 1")
            n_seeds = None
        return n_seeds, self._sets(chosen, key)

    def _series(self, entry: Entry, key: str, shared: list[Series]) -> list[Series]:
        """Labels with what they set; a text is the label of a shared one."""
        found: list[Series] = []
        for index, item in enumerate(self._list(entry, key, "- {label: gradient descent, set: {method: dp-gd}}")):
            at = f"{key}.{index + 1}"
            if isinstance(item.value, str) and shared:
                known = dict(shared)
                if item.value in known:
                    found.append((item.value, known[item.value]))
                else:
                    self.add(at, item.where, f"no series is called {item.value!r}; {nearest(item.value, known)}")
                continue
            if not isinstance(item.value, dict):
                self.add(at, item.where, f"expected label and set, got {shown(item.value)}")
                continue
            self._known(item, at, ("label", "set"))
            label = self._text(item, "label", f"{at}.")
            if label is not None:
                found.append((label, self._sets(item, at)))
        for label in {label for label, _ in found if [name for name, _ in found].count(label) > 1}:
            self.add(key, entry.where, f"two series are called {label!r}")
        return found

    def _panels(self, preset: str, shared: list[Series]) -> tuple[list[Panel], list[_Line]]:
        panels: list[Panel] = []
        lines: list[_Line] = []
        found = self.root.value.get("panels", Entry(None, self.root.where))
        for index, entry in enumerate(self._list(found, "panels", "- {x: budget.epsilon, values: [0.5, 1.0]}")):
            key = f"panels.{index + 1}"
            if not isinstance(entry.value, dict):
                self.add(key, entry.where, f"expected x and what it varies, got {shown(entry.value)}")
                continue
            self._known(entry, key, _PANEL_KEYS)
            x = self._text(entry, "x", f"{key}.")
            title = self._text(entry, "title", f"{key}.", "") or ""
            by, each = self._lines(entry, key, preset)
            positions: list[Entry | None] = [None]
            if x is not None and x not in ALONG:
                positions = list(self._values(entry, key, preset))
                words = [e for e in positions if e is not None and not isinstance(e.value, int | float)]
                if words:
                    self.add(f"{key}.values", words[0].where, f"a position is a number, got {shown(words[0].value)}")
            elif "values" in entry.value:
                self.add(f"{key}.values", entry.value["values"].where, f"x: {x} takes none; use lines to vary a key")
            own = entry.value.get("series")
            series = shared if own is None else self._series(own, f"{key}.series", shared)
            if own is None and not shared:
                self.add(f"{key}.series", entry.where, "missing, here or for all panels: what is compared")
            if x is None:
                continue
            common = self._sets(entry, key)
            bounds = self._bounds(entry, key, by)
            panels.append(Panel(f"({chr(ord('a') + len(panels))}) {title}".rstrip(), x, by, bounds))
            for line in each:
                for position in positions:
                    sets = [*common, *([(by, line)] if by and line else []), *([(x, position)] if position else [])]
                    by_value, at = (None if e is None else e.value for e in (line, position))
                    lines.append(_Line(len(panels) - 1, series, by_value, at, sets))
        return panels, lines

    def _bounds(self, panel: Entry, key: str, by: str | None) -> tuple[tuple[str, str], ...]:
        """Labels and names of the curves beside the runs of a panel."""
        entry, key = panel.value.get("bounds"), f"{key}.bounds"
        if entry is None:
            return ()
        if by is not None or (x := _at(panel, "x")) is None or x.value in ALONG:
            self.add(key, entry.where, "one curve for each needs a panel without lines, against a key of the job")
        found = []
        for item in self._list(entry, key, "- {label: lower bound, of: one-report}"):
            if not isinstance(item.value, dict):
                self.add(key, item.where, f"expected label and of, got {shown(item.value)}")
                continue
            self._known(item, key, ("label", "of"))
            label, name = (self._text(item, each, f"{key}.") for each in ("label", "of"))
            if name is not None and name not in BOUNDS:
                self.add(f"{key}.of", item.where, f"unknown bound {name!r}; {nearest(name, BOUNDS)}")
            found.append((label or "", name or ""))
        return tuple(found)

    def _lines(self, panel: Entry, key: str, preset: str) -> tuple[str | None, list[Entry | None]]:
        entry = panel.value.get("lines")
        if entry is None:
            return None, [None]
        if not isinstance(entry.value, dict):
            self.add(f"{key}.lines", entry.where, "expected {key: budget.epsilon, values: [0.5, 1.0]}")
            return None, [None]
        self._known(entry, f"{key}.lines", ("key", "values"))
        return self._text(entry, "key", f"{key}.lines."), list(self._values(entry, f"{key}.lines", preset))

    def _values(self, section: Entry, key: str, preset: str) -> list[Entry]:
        """The list ``values``, or that of the preset."""
        entry, key = section.value.get("values"), f"{key}.values"
        if entry is not None and isinstance(entry.value, dict):
            self._known(entry, key, PRESETS)
            entry, key = entry.value.get(preset), f"{key}.{preset}"
        if entry is None or not isinstance(entry.value, list) or not entry.value:
            text = "expected a list such as [0.5, 1.0], or one for each preset: {quick: [1.0], full: [0.5, 1.0]}"
            self.add(key, (entry or section).where, text)
            return []
        bad = [item for item in entry.value if isinstance(item.value, list | dict) or item.value is None]
        if bad:
            self.add(key, bad[0].where, f"expected numbers or texts, got {shown(bad[0].value)}")
        return [] if bad else entry.value

    def _sets(self, section: Entry, key: str) -> list[tuple[str, Entry]]:
        entry = section.value.get("set")
        if entry is None or entry.value is None:
            return []
        if not isinstance(entry.value, dict):
            self.add(f"{key}.set", entry.where, f"expected keys of the job with values, got {shown(entry.value)}")
            return []
        return list(entry.value.items())

    def _list(self, entry: Entry, key: str, example: str) -> list[Entry]:
        if not isinstance(entry.value, list) or not entry.value:
            self.add(key, entry.where, f"expected a list such as {example}")
            return []
        return entry.value

    def _mapping(self, section: Entry, key: str, prefix: str) -> Entry | None:
        entry = section.value.get(key)
        if entry is None or not isinstance(entry.value, dict):
            got = "it is missing" if entry is None else f"got {shown(entry.value)}"
            self.add(prefix + key, (entry or section).where, f"expected keys with values; {got}")
            return None
        return entry

    def _text(self, section: Entry, key: str, prefix: str, default: str | None = None) -> str | None:
        entry = section.value.get(key)
        if entry is None or entry.value is None:
            if default is None:
                self.add(prefix + key, section.where, "missing")
            return default
        return self.reader.read(entry, prefix + key, frozenset({"text"}))

    def _known(self, section: Entry, key: str, known: Sequence[str]) -> None:
        for name, entry in section.value.items():
            if name not in known:
                self.add(f"{key}.{name}" if key else name, entry.where, f"unknown key; {nearest(name, known)}")


def _at(root: Entry, key: str) -> Entry | None:
    """The entry of a dotted key, if there is one with a value."""
    entry: Entry | None = root
    for name in key.split("."):
        entry = entry.value.get(name) if entry is not None and isinstance(entry.value, dict) else None
    return None if entry is None or entry.value is None else entry
