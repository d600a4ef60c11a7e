"""Tokens that were just looked up, so that a busy caller costs one look a second."""

from __future__ import annotations

import threading

from ..storage.rows import TokenRow

#: What was read of a token is believed for so long: a revocation in another process takes effect within it.
BELIEVE_SECONDS = 1.0


class TokenCache:
    """Tokens that were just looked up. A revocation in this process forgets at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[float, TokenRow]] = {}

    def get(self, token_id: str, now: float) -> TokenRow | None:
        found = self._rows.get(token_id)
        return found[1] if found and 0 <= now - found[0] < BELIEVE_SECONDS else None

    def put(self, row: TokenRow, now: float) -> None:
        with self._lock:
            if len(self._rows) > 1000:
                self._rows.clear()
            self._rows[row.id] = (now, row)

    def forget(self, token_id: str) -> None:
        with self._lock:
            self._rows.pop(token_id, None)
