"""Blobs in an object store. Uploads to the coordinator arrive in the local folder, and complete blobs go on from there.

Blobs that were stored before the pool had an object store stay in the local folder until they are moved.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from deborgen_coordinator.blobs import Busy, Commit
from deborgen_coordinator.blobs.bucket import Bucket
from deborgen_coordinator.blobs.local import LocalBlobs
from deborgen_shared.states import StoreKind


class S3Blobs(LocalBlobs):
    """A `BlobStore` whose complete blobs are in a bucket.

    `announce` writes down that an upload of this digest and size begins, so that it is removed if it is never
    completed, and returns its name.
    """

    kind = StoreKind.S3

    def __init__(self, root: Path, bucket: Bucket, part_size: int, announce: Callable[[str, int], str]) -> None:
        super().__init__(root)
        self.bucket: Bucket | None = bucket
        self._bucket = bucket
        self.part_size = part_size
        self._announce = announce
        self._completing: set[str] = set()
        self._guard = threading.Lock()

    @property
    def trouble(self) -> str:  # type: ignore[override]
        return self._bucket.trouble

    @contextmanager
    def completing(self, upload: str) -> Iterator[None]:
        with self._guard:
            if upload in self._completing:
                raise Busy
            self._completing.add(upload)
        try:
            yield
        finally:
            self._completing.discard(upload)

    def size(self, digest: str, upload: str = "") -> int | None:
        return self._bucket.size(digest, upload) if upload else super().size(digest)

    def open_range(self, digest: str, start: int, end: int, upload: str = "") -> Iterator[bytes]:
        if upload:
            return self._bucket.open_range(digest, upload, start, end)
        return super().open_range(digest, start, end)

    def uri(self, digest: str, upload: str) -> str:
        return self._bucket.uri(digest, upload) if upload else super().uri(digest, upload)

    def redirect(self, digest: str, upload: str, name: str) -> str:
        return self._bucket.sign_get(digest, upload, name) if upload else ""

    def _keep(self, file: FileIO, path: Path, digest: str, commit: Commit) -> int:
        """Put a verified file into the bucket, and commit it there; return its size."""
        size = file.tell()
        upload = self._announce(digest, size)
        self._bucket.put(digest, upload, file, size, self.part_size)
        commit(size, upload)
        path.unlink(missing_ok=True)
        return size
