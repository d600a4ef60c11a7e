"""deborgen init"""

from __future__ import annotations

from pathlib import Path

import click

from deborgen import output
from deborgen.cli import CONTEXT
from deborgen.errors import NotPossible

KINDS = ["hello", "container", "sweep", "steps", "git", "build", "checkpoint", "loop"]
#: Files that an example needs beside it.
BESIDE = {"build": ["Containerfile"]}


@click.command(name="init", context_settings=CONTEXT)
@click.argument("kind", type=click.Choice(KINDS), default="hello")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def command(kind: str, file: Path | None, force: bool) -> None:
    """Write a first job file.

    There are eight examples, each ready to run: hello (one command), container (an image and limits), sweep (one job
    per combination of parameters), steps (jobs that run one after another), git (a job in a checkout of a
    repository), build (an image that the pool builds, with its Containerfile), checkpoint (a job that goes on where
    it was) and loop (a step that is repeated until a check passes). FILE is named after the example by default, as in
    sweep.yml. Prints the paths of the files.
    """
    target = file or Path(f"{kind}.yml")
    starters = Path(__file__).parent.parent / "starters"
    texts = {target: (starters / f"{kind}.yml").read_text("utf-8")}
    texts |= {target.parent / name: (starters / name).read_text("utf-8") for name in BESIDE.get(kind, ())}
    for path, text in texts.items():
        try:
            with path.open("w" if force else "x", encoding="utf-8") as out:
                out.write(text)
        except FileExistsError:
            raise NotPossible(f"{path} already exists", "--force overwrites it") from None
        except OSError as why:
            raise NotPossible(f"{path} cannot be written: {why.strerror}") from None
        output.write(f"{path}\n")
    output.hint(f"next: deborgen submit {target} --watch")
