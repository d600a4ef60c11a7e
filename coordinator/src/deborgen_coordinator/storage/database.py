"""The interface of a database, and the choice between its two implementations: sqlite.py and postgres.py.

Queries are built with Peewee on the models. A connection executes them with the driver that it wraps, so errors are the
driver's own and rows are plain tuples. Every difference between the two databases is a method here. No other module
asks which database is in use.
"""

from __future__ import annotations

import contextlib
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import peewee

Row = tuple[Any, ...]
#: A query built by Peewee, or the text of a statement with `?` for each parameter.
Query = Any


class DatabaseUnavailable(Exception):
    """The database could not do the work, and nothing was changed. A later try may succeed."""


class DatabaseDamaged(Exception):
    """The database file is damaged."""


class Cursor(Protocol):
    """What a driver returns for a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchall(self) -> list[Row]: ...

    def fetchone(self) -> Row | None: ...


@dataclass(frozen=True, slots=True)
class ConnectionMark:
    """The state of a connection before a piece of work."""

    changes: int = 0


@lru_cache(64)
def insert_statement(model: Any, columns: tuple[str, ...], rows: int, param: str) -> str:
    """The statement that inserts this many rows at once. `columns` are the database's own column names."""
    names = ", ".join(f'"{column}"' for column in columns)
    row = f"({', '.join([param] * len(columns))})"
    return f'INSERT INTO "{model._meta.table_name}" ({names}) VALUES {", ".join([row] * rows)}'


class DatabaseConnection(ABC):
    """One connection, with its own Peewee database object, so that threads share nothing by accident.

    `driver` executes statements that are already written in the database's dialect, such as compiled ones.
    """

    #: Whether several processes may work on the database at the same time.
    shared = False
    #: The process id of the server's backend for this connection, if there is a server.
    process: int | None = None
    db: peewee.Database
    driver: Any

    @property
    def connection(self) -> DatabaseConnection:
        """The connection itself. A transaction has the same attribute, so a statement accepts either of them."""
        return self

    def open(self) -> None:
        """Connect. Like every other method, it raises the driver's own errors."""
        try:
            self.db.connect()
        except peewee.PeeweeException as error:
            raise getattr(error, "orig", error) from None

    def execute(self, query: Query, params: Sequence[Any] = ()) -> Cursor:
        if isinstance(query, str):
            sql = self.translate(query)
        else:
            context: Any = self.db.get_sql_context()
            sql, params = context.sql(query).query()
        found: Cursor = self.driver.execute(sql, params)
        return found

    def rows(self, query: Query, params: Sequence[Any] = ()) -> list[Row]:
        return self.execute(query, params).fetchall()

    def one(self, query: Query, params: Sequence[Any] = ()) -> Row | None:
        return self.execute(query, params).fetchone()

    def value(self, query: Query, params: Sequence[Any] = ()) -> Any:
        """The first value of the first row, which must exist."""
        row = self.execute(query, params).fetchone()
        assert row is not None
        return row[0]

    def run(self, query: Query, params: Sequence[Any] = ()) -> int:
        """Execute the query; return the number of affected rows."""
        return self.execute(query, params).rowcount

    def translate(self, text: str) -> str:
        """The statement's text with the parameter style of this database's driver."""
        return text

    @abstractmethod
    def joined(self, text: Any) -> Any:
        """The texts of all rows, in their order, with a comma between two of them."""

    @abstractmethod
    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Execute one statement per row of parameters; return the number of affected rows."""

    @abstractmethod
    def bulk_insert(self, model: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert a large number of rows as a stream."""

    @abstractmethod
    def stream(self, query: Query) -> Iterator[Row]:
        """The rows one by one, in constant memory."""

    @abstractmethod
    def begin_writing(self, writer: str) -> int:
        """Begin a transaction that writes; return its number, for `was_committed`."""

    @abstractmethod
    def begin_reading(self) -> None:
        """Begin a read-only transaction on one snapshot."""

    @abstractmethod
    def begin_migration(self) -> None:
        """Begin a transaction that changes the schema, and keep other processes from doing the same."""

    @abstractmethod
    def lock_limits(self) -> None:
        """Until this transaction ends, no other process counts running jobs and starts more."""

    @abstractmethod
    def mark(self) -> ConnectionMark: ...

    @abstractmethod
    def undo(self, mark: ConnectionMark) -> bool:
        """Undo everything since the mark; False if it cannot be undone separately."""

    @abstractmethod
    def keep(self, mark: ConnectionMark) -> None:
        """Keep everything that was done since the mark."""

    @abstractmethod
    def announce(self, signals: Iterable[str], *, history: bool) -> None:
        """Send these signals to the other processes when the transaction commits.

        `history` says that the transaction adds events. Until it ends, no other process adds events, so that the order
        of the events' numbers is the order of their commits.
        """

    @abstractmethod
    def listen(self) -> None:
        """Receive the announcements of other processes from now on."""

    @abstractmethod
    def announcements(self, timeout: float) -> list[tuple[int, set[str]]]:
        """The signals that arrive within this many seconds, each set with the backend process that sent it."""

    @abstractmethod
    def was_committed(self, lost: DatabaseConnection, writer: str, number: int) -> bool:
        """Whether the transaction on a lost connection was committed."""

    @abstractmethod
    def remove_writer(self, writer: str) -> None:
        """Remove the row that counts this writer's transactions. This is the writer's last transaction."""

    @abstractmethod
    def is_broken(self, error: Exception) -> bool:
        """Whether the database itself has failed, and not just one statement."""

    @abstractmethod
    def without_rowid(self, definition: str) -> str:
        """A table's definition in this database's dialect. Only SQLite has WITHOUT ROWID."""

    @abstractmethod
    def rename_constraint(self, old: str, new: str) -> None:
        """Rename a UNIQUE constraint. In SQLite such constraints have no names."""

    @abstractmethod
    def allow_words(self, table: str, column: str, words: Sequence[str]) -> None:
        """Change the CHECK of a column to `column IN (words)`. The table is not copied, however large it is."""

    def columns_of(self, table: str) -> list[str]:
        """The names of a table's columns."""
        return [column.name for column in self.db.get_columns(table)]

    @abstractmethod
    def reset_counter(self, model: Any) -> None:
        """Make generated keys of a table continue after its largest key."""

    def close(self) -> None:
        self.db.close()


class Database(Protocol):
    """A database that can be connected to."""

    def connect(self, *, readonly: bool) -> DatabaseConnection: ...

    def exists(self) -> bool:
        """Whether there is anything to connect to. Connecting to a file that does not exist would create it."""

    def is_transient(self, error: Exception) -> bool:
        """Whether the same transaction is likely to succeed if it is retried at once on a new connection."""

    def check(self, connection: DatabaseConnection) -> None:
        """Raise DatabaseDamaged if the database is damaged. It runs before anything else uses the database."""

    def examine(self, stop: threading.Event) -> None:
        """Read the whole database, until `stop` is set; raise DatabaseDamaged if it is damaged."""

    def is_damage(self, error: Exception) -> bool:
        """Whether the error means that the database is damaged."""


def without_password(text: str) -> str:
    """The text with passwords in URLs masked, for messages and logs."""
    return re.sub(r"(://[^:/@\s]+:)[^@\s]+@", r"\1***@", text)


def database_for(url: str, data_dir: Path) -> Database:
    """The database that the setting names; empty means SQLite in the data directory."""
    from .sqlite import SqliteDatabase

    if url.startswith(("postgresql://", "postgres://")):
        try:
            from .postgres import PostgresDatabase
        except ImportError:
            raise ValueError("PostgreSQL needs its driver: pip install 'deborgen-coordinator[postgres]'") from None
        return PostgresDatabase(url)
    if url and not url.startswith("sqlite:///"):
        raise ValueError(f"cannot use {without_password(url)!r} as a database: write postgresql://… or sqlite:///PATH")
    return SqliteDatabase(Path(url.removeprefix("sqlite:///")) if url else data_dir / "deborgen.sqlite")


@contextlib.contextmanager
def transaction(connection: DatabaseConnection) -> Iterator[None]:
    """Commit the open transaction when the block ends, or roll it back if the block raises."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            connection.run("ROLLBACK")
        raise
    connection.run("COMMIT")
