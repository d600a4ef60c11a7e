"""Blobs: which are missing, put, resume, fetch."""

from __future__ import annotations

from flask import Response

from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.answers import Reply
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.files import FILE_ANSWERS, FILE_HEADERS, FILE_REFUSALS, send_blob
from deborgen_coordinator.http.routes import EVERYONE, UPLOADERS, Answer, Call, NoQuery, route
from deborgen_coordinator.operations import blobs
from deborgen_shared import messages as m
from deborgen_shared.errors import Code

OFFSET = "how many bytes of a broken upload are here"


@route(
    "POST", "/v1/blobs/missing", roles=UPLOADERS, body=m.BlobsMissing,
    answers={200: Answer("those that are missing, and where to put each", m.MissingBlobs)},
    summary="Which of these blobs the store lacks.",
)  # fmt: skip
def missing(call: Call[m.BlobsMissing, NoQuery]) -> m.MissingBlobs:
    return blobs.missing(call.ctx, call.body.digests)


@route(
    "PUT", "/v1/blobs/{sha256}", roles=UPLOADERS, body=bytes, limit="max_blob", grows=True,
    answers={201: Answer("it is stored", m.BlobStored)}, refusals=(Code.UPLOAD_CONFLICT,),
    summary="Store one blob, all of its bytes. Bytes with another digest are refused, and nothing is kept.",
)  # fmt: skip
def put(call: Call[None, NoQuery]) -> m.BlobStored:
    length = bodies.length_of(call.environ, call.ctx.settings.max_blob)
    with call.streams.receive(length):
        return blobs.put(call.ctx, call.names["sha256"], bodies.pieces(call.environ, length))


@route(
    "PATCH", "/v1/blobs/{sha256}", roles=UPLOADERS, body=bytes, limit="max_blob", grows=True,
    refusals=(Code.UPLOAD_CONFLICT,),
    headers={
        "Upload-Offset": "the byte at which this body starts, as HEAD tells it",
        "Upload-Length": "the bytes of the whole blob, if this body does not reach its end",
    },
    answers={
        201: Answer("the blob is whole", m.BlobStored),
        204: Answer("more bytes are to come", None, headers={"Upload-Offset": OFFSET}),
    },
    summary="Go on with a broken upload. The body is the rest of the blob, or a part of it with Upload-Length.",
)  # fmt: skip
def patch(call: Call[None, NoQuery]) -> Reply:
    limit = call.ctx.settings.max_blob
    offset = _count(call, "Upload-Offset", limit)
    total = _count(call, "Upload-Length", limit)
    if offset is None:
        raise malformed("The header Upload-Offset is missing.", "HEAD tells it.")
    length = bodies.length_of(call.environ, limit - offset)
    if total is not None and offset + length > total:
        raise malformed(f"The body goes beyond the {total} bytes that Upload-Length names.")
    digest = call.names["sha256"]
    with call.streams.receive(length):
        stored = blobs.patch(call.ctx, digest, offset, bodies.pieces(call.environ, length), total)
    if isinstance(stored, int):
        return Reply(204, None, {"Upload-Offset": str(stored)})
    return Reply(201, stored)


@route(
    "HEAD", "/v1/blobs/{sha256}", roles=EVERYONE,
    answers={
        200: Answer("it is here, with its size as Content-Length", None, headers={"ETag": "the digest in quotes"}),
        204: Answer("an upload of it broke off", None, headers={"Upload-Offset": OFFSET}),
    },
    summary="Whether a blob is here, or where its upload goes on.",
)  # fmt: skip
def head(call: Call[None, NoQuery]) -> Response:
    digest = call.names["sha256"]
    offset = blobs.partial(call.ctx, digest)
    if offset is not None:
        return Response(b"", 204, {"Upload-Offset": str(offset), "Cache-Control": "no-store"})
    return send_blob(call, digest)


@route(
    "GET", "/v1/blobs/{sha256}", roles=EVERYONE, headers=FILE_HEADERS, answers=FILE_ANSWERS, refusals=FILE_REFUSALS,
    summary="The bytes of one blob.",
)  # fmt: skip
def get(call: Call[None, NoQuery]) -> Response:
    return send_blob(call, call.names["sha256"])


def _count(call: Call[None, NoQuery], name: str, limit: int) -> int | None:
    text = call.header(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= limit):
        raise malformed(f"The header {name} must be a number of bytes, at most {limit}.")
    return int(text)
