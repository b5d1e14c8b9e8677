"""``dpdist question``: write down what users will be asked, for them and for the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dpdist.cli.output import deliver
from dpdist.errors import DpdistError

if TYPE_CHECKING:
    from dpdist.local.survey.protocol import LocalProtocol


@click.command("question")
@click.option("--categories", metavar="A,B,C", help="Ask for one of these categories.")
@click.option("--n-categories", type=click.IntRange(2), metavar="K", help="Ask for one of K categories without names.")
@click.option("--numbers", type=click.IntRange(1), metavar="D", help="Ask for D numbers between --low and --high.")
@click.option("--low", type=float, help="Least number; smaller ones are moved to it.")
@click.option("--high", type=float, help="Largest number; larger ones are moved to it.")
@click.option("--vector", type=click.IntRange(1), metavar="D", help="Ask for D numbers as a vector of norm --radius.")
@click.option("--radius", type=float, help="Longest vector; longer ones are scaled down to it.")
@click.option("--method", default="auto", show_default=True, help="Law of the reports; see below.")
@click.option("--epsilon", type=float, required=True, help="What a report may tell, to whoever sees it.")
@click.option("--delta", type=float, help="For the method gaussian only, such as 1e-6.")
@click.option("--round", "round_", type=click.IntRange(0), default=0, help="Number of the round, if there are several.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write to this file instead of stdout.")
def command(
    categories: str | None,
    n_categories: int | None,
    numbers: int | None,
    low: float | None,
    high: float | None,
    vector: int | None,
    radius: float | None,
    method: str,
    epsilon: float,
    delta: float | None,
    round_: int,
    output: str | None,
) -> None:
    """Write the public description of a question to users who randomise their own answers.

    In the local model nobody is trusted with an answer: the device of a user randomises it, and what it sends is
    private already. The description is one JSON file. Devices need it for 'dpdist randomise', the server for 'dpdist
    aggregate'; it says which kind of value is asked for and by which law it is randomised. There is nothing secret in
    it, and it cannot make a program run. A report names the description that it was made with, so that reports of
    another question, or with another epsilon, are not counted.

    Every user should send one report per question: what two reports tell adds up.

    \b
    Methods ("auto" takes the one with the least noise):
      categories  krr, sue, oue, olh, hadamard-response, subset-selection
      numbers     for one: hybrid, one-bit, piecewise, laplace, gaussian
                  for several: sample-coordinates, one-bit
      vector      privunit, privunitg, hemisphere, gaussian, hybrid

    \b
    Examples:
      dpdist question --categories no,yes,unsure --epsilon 1 --output survey.json
      dpdist question --n-categories 1000 --method oue --epsilon 1 > survey.json
      dpdist question --numbers 1 --low 0 --high 120 --epsilon 0.5 > age.json
      dpdist question --vector 50 --radius 1 --epsilon 2 > vector.json
    """
    from dpdist.local.survey.questionnaire import Survey

    kinds = {"--categories": categories, "--n-categories": n_categories, "--numbers": numbers, "--vector": vector}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise DpdistError(f"a question asks for one kind of value: give one of {', '.join(kinds)}, not {len(given)}")
    labels = tuple(part.strip() for part in categories.split(",")) if categories else ()
    if categories is not None and len(labels) < 2:
        raise DpdistError("--categories needs at least two names, separated by commas")
    size = len(labels) or n_categories
    protocol = (
        _frequencies(size, method, epsilon)
        if size
        else _mean(numbers, low, high, vector, radius, method, epsilon, delta)
    )
    deliver(Survey(protocol, round_, labels).to_json(), output)


def _frequencies(n_categories: int, method: str, epsilon: float) -> LocalProtocol:
    from dpdist.local.frequency.histogram import Histogram

    return Histogram(n_categories=n_categories, method=method, epsilon=epsilon).protocol(1, 1)


def _mean(
    numbers: int | None,
    low: float | None,
    high: float | None,
    vector: int | None,
    radius: float | None,
    method: str,
    epsilon: float,
    delta: float | None,
) -> LocalProtocol:
    from dpdist.local.mean.columns import Mean

    size = numbers or vector or 1
    domain = "l2" if vector else "interval" if size == 1 else "box"
    model = Mean(domain, method, low=low, high=high, radius=radius, epsilon=epsilon, delta=delta)
    return model.protocol(1, size)
