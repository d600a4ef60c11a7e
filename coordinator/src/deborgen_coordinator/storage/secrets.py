"""Secrets. Only their encrypted values are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peewee import JOIN

from .database import DatabaseConnection
from .models import Secret, Submitter
from .rows import SecretRow, columns
from .transactions import Tx

_COLUMNS = columns(SecretRow, Secret, owner=Submitter.name)


def save(tx: Tx, owner_id: int | None, name: str, value: bytes, now: float) -> None:
    """Set a secret of this submitter or, without an owner, one that is shared with the pool."""
    if not tx.run(Secret.update({Secret.value: value, Secret.set_at: now}).where(_named(owner_id, name))):
        tx.run(Secret.insert(owner=owner_id, name=name, value=value, set_at=now))


def remove(tx: Tx, owner_id: int | None, name: str) -> int:
    return tx.run(Secret.delete().where(_named(owner_id, name)))


def visible_to(
    reader: Tx | DatabaseConnection, owner_id: int | None, names: Iterable[str] | None = None
) -> list[SecretRow]:
    """The secrets that this submitter may use: first the shared ones, then their own, each in the order of names."""
    query = Secret.select(*_COLUMNS).join(Submitter, JOIN.LEFT_OUTER)
    allowed = Secret.owner.is_null() | (Secret.owner == owner_id)
    if names is not None:
        allowed &= Secret.name.in_(list(names))
    query = query.where(allowed).order_by(Secret.owner.is_null(False), Secret.name)
    return [SecretRow(*row) for row in reader.rows(query)]


def list_all(reader: Tx | DatabaseConnection) -> list[SecretRow]:
    query = Secret.select(*_COLUMNS).join(Submitter, JOIN.LEFT_OUTER)
    return [SecretRow(*row) for row in reader.rows(query.order_by(Secret.name, Secret.id))]


def replace_value(tx: Tx, secret_id: int, value: bytes) -> None:
    tx.run(Secret.update({Secret.value: value}).where(Secret.id == secret_id))


def note_use(tx: Tx, secret_ids: Iterable[int], now: float) -> None:
    tx.run(Secret.update({Secret.last_used_at: now}).where(Secret.id.in_(list(secret_ids))))


def _named(owner_id: int | None, name: str) -> Any:
    owned = Secret.owner.is_null() if owner_id is None else Secret.owner == owner_id
    return owned & (Secret.name == name)
