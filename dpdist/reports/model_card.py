"""The model card of a run: what a model is, what it may be used for, how private it is and how sure, on one page.

It follows the headings of Mitchell et al. 2019, "Model Cards for Model Reporting", filled from the record of a run:
nothing in it was not public or released. What nobody can know from a record (intended use, people concerned) is marked
as to be written by whoever publishes the model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpdist.data.encoding import Encoding
from dpdist.html import STYLE, escape, number, table, warning
from dpdist.privacy.guarantee import rounded_up
from dpdist.reports.plain_words import in_plain_words
from dpdist.reports.unit_table import ENDS, UnitTable
from dpdist.runs.directory import OutputError, read_finished_run
from dpdist.runs.simulated_fits import with_simulated

TO_BE_WRITTEN = "To be written by whoever publishes the model"


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and tables of a caption, a head and rows."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = ()


def model_card(location: str | os.PathLike[str], *, html: bool = False) -> str:
    """The card of the run at a place, as Markdown or as one page of HTML.

    Raises
    ------
    OutputError
        If there is no finished run.
    """
    run = with_simulated(location, read_finished_run(location))
    try:
        sections = [section for section in (make(run) for make in _SECTIONS) if section.paragraphs or section.tables]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise OutputError(f"the run at {location} is not what dpdist run writes ({type(error).__name__})") from error
    title = f"Model card: {run['title']}"
    return as_html(title, sections, run) if html else as_markdown(title, sections, run)


def as_markdown(title: str, sections: Sequence[Section], run: Mapping[str, Any]) -> str:
    """The card as Markdown; whatever could be markup in a name is escaped."""
    lines = [f"# {_plain(title)}", ""]
    if run.get("simulation"):
        lines += [f"> **{_SIMULATION[0]}** {_SIMULATION[1]}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.paragraphs:
            lines += [_plain(paragraph), ""]
        for caption, head, rows in section.tables:
            cells = [[_plain(_shown(value)) for value in row] for row in rows]
            rule = ["---"] * len(head)
            lines += [
                f"{_plain(caption)}:",
                "",
                *("| " + " | ".join(row) + " |" for row in [[*head], rule, *cells]),
                "",
            ]
    return "\n".join(lines)


def as_html(title: str, sections: Sequence[Section], run: Mapping[str, Any]) -> str:
    """The card as one page without scripts or network."""
    body = [f"<h1>{escape(title)}</h1>"]
    if run.get("simulation"):
        body.append(warning(*_SIMULATION))
    for section in sections:
        body.append(f"<h2>{escape(section.title)}</h2>")
        body += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
        body += [table(head, rows, caption) for caption, head, rows in section.tables]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}{_PAGE}</style></head>"
        f'<body class="dpdist"><main>{"".join(body)}</main></body></html>\n'
    )


_PAGE = ".dpdist{padding:1rem}.dpdist main{max-width:880px;margin:0 auto}"
_SIMULATION = ("Simulation.", "The noise came from a seed: no guarantee holds, and the model must not be published.")


def _details(run: Mapping[str, Any]) -> Section:
    guarantee, params = run["guarantee"], run["asked"].get("params") or {}
    rows = [
        ("estimator", run["estimator"]),
        ("method", f"{run['id']}: {run['title']}"),
        ("parameters", ", ".join(f"{name}={value}" for name, value in params.items()) or "defaults"),
        ("epsilon, delta", f"{rounded_up(guarantee['epsilon'])}, {rounded_up(guarantee['delta'])}"),
        ("fitted", run.get("finished")),
        ("dpdist", (run.get("environment") or {}).get("dpdist")),
        ("run", run["run_id"]),
    ]
    return Section("Model", (), [("What it is", ("", ""), rows)])


def _use(run: Mapping[str, Any]) -> Section:
    return Section(
        "Intended use",
        (
            f"{TO_BE_WRITTEN}: for what, by whom, and for what not.",
            "The model may be handed to anybody under the guarantee below. Its predictions are another matter: each is "
            "about the row it is made of, and is as private as that row.",
        ),
    )


def _data(run: Mapping[str, Any]) -> Section:
    data = run["dataset"]
    n_rows = "a private number of" if data["n_rows"] is None else f"{data['n_rows']:,}"
    unit = (
        data["unit"] if data["max_rows_per_unit"] == 1 else f"{data['unit']} (up to {data['max_rows_per_unit']} rows)"
    )
    rows = [("rows", n_rows), ("source", data["source"]), ("dataset", data["id"]), ("privacy unit", unit)]
    tables: list[Any] = [("What it was fitted to", ("", ""), rows)]
    if data.get("encoding"):
        encoding = Encoding.from_attributes(data["encoding"])
        declared = [(name, text) for name, text in encoding.described().items()]
        plain = [(name, "as it is") for name in encoding.spec.features if name not in encoding.described()]
        tables.append(("Columns, and what was declared of them before a row was read", ("column", "declared"),
                       [*declared, *plain]))  # fmt: skip
    return Section("Data", (f"{TO_BE_WRITTEN}: who the people are, how they were chosen, who is missing.",), tables)


def _privacy(run: Mapping[str, Any]) -> Section:
    held = run["guarantee"]
    plain = in_plain_words(held, str(held.get("unit", "row")), float(held["epsilon"]), float(held["delta"]))
    after = (run.get("budget") or {}).get("after") or {}
    spent = (
        f"All runs on this account together have spent epsilon {rounded_up(after['epsilon'])} and delta "
        f"{rounded_up(after['delta'])}."
        if after
        else ""
    )
    return Section("Privacy", [text for text in (held["text"], plain, spent) if text])


def _performance(run: Mapping[str, Any]) -> Section:
    metrics = run.get("metrics")
    if metrics:
        rows = [
            ("this model", metrics["error"]),
            ("without privacy", metrics["nonprivate_error"]),
            ("ignoring the data", metrics["trivial_error"]),
        ]
        return Section("Performance", (), [(f"On generated data: {metrics['what']}", ("", "error"), rows)])
    return Section(
        "Performance",
        (
            "A score on the rows it was fitted to would tell about them, so there is none here. Score it on public "
            "rows or on rows of people who agreed ('dpdist score'), and write down which.",
        ),
    )


def coefficients(run: Mapping[str, Any]) -> Section:
    """Estimates, in the units of the table where it has any, with intervals or why there are none."""
    inferred, again = run.get("inference") or {}, (run.get("bootstrap") or {}).get("inference")
    why = [f"No intervals: {inferred['none']}."] if "none" in inferred else []
    if again and "rows" not in inferred:
        inferred, by_fits = again, "Estimates without the bias of the method and intervals, by fits to simulated rows."
        why = [by_fits, *again["notes"]]
    if (found := UnitTable.of(run)) is not None:
        return Section("Coefficients", why, [(found.caption, found.head, found.rows)])
    if "rows" not in inferred:
        return Section("Coefficients", why)
    rows = [(row["name"], row["coefficient"], row["low"], row["high"]) for row in inferred["rows"]]
    caption = f"Parameters with intervals of {100 * inferred['level']:g} %, the noise of privacy included"
    return Section("Coefficients", why, [(caption, ["column", "coefficient", *ENDS], rows)])


def _limits(run: Mapping[str, Any]) -> Section:
    return Section(
        "Limits",
        (
            "The noise of privacy is part of every released number; small groups are answered worst, because what few "
            "rows say is what the noise hides.",
            "Rows and labels beyond the declared bounds counted only as far as the bounds; a bound that was too narrow "
            "shows in no number here.",
            f"{TO_BE_WRITTEN}: groups for which it was checked, and for which it was not.",
        ),
    )


def _loading(run: Mapping[str, Any]) -> Section:
    return Section(
        "How to use it",
        (
            'In Python, dpdist.load_run("RUN") is the fitted model. One that predicts does so by .predict(table), and '
            "on the command line by dpdist predict RUN table.csv --output predictions.csv: both take the columns in "
            "the units of the table, where there was one.",
        ),
    )


_SECTIONS = (_details, _use, _data, _privacy, _performance, coefficients, _limits, _loading)


def _shown(value: Any) -> str:
    return "-" if value is None else number(value) if isinstance(value, float) else str(value)


def _plain(text: str) -> str:
    """Text in Markdown in which nothing is markup."""
    text = " ".join(str(text).split())
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text
