"""deborgen images"""

from __future__ import annotations

import click

from deborgen import output
from deborgen.cli import CONTEXT, App, json_option, the_app, url_option, verb
from deborgen_shared.jobfile.images import POOL

COLUMNS = ["image", "id", "size", "commit", "job", "built_by", "built_on", "built", "on"]
#: The columns that a narrow terminal leaves out first.
SPARE = ["id", "built_on", "commit", "job", "size"]


@click.group(name="images", context_settings=CONTEXT, invoke_without_command=True)
@url_option("Address of the coordinator.")
@click.option("--all", "replaced", is_flag=True, help="Also list images whose name a newer image has now.")
@json_option
@click.pass_context
def command(ctx: click.Context, url: str | None, replaced: bool, as_json: bool) -> None:
    """List the images that the pool has built, and remove them.

    A job file names such an image with "pool/" in front of it: "image: pool/solver:1". The last column has the machines
    that have the image already; other machines fetch it once when they need it.
    """
    app = the_app(url)
    if ctx.invoked_subcommand is None:
        _list(app, replaced, as_json)


def _list(app: App, replaced: bool, as_json: bool) -> None:
    images = app.client.images(replaced=replaced)
    if as_json:
        output.json("images", images)
        return
    short = output.on_terminal()
    rows = [
        [
            f"{POOL}{each.name}" + (" (replaced)" if each.replaced else ""),
            each.digest[7:19] if short else each.digest,
            each.size,
            each.commit[:7] if each.commit and short else each.commit,
            each.job,
            each.submitter,
            each.worker,
            each.created_at,
            " ".join(each.on) if short else each.on,
        ]
        for each in images
    ]
    output.table(
        COLUMNS, rows, shown={"size": output.size, "built": output.age}, numeric=["size"], text=["on"], spare=SPARE
    )
    if not images:
        output.hint("the pool has built no image yet. Next: deborgen init build")


@verb(command.command, name="remove")
@click.argument("name", metavar="NAME:TAG")
def remove(app: App, name: str) -> None:
    """Remove an image. Unfinished jobs that name it can still use it."""
    app.client.remove_image(name.removeprefix(POOL))
    output.say(f"image {name.removeprefix(POOL)} is removed")
