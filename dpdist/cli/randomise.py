"""``dpdist randomise``: the user's side, on the user's own machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.output import write_whole
from dpdist.errors import DataError

if TYPE_CHECKING:
    from dpdist.local.survey.questionnaire import Survey
    from dpdist.local.survey.wire import Bytes


@click.command("randomise")
@click.option(
    "--protocol", required=True, type=click.Path(dir_okay=False), help="The question, as 'dpdist question' wrote it."
)
@click.option("--value", metavar="VALUE", help="The answer: a category, or numbers separated by commas.")
@click.option("--record", metavar="JSON", help='The answer as JSON, such as \'{"X": [1, 2], "y": 0.5}\'.')
@click.option(
    "--input", "input_", type=click.Path(dir_okay=False, allow_dash=True), help="File of records, one JSON per line."
)
@click.option("--output", type=click.Path(), help="Write bytes to this new file; a name in .zarr makes a store.")
@click.option("--raw", is_flag=True, help="Write bytes to stdout, not hexadecimal digits.")
def command(
    protocol: str, value: str | None, record: str | None, input_: str | None, output: str | None, raw: bool
) -> None:
    """Randomise an answer on the user's own machine, and write the report that may be sent.

    The report protects the answer with the epsilon of the question, against everybody who sees it, the server
    included. The randomness is that of the operating system's cryptographic generator; it is not kept, and the answer
    is neither printed nor written anywhere. Run the command once per question and user: two reports about one answer
    tell twice as much.

    Every line of output is one report in hexadecimal digits; all reports to a question have the same length. Values out
    of range are moved into it. A record that is not what the question asks for (missing, not a number, no category)
    still gives a report, because a missing one would tell; only a --value that cannot be an answer is refused, as
    mistyped.

    --value and --record can be seen by other users of the machine while the command runs; '--input -' reads from stdin
    instead.

    \b
    Examples:
      dpdist randomise --protocol survey.json --value yes
      dpdist randomise --protocol age.json --value 42 --output report.bin
      echo '"yes"' | dpdist randomise --protocol survey.json --input -
      dpdist randomise --protocol survey.json --input records.jsonl --output reports.zarr
    """
    from dpdist.local.survey.answers import check_typed, rows_of
    from dpdist.local.survey.questionnaire import Survey
    from dpdist.local.survey.wire import encode
    from dpdist.privacy.randomness.draws import SystemDraws

    given = [name for name in (value, record, input_) if name is not None]
    if len(given) != 1:
        raise DataError(f"give the answer by one of --value, --record and --input: {len(given) or 'none'} given")
    survey = Survey.read(protocol)
    records = _records(survey, value, record, input_)
    if value is not None:
        check_typed(survey, records[0])
    reports = survey.protocol.randomise(rows_of(survey, records), SystemDraws(), survey.public)
    _write(encode(survey, reports), output, raw)


_TABLES = (".csv", ".tsv", ".parquet", ".zarr", ".xlsx", ".npy", ".npz")


def _records(survey: Survey, value: str | None, record: str | None, input_: str | None) -> list[Any]:
    if value is not None:
        if value in (survey.labels or getattr(survey.protocol.statistic, "labels", ())):
            return [value]
        parts = [_number(part) for part in value.split(",")]
        return [parts[0] if len(parts) == 1 else parts]
    if record is not None:
        return [_parsed(record)]
    assert input_ is not None
    if input_.endswith(_TABLES):  # by its name: an error for what stands in it would tell of an answer
        raise DataError(
            f"{input_} is a table by its name, and --input takes one JSON value per line: the answer of a user, such "
            'as "yes", 42 or [1, 0, 1]. Write those first'
        )
    text = sys.stdin.read() if input_ == "-" else Path(input_).read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    if not lines:
        raise DataError("there is no record: expected one JSON value per line")
    return [_parsed(line) for line in lines]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return None


def _parsed(text: str) -> Any:
    """A JSON value; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _write(data: Bytes, output: str | None, raw: bool) -> None:
    if output is not None and output.rstrip("/").endswith(".zarr"):
        from dpdist.local.survey.aggregation import write_reports

        write_reports(output, [data])
    elif output is not None:
        try:
            write_whole(output, data.tobytes(), new=True)
        except FileExistsError:
            raise DataError(
                f"{output} is there already: if it was made of the same answers, send it, since two reports about one "
                "answer tell twice as much; else choose another name, or delete it"
            ) from None
    elif raw:
        sys.stdout.buffer.write(data.tobytes())
    else:
        click.echo("\n".join(bytes(row).hex() for row in data))
