"""The events of a machine itself are found without reading those of its jobs."""

from __future__ import annotations

from ..database import DatabaseConnection


def migrate(connection: DatabaseConnection) -> None:
    connection.run("CREATE INDEX event_machine ON event (worker, seq) WHERE worker IS NOT NULL AND job_id IS NULL")
