"""Unix sockets in folders whose names are too long for the address of a socket."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: How many bytes the path of a socket may have. Linux allows 107, macOS 103.
MOST_BYTES = 103


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A path to the socket that is short enough. If it leads through a link, it is good as long as the context lasts.

    The link lies in a new folder that only this user can enter, so nobody can lay another one in its place.
    """
    if len(os.fsencode(path)) <= MOST_BYTES:
        yield str(path)
        return
    places = (os.environ.get("XDG_RUNTIME_DIR"), "/run")  # nothing tidies these while we run; else the usual place
    base = next((place for place in places if place and os.access(place, os.W_OK)), None)
    with tempfile.TemporaryDirectory(prefix="deborgen-", dir=base) as folder:
        link = Path(folder) / "to"
        link.symlink_to(path.parent.absolute())
        yield f"{link}/{path.name}"
