"""Unfinished uploads: everybody keeps their own, and only a few of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from deborgen_shared import headers
from deborgen_shared.errors import Code, Refusal

from ..blobs import BlobStore
from .context import Actor, Context

#: One person may have this many unfinished uploads at once.
MOST_UNFINISHED = 16
#: An unfinished upload that got no bytes for this many seconds makes room for a new one.
STALE_SECONDS = 600.0


def owner(actor: Actor) -> str:
    """The name of the folder that holds a person's unfinished uploads."""
    return f"{actor.role}.{actor.name}"


class Uploads:
    """The uploads in progress. Their bytes are counted before they have arrived."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: For each upload in progress: who sends it, its digest, and its size after the request.
        self._growing: dict[object, tuple[str, str, int]] = {}

    @contextmanager
    def admit(self, ctx: Context, actor: Actor, digest: str, size: int) -> Iterator[BlobStore]:
        """Let an upload grow to this size, and yield the blob store for it. An upload that does not fit is refused."""
        person, upload = owner(actor), object()
        store = ctx.blobs.for_owner(person)
        with self._lock:
            growing = {other: end for who, other, end in self._growing.values() if who == person}
            self._make_room(ctx, store, growing, digest, size)
            self._growing[upload] = person, digest, size
        try:
            yield store
        finally:
            with self._lock:
                del self._growing[upload]

    @staticmethod
    def _make_room(ctx: Context, store: BlobStore, growing: dict[str, int], digest: str, size: int) -> None:
        kept = store.unfinished()
        sizes = {each.digest: each.size for each in kept} | growing
        own = sizes.pop(digest, 0)
        most = ctx.settings.max_blob

        def reason_to_refuse() -> str:
            if len(sizes) >= MOST_UNFINISHED:
                return f"you have {len(sizes)} unfinished uploads, and more are not kept"
            # A person's largest upload may always go on, so that at least one can be finished.
            if sum(sizes.values()) + size > most and any(other > own for other in sizes.values()):
                return f"your unfinished uploads would have more than {most} bytes"
            return ""

        for each in kept:
            if reason_to_refuse() and each.digest in sizes and each.digest not in growing and each.age > STALE_SECONDS:
                store.discard(each.digest)
                del sizes[each.digest]
        if message := reason_to_refuse():
            hint = f"finish one; one without new bytes for {STALE_SECONDS / 60:.0f} minutes makes room for another"
            raise Refusal(Code.SLOW_DOWN, message, hint, headers={headers.RETRY_AFTER: "10"})
