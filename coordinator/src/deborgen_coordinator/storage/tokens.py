"""Rows of tokens. Of the secret only the SHA-256 is here."""

from __future__ import annotations

from dataclasses import astuple

from .database import Connection, insert_into
from .rows import TokenRow, columns
from .transactions import Tx

COLUMNS = columns(TokenRow)
SELECT = f"SELECT {', '.join(COLUMNS)} FROM token"
INSERT = insert_into("token", COLUMNS)


def insert(tx: Tx, token: TokenRow) -> None:
    tx.run(INSERT, astuple(token))


def get(reader: Tx | Connection, token_id: str) -> TokenRow | None:
    row = reader.one(SELECT + " WHERE id = ?", (token_id,))
    return TokenRow(*row) if row else None


def valid(reader: Tx | Connection) -> list[TokenRow]:
    """Tokens that were not revoked, oldest first."""
    return [TokenRow(*row) for row in reader.rows(SELECT + " WHERE revoked_at IS NULL ORDER BY created_at, id")]


def revoke(tx: Tx, token_id: str, now: float) -> int:
    return tx.run("UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, token_id))


def used(tx: Tx, token_id: str, now: float) -> None:
    tx.run("UPDATE token SET last_used_at = ? WHERE id = ?", (now, token_id))
