"""The steps from each version of the schema to the next: modules `step_NNNN_name`, each with one function `migrate`.

A step never uses the models, which go on changing: it says itself which columns it means.
"""

from __future__ import annotations

from typing import Any

import peewee
from playhouse import migrate as playhouse

from ..database import Connection


def add_column(connection: Connection, table: str, name: str, field: peewee.Field) -> None:
    """Add a column; one that is not null needs a DEFAULT among its constraints."""
    migrator: Any = playhouse.SchemaMigrator.from_database(connection.db)
    playhouse.migrate(migrator.add_column(table, name, field, allow_not_null=True))
