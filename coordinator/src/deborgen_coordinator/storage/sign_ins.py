"""Sessions of the dashboard, and the links that begin them. Only the SHA-256 of each secret is stored."""

from __future__ import annotations

from msgspec.structs import asdict

from .database import DatabaseConnection
from .models import SignIn
from .rows import SignInRow, builder, columns
from .transactions import Tx

_row = builder(SignInRow)


def insert(tx: Tx, row: SignInRow) -> None:
    tx.run(SignIn.insert(asdict(row)))


def get(reader: Tx | DatabaseConnection, digest: str) -> SignInRow | None:
    row = reader.one(SignIn.select(*columns(SignInRow, SignIn)).where(SignIn.digest == digest))
    return _row(row) if row else None


def remove(tx: Tx, digest: str) -> int:
    return tx.run(SignIn.delete().where(SignIn.digest == digest))


def remove_expired(tx: Tx, now: float) -> None:
    tx.run(SignIn.delete().where(SignIn.expires_at <= now))


def remove_oldest(tx: Tx, token_id: str, *, keep: int) -> None:
    """Remove all but the newest links and sessions of a token."""
    newest = SignIn.select(SignIn.digest).where(SignIn.token_id == token_id).order_by(SignIn.expires_at.desc())
    kept = [digest for (digest,) in tx.rows(newest.limit(keep))]
    tx.run(SignIn.delete().where((SignIn.token_id == token_id) & SignIn.digest.not_in(kept)))
