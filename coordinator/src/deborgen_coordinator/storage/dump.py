"""Dump and load all rows in a form that is independent of the database: PostgreSQL can load a dump of SQLite."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from peewee import SQL, BigAutoField

from .database import DatabaseConnection
from .models import TABLES, ArtifactStore, Blob, Event, JobClass, LeaseClock, Run, SignIn, Token, Upload, Worker, Writer
from .specs import digest_of

Line = bytes

#: The tables in a dump. The rows of the others are useful only to processes that are using the database now. After
#: a restore, everybody signs in to the dashboard again.
KEPT = {model._meta.table_name: model for model in TABLES if model not in (Writer, SignIn, Upload, ArtifactStore)}


def tables() -> list[str]:
    """The tables in a dump. A table comes before the tables that refer to it."""
    return list(KEPT)


def columns(table: str) -> list[str]:
    return sorted(KEPT[table]._meta.columns)


def dump_rows(reader: DatabaseConnection, table: str) -> Iterator[Line]:
    """The lines of a table's dump. The first line names the columns, every other line is a row."""
    model, names = KEPT[table], columns(table)
    yield json.dumps(names).encode() + b"\n"
    query = model.select(*(model._meta.columns[name] for name in names))
    if _has_generated_keys(model):  # a retry refers to an earlier run, and SQLite checks row by row
        query = query.order_by(model._meta.primary_key)
    for row in reader.stream(query):
        yield json.dumps([_to_json(value) for value in row]).encode() + b"\n"


def _has_generated_keys(model: Any) -> bool:
    """Whether the database generates the keys of this table."""
    return isinstance(model._meta.primary_key, BigAutoField)


def _to_json(value: Any) -> Any:
    return {"base64": base64.b64encode(bytes(value)).decode()} if isinstance(value, bytes | memoryview) else value


def load_rows(connection: DatabaseConnection, table: str, lines: Iterable[Line]) -> None:
    """Load the rows of a dump into an empty table."""
    stream = iter(lines)
    names = json.loads(next(stream))
    unknown = set(names) - set(columns(table))
    if unknown:
        raise ValueError(f"the backup has columns that table {table} does not have: {', '.join(sorted(unknown))}")
    rows = ([_from_json(value) for value in json.loads(line)] for line in stream)
    if KEPT[table] is JobClass and "digest" not in names:  # a backup of schema 5 or older
        at = names.index("needs")
        names, rows = [*names, "digest"], ([*row, digest_of(row[at])] for row in rows)
    connection.bulk_insert(KEPT[table], names, rows)


def list_blobs(lines: Iterable[Line]) -> dict[str, int]:
    """The blobs that a dump of the table `blob` names, each with its size."""
    stream = iter(lines)
    names = json.loads(next(stream, b"[]"))
    digest, size = names.index(Blob.digest.column_name), names.index(Blob.size.column_name)
    return {row[digest]: row[size] for row in map(json.loads, stream)}


def _from_json(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def reset_counters(connection: DatabaseConnection) -> None:
    """Make the database generate keys that come after the keys in the dump."""
    for model in filter(_has_generated_keys, KEPT.values()):
        connection.reset_counter(model)


def remove_initial_rows(connection: DatabaseConnection) -> None:
    """Remove the row of the lease clock, which every new schema has: the dump has its own."""
    connection.run(LeaseClock.delete())


def is_empty(connection: DatabaseConnection) -> bool:
    """Whether nothing was ever stored in this database."""
    return all(connection.one(model.select(SQL("1")).limit(1)) is None for model in (Run, Worker, Token, Event))
