"""An attempt may end as stalled."""

from __future__ import annotations

from ..database import DatabaseConnection

OUTCOMES = (
    "succeeded", "failed", "timeout", "out_of_memory", "stalled", "canceled", "error", "lost", "released",
)  # fmt: skip


def migrate(connection: DatabaseConnection) -> None:
    connection.allow_words("attempt", "outcome", OUTCOMES)
