"""Where runs came from, and people's places in the history."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check, CompositeKey, DoubleField, Model, TextField

from ..database import DatabaseConnection
from . import add_column, create_table


class CursorTable(Model):
    submitter_id = BigIntegerField()
    name = TextField()
    seq = BigIntegerField(constraints=[Check("seq >= 0")])
    moved_at = DoubleField()

    class Meta:
        table_name = "cursor"
        primary_key = CompositeKey("submitter_id", "name")
        without_rowid = True
        constraints = (SQL("FOREIGN KEY (submitter_id) REFERENCES submitter (id)"),)


def migrate(connection: DatabaseConnection) -> None:
    create_table(connection, CursorTable)
    add_column(connection, "run", "origin", TextField(null=True))
