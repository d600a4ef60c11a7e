"""deborgen token"""

from __future__ import annotations

from datetime import datetime

import click

from deborgen import output
from deborgen.cli import CONTEXT, App, json_option, verb
from deborgen.click_types import duration
from deborgen_shared import contract
from deborgen_shared.states import Role

COLUMNS = ["id", "role", "name", "created", "expires", "last_used"]


@click.group(name="token", context_settings=CONTEXT)
def command() -> None:
    """Create, list and revoke tokens.

    You need an admin's token for this. A worker's token works only for the worker with the token's name.
    """


@verb(command.command, name="create")
@click.option("--role", type=click.Choice([str(each) for each in Role]), required=True, help="What the token allows.")
@click.option("--name", required=True, metavar="NAME", help="The person or worker that it belongs to.")
@click.option("--expires", type=duration, metavar="DURATION", help="How long it is valid. [default: never expires]")
@json_option
def create(app: App, role: str, name: str, expires: float | None, as_json: bool) -> None:
    """Create a token. Prints its secret, which is never shown again."""
    body: dict[str, object] = {"role": role, "name": name}
    if expires is not None:
        body["expires_in_seconds"] = expires
    made = app.client.connection.call(contract.CREATE_TOKEN, body, repeatable=False)
    if as_json:
        output.json("token", made)
        return
    output.write(made.token + "\n")
    if role == Role.WORKER:
        output.hint(f"on {name}: deborgen-worker run --coordinator {app.client.url} --name {name} --token-file FILE …")
    else:
        output.hint(f"{name} logs in with: deborgen login {app.client.url}")


@verb(command.command, name="list")
@json_option
def list_(app: App, as_json: bool) -> None:
    """List tokens, without their secrets."""
    tokens = app.client.connection.call(contract.LIST_TOKENS).items
    if as_json:
        output.json("tokens", tokens)
        return
    rows = [[t.id, t.role, t.name, t.created_at, t.expires_at, t.last_used_at] for t in tokens]
    output.table(COLUMNS, rows, shown={"created": output.age, "expires": _date, "last_used": output.age})


def _date(expires: datetime | None) -> str:
    return expires.strftime("%Y-%m-%d") if expires else "never"


@verb(command.command, name="revoke")
@click.argument("token_id", metavar="ID")
def revoke(app: App, token_id: str) -> None:
    """Revoke a token immediately and permanently."""
    app.client.connection.call(contract.REVOKE_TOKEN, token=token_id)
    output.say(f"token {token_id} is revoked")
