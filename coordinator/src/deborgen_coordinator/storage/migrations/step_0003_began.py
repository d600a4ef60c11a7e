"""When the program of an attempt really began, by its worker's word."""

from __future__ import annotations

from peewee import DoubleField

from ..database import Connection
from . import add_column


def migrate(connection: Connection) -> None:
    add_column(connection, "attempt", "began_at", DoubleField(null=True))
    # An attempt that was given back, or that no heartbeat had confirmed, did not count for poison, and shall not now.
    connection.run("UPDATE attempt SET confirmed = 1 WHERE outcome = 'released'")
