"""Processes count their transactions on PostgreSQL, so that a commit whose answer was lost is found again."""

from __future__ import annotations

from ..database import Connection


def migrate(connection: Connection) -> None:
    connection.run("CREATE TABLE writer (id TEXT PRIMARY KEY, commits BIGINT NOT NULL)")
