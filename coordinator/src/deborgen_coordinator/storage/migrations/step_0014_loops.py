"""The place of a job in a loop, and the index of the next job that a loop of the run adds."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check, DoubleField, TextField

from ..database import DatabaseConnection
from . import add_column


def migrate(connection: DatabaseConnection) -> None:
    add_column(
        connection, "run", "next_index", BigIntegerField(constraints=[SQL("DEFAULT 0"), Check("next_index >= 0")])
    )
    add_column(connection, "job", "point", BigIntegerField(null=True))
    add_column(connection, "job", "round", BigIntegerField(null=True, constraints=[Check("round > 0")]))
    add_column(connection, "job", "phase", TextField(null=True, constraints=[Check("phase IN ('work', 'verify')")]))
    add_column(connection, "job", "verified", BigIntegerField(null=True, constraints=[Check("verified IN (0, 1)")]))
    add_column(connection, "job", "created_at", DoubleField(null=True))
    connection.run("CREATE UNIQUE INDEX job_round ON job (point, round, phase) WHERE point IS NOT NULL")
