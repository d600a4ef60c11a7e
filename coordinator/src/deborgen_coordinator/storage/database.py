"""What storage asks of a database, and the choice between the two that there are: sqlite.py and postgres.py.

Queries are Peewee's, built on the models; a connection executes them with the driver that it wraps, so errors are the
driver's own and rows are plain tuples. Where the two databases differ, the difference is a method here. No other module
asks which database it has.
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
#: A query that Peewee has built, or the text of a statement with `?` for its parameters.
Query = Any


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


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a connection stands before a piece of work."""

    changes: int = 0


@lru_cache(64)
def insertion(model: Any, columns: tuple[str, ...], rows: int, param: str) -> str:
    """The statement that inserts this many rows at once; the columns are named as the database names them."""
    names = ", ".join(f'"{column}"' for column in columns)
    row = f"({', '.join([param] * len(columns))})"
    return f'INSERT INTO "{model._meta.table_name}" ({names}) VALUES {", ".join([row] * rows)}'


class Connection(ABC):
    """One connection, on a Peewee database of its own: nothing is shared between threads by accident.

    `driver` executes statements that are already in the database's own words, as compiled ones are.
    """

    #: Whether several processes may work on the database at the same time.
    shared = False
    #: The number of the server's process for this connection, if there is a server.
    process: int | None = None
    db: peewee.Database
    driver: Any

    @property
    def connection(self) -> Connection:
        """Statements ask a transaction and a connection alike for this."""
        return self

    def open(self) -> None:
        """Connect. Errors are the driver's own here too."""
        try:
            self.db.connect()
        except peewee.PeeweeException as error:
            raise getattr(error, "orig", error) from None

    def execute(self, query: Query, params: Sequence[Any] = ()) -> Cursor:
        if isinstance(query, str):
            sql = self.spell(query)
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
        """The first value of a row that is known to be there."""
        row = self.execute(query, params).fetchone()
        assert row is not None
        return row[0]

    def run(self, query: Query, params: Sequence[Any] = ()) -> int:
        """Execute, and say how many rows it touched."""
        return self.execute(query, params).rowcount

    def spell(self, text: str) -> str:
        """A statement's text, with parameters as this database's driver wants them."""
        return text

    @abstractmethod
    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Execute one statement for each row of parameters; how many rows they touched."""

    @abstractmethod
    def fill(self, model: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert very many rows, in a stream."""

    @abstractmethod
    def stream(self, query: Query) -> Iterator[Row]:
        """Rows one by one, in memory that does not grow with their number."""

    @abstractmethod
    def begin_writing(self, writer: str) -> int:
        """Begin a transaction that writes; the number by which `was_committed` knows it again."""

    @abstractmethod
    def begin_reading(self) -> None:
        """Begin a transaction that reads one snapshot."""

    @abstractmethod
    def begin_changing(self) -> None:
        """Begin a transaction that changes the schema, and that no other process does at the same time."""

    @abstractmethod
    def mark(self) -> Mark: ...

    @abstractmethod
    def undo(self, mark: Mark) -> bool:
        """Undo what was done since the mark; False if that cannot be undone alone."""

    @abstractmethod
    def keep(self, mark: Mark) -> None:
        """Let what was done since the mark stand."""

    @abstractmethod
    def announce(self, signals: Iterable[str], *, history: bool) -> None:
        """Tell the other processes of these signals with the commit. With `history`, this transaction adds events: from
        here on no other process does, so that the order of their numbers is the order of their commits."""

    @abstractmethod
    def listen(self) -> None:
        """Hear from now on what other processes announce."""

    @abstractmethod
    def announcements(self, timeout: float) -> list[tuple[int, set[str]]]:
        """The signals that were announced within that time, each with the server's process that announced them."""

    @abstractmethod
    def was_committed(self, lost: Connection, writer: str, number: int) -> bool:
        """What became of the transaction on a connection that was lost."""

    @abstractmethod
    def sign_off(self, writer: str) -> None:
        """The last transaction of its writer: nothing of it is left to be found again."""

    @abstractmethod
    def is_broken(self, error: Exception) -> bool:
        """Whether the error is the database's own trouble, and not that of one statement."""

    @abstractmethod
    def without_rowid(self, definition: str) -> str:
        """A table's definition in this database's words: only SQLite knows WITHOUT ROWID."""

    @abstractmethod
    def rename_constraint(self, old: str, new: str) -> None:
        """Give a UNIQUE constraint another name, where such constraints have names."""

    def columns_of(self, table: str) -> list[str]:
        """The names of a table's columns."""
        return [column.name for column in self.db.get_columns(table)]

    @abstractmethod
    def set_counter(self, model: Any) -> None:
        """Go on counting a table's keys behind the greatest that is there."""

    def close(self) -> None:
        self.db.close()


class Database(Protocol):
    """A place to connect to."""

    def connect(self, *, readonly: bool) -> Connection: ...

    def is_transient(self, error: Exception) -> bool:
        """Whether the same transaction, run again at once on a new connection, may well succeed."""

    def check(self, connection: Connection) -> None:
        """Refuse a database that is damaged, before anything is built on it."""

    def examine(self, stop: threading.Event) -> None:
        """Read all of it, for as long as that takes or until it shall stop; raise if it is damaged."""

    def is_damage(self, error: Exception) -> bool:
        """Whether the error says that the database is damaged."""


def without_password(text: str) -> str:
    """The text with passwords in URLs blotted out, for messages and logs."""
    return re.sub(r"(://[^:/@\s]+:)[^@\s]+@", r"\1***@", text)


def database_for(url: str, data_dir: Path) -> Database:
    """The database that the setting names; empty means SQLite in the data directory."""
    from .sqlite import SqliteDatabase

    if url.startswith(("postgresql://", "postgres://")):
        try:
            from .postgres import PostgresDatabase
        except ImportError:
            raise ValueError("PostgreSQL needs the driver: pip install 'deborgen-coordinator[postgres]'") from None
        return PostgresDatabase(url)
    if url and not url.startswith("sqlite:///"):
        raise ValueError(f"cannot use {without_password(url)!r} as a database: write postgresql://… or sqlite:///PATH")
    return SqliteDatabase(Path(url.removeprefix("sqlite:///")) if url else data_dir / "deborgen.sqlite")


@contextlib.contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of the block, or nothing of it. The transaction has begun."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            connection.run("ROLLBACK")
        raise
    connection.run("COMMIT")
