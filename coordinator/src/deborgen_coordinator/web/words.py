"""How pages write times, sizes and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from markupsafe import Markup, escape

from deborgen_shared.states import State
from deborgen_shared.terminal import inert, inert_lines

#: What happened, after a form was sent. The address names one of these, and how many: pages keep nothing else.
DONE = {
    "cancellation": ("1 job was canceled or is being stopped.", "{} jobs were canceled or are being stopped."),
    "retry": ("1 run was retried.", "{} runs were retried."),
    "revoked": ("The token was revoked.", "{} tokens were revoked."),
    "set": ("The secret is set.", "{} secrets are set."),
    "removed": ("The secret is removed.", "{} secrets are removed."),
    "steered": ("The machine was told.", "{} machines were told."),
}


def done(query: Mapping[str, str]) -> str:
    """The sentence about the form that was just sent; empty if there was none."""
    words, number = DONE.get(query.get("done", "")), query.get("n", "1")
    if words is None or not (number.isascii() and number.isdigit() and len(number) < 8):
        return ""
    return words[0] if int(number) == 1 else words[1].format(count(int(number)))


def count(number: int | None) -> str:
    """`12,345`"""
    return "" if number is None else f"{number:,}"


def plural(number: int, one: str, more: str = "") -> str:
    """`1 job`, `2 jobs`"""
    return f"{count(number)} {one if number == 1 else more or one + 's'}"


def duration(seconds: float | None) -> str:
    """`0.4 s`, `43 s`, `12 min`, `3 h 20 min`, `2 d 4 h`"""
    if seconds is None:
        return ""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min {whole % 60} s" if minutes < 10 and whole % 60 else f"{minutes} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def between(start: datetime | None, end: datetime | None) -> float | None:
    """The seconds from one moment to the other, or until now."""
    return None if start is None else ((end or datetime.now(UTC)) - start).total_seconds()


def ago(moment: datetime | None) -> str:
    """`12 s ago`, `3 h ago`"""
    if moment is None:
        return "never"
    seconds = between(moment, None) or 0.0
    if seconds < 1:
        return "now"
    return f"{duration(float(int(seconds))).split(' ')[0].split('.')[0]} {_unit(seconds)} ago"


def _unit(seconds: float) -> str:
    return "s" if seconds < 119.5 else "min" if seconds < 3600 else "h" if seconds < 48 * 3600 else "d"


def size(amount: int | None) -> str:
    """`12 B`, `3.4 MiB`"""
    if amount is None:
        return ""
    value, units = float(amount), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1023.5 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 99.5 else f"{value:.1f} {units[0]}"


def number(value: Any) -> str:
    """A number with at most four significant digits behind the point, or the text as it is."""
    if isinstance(value, bool) or not isinstance(value, float):
        return "" if value is None else value if isinstance(value, str) else compact(value)
    return f"{value:.6g}"


def compact(value: Any) -> str:
    """A value as JSON in one line."""
    return msgspec.json.encode(value).decode()


def indented(value: Any) -> str:
    """A value as JSON, for reading."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(state: str) -> bool:
    return State(state).terminal


def lines(text: str) -> Markup:
    """Text of several lines. Everything in it is shown, and does nothing."""
    return escape(inert_lines(text))


def finalize(value: Any) -> Any:
    """Every value that a template shows goes through here: no character in it can change how others are shown."""
    return inert(value) if isinstance(value, str) and not isinstance(value, Markup) else value


FILTERS: dict[str, Callable[..., Any]] = {
    "count": count, "plural": plural, "duration": duration, "ago": ago, "size": size, "number": number,
    "compact": compact, "lines": lines, "indented": indented, "iso": iso, "ended": ended,
}  # fmt: skip
GLOBALS: dict[str, Callable[..., Any]] = {"between": between, "done": done}
