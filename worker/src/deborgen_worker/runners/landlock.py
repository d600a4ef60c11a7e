"""A fence around the worker's own files, by the kernel's Landlock. This module uses only the standard library.

Landlock knows no "all but": a rule allows a folder with everything in it. So the fence allows the neighbours of the
hidden paths, the neighbours of their parents, and so on up to the root. Folders can be listed everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterator

_library = ctypes.CDLL(None, use_errno=True)
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
#: Rights on a file: to execute, to write, to read, and to truncate it. The last one has its own version of Landlock.
ON_FILES, TRUNCATE = 0b111, 1 << 14
#: Of these: to execute and to read.
READING = 0b101
#: All rights that the second version knows, but for listing folders: among them, to create, to remove and to move.
RIGHTS = (1 << 14) - 1 & ~(1 << 3)
#: The versions that can do what is needed: move files between folders; keep files from being truncated; keep the
#: program from signalling other processes and from connecting to their abstract sockets.
MOVES, TRUNCATES, SCOPES = 2, 3, 6
SCOPED = 0b11


def version() -> int:
    """The version of the kernel's Landlock; 0 if it has none."""
    with contextlib.suppress(AttributeError, OSError):
        return _call(CREATE_RULESET, None, 0, 1) if hasattr(os, "O_PATH") else 0  # only Linux has either
    return 0


def holds_read_only() -> bool:
    """Whether a fence can keep a program from changing a folder that it may read."""
    return version() >= TRUNCATES


class Fence:
    """Keeps the threads that enter it away from the hidden paths and from processes outside, with their programs.

    What is `read_only` can be read and executed, and not changed.

    Without hidden paths, it only keeps them away from processes outside, where Landlock can do that.
    """

    def __init__(self, hidden: tuple[str, ...], read_only: tuple[str, ...] = ()) -> None:
        self._read_only = tuple(os.path.realpath(each) for each in read_only)
        paths = {os.path.realpath(each) for each in hidden} | set(self._read_only)
        self._hidden = {each for each in paths if not paths.intersection(_parents(each))}
        self._parents = sorted({each for path in self._hidden for each in _parents(path)})
        found = version()
        self._rights = (RIGHTS | (TRUNCATE if found >= TRUNCATES else 0)) if paths else 0
        self._scoped = SCOPED if found >= SCOPES else 0

    def key(self, own: str) -> object:
        """A value that stays the same as long as a program with this folder needs the same fence."""
        if not self._rights:
            return self
        found = os.stat(own)  # noqa: PTH116
        return self, found.st_dev, found.st_ino, *(_changed(each) for each in self._parents)

    def enter(self, own: str) -> int | None:
        """Put this thread inside, for good, with the programs that it starts. They may use the folder `own`.

        Returns the folder, open: no other folder gets its number, and with it the same key, until it is closed.
        """
        if not self._rights | self._scoped:
            return None
        attributes = struct.pack("=QQQ", self._rights, 0, self._scoped)
        ruleset, folder = _call(CREATE_RULESET, attributes, len(attributes), 0), None
        try:
            if self._rights:
                folder = os.open(own, os.O_PATH | os.O_CLOEXEC)
                self._allow(ruleset, folder)
                for path in self._read_only:
                    inner = os.open(path, os.O_PATH | os.O_CLOEXEC)
                    try:
                        self._allow(ruleset, inner, READING)
                    finally:
                        os.close(inner)
                for path in self._neighbours():
                    with contextlib.suppress(OSError):  # it is gone
                        neighbour = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
                        try:
                            self._allow(ruleset, neighbour)
                        finally:
                            os.close(neighbour)
            _call(RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)
        return folder

    def _allow(self, ruleset: int, fd: int, most: int = RIGHTS | TRUNCATE) -> None:
        is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        rights = self._rights & most if is_folder else self._rights & most & (ON_FILES | TRUNCATE)
        _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)

    def _neighbours(self) -> Iterator[str]:
        """Everything that lies beside a hidden path or beside one of its parents."""
        known = self._hidden.union(self._parents)
        for parent in self._parents:
            with contextlib.suppress(OSError), os.scandir(parent) as found:  # it may be closed to us
                # A link needs no rule: what counts is where it leads.
                yield from [each.path for each in found if each.path not in known and not each.is_symlink()]


def _parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = os.path.dirname(path)  # noqa: PTH120
        found.append(path)
    return found


def _changed(folder: str) -> int:
    """When something was last made or removed in a folder."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


def _call(number: int, *arguments: object) -> int:
    found: int = _library.syscall(number, *arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return found
