"""The commits that refs of repositories stand for in a run."""

from __future__ import annotations

import msgspec

from .database import DatabaseConnection
from .models import Pin, Run
from .rows import RunWorkspace
from .transactions import Tx

_encode = msgspec.json.Encoder().encode


def find(reader: Tx | DatabaseConnection, run: int, repo: str, ref: str) -> str | None:
    row = reader.one(Pin.select(Pin.commit).where(Pin.run == run, Pin.repo == repo, Pin.ref == ref))
    return str(row[0]) if row else None


def add(tx: Tx, run: int, repo: str, ref: str, commit: str) -> None:
    """Pin the commit, unless one is pinned already."""
    new = Pin.insert({Pin.run: run, Pin.repo: repo, Pin.ref: ref, Pin.commit: commit})
    tx.run(new.on_conflict(action="nothing", conflict_target=[Pin.run, Pin.repo, Pin.ref]))


def copy(tx: Tx, old: int, new: int) -> None:
    """Pin the commits of a run for its retry too."""
    for repo, ref, commit in tx.rows(Pin.select(Pin.repo, Pin.ref, Pin.commit).where(Pin.run == old)):
        add(tx, new, repo, ref, commit)


def show(tx: Tx, run: int, workspace: RunWorkspace) -> None:
    """Store what people see of the run's workspace."""
    tx.run(Run.update({Run.workspace: _encode(workspace).decode()}).where(Run.id == run))
