"""`run_figure`: the runs of a figure become a picture (SVG and PNG) and its numbers (Parquet).

Runs that are finished are kept in the output directory, by a digest of everything they depend on: an interrupted figure
goes on where it was, a larger preset or more seeds pay for what is new only, and panels that share a run share its
result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.engine.local_cluster import opened
from dpdist.errors import DpdistError
from dpdist.estimators.outlook import nobody_asks
from dpdist.figures.bounds import BOUNDS
from dpdist.figures.drawing import draw, need_matplotlib
from dpdist.figures.figure import ALONG, Cell, Figure
from dpdist.figures.measures import along, kind, metric_of
from dpdist.figures.real_data import table
from dpdist.jobs import job_data as inputs
from dpdist.jobs.choosing import chosen_method
from dpdist.jobs.job import Job, locating
from dpdist.jobs.planning import checked
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.problems.metrics import Metric
from dpdist.problems.problem import Generated

FORMAT = "dpdist-figure/1"
COLUMNS: Mapping[str, str] = {
    "panel": "string",
    "series": "string",
    "line": "string",
    "x_name": "string",
    "x": "double",
    "seed": "int64",
    "error": "double",
    "nonprivate_error": "double",
    "trivial_error": "double",
    "metric": "string",
    "what": "string",
    "bound": "string",
    "table": "string",
    "epsilon": "double",
    "delta": "double",
    "accountant": "string",
    "method": "string",
    "estimator": "string",
    "n": "int64",
    "d": "int64",
    "rounds": "int64",
    "passes": "double",
    "final": "bool",
    "preset": "string",
    "dpdist": "string",
}
"""The columns of the Parquet file.

``error`` is the metric, and ``what`` says it in words; ``final`` marks what a run returned (else: on the way);
``bound`` names the curve of `dpdist.figures.bounds` that a row is a point of (empty: of a run); ``table`` is the stored
table that was used (empty: generated rows).
"""

Tell = Callable[[int, int, Cell], None]


def run_figure(figure: Figure, output: str | os.PathLike[str], *, tell: Tell | None = None) -> dict[str, Any]:
    """Do the runs that are not done yet, and draw.

    Parameters
    ----------
    figure : Figure
        Of `dpdist.figures.figure_file.load_figure`.
    output : path
        Directory for ``<id>.svg``, ``<id>.png``, ``<id>.parquet`` and the finished runs (``<id>.runs``).
    tell : callable, optional
        ``tell(done, total, cell)`` before each run.

    Returns
    -------
    dict
        ``files``, and ``rows``: one per panel, series, line and position, over the seeds.
    """
    need_matplotlib()
    place = Path(output)
    runs = place / f"{figure.id}.runs"
    runs.mkdir(parents=True, exist_ok=True)
    names = [digest(cell.job, figure.metric, cell.table) for cell in figure.cells]
    results = {name: found for name in names if (found := _kept(runs / f"{name}.json")) is not None}
    for name, cell in zip(names, figure.cells, strict=True):
        if cell.seed == 0 and name not in results:  # before any run: whatever is wrong with a method's parameters
            _check(cell.job)
    # runs on the same data next to each other: it is generated once
    order = sorted(range(len(names)), key=lambda i: (_data_key(figure.cells[i]), i))
    with closing(Bench(figure)) as bench:
        for done, index in enumerate(order):
            name, cell = names[index], figure.cells[index]
            if name not in results:
                if tell is not None:
                    tell(done, len(order), cell)
                results[name] = bench.run(cell)
                _keep(runs / f"{name}.json", results[name])
    rows = [row for name, cell in zip(names, figure.cells, strict=True) for row in _rows(figure, cell, results[name])]
    rows += _bounds(figure)
    files = {kind: str(place / f"{figure.id}.{kind}") for kind in ("svg", "png", "parquet")}
    write_parquet(rows, figure, files["parquet"])
    draw(figure, rows, files["svg"], files["png"])
    return {
        "format": FORMAT,
        "id": figure.id,
        "title": figure.title,
        "source": figure.source,
        "preset": figure.preset,
        "seeds": figure.n_seeds,
        "metric": figure.metric,
        "data": ", ".join(sorted({cell.table or "generated rows" for cell in figure.cells})),
        "files": files,
        "rows": summary(rows),
    }


def digest(job: Job, metric: str, table: str | None = None) -> str:
    """A name for the result of a job: changes with everything that it depends on."""
    asked = {key: value for key, value in job.asked.items() if key != "cluster" or metric == "speed"}
    text = json.dumps([FORMAT, version("dpdist"), metric, asked, *([] if table is None else [table])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class Bench:
    """Runs the jobs of a figure; keeps the data of the last one, what it was measured with, and its workers."""

    def __init__(self, figure: Figure) -> None:
        self._metric, self._real = figure.metric, figure.real
        self._data: tuple[str, Generated] | None = None
        self._metrics: dict[str, tuple[Metric, float]] = {}
        self._asked: Any = None
        self._workers: Any = None
        self._started = contextlib.ExitStack()

    def close(self) -> None:
        """Stop the workers."""
        self._started.close()

    def run(self, cell: Cell) -> dict[str, Any]:
        """The numbers of one run, as plain JSON."""
        job, generated = cell.job, self._generated(cell)
        if job.cluster != self._asked:
            self._started.close()
            self._asked, self._workers = job.cluster, self._started.enter_context(opened(job.cluster))
        # published settings take delta = 1/n; what holds is in the results
        with nobody_asks(), closing(Ledger(":memory:")) as ledger:
            size = inputs.size(job)
            model, _ = checked(job, size)
            method, _ = chosen_method(job, model, size)
            model.set_params(ledger=ledger, cluster=self._workers)
            with locating(job):
                if self._metric == "speed":  # once before, so that workers have compiled and hold their rows
                    model.fit(generated.dataset, **inputs.beside(job, generated))
                began = time.perf_counter()
                model.fit(generated.dataset, **inputs.beside(job, generated))
                seconds = time.perf_counter() - began
        n, d = generated.dataset.arrays["X"].shape
        result = {
            "asked": dict(job.asked),
            "method": method.id,
            "n": n,
            "d": d,
            "epsilon": model.guarantee_.epsilon,
            "delta": model.guarantee_.delta,
            "accountant": model.plan_.accountant,
            "seconds": round(seconds, 3),
        }
        if self._metric == "speed":
            end = along(model)[-1]
            measured = {"points": [[*end[:2], n / seconds]], "nonprivate_error": None, "trivial_error": None}
            return {
                **result,
                **measured,
                "what": f"of a whole fit, its second one on these workers, on a machine of {os.cpu_count()} cores",
            }
        metric, nonprivate = self._measured(generated, model)
        points = along(model) if not job.params.get("fit_intercept", True) else along(model)[-1:]
        return {
            **result,
            "points": [[n_passes, rounds, metric.error(each)] for n_passes, rounds, each in points],
            "nonprivate_error": nonprivate,
            "trivial_error": metric.trivial(),
            "what": metric.what,
        }

    def _generated(self, cell: Cell) -> Generated:
        key = _data_key(cell)
        if self._data is None or self._data[0] != key:
            self._data = None  # the old one may go before the new one comes
            self._metrics.clear()
            if cell.table is not None:
                generated: Generated | None = table(cell.job, cell.table, self._real, self._metric)
            else:
                generated = inputs.load(cell.job)[1]
            assert generated is not None
            self._data = key, generated
        return self._data[1]

    def _measured(self, generated: Generated, model: Any) -> tuple[Metric, float]:
        """The metric, and what it is without privacy."""
        name = kind(self._metric, generated, model)
        if name not in self._metrics:
            metric = metric_of(self._metric, generated, model)
            self._metrics[name] = metric, generated.nonprivate(metric)
        return self._metrics[name]


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the runs returned, over the seeds: one row per panel, series, line and position."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["final"] and not row["bound"]:
            groups.setdefault((row["panel"], row["series"], row["line"], row["x"]), []).append(row)
    return [
        {
            "panel": panel,
            "series": series,
            "line": line,
            "x_name": group[0]["x_name"],
            "x": x,
            "error": float(np.median([row["error"] for row in group])),
            "least": min(row["error"] for row in group),
            "largest": max(row["error"] for row in group),
            "nonprivate_error": _median(group, "nonprivate_error"),
            "trivial_error": _median(group, "trivial_error"),
            "epsilon": max(row["epsilon"] for row in group),
            "delta": max(row["delta"] for row in group),
            "accountant": group[0]["accountant"],
            "passes": group[0]["passes"],
            "seeds": len(group),
        }
        for (panel, series, line, x), group in groups.items()
    ]


def _median(rows: list[dict[str, Any]], key: str) -> float | None:
    """Over the seeds; None where it is not measured."""
    return None if rows[0][key] is None else float(np.median([row[key] for row in rows]))


def write_parquet(rows: list[dict[str, Any]], figure: Figure, path: str) -> None:
    """All numbers of a figure; what it is stands in the metadata of the file."""
    import pyarrow
    from pyarrow import parquet

    kinds = {"string": pyarrow.string(), "double": pyarrow.float64(), "int64": pyarrow.int64(), "bool": pyarrow.bool_()}
    about = {"format": FORMAT, "id": figure.id, "title": figure.title, "source": figure.source}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()], metadata=about)
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)


def _rows(figure: Figure, cell: Cell, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    panel, job = figure.panels[cell.panel], cell.job
    points = result["points"] if panel.x in ALONG else result["points"][-1:]
    for index, (passes, rounds, error) in enumerate(points):
        yield {
            "panel": panel.name,
            "series": cell.series,
            "line": "" if cell.line is None else f"{panel.line}={cell.line}",
            "x_name": panel.x,
            "x": {"passes": passes, "rounds": rounds}.get(panel.x, _number(cell.x)),
            "seed": cell.seed,
            "error": error,
            "nonprivate_error": result["nonprivate_error"],
            "trivial_error": result["trivial_error"],
            "metric": figure.metric,
            "what": result["what"],
            "bound": "",
            "table": cell.table or "",
            "epsilon": result["epsilon"],
            "delta": result["delta"],
            "accountant": result["accountant"],
            "method": result.get("method", job.method.id),  # runs of an earlier version do not say
            "estimator": job.estimator,
            "n": result.get("n", job.data["n"]),  # a table may have fewer; runs of an earlier version do not say
            "d": result.get("d", job.data["d"]),
            "rounds": rounds,
            "passes": passes,
            "final": index == len(points) - 1,
            "preset": figure.preset,
            "dpdist": version("dpdist"),
        }


def _bounds(figure: Figure) -> list[dict[str, Any]]:
    """Points of the curves beside the runs, at the same positions."""
    rows = []
    for index, panel in enumerate(figure.panels):
        at: dict[Any, Job] = {}
        for cell in figure.cells:
            if cell.panel == index:
                at.setdefault(cell.x, cell.job)
        for label, name in panel.bounds:
            rows += [
                {
                    **dict.fromkeys(COLUMNS),
                    "panel": panel.name,
                    "series": label,
                    "line": "",
                    "x_name": panel.x,
                    "x": _number(x),
                    "error": BOUNDS[name](job),
                    "metric": figure.metric,
                    "bound": name,
                    "table": "",
                    "epsilon": job.epsilon,
                    "delta": job.delta,
                    "n": job.data["n"],
                    "d": job.data["d"],
                    "final": True,
                    "preset": figure.preset,
                    "dpdist": version("dpdist"),
                }
                for x, job in at.items()
            ]
    return rows


def _number(x: Any) -> float | None:
    return float(x) if isinstance(x, int | float) and not isinstance(x, bool) else None


def _check(job: Job) -> None:
    with nobody_asks():
        checked(job, inputs.size(job))


def _data_key(cell: Cell) -> str:
    return json.dumps([cell.job.asked["data"], cell.table], sort_keys=True)


def _kept(path: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if there is none, or if it was cut off."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "points" in found else None


def _keep(path: Path, result: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(result), "utf-8")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise DpdistError(f"{path.parent} cannot be written to ({error.strerror}); name another --output") from None
