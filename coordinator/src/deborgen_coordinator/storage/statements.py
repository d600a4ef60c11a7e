"""Statements that are compiled once: a Peewee query with parameters, in the dialect of each database.

Building a query costs many times as much as finding a row by its key. The statements that are worth compiling are in
`hot.py`; all others are built for each call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol

import peewee

from .database import Cursor, DatabaseConnection, Row


class Parameter(peewee.ColumnBase):
    """The position of a parameter in a query."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def __sql__(self, ctx: Any) -> Any:
        ctx._values.append(self.at)
        return ctx.literal("\0")  # `_compiled` replaces it by the driver's own mark for a parameter


class Locked(peewee.Node):
    """A SELECT that locks its rows against other writers. SQLite has only one writer, so there it locks nothing."""

    def __init__(self, query: Any, words: str = "FOR UPDATE", **how: Any) -> None:
        self.query, self.words, self.how = query, words, how

    def __sql__(self, ctx: Any) -> Any:
        return ctx.sql(self.query.for_update(self.words, **self.how) if ctx.state.for_update else self.query)


class Reader(Protocol):
    """What a statement needs: a connection, or a transaction on one."""

    @property
    def connection(self) -> DatabaseConnection: ...


class Statement:
    """A query as a function of its values. `build` makes the plain query for the same values; a test compares both."""

    def __init__(self, build: Callable[..., Any], arity: int | None = None) -> None:
        self.build = build
        self.__doc__ = build.__doc__
        self.arity = len(inspect.signature(build).parameters) if arity is None else arity
        #: By the driver's mark for a parameter: the text of the statement, and what orders the values for it.
        self._made: dict[str, tuple[str, Callable[[Sequence[Any]], tuple[Any, ...]]]] = {}

    def _compiled(self, db: Any) -> tuple[str, Callable[[Sequence[Any]], tuple[Any, ...]]]:
        query = self.build(*map(Parameter, range(self.arity)))
        # Constants are part of the text, so that the database can see that a partial index applies.
        sql, positions = db.get_sql_context(value_literals=True).sql(query).query()
        sql = (sql.replace("%", "%%") if db.param == "%s" else sql).replace("\0", db.param)
        if positions == list(range(len(positions))):
            pick: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple
        else:
            pick = itemgetter(*positions) if len(positions) > 1 else lambda given: (given[positions[0]],)
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
        """The first value of the first row, which must exist."""
        row = self._execute(reader, given).fetchone()
        assert row is not None
        return row[0]

    def run(self, reader: Reader, *given: Any) -> int:
        """Execute the statement; return the number of affected rows."""
        return self._execute(reader, given).rowcount

    def run_many(self, reader: Reader, rows: Iterable[Sequence[Any]]) -> int:
        """Execute the statement for each row of values; return the number of affected rows."""
        connection = reader.connection
        sql, pick = self._made.get(connection.db.param) or self._compiled(connection.db)
        return connection.run_many(sql, map(pick, rows))
