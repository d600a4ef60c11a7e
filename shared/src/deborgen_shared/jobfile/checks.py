"""Checks of single values. Each takes the value, its path and the list of problems, and gives what the spec holds.

What a check returns after it found a problem is never used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from deborgen_shared.jobfile.limits import INTEGER
from deborgen_shared.jobfile.problems import Path, Problem, Problems, did_you_mean, kind, path_text, show
from deborgen_shared.jobfile.template import OPEN, references
from deborgen_shared.jobfile.units import format_duration, format_size, parse_duration, parse_size

Check = Callable[[Any, Path, Problems], Any]

TEMPLATES_HINT = "it works in name, run, image, env, artifacts, result and build.tag"


def subject(path: Path) -> str:
    """The thing at a path as messages call it, without the step it is in: `'resources.memory'`."""
    if len(path) > 2 and path[0] == "steps":
        path = path[2:]
    return f"'{path_text(path)}'"


def shown(value: object) -> str:
    """A value, or what it is: `'017'`, `a list`."""
    return f"'{show(value)}'" if isinstance(value, (str, int, float)) else kind(value)


def wrong_kind(value: object, path: Path, problems: Problems, wanted: str, hint: str = "") -> None:
    problems.append(Problem(path, f"{subject(path)} is {kind(value)}, and must be {wanted}", hint))


def is_scalar(value: object) -> bool:
    return isinstance(value, (str, int, float))


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def unstorable(text: str) -> str | None:
    """Why a text cannot be stored, as the end of a sentence, or None."""
    if "\0" in text:
        return "contains a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "is not valid Unicode"
    return None


def text(limit: int, *, templates: bool = False, example: str = "") -> Check:
    """Text of one character at least and `limit` at most."""

    def check(value: Any, path: Path, problems: Problems) -> Any:
        if not isinstance(value, str):
            hint = f'write "{show(value)}"' if is_scalar(value) else example and f"write for example {example}"
            wrong_kind(value, path, problems, "text", hint)
        elif not value.strip():
            problems.append(Problem(path, f"{subject(path)} is empty", example and f"write for example {example}"))
        elif len(value) > limit:
            problems.append(Problem(path, f"{subject(path)} has {len(value):,} characters, and the limit is {limit:,}"))
        elif (reason := unstorable(value)) is not None:
            problems.append(Problem(path, f"{subject(path)} {reason}"))
        elif not templates:
            template_refused(value, path, problems)
        return value

    return check


def template_refused(value: object, path: Path, problems: Problems) -> bool:
    """Whether something is looked up, in a place where nothing can be."""
    if not isinstance(value, str) or OPEN not in value:
        return False
    written = next(references(value))[0]
    problems.append(Problem(path, f"{subject(path)} cannot use ${{{{ }}}}", TEMPLATES_HINT, find=written))
    return True


def pattern(limit: int, shape: str, wanted: str, *, example: str) -> Check:
    """Text that a regular expression matches."""
    compiled = re.compile(shape)
    plain = text(limit, example=example)

    def check(value: Any, path: Path, problems: Problems) -> Any:
        before = len(problems)
        plain(value, path, problems)
        if len(problems) == before and not compiled.fullmatch(value):
            problems.append(
                Problem(path, f"{subject(path)} is not {wanted}: '{show(value)}'", f"write for example {example}")
            )
        return value

    return check


def choice(*words: str) -> Check:
    """One of a few words."""
    listed = " or ".join(words)

    def check(value: Any, path: Path, problems: Problems) -> Any:
        if isinstance(value, str) and value in words:
            return value
        if not template_refused(value, path, problems):
            hint = did_you_mean(value, words, f"write {listed}")
            problems.append(Problem(path, f"{subject(path)} must be {listed}, not {shown(value)}", hint))
        return words[0]

    return check


def boolean(value: Any, path: Path, problems: Problems) -> Any:
    if isinstance(value, bool):
        return value
    hint = "write true or false"
    if isinstance(value, str) and value.lower() in ("yes", "on", "y"):
        hint = "write true"
    elif isinstance(value, str) and value.lower() in ("no", "off", "n"):
        hint = "write false"
    problems.append(Problem(path, f"{subject(path)} must be true or false, not {shown(value)}", hint))
    return False


def integer(least: int, most: int) -> Check:
    hint = f"write {least:,} to {most:,}"

    def check(value: Any, path: Path, problems: Problems) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            if not least <= value <= most:
                problems.append(Problem(path, f"{subject(path)} is {show(value)}, out of range", hint))
        elif not template_refused(value, path, problems):
            problems.append(Problem(path, f"{subject(path)} must be a whole number, not {shown(value)}", hint))
        return value

    return check


def number(least: float, most: float) -> Check:
    hint = f"write {least:,g} to {most:,g}"

    def check(value: Any, path: Path, problems: Problems) -> Any:
        if is_number(value):
            if least <= value <= most:
                return float(value)
            problems.append(Problem(path, f"{subject(path)} is {show(value)}, out of range", hint))
        elif not template_refused(value, path, problems):
            problems.append(Problem(path, f"{subject(path)} must be a number, not {shown(value)}", hint))
        return least

    return check


def measure(
    what: str, read: Callable[[object], float], spell: Callable[[Any], str], least: float, most: float
) -> Check:
    """A number with a unit, as people write it."""
    hint = f"write {spell(least)} to {spell(most)}"

    def check(value: Any, path: Path, problems: Problems) -> Any:
        try:
            amount = read(value)
        except ValueError as error:
            if not template_refused(value, path, problems):
                problems.append(Problem(path, f"{subject(path)} is not {what}", str(error)))
            return least
        if not least <= amount <= most:
            problems.append(Problem(path, f"{subject(path)} is {show(value)}, out of range", hint))
        return amount

    return check


def duration(least: float, most: float) -> Check:
    return measure("a duration", parse_duration, format_duration, least, most)


def size(least: int, most: int) -> Check:
    return measure("a size", parse_size, format_size, least, most)


def scalar(value: Any, path: Path, problems: Problems, limit: int) -> bool:
    """Whether a value is text of at most `limit` characters, a finite number, or a boolean."""
    if isinstance(value, str):
        if len(value) > limit:
            problems.append(Problem(path, f"{subject(path)} has {len(value):,} characters, and the limit is {limit:,}"))
        elif (reason := unstorable(value)) is not None:
            problems.append(Problem(path, f"{subject(path)} {reason}"))
        else:
            return True
    elif isinstance(value, float):
        if isfinite(value):
            return True
        problems.append(Problem(path, f"{subject(path)} is not a finite number", "write a number that has an end"))
    elif isinstance(value, int):
        if INTEGER[0] <= value <= INTEGER[1]:
            return True
        problems.append(Problem(path, f"{subject(path)} does not fit in 64 bits", "put it in quotes to make it text"))
    elif value is None:
        problems.append(Problem(path, f"{subject(path)} is empty", 'write "" for empty text', key=True))
    else:
        wrong_kind(value, path, problems, "text, a number or a boolean", "write one value")
    return False
