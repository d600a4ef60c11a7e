"""Unix sockets whose paths are too long for a socket address."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: The path of a socket may have at most this many bytes. Linux allows 107, macOS 103.
MAX_PATH_BYTES = 103


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A path to the socket that is short enough. It may lead through a link that exists only within the context.

    The link lies in a new folder that only this user can enter, so nobody can replace it.
    """
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    # Nothing tidies these folders while we run. The fallback is the system's folder for temporary files.
    folders = (os.environ.get("XDG_RUNTIME_DIR"), "/run")
    base = next((each for each in folders if each and os.access(each, os.W_OK)), None)
    with tempfile.TemporaryDirectory(prefix="deborgen-", dir=base) as folder:
        link = Path(folder) / "to"
        link.symlink_to(path.parent.absolute())
        yield f"{link}/{path.name}"
