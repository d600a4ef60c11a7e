"""The repositories of runs, and the commits that are pinned for them."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, CompositeKey, Model, TextField

from ..database import DatabaseConnection
from . import add_column, create_table


class PinTable(Model):
    run_id = BigIntegerField()
    repo = TextField()
    ref = TextField()
    commit_name = TextField()

    class Meta:
        table_name = "pin"
        primary_key = CompositeKey("run_id", "repo", "ref")
        without_rowid = True
        constraints = (SQL("FOREIGN KEY (run_id) REFERENCES run (id)"),)


def migrate(connection: DatabaseConnection) -> None:
    add_column(connection, "run", "workspace", TextField(null=True))
    create_table(connection, PinTable)
