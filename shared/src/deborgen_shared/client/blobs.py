"""Blobs to and from the coordinator: resumable in both directions, in memory that does not grow with their size."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from deborgen_shared import contract
from deborgen_shared import headers as h
from deborgen_shared.calls import Call
from deborgen_shared.client.transport import CHUNK, Body, Refused, Transport, Unreachable
from deborgen_shared.errors import Code

#: A blob of at most this many bytes goes in one request; a larger one goes in parts of this size.
PART = 8 << 20
PART_SECONDS = 120.0
WHOLE_SECONDS = 3600.0

#: Hears of every byte that went out or came in.
Seen = Callable[[int], None]


def ignore(count: int) -> None:
    """Nobody wants to hear of the bytes."""


class Told:
    """Tells of each byte of a blob once, however often it is sent."""

    def __init__(self, seen: Seen = ignore) -> None:
        self._seen = seen
        self.position = 0

    def at(self, position: int) -> None:
        more, self.position = max(0, position - self.position), max(self.position, position)
        self._seen(more)


def upload(
    transport: Transport, path: Path, sha256: str, size: int, url: str = "", told: Told | None = None,
    *, resume: bool = True,
) -> None:  # fmt: skip
    """Put a blob, from where an earlier try broke off. `url` is where the coordinator said that it goes.

    Without `resume`, a blob that fits into one part is sent whole, however much of it is there. A file that has become
    shorter meanwhile is `Refused`, as the coordinator refuses bytes that do not have the digest.
    """
    told = told or Told()
    if url and not transport.is_own(url):
        transport.put_elsewhere(url, _body(path, 0, size, told), WHOLE_SECONDS)
        return
    offset = _offset(transport, sha256) if resume or size > PART else 0
    if offset is None:
        told.at(size)
        return
    if offset > size or (offset == 0 and size <= PART):
        seconds = PART_SECONDS if size <= PART else WHOLE_SECONDS
        transport.ask(contract.PUT_BLOB, _body(path, 0, size, told), seconds=seconds, sha256=sha256)
        return
    told.at(offset)
    while True:
        # Also when no byte is left to send: the store may have them all without having made them a blob.
        length = min(PART, size - offset)
        sent = {h.UPLOAD_OFFSET: str(offset), h.UPLOAD_LENGTH: str(size)}
        part = _body(path, offset, length, told)
        transport.ask(contract.PATCH_BLOB, part, headers=sent, seconds=PART_SECONDS, sha256=sha256)
        offset += length
        if offset >= size:
            return


def _body(path: Path, offset: int, length: int, told: Told) -> Body:
    """So much of a file, in pieces."""

    def pieces() -> Iterator[bytes]:
        at, end = offset, offset + length
        with path.open("rb") as file:
            file.seek(offset)
            while at < end:
                piece = file.read(min(CHUNK, end - at))
                if not piece:
                    raise Refused(400, Code.MALFORMED, "the file is shorter than it was when its digest was taken")
                yield piece
                at += len(piece)
                told.at(at)

    return Body(length, pieces)


def _offset(transport: Transport, sha256: str) -> int | None:
    """How many bytes of the blob the store has; None if it has the whole blob."""
    try:
        reply = transport.ask(contract.HEAD_BLOB, sha256=sha256)
    except Refused as refused:
        if refused.status == 404:
            return 0
        raise
    return None if reply.status == contract.HEAD_BLOB.gives.status else int(reply.headers.get(h.UPLOAD_OFFSET, "0"))


def download(
    transport: Transport, call: Call[Any], file: BinaryIO, size: int | None, told: Told | None = None, **names: Any
) -> None:
    """Fetch bytes into an open file, after those that it has from an earlier try. The file may be cut first.

    Raises `Unreachable` when fewer than `size` bytes came. Whether they are the right ones, the digest tells.
    """
    told = told or Told()
    have = os.fstat(file.fileno()).st_size
    if size is not None and have > size:
        have = 0
    if have and have == size:
        told.at(have)
        return
    sent = {h.RANGE: f"bytes={have}-"} if have else {}
    try:
        with transport.open(call, headers=sent, **names) as answer:
            if answer.status != 206:
                have = 0
            file.truncate(have)
            file.seek(have)
            told.at(have)
            for chunk in answer:
                file.write(chunk)
                told.at(file.tell())
    except Refused as refused:
        if refused.status != 416:  # nothing comes behind the bytes that are here
            raise
    if size is not None and file.tell() < size:
        raise Unreachable("the answer was cut short")


def fetch(transport: Transport, sha256: str, target: Path) -> None:
    """Fetch a blob into a file that is there only whole."""
    part = target.with_name(target.name + ".part")
    with part.open("ab+", buffering=0) as file:
        download(transport, contract.GET_BLOB, file, None, sha256=sha256)
    if digest_of(part) != sha256:
        part.unlink()
        raise Unreachable(f"blob {sha256} arrived damaged")
    part.rename(target)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
