"""Rows of tokens. Of the secret only the SHA-256 is here."""

from __future__ import annotations

from .database import Connection
from .rows import TokenRow
from .transactions import Tx

COLUMNS = "id, role, name, digest, created_at, expires_at, last_used_at, revoked_at"


def insert(tx: Tx, token: TokenRow) -> None:
    tx.run(
        f"INSERT INTO token ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            token.id,
            token.role,
            token.name,
            token.digest,
            token.created_at,
            token.expires_at,
            token.last_used_at,
            token.revoked_at,
        ),
    )


def get(reader: Tx | Connection, token_id: str) -> TokenRow | None:
    row = reader.one(f"SELECT {COLUMNS} FROM token WHERE id = ?", (token_id,))
    return TokenRow(*row) if row else None


def valid(reader: Tx | Connection) -> list[TokenRow]:
    """Tokens that were not revoked, oldest first."""
    return [
        TokenRow(*row)
        for row in reader.rows(f"SELECT {COLUMNS} FROM token WHERE revoked_at IS NULL ORDER BY created_at, id")
    ]


def revoke(tx: Tx, token_id: str, now: float) -> int:
    return tx.run("UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, token_id))


def used(tx: Tx, token_id: str, now: float) -> None:
    tx.run("UPDATE token SET last_used_at = ? WHERE id = ?", (now, token_id))
