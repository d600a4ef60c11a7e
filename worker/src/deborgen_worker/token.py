"""The worker's token, in a file that may change while the worker runs."""

from __future__ import annotations

import shlex
from pathlib import Path

from deborgen_worker.exit import CannotRun

#: The permissions that nobody but the owner of the file may have.
OTHERS = 0o077


class TokenFile:
    """Returns the token, and reads it again when the file changes. If that fails, the old token stays in use.

    The token is never in an argument, a log or a job's environment. A file that other users can read is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read_at, self._token = path, -1.0, ""
        self()

    def __call__(self) -> str:
        try:
            found = self._path.stat()
            if found.st_mode & OTHERS:
                raise PermissionError(0, f"other users can read it; run: chmod 600 {shlex.quote(str(self._path))}")
            if found.st_mtime != self._read_at:
                self._token, self._read_at = self._path.read_text().strip(), found.st_mtime
        except OSError as error:
            if not self._token:
                raise CannotRun(2, f"the token file {self._path} cannot be used: {error.strerror}") from None
        return self._token
