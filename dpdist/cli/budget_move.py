"""``dpdist budget move``: an account goes to another ledger, with its limit and all that was spent."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import click

from dpdist.cli.account_names import existing, find, is_location
from dpdist.cli.budget_backup import ledger_option
from dpdist.cli.output import deliver


@click.command("move", short_help="Move an account to another ledger.")
@click.argument("dataset", type=click.Path())
@click.option("--to", "target", metavar="FILE", required=True, help="The other ledger; it may be a new one.")
@click.option(
    "--dataset", "others", multiple=True, metavar="PATH", help="Another dataset that it limits, to be told. Repeatable."
)
@click.option(
    "--nothing-since",
    is_flag=True,
    help="It was moved before, to a ledger that is lost. You answer for it: nothing was charged there.",
)
@ledger_option
def move(dataset: str, target: str, others: Sequence[str], nothing_since: bool, ledger: str | None) -> None:
    """Move the account of DATASET from the ledger to another one: its limits, its runs, and all that was spent.

    Once an account has a limit, its datasets remember the ledger, and another one is refused, because there everything
    could be spent a second time. To change the ledger (a file for a server, one server for another), move the account.
    It is on file in both ledgers, with your name. From then on the old ledger refuses charges and says where the
    account went; its history stays readable. Datasets that are named here are told at once, others when they are next
    used: they know the new ledger by what it took over.

    Finish unfinished runs first: no run from before the move can go on afterwards. What it released stays, and its
    values stay in the journal that has them (with the old ledger, unless it is kept elsewhere): keep that.

    A move that is cut off at any instant charges nothing twice: the account is charged in one of the two ledgers or in
    none, and the same command finishes it. A ledger that has runs of the account already is refused.

    \b
    Examples:
      dpdist budget move flights.zarr --to postgresql://officer@db/budgets
      dpdist budget move survey-2026 --ledger old.sqlite --to /srv/ledger.sqlite --dataset a.zarr --dataset b.zarr
    """
    from dpdist.data import Dataset
    from dpdist.engine.memory import DatasetMemory, noted_head
    from dpdist.privacy.ledger import moving
    from dpdist.privacy.ledger.ledger import Ledger
    from dpdist.privacy.ledger.records import whoami

    with existing(ledger) as source:
        account = find(source, dataset)
        places = dict.fromkeys([*([dataset] if is_location(dataset) else []), *others])
        stored = {place: Dataset.open(place) for place in places}

        def check(book: Ledger) -> None:
            went = source.move(account)
            gone = not nothing_since and went is not None and went.stage == "gone" and went.ledger
            for place, data in stored.items():
                if find(source, place) != account:
                    raise click.UsageError(f"{place} pays from another account ({find(source, place)}), not {account}")
                known = noted_head(data)
                if known is not None and known[0].ledger not in (book.id, gone):  # gone: refused below, or finished
                    source.check_remembered(known[0], f"the dataset {data.location}", account)
            moving.check_may_leave(source, account, book, nothing_since=nothing_since)

        if (trial := Ledger.unless_there(target)) is not None:
            with contextlib.closing(trial):
                check(trial)
        with contextlib.closing(Ledger(target)) as book:
            check(book)
            why = f"{whoami()}{', who answers for it that nothing was charged meanwhile' if nothing_since else ''}"
            count = moving.move(source, account, book, why, nothing_since=nothing_since)
            lines = [
                f"The account {account} is in {book.path} now, with {count:,} run{'' if count == 1 else 's'}; "
                f"{source.path} refuses it from here on. Keep that file or database: it has the history, and "
                "the values of its runs unless their journal is elsewhere."
            ]
            for place, data in stored.items():
                memory = DatasetMemory(data, account, book)
                memory.remember(book.head())
                if memory.is_missing:
                    lines.append(f"{place} cannot be written, so the ledgers alone remember this.")
            others_of = sorted({*book.datasets(account)} - {data.id for data in stored.values()})
            if others_of and book.limit(account) is not None:
                lines.append(
                    f"Not told: {', '.join(others_of)}. Until it is next used, such a dataset would take an older copy "
                    "of the old ledger: the same command with --dataset PATH tells it, where it is stored."
                )
    deliver("\n".join(lines))
