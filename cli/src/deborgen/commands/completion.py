"""deborgen completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from deborgen import output
from deborgen.cli import CONTEXT, cli

WHERE = {
    "bash": 'eval "$(deborgen completion bash)"        # in ~/.bashrc',
    "zsh": 'eval "$(deborgen completion zsh)"         # in ~/.zshrc',
    "fish": "deborgen completion fish | source         # in ~/.config/fish/config.fish",
}


@click.command(name="completion", context_settings=CONTEXT)
@click.argument("shell", type=click.Choice(list(WHERE)))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    On a terminal, it also says which line to add to your shell's start file.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    output.write(kind(cli, {}, "deborgen", "_DEBORGEN_COMPLETE").source() + "\n")
    if output.on_terminal():
        output.hint(f"add this line to your shell's start file: {WHERE[shell]}")
