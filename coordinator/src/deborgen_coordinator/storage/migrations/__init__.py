"""The migration steps from each schema version to the next: modules `step_NNNN_name`, each with a function `migrate`.

A step never uses the models, because they keep changing: it names its columns itself.
"""

from __future__ import annotations

from typing import Any

import peewee
from playhouse import migrate as playhouse

from ..database import DatabaseConnection


def create_table(connection: DatabaseConnection, model: type[peewee.Model]) -> None:
    """Create a table with its indexes."""
    manager: Any = peewee.SchemaManager(model, connection.db)
    definition, _ = manager._create_table(safe=False).query()
    connection.driver.execute(connection.without_rowid(definition))
    for index in manager._create_indexes(safe=False):
        connection.driver.execute(index.query()[0])


def add_column(connection: DatabaseConnection, table: str, name: str, field: peewee.Field) -> None:
    """Add a column. A column that is not nullable needs a DEFAULT among its constraints."""
    migrator: Any = playhouse.SchemaMigrator.from_database(connection.db)
    playhouse.migrate(migrator.add_column(table, name, field, allow_not_null=True))
