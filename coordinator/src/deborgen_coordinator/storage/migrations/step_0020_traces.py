"""The traces that runs belong to."""

from __future__ import annotations

from peewee import TextField

from ..database import DatabaseConnection
from . import add_column


def migrate(connection: DatabaseConnection) -> None:
    add_column(connection, "run", "traceparent", TextField(null=True))
