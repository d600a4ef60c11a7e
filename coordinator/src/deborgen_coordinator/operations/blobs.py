"""Blobs: their bytes in the blob store and their rows in the database. A blob exists once its row is written."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterable, Iterator
from functools import partial

from deborgen_shared import contract, headers
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import BlobChecked, BlobStored, MissingBlob, MissingBlobs

from ..blobs import BlobStore, Busy, DigestMismatch, NoSpace, OffsetMismatch
from ..storage import blobs as rows
from ..storage.blobs import Stored
from ..storage.transactions import Tx
from . import direct_uploads
from .context import Actor, Context
from .uploads import owner

log = logging.getLogger("deborgen.blobs")


def find_missing(
    ctx: Context, digests: list[str], actor: Actor | None = None, sizes: list[int] | None = None
) -> MissingBlobs:
    """The missing blobs, each once, with the URL for its upload. Existing blobs are kept for at least another day.

    With the sizes and the person who asks, the URLs are those of the object store, if the pool has one.
    """
    now = ctx.clock.wall()

    def touch(tx: Tx) -> dict[str, int]:
        known = rows.known_blobs(tx, digests)
        rows.touch_known(tx, known, now)
        return known

    known = ctx.store.write(touch)
    absent = [digest for digest in dict.fromkeys(digests) if digest not in known]
    bucket = ctx.blobs.bucket
    if bucket is None or actor is None or not sizes:
        places = [MissingBlob(sha256=digest, url="", direct=bucket is not None) for digest in absent]
    else:
        size_of = dict(zip(digests, sizes, strict=True))
        places = direct_uploads.places(ctx, actor, bucket, {digest: size_of[digest] for digest in absent})
    for place in places:
        if not place.upload:
            place.url = contract.PUT_BLOB.url(sha256=place.sha256)
    return MissingBlobs(missing=places)


def put(ctx: Context, digest: str, chunks: Iterable[bytes], store: BlobStore | None = None) -> BlobStored:
    """Store a whole blob. If the blob exists already, its bytes are checked and nothing changes."""
    with refusals(digest):
        size = (store or ctx.blobs).put(digest, chunks, partial(register, ctx, digest))
    return BlobStored(sha256=digest, size=size)


def patch(
    ctx: Context, store: BlobStore, digest: str, offset: int, chunks: Iterable[bytes], total: int | None
) -> BlobStored | int:
    """Resume an interrupted upload. Return the blob if it is complete, otherwise the number of bytes stored so far."""
    stored = _known(ctx, digest)
    if stored is not None:
        return BlobStored(sha256=digest, size=stored.size)
    with refusals(digest):
        size, whole = store.append(digest, offset, chunks, total, partial(register, ctx, digest))
    return BlobStored(sha256=digest, size=size) if whole else size


def upload_offset(ctx: Context, actor: Actor, digest: str) -> int | None:
    """How many bytes of this person's interrupted upload are stored; None if there is none or the blob is complete."""
    if _known(ctx, digest) is not None:
        return None
    return ctx.blobs.for_owner(owner(actor)).offset(digest) or None


def find(ctx: Context, digest: str) -> Stored:
    """Where the blob is. A blob exists only if it has both its row and its bytes; those of an object store are not
    looked up."""
    found = _known(ctx, digest)
    if found is None or not (found.upload or ctx.blobs.size(digest) == found.size):
        found = _known(ctx, digest)  # it may just have been moved
        if found is None or not found.upload:
            raise Refusal(Code.NOT_FOUND, f"there is no blob {digest}")
    return found


def open_range(ctx: Context, digest: str, start: int, end: int, upload: str | None = None) -> Iterator[bytes]:
    """Bytes of the blob, at most to its end. `upload` says where it is, if the caller has looked it up."""
    if upload is not None:
        with contextlib.suppress(FileNotFoundError):  # it has just been moved
            return ctx.blobs.open_range(digest, start, end, upload)
    stored = find(ctx, digest)
    try:
        return ctx.blobs.open_range(digest, start, min(end, stored.size), stored.upload)
    except FileNotFoundError:
        raise Refusal(Code.NOT_FOUND, f"there is no blob {digest}") from None


def check(ctx: Context, digest: str) -> BlobChecked:
    """Read the bytes of a blob after somebody got wrong ones. If they are wrong, the blob no longer exists, so that it
    is asked for again."""
    found = _known(ctx, digest)
    if found is None:
        raise Refusal(Code.NOT_FOUND, f"there is no blob {digest}")
    if is_intact(ctx, digest, found):
        return BlobChecked(sha256=digest, intact=True)
    log.error("the stored bytes of blob %s are wrong: it is dropped, and must be uploaded again", digest)
    with ctx.blobs.locked(digest):
        if ctx.store.write(partial(rows.drop, digest=digest, upload=found.upload)) and not found.upload:
            ctx.blobs.delete(digest)
    return BlobChecked(sha256=digest, intact=False)


def is_intact(ctx: Context, digest: str, stored: Stored) -> bool:
    """Whether the store has the right bytes. Reads them all."""
    hasher = hashlib.sha256()
    try:
        for piece in ctx.blobs.open_range(digest, 0, stored.size, stored.upload):
            hasher.update(piece)
    except FileNotFoundError:
        return False
    return hasher.hexdigest() == digest


def _known(ctx: Context, digest: str) -> Stored | None:
    return ctx.store.read(partial(rows.find, digest=digest))


def register(ctx: Context, digest: str, size: int, upload: str) -> None:
    """Write the row of a blob whose bytes are stored."""
    if upload:
        direct_uploads.register(ctx, digest, size, upload)
    else:
        ctx.store.write(lambda tx: rows.touch_blob(tx, digest, size, ctx.clock.wall()))


@contextlib.contextmanager
def refusals(digest: str) -> Iterator[None]:
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
