"""The start of an attempt's program, as reported by its worker."""

from __future__ import annotations

from peewee import DoubleField

from ..database import DatabaseConnection
from . import add_column


def migrate(connection: DatabaseConnection) -> None:
    add_column(connection, "attempt", "began_at", DoubleField(null=True))
    # Released attempts did not count towards poison. From now on unconfirmed ones do, so confirm the old ones.
    connection.run("UPDATE attempt SET confirmed = 1 WHERE outcome = 'released'")
