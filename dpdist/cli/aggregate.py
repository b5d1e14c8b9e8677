"""``dpdist aggregate``: the server's side."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.output import as_json, as_list, as_table, deliver

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
SHARE = 0.01


@click.command("aggregate")
@click.option(
    "--protocol", required=True, type=click.Path(dir_okay=False), help="The question, as 'dpdist question' wrote it."
)
@click.argument("reports", type=click.Path())
@click.option(
    "--poisoned", type=click.FloatRange(0, 1), default=SHARE, show_default=True, metavar="SHARE",
    help="Say how far this share of dishonest users could move the estimate.",
)  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS", help="Add up on this Dask cluster instead of in threads.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(protocol: str, reports: str, poisoned: float, scheduler: str | None, quiet: bool, json_: bool) -> None:
    """Add up the reports of users, and decode what they say.

    REPORTS is a Zarr array of bytes (n, length) or a group with an array "reports", a Parquet file or a directory of
    them with a binary column, a file of lines of hexadecimal digits (.hex, .txt), or the bytes of reports one after
    another (any other file).

    Reports are private already: nothing is charged to any budget, and whoever holds them may look at them in any way.
    Those that are malformed, of another question, version or round, that no honest device can have sent, or that
    arrive a second time are counted by kind and left out. A dishonest user can still send what an honest one might
    have sent; how far that can move the estimate is bounded, and the bound is printed.

    The standard error is that of one coordinate (one frequency) at the worst answers.

    \b
    Examples:
      dpdist aggregate --protocol survey.json reports.zarr
      dpdist aggregate --protocol survey.json reports.parquet --json | jq '.estimate'
      cat inbox/*.hex > all.hex && dpdist aggregate --protocol survey.json all.hex
    """
    from dpdist.cli.progress_display import showing
    from dpdist.local.survey.aggregation import aggregate
    from dpdist.local.survey.questionnaire import Survey

    survey = Survey.read(protocol)
    with showing(quiet=quiet or json_):
        found = aggregate(survey, reports, cluster=scheduler or "threads")
    facts = _facts(survey, found, poisoned)
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
        "estimate": found.estimate.ravel().tolist(),
        "standard_error": found.standard_error,
        "poisoned": {"share": share, "bound": found.poisoned(share)},
        "guarantee": found.guarantee.to_dict(),
    }


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
    rows = [
        {
            "name": facts["labels"][i] if facts["labels"] else str(i),
            "estimate": value,
            "bar": "#" * round(BAR * min(max(value, 0.0), 1.0)),
        }
        for i, value in enumerate(facts["estimate"])
    ]
    titles = {"name": "Category" if category else "Column", "estimate": "Frequency" if category else "Mean"}
    table = as_table(rows, {**titles, "bar": ""} if category else titles)
    return "\n".join([as_list(lines), "", table, "", *textwrap.wrap(facts["guarantee"]["text"], 100)])
