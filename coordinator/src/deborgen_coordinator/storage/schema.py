"""The schema: created from the models in a new database, or migrated step by step in an older one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from . import migrations
from .database import DatabaseConnection, transaction
from .migrations import create_table
from .models import TABLES, LeaseClock

Migration = Callable[[DatabaseConnection], None]


class SchemaTooNew(Exception):
    """The database was written by a newer deborgen."""


def steps() -> dict[int, Migration]:
    """The migration steps, by the schema version that each leads to."""
    names = sorted(module.name for module in iter_modules(migrations.__path__))  # step_0002_writers, and so on
    return {int(name.split("_")[1]): import_module(f"{migrations.__name__}.{name}").migrate for name in names}


def latest() -> int:
    return max(steps())


def version(connection: DatabaseConnection) -> int:
    """The schema version of this database; 0 if it is empty."""
    if not connection.columns_of("schema_version"):
        return 0
    return connection.value("SELECT max(version) FROM schema_version") or 0


def migrate(connection: DatabaseConnection) -> tuple[int, int]:
    """Migrate the schema in one transaction; return the versions before and after.

    If a step fails, the database stays as it was.
    """
    connection.begin_migration()
    with transaction(connection):
        before = version(connection)
        if before > latest():
            raise SchemaTooNew(
                f"the database has schema {before}, and this deborgen supports at most {latest()}: install a newer one"
            )
        if before == 0:
            create(connection)
        for number, step in steps().items():
            if 0 < before < number:
                step(connection)
                connection.run("INSERT INTO schema_version (version) VALUES (?)", (number,))
    return before, latest()


def create(connection: DatabaseConnection) -> None:
    """Create every table with its indexes, and the row of the lease clock."""
    connection.run("CREATE TABLE schema_version (version BIGINT PRIMARY KEY)")
    connection.run("INSERT INTO schema_version (version) VALUES (?)", (latest(),))
    for model in TABLES:
        create_table(connection, model)
    connection.run(LeaseClock.insert({LeaseClock.id: 1, LeaseClock.value: 0.0}))
