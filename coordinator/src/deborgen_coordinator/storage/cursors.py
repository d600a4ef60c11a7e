"""People's places in the history."""

from __future__ import annotations

from typing import Any

from peewee import fn

from .database import DatabaseConnection
from .models import HistoryCursor
from .rows import CursorRow, columns
from .transactions import Tx


def get(reader: Tx | DatabaseConnection, submitter_id: int | None, name: str) -> CursorRow | None:
    row = reader.one(HistoryCursor.select(*columns(CursorRow, HistoryCursor)).where(_named(submitter_id, name)))
    return CursorRow(*row) if row else None


def count(tx: Tx, submitter_id: int) -> int:
    return int(
        tx.value(HistoryCursor.select(fn.COUNT(HistoryCursor.name)).where(HistoryCursor.submitter == submitter_id))
    )


def move(tx: Tx, submitter_id: int, name: str, seq: int, now: float, was: int | None = None) -> bool:
    """Move a cursor that exists; False if there is none, or if it is not at `was`, which None leaves open."""
    chosen = _named(submitter_id, name)
    if was is not None:
        chosen &= HistoryCursor.seq == was
    return tx.run(HistoryCursor.update({HistoryCursor.seq: seq, HistoryCursor.moved_at: now}).where(chosen)) == 1


def add(tx: Tx, submitter_id: int, name: str, seq: int, now: float) -> bool:
    """Store a new cursor; False if it exists already."""
    new = HistoryCursor.insert(submitter=submitter_id, name=name, seq=seq, moved_at=now)
    return tx.run(new.on_conflict(action="nothing", conflict_target=[HistoryCursor.submitter, HistoryCursor.name])) == 1


def _named(submitter_id: int | None, name: str) -> Any:
    return (HistoryCursor.submitter == submitter_id) & (HistoryCursor.name == name)
