"""Blobs: which are missing, put, resume, fetch."""

from __future__ import annotations

from flask import Response

from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.answers import Reply
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.files import send_blob
from deborgen_coordinator.http.routes import Request, serves
from deborgen_coordinator.operations import blobs
from deborgen_shared import contract, headers
from deborgen_shared import messages as m
from deborgen_shared.queries import NoQuery


@serves(contract.MISSING_BLOBS)
def missing(request: Request[m.BlobsMissing, NoQuery]) -> m.MissingBlobs:
    return blobs.missing(request.ctx, request.body.digests)


@serves(contract.PUT_BLOB)
def put(request: Request[None, NoQuery]) -> m.BlobStored:
    length = bodies.length_of(request.environ, request.ctx.settings.max_blob)
    with request.streams.receive(length):
        return blobs.put(request.ctx, request.names["sha256"], bodies.pieces(request.environ, length))


@serves(contract.PATCH_BLOB)
def patch(request: Request[None, NoQuery]) -> Reply:
    limit = request.ctx.settings.max_blob
    offset = _count(request, headers.UPLOAD_OFFSET, limit)
    total = _count(request, headers.UPLOAD_LENGTH, limit)
    if offset is None:
        raise malformed("The header Upload-Offset is missing.", "HEAD tells it.")
    length = bodies.length_of(request.environ, limit - offset)
    if total is not None and offset + length > total:
        raise malformed(f"The body goes beyond the {total} bytes that Upload-Length names.")
    digest = request.names["sha256"]
    with request.streams.receive(length):
        stored = blobs.patch(request.ctx, digest, offset, bodies.pieces(request.environ, length), total)
    if isinstance(stored, int):
        return Reply(204, None, {headers.UPLOAD_OFFSET: str(stored)})
    return Reply(201, stored)


@serves(contract.HEAD_BLOB)
def head(request: Request[None, NoQuery]) -> Response:
    digest = request.names["sha256"]
    offset = blobs.partial(request.ctx, digest)
    if offset is not None:
        return Response(b"", 204, {headers.UPLOAD_OFFSET: str(offset), headers.CACHE_CONTROL: "no-store"})
    return send_blob(request, digest)


@serves(contract.GET_BLOB)
def get(request: Request[None, NoQuery]) -> Response:
    return send_blob(request, request.names["sha256"])


def _count(request: Request[None, NoQuery], name: str, limit: int) -> int | None:
    text = request.header(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= limit):
        raise malformed(f"The header {name} must be a number of bytes, at most {limit}.")
    return int(text)
