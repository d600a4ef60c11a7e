"""How many events of its program an attempt has sent. The events themselves are in the history."""

from __future__ import annotations

from .transactions import Tx


def count(tx: Tx, job: int, number: int) -> int:
    row = tx.one("SELECT events FROM attempt WHERE job_id = ? AND number = ?", (job, number))
    return int(row[0]) if row else 0


def set_count(tx: Tx, job: int, number: int, events: int) -> None:
    tx.run("UPDATE attempt SET events = ? WHERE job_id = ? AND number = ?", (events, job, number))
