"""Encrypts secrets with keys that are in a file of their own, not in the database and not in a backup.

The file has one Fernet key per line. The first key encrypts; all of them decrypt. It is created when the first secret
is set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deborgen_shared.durable import sync_file, sync_folder

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class SecretUnreadable(Exception):
    """The value was encrypted with a key that the file does not have."""


class SecretKeys:
    """The keys in one file. The file is read when it is first needed, and again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[os.stat_result | None, MultiFernet | None] = (None, None)

    @property
    def exist(self) -> bool:
        return self.path.exists()

    def encrypt(self, value: str) -> bytes:
        """Encrypt with the first key. The first call creates the file."""
        keys = self._keys()
        if keys is None:
            self.add()
            keys = self._keys()
            assert keys is not None
        return keys.encrypt(value.encode())

    def decrypt(self, value: bytes) -> str:
        from cryptography.fernet import InvalidToken

        keys = self._keys()
        if keys is None:
            raise SecretUnreadable(f"there is no key file {self.path}")
        try:
            return keys.decrypt(value).decode()
        except InvalidToken:
            raise SecretUnreadable(f"no key in {self.path} can decrypt it") from None

    def add(self) -> None:
        """Put a new key first. Later values are encrypted with it; earlier ones can still be decrypted."""
        from cryptography.fernet import Fernet

        lines = self.path.read_text("ascii").split() if self.exist else []
        self._write([Fernet.generate_key().decode(), *lines])

    def keep_newest(self) -> None:
        """Remove all keys but the first, once nothing is encrypted with the others."""
        self._write(self.path.read_text("ascii").split()[:1])

    def _keys(self) -> MultiFernet | None:
        from cryptography.fernet import Fernet, MultiFernet

        try:
            now = self.path.stat()
        except FileNotFoundError:
            return None
        before, keys = self._read
        if before is None or (before.st_ino, before.st_mtime_ns) != (now.st_ino, now.st_mtime_ns):
            try:
                keys = MultiFernet([Fernet(line) for line in self.path.read_text("ascii").split()])
            except ValueError:
                raise SecretUnreadable(f"{self.path} is not a file of keys") from None
            self._read = now, keys
        return keys

    def _write(self, lines: list[str]) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            sync_file(file)
        fresh.replace(self.path)
        sync_folder(self.path.parent)
