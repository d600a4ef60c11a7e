"""Immutable byte strings, each stored once and named by its SHA-256.

A blob is visible only when it is whole and verified. Uploads that broke off stay, out of sight, until they are resumed
or swept. Nothing here knows the database: `operations/blobs.py` joins the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class DigestMismatch(Exception):
    """The bytes do not have the name they were given; nothing of them is kept."""

    def __init__(self, found: str) -> None:
        super().__init__(f"the bytes have the digest {found}")
        self.found = found


class OffsetMismatch(Exception):
    """The upload goes on at another byte than the sender believes."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the upload goes on at byte {offset}")
        self.offset = offset


class Busy(Exception):
    """Another request is uploading the same blob right now."""


class NoSpace(Exception):
    """The disk is full; what was written of the upload is removed."""


class BlobStore(Protocol):
    """Where the bytes are.

    `commit` runs after the blob is in place, still under its lock: the row of the blob is written there, so that
    neither a reader nor the garbage collection ever sees a row without its file.
    """

    def size(self, digest: str) -> int | None:
        """How long the whole blob is, or None where there is none."""

    def offset(self, digest: str) -> int:
        """How many bytes of a broken upload are kept."""

    def put(self, digest: str, chunks: Iterable[bytes], commit: Callable[[int], None]) -> int:
        """Store all bytes of a blob, verified and durable, and return their number."""

    def append(
        self, digest: str, offset: int, chunks: Iterable[bytes], total: int | None, commit: Callable[[int], None]
    ) -> tuple[int, bool]:
        """Go on with a broken upload; the bytes that are there now, and whether the blob is whole.

        Without `total` the chunks are the rest of the blob.
        """

    def store(self, chunks: Iterable[bytes], commit: Callable[[str, int], None]) -> tuple[str, int]:
        """Store bytes whose digest is not known yet: their digest and number."""

    def open_range(self, digest: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to, not including, `end`. The file is open before the first byte is asked for."""

    def locked(self, digest: str) -> AbstractContextManager[None]:
        """Keep every process from committing or deleting this blob. Never nested."""

    def delete(self, digest: str) -> None:
        """Remove a blob; the caller holds its lock and has removed its row."""

    def remove_orphans(self, older_than: float) -> int:
        """Remove broken uploads that nobody has written to for that many seconds, nor writes to now; how many."""
