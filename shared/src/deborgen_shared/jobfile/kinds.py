"""Kinds of single values. Each kind is defined once, as a check together with its JSON Schema.

A check takes the value, its path and the list of problems, and returns the value for the spec. If it found a problem,
its return value is never used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from deborgen_shared.jobfile import units
from deborgen_shared.jobfile.limits import INTEGER
from deborgen_shared.jobfile.problems import Path, Problems, did_you_mean, kind, show
from deborgen_shared.jobfile.template import OPEN, references

Check = Callable[[Any, Path, Problems], Any]
Shape = dict[str, Any]

#: Text with at least one visible character, and without NUL.
VISIBLE_TEXT = r"^\s*[^\s\u0000][^\u0000]*$"
NO_NUL = r"^[^\u0000]*$"

TEMPLATES_HINT = "it can be used only in name, run, image, env, artifacts, result, repeat.until and build.tag"


class ValueKind(NamedTuple):
    """What a value may be: `check` is for the parser, `shape` (JSON Schema) for editors and clients."""

    check: Check
    shape: Shape


def shaped(shape: Shape) -> Callable[[Check], ValueKind]:
    """Decorator: turns a check into a kind with this JSON Schema."""
    return lambda check: ValueKind(check, shape)


def text_shape(limit: int) -> Shape:
    return {"type": "string", "minLength": 1, "maxLength": limit, "pattern": VISIBLE_TEXT}


def scalar_shape(limit: int) -> Shape:
    text = {"type": "string", "maxLength": limit, "pattern": NO_NUL}
    return {"anyOf": [text, {"type": "number"}, {"type": "boolean"}]}


def describe(value: object) -> str:
    """What a message calls a value: `'017'` for a scalar, otherwise its type, such as `a list`."""
    return f"'{show(value)}'" if isinstance(value, (str, int, float)) else kind(value)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def unstorable(text: str) -> str | None:
    """Why a text cannot be stored, as the end of a sentence; None if it can."""
    if "\0" in text:
        return "contains a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "is not valid Unicode"
    return None


def check_storable(value: str, path: Path, problems: Problems, limit: int) -> bool:
    """Whether a text can be stored and has at most `limit` characters. If not, add a problem."""
    if problems.exceeds(path, len(value), limit, "characters"):
        return False
    if (reason := unstorable(value)) is not None:
        problems.about(path, reason)
    return reason is None


def text(limit: int, example: str, *, templates: bool = False) -> ValueKind:
    """Text of 1 to `limit` characters."""

    def check(value: Any, path: Path, problems: Problems) -> Any:
        hint = f"write for example {example}"
        if not isinstance(value, str):
            hint = f'write "{show(value)}"' if isinstance(value, (int, float)) else hint
            problems.wrong_kind(value, path, "text", hint)
        elif not value.strip():
            problems.about(path, "is empty", hint)
        elif check_storable(value, path, problems, limit) and not templates:
            refuse_template(value, path, problems)
        return value

    return ValueKind(check, text_shape(limit))


def refuse_template(value: object, path: Path, problems: Problems) -> bool:
    """Add a problem if a value contains ${{ }}, in a place where that is not allowed. Returns whether it does."""
    if not isinstance(value, str) or OPEN not in value:
        return False
    written = next(references(value))[0]
    problems.about(path, "cannot use ${{ }}", TEMPLATES_HINT, find=written)
    return True


def pattern(limit: int, regex: str, wanted: str, example: str) -> ValueKind:
    """Text that a regular expression matches. `wanted` is what messages call such a text."""
    compiled = re.compile(regex)
    plain = text(limit, example)

    def check(value: Any, path: Path, problems: Problems) -> Any:
        before = len(problems)
        plain.check(value, path, problems)
        if len(problems) == before and not compiled.fullmatch(value):
            problems.about(path, f"is not {wanted}: '{show(value)}'", f"write for example {example}")
        return value

    return ValueKind(check, {"type": "string", "maxLength": limit, "pattern": f"^{regex}$"})


def choice(*words: str) -> ValueKind:
    """One of a few words."""
    listed = " or ".join(words)

    def check(value: Any, path: Path, problems: Problems) -> Any:
        if not (isinstance(value, str) and value in words) and not refuse_template(value, path, problems):
            hint = did_you_mean(value, words, f"write {listed}")
            problems.about(path, f"must be {listed}, not {describe(value)}", hint)
        return value

    return ValueKind(check, {"enum": list(words)})


@shaped({"type": "boolean"})
def boolean(value: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(value, bool):
        hint = "write true or false"
        if isinstance(value, str) and value.lower() in ("yes", "on", "y"):
            hint = "write true"
        elif isinstance(value, str) and value.lower() in ("no", "off", "n"):
            hint = "write false"
        problems.about(path, f"must be true or false, not {describe(value)}", hint)
    return value


def number(least: float, most: float, *, whole: bool = False) -> ValueKind:
    wanted = "a whole number" if whole else "a number"
    hint = f"write {wanted} from {least:,g} to {most:,g}"

    def check(value: Any, path: Path, problems: Problems) -> Any:
        if not is_number(value) or (whole and isinstance(value, float)):
            if not refuse_template(value, path, problems):
                problems.about(path, f"must be {wanted}, not {describe(value)}", hint)
        elif not least <= value <= most:
            problems.about(path, f"is {show(value)}, which is out of range", hint)
        else:
            return value if whole else float(value)
        return least

    return ValueKind(check, {"type": "integer" if whole else "number", "minimum": least, "maximum": most})


def measure(
    what: str, read: Callable[[object], float], spell: Callable[[Any], str], least: float, most: float
) -> Check:
    """A number with a unit, as people write it. `what` is what messages call it."""
    hint = f"write {what} from {spell(least)} to {spell(most)}"

    def check(value: Any, path: Path, problems: Problems) -> Any:
        try:
            amount = read(value)
        except ValueError as error:
            if not refuse_template(value, path, problems):
                problems.about(path, f"is not {what}", str(error))
            return least
        if not least <= amount <= most:
            problems.about(path, f"is {show(value)}, which is out of range", hint)
        return amount

    return check


def duration(least: float, most: float) -> ValueKind:
    shape = {
        "type": "string",
        "pattern": units.DURATION_PATTERN,
        "description": "A duration: 90s, 45m, 2h, 3d or 1h30m.",
        "examples": ["90s", "45m", "2h", "1h30m"],
    }
    return ValueKind(measure("a duration", units.parse_duration, units.format_duration, least, most), shape)


def size(least: int, most: int) -> ValueKind:
    shape = {
        "type": "string",
        "pattern": units.SIZE_PATTERN,
        "description": "A size: 512MiB, 8GiB.",
        "examples": ["512MiB", "8GiB"],
    }
    return ValueKind(measure("a size", units.parse_size, units.format_size, least, most), shape)


def check_scalar(value: Any, path: Path, problems: Problems, limit: int) -> bool:
    """Whether a value is text of at most `limit` characters, a finite number, or a boolean. If not, add a problem."""
    if isinstance(value, str):
        # Fast path: a sweep may have many texts, and nearly all are plain.
        plain = len(value) <= limit and value.isascii() and "\0" not in value
        return plain or check_storable(value, path, problems, limit)
    if isinstance(value, float):
        if isfinite(value):
            return True
        problems.about(path, "is not a finite number", "write a number other than .inf and .nan")
    elif isinstance(value, int):
        if INTEGER[0] <= value <= INTEGER[1]:
            return True
        problems.about(path, "does not fit in 64 bits", "put it in quotes to make it text")
    elif value is None:
        problems.about(path, "is empty", 'write "" for empty text', key=True)
    else:
        problems.wrong_kind(value, path, "text, a number or a boolean", "write one value")
    return False
