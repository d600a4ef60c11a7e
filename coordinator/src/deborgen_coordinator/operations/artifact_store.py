"""Which object store a pool uses. The database knows, so that no command looks for its blobs in the wrong place."""

from __future__ import annotations

import logging
from functools import partial

from deborgen_shared.errors import Code, Refusal

from ..blobs import StoreUnavailable
from ..storage import uploads
from ..storage.database import DatabaseConnection
from .context import Context

log = logging.getLogger("deborgen.blobs")


def require(ctx: Context) -> None:
    """Refuse to go on if blobs of this pool are in another object store than that of the settings."""

    def look(reader: DatabaseConnection) -> tuple[str, bool]:
        return uploads.used_store(reader), uploads.has_remote_blobs(reader)

    used, has_remote = ctx.store.read(look)
    if not has_remote or used == address(ctx):
        return
    hint = f"add --artifact-store {used} and its other settings"
    if not address(ctx):
        raise Refusal(Code.UNAVAILABLE, f"blobs of this pool are in the object store {used}", hint)
    message = f"blobs of this pool are in the object store {used}, not in {address(ctx)}"
    raise Refusal(Code.UNAVAILABLE, message, f"{hint}; blobs move to another store by way of the data directory")


def begin(ctx: Context) -> None:
    """Note, when a coordinator starts, which object store it uses. A store that does not answer is only logged: jobs go
    on without it."""
    require(ctx)
    ctx.store.write(partial(uploads.use_store, address=address(ctx)))
    if ctx.blobs.bucket is not None:
        try:
            ctx.blobs.bucket.probe()
        except StoreUnavailable as problem:
            log.warning("the object store cannot be used now: %s", problem)


def address(ctx: Context) -> str:
    """The object store of the settings; empty if there is none."""
    return str(ctx.settings.bucket or "")
