"""Places in the history that people, and the programs that use their tokens, store under names of their own.

A cursor is not part of the history: it moves far too often, and says nothing about the pool.
"""

from __future__ import annotations

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import CursorView, NewCursor

from ..storage import cursors, runs
from ..storage.database import DatabaseConnection
from ..storage.rows import CursorRow
from ..storage.transactions import Tx
from . import views
from .context import Actor, Context
from .lookup import Noun, UnknownName
from .work import Work

#: How many cursors one person may have.
MOST = 1000


def get(ctx: Context, actor: Actor, name: str) -> CursorView:
    def look(reader: DatabaseConnection) -> CursorView:
        return _view(_find(reader, runs.find_submitter(reader, actor.name), name))

    return ctx.store.read(look)


def put(ctx: Context, actor: Actor, name: str, body: NewCursor) -> CursorView:
    """Move the cursor, or store a new one. A request that is sent again has the same effect as once."""

    def change(work: Work) -> CursorView:
        tx, owner = work.tx, runs.submitter_id(work.tx, actor.name)
        expected = body.was if isinstance(body.was, int) else None
        moved = body.was is not None and cursors.move(tx, owner, name, body.seq, work.now, expected)
        if not moved and expected is None:
            moved = _add(work, owner, name, body.seq)
        row = cursors.get(tx, owner, name)
        if row is None or (not moved and row.seq != body.seq):
            place = f"is at {row.seq}" if row else "does not exist"
            raise Refusal(Code.INVALID_TRANSITION, f"the cursor {name} {place}", "read it again: somebody has moved it")
        return _view(row)

    return ctx.work(actor, change)


def _add(work: Work, owner: int, name: str, seq: int) -> bool:
    if cursors.get(work.tx, owner, name) is None and cursors.count(work.tx, owner) >= MOST:
        raise Refusal(Code.INVALID_TRANSITION, f"you have {MOST} cursors already", "use one of them again")
    return cursors.add(work.tx, owner, name, seq, work.now)


def _find(reader: Tx | DatabaseConnection, owner: int | None, name: str) -> CursorRow:
    row = cursors.get(reader, owner, name)
    if row is None:
        raise UnknownName(Noun.CURSOR, f"you have no cursor {name}")
    return row


def _view(row: CursorRow) -> CursorView:
    return CursorView(name=row.name, seq=row.seq, moved_at=views.when(row.moved_at))
