"""Processes count their transactions on PostgreSQL, to find out whether a commit whose answer was lost succeeded."""

from __future__ import annotations

from ..database import DatabaseConnection


def migrate(connection: DatabaseConnection) -> None:
    connection.run("CREATE TABLE writer (id TEXT PRIMARY KEY, commits BIGINT NOT NULL)")
