"""Durations and sizes as people write them: `90s`, `1h30m`, `512MiB`. A number without a unit is refused."""

from __future__ import annotations

import re

from deborgen_shared.jobfile.limits import GIB, KIB, MIB, TIB

SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
BYTES = {"TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB}

DURATION_PATTERN = r"^(?=\d)(\d+(\.\d+)?d)?(\d+(\.\d+)?h)?(\d+(\.\d+)?m)?(\d+(\.\d+)?s)?$"
SIZE_PATTERN = r"^\d+(\.\d+)?[KMGT]iB$"

_DURATION = re.compile(r"(?=\d)" + "".join(rf"(?:(\d{{1,15}}(?:\.\d{{1,9}})?){unit})?" for unit in SECONDS), re.ASCII)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGT]iB)", re.ASCII)
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_LOOSE_DURATION = re.compile(
    _NUMBER + r"\s*(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)", re.ASCII | re.IGNORECASE
)
_LOOSE_SIZE = re.compile(_NUMBER + r"\s*([kmgt])i?(?:b|bytes?)?", re.ASCII | re.IGNORECASE)
_BARE = re.compile(_NUMBER, re.ASCII)


def parse_duration(text: object) -> float:
    """A duration in seconds. Any other text raises a ValueError that says what to write."""
    if isinstance(text, str) and (match := _DURATION.fullmatch(text)):
        return float(sum(float(n) * unit for n, unit in zip(match.groups(), SECONDS.values(), strict=True) if n))
    raise ValueError(f"write {_duration_like(text)} (units: s m h d)")


def parse_size(text: object) -> int:
    """A size in bytes. Any other text raises a ValueError that says what to write."""
    if isinstance(text, str) and (match := _SIZE.fullmatch(text)):
        return round(float(match[1]) * BYTES[match[2]])
    raise ValueError(f"write {_size_like(text)} (units: KiB MiB GiB TiB)")


def format_duration(seconds: float) -> str:
    """As people write it: `1h30m`, `0.5s`. It parses to the same number of seconds, rounded to a thousandth."""
    rest = round(seconds, 3)
    text = ""
    for unit, size in list(SECONDS.items())[:-1]:
        if rest >= size:
            text += f"{int(rest // size)}{unit}"
            rest = round(rest % size, 3)
    return text + f"{rest:.3f}".rstrip("0").rstrip(".") + "s" if rest or not text else text


def format_size(count: int) -> str:
    """As people write it: `8GiB`, `1.5GiB`, `512B`, rounded to one decimal."""
    for unit, size in BYTES.items():
        if count >= size:
            number = f"{count / size:.1f}"
            return number.removesuffix(".0") + unit
    return f"{count}B"


def _duration_like(value: object) -> str:
    """The most likely intended duration, spelt correctly; examples if it cannot be guessed."""
    text = _written(value)
    if _BARE.fullmatch(text):
        return f"{text}s, {text}m or {text}h"
    parts = re.split(r"(?:\s|,|\band\b)+(?=\d)", text)
    found = [match for part in parts if (match := _LOOSE_DURATION.fullmatch(part.strip()))]
    spelling = "".join(f"{match[1]}{match[2][0].lower()}" for match in found)
    if len(found) == len(parts) and _DURATION.fullmatch(spelling):
        return spelling
    return "for example 90s, 45m, 2h or 1h30m"


def _size_like(value: object) -> str:
    text = _written(value)
    if _BARE.fullmatch(text):
        return format_size(int(float(text))) if float(text) >= MIB else f"{text}MiB or {text}GiB"
    if match := _LOOSE_SIZE.fullmatch(text):
        return f"{match[1]}{match[2].upper()}iB"
    return "for example 512MiB or 8GiB"


def _written(value: object) -> str:
    """The value as written, if it is short enough to be a number with a wrong unit; otherwise an empty string."""
    if isinstance(value, str):
        return value.strip() if len(value) <= 60 else ""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) >= 1e15:
        return ""
    return str(value)
