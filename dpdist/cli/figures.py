"""``dpdist figures``: compare methods on generated data, as pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.job_name import FigureName
from dpdist.cli.output import as_json, as_list, as_table, deliver
from dpdist.cli.progress_bar import Tell, progress
from dpdist.errors import DpdistError

if TYPE_CHECKING:
    from dpdist.figures.figure import Cell


@click.command("figures")
@click.argument("names", type=FigureName(), metavar="[ID]...", nargs=-1)
@click.option(
    "--preset", type=click.Choice(["quick", "full"]), default="quick", show_default=True, help="How much to run."
)
@click.option("--seeds", type=click.IntRange(1), metavar="N", help="Number of seeds, in place of the preset's.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of all jobs; repeatable.")
@click.option("--output", default="figures", show_default=True, metavar="DIR", help="Directory for the results.")
@click.option("--folder", metavar="DIR", help="A folder of figures, in place of those of the package.")
@click.option("--yaml", "yaml_", is_flag=True, help="Print the files of the figures, to begin one of your own.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def command(
    names: tuple[str, ...],
    preset: str,
    seeds: int | None,
    settings: tuple[str, ...],
    output: str,
    folder: str | None,
    yaml_: bool,
    json_: bool,
    quiet: bool,
) -> None:
    """Draw figures that compare methods on generated data; without ID, list them.

    ID is the name of a figure that comes with the package (fig-3.1), or the path of a YAML file of your own. It
    says which methods to run, on which data, and what to vary: the budget, the number of rows or features, or the
    passes over the data of one run. The errors are against the known truth, over several seeds, beside those
    without privacy and those of ignoring the data. All runs are simulations on generated data, and no budget is
    spent. Where generated rows stand in for a public table, the figure says so, and --set data.path=DATASET takes the
    table itself, as dpdist ingest wrote it; if it is not there, the error says where to get it.

    The results are ID.svg and ID.png, and all numbers with seeds and guarantees as ID.parquet. Finished runs are kept
    in ID.runs: after Ctrl-C the same command goes on. The preset quick takes seconds to a minute, full the sizes of the
    published experiments, up to hours.

    \b
    Examples:
      dpdist figures
      dpdist figures fig-3.1
      dpdist figures fig-3.1 fig-3.3 --preset full --output results
      dpdist figures fig-3.1 --yaml > mine.yaml
      dpdist figures fig-3.8 --seeds 10 --set budget.delta=1e-6
      dpdist figures mine.yaml --json | jq '.figures[].files.svg'
    """
    from dpdist.figures.figure_file import load_figure, titles
    from dpdist.figures.run_figure import run_figure
    from dpdist.jobs.shipped import figure_file, figures
    from dpdist.jobs.yaml_lines import read_text

    if not names:
        if yaml_:
            raise click.UsageError("--yaml needs the ID of a figure")
        found = {name: titles(path) for name, path in figures(folder).items()}
        if not found:
            raise DpdistError(f"there are no figures in {folder}")
        listed = [{"id": name, "title": title, "source": source} for name, (title, source) in found.items()]
        deliver(as_json({"figures": listed}) if json_ else as_table(listed, {"id": "Figure", "title": "What it shows"}))
        return
    paths = [figure_file(name, folder) for name in names]
    if yaml_:
        deliver("\n".join(read_text(path) for path in paths).removesuffix("\n"))
        return
    loaded = [load_figure(path, preset, settings=settings, n_seeds=seeds) for path in paths]
    records = []
    for figure in loaded:
        with _going_on(), progress(figure.id, quiet) as tell:
            records.append(run_figure(figure, output, tell=None if tell is None else _told_by(tell)))
        if not json_:
            deliver(as_text(records[-1]) + "\n" * (figure is not loaded[-1]))
    if json_:
        deliver(as_json({"figures": records}))


def as_text(record: dict[str, Any]) -> str:
    """What the runs of a figure returned, for people."""
    facts = [
        ("Figure", f"{record['id']}: {record['title']}" + (f" ({record['source']})" if record["source"] else "")),
        ("Runs", f"preset {record['preset']}, seeds 0 to {record['seeds'] - 1}; simulations, on {record['data']}"),
        ("Written", ", ".join(record["files"].values())),
    ]
    titles = {
        "panel": "Panel",
        "series": "Series",
        "line": "Line",
        "x": "x",
        "error": record["metric"].capitalize(),
        "least": "Best",
        "largest": "Worst",
        "nonprivate_error": "Not private",
        "trivial_error": "Trivial",
        "epsilon": "Epsilon",
        "delta": "Delta",
        "passes": "Passes",
    }
    rows = [{key: _rounded(row[key]) for key in titles} for row in record["rows"]]
    if all(row["line"] == "" for row in rows):
        del titles["line"]
    return "\n".join([as_list(facts), "", as_table(rows, titles)])


def _rounded(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


@contextlib.contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stopped:
        stopped.add_note("Finished runs are kept: the same command goes on.")
        raise


def _told_by(tell: Tell) -> Callable[[int, int, Cell], None]:
    return lambda done, total, cell: tell(done + 1, total, _words(cell))


def _words(cell: Cell) -> str:
    data = cell.job.data
    return f"{cell.series}, {data['n']:,} x {data['d']:,}, epsilon {cell.job.epsilon:g}, seed {cell.seed}"
