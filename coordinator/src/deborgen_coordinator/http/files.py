"""Send blobs, whole or in part, with their digest as ETag, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from flask import Response

from deborgen_coordinator.http.routes import CallRequest
from deborgen_coordinator.operations import blobs
from deborgen_shared import headers
from deborgen_shared.calls import RAW
from deborgen_shared.errors import Code, Refusal

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


def send_blob(request: CallRequest[Any, Any], digest: str, name: str | None = None) -> Response:
    """The blob as an answer. A browser saves it, and never displays it as a page of this site."""
    ctx, environ = request.ctx, request.environ
    stored = blobs.find(ctx, digest)
    size = stored.size
    etag = f'"{digest}"'
    sent = {
        headers.ETAG: etag,
        headers.ACCEPT_RANGES: "bytes",
        headers.CACHE_CONTROL: "private, max-age=31536000, immutable" if name is None else "private, no-cache",
        headers.CONTENT_TYPE_OPTIONS: "nosniff",
        headers.CONTENT_SECURITY_POLICY: "default-src 'none'; sandbox",
        headers.CONTENT_DISPOSITION: "attachment"
        + (f"; filename*=UTF-8''{quote(name.rpartition('/')[2])}" if name else ""),
    }
    if _matches(environ.get(headers.environ_key(headers.IF_NONE_MATCH)), digest):
        return Response(b"", 304, sent)
    if stored.upload and environ["REQUEST_METHOD"] != "HEAD":
        where = {
            headers.LOCATION: ctx.blobs.redirect(digest, stored.upload, name or ""),
            headers.CACHE_CONTROL: "no-store",
        }
        return Response(b"", 307, where)
    start, end = 0, size
    wanted = _range(environ, digest, size)
    if wanted:
        start, end = wanted
        sent[headers.CONTENT_RANGE] = f"bytes {start}-{end - 1}/{size}"
    sent[headers.CONTENT_LENGTH] = str(end - start)
    body: Iterable[bytes] = ()
    if environ["REQUEST_METHOD"] != "HEAD":
        body = request.streams.send(request.actor, blobs.open_range(ctx, digest, start, end, stored.upload))
    return Response(body, 206 if wanted else 200, sent, content_type=RAW, direct_passthrough=True)


def _matches(header: str | None, digest: str) -> bool:
    if not header:
        return False
    return any(tag.strip().removeprefix("W/") in ("*", f'"{digest}"') for tag in header.split(","))


def _range(environ: dict[str, Any], digest: str, size: int) -> tuple[int, int] | None:
    """The requested range. As HTTP demands, a range that cannot be understood is ignored, and the whole blob is
    sent."""
    header = environ.get(headers.environ_key(headers.RANGE))
    condition = environ.get(headers.environ_key(headers.IF_RANGE))
    match = _RANGE.fullmatch(header.strip()) if header else None
    if not match or (condition and condition.strip() != f'"{digest}"') or environ["REQUEST_METHOD"] == "HEAD":
        return None
    first, last = match.groups()
    if not first and not last:
        return None
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    else:
        start, end = max(0, size - int(last)), size
    if start >= size or start >= end:
        raise Refusal(
            Code.RANGE_NOT_SATISFIABLE,
            f"the blob has {size} bytes",
            headers={headers.CONTENT_RANGE: f"bytes */{size}"},
        )
    return start, end
