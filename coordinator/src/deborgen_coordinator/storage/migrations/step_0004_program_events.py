"""How many events of its program an attempt has sent, dropped ones included."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check

from ..database import Connection
from . import add_column


def migrate(connection: Connection) -> None:
    field = BigIntegerField(constraints=[SQL("DEFAULT 0"), Check("events >= 0")])
    add_column(connection, "attempt", "events", field)
