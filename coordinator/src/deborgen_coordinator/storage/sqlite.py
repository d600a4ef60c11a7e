"""SQLite: the embedded default. One file, one writer, and a write-ahead log that is flushed with every commit."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import peewee

from .database import (
    ConnectionMark,
    DatabaseConnection,
    DatabaseDamaged,
    DatabaseUnavailable,
    Query,
    Row,
    insert_statement,
)
from .models import TABLES

#: `fullfsync` matters only on macOS, where a plain fsync does not reach the disk.
PRAGMAS = {"foreign_keys": 1, "temp_store": "memory", "fullfsync": 1, "checkpoint_fullfsync": 1}
WRITER_PRAGMAS = {"journal_mode": "wal", "synchronous": "full", "cache_size": -32000, "wal_autocheckpoint": 4000}
READER_PRAGMAS = {"query_only": 1, "cache_size": -1000}
#: The SQL types of the models' fields. Only an `INTEGER` primary key is SQLite's own rowid. Rows with generated keys
#: are never deleted, so new keys are unique without AUTOINCREMENT, which would cost a second write.
TYPES = {"BIGINT": "BIGINT", "BIGAUTO": "INTEGER", "KEY": "INTEGER", "DOUBLE": "REAL"}
#: A file of at most this many bytes is read completely before it is used.
READ_AT_START = 64 << 20
#: The number of rows per INSERT when many rows are inserted.
ROWS_AT_ONCE = 100


class SqliteConnection(DatabaseConnection):
    driver: sqlite3.Connection

    def __init__(self, path: Path, *, readonly: bool) -> None:
        pragmas = PRAGMAS | (READER_PRAGMAS if readonly else WRITER_PRAGMAS)
        self.db = peewee.SqliteDatabase(
            str(path), pragmas=pragmas, thread_safe=False, autoconnect=False, check_same_thread=False, timeout=5.0,
            cached_statements=256, field_types=TYPES, returning_clause=True,
        )  # fmt: skip
        self.open()
        self.driver = self.db.connection()  # type: ignore[no-untyped-call]

    def joined(self, text: Any) -> Any:
        return peewee.fn.GROUP_CONCAT(text, peewee.SQL("','"))

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        return self.driver.executemany(sql, rows).rowcount

    def bulk_insert(self, model: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        stream = iter(rows)
        while chunk := list(islice(stream, ROWS_AT_ONCE)):
            sql = insert_statement(model, tuple(columns), len(chunk), "?")
            self.driver.execute(sql, list(chain.from_iterable(chunk)))

    def stream(self, query: Query) -> Iterator[Row]:
        context: Any = self.db.get_sql_context()
        return self.driver.execute(*context.sql(query).query())

    def begin_writing(self, writer: str) -> int:
        self.driver.execute("BEGIN IMMEDIATE")
        return 0

    def begin_reading(self) -> None:
        self.driver.execute("BEGIN")

    def begin_migration(self) -> None:
        self.driver.execute("BEGIN IMMEDIATE")

    def mark(self) -> ConnectionMark:
        return ConnectionMark(self.driver.total_changes)

    def undo(self, mark: ConnectionMark) -> bool:
        """Work that fails has rarely changed anything. SQLite's counter of changes shows that, without savepoints."""
        return self.driver.total_changes == mark.changes

    def keep(self, mark: ConnectionMark) -> None:
        """There is no savepoint to release."""

    def announce(self, signals: Iterable[str], *, history: bool) -> None:
        """No other process uses the database."""

    def listen(self) -> None:
        raise AssertionError("SQLite has no other process to listen to")

    def announcements(self, timeout: float) -> list[tuple[int, set[str]]]:
        raise AssertionError("SQLite has no other process to listen to")

    def was_committed(self, lost: DatabaseConnection, writer: str, number: int) -> bool:
        raise AssertionError("SQLite never loses the answer to a commit")

    def remove_writer(self, writer: str) -> None:
        """Transactions are not counted."""

    def lock_limits(self) -> None:
        """There is no other process."""

    def rename_constraint(self, old: str, new: str) -> None:
        """In SQLite these constraints have no names."""

    def allow_words(self, table: str, column: str, words: Sequence[str]) -> None:
        """SQLite has no statement for this. As its documentation proposes, the text of the schema is changed, because
        a CHECK does not change how rows are stored."""
        before = self.value("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
        listed = ", ".join(f"'{word}'" for word in words)
        after, found = re.subn(rf"\b{column} IN\s*\([^()]*\)", f"{column} IN ({listed})", before)
        assert found == 1, f"{table} has {found} conditions on {column}"
        version = self.value("PRAGMA schema_version")
        self.driver.execute("PRAGMA writable_schema = ON")
        try:
            self.run("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (after, table))
            self.driver.execute(f"PRAGMA schema_version = {version + 1}")
        finally:
            self.driver.execute("PRAGMA writable_schema = OFF")

    def reset_counter(self, model: Any) -> None:
        """SQLite continues after the largest key by itself."""

    def is_broken(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError

    def without_rowid(self, definition: str) -> str:
        return definition


class SqliteDatabase:
    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self, *, readonly: bool) -> DatabaseConnection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return SqliteConnection(self.path, readonly=readonly)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise DatabaseUnavailable(f"{self.path}: {error}") from error
            raise DatabaseDamaged(f"{self.path}: {error}") from error

    def exists(self) -> bool:
        return self.path.exists()

    def is_transient(self, error: Exception) -> bool:
        return False

    def check(self, connection: DatabaseConnection) -> None:
        """Read a small file completely, which takes a fraction of a second, but only the schema of a large file. SQLite
        itself refuses a truncated file, and `examine` reads the rest while the coordinator serves."""
        try:
            if self.path.stat().st_size <= READ_AT_START:
                problems = [row[0] for row in connection.rows("PRAGMA quick_check(3)")]
            else:
                problems = []
                connection.rows("SELECT name FROM sqlite_master")
        except sqlite3.Error as error:
            problems = [str(error)]
        _raise_if_damaged(problems)

    def examine(self, stop: threading.Event) -> None:
        """Check table by table, each on its own snapshot, so that the write-ahead log can be truncated in between."""
        connection = SqliteConnection(self.path, readonly=True)
        # SQLite calls this every 10,000 steps of its virtual machine, to ask whether to stop.
        connection.driver.set_progress_handler(stop.is_set, 10_000)
        try:
            for model in TABLES:
                _raise_if_damaged(
                    [row[0] for row in connection.rows(f"PRAGMA quick_check({model._meta.table_name!r})")]
                )
        except sqlite3.DatabaseError as error:
            if not stop.is_set():
                raise DatabaseDamaged(str(error)) from error
        finally:
            connection.close()

    def is_damage(self, error: Exception) -> bool:
        words = ("malformed", "not a database", "corrupt")
        return isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in words)


def _raise_if_damaged(problems: list[str]) -> None:
    """`problems` are the lines that SQLite's check returns: only `ok` if there are none."""
    found = [problem for problem in problems if problem != "ok"]
    if found:
        raise DatabaseDamaged("; ".join(found[:3]))
