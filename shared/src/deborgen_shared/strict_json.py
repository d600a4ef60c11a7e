"""Strict JSON: refuses documents that two parsers could read differently, and values that no database can hold."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 64
MAX_DIGITS = 20


class Unreadable(ValueError):
    """What is wrong with the bytes. The message completes a sentence that begins with their name, like "The body"."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Unreadable(f"has the key {key[:100]!r} twice in one object")
            seen.add(key)
    return found


def _constant(name: str) -> NoReturn:
    raise Unreadable(f"contains {name}, which is not a JSON number")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise Unreadable(f"contains a whole number with more than {MAX_DIGITS} digits")
    return int(digits)


def _decimal(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Unreadable(f"contains the number {digits[:40]}, which is too large")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer, parse_float=_decimal
)


def parse(data: bytes, around: int = 0) -> Any:
    """Decode the bytes. `around` is the number of levels that will enclose the value when it is sent."""
    try:
        value = _DECODER.decode(data.decode("utf-8"))
    except Unreadable:
        raise
    except UnicodeDecodeError as problem:
        raise Unreadable(f"is not UTF-8: byte {problem.start} is not valid") from None
    except RecursionError:
        raise _too_deep(around) from None
    except ValueError as problem:
        raise Unreadable(f"is not JSON: {problem}") from None
    # Other data cannot be nested too deeply, and cannot contain text that has to be refused.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH - around or b"\\u" in data:
        _check_values(value, around)
    return value


def _too_deep(around: int) -> Unreadable:
    return Unreadable(f"nests deeper than {MAX_DEPTH - around} levels")


def _check_values(value: Any, around: int) -> None:
    """Refuse deep nesting, and text that no database or file can hold."""
    level, depth = [value], around
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, dict | list):
                if depth >= MAX_DEPTH:
                    raise _too_deep(around)
                below.extend(item)
                if isinstance(item, dict):
                    below.extend(item.values())
        level, depth = below, depth + 1


def _check_text(text: str) -> None:
    if "\0" in text:
        raise Unreadable("contains a NUL character")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Unreadable("contains half of a surrogate pair")
