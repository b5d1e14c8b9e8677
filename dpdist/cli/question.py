"""``dpdist question``: write down what users will be asked, for them and for the server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.listed_names import listed_names
from dpdist.cli.output import deliver
from dpdist.errors import DpdistError

if TYPE_CHECKING:
    from dpdist.local.survey.protocol import LocalProtocol
    from dpdist.local.survey.questionnaire import Survey


@click.command("question")
@click.argument("job", type=JobName(), required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job; repeatable.")
@click.option("--n-rows", type=click.IntRange(1), metavar="N", help="Expect N users instead of the rows of the data.")
@click.option("--n-features", type=click.IntRange(1), metavar="D", help="Ask about D columns instead of the data's.")
@click.option("--categories", metavar="A,B,C", help="Ask for one of these categories; one with a comma is quoted.")
@click.option("--n-categories", type=click.IntRange(2), metavar="K", help="Ask for one of K categories without names.")
@click.option("--numbers", type=click.IntRange(1), metavar="D", help="Ask for D numbers between --low and --high.")
@click.option("--low", type=float, help="Least number; smaller ones are moved to it.")
@click.option("--high", type=float, help="Largest number; larger ones are moved to it.")
@click.option("--vector", type=click.IntRange(1), metavar="D", help="Ask for D numbers as a vector of norm --radius.")
@click.option("--radius", type=float, help="Longest vector; longer ones are scaled down to it.")
@click.option("--tasks", type=click.IntRange(1), metavar="M", help="Ask for an answer to each of M tasks.")
@click.option("--classes", type=click.IntRange(2), metavar="K", help="Answers to tasks are 0 to K - 1. Default: 2.")
@click.option(
    "--protect",
    type=click.Choice(["answer", "record"]),
    help="Of answers to tasks: each by itself (default), or all of a user, who then reports on one task.",
)
@click.option("--method", help="Law of the reports; see below.  [default: auto]")
@click.option("--epsilon", type=float, help="What a report may tell, to whoever sees it; required without JOB.")
@click.option("--delta", type=float, help="For the method gaussian only, such as 1e-6.")
@click.option("--round", "round_", type=click.IntRange(0), default=0, help="Number of the round, if there are several.")
@click.option("--state", metavar="A,B,C", help="Public numbers that a round of JOB is about: the parameter so far.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write to this file instead of stdout.")
def command(
    job: str | None,
    settings: tuple[str, ...],
    n_rows: int | None,
    n_features: int | None,
    categories: str | None,
    n_categories: int | None,
    numbers: int | None,
    low: float | None,
    high: float | None,
    vector: int | None,
    radius: float | None,
    tasks: int | None,
    classes: int | None,
    protect: str | None,
    method: str | None,
    epsilon: float | None,
    delta: float | None,
    round_: int,
    state: str | None,
    output: str | None,
) -> None:
    """Write the public description of a question to users who randomise their own answers.

    In the local model nobody is trusted with an answer: the device of a user randomises it, and what it sends is
    private already. The description is one JSON file. Devices need it for 'dpdist randomise', the server for 'dpdist
    aggregate'; it says which kind of value is asked for and by which law it is randomised. There is nothing secret in
    it, and it cannot make a program run. A report names the description that it was made with, so that reports of
    another question, or with another epsilon, are not counted.

    Every user should send one report per question: what two reports tell adds up. The report about M tasks has M
    randomised answers: epsilon is for one of them, and M times epsilon for all, unless --protect record is given.

    Categories, numbers and vectors are asked for by the options below. JOB, the YAML file or the id of a method in the
    local model, asks for anything else: the bits of tables, cosines of densities, losses at a random parameter,
    products of features and label. The question is that of the job's parameters and budget, for as many users as its
    data have rows, or --n-rows and --n-features: then the data need not exist. Rows of others that are public
    (data.public) are read, and what users need of them is in the question.

    \b
    Methods ("auto" takes the one with the least noise):
      categories  krr, sue, oue, olh, hadamard-response, subset-selection
      numbers     for one: hybrid, one-bit, piecewise, laplace, gaussian
                  for several: sample-coordinates, one-bit
      vector      privunit, privunitg, hemisphere, gaussian, hybrid
      tasks       (randomised response; tasks that are not answered are null in a record)

    \b
    Examples:
      dpdist question --categories no,yes,unsure --epsilon 1 --output survey.json
      dpdist question --n-categories 1000 --method oue --epsilon 1 > survey.json
      dpdist question --numbers 1 --low 0 --high 120 --epsilon 0.5 > age.json
      dpdist question --vector 50 --radius 1 --epsilon 2 > vector.json
      dpdist question kway-fourier --n-rows 200000 --n-features 12 --set params.order=2 > bits.json
      dpdist question job.yaml --output question.json
      dpdist question --tasks 200 --epsilon 1 > tasks.json
    """
    from dpdist.local.survey.questionnaire import Survey

    own = {
        "--categories": categories, "--n-categories": n_categories, "--numbers": numbers, "--low": low, "--high": high,
        "--vector": vector, "--radius": radius, "--tasks": tasks, "--classes": classes,
        "--protect": protect, "--method": method, "--epsilon": epsilon, "--delta": delta,
    }  # fmt: skip
    if job is not None:
        refused = [name for name, value in own.items() if value is not None]
        if refused:
            raise DpdistError(
                f"{refused[0]} is for questions without a job: set params, method and budget in {job}, or by --set "
                "KEY=VALUE"
            )
        _write(_of_job(job, settings, n_rows, n_features, round_, state), output)
        return
    of_jobs = {"--set": settings or None, "--n-rows": n_rows, "--n-features": n_features, "--state": state}
    refused = [name for name, value in of_jobs.items() if value is not None]
    if refused:
        raise DpdistError(f"{refused[0]} is for the question of a job: give the file or the id of one")
    if epsilon is None:
        raise click.MissingParameter(param_type="option", param_hint="'--epsilon'")
    method = method or "auto"
    kinds = {
        "--categories": categories,
        "--n-categories": n_categories,
        "--numbers": numbers,
        "--vector": vector,
        "--tasks": tasks,
    }
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise DpdistError(
            f"a question asks for one kind of value: give one of {', '.join(kinds)}, not {len(given)}; or a JOB"
        )
    labels = tuple(name.strip() for name in listed_names(categories)) if categories else ()
    if categories is not None and len(labels) < 2:
        raise DpdistError("--categories needs at least two names, separated by commas")
    if tasks is None and (classes, protect) != (None, None):
        raise DpdistError("--classes and --protect are about answers to tasks: give --tasks as well")
    if numbers is not None and None in (low, high):
        raise DpdistError(
            f"{'--low' if low is None else '--high'} is missing: --numbers needs the public range of the numbers, such "
            "as --low 0 --high 120; what lies outside is moved to its ends"
        )
    size = len(labels) or n_categories
    if tasks is not None:
        protocol = _answers(tasks, classes or 2, protect or "answer", method, epsilon, delta)
    elif size:
        protocol = _frequencies(size, method, epsilon)
    else:
        protocol = _mean(numbers, low, high, vector, radius, method, epsilon, delta)
    _write(Survey(protocol, round_, labels), output)


def _write(survey: Survey, output: str | None) -> None:
    """Print or write a question; one that may be in the field is not replaced by another."""
    text = survey.to_json()
    if output is not None and os.path.isfile(place := os.path.expanduser(output)):
        if Path(place).read_text(encoding="utf-8", errors="replace").strip() != text.strip():
            raise DpdistError(
                f"{output} is there already, and is not this question: where users have it, reports to it would not be "
                "counted any more. Name a new file, or delete it"
            )
        return
    deliver(text, output)


def _of_job(
    job: str, settings: tuple[str, ...], n_rows: int | None, n_features: int | None, round_: int, state: str | None
) -> Survey:
    from dpdist.jobs.job import load_job
    from dpdist.jobs.questions import question

    try:
        numbers = None if state is None else [float(part) for part in state.split(",")]
    except ValueError:
        raise DpdistError(f"--state takes numbers separated by commas, got {state!r}") from None
    return question(load_job(job, settings), n_rows=n_rows, n_features=n_features, round_=round_, state=numbers)


def _frequencies(n_categories: int, method: str, epsilon: float) -> LocalProtocol:
    from dpdist.local.frequency.histogram import Histogram

    return Histogram(n_categories=n_categories, method=method, epsilon=epsilon).protocol(1, 1)


def _answers(tasks: int, classes: int, protect: str, method: str, epsilon: float, delta: float | None) -> LocalProtocol:
    from dpdist.local.crowd.truth_inference import TruthInference

    if method != "auto":
        raise DpdistError(f"answers to tasks have one law, randomised response: leave --method {method} out")
    model = TruthInference("majority", unit=protect, n_classes=classes, epsilon=epsilon, delta=delta)
    return model.protocol(1, tasks)


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
