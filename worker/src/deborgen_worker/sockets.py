"""Unix sockets: paths that are too long for a socket address, and who is at the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

#: The path of a socket may have at most this many bytes. Linux allows 107, macOS 103.
MAX_PATH_BYTES = 103
#: More parents than this no process has.
MAX_PARENTS = 1000


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A path to the socket that is short enough. It may lead through a link that is removed afterwards.

    The link lies in a new folder that only this user can enter, so nobody else can replace it.
    """
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    # No system cleans these folders while we run. The fallback is the folder for temporary files.
    folders = (os.environ.get("XDG_RUNTIME_DIR"), "/run")
    base = next((each for each in folders if each and os.access(each, os.W_OK)), None)
    with tempfile.TemporaryDirectory(prefix="deborgen-", dir=base) as folder:
        link = Path(folder) / "to"
        link.symlink_to(path.parent.absolute())
        yield f"{link}/{path.name}"


def listener_pid(path: Path) -> int | None:
    """The process that listens on the socket; None if there is none, or if the system does not say."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(1.0)
    with connection, contextlib.suppress(OSError, AttributeError), short_path(path) as short:
        connection.connect(short)
        return _peer(connection)
    return None


def is_from_program(connection: socket.socket, is_supervisor: Callable[[int], bool]) -> bool:
    """Whether a process of a job is at the other end: it is below the supervisor, which adopts orphans too.

    A plain process may have the worker's own user, for whom sockets are open, and Landlock does not close them. If the
    process has ended, it may have been one of a job. Only Linux can tell.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return False
    pid = _peer(connection)
    for _ in range(MAX_PARENTS):
        if pid == 0:  # the first process of all, or one in another container
            return False
        if is_supervisor(pid):
            return True
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            return True
    return True


def _peer(connection: socket.socket) -> int:
    """The process at the other end."""
    size = struct.calcsize("3i")
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])
