"""deborgen login"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from deborgen import output, profile
from deborgen.cli import CONTEXT
from deborgen.client import Client
from deborgen.errors import NotAllowed


@click.command(name="login", context_settings=CONTEXT)
@click.argument("url")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Read the token from a file.")
def command(url: str, token_file: Path | None) -> None:
    """Log in to a coordinator, and use it from now on.

    Asks for the token, or reads it from standard input if that is not a terminal. The token is tested first. Then it is
    stored in a file that only you can read, and it is sent to this address only.
    """
    address = profile.normalize(url)
    if token_file:
        token = profile.read_token(token_file)
    elif sys.stdin.isatty():
        token = click.prompt("Token", hide_input=True, err=True).strip()
    else:
        token = sys.stdin.readline().strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise NotAllowed("that is not a token", "a token looks like dbg_ROLE_ID_SECRET; ask an admin for one")
    if address.startswith("http://") and not address.startswith(("http://127.", "http://localhost", "http://[::1]")):
        output.hint("note: this address is not encrypted; use it only inside a VPN such as Tailscale or WireGuard")
    client = Client(address, token)
    client.health()
    me = client.me()
    path = profile.store(address, token)
    output.say(f"Logged in to {address} as {me.name} ({me.role}). The token is in {path}")
