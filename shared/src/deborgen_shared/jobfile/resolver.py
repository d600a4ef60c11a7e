"""Plain scalars by the rules of YAML 1.2: `1e-4` is a number, `no`, `22:00` and `017` are text."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
#: Longer digits are no number that anybody means; Python refuses to convert them too.
_LONGEST = 400


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a scalar that was written without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
