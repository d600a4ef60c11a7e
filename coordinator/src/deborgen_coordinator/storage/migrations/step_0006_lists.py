"""Every list uses an index, and a class of jobs is identified by the digest of its needs.

Before, the needs themselves were the key. PostgreSQL allows keys of at most about 2,700 bytes.
"""

from __future__ import annotations

import hashlib

from peewee import SQL, TextField

from ..database import DatabaseConnection
from . import add_column

INDEXES = (
    "CREATE INDEX job_state ON job (state, id)",
    "CREATE INDEX run_unfinished ON run (id) WHERE finished_at IS NULL",
    "CREATE INDEX run_failed ON run (id) WHERE failed > 0",
    "CREATE INDEX run_canceled ON run (id) WHERE canceled > 0",
    "CREATE INDEX run_prunable ON run (finished_at) WHERE finished_at IS NOT NULL AND pruned_at IS NULL",
)


def migrate(connection: DatabaseConnection) -> None:
    connection.run("ALTER TABLE class RENAME COLUMN needs TO digest")
    connection.rename_constraint("class_needs_key", "class_digest_key")
    add_column(connection, "class", "needs", TextField(constraints=[SQL("DEFAULT ''")]))
    for id_, needs in connection.rows("SELECT id, digest FROM class"):
        digest = hashlib.sha256(needs.encode()).hexdigest()
        connection.run("UPDATE class SET needs = ?, digest = ? WHERE id = ?", (needs, digest, id_))
    connection.run("DROP INDEX job_running")
    connection.run("DROP INDEX job_failed")
    for index in INDEXES:
        connection.run(index)
