"""From bytes to values, strictly: what two readers could understand differently is refused.

Every refusal is a 400 of the code `malformed`, with the place in the document and the limit in its sentence.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import msgspec

from deborgen_shared import strict_json
from deborgen_shared.errors import Code, Refusal

T = TypeVar("T")


def malformed(message: str, hint: str = "") -> Refusal:
    return Refusal(Code.MALFORMED, message, hint)


def parse(body: bytes) -> Any:
    """The JSON value in the body."""
    try:
        return strict_json.parse(body)
    except strict_json.Unreadable as problem:
        raise malformed(f"The body {problem}.") from None


def convert(value: Any, kind: type[T], what: str = "body") -> T:
    """The value as the message it should be."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as problem:
        raise malformed(f"The {what} does not fit: {problem}.") from None


def inflate(body: bytes, limit: int) -> bytes:
    """The bytes of a gzip body, never more than the limit in memory."""
    whole = bytearray()
    try:
        while body:
            unpacker = zlib.decompressobj(wbits=31)
            whole += unpacker.decompress(body, limit + 1 - len(whole))
            if len(whole) > limit:
                raise Refusal(Code.TOO_LARGE, f"The body unpacks to more than {limit} bytes.")
            if not unpacker.eof:
                raise malformed("The gzip body ends too early.")
            body = unpacker.unused_data
    except zlib.error as problem:
        raise malformed(f"The body is not gzip: {problem}.") from None
    return bytes(whole)
