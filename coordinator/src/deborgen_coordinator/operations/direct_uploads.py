"""Uploads that go straight to the object store, by presigned addresses, and the check that makes them blobs.

Each upload has a key of its own, so an address that is used twice changes no blob.
"""

from __future__ import annotations

import logging
import math
import secrets
from functools import partial

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import BlobStored, CompleteUpload, MissingBlob, UploadPart

from ..blobs import StoreUnavailable
from ..blobs.bucket import MOST_PARTS, Bucket, StoredPart
from ..clock import Clock
from ..storage import blobs as rows
from ..storage import uploads
from ..storage.store import Store
from ..storage.transactions import Tx
from ..storage.uploads import UploadRow
from .context import Actor, Context
from .uploads import owner

log = logging.getLogger("deborgen.blobs")

#: Uploads that were not completed are removed after this many seconds.
KEEP_SECONDS = 86_400.0
#: An upload that is older than this many seconds is not handed out again, because it would be removed too soon.
RESUME_SECONDS = 43_200.0
#: One answer has at most this many addresses; the client asks again for the others.
MOST_ADDRESSES = 100
#: One person's uploads that are not complete may have this many times the size of the largest blob together.
MOST_BLOBS_UNFINISHED = 4
#: Remove at most this many objects at once.
BATCH = 100
_AGAIN = "ask for its addresses again"


def announce(store: Store, clock: Clock, person: str, digest: str, size: int) -> str:
    """Write down that an upload begins, so that it is removed if it is never completed; returns its name."""
    upload = secrets.token_hex(16)
    row = UploadRow(upload, digest, size, person, "", clock.wall())
    store.write(partial(uploads.add, rows=[row]))
    return upload


def places(ctx: Context, actor: Actor, bucket: Bucket, absent: dict[str, int]) -> list[MissingBlob]:
    """Where to put each of these blobs, which have these sizes. Those without an `upload` must be asked for again."""
    found, left = [], MOST_ADDRESSES
    for digest, size in absent.items():
        place = None
        if left > 0 and size <= ctx.settings.max_blob:
            place = _place(ctx, owner(actor), bucket, digest, size, left)
        found.append(place or MissingBlob(sha256=digest, url="", direct=place is None and left <= 0))
        left -= max(1, len(place.parts)) if place else 0
    return found


def _place(ctx: Context, person: str, bucket: Bucket, digest: str, size: int, most: int) -> MissingBlob | None:
    """Where to put a blob; None if this person has too many uploads that are not complete.

    An upload that this person has begun is resumed: the parts that the store has are not asked for again.
    """
    upload, stored = _resumed(ctx, person, bucket, digest, size) or _begun(ctx, person, bucket, digest, size)
    if upload is None:
        return None
    if not upload.multipart:
        url, sent = bucket.sign_put(digest, upload.id, size)
        return MissingBlob(sha256=digest, url=url, direct=True, upload=upload.id, headers=sent)
    left = [] if stored is None else _lacking(ctx, size, stored)
    have = size - sum(part.size for part in left)
    for part in left[:most]:
        part.url = bucket.sign_part(digest, upload.id, upload.multipart, part.number, part.size)
    return MissingBlob(sha256=digest, url="", direct=True, upload=upload.id, parts=left[:most], stored=have)


#: An upload and its stored parts; None instead of the parts if the store has joined them.
_Begun = tuple[UploadRow | None, dict[int, StoredPart] | None]


def _resumed(ctx: Context, person: str, bucket: Bucket, digest: str, size: int) -> _Begun | None:
    """The upload of this blob that this person has begun, if it can be completed."""
    since = ctx.clock.wall() - RESUME_SECONDS
    known = ctx.store.read(partial(uploads.resumable, digest=digest, owner=person, since=since))
    if known is None or known.size != size:
        return None
    if not known.multipart:
        return (known, {}) if size <= ctx.blobs.part_size else None
    stored = bucket.parts(digest, known.id, known.multipart)
    if stored is None and bucket.size(digest, known.id) != size:
        return None
    return known, stored


def _begun(ctx: Context, person: str, bucket: Bucket, digest: str, size: int) -> _Begun:
    most = MOST_BLOBS_UNFINISHED * ctx.settings.max_blob
    if ctx.store.read(partial(uploads.unfinished_bytes, owner=person)) + size > most:
        return None, {}
    upload = announce(ctx.store, ctx.clock, person, digest, size)
    multipart = ""
    if size > ctx.blobs.part_size:
        multipart = bucket.begin_parts(digest, upload)
        ctx.store.write(partial(uploads.set_multipart, upload=upload, multipart=multipart))
    return UploadRow(upload, digest, size, person, multipart, ctx.clock.wall()), {}


def _lacking(ctx: Context, size: int, stored: dict[int, StoredPart]) -> list[UploadPart]:
    """The parts that the store does not have, still without addresses."""
    step = max(ctx.blobs.part_size, math.ceil(size / MOST_PARTS))
    wanted = (
        UploadPart(number=number, offset=offset, size=min(step, size - offset), url="")
        for number, offset in enumerate(range(0, size, step), 1)
    )
    return [part for part in wanted if part.number not in stored or stored[part.number].size != part.size]


def complete(ctx: Context, actor: Actor, digest: str, body: CompleteUpload) -> BlobStored:
    """Make a blob of an upload, after its size and digest have been checked in the object store."""
    bucket = ctx.blobs.bucket
    upload = ctx.store.read(partial(uploads.find, upload=body.upload, digest=digest))
    if bucket is None or upload is None or upload.owner != owner(actor):
        found = ctx.store.read(partial(rows.find, digest=digest))
        if found is not None:  # the answer to an earlier copy of this request was lost
            return BlobStored(sha256=digest, size=found.size)
        raise Refusal(Code.UPLOAD_CONFLICT, f"there is no upload {body.upload} of this blob", _AGAIN)
    with ctx.blobs.completing(upload.id):
        if upload.multipart:
            _join(ctx, bucket, upload, body)
        size = bucket.size(digest, upload.id)
        if size is None:
            raise Refusal(Code.UPLOAD_CONFLICT, "the object store does not have this upload", "put the bytes first")
        if not bucket.holds(digest, upload.id, upload.size):
            ctx.store.write(partial(uploads.condemn, digest=digest, upload=upload.id))
            raise Refusal(
                Code.MALFORMED,
                f"the object store has {size} bytes that do not match the digest {digest}; nothing was kept",
                "send them again from the start",
            )
        register(ctx, digest, upload.size, upload.id)
    return BlobStored(sha256=digest, size=upload.size)


def _join(ctx: Context, bucket: Bucket, upload: UploadRow, body: CompleteUpload) -> None:
    """Have the store join the parts, once it has them all."""
    stored = bucket.parts(upload.digest, upload.id, upload.multipart)
    if stored is None:  # they were joined already
        return
    wrong = [part.number for part in _lacking(ctx, upload.size, stored)]
    wrong += [
        part.number
        for part in body.parts
        if part.number in stored and stored[part.number].etag.strip('"') != part.etag.strip('"')
    ]
    if wrong:
        numbers = ", ".join(map(str, wrong[:10]))
        raise Refusal(Code.UPLOAD_CONFLICT, f"the object store does not have part {numbers} as it was sent", _AGAIN)
    bucket.join_parts(upload.digest, upload.id, upload.multipart, stored)


def register(ctx: Context, digest: str, size: int, upload: str) -> None:
    """Write the row of a blob whose bytes are in the object store."""

    def write(tx: Tx) -> bool:
        if uploads.find(tx, upload, digest) is None:
            return False
        rows.touch_blob(tx, digest, size, ctx.clock.wall(), upload)
        return True

    if not ctx.store.write(write) and ctx.store.read(partial(rows.find, digest=digest)) is None:
        raise StoreUnavailable("the upload took so long that it was removed; send it again")


def remove_old(ctx: Context, bucket: Bucket) -> int:
    """Remove uploads that were not completed within a day, and the objects of removed blobs; return their number."""
    return _remove(ctx, bucket, ctx.clock.wall() - KEEP_SECONDS)


def remove_condemned(ctx: Context, bucket: Bucket) -> int:
    """Remove the objects of blobs that were removed or moved; return their number."""
    return _remove(ctx, bucket, 1.0)


def _remove(ctx: Context, bucket: Bucket, before: float) -> int:
    found = ctx.store.read(partial(uploads.old, before=before, most=BATCH))
    for each in found:
        # From here on nobody can complete it.
        if each.created_at and not ctx.store.write(partial(uploads.condemn_old, upload=each.id, before=before)):
            continue
        if each.multipart:
            bucket.abort_parts(each.digest, each.id, each.multipart)
        bucket.delete(each.digest, each.id)
        ctx.store.write(partial(uploads.forget, upload=each.id))
    if found:
        log.info("removed %d objects of the object store", len(found))
    return len(found)
