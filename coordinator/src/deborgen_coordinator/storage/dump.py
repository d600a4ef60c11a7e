"""All rows, out and in again, in a form that knows neither database: what SQLite dumped, PostgreSQL can load."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from .database import Connection
from .migrate import schema

Line = bytes


#: What is only of use to the processes that work on a database now.
PASSING = frozenset({"writer"})


def tables() -> list[str]:
    """Every table that is kept, those that others refer to first."""
    every = [line.split()[2] for line in schema().splitlines() if line.startswith("CREATE TABLE ")]
    return [table for table in every if table not in PASSING]


def serial_columns() -> dict[str, str]:
    """The tables whose keys the database counts, and the name of that key."""
    found: dict[str, str] = {}
    table = ""
    for line in schema().splitlines():
        if line.startswith("CREATE TABLE "):
            table = line.split()[2]
        elif "{serial}" in line:
            found[table] = line.split()[0]
    return found


def columns(reader: Connection, table: str) -> list[str]:
    return sorted(reader.describe(table))


def rows_out(reader: Connection, table: str) -> Iterator[Line]:
    """The first line names the columns, each other one is a row."""
    names = columns(reader, table)
    yield json.dumps(names).encode() + b"\n"
    # In the order of the keys: a retry refers to an earlier row of its own table, and SQLite checks row by row.
    order = f" ORDER BY {serial_columns()[table]}" if table in serial_columns() else ""
    for row in reader.stream(f"SELECT {', '.join(names)} FROM {table}{order}"):
        yield json.dumps([_out(value) for value in row]).encode() + b"\n"


def _out(value: Any) -> Any:
    return {"base64": base64.b64encode(bytes(value)).decode()} if isinstance(value, bytes | memoryview) else value


def rows_in(connection: Connection, table: str, lines: Iterable[Line]) -> None:
    """Put the rows of a dump into an empty table."""
    stream = iter(lines)
    names = json.loads(next(stream))
    unknown = set(names) - set(columns(connection, table))
    if unknown:
        raise ValueError(f"the backup has columns that table {table} does not know: {', '.join(sorted(unknown))}")
    connection.fill(table, names, ([_in(value) for value in json.loads(line)] for line in stream))


def _in(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def set_counters(connection: Connection) -> None:
    """Let the database go on counting where the dump stopped."""
    for table, key in serial_columns().items():
        connection.set_counter(table, key)


def clear(connection: Connection) -> None:
    """Remove what a fresh schema comes with: the dump has its own."""
    connection.run("DELETE FROM lease_clock")


def is_empty(connection: Connection) -> bool:
    """Whether nothing was ever stored here."""
    return all(connection.one(f"SELECT 1 FROM {table}") is None for table in ("run", "worker", "token", "event"))
