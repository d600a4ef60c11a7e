"""Two indexes of attempts cost every claim, heartbeat and result a page, and are not needed.

The lease check reads all live attempts anyway, because of their time limits. A repeated claim looks among the live
attempts of its worker.
"""

from __future__ import annotations

from ..database import DatabaseConnection


def migrate(connection: DatabaseConnection) -> None:
    connection.run("DROP INDEX attempt_lease")
    connection.run("DROP INDEX attempt_claim")
