"""From bytes to values, strictly: what two readers could understand differently is refused.

Every refusal is a 400 of the code `malformed`, with the place in the document and the limit in its sentence.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NoReturn, TypeVar

import msgspec

from deborgen_shared.errors import Code, Refusal

MAX_DEPTH = 64
MAX_DIGITS = 20

T = TypeVar("T")


def malformed(message: str, hint: str = "") -> Refusal:
    return Refusal(Code.MALFORMED, message, hint)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise malformed(f"The body has the key {key[:100]!r} twice in one object.")
            seen.add(key)
    return found


def _constant(name: str) -> NoReturn:
    raise malformed(f"The body holds {name}, which is not a JSON number.")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise malformed(f"The body holds a whole number of more than {MAX_DIGITS} digits.")
    return int(digits)


def _decimal(digits: str) -> float:
    value = float(digits)
    if value - value != 0:
        raise malformed(f"The body holds {digits[:40]}, which is too large a number.")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer, parse_float=_decimal
)


def parse(body: bytes) -> Any:
    """The JSON value in the body."""
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise malformed(f"The body is not UTF-8: byte {problem.start} does not fit.") from None
    except RecursionError:
        raise malformed(f"The body nests deeper than {MAX_DEPTH} levels.") from None
    except ValueError as problem:
        raise malformed(f"The body is not JSON: {problem}.") from None
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH or b"\\u" in body:
        _walk(value)
    return value


def _walk(value: Any) -> None:
    """Refuse deep nesting, and text that no database or file can hold."""
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                check_text(item)
            elif isinstance(item, dict | list):
                if depth == MAX_DEPTH:
                    raise malformed(f"The body nests deeper than {MAX_DEPTH} levels.")
                below.extend(item)
                if isinstance(item, dict):
                    below.extend(item.values())
        level, depth = below, depth + 1


def check_text(text: str) -> None:
    if "\0" in text:
        raise malformed("The body holds a NUL character in a text.")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise malformed("The body holds half of a surrogate pair in a text.")


def convert(value: Any, kind: type[T]) -> T:
    """The value as the message it should be."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as problem:
        raise malformed(f"The body does not fit: {problem}.") from None


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
