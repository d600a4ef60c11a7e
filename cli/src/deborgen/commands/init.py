"""deborgen init"""

from __future__ import annotations

from pathlib import Path

import click

from deborgen import output
from deborgen.cli import CONTEXT
from deborgen.errors import NotPossible

KINDS = ["hello", "container", "sweep", "steps", "git"]


@click.command(name="init", context_settings=CONTEXT)
@click.argument("kind", type=click.Choice(KINDS), default="hello")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def command(kind: str, file: Path | None, force: bool) -> None:
    """Write a first job file.

    There are five examples, each ready to run: hello (one command), container (an image and limits), sweep (one job
    per combination of parameters), steps (jobs that run one after another) and git (a job in a checkout of a
    repository). FILE is named after the example by
    default, as in sweep.yml. Prints the path of the file.
    """
    target = file or Path(f"{kind}.yml")
    text = (Path(__file__).parent.parent / "starters" / f"{kind}.yml").read_text("utf-8")
    try:
        with target.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise NotPossible(f"{target} already exists", "--force overwrites it") from None
    except OSError as why:
        raise NotPossible(f"{target} cannot be written: {why.strerror}") from None
    output.write(f"{target}\n")
    output.hint(f"next: deborgen submit {target} --watch")
