"""The failures in a row of each worker, and the images and workspaces that work or fail there."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check, CompositeKey, DoubleField, Model, TextField

from ..database import DatabaseConnection
from . import add_column, create_table


class ExperienceTable(Model):
    subject = TextField()
    worker_id = BigIntegerField()
    failures = BigIntegerField(constraints=[Check("failures >= 0")])
    avoid_clock = DoubleField()
    reason = TextField()
    at = DoubleField()

    class Meta:
        table_name = "experience"
        primary_key = CompositeKey("subject", "worker_id")
        without_rowid = True
        constraints = (SQL("FOREIGN KEY (worker_id) REFERENCES worker (id)"),)


ExperienceTable.add_index(ExperienceTable.worker_id, where=(ExperienceTable.failures > 0), name="experience_trouble")
ExperienceTable.add_index(ExperienceTable.at, name="experience_age")


def migrate(connection: DatabaseConnection) -> None:
    add_column(connection, "worker", "failed", TextField(constraints=[SQL("DEFAULT '[]'")]))
    create_table(connection, ExperienceTable)
