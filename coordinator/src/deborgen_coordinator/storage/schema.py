"""The schema: made from the models in a fresh database, or carried forward step by step in an old one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import peewee

from . import migrations
from .database import Connection, transaction
from .models import TABLES, LeaseClock

Migration = Callable[[Connection], None]


class SchemaTooNew(Exception):
    """The database was written by a newer deborgen."""


def steps() -> dict[int, Migration]:
    """The steps that bring an old schema forward, by the version that each leads to."""
    names = sorted(module.name for module in iter_modules(migrations.__path__))  # step_0002_writers, and so on
    return {int(name.split("_")[1]): import_module(f"{migrations.__name__}.{name}").migrate for name in names}


def latest() -> int:
    return max(steps())


def version(connection: Connection) -> int:
    """The schema's version in this database; 0 where there is none."""
    if not connection.columns_of("schema_version"):
        return 0
    return connection.value("SELECT max(version) FROM schema_version") or 0


def migrate(connection: Connection) -> tuple[int, int]:
    """Bring the schema up to date in one transaction; the versions before and after.

    Should a step fail, the old database is left as it was.
    """
    connection.begin_changing()
    with transaction(connection):
        before = version(connection)
        if before > latest():
            raise SchemaTooNew(
                f"the database has schema {before}, and this deborgen knows up to {latest()}: install a newer one"
            )
        if before == 0:
            create(connection)
        for number, step in steps().items():
            if 0 < before < number:
                step(connection)
                connection.run("INSERT INTO schema_version (version) VALUES (?)", (number,))
    return before, latest()


def create(connection: Connection) -> None:
    """Make every table, with its indexes, and the one row that there always is."""
    connection.run("CREATE TABLE schema_version (version BIGINT PRIMARY KEY)")
    connection.run("INSERT INTO schema_version (version) VALUES (?)", (latest(),))
    for model in TABLES:
        create_table(connection, model)
    connection.run(LeaseClock.insert({LeaseClock.id: 1, LeaseClock.value: 0.0}))


def create_table(connection: Connection, model: type[peewee.Model]) -> None:
    manager: Any = peewee.SchemaManager(model, connection.db)
    definition, _ = manager._create_table(safe=False).query()
    connection.driver.execute(connection.without_rowid(definition))
    for index in manager._create_indexes(safe=False):
        connection.driver.execute(index.query()[0])
