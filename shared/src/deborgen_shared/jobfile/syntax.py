"""Explains YAML syntax errors in plain words.

The parser reports what it found; the line itself shows what the author most likely meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from deborgen_shared.jobfile.problems import Problem, show

_KEY_WITHOUT_SPACE = re.compile(r"([A-Za-z_]+):(\S.*)")


def explain(error: Any, lines: Sequence[str]) -> Problem:
    """The parser's error as a problem at its position."""
    context = error.context_mark or error.problem_mark
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem((), f"this is not YAML: {show(str(error))}")
    # What PyYAML found wrong, and what it was doing then.
    said, doing = str(error.problem or ""), str(error.context or "")
    here = lines[mark.line] if mark.line < len(lines) else ""
    if re.match(r" *\t", here):
        return _at(mark.line, here.index("\t"), 1, "this line is indented with a tab", "indent with spaces")
    if "flow" in doing:
        return _flow(context, mark, "[" if "sequence" in doing else "{", lines)
    if "quoted" in doing and "end of stream" in said:
        return _at(context.line, context.column, 1, "this quote is never closed", "add a quote at its end")
    if "unknown escape" in said:
        column = here.rfind("\\", 0, mark.column + 1)
        message = f"{show(here[column : column + 2])} is not a valid escape in double quotes"
        return _at(mark.line, column, 2, message, "use single quotes, or a second backslash")
    if "alias" in doing or "anchor" in doing:
        return _must_be_quoted(context, lines)
    if "cannot start any token" in said:
        return _must_be_quoted(mark, lines)
    if "mapping values are not allowed" in said:
        return _colon(mark, lines)
    if "expected ':'" in said:
        return _no_colon(context.line, lines)
    if "block" in doing or "expected <document start>" in said:
        return _misfit(mark, lines)
    return _at(mark.line, mark.column, 1, f"this is not YAML: {show(f'{said} {doing}'.strip())}", "")


def missing_space(text: str) -> str | None:
    """A hint for a key whose colon is not followed by a space, which makes YAML read the line as one text."""
    match = _KEY_WITHOUT_SPACE.match(text)
    return f"write a space after the colon: {match[1]}: {show(match[2])}" if match else None


def _at(line: int, column: int, width: int, message: str, hint: str) -> Problem:
    return Problem((), message, hint, line + 1, column + 1, max(1, width))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _flow(opened: Any, mark: Any, bracket: str, lines: Sequence[str]) -> Problem:
    """A syntax error inside a list or mapping in brackets."""
    line = lines[mark.line] if mark.line < len(lines) else ""
    if line[max(0, mark.column - 1) : mark.column + 2] == "${{":
        end = line.find("}}", mark.column)
        written = line[mark.column - 1 : end + 2] if end > 0 else "${{"
        message = f"${{{{ }}}} must be in quotes inside {bracket}"
        return _at(mark.line, mark.column - 1, len(written), message, f'write "{show(written)}"')
    closing = "]" if bracket == "[" else "}"
    if mark.line > opened.line or not line[mark.column :].strip():
        return _at(opened.line, opened.column, 1, f"this {bracket} is never closed", f"add {closing} at its end")
    return _at(mark.line, mark.column, 1, f"a comma or {closing} is missing here", "separate the entries with commas")


def _must_be_quoted(mark: Any, lines: Sequence[str]) -> Problem:
    line = lines[mark.line] if mark.line < len(lines) else ""
    written = re.split(r"[],}]|\s#", line[mark.column :])[0].rstrip()
    message = f"a value that starts with {show(written[:1])} must be in quotes"
    return _at(mark.line, mark.column, len(written), message, f'write "{show(written)}"')


def _colon(mark: Any, lines: Sequence[str]) -> Problem:
    """A colon where no key is allowed: in a value, or on a line that continues the one above."""
    line = lines[mark.line]
    first = re.search(r":\s", line)
    if first and first.start() < mark.column:
        hint = "put the value in quotes, or write it under a |"
        return _at(mark.line, mark.column, 1, "a value with a colon and a space must be in quotes", hint)
    above = mark.line - 1
    while above > 0 and not lines[above].strip():
        above -= 1
    if above >= 0 and _indent(line) > _indent(lines[above]) and re.search(r":\s+\S", lines[above]):
        column = _indent(line)
        message = "this line is indented deeper than the one above, which already has a value"
        return _at(mark.line, column, mark.column - column, message, "indent it like the line above")
    return _no_colon(max(0, above), lines)


def _no_colon(line: int, lines: Sequence[str]) -> Problem:
    text = lines[line].strip() if line < len(lines) else ""
    column = _indent(lines[line]) if line < len(lines) else 0
    bare = text.removeprefix("- ")
    if hint := missing_space(bare):
        return _at(line, column, len(text), "there is no space after the colon", hint)
    key, _, value = bare.partition(" ")
    hint = f"write {show(key)}: {show(value.strip()) or '...'}"
    return _at(line, column, len(text), "this line has no colon after its key", hint)


def _misfit(mark: Any, lines: Sequence[str]) -> Problem:
    """A line, or the rest of a line, in the wrong place."""
    line = lines[mark.line] if mark.line < len(lines) else ""
    rest = len(line.rstrip()) - mark.column
    if mark.column > _indent(line):
        message = "the value ends before this text"
        return _at(mark.line, mark.column, rest, message, "put the whole value in quotes, or write it under a |")
    return _at(
        mark.line, mark.column, rest, "this line is not indented like the lines around it", "line it up with them"
    )
