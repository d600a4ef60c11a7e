"""deborgen secret"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from deborgen import output
from deborgen.cli import CONTEXT, App, json_option, verb
from deborgen.errors import WrongUsage
from deborgen_shared import contract
from deborgen_shared.calls import PATH_NAMES
from deborgen_shared.messages import LONGEST_SECRET, SHORTEST_SECRET
from deborgen_shared.queries import SecretQuery

COLUMNS = ["name", "owner", "set", "last_used"]
shared_option = click.option("--shared", is_flag=True, help="A secret of the pool, for every submitter (admins only).")


@click.group(name="secret", context_settings=CONTEXT)
def command() -> None:
    """Set, list and remove secrets, which jobs get as environment variables.

    A job file names the secrets that its jobs need: "secrets: [LICENSE_KEY]". Values are encrypted on the coordinator
    and masked in logs. The owner of the machine that runs a job could read them.
    """


def _checked_name(_ctx: click.Context, _parameter: click.Parameter, name: str) -> str:
    kind = PATH_NAMES["secret"]
    if not re.fullmatch(kind.pattern, name):
        raise WrongUsage(f"'{name}' cannot be the name of a secret", f"{kind.hint}, for example {kind.example}")
    return name


@verb(command.command, name="set")
@click.argument("name", metavar="NAME", callback=_checked_name)
@shared_option
@click.option(
    "--file", type=click.Path(path_type=Path), metavar="FILE", help="Read the value from a file, with its line breaks."
)
def set_(app: App, name: str, shared: bool, file: Path | None) -> None:
    """Set a secret.

    Asks for the value without showing it, or reads it from standard input if that is not a terminal; a line break at
    its end is then left out.
    """
    value = _read_value(file)
    if "\0" in value:
        raise WrongUsage("the value contains a NUL character", "encode it as text first, for example with base64")
    if not SHORTEST_SECRET <= len(value) <= LONGEST_SECRET:
        raise WrongUsage(
            f"the value has {len(value):,} characters",
            f"a secret has {SHORTEST_SECRET} to {LONGEST_SECRET:,} characters; a shorter one could not be masked",
        )
    app.client.connection.call(contract.SET_SECRET, {"value": value, "shared": shared}, secret=name)
    output.say(f"secret {name} is set" + (" for everybody in the pool" if shared else ""))


def _read_value(file: Path | None) -> str:
    try:
        if file is not None:
            return file.read_text("utf-8")
        if sys.stdin.isatty():
            return str(click.prompt("Value", hide_input=True, confirmation_prompt=True, err=True))
        return sys.stdin.buffer.read(4 * LONGEST_SECRET + 2).decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise WrongUsage("the value is not UTF-8 text", "encode it as text first, for example with base64") from None
    except OSError as problem:
        raise WrongUsage(f"{file} cannot be read: {problem.strerror}", "name a file that you can read") from None


@verb(command.command, name="list")
@json_option
def list_(app: App, as_json: bool) -> None:
    """List the secrets that you may use, without their values. An admin sees the names of all secrets."""
    secrets = app.client.connection.call(contract.LIST_SECRETS).items
    if as_json:
        output.json("secrets", secrets)
        return
    rows = [[each.name, each.owner or "the pool", each.set_at, each.last_used_at] for each in secrets]
    output.table(COLUMNS, rows, shown={"set": output.age, "last_used": output.age})
    if unreadable := [each.name for each in secrets if not each.readable]:
        output.hint(f"the coordinator has lost the key of {', '.join(unreadable)}; jobs that need them wait")


@verb(command.command, name="remove")
@click.argument("name", metavar="NAME")
@shared_option
def remove(app: App, name: str, shared: bool) -> None:
    """Remove a secret. Queued jobs that need it wait until it is set again."""
    app.client.connection.call(contract.REMOVE_SECRET, query=SecretQuery(shared=int(shared)), secret=name)
    output.say(f"secret {name} is removed")
