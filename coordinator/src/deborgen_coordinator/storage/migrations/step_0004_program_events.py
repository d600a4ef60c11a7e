"""The number of program events that an attempt has sent, including dropped ones."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check

from ..database import DatabaseConnection
from . import add_column


def migrate(connection: DatabaseConnection) -> None:
    field = BigIntegerField(constraints=[SQL("DEFAULT 0"), Check("events >= 0")])
    add_column(connection, "attempt", "events", field)
