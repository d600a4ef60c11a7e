"""Blobs: their bytes in the blob store and their rows in the database. A blob exists once its row is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from deborgen_shared import contract, headers
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import BlobStored, MissingBlob, MissingBlobs

from ..blobs import BlobStore, Busy, DigestMismatch, NoSpace, OffsetMismatch
from ..storage import blobs as rows
from ..storage.transactions import Tx
from .context import Actor, Context
from .uploads import owner


def find_missing(ctx: Context, digests: list[str]) -> MissingBlobs:
    """The missing blobs, each once, with the URL for its upload. Existing blobs are kept for at least another day."""
    now = ctx.clock.wall()

    def touch(tx: Tx) -> dict[str, int]:
        known = rows.known_blobs(tx, digests)
        rows.touch_known(tx, known, now)
        return known

    known = ctx.store.write(touch)
    absent = [digest for digest in dict.fromkeys(digests) if digest not in known]
    return MissingBlobs(
        missing=[MissingBlob(sha256=digest, url=contract.PUT_BLOB.url(sha256=digest)) for digest in absent]
    )


def put(ctx: Context, digest: str, chunks: Iterable[bytes], store: BlobStore | None = None) -> BlobStored:
    """Store a whole blob. If the blob exists already, its bytes are checked and nothing changes."""
    with _refusals(digest):
        size = (store or ctx.blobs).put(digest, chunks, lambda size: register(ctx, digest, size))
    return BlobStored(sha256=digest, size=size)


def patch(
    ctx: Context, store: BlobStore, digest: str, offset: int, chunks: Iterable[bytes], total: int | None
) -> BlobStored | int:
    """Resume an interrupted upload. Return the blob if it is complete, otherwise the number of bytes stored so far."""
    stored = _known(ctx, digest)
    if stored is not None:
        return BlobStored(sha256=digest, size=stored)
    with _refusals(digest):
        size, whole = store.append(digest, offset, chunks, total, lambda size: register(ctx, digest, size))
    return BlobStored(sha256=digest, size=size) if whole else size


def upload_offset(ctx: Context, actor: Actor, digest: str) -> int | None:
    """How many bytes of this person's interrupted upload are stored; None if there is none or the blob is complete."""
    if _known(ctx, digest) is not None:
        return None
    return ctx.blobs.for_owner(owner(actor)).offset(digest) or None


def size(ctx: Context, digest: str) -> int:
    """The size of the blob. A blob exists only if it has both its row and its bytes."""
    found = _known(ctx, digest)
    if found is None or ctx.blobs.size(digest) != found:
        raise Refusal(Code.NOT_FOUND, f"there is no blob {digest}")
    return found


def open_range(ctx: Context, digest: str, start: int, end: int) -> Iterator[bytes]:
    try:
        return ctx.blobs.open_range(digest, start, end)
    except FileNotFoundError:
        raise Refusal(Code.NOT_FOUND, f"there is no blob {digest}") from None


def _known(ctx: Context, digest: str) -> int | None:
    return ctx.store.read(lambda reader: rows.known_blobs(reader, [digest])).get(digest)


def register(ctx: Context, digest: str, size: int) -> None:
    """Write the row of a blob whose bytes are stored."""
    ctx.store.write(lambda tx: rows.touch_blob(tx, digest, size, ctx.clock.wall()))


@contextlib.contextmanager
def _refusals(digest: str) -> Iterator[None]:
    """Turn the blob store's errors into refusals."""
    try:
        yield
    except DigestMismatch as problem:
        raise Refusal(
            Code.MALFORMED,
            f"the bytes have the digest {problem.found}, not {digest}; nothing was kept",
            "send them again from the start",
        ) from None
    except OffsetMismatch as problem:
        raise Refusal(
            Code.UPLOAD_CONFLICT,
            f"the upload continues at byte {problem.offset}",
            details={"offset": problem.offset},
            headers={headers.UPLOAD_OFFSET: str(problem.offset)},
        ) from None
    except Busy:
        raise Refusal(
            Code.SLOW_DOWN, "another request is uploading this blob right now", headers={headers.RETRY_AFTER: "1"}
        ) from None
    except NoSpace:
        raise Refusal(
            Code.UNAVAILABLE, "the coordinator's disk is full; nothing was kept", headers={headers.RETRY_AFTER: "30"}
        ) from None
