"""A worker tells more states than before, until when each lasts, and how its machine is doing."""

from __future__ import annotations

from peewee import SQL, Check, DoubleField, TextField

from ..database import Connection
from . import add_column

WORDS = "'open', 'limited', 'yielding', 'paused', 'closed', 'asleep', 'draining', 'left'"


def migrate(connection: Connection) -> None:
    # SQLite cannot change the CHECK of a column, so the column is made anew. Its values wait in another one meanwhile.
    add_column(connection, "worker", "state_before", TextField(constraints=[SQL("DEFAULT 'open'")]))
    connection.run("UPDATE worker SET state_before = state")
    connection.run("ALTER TABLE worker DROP COLUMN state")
    state = TextField(constraints=[SQL("DEFAULT 'open'"), Check(f"state IN ({WORDS})")])
    add_column(connection, "worker", "state", state)
    connection.run("UPDATE worker SET state = state_before")
    connection.run("ALTER TABLE worker DROP COLUMN state_before")
    add_column(connection, "worker", "until_at", DoubleField(null=True))
    add_column(connection, "worker", "metrics", TextField(null=True))
