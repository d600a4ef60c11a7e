"""Checks of single values. Each takes the value, its path and the list of problems, and gives what the spec holds.

What a check returns after it found a problem is never used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any

from deborgen_shared.jobfile.limits import INTEGER
from deborgen_shared.jobfile.problems import Path, Problem, did_you_mean, kind, path_text, show
from deborgen_shared.jobfile.template import OPEN, Scalar, text_of
from deborgen_shared.jobfile.units import format_duration, format_size, parse_duration, parse_size

Problems = list[Problem]
Check = Callable[[Any, Path, Problems], Any]

TEMPLATES_HINT = "it can stand in name, run, image, env, artifacts, result and build.tag"


def subject(path: Path) -> str:
    """The thing at a path as messages call it, without the step it is in: `'resources.memory'`."""
    if len(path) > 2 and path[0] == "steps":
        path = path[2:]
    return f"'{path_text(path)}'"


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
            hint = f'write "{text_of(value)}"' if is_scalar(value) else example and f"write for example {example}"
            wrong_kind(value, path, problems, "text", hint)
        elif not value.strip():
            problems.append(Problem(path, f"{subject(path)} is empty", example and f"write for example {example}"))
        elif len(value) > limit:
            problems.append(Problem(path, f"{subject(path)} has {len(value):,} characters, and the limit is {limit:,}"))
        elif (reason := unstorable(value)) is not None:
            problems.append(Problem(path, f"{subject(path)} {reason}"))
        elif not templates:
            no_templates(value, path, problems)
        return value

    return check


def no_templates(value: str, path: Path, problems: Problems) -> bool:
    """Whether nothing is looked up in a place where nothing can be."""
    if OPEN not in value:
        return True
    problems.append(Problem(path, f"{subject(path)} cannot use ${{{{ }}}}", TEMPLATES_HINT, find=OPEN))
    return False


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
        what = f"'{show(value)}'" if is_scalar(value) else kind(value)
        hint = did_you_mean(value, words, f"write {listed}") if isinstance(value, str) else f"write {listed}"
        problems.append(Problem(path, f"{subject(path)} must be {listed}, not {what}", hint))
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
    what = f"'{show(value)}'" if is_scalar(value) else kind(value)
    problems.append(Problem(path, f"{subject(path)} must be true or false, not {what}", hint))
    return False


def integer(least: int, most: int) -> Check:
    def check(value: Any, path: Path, problems: Problems) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            what = f"'{show(value)}'" if is_scalar(value) else kind(value)
            problems.append(
                Problem(path, f"{subject(path)} must be a whole number, not {what}", f"write {least:,} to {most:,}")
            )
        elif not least <= value <= most:
            problems.append(
                Problem(path, f"{subject(path)} is {show(value)}, out of range", f"write {least:,} to {most:,}")
            )
        return value

    return check


def number(least: float, most: float) -> Check:
    def check(value: Any, path: Path, problems: Problems) -> Any:
        hint = f"write {least:,g} to {most:,g}"
        if not is_number(value):
            what = f"'{show(value)}'" if is_scalar(value) else kind(value)
            problems.append(Problem(path, f"{subject(path)} must be a number, not {what}", hint))
        elif not least <= value <= most:
            problems.append(Problem(path, f"{subject(path)} is {show(value)}, out of range", hint))
        else:
            return float(value)
        return least

    return check


def duration(least: float, most: float) -> Check:
    def check(value: Any, path: Path, problems: Problems) -> Any:
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            problems.append(Problem(path, f"{subject(path)} is not a duration", str(error)))
            return least
        if not least <= seconds <= most:
            hint = f"write {format_duration(least)} to {format_duration(most)}"
            problems.append(Problem(path, f"{subject(path)} is {value}, out of range", hint))
        return seconds

    return check


def size(least: int, most: int) -> Check:
    def check(value: Any, path: Path, problems: Problems) -> Any:
        try:
            count = parse_size(value)
        except ValueError as error:
            problems.append(Problem(path, f"{subject(path)} is not a size", str(error)))
            return least
        if not least <= count <= most:
            hint = f"write {format_size(least)} to {format_size(most)}"
            problems.append(Problem(path, f"{subject(path)} is {value}, out of range", hint))
        return count

    return check


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
        problems.append(Problem(path, f"{subject(path)} is not a finite number"))
    elif isinstance(value, int):
        if INTEGER[0] <= value <= INTEGER[1]:
            return True
        problems.append(Problem(path, f"{subject(path)} does not fit in 64 bits", "put it in quotes to make it text"))
    elif value is None:
        problems.append(Problem(path, f"{subject(path)} is empty", 'write "" for an empty text'))
    else:
        wrong_kind(value, path, problems, "text, a number or a boolean")
    return False


def known_keys(value: Mapping[Any, Any], known: Iterable[str], path: Path, problems: Problems, place: str) -> None:
    """A problem for each key that is not known. `place` is the end of the sentence: ` in 'resources'`."""
    for key in value:
        if key not in known:
            unknown_key(key, known, path, problems, place)


def unknown_key(key: object, known: Iterable[str], path: Path, problems: Problems, place: str) -> None:
    listed = f"known keys: {', '.join(known)}" if place else ""
    hint = did_you_mean(key, known, listed)
    problems.append(Problem((*path, str(key)), f"unknown key '{show(key)}'{place}", hint, key=True))


def mapping(value: Any, path: Path, problems: Problems, example: str, limit: int | None = None) -> bool:
    """Whether the value is a mapping with names for keys, of at most `limit` entries."""
    if not isinstance(value, dict):
        wrong_kind(value, path, problems, "a mapping", f"write for example {example}")
        return False
    if limit is not None and len(value) > limit:
        problems.append(Problem(path, f"{subject(path)} has {len(value):,} entries, and the limit is {limit:,}"))
        return False
    return True


def sequence(value: Any, path: Path, problems: Problems, example: str, limit: int) -> bool:
    """Whether the value is a list of at most `limit` entries."""
    if not isinstance(value, list):
        hint = f"write [{show(value)}]" if isinstance(value, str) and value.strip() else f"write for example {example}"
        wrong_kind(value, path, problems, "a list", hint)
        return False
    if len(value) > limit:
        problems.append(Problem(path, f"{subject(path)} has {len(value):,} entries, and the limit is {limit:,}"))
        return False
    return True


def record(fields: Mapping[str, Check], example: str, required: tuple[str, ...] = ()) -> Check:
    """A mapping with these keys and no others; gives a dictionary of what was written."""

    def check(value: Any, path: Path, problems: Problems) -> Any:
        done: dict[str, Scalar] = {}
        if not mapping(value, path, problems, example):
            return done
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                unknown_key(key, fields, path, problems, f" in {subject(path)}")
            elif item is None:
                problems.append(empty(item, (*path, key)))
            else:
                done[key] = field(item, (*path, key), problems)
        for key in required:
            if key not in value:
                problems.append(Problem(path, f"{subject(path)} has no '{key}'", f"write for example {example}"))
        return done

    return check


def empty(_value: None, path: Path) -> Problem:
    return Problem(path, f"{subject(path)} is empty", "give it a value, or remove the line", key=True)
