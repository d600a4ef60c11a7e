"""The folders of this user: configuration, tokens, data, and the state of a running `deborgen up`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from deborgen_shared.durable import sync_file


def _base(variable: str, fallback: str) -> Path:
    given = os.environ.get(variable, "")
    # The XDG specification says to ignore a relative path in these variables.
    return (Path(given) if given.startswith("/") else _home() / fallback) / "deborgen"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # no HOME, and a user that the system does not know, as in a bare container
        return Path("/nonexistent")


def config_dir() -> Path:
    return _base("XDG_CONFIG_HOME", ".config")


def data_dir() -> Path:
    return _base("XDG_DATA_HOME", ".local/share")


def state_dir() -> Path:
    return _base("XDG_STATE_HOME", ".local/state")


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            sync_file(file)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
