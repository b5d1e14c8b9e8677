"""``dpdist budget``: the account of a dataset, for those who answer for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli import Commands, budget_backup, budget_move
from dpdist.cli.account_names import existing, find, find_or_name, is_location
from dpdist.cli.account_tables import (
    RELATIONS,
    RELEASE_TITLES,
    RULES,
    RUN_COLUMNS,
    SHOW_COLUMNS,
    account_of,
    account_text,
    all_accounts_text,
    event_of,
    flat,
    history_text,
    limit_of,
    run_of,
)
from dpdist.cli.output import as_csv, as_json, cost, deliver

if TYPE_CHECKING:
    from dpdist.privacy.accounting.filter import Composition


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_printing = _options(
    click.option(
        "--format",
        "form",
        type=click.Choice(["table", "csv", "json"]),
        default="table",
        show_default=True,
        help="How to print.",
    ),
    click.option("--json", "json_", is_flag=True, help="The same as --format json."),
    click.option(
        "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE instead of the terminal."
    ),
)


@click.group("budget", cls=Commands)
def command() -> None:
    """Show, set and look back on what is spent on datasets.

    Every run has a cost, a pair (epsilon, delta): by how much it can at most tell about the data of one person (one
    privacy unit). The ledger, a file, charges the cost before anything is released, and refuses a run that does not
    fit into the limit of the account. A dataset names its account ('dpdist ingest --account'), so that several tables
    about the same people share one; without a name it has one of its own, which its copies share, called like its id.

    DATASET is a path or URL of a stored dataset, the name of an account, or the id of a dataset that the ledger knows.
    Reading an account changes nothing.

    \b
    Examples:
      dpdist budget show                                     all accounts
      dpdist budget set flights.zarr --epsilon 3 --delta 1e-5
      dpdist budget show flights.zarr                        spent, left, limit
      dpdist budget history flights.zarr                     who ran what, and when
      dpdist budget history flights.zarr --releases --format csv --output releases.csv
      dpdist budget backup /backups/ledger-2026-11-19.sqlite
      dpdist budget move flights.zarr --to postgresql://officer@db/budgets
    """


@command.command("show", short_help="Show what is spent, what is left, and the limit.")
@click.argument("dataset", type=click.Path(), required=False)
@budget_backup.ledger_option
@_printing
def show(dataset: str | None, ledger: str | None, form: str, json_: bool, output: str | None) -> None:
    """Show what was spent on DATASET, what is left, and the limit; without DATASET, for every account of the ledger.

    'Spent' is the sum of all runs, by the rule of the account. 'Left' is what one more run on all rows may cost.
    Without a limit, spending is recorded and not limited.

    \b
    Examples:
      dpdist budget show
      dpdist budget show flights.zarr
      dpdist budget show 0f9c2a... --ledger /srv/dpdist/ledger.sqlite --format json
    """
    with existing(ledger) as book:
        if dataset is None:
            accounts = [account_of(book, known) for known in book.accounts()]
            whole: Any = {"ledger": book.path, "accounts": accounts}
            text = all_accounts_text(book.path, accounts)
        else:
            accounts = [account_of(book, find(book, dataset))]
            whole = {"ledger": book.path, **accounts[0]}
            text = account_text(book.path, accounts[0])
    match "json" if json_ else form:
        case "json":
            text = as_json(whole)
        case "csv":
            text = as_csv([flat(account) for account in accounts], SHOW_COLUMNS)
    deliver(text, output)


@command.command("set", short_help="Limit what all runs together may cost.")
@click.argument("dataset", type=click.Path())
@click.option("--epsilon", type=float, required=True, help="What all runs together may cost: epsilon, above 0.")
@click.option("--delta", type=float, required=True, help="... and delta, far below 1 over the number of rows; or 0.")
@click.option(
    "--composition",
    type=click.Choice(list(RULES)),
    help="How the costs of runs add up. Default: as before, or basic.",
)
@click.option(
    "--neighbours",
    type=click.Choice(list(RELATIONS)),
    help="Which datasets a run must make hard to tell apart. Default: as before, or replace-one.",
)
@click.option(
    "--unit",
    metavar="UNIT",
    help="What the limit is about: row, label, answer, or an owner of rows (patient). Default: as in the dataset.",
)
@click.option("--new", is_flag=True, help="DATASET is a name; open an account if the ledger has none of that name.")
@budget_backup.ledger_option
def set_(
    dataset: str,
    epsilon: float,
    delta: float,
    composition: Composition | None,
    neighbours: str | None,
    unit: str | None,
    new: bool,
    ledger: str | None,
) -> None:
    """Limit what all runs on DATASET together may cost; what has been spent already counts.

    Set the limit before the first run. Lowering it later is always sound; raising it weakens what was promised to the
    people in the data to the new limit. Earlier limits stay on file (see 'dpdist budget history').

    The rule 'basic' adds epsilons and deltas and takes any run. 'gaussian' lets more runs into the same limit, and
    takes only runs whose noise is all Gaussian, on all rows or on fixed parts of them (no sampling). Rule,
    neighbours and unit cannot change any more once something is charged.

    A limit about labels is for data whose features are public: it takes methods with private labels, which a limit
    about rows refuses, because they do not protect the rest of a row.

    \b
    Examples:
      dpdist budget set flights.zarr --epsilon 3 --delta 1e-5
      dpdist budget set flights.zarr --epsilon 3 --delta 1e-5 --composition gaussian
      dpdist budget set survey-2026 --new --epsilon 1 --delta 1e-6   # named by account= or dataset_id=
    """
    from dpdist.data import Dataset
    from dpdist.engine.memory import DatasetMemory
    from dpdist.privacy.budget import Budget, Neighbours
    from dpdist.privacy.ledger.ledger import Ledger

    budget = Budget(epsilon, delta)

    def limit(book: Ledger) -> tuple[str, dict[str, Any], DatasetMemory | None]:
        named = find_or_name(book, dataset, new)
        stored = Dataset.open(dataset) if is_location(dataset) else None
        memory = None if stored is None else DatasetMemory(stored, named, book)
        if memory is not None and (head := memory.remembered(book.id)) is not None:
            book.check_remembered(head, memory.called, named)
        before = account_of(book, named)
        relation = Neighbours(neighbours or before["neighbours"] or "replace-one")
        rule: Composition = composition or (before["composition"] if before["limit"] else "basic")
        own = stored.schema.unit if before["unit"] is None and stored is not None else None
        book.set_limit(named, budget, neighbours=relation, composition=rule, unit=unit or own)
        return named, before, memory

    if (trial := Ledger.unless_there(ledger)) is not None:
        with contextlib.closing(trial):
            limit(trial)
    with contextlib.closing(Ledger(ledger)) as book:
        named, before, memory = limit(book)
        account = account_of(book, named)
        lines = [account_text(book.path, account)]
        if memory is not None:
            memory.remember(book.head())
            if memory.is_missing:
                lines.append(
                    f"{dataset} cannot be written, so the ledger alone remembers this limit: keep it, and copies of it."
                )
    old, spent = before["limit"], account["spent"]
    if old and (epsilon > old["epsilon"] or delta > old["delta"]):
        lines.append(f"The limit was raised (it was {cost(**old)}): the promise is now the new, weaker one.")
    if spent["epsilon"] > epsilon or spent["delta"] > delta:
        lines.append("More than this limit is spent already: every further run will be refused.")
    deliver("\n\n".join(lines))


@command.command("history", short_help="List who ran what, when, and at what cost.")
@click.argument("dataset", type=click.Path())
@click.option("--releases", is_flag=True, help="List every release of every run, with its noise.")
@budget_backup.ledger_option
@_printing
def history(dataset: str, releases: bool, ledger: str | None, form: str, json_: bool, output: str | None) -> None:
    """Show every run on DATASET: when, by whom, under which name, at what cost; the limits that were set, and when the
    ledger was restored or an account was moved.

    'By' is the account and the machine that the run was started on. A run appears when it is charged, which is before
    its first release; one that failed afterwards stays charged, and can be resumed under its name at no cost.

    A release is one private result: its noise (the standard deviation of what was added to each number), its
    sensitivity (how far one privacy unit's data can move the result before noise), and its cost. With --format csv,
    --releases gives one line per release instead of one per run.

    \b
    Examples:
      dpdist budget history flights.zarr
      dpdist budget history flights.zarr --releases
      dpdist budget history flights.zarr --format json | jq '.runs[].epsilon'
      dpdist budget history flights.zarr --format csv --output runs.csv
    """
    with existing(ledger) as book:
        named = find(book, dataset)
        limits = [limit_of(when, limit) for when, limit in book.limits(named)]
        runs = [run_of(record) for record in book.history(named)]
        events = [event_of(*event) for event in book.events()]
        path = book.path
    match "json" if json_ else form:
        case "json":
            if not releases:
                runs = [{key: value for key, value in run.items() if key != "releases"} for run in runs]
            text = as_json({"ledger": path, "account": named, "limits": limits, "runs": runs, "events": events})
        case "csv" if releases:
            lines = [{**run, **release} for run in runs for release in run["releases"] or [{}]]
            text = as_csv(lines, [*RUN_COLUMNS, *RELEASE_TITLES])
        case "csv":
            text = as_csv(runs, RUN_COLUMNS)
        case _:
            text = history_text(named, runs, limits, events, releases)
    deliver(text, output)


for _kept in (budget_backup.backup, budget_backup.restore, budget_move.move):
    command.add_command(_kept)
