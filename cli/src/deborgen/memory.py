"""Which run is `last`: my newest one, also when it was submitted from another machine."""

from __future__ import annotations

import contextlib
import json
from hashlib import sha256
from pathlib import Path

from deborgen.connection import Connection
from deborgen.errors import NotFound
from deborgen.places import state_dir, write_private
from deborgen_shared import messages


def _file(url: str) -> Path:
    return state_dir() / "last" / sha256(url.encode()).hexdigest()[:16]


def remember(connection: Connection, run: messages.Run) -> None:
    """Keep who I am there. That this cannot be kept is no reason to fail a submit."""
    with contextlib.suppress(OSError):
        write_private(_file(connection.url), json.dumps({"run": run.id, "submitter": run.submitter}) + "\n")


def last_run(connection: Connection) -> int:
    """The number of my newest run; before I submitted anything from here, the newest run of all."""
    submitter: str | None = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        submitter = str(json.loads(_file(connection.url).read_text("utf-8"))["submitter"])
    for run in connection.items("/v1/runs", messages.Run, {"submitter": submitter}, 1):
        return run.id
    raise NotFound("there is no run yet", "deborgen submit FILE makes one")
