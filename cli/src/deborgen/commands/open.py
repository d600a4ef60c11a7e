"""deborgen open"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlencode

import click

from deborgen import output
from deborgen.cli import App, verb
from deborgen_shared import contract


@verb(name="open")
@click.argument("page", default="/", metavar="[PAGE]")
@click.option("--no-browser", is_flag=True, help="Only print the link.")
def command(app: App, page: str, no_browser: bool) -> None:
    """Open the dashboard: print a link that signs a browser in once.

    The link must be used within a minute. PAGE is a run, a job, or the path of a page: 42, 42.7,
    /workers. On a desktop, the link is opened in a browser, too.
    """
    path = page if page.startswith("/") else f"/find?{urlencode({'q': page})}"
    link = app.client.url + app.client.connection.call(contract.CREATE_LINK, repeatable=False).path
    if path != "/":
        link += "&" + urlencode({"next": path})
    output.write(link + "\n")
    if not no_browser and _has_browser():
        import webbrowser

        webbrowser.open(link)


def _has_browser() -> bool:
    """Whether somebody sits in front of this terminal, on a desktop."""
    on_desktop = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(on_desktop) and output.on_terminal() and "SSH_CONNECTION" not in os.environ
