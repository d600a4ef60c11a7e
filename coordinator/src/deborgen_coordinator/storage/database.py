"""The one switch between SQLite and PostgreSQL: connections, and the words that the two spell differently.

Statements are written once, with `?` for parameters, in the SQL that both understand. Lists with optional filters
are built with peewee, whose query builder knows both dialects.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import peewee

Row = tuple[Any, ...]


class DatabaseUnavailable(Exception):
    """The database did not take the work, and nothing of it was done. Later it may."""


class DatabaseDamaged(Exception):
    """The database's file is not a sound database."""


class Cursor(Protocol):
    """What a driver gives back for a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchall(self) -> list[Row]: ...

    def fetchone(self) -> Row | None: ...


class Connection:
    """One connection. `for_update` is what a SELECT says to keep its rows from other writers.

    Each database has a class of its own, with the driver's connection and its way to execute a statement.
    """

    for_update = ""
    skip_locked = ""
    tables: peewee.Database
    _connection: Any
    _execute: Callable[[str, Sequence[Any]], Cursor]

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        return self._execute(sql, params).fetchall()

    def one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        return self._execute(sql, params).fetchone()

    def value(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """The first value of a row that is known to be there."""
        row = self._execute(sql, params).fetchone()
        assert row is not None
        return row[0]

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Execute, and say how many rows it touched."""
        return self._execute(sql, params).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        raise NotImplementedError

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert very many rows, in a stream."""
        self.many(insert_into(table, columns), rows)

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        """Rows one by one, in memory that does not grow with their number."""
        raise NotImplementedError

    def changes(self) -> int | None:
        """How many rows this connection has changed in its life; None where the database does not count them."""
        return None

    def is_broken(self, error: Exception) -> bool:
        """Whether the error is the database's own trouble, and not that of one statement."""
        raise NotImplementedError

    def describe(self, table: str) -> list[str]:
        """The names of a table's columns."""
        raise NotImplementedError

    def set_counter(self, table: str, key: str) -> None:
        """Go on counting a table's keys behind the greatest that is there."""

    def query(self, query: peewee.BaseQuery) -> list[Row]:
        """The rows of a query built with peewee."""
        context: Any = self.tables.get_sql_context()
        return self.rows(*context.sql(query).query())

    def close(self) -> None:
        self._connection.close()


def insert_into(table: str, columns: Sequence[str]) -> str:
    """The statement that inserts a row with these columns."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


class SqliteConnection(Connection):
    tables = peewee.SqliteDatabase(None)

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self._connection: sqlite3.Connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=5.0, cached_statements=256
        )
        pragmas = ["foreign_keys = ON", "busy_timeout = 5000", "temp_store = MEMORY"]
        if readonly:
            pragmas += ["query_only = ON", "cache_size = -1000"]
        else:
            pragmas += ["journal_mode = WAL", "synchronous = FULL", "cache_size = -32000", "wal_autocheckpoint = 4000"]
        for pragma in pragmas:
            self._connection.execute(f"PRAGMA {pragma}")
        self._execute = self._connection.execute

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        return self._connection.executemany(sql, rows).rowcount

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        return self._connection.execute(sql, params)

    def changes(self) -> int:
        return self._connection.total_changes

    def describe(self, table: str) -> list[str]:
        return [row[1] for row in self.rows(f"PRAGMA table_info({table})")]

    def is_broken(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.OperationalError)


class SqliteDatabase:
    dialect = "sqlite"
    words = {  # noqa: RUF012
        # Rows with counted keys are never deleted, so the next number is always a new one; AUTOINCREMENT would keep a
        # second record of it, and cost every commit a page.
        "serial": "INTEGER PRIMARY KEY",
        "key": "INTEGER PRIMARY KEY",  # no other spelling makes it the row's own key, without an index beside it
        "double": "REAL",
        "bytes": "BLOB",
        "without_rowid": "WITHOUT ROWID",
    }

    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self, *, readonly: bool) -> Connection:
        try:
            return SqliteConnection(self.path, readonly=readonly)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise DatabaseUnavailable(f"{self.path}: {error}") from error
            raise DatabaseDamaged(f"{self.path}: {error}") from error

    def is_transient(self, error: Exception) -> bool:
        """Whether the same transaction, run again at once on a new connection, may well succeed."""
        return False


@cache
def _percent(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()


@cache
def _text_dumper() -> type[Any]:
    """How text goes to PostgreSQL: it takes no NUL, and a program's words with one must not fail a heartbeat."""
    from psycopg.types.string import StrDumperUnknown

    class TextDumper(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)

    return TextDumper


#: Each side of a connection finds out within half a minute that the other one is gone, and sooner if it has just sent
#: something that nobody takes.
SERVER_KEEPALIVE = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
CLIENT_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 10_000,
}  # fmt: skip


class PostgresConnection(Connection):
    for_update = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"

    def __init__(self, url: str, *, readonly: bool) -> None:
        import psycopg

        self.tables = peewee.PostgresqlDatabase(None, prefer_psycopg3=True)
        self.tables.param = "?"
        # A database that was made without a locale has no encoding of its own, and would give bytes for text.
        self._connection: psycopg.Connection = psycopg.connect(
            url, autocommit=True, connect_timeout=5, application_name="deborgen", client_encoding="utf8",
            **CLIENT_KEEPALIVE,
        )  # fmt: skip
        self._connection.adapters.register_dumper(str, _text_dumper())
        self._cursor = self._connection.cursor()
        self._cursor.execute("SET synchronous_commit = on")
        # A coordinator that vanishes in the middle of a transaction must not keep its locks until tomorrow.
        for name, value in SERVER_KEEPALIVE.items():
            self._cursor.execute(f"SET {name} = {value}".encode())
        if readonly:
            self._cursor.execute("SET default_transaction_read_only = on")
        #: The server's process for this connection, and since when: numbers of processes come again, such pairs do not.
        self.backend = self.rows("SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()")[0]

    def _execute(self, sql: str, params: Sequence[Any]) -> Cursor:
        return self._cursor.execute(_percent(sql), params) if params else self._cursor.execute(sql.encode())

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        self._cursor.executemany(_percent(sql), rows)
        return self._cursor.rowcount

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with self._cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        with self._connection.cursor(name="stream", withhold=True) as cursor:
            cursor.itersize = 2000
            yield from cursor.execute(_percent(sql), params)

    def describe(self, table: str) -> list[str]:
        found = self.rows(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_name = ? AND table_schema = current_schema()",
            (table,),
        )
        return [row[0] for row in found]

    def set_counter(self, table: str, key: str) -> None:
        self.one(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), COALESCE((SELECT max({key}) FROM {table}), 1),"
            f" EXISTS (SELECT 1 FROM {table}))"
        )

    def notifications(self, timeout: float) -> list[tuple[int, str]]:
        """What was said on the channel within that time, and by whom."""
        return [(notice.pid, notice.payload) for notice in self._connection.notifies(timeout=timeout, stop_after=1)]

    def is_broken(self, error: Exception) -> bool:
        return is_trouble(error)


class PostgresDatabase:
    dialect = "postgres"
    words = {  # noqa: RUF012
        "serial": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "key": "BIGINT PRIMARY KEY",
        "double": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "without_rowid": "",
    }

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self, *, readonly: bool) -> Connection:
        import psycopg

        try:
            return PostgresConnection(self.url, readonly=readonly)
        except psycopg.Error as error:
            raise DatabaseUnavailable(f"PostgreSQL does not answer: {without_password(str(error))}") from error

    def is_transient(self, error: Exception) -> bool:
        return is_trouble(error)


def is_trouble(error: Exception) -> bool:
    """Whether it is PostgreSQL's own trouble, and not that of the statement: what is too large is too large again."""
    import psycopg

    return isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.ProgramLimitExceeded)


def without_password(text: str) -> str:
    """The text with passwords in URLs blotted out, for messages and logs."""
    return re.sub(r"(://[^:/@\s]+:)[^@\s]+@", r"\1***@", text)


#: A place to connect to.
Database = SqliteDatabase | PostgresDatabase


def database_for(url: str, data_dir: Path) -> Database:
    """The database that the setting names; empty means SQLite in the data directory."""
    if url.startswith(("postgresql://", "postgres://")):
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise ValueError("PostgreSQL needs the driver: pip install 'deborgen-coordinator[postgres]'") from None
        return PostgresDatabase(url)
    if url and not url.startswith("sqlite:///"):
        raise ValueError(f"cannot use {without_password(url)!r} as a database: write postgresql://… or sqlite:///PATH")
    path = Path(url.removeprefix("sqlite:///")) if url else data_dir / "deborgen.sqlite"
    return SqliteDatabase(path)


@contextlib.contextmanager
def transaction(connection: Connection, begin: str) -> Iterator[None]:
    """All of the block, or nothing of it."""
    connection.run(begin)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            connection.run("ROLLBACK")
        raise
    connection.run("COMMIT")
