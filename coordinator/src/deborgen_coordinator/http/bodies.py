"""Read request bodies: only after their length is known and allowed, and never beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deborgen_coordinator.http.decoding import inflate, malformed
from deborgen_shared import headers
from deborgen_shared.calls import JSON
from deborgen_shared.errors import Code, Refusal

PIECE = 256 * 1024

_LENGTH = headers.in_environ(headers.CONTENT_LENGTH)
_TYPE = headers.in_environ(headers.CONTENT_TYPE)
_ENCODING = headers.in_environ(headers.CONTENT_ENCODING)


def length_of(environ: dict[str, Any], limit: int, *, required: bool = True) -> int:
    """The Content-Length of the body. A length that is not allowed is refused before the body is read."""
    text = environ.get(_LENGTH) or ""
    if "HTTP_TRANSFER_ENCODING" in environ or (not text and required):
        raise Refusal(
            Code.LENGTH_REQUIRED, "the request has no Content-Length", "send it; chunked bodies are not accepted"
        )
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise malformed("the Content-Length is not a number")
    length = int(text) if len(text) < 20 else limit + 1
    if length > limit:
        raise Refusal(Code.TOO_LARGE, f"the body may have at most {limit} bytes")
    return length


def read(environ: dict[str, Any], length: int) -> bytes:
    """The whole body."""
    if not length:
        return b""
    try:
        body: bytes = environ["wsgi.input"].read(length)
    except OSError:
        body = b""
    if len(body) < length:
        raise malformed(f"the body ended before all of its {length} bytes arrived")
    return body


def pieces(environ: dict[str, Any], length: int) -> Iterator[bytes]:
    """The body, piece by piece. If the body ends too early, it raises after the last piece."""
    stream, left = environ["wsgi.input"], length
    while left:
        try:
            piece: bytes = stream.read(min(PIECE, left))
        except OSError:
            piece = b""
        if not piece:
            raise malformed(f"the body ended {left} bytes too early", "HEAD of the same path returns where to resume")
        left -= len(piece)
        yield piece


def require_json(environ: dict[str, Any]) -> None:
    kind = environ.get(_TYPE) or ""
    if kind != JSON and kind.partition(";")[0].strip().lower() != JSON:
        raise Refusal(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"the body is {kind[:100]!r}, but must be {JSON}",
            f"send the header {headers.CONTENT_TYPE}: {JSON}",
        )


def unpacked(environ: dict[str, Any], limit: int) -> bytes:
    """A raw body, plain or gzip, of at most `limit` bytes before and after unpacking."""
    body = read(environ, length_of(environ, limit))
    encoding = (environ.get(_ENCODING) or "identity").strip().lower()
    if encoding == "gzip":
        return inflate(body, limit)
    if encoding != "identity":
        raise Refusal(
            Code.UNSUPPORTED_MEDIA_TYPE, f"the Content-Encoding {encoding[:40]!r} is not supported", "use gzip"
        )
    return body
