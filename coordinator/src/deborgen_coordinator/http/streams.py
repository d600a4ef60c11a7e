"""Limits on what stays open for long: transfers of many bytes, each of which occupies a thread, and live streams."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain
from typing import Any

from deborgen_coordinator.blobs import BlobStore
from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.live import Feed, LiveStream, LiveStreams
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.uploads import Uploads
from deborgen_coordinator.shares import Share
from deborgen_shared import headers
from deborgen_shared.errors import Code, Refusal

#: An answer of at most this many bytes occupies no thread while the client reads it.
SMALL_BYTES = 64 * 1024


class Slot:
    """One unit of something limited, taken by one person. It is given back once, even if it is closed several times."""

    def __init__(self, share: Share, actor: Actor, what: str, hint: str) -> None:
        """Take a slot, or refuse the request."""
        self._share: Share | None = share
        self._person = str(actor)
        if not share.take(self._person):
            message = f"too many {what}: one person may have {share.each} of the {share.most}"
            raise Refusal(Code.SLOW_DOWN, message, hint, headers={headers.RETRY_AFTER: "2"})

    def close(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            share.give_back(self._person)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.close()


class Transfer:
    """An answer with many bytes. It gives its slot back on `close`, which the server always calls."""

    def __init__(self, slot: Slot, first: list[bytes], rest: Iterator[bytes]) -> None:
        self._slot, self._first, self._rest = slot, first, rest

    def __iter__(self) -> Iterator[bytes]:
        return chain(self._first, self._rest)

    def close(self) -> None:
        self._slot.close()
        _close(self._rest)


class Streams:
    """Everybody's shares of the live streams, of the transfers and of the unfinished uploads."""

    def __init__(self, ctx: Context) -> None:
        self._live = Share(ctx.settings.max_streams)
        self._transfers = Share(ctx.settings.max_transfers)
        self._streams = LiveStreams(ctx)
        self._uploads = Uploads()
        self._ctx = ctx

    def close(self) -> None:
        """End all live streams, now and from now on."""
        self._streams.close()

    def follow(self, actor: Actor, feed: Feed) -> LiveStream:
        """An answer that stays open, and sends what the feed provides, as long as the actor's token is valid."""
        slot = Slot(self._live, actor, "live streams are open", "close one of yours, or try again later")
        return LiveStream(self._streams, feed, actor, slot.close)

    def send(self, actor: Actor, chunks: Iterator[bytes]) -> Iterable[bytes]:
        """The chunks as an answer. An answer that is not small is a transfer."""
        first, size = [], 0
        for chunk in chunks:
            first.append(chunk)
            size += len(chunk)
            if size > SMALL_BYTES:
                try:
                    return Transfer(self._transfer(actor), first, chunks)
                except Refusal:
                    _close(chunks)
                    raise
        return first

    @contextmanager
    def receive(self, actor: Actor, environ: dict[str, Any], digest: str, size: int) -> Iterator[BlobStore]:
        """The blob store for an upload that grows to this size. It is a transfer, unless its body has arrived."""
        slot = nullcontext() if bodies.has_arrived(environ) else self._transfer(actor)
        with slot, self._uploads.admit(self._ctx, actor, digest, size) as store:
            yield store

    def read(self, actor: Actor) -> AbstractContextManager[None]:
        """Occupy a transfer while the coordinator itself reads a blob for this person."""
        return self._transfer(actor)

    def _transfer(self, actor: Actor) -> Slot:
        what = "large uploads and downloads are in progress"
        return Slot(self._transfers, actor, what, "try again when one of yours is complete")


def _close(chunks: Iterator[bytes]) -> None:
    close = getattr(chunks, "close", None)
    if close is not None:
        close()


def client_is_gone(environ: dict[str, Any]) -> bool:
    """Whether the client has closed the connection. While unread bytes are left, it counts as open."""
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return False
    timeout = connection.gettimeout()
    try:
        connection.settimeout(0)
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        with suppress(OSError):
            connection.settimeout(timeout)
