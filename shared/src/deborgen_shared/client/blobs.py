"""Uploads and downloads of blobs. Both can be resumed, and neither needs more memory for a larger blob."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from deborgen_shared import contract
from deborgen_shared import headers as h
from deborgen_shared.calls import Call
from deborgen_shared.client.object_store import report_damaged, upload_directly
from deborgen_shared.client.transport import CHUNK, Body, NoAnswer, Refused, Transport
from deborgen_shared.errors import Code
from deborgen_shared.messages import MissingBlob

#: A blob of at most this many bytes is sent in one request; a larger one is sent in parts of this size.
PART = 8 << 20
#: How long the upload of one part, or of a whole blob in one request, may take.
PART_SECONDS = 120.0
WHOLE_SECONDS = 3600.0

#: Called with the number of bytes just sent or received.
OnBytes = Callable[[int], None]


def ignore(count: int) -> None:
    """An `OnBytes` that does nothing."""


class Progress:
    """Reports each byte of a blob once, even if it is sent several times."""

    def __init__(self, on_bytes: OnBytes = ignore) -> None:
        self._on_bytes = on_bytes
        self.position = 0

    def reached(self, position: int) -> None:
        more, self.position = max(0, position - self.position), max(self.position, position)
        self._on_bytes(more)


def upload(
    transport: Transport, path: Path, sha256: str, size: int, place: MissingBlob | None = None,
    progress: Progress | None = None, *, resume: bool = True,
) -> None:  # fmt: skip
    """Upload a blob, resuming where an earlier try was cut. `place` is what the coordinator said about where it goes.

    Without `resume`, a blob that fits into one part is sent whole, even if the coordinator already has some of it. A
    file that has become shorter in the meantime raises `Refused`, just as bytes with the wrong digest do.
    """
    progress = progress or Progress()
    if place is not None and place.direct:
        body_of = partial(_body, path, progress=progress)
        if upload_directly(transport, sha256, size, body_of, progress.reached):
            return
    offset = _offset(transport, sha256) if resume or size > PART else 0
    if offset is None:
        progress.reached(size)
        return
    # The store cannot have more bytes of this blob than the blob has: something else was stored, so start over.
    start_over = offset > size
    if start_over or (offset == 0 and size <= PART):
        seconds = PART_SECONDS if size <= PART else WHOLE_SECONDS
        transport.ask(contract.PUT_BLOB, _body(path, 0, size, progress), seconds=seconds, sha256=sha256)
        return
    progress.reached(offset)
    while True:
        # Send a request even if no byte is left: the store may have them all without having completed the blob.
        length = min(PART, size - offset)
        sent = {h.UPLOAD_OFFSET: str(offset), h.UPLOAD_LENGTH: str(size)}
        part = _body(path, offset, length, progress)
        transport.ask(contract.PATCH_BLOB, part, headers=sent, seconds=PART_SECONDS, sha256=sha256)
        offset += length
        if offset >= size:
            return


def _body(path: Path, offset: int, length: int, progress: Progress) -> Body:
    """`length` bytes of a file, in pieces."""

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
                progress.reached(at)

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
    transport: Transport,
    call: Call[Any],
    file: BinaryIO,
    size: int | None,
    progress: Progress | None = None,
    **names: Any,
) -> None:
    """Fetch bytes into an open file, resuming after the bytes of an earlier try. The file may be truncated first.

    Raises `NoAnswer` if fewer than `size` bytes arrived. The caller checks the digest.
    """
    progress = progress or Progress()
    have = os.fstat(file.fileno()).st_size
    if size is not None and have > size:
        have = 0
    if have and have == size:
        progress.reached(have)
        return
    sent = {h.RANGE: f"bytes={have}-"} if have else {}
    try:
        with transport.open(call, headers=sent, **names) as answer:
            if answer.status != 206:
                have = 0
            file.truncate(have)
            file.seek(have)
            progress.reached(have)
            for chunk in answer:
                file.write(chunk)
                progress.reached(file.tell())
    except Refused as refused:
        if refused.status != 416:  # 416: the file already has all bytes
            raise
    if size is not None and file.tell() < size:
        raise NoAnswer("the answer was cut short")


def fetch(transport: Transport, sha256: str, target: Path) -> None:
    """Fetch a blob. The target file appears only once it is complete and correct."""
    part = target.with_name(target.name + ".part")
    with part.open("ab+", buffering=0) as file:
        download(transport, contract.GET_BLOB, file, None, sha256=sha256)
    if digest_of(part) != sha256:
        part.unlink()
        raise NoAnswer(f"blob {sha256} {describe_damage(transport, sha256)}")
    part.rename(target)


def describe_damage(transport: Transport, sha256: str) -> str:
    """Report a blob that arrived wrong, so that the coordinator drops it if it is wrong in the store; says what was
    found."""
    if report_damaged(transport, sha256):
        return "was damaged in the store, and has been dropped: it must be uploaded again"
    return "arrived damaged"


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
