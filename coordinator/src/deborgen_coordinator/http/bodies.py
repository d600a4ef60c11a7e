"""Read request bodies: only after their length is known and allowed, and never beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deborgen_coordinator.framing import REQUEST, PatientRequest, too_slow_message
from deborgen_coordinator.http.decoding import inflate, malformed
from deborgen_shared import headers
from deborgen_shared.calls import JSON
from deborgen_shared.errors import Code, Refusal

PIECE = 256 * 1024


class BodyAwaited(Exception):
    """The handler needs the whole body, and a part of it has not arrived. The server collects it, and then makes the
    same request again: nothing has happened yet."""

    def __init__(self, length: int) -> None:
        super().__init__(f"{length} bytes are awaited")
        self.length = length


RESUME = "HEAD of the same path returns where to resume"

_LENGTH = headers.environ_key(headers.CONTENT_LENGTH)
_TYPE = headers.environ_key(headers.CONTENT_TYPE)
_ENCODING = headers.environ_key(headers.CONTENT_ENCODING)


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


def has_arrived(environ: dict[str, Any]) -> bool:
    """Whether the whole body has arrived, or no more of it can."""
    request: PatientRequest = environ[REQUEST]
    return request.ended or not request.lacks_body()


def read(environ: dict[str, Any], length: int) -> bytes:
    """The whole body. Raises `BodyAwaited` if it has not arrived."""
    if not length:
        return b""
    if not has_arrived(environ):
        raise BodyAwaited(length)
    body: bytes = environ["wsgi.input"].read(length)
    if len(body) < length:
        raise malformed(f"the body ended before all of its {length} bytes arrived")
    return body


def pieces(environ: dict[str, Any], length: int) -> Iterator[bytes]:
    """The body, piece by piece; the thread waits for bytes that have not arrived. If the body ends too early, or
    arrives too slowly, the iterator raises after the last piece."""
    if not has_arrived(environ):
        environ[REQUEST].unreader.wait_for_more()
    stream, left = environ["wsgi.input"], length
    while left:
        try:
            piece: bytes = stream.read(min(PIECE, left))
        except TimeoutError:
            raise Refusal(Code.REQUEST_TIMEOUT, too_slow_message(), RESUME) from None
        except OSError:
            piece = b""
        if not piece:
            raise malformed(f"the body ended {left} bytes too early", RESUME)
        left -= len(piece)
        yield piece


def require_json(environ: dict[str, Any]) -> None:
    kind = environ.get(_TYPE) or ""
    if kind != JSON and kind.partition(";")[0].strip().lower() != JSON:
        raise Refusal(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"the {headers.CONTENT_TYPE} is {kind[:100]!r}, but must be {JSON}",
            f"send a JSON body with the header {headers.CONTENT_TYPE}: {JSON}",
        )


def read_unpacked(environ: dict[str, Any], limit: int) -> bytes:
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
