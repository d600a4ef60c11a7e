"""The schema: made whole in a fresh database, or carried forward step by step in an old one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from .database import Connection, Database, transaction

FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql$")


class SchemaTooNew(Exception):
    """The database was written by a newer deborgen."""


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    folder = resources.files(__package__).joinpath("migrations")
    found = [
        Migration(int(match[1]), entry.name, entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if (match := FILE_NAME.match(entry.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


def schema() -> str:
    return resources.files(__package__).joinpath("schema.sql").read_text("utf-8")


def statements(sql: str, words: dict[str, str]) -> list[str]:
    """The statements of a file, in the words of one database."""
    for word, spelling in words.items():
        sql = sql.replace("{" + word + "}", spelling)
    bare = "\n".join(line.split("--")[0].rstrip() for line in sql.splitlines())
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


def latest() -> int:
    return migrations()[-1].version


def version(connection: Connection) -> int:
    """The schema's version in this database; 0 where there is none."""
    if not connection.describe("schema_version"):
        return 0
    return connection.value("SELECT max(version) FROM schema_version") or 0


def migrate(connection: Connection, database: Database, *, step_by_step: bool = False) -> tuple[int, int]:
    """Bring the schema up to date in one transaction; the versions before and after.

    Should a step fail, the old database is left as it was. A fresh database gets the whole schema at once, unless
    `step_by_step` asks for the long way.
    """
    begin = "BEGIN IMMEDIATE" if database.dialect == "sqlite" else "BEGIN"
    with transaction(connection, begin):
        if database.dialect == "postgres":
            connection.run("SELECT pg_advisory_xact_lock(7305)")
        before = version(connection)
        if before > latest():
            raise SchemaTooNew(
                f"the database has schema {before}, and this deborgen knows up to {latest()}: install a newer one"
            )
        if before == 0:
            connection.run("CREATE TABLE schema_version (version BIGINT PRIMARY KEY)")
        if before == 0 and not step_by_step:
            _apply(connection, database, schema())
            connection.run("INSERT INTO schema_version (version) VALUES (?)", (latest(),))
        else:
            for step in migrations():
                if step.version > before:
                    _apply(connection, database, step.sql)
                    connection.run("INSERT INTO schema_version (version) VALUES (?)", (step.version,))
    return before, latest()


def _apply(connection: Connection, database: Database, sql: str) -> None:
    for statement in statements(sql, database.words):
        connection.run(statement)
