"""The lease clock: one row that holds the clock's value and the name of the process that moves it."""

from __future__ import annotations

from . import hot
from .database import DatabaseConnection
from .models import LeaseClock
from .transactions import Tx


def read(reader: Tx | DatabaseConnection) -> float:
    """The lease clock's value, in seconds."""
    return float(hot.lease_clock.value(reader))


def lock(tx: Tx) -> tuple[float, str, int]:
    """The clock's value, the process that moves it, and how often it was moved; locked until the transaction ends."""
    [(value, mover, moves)] = hot.lock_lease_clock.rows(tx)
    return value, mover, moves


def move(tx: Tx, value: float, mover: str) -> None:
    """Set the clock, and note which process has set it."""
    hot.move_lease_clock.run(tx, value, mover)


def check_writable(tx: Tx) -> None:
    """Write the clock's own value back. This changes nothing, and raises if the database cannot be written."""
    tx.run(LeaseClock.update({LeaseClock.value: LeaseClock.value}))
