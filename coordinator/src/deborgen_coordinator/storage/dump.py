"""Dump and load all rows in a form that is independent of the database: PostgreSQL can load a dump of SQLite."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from peewee import SQL, BigAutoField

from .database import DatabaseConnection
from .models import TABLES, Event, JobClass, LeaseClock, Run, Token, Worker, Writer
from .specs import digest_of

Line = bytes

#: The tables in a dump. The rows of `writer` are useful only to processes that are using the database now.
KEPT = {model._meta.table_name: model for model in TABLES if model is not Writer}


def tables() -> list[str]:
    """The tables in a dump. A table comes before the tables that refer to it."""
    return list(KEPT)


def columns(table: str) -> list[str]:
    return sorted(KEPT[table]._meta.columns)


def rows_out(reader: DatabaseConnection, table: str) -> Iterator[Line]:
    """The lines of a table's dump. The first line names the columns, every other line is a row."""
    model, names = KEPT[table], columns(table)
    yield json.dumps(names).encode() + b"\n"
    query = model.select(*(model._meta.columns[name] for name in names))
    if _counted(model):  # a retry refers to an earlier row of its own table, and SQLite checks row by row
        query = query.order_by(model._meta.primary_key)
    for row in reader.stream(query):
        yield json.dumps([_out(value) for value in row]).encode() + b"\n"


def _counted(model: Any) -> bool:
    """Whether the database generates the keys of this table."""
    return isinstance(model._meta.primary_key, BigAutoField)


def _out(value: Any) -> Any:
    return {"base64": base64.b64encode(bytes(value)).decode()} if isinstance(value, bytes | memoryview) else value


def rows_in(connection: DatabaseConnection, table: str, lines: Iterable[Line]) -> None:
    """Load the rows of a dump into an empty table."""
    stream = iter(lines)
    names = json.loads(next(stream))
    unknown = set(names) - set(columns(table))
    if unknown:
        raise ValueError(f"the backup has columns that table {table} does not have: {', '.join(sorted(unknown))}")
    rows = ([_in(value) for value in json.loads(line)] for line in stream)
    if KEPT[table] is JobClass and "digest" not in names:  # a backup of schema 5 or older
        at = names.index("needs")
        names, rows = [*names, "digest"], ([*row, digest_of(row[at])] for row in rows)
    connection.bulk_insert(KEPT[table], names, rows)


def _in(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def reset_counters(connection: DatabaseConnection) -> None:
    """Let the database generate keys after the largest ones in the dump."""
    for model in filter(_counted, KEPT.values()):
        connection.reset_counter(model)


def clear(connection: DatabaseConnection) -> None:
    """Remove the rows of a new schema: the dump has its own."""
    connection.run(LeaseClock.delete())


def is_empty(connection: DatabaseConnection) -> bool:
    """Whether nothing was ever stored in this database."""
    return all(connection.one(model.select(SQL("1")).limit(1)) is None for model in (Run, Worker, Token, Event))
