"""``dpdist completion``: the script with which a shell completes commands, options and paths."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dpdist.cli import COMPLETE_VARIABLE


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes dpdist's commands, options and file names at the Tab key.

    The script runs dpdist itself to ask for completions, so it stays right when dpdist is upgraded. Nothing is
    installed: load the script in the shell's start-up file. bash has to be version 4.4 or newer.

    \b
    Examples:
      For this session (bash):
        source <(dpdist completion bash)
      For every session:
        echo 'source <(dpdist completion bash)' >> ~/.bashrc
        echo 'source <(dpdist completion zsh)' >> ~/.zshrc     # after compinit
        dpdist completion fish > ~/.config/fish/completions/dpdist.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "dpdist", COMPLETE_VARIABLE).source())
