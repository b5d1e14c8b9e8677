"""``dpdist aggregate``: the server's side."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, as_list, as_table, deliver
from dpdist.errors import DpdistError

if TYPE_CHECKING:
    from dpdist.local.survey.aggregation import Aggregated
    from dpdist.local.survey.questionnaire import Survey

KINDS = {
    "length": "wrong length",
    "version": "no report, or of another version",
    "round": "another round",
    "survey": "another question or epsilon",
    "domain": "impossible",
    "duplicate": "duplicate",
}
BAR = 30
SHOWN = 40
"""So many values are shown as text."""
SHARE = 0.01


@click.command("aggregate")
@click.option(
    "--protocol", required=True, type=click.Path(dir_okay=False), help="The question, as 'dpdist question' wrote it."
)
@click.argument("reports", type=click.Path())
@click.option("--job", type=JobName(), help="Fit what this job fits, whose question it was.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job; repeatable.")
@click.option("--n-rows", type=click.IntRange(1), metavar="N", help="As it was given to 'dpdist question'.")
@click.option("--n-features", type=click.IntRange(1), metavar="D", help="As it was given to 'dpdist question'.")
@click.option(
    "--poisoned", type=click.FloatRange(0, 1), default=SHARE, show_default=True, metavar="SHARE",
    help="Say how far this share of dishonest users could move the estimate.",
)  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS", help="Add up on this Dask cluster instead of in threads.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(
    protocol: str,
    reports: str,
    job: str | None,
    settings: tuple[str, ...],
    n_rows: int | None,
    n_features: int | None,
    poisoned: float,
    scheduler: str | None,
    quiet: bool,
    json_: bool,
) -> None:
    """Add up the reports of users, and decode what they say.

    REPORTS is a Zarr array of bytes (n, length) or a group with an array "reports", a Parquet file or a directory of
    them with a binary column, a file of lines of hexadecimal digits (.hex, .txt), or the bytes of reports one after
    another (any other file).

    Reports are private already: nothing is charged to any budget, and whoever holds them may look at them in any way.
    Those that are malformed, of another question, version or round, that no honest device can have sent, or that
    arrive a second time are counted by kind and left out. A dishonest user can still send what an honest one might
    have sent; how far that can move the estimate is bounded, and the bound is printed.

    The standard error is that of one coordinate (one frequency) at the worst answers.

    With --job, and the --set, --n-rows and --n-features that its question was written with, what the job fits is made
    of the reports: the coefficients, the surface, the frequencies.

    \b
    Examples:
      dpdist aggregate --protocol survey.json reports.zarr
      dpdist aggregate --protocol survey.json reports.parquet --json | jq '.estimate'
      cat inbox/*.hex > all.hex && dpdist aggregate --protocol survey.json all.hex
      dpdist aggregate --protocol question.json reports.zarr --job job.yaml --json | jq '.fitted.coef'
    """
    from dpdist.cli.progress_display import showing
    from dpdist.jobs.job import load_job
    from dpdist.local.survey.aggregation import aggregate
    from dpdist.local.survey.questionnaire import Survey

    if job is None and (settings or n_rows or n_features):
        raise DpdistError("--set, --n-rows and --n-features say which question a job asked: give it with --job")
    survey, asked = Survey.read(protocol), None if job is None else load_job(job, settings)
    with showing(quiet=quiet or json_):
        found = aggregate(survey, reports, cluster=scheduler or "threads")
    facts = _facts(survey, found, poisoned)
    if asked is not None:
        from dpdist.jobs.questions import fit_reports
        from dpdist.jobs.run import released_arrays

        model = fit_reports(asked, found, n_rows=n_rows, n_features=n_features)
        fitted = released_arrays(asked, model)
        facts["fitted"] = {name: values.tolist() for name, values in fitted.items()}
    deliver(as_json(facts) if json_ else _text(survey, facts))


def _facts(survey: Survey, found: Aggregated, share: float) -> dict[str, Any]:
    return {
        "survey": survey.fingerprint,
        "round": survey.round,
        "method": survey.protocol.randomiser.name,
        "received": found.received,
        "counted": found.n_users,
        "rejected": dict(found.rejected),
        "labels": list(map(str, survey.labels or getattr(survey.protocol.statistic, "labels", ()))),
        **_labels(found),
        "estimate": found.estimate.ravel().tolist(),
        "standard_error": found.standard_error,
        "poisoned": {"share": share, "bound": found.poisoned(share)},
        "guarantee": found.guarantee.to_dict(),
    }


def _labels(found: Aggregated) -> dict[str, Any]:
    """The classes that most answers to each task support, where answers to tasks were asked for."""
    from dpdist.local.crowd.answer_protocol import AnswerProtocol
    from dpdist.local.crowd.crowd_methods import labels_of

    if not isinstance(found.protocol, AnswerProtocol):
        return {}

    return {"labels_of_tasks": labels_of(found.estimate).tolist()}


def _text(survey: Survey, facts: dict[str, Any]) -> str:
    category = survey.protocol.statistic.domain == "category"
    refused = [f"{n:,} {KINDS[kind]}" for kind, n in facts["rejected"].items() if n]
    lines = [
        ("Question", f"{facts['survey'][:16]}, round {facts['round']}"),
        ("Method", facts["method"]),
        ("Reports", f"{facts['received']:,} received, {facts['counted']:,} counted"),
        ("Rejected", ", ".join(refused) or "none"),
        ("Error", f"{facts['standard_error']:.4g} (standard deviation of the noise in each value)"),
        (
            "Poisoning",
            f"{facts['poisoned']['share']:.3g} of the reports, if dishonest, move a value by at most "
            f"{facts['poisoned']['bound']:.4g}",
        ),
    ]
    if "labels_of_tasks" in facts:
        labels = facts.get("fitted", {}).get("labels", facts["labels_of_tasks"])
        size = len(facts["estimate"]) // len(labels)
        answers = [
            {"name": i, "label": label, "share": facts["estimate"][i * size + label]}
            for i, label in enumerate(labels[:SHOWN])
        ]
        table = as_table(answers, {"name": "Task", "label": "Label", "share": "Share of answers"})
        if len(labels) > SHOWN:
            table += f"\n... and {len(labels) - SHOWN:,} more, which --json has"
        return "\n".join(
            [as_list(lines), "", table + _fitted(facts), "", *textwrap.wrap(facts["guarantee"]["text"], 100)]
        )
    rows = [
        {
            "name": facts["labels"][i] if category and facts["labels"] else str(i),
            "estimate": value,
            "bar": "#" * round(BAR * min(max(value, 0.0), 1.0)),
        }
        for i, value in enumerate(facts["estimate"][:SHOWN])
    ]
    titles = {"name": "Category" if category else "Column", "estimate": "Frequency" if category else "Mean"}
    table = as_table(rows, {**titles, "bar": ""} if category else titles)
    if (n_more := len(facts["estimate"]) - len(rows)) > 0:
        table += f"\n... and {n_more:,} more, which --json has"
    return "\n".join([as_list(lines), "", table + _fitted(facts), "", *textwrap.wrap(facts["guarantee"]["text"], 100)])


def _fitted(facts: dict[str, Any]) -> str:
    """What a job made of the reports."""
    return "".join(f"\n\n{name}: {_shown(values)}" for name, values in facts.get("fitted", {}).items())


def _shown(values: Any) -> str:
    """A number, or nested lists of them as far as they are few."""
    if not isinstance(values, list):
        return f"{values:.6g}"
    if len(values) > SHOWN or (values and isinstance(values[0], list) and len(values) * len(values[0]) > SHOWN):
        return f"{len(values)} values or rows of them, which --json has"
    return f"[{', '.join(map(_shown, values))}]"
