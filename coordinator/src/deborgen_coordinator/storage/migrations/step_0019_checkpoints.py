"""Checkpoints, and the one from which an attempt went on."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check, CompositeKey, DoubleField, Model, TextField

from ..database import DatabaseConnection
from ..models import KeyField
from . import add_column, create_table


class CheckpointTable(Model):
    job_id = KeyField(primary_key=True)
    attempt = BigIntegerField(constraints=[Check("attempt > 0")])
    number = BigIntegerField(constraints=[Check("number > 0")])
    saved_at = DoubleField()

    class Meta:
        table_name = "checkpoint"
        constraints = (SQL("FOREIGN KEY (job_id, attempt) REFERENCES attempt (job_id, number)"),)


class CheckpointFileTable(Model):
    job_id = BigIntegerField()
    path = TextField()
    digest = TextField()
    size = BigIntegerField(constraints=[Check("size >= 0")])
    mode = BigIntegerField()

    class Meta:
        table_name = "checkpoint_file"
        primary_key = CompositeKey("job_id", "path")
        without_rowid = True
        constraints = (SQL("FOREIGN KEY (job_id) REFERENCES checkpoint (job_id)"),)


CheckpointFileTable.add_index(CheckpointFileTable.digest, name="checkpoint_blob")


def migrate(connection: DatabaseConnection) -> None:
    add_column(connection, "attempt", "from_attempt", BigIntegerField(null=True))
    add_column(connection, "attempt", "from_checkpoint", BigIntegerField(null=True))
    create_table(connection, CheckpointTable)
    create_table(connection, CheckpointFileTable)
