"""Blobs, as the rest of the coordinator knows them: a blob counts when its row is there, and its row comes last."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from deborgen_shared import contract, headers
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import BlobStored, MissingBlob, MissingBlobs

from ..blobs import Busy, NoSpace, WrongDigest, WrongOffset
from ..storage import blobs as rows
from ..storage.transactions import Tx
from .context import Context


def missing(ctx: Context, digests: list[str]) -> MissingBlobs:
    """Which of these the store lacks, each once, and where to put each. Those it has are kept for a day more."""
    now = ctx.clock.wall()

    def look(tx: Tx) -> dict[str, int]:
        known = rows.known_blobs(tx, digests)
        rows.touch_known(tx, known, now)
        return known

    known = ctx.store.write(look)
    lacking = [digest for digest in dict.fromkeys(digests) if digest not in known]
    return MissingBlobs(
        missing=[MissingBlob(sha256=digest, url=contract.PUT_BLOB.url(sha256=digest)) for digest in lacking]
    )


def put(ctx: Context, digest: str, chunks: Iterable[bytes]) -> BlobStored:
    """Store a whole blob. Storing what is there already changes nothing, and checks the bytes all the same."""
    with _refusals(digest):
        size = ctx.blobs.put(digest, chunks, lambda size: register(ctx, digest, size))
    return BlobStored(sha256=digest, size=size)


def patch(ctx: Context, digest: str, offset: int, chunks: Iterable[bytes], total: int | None) -> BlobStored | int:
    """Go on with a broken upload: the blob when it is whole, as it may be already, else the bytes that are here."""
    stored = _known(ctx, digest)
    if stored is not None:
        return BlobStored(sha256=digest, size=stored)
    with _refusals(digest):
        size, whole = ctx.blobs.append(digest, offset, chunks, total, lambda size: register(ctx, digest, size))
    return BlobStored(sha256=digest, size=size) if whole else size


def partial(ctx: Context, digest: str) -> int | None:
    """How much of a broken upload is here; None if there is none, or the blob is whole."""
    if _known(ctx, digest) is not None:
        return None
    return ctx.blobs.offset(digest) or None


def size(ctx: Context, digest: str) -> int:
    """How long the blob is; a blob without its row, or without its bytes, is not there."""
    found = _known(ctx, digest)
    if found is None or ctx.blobs.size(digest) != found:
        raise Refusal(Code.NOT_FOUND, f"There is no blob {digest}.")
    return found


def open_range(ctx: Context, digest: str, start: int, end: int) -> Iterator[bytes]:
    try:
        return ctx.blobs.open_range(digest, start, end)
    except FileNotFoundError:
        raise Refusal(Code.NOT_FOUND, f"There is no blob {digest}.") from None


def _known(ctx: Context, digest: str) -> int | None:
    return ctx.store.read(lambda reader: rows.known_blobs(reader, [digest])).get(digest)


def register(ctx: Context, digest: str, size: int) -> None:
    """Write the row of a blob whose bytes are in place."""
    ctx.store.write(lambda tx: rows.touch_blob(tx, digest, size, ctx.clock.wall()))


@contextlib.contextmanager
def _refusals(digest: str) -> Iterator[None]:
    """What the store of bytes cannot do, in the words of the contract."""
    try:
        yield
    except WrongDigest as problem:
        raise Refusal(
            Code.MALFORMED,
            f"The bytes have the digest {problem.found}, not {digest}; nothing was kept.",
            "Send them again, from the start.",
        ) from None
    except WrongOffset as problem:
        raise Refusal(
            Code.UPLOAD_CONFLICT,
            f"The upload goes on at byte {problem.offset}.",
            details={"offset": problem.offset},
            headers={headers.UPLOAD_OFFSET: str(problem.offset)},
        ) from None
    except Busy:
        raise Refusal(
            Code.SLOW_DOWN, "Another request is uploading this blob right now.", headers={headers.RETRY_AFTER: "1"}
        ) from None
    except NoSpace:
        raise Refusal(
            Code.UNAVAILABLE, "The coordinator's disk is full; nothing was kept.", headers={headers.RETRY_AFTER: "30"}
        ) from None
