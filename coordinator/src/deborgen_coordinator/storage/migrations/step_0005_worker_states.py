"""A worker reports more states than before, until when each lasts, and its machine's metrics."""

from __future__ import annotations

from peewee import SQL, Check, DoubleField, TextField

from ..database import DatabaseConnection
from . import add_column

WORDS = "'open', 'limited', 'yielding', 'paused', 'closed', 'asleep', 'draining', 'left'"


def migrate(connection: DatabaseConnection) -> None:
    # SQLite cannot change a column's CHECK, so the column is created again. Another column holds its values meanwhile.
    add_column(connection, "worker", "state_before", TextField(constraints=[SQL("DEFAULT 'open'")]))
    connection.run("UPDATE worker SET state_before = state")
    connection.run("ALTER TABLE worker DROP COLUMN state")
    state = TextField(constraints=[SQL("DEFAULT 'open'"), Check(f"state IN ({WORDS})")])
    add_column(connection, "worker", "state", state)
    connection.run("UPDATE worker SET state = state_before")
    connection.run("ALTER TABLE worker DROP COLUMN state_before")
    add_column(connection, "worker", "until_at", DoubleField(null=True))
    add_column(connection, "worker", "metrics", TextField(null=True))
