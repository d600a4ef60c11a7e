"""The worker's token, in a file that may change while the worker runs."""

from __future__ import annotations

from pathlib import Path

from deborgen_worker.exit import CannotRun


class TokenFile:
    """Returns the token, and reads it again when the file changes. If that fails, it returns the old token.

    The token is never in an argument, a log or a job's environment.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read_at, self._token = path, -1.0, ""
        self()

    def __call__(self) -> str:
        try:
            changed = self._path.stat().st_mtime
            if changed != self._read_at:
                self._token, self._read_at = self._path.read_text().strip(), changed
        except OSError as error:
            if not self._token:
                raise CannotRun(2, f"the token file {self._path} cannot be read: {error.strerror}") from None
        return self._token
