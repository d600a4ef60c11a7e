"""Immutable byte strings, each stored once and named by its SHA-256.

A blob is visible only when it is complete and verified. Interrupted uploads are kept, invisibly, until they are resumed
or removed. Nothing here uses the database: `operations/blobs.py` writes the rows of blobs.

A blob is in the local folder, or in the object store under the key `SHA256/UPLOAD`. Its row names the upload; the empty
upload stands for the local folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from deborgen_shared.states import StoreKind

if TYPE_CHECKING:
    from deborgen_coordinator.blobs.bucket import Bucket


class DigestMismatch(Exception):
    """The bytes do not match their digest; nothing of them is kept."""

    def __init__(self, found: str) -> None:
        super().__init__(f"the bytes have the digest {found}")
        self.found = found


class OffsetMismatch(Exception):
    """The upload continues at another byte than the sender expects."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the upload continues at byte {offset}")
        self.offset = offset


class Busy(Exception):
    """Another request is uploading the same blob right now."""


class NoSpace(Exception):
    """The disk is full; the upload was removed."""


class StoreUnavailable(Exception):
    """The object store does not answer, refuses, or lacks what it should have; the same call may work later."""


class Unfinished(NamedTuple):
    """An interrupted upload: how many bytes are stored, and how many seconds ago the last of them arrived."""

    digest: str
    size: int
    age: float


#: Called with the size and the upload of a blob that is in place.
Commit = Callable[[int, str], None]


class BlobStore(Protocol):
    """Where the bytes of blobs are stored.

    `commit` runs after the blob is in place. It writes the blob's row, so that neither a reader nor the cleanup ever
    sees a row without its bytes.
    """

    def size(self, digest: str, upload: str = "") -> int | None:
        """The size of the complete blob, or None if it does not exist."""

    #: Where it puts new blobs.
    kind: StoreKind
    #: The object store, if there is one, and how large the parts of an upload there are.
    bucket: Bucket | None
    part_size: int

    def completing(self, upload: str) -> AbstractContextManager[None]:
        """Keep other threads from completing this upload; raises Busy if one does."""

    @property
    def trouble(self) -> str:
        """Why the last call to the object store failed; empty if it did not, or if there is none."""

    def uri(self, digest: str, upload: str) -> str:
        """The address of the blob: in the object store, or a path of the coordinator."""

    def redirect(self, digest: str, upload: str, name: str) -> str:
        """A presigned address for the bytes, which are saved under this name; empty if the coordinator has them."""

    def offset(self, digest: str) -> int:
        """The number of stored bytes of an interrupted upload."""

    def for_owner(self, owner: str) -> BlobStore:
        """A store with the same blobs, whose interrupted uploads are those of this owner only."""

    def unfinished(self) -> list[Unfinished]:
        """The interrupted uploads, and those in progress, the oldest first."""

    def discard(self, digest: str) -> None:
        """Remove an interrupted upload, unless it is in progress."""

    def put(self, digest: str, chunks: Iterable[bytes], commit: Commit) -> int:
        """StoreKind a whole blob, verified and durable; return its size."""

    def append(
        self, digest: str, offset: int, chunks: Iterable[bytes], total: int | None, commit: Commit
    ) -> tuple[int, bool]:
        """Resume an interrupted upload; return the number of stored bytes, and whether the blob is complete.

        Without `total`, the chunks are the rest of the blob.
        """

    def store(self, chunks: Iterable[bytes], commit: Callable[[str, int, str], None]) -> tuple[str, int]:
        """StoreKind bytes whose digest is not known yet; return their digest and size."""

    def open_range(self, digest: str, start: int, end: int, upload: str = "") -> Iterator[bytes]:
        """The bytes from `start` up to, but not including, `end`. A local file is opened before the first byte is
        requested."""

    def locked(self, digest: str) -> AbstractContextManager[None]:
        """Keep every other process from committing or deleting this blob. Locks are never nested."""

    def delete(self, digest: str) -> None:
        """Remove a blob from the local folder; the caller holds its lock and has deleted its row."""

    def remove_orphans(self, older_than: float) -> int:
        """Remove interrupted uploads without a write for this many seconds; return how many were removed."""
