"""Tokens. Only the SHA-256 of each secret is stored."""

from __future__ import annotations

from msgspec.structs import asdict

from . import hot
from .database import DatabaseConnection
from .models import Token
from .rows import TokenRow, columns
from .transactions import Tx


def insert(tx: Tx, token: TokenRow) -> None:
    tx.run(Token.insert(asdict(token)))


def get(reader: Tx | DatabaseConnection, token_id: str) -> TokenRow | None:
    row = hot.token_numbered.one(reader, token_id)
    return TokenRow(*row) if row else None


def list_valid(reader: Tx | DatabaseConnection) -> list[TokenRow]:
    """Tokens that were not revoked, oldest first."""
    query = Token.select(*columns(TokenRow, Token)).where(Token.revoked_at.is_null())
    return [TokenRow(*row) for row in reader.rows(query.order_by(Token.created_at, Token.id))]


def revoke(tx: Tx, token_id: str, now: float) -> int:
    return tx.run(Token.update({Token.revoked_at: now}).where(Token.id == token_id, Token.revoked_at.is_null()))


def note_use(tx: Tx, token_id: str, now: float) -> None:
    tx.run(Token.update({Token.last_used_at: now}).where(Token.id == token_id))
