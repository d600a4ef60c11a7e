"""Every example and every starter that needs nothing but a pool, ready to be submitted as it stands."""

from __future__ import annotations

from pathlib import Path

import yaml

from deborgen.commands.init import KINDS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
STARTERS = ROOT / "cli" / "src" / "deborgen" / "starters"
#: The image of jobs that name none, in a pool made by the documents; and the one that examples name.
DEFAULT_IMAGE, NAMED_IMAGE = "docker.io/library/python:3.12-slim-bookworm", "docker.io/library/busybox:stable"


def examples() -> list[str]:
    """The paths of the examples below `examples/`."""
    return sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.yml") if _is_complete(path))


def starters() -> list[str]:
    """What `deborgen init` can write."""
    return [kind for kind in KINDS if _is_complete(STARTERS / f"{kind}.yml")]


def _is_complete(path: Path) -> bool:
    """Whether the file needs no repository, and no machine that builds images or shares a folder."""
    document = yaml.safe_load(path.read_text("utf-8"))
    levels = [document, *document.get("steps", [])]
    return not any("build" in level or "workspace" in level for level in levels)


def script(deborgen: str) -> str:
    """A shell script that submits all of them from the folder `examples`, and waits until all have succeeded."""
    submits = [f"{deborgen} submit {each}{_QUICKER.get(each, '')}" for each in examples()]
    submits += [f"{deborgen} submit $({deborgen} init {kind} starter-{kind}.yml)" for kind in starters()]
    return "\n".join(["set -e", "runs=", *(f'runs="$runs $({each})"' for each in submits), f"{deborgen} wait $runs"])


#: Fewer darts: how many are thrown says nothing about the pool.
_QUICKER = {"pi/pi.yml": " -p samples=1000"}
