"""Uploads that go straight to the pool's object store, whole or in parts, by addresses that the coordinator has signed.

The store's host gets no token. An upload that was cut is resumed: the coordinator names only the parts that are left.
An address that has expired is asked for again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from deborgen_shared import contract
from deborgen_shared.client.transport import Body, NoAnswer, Refused, Transport, Trouble
from deborgen_shared.errors import Code
from deborgen_shared.messages import BlobDigests, CompleteUpload, MissingBlob, UploadedPart, UploadPart

#: How long the store may take to answer after a piece of a blob, and the coordinator to check a complete one.
ANSWER_SECONDS = 120.0
CHECK_SECONDS = 3600.0
#: Ask for new addresses this many times in a row, if none of them is accepted.
TRIES = 3

#: The bytes of the blob from an offset, of a given length.
BodyOf = Callable[[int, int], Body]


def upload_directly(
    transport: Transport, sha256: str, size: int, body_of: BodyOf, reached: Callable[[int], None]
) -> bool:
    """Put a blob into the object store; False if it has to go to the coordinator instead.

    `reached` is called with the number of bytes that the store has.
    """
    sent: dict[int, str] = {}
    failures, before = 0, -1
    while True:
        query = BlobDigests(digests=[sha256], sizes=[size])
        missing = transport.call(contract.MISSING_BLOBS, query).missing
        if not missing:
            reached(size)
            return True
        place = missing[0]
        if not place.upload:
            return False
        reached(place.stored)
        failures = failures + 1 if place.stored <= before else 0
        before = place.stored
        try:
            if place.url:
                _put_whole(transport, place, body_of(0, size))
            for part in place.parts:
                sent[part.number] = _put_part(transport, part, body_of(part.offset, part.size))
        except NoAnswer as trouble:
            if trouble.status != 403 or failures >= TRIES:  # 403: most likely the address has expired
                raise
            continue
        if place.url or not place.parts:
            _complete(transport, place, sent)
            reached(size)
            return True
        if failures >= TRIES:
            raise NoAnswer("the object store loses the parts that it was sent", trouble=Trouble.STORE)


def _put_whole(transport: Transport, place: MissingBlob, body: Body) -> None:
    try:
        transport.put_elsewhere(place.url, body, ANSWER_SECONDS, place.headers)
    except NoAnswer as trouble:
        if trouble.status != 412:  # 412: an earlier try has arrived, and only its answer was lost
            raise


def _put_part(transport: Transport, part: UploadPart, body: Body) -> str:
    """Put a part; returns the ETag that the store gave it. The store compares the MD5, so a flipped bit costs one
    part."""
    hasher = hashlib.md5(usedforsecurity=False)
    for piece in body.pieces():
        hasher.update(piece)
    checksum = {"Content-MD5": base64.b64encode(hasher.digest()).decode()}
    return transport.put_elsewhere(part.url, body, ANSWER_SECONDS, checksum)


def _complete(transport: Transport, place: MissingBlob, sent: dict[int, str]) -> None:
    parts = [UploadedPart(number=number, etag=etag) for number, etag in sorted(sent.items()) if etag]
    body = CompleteUpload(upload=place.upload, parts=parts)
    try:
        transport.call(contract.COMPLETE_BLOB, body, seconds=CHECK_SECONDS, sha256=place.sha256)
    except Refused as refused:
        if refused.code == Code.UPLOAD_CONFLICT:  # a part was lost: the next try sends it again
            raise NoAnswer(refused.message, trouble=Trouble.STORE) from None
        raise


def report_damaged(transport: Transport, sha256: str) -> bool:
    """Have the coordinator check a blob that arrived wrong; whether it has dropped the blob."""
    try:
        return not transport.call(contract.REPORT_BLOB, seconds=CHECK_SECONDS, sha256=sha256).intact
    except (NoAnswer, Refused):  # a coordinator of an older release does not know the call
        return False
