"""Statements that are compiled once: a Peewee query with places for its values, in the words of each database.

Building a query costs many times as much as running it where the row is found by its key. What is worth it stands in
`hot.py`, and nothing else is compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol

import peewee

from .database import Connection, Cursor, Row


class Place(peewee.ColumnBase):
    """Where the value of a parameter goes."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def __sql__(self, ctx: Any) -> Any:
        ctx._values.append(self.at)
        return ctx.literal("\0")


class Locked(peewee.Node):
    """A SELECT that keeps its rows from other writers. SQLite has one writer, and nothing to keep them from."""

    def __init__(self, query: Any, words: str = "FOR UPDATE", **how: Any) -> None:
        self.query, self.words, self.how = query, words, how

    def __sql__(self, ctx: Any) -> Any:
        return ctx.sql(self.query.for_update(self.words, **self.how) if ctx.state.for_update else self.query)


class Reader(Protocol):
    """What a statement needs of a connection, or of a transaction on one."""

    @property
    def connection(self) -> Connection: ...


class Statement:
    """A query as a function of its values. `build` gives the plain query for the same values, which a test compares."""

    def __init__(self, build: Callable[..., Any], arity: int | None = None) -> None:
        self.build = build
        self.__doc__ = build.__doc__
        self.arity = len(inspect.signature(build).parameters) if arity is None else arity
        self._made: dict[str, tuple[str, Callable[[Sequence[Any]], tuple[Any, ...]]]] = {}

    def _compiled(self, db: Any) -> tuple[str, Callable[[Sequence[Any]], tuple[Any, ...]]]:
        query = self.build(*map(Place, range(self.arity)))
        # Constants stand in the text, so that the database can tell that a partial index serves.
        sql, places = db.get_sql_context(value_literals=True).sql(query).query()
        sql = (sql.replace("%", "%%") if db.param == "%s" else sql).replace("\0", db.param)
        if places == list(range(len(places))):
            pick: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple
        else:
            pick = itemgetter(*places) if len(places) > 1 else lambda given: (given[places[0]],)
        return self._made.setdefault(db.param, (sql, pick))

    def _execute(self, reader: Reader, given: Sequence[Any]) -> Cursor:
        connection = reader.connection
        sql, pick = self._made.get(connection.db.param) or self._compiled(connection.db)
        found: Cursor = connection.driver.execute(sql, pick(given))
        return found

    def rows(self, reader: Reader, *given: Any) -> list[Row]:
        return self._execute(reader, given).fetchall()

    def one(self, reader: Reader, *given: Any) -> Row | None:
        return self._execute(reader, given).fetchone()

    def value(self, reader: Reader, *given: Any) -> Any:
        """The first value of a row that is known to be there."""
        row = self._execute(reader, given).fetchone()
        assert row is not None
        return row[0]

    def run(self, reader: Reader, *given: Any) -> int:
        """Execute, and say how many rows it touched."""
        return self._execute(reader, given).rowcount

    def many(self, reader: Reader, rows: Iterable[Sequence[Any]]) -> int:
        """Execute for each row of values; how many rows that touched."""
        connection = reader.connection
        sql, pick = self._made.get(connection.db.param) or self._compiled(connection.db)
        return connection.many(sql, map(pick, rows))
