"""The reference of every command, from the commands themselves. `write_docs.py` puts it into docs/cli.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from deborgen.cli import SECTIONS, cli
from deborgen.errors import EXIT_CODES


def reference() -> str:
    """Every command, below the title of its section."""
    lines = []
    for title, names in SECTIONS.items():
        lines += [f"### {title}", ""]
        for name in names:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            for path, each in walk(name, command):
                lines += section(path, each)
    return "\n".join(lines).rstrip() + "\n"


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """The command, and the commands below it."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from walk(f"{path} {name}", command.commands[name])


def section(path: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=f"deborgen {path}")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"#### `deborgen {path}`", "", f"`deborgen {path} {usage}`", ""]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            lines += ["```text", *paragraph.splitlines()[1:], "```", ""]
        else:
            lines += [" ".join(paragraph.split()), ""]
    rows = [row for row in map(option_row, command.params) if row]
    if rows:
        lines += ["| option | what it does |", "| --- | --- |", *rows, ""]
    return lines


def option_row(option: click.Parameter) -> str:
    if not isinstance(option, click.Option) or option.name == "url":
        return ""
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {option.metavar or kind(option)}"
    default = f" [default: {option.default}]" if option.show_default and option.default is not None else ""
    text = (option.help or "").replace("|", "\\|")
    return f"| {names}{value.replace('|', chr(92) + '|')} | {text}{default} |"


def kind(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "N" if isinstance(option.type, click.IntRange) else option.type.name.upper()


def exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| code | meaning |", "| --- | --- |", *rows])
