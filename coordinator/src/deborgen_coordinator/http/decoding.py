"""Decode bytes into values, strictly: input that two parsers could understand differently is refused.

Every refusal is a 400 with the code `malformed`. Its message names the position in the document and the limit.
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
        raise malformed(f"the body {problem}") from None


def convert(value: Any, kind: type[T], what: str = "body") -> T:
    """The value as a message of this type."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as problem:
        raise malformed(f"the {what} is not valid: {problem}") from None


def inflate(body: bytes, limit: int) -> bytes:
    """The unpacked gzip body. It never uses more memory than the limit."""
    whole = bytearray()
    try:
        while body:
            unpacker = zlib.decompressobj(wbits=31)
            whole += unpacker.decompress(body, limit + 1 - len(whole))
            if len(whole) > limit:
                raise Refusal(Code.TOO_LARGE, f"the body unpacks to more than {limit} bytes")
            if not unpacker.eof:
                raise malformed("the gzip body ends too early")
            body = unpacker.unused_data
    except zlib.error as problem:
        raise malformed(f"the body is not gzip: {problem}") from None
    return bytes(whole)
