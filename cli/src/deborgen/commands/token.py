"""deborgen token"""

from __future__ import annotations

import click

from deborgen import output
from deborgen.cli import CONTEXT, App, json_option, subcommand
from deborgen.kinds import DURATION
from deborgen_shared.states import Role

COLUMNS = ["id", "role", "name", "created", "expires", "last_used"]


@click.group(name="token", context_settings=CONTEXT)
def command() -> None:
    """Create, list and revoke tokens.

    It takes an admin's token. A worker's token is bound to the worker of that name.
    """


@subcommand(command, name="create")
@click.option("--role", type=click.Choice([str(each) for each in Role]), required=True)
@click.option("--name", required=True, help="Whose it is: a person, or a worker.")
@click.option("--expires", type=DURATION, metavar="DURATION", help="Valid for this long. [default: for ever]")
@json_option
def create(app: App, role: str, name: str, expires: float | None, as_json: bool) -> None:
    """Create a token. Prints the secret, this once, and nothing else."""
    from deborgen_shared import contract

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
        output.hint(f"{name} types: deborgen login {app.client.url}")


@subcommand(command, name="list")
@json_option
def list_(app: App, as_json: bool) -> None:
    """List tokens; never their secrets."""
    from deborgen_shared import contract

    tokens = app.client.connection.call(contract.LIST_TOKENS).items
    if as_json:
        output.json("tokens", tokens)
        return
    rows = [[t.id, t.role, t.name, output.age(t.created_at), _until(t), output.age(t.last_used_at)] for t in tokens]
    full = [[t.id, t.role, t.name, t.created_at, t.expires_at, t.last_used_at] for t in tokens]
    output.table(COLUMNS, rows, full=full)


def _until(token: object) -> str:
    expires = getattr(token, "expires_at", None)
    return expires.strftime("%Y-%m-%d") if expires else "never"


@subcommand(command, name="revoke")
@click.argument("token_id", metavar="ID")
def revoke(app: App, token_id: str) -> None:
    """Revoke a token, at once and for good."""
    from deborgen_shared import contract

    app.client.connection.call(contract.REVOKE_TOKEN, token=token_id)
    output.say(f"token {token_id} is revoked")
