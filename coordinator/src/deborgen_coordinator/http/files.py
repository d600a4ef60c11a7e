"""Sending blobs: with their digest as ETag, whole or in part, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from flask import Response

from deborgen_coordinator.http.routes import RAW, Answer, Call
from deborgen_coordinator.operations import blobs
from deborgen_shared.errors import Code, Refusal

FILE_HEADERS = {
    "Range": "bytes=FIRST-LAST for a part of it",
    "If-None-Match": "the ETag of what you have: the answer is 304 if that is it",
    "If-Range": "the ETag that the Range is meant for",
}
_FILE = {"ETag": "the digest in quotes", "Accept-Ranges": "bytes"}
FILE_ANSWERS = {
    200: Answer("all bytes", bytes, (RAW,), _FILE),
    206: Answer("the bytes of the range", bytes, (RAW,), _FILE | {"Content-Range": "which part of the whole it is"}),
    304: Answer("you have it already", None, headers={"ETag": "the digest in quotes"}),
}
FILE_REFUSALS = (Code.RANGE_NOT_SATISFIABLE, Code.SLOW_DOWN)

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


def send_blob(call: Call[Any, Any], digest: str, name: str | None = None) -> Response:
    """The blob as an answer. A browser saves it, and never shows it as a page of ours."""
    ctx, environ = call.ctx, call.environ
    size = blobs.size(ctx, digest)
    etag = f'"{digest}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=31536000, immutable" if name is None else "private, no-cache",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": "attachment" + (f"; filename*=UTF-8''{quote(name.rpartition('/')[2])}" if name else ""),
    }
    if _matches(environ.get("HTTP_IF_NONE_MATCH"), digest):
        return Response(b"", 304, headers)
    start, end = 0, size
    wanted = _range(environ, digest, size)
    if wanted:
        start, end = wanted
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - start)
    body: Iterable[bytes] = ()
    if environ["REQUEST_METHOD"] != "HEAD":
        body = call.streams.send(blobs.open_range(ctx, digest, start, end), end - start)
    return Response(body, 206 if wanted else 200, headers, content_type=RAW, direct_passthrough=True)


def _matches(header: str | None, digest: str) -> bool:
    if not header:
        return False
    return any(tag.strip().removeprefix("W/") in ("*", f'"{digest}"') for tag in header.split(","))


def _range(environ: dict[str, Any], digest: str, size: int) -> tuple[int, int] | None:
    """The one range that is asked for. What we do not understand is ignored, as HTTP says: the answer is the whole."""
    header = environ.get("HTTP_RANGE")
    condition = environ.get("HTTP_IF_RANGE")
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
            Code.RANGE_NOT_SATISFIABLE, f"The blob has {size} bytes.", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, end
