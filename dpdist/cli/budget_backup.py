"""``dpdist budget backup`` and ``restore``: copies of the ledger, and what its loss means."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from dpdist.cli.output import deliver, moment

ledger_option = click.option(
    "--ledger",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The ledger, a file or postgresql://USER@HOST/DATABASE. Default: $DPDIST_LEDGER, else this account's file.",
)


@click.command("backup", short_help="Copy the ledger, while it is in use.")
@click.argument("copy", type=click.Path(dir_okay=False))
@ledger_option
def backup(copy: str, ledger: str | None) -> None:
    """Write a copy of the ledger to the new file COPY.

    Runs may go on meanwhile: the copy is the ledger as it stood at one moment. (A plain copy of a file in use may lack
    all that was charged last.) It is an SQLite file, of a ledger in PostgreSQL as well, and has the released values if
    the journal is kept in the same database. Copy a journal that is elsewhere after the ledger, never before.

    \b
    Examples:
      dpdist budget backup /backups/ledger-$(date +%F).sqlite
      dpdist budget backup copy.sqlite --ledger postgresql://officer@db/budgets
    """
    from dpdist.privacy.ledger.backup import back_up
    from dpdist.privacy.ledger.location import default_path

    path = default_path() if ledger is None else ledger
    done = back_up(path, copy)
    runs = f"{done.runs:,} run{'' if done.runs == 1 else 's'}"
    lines = [f"{copy}: {path} with {runs}, the last entry of {moment(done.when)}."]
    if done.journals:
        lines.append(f"Values of its runs are kept elsewhere; copy that now: {', '.join(done.journals)}")
    deliver("\n".join(lines))


@click.command("restore", short_help="Put the ledger back, with what was charged since.")
@click.argument("copy", type=click.Path(dir_okay=False), required=False)
@click.option("--dataset", "datasets", multiple=True, metavar="PATH", help="A dataset that it limited. Repeatable.")
@click.option(
    "--runs", multiple=True, metavar="DIR", help="The output of a run, or a directory of several. Repeatable."
)
@click.option("--journal", "journals", multiple=True, metavar="PLACE", help="A journal beside it. Repeatable.")
@click.option("--nothing-since", is_flag=True, help="You answer for it: nothing was charged since the copy was made.")
@ledger_option
def restore(
    copy: str | None,
    datasets: Sequence[str],
    runs: Sequence[str],
    journals: Sequence[str],
    nothing_since: bool,
    ledger: str | None,
) -> None:
    """Put a ledger that was lost back from COPY, a file that 'dpdist budget backup' wrote.

    A copy has forgotten what was charged after it was made, so a restored ledger would let everything be spent a second
    time. Name whoever remembers more, all that there are: the datasets that it limited remember what was spent, the
    outputs of runs and journals that are kept elsewhere remember every charge. What the copy has not is charged again;
    nothing is charged twice. Where nothing was charged since, say so with --nothing-since: it is kept on file, with
    your name.

    Whoever remembers more and was not named refuses the restored ledger: name it then, without COPY. The same makes up
    for a ledger that was put back by other means (a snapshot of a disk, a recovery of PostgreSQL), and, where all
    copies are lost, makes a ledger of what is remembered.

    No run from before the restore can go on: its results stay what they are, and what it has not released yet is lost.
    Restore the newest state instead wherever there is one, the write-ahead log included.

    \b
    Examples:
      dpdist budget restore /backups/monday.sqlite --dataset flights.zarr --runs /srv/runs
      dpdist budget restore /backups/monday.sqlite --nothing-since
      dpdist budget restore --journal s3://bucket/journal          # the ledger was put back by other means
    """
    from dpdist.privacy.ledger.backup import put_back
    from dpdist.privacy.ledger.location import default_path
    from dpdist.privacy.ledger.records import whoami
    from dpdist.runs.remembered import gather

    if not (datasets or runs or journals or nothing_since):
        raise click.UsageError(
            "say what was charged since: name the datasets, the runs and the journals that may remember more "
            "(--dataset, --runs, --journal); or answer for it that nothing was (--nothing-since)"
        )
    path = default_path() if ledger is None else ledger
    memories = gather(datasets, runs, journals)
    silent = [memory.by for memory in memories if not memory.heads and not memory.charged]
    if len(silent) == len(memories) and not nothing_since:
        raise click.UsageError(
            f"nobody who was asked remembers anything of a ledger ({', '.join(silent)}): name others who may, or "
            "answer for it that nothing was charged since (--nothing-since)"
        )
    why = f"{whoami()}, from {'other means' if copy is None else os.path.basename(copy)}"
    done = put_back(copy, path, memories, why + ("; nothing was charged since" if nothing_since else ""))
    lines = [f"{path} is in use again; nothing from before can go on."]
    if done.runs:
        lines.append(f"Charged again: {', '.join(done.runs)}")
    if done.accounts:
        lines.append(f"Spent by runs that nobody remembers, and charged: on {', '.join(done.accounts)}")
    if silent:
        lines.append(f"Remembered nothing: {', '.join(silent)}")
    deliver("\n".join(lines))
