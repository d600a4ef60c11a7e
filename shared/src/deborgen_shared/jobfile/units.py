"""Durations and sizes as people write them: `90s`, `1h30m`, `512MiB`. A bare number has no unit, and is refused."""

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
    """Seconds. What is not a duration raises ValueError with the spelling to use."""
    if isinstance(text, str) and (match := _DURATION.fullmatch(text)):
        return float(sum(float(n) * unit for n, unit in zip(match.groups(), SECONDS.values(), strict=True) if n))
    raise ValueError(_duration_hint(text))


def parse_size(text: object) -> int:
    """Bytes. What is not a size raises ValueError with the spelling to use."""
    if isinstance(text, str) and (match := _SIZE.fullmatch(text)):
        return round(float(match[1]) * BYTES[match[2]])
    raise ValueError(_size_hint(text))


def format_duration(seconds: float) -> str:
    """As people write it: `1h30m`, `0.5s`. It parses to the same number of seconds, to a thousandth."""
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


def _duration_hint(value: object) -> str:
    units = "(units: s m h d)"
    text = _written(value)
    if text is None:
        return f"write for example 90s, 45m, 2h or 1h30m {units}"
    if _BARE.fullmatch(text):
        return f"write {text}s, {text}m or {text}h {units}"
    parts = re.split(r"(?:\s|,|\band\b)+(?=\d)", text)
    found = [_LOOSE_DURATION.fullmatch(part.strip()) for part in parts]
    if all(found):
        spelling = "".join(f"{m[1]}{m[2][0].lower()}" for m in found if m)
        if _DURATION.fullmatch(spelling):
            return f"write {spelling} {units}"
    return f"write for example 90s, 45m, 2h or 1h30m {units}"


def _size_hint(value: object) -> str:
    units = "(units: KiB MiB GiB TiB)"
    text = _written(value)
    if text is None:
        return f"write for example 512MiB or 8GiB {units}"
    if _BARE.fullmatch(text):
        number = float(text)
        if number >= MIB:
            return f"write {format_size(int(number))} {units}"
        return f"write {text}MiB or {text}GiB {units}"
    if match := _LOOSE_SIZE.fullmatch(text):
        return f"write {match[1]}{match[2].upper()}iB {units}"
    return f"write for example 512MiB or 8GiB {units}"


def _written(value: object) -> str | None:
    """What was written, when it is short enough to be a measure with a wrong unit."""
    if isinstance(value, str):
        return value.strip() if len(value) <= 60 else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) >= 1e15:
        return None
    return str(value)
