"""The ``dpdist`` command: a thin layer over the library, with one module per command.

A command's module is imported when the command is called, so that ``dpdist --help`` and completion answer at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem, shell_complete

from dpdist.cli import exit_codes  # not its names: a command may be named like one
from dpdist.errors import did_you_mean

COMPLETE_VARIABLE = "_DPDIST_COMPLETE"
"""Set by the completion scripts; the process then prints completions instead of running a command."""

SELDOM = 50_000, 20, 20
"""When memory is searched for rings: by default after every 700 objects, a fifth of the time that imports take."""

COMMANDS = {
    "ingest": "Turn CSV, Parquet, NumPy or Zarr files into a dataset.",
    "levels": "Propose the levels of a column; the curator's side.",
    "info": "Show the public description of a dataset.",
    "methods": "List the methods that a job can name.",
    "plan": "Show the noise and the cost of a job; reads no data.",
    "run": "Run a job: fit, charge the budget, write the results.",
    "report": "Write the report page of a run.",
    "bootstrap": "Say how sure a run is, by fits to rows of its own law.",
    "predict": "Predict the labels of new rows with the model of a run.",
    "score": "Compare predictions with labels; the curator's side.",
    "card": "Write the model card of a run, as Markdown or HTML.",
    "export": "Write the linear model of a run as ONNX.",
    "figures": "Compare methods on generated data, as pictures.",
    "audit": "Try to catch a method leaking more than it claims.",
    "doctor": "Examine a deployment, and say what to fix.",
    "warm": "Compile what methods need, before a run waits for it.",
    "question": "Write down a question to users who randomise their answers.",
    "randomise": "Make a private report of an answer, on the user's machine.",
    "aggregate": "Add up private reports, and decode what they say.",
    "budget": "Show, set and look back on what is spent on a dataset.",
    "submit": "Run a job on a Kubernetes cluster.",
    "status": "Show the runs that were submitted.",
    "logs": "Print the log of a submitted run.",
    "cancel": "End a submitted run.",
    "docs": "Say where the pages to read are, and open them.",
    "schema": "Print the JSON schemas of jobs and results.",
    "completion": "Print the completion script of a shell.",
}
"""Name and one line on each command, in the order in which a newcomer meets them."""
_MODULES = {"levels": "column_levels", "bootstrap": "intervals_by_fits"}
"""Of commands whose name another idea has among the modules: the levels of epsilon in a survey, and how fits to rows of
a fitted law are made."""


class Commands(click.Group):
    """A group that answers a mistyped command with the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begin with."""
        names = self.list_commands(ctx)
        if not ctx.resilient_parsing and args and args[0] not in names:
            hint = did_you_mean(args[0], names) or f"expected one of: {', '.join(names)}."
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


class LazyCommands(Commands):
    """The commands of the table above; help and completion of their names import none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"dpdist.cli.{_MODULES.get(cmd_name, cmd_name)}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name, or an option of ``dpdist`` itself."""
        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run one command line and exit; exit codes are in `dpdist.cli.exit_codes`."""
        words = list(sys.argv[1:] if args is None else args)
        gc.set_threshold(*SELDOM)
        if instruction := os.environ.get(COMPLETE_VARIABLE):
            sys.exit(shell_complete(self, {}, "dpdist", COMPLETE_VARIABLE, instruction))
        with exit_codes.stoppable(), exit_codes.plain_warnings():
            try:
                with self.make_context("dpdist", words) as context:
                    self.invoke(context)
                sys.stdout.flush()
                code = exit_codes.DONE
            except SystemExit:
                raise
            except BaseException as error:
                code = exit_codes.report(error)
                exit_codes.forget_unwritten()
        sys.exit(code)


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "--version", package_name="dpdist", message="dpdist %(version)s")
def main() -> None:
    """Statistical and machine-learning models under differential privacy.

    dpdist fits models to partitioned Zarr datasets, on one machine or on a Dask cluster. The guarantee holds whatever
    the data are, and a ledger keeps what was spent on each dataset.

    \b
    From a file to a private model:
      dpdist ingest flights.csv flights.zarr --features 'hour,dist*' --label late
      dpdist info flights.zarr                        what is public about the data
      dpdist budget set flights.zarr --epsilon 3 --delta 1e-5
      dpdist plan job.yaml                            noise and cost, before anything
      dpdist run job.yaml                             fit; writes results and a report
      dpdist budget history flights.zarr              what was released, and when

    \b
    Exit status:
      0    done
      1    a bug in dpdist
      2    the command, a file or a setting is wrong; the message says what to do
      3    refused by the ledger: the budget does not suffice (nothing is charged
           or released), another process has taken over the run, or something
           was lost or restored from a copy; the message says what to put back
      75   a server, a store or a cluster was away for longer than it is waited for;
           'dpdist run JOB --resume' goes on
      130  interrupted (Ctrl-C); a second Ctrl-C stops at once
      141  whoever read the output stopped reading
      143  terminated (SIGTERM), as cleanly as by Ctrl-C

    \b
    Environment:
      DPDIST_LEDGER  the ledger file; by default dpdist/ledger.sqlite in
                     $XDG_DATA_HOME, or in ~/.local/share
      DPDIST_DEBUG   1 shows the traceback of a bug, which may quote private values
      NO_COLOR       if set, output has no colours

    'dpdist COMMAND --help' explains one command and has examples.
    """
