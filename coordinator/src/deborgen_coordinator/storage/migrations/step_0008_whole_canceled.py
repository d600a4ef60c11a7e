"""Whether a person canceled a whole run. Before, a run with a failed job was `failed` even then."""

from __future__ import annotations

from peewee import SQL, BigIntegerField, Check

from ..database import DatabaseConnection
from . import add_column


def migrate(connection: DatabaseConnection) -> None:
    field = BigIntegerField(constraints=[SQL("DEFAULT 0"), Check("whole_canceled IN (0, 1)")])
    add_column(connection, "run", "whole_canceled", field)
