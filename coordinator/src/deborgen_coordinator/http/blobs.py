"""Blobs: find out which are missing, upload, resume an upload, and download."""

from __future__ import annotations

from flask import Response

from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.answers import HandlerAnswer
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.files import send_blob
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations import blobs, direct_uploads
from deborgen_shared import contract, headers
from deborgen_shared import messages as m
from deborgen_shared.queries import NoQuery


@serves(contract.MISSING_BLOBS)
def missing(request: CallRequest[m.BlobDigests, NoQuery]) -> m.MissingBlobs:
    body = request.body
    if body.sizes and len(body.sizes) != len(body.digests):
        raise malformed(
            f"there are {len(body.digests)} digests but {len(body.sizes)} sizes", "send one size per digest"
        )
    return blobs.find_missing(request.ctx, body.digests, request.actor, body.sizes)


@serves(contract.PUT_BLOB)
def put(request: CallRequest[None, NoQuery]) -> m.BlobStored:
    digest = request.names["sha256"]
    length = bodies.length_of(request.environ, request.ctx.settings.max_blob)
    with request.streams.receive(request.actor, request.environ, digest, length) as store:
        return blobs.put(request.ctx, digest, bodies.pieces(request.environ, length), store)


@serves(contract.PATCH_BLOB)
def patch(request: CallRequest[None, NoQuery]) -> HandlerAnswer:
    limit = request.ctx.settings.max_blob
    offset = _byte_count(request, headers.UPLOAD_OFFSET, limit)
    total = _byte_count(request, headers.UPLOAD_LENGTH, limit)
    if offset is None:
        raise malformed(f"the header {headers.UPLOAD_OFFSET} is missing", "a HEAD request returns it")
    length = bodies.length_of(request.environ, limit - offset)
    if total is not None and offset + length > total:
        raise malformed(f"the body goes beyond the {total} bytes of {headers.UPLOAD_LENGTH}")
    digest = request.names["sha256"]
    with request.streams.receive(request.actor, request.environ, digest, offset + length) as store:
        stored = blobs.patch(request.ctx, store, digest, offset, bodies.pieces(request.environ, length), total)
    if isinstance(stored, int):
        return HandlerAnswer(204, None, {headers.UPLOAD_OFFSET: str(stored)})
    return HandlerAnswer(201, stored)


@serves(contract.COMPLETE_BLOB)
def complete(request: CallRequest[m.CompleteUpload, NoQuery]) -> m.BlobStored:
    with request.streams.read(request.actor), blobs.refusals(request.names["sha256"]):
        return direct_uploads.complete(request.ctx, request.actor, request.names["sha256"], request.body)


@serves(contract.REPORT_BLOB)
def report(request: CallRequest[None, NoQuery]) -> m.BlobChecked:
    with request.streams.read(request.actor):
        return blobs.check(request.ctx, request.names["sha256"])


@serves(contract.HEAD_BLOB)
def head(request: CallRequest[None, NoQuery]) -> Response:
    """The headers of the blob or, while its upload is incomplete, the offset at which to resume."""
    digest = request.names["sha256"]
    offset = blobs.upload_offset(request.ctx, request.actor, digest)
    if offset is not None:
        return Response(b"", 204, {headers.UPLOAD_OFFSET: str(offset), headers.CACHE_CONTROL: "no-store"})
    return send_blob(request, digest)


@serves(contract.GET_BLOB)
def get(request: CallRequest[None, NoQuery]) -> Response:
    return send_blob(request, request.names["sha256"])


def _byte_count(request: CallRequest[None, NoQuery], name: str, limit: int) -> int | None:
    text = request.header(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= limit):
        raise malformed(f"the header {name} must be a number of bytes, at most {limit}")
    return int(text)
