"""The problems of a job file: where each one is, what is wrong, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from unicodedata import east_asian_width

from deborgen_shared.terminal import inert

Path = tuple[str | int, ...]

#: A problem shows this many characters of a line, if the line is longer than that by more than `SHOWN_ANYWAY`.
SHOWN, SHOWN_ANYWAY = 100, 20
#: A message shows at most this many characters of a value.
SHOWN_OF_VALUE = 60
#: The check stops after this many problems.
LIMIT = 100
#: Do not search for a similar word if the known words together are longer than this many characters.
SEARCHED_CHARACTERS = 10_000
_KINDS = {type(None): "empty", bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list"}


def path_text(path: Path) -> str:
    """The path as people write it: `steps[1].run`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{str(part)[:100]}" if text else str(part)[:100]
    return text


def subject(path: Path) -> str:
    """What messages call the value at a path, without its step: `'resources.memory'`."""
    if len(path) > 2 and path[0] == "steps":
        path = path[2:]
    return f"'{path_text(path)}'"


@dataclass(frozen=True)
class Problem:
    """One mistake. `path` is its place in the document. `line` and `column` are its place in the text, counted from 1.

    `key` is true if the key itself is wrong, not its value. `find` is the offending piece of a longer text. `nth` says
    which of its occurrences, counted from 0.
    """

    path: Path
    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None
    width: int = 1
    key: bool = False
    find: str = ""
    nth: int = 0

    @property
    def path_text(self) -> str:
        return path_text(self.path)

    def at(self, line: int, column: int, width: int) -> Problem:
        return replace(self, line=line, column=column, width=width)

    def render(self, source_name: str, lines: Sequence[str]) -> str:
        """The problem as a person reads it: the place, the line, carets under the wrong part, and the hint."""
        source_name = inert(source_name)
        if self.line is None or self.column is None:
            place = f"{source_name}: {self.path_text}" if self.path else source_name
            return f"{place}: {self.message}" + (f"\n   | {self.hint}" if self.hint else "")
        head = f"{source_name}:{self.line}:{self.column}: {self.message}"
        text = lines[self.line - 1] if self.line <= len(lines) else ""
        if not text.strip():
            return head + (f"\n   | {self.hint}" if self.hint else "")
        before, wrong, after = _window(text, self.column - 1, self.width)
        margin = max(3, len(str(self.line)))
        pad, carets = " " * _cells(before), "^" * max(1, _cells(wrong))
        shown = f"{self.line:>{margin}}| {before}{wrong}{after}"
        return f"{head}\n{shown}\n{'':>{margin}}| {pad}{carets} {self.hint}".rstrip()


class TooManyProblems(Exception):
    """There are more problems than anybody would read."""


class Problems(list[Problem]):
    """The problems found so far. At the limit the check stops: a hostile file must not cost more than a good one."""

    def append(self, problem: Problem) -> None:
        super().append(problem)
        if len(self) >= LIMIT:
            raise TooManyProblems

    def add(self, path: Path, message: str, hint: str = "", *, key: bool = False, find: str = "") -> None:
        self.append(Problem(path, message, hint, key=key, find=find))

    def about(
        self, path: Path, message: str, hint: str = "", *, noun: str = "", key: bool = False, find: str = ""
    ) -> None:
        """Add a problem whose message starts with the value's name: `'seed' is empty` or `the axis 'seed' is empty`."""
        named = f"the {noun} {subject(path)}" if noun else subject(path)
        self.add(path, f"{named} {message}", hint, key=key, find=find)

    def wrong_kind(self, value: object, path: Path, wanted: str, hint: str = "") -> None:
        self.about(path, f"must be {wanted}, not {kind(value)}", hint)

    def exceeds(self, path: Path, count: int, limit: int, what: str = "entries") -> bool:
        """Add a problem if there are more entries than the limit. Returns whether there are."""
        if count > limit:
            self.about(path, f"has {count:,} {what}, but the limit is {limit:,}")
        return count > limit


class JobFileInvalid(Exception):
    """An invalid job file, with all its problems in the order of the file."""

    def __init__(self, problems: Iterable[Problem], source: str = "job.yml", lines: Sequence[str] = ()) -> None:
        self.problems = sorted(problems, key=lambda p: (p.line or 0, p.column or 0))
        self.source = source
        self.lines = lines
        super().__init__("; ".join(f"{p.path_text}: {p.message}" if p.path else p.message for p in self.problems))

    def render(self, outcome: str = "nothing was submitted") -> str:
        """All problems as a person reads them, and a last line with their number and the consequence."""
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        if len(self.problems) >= LIMIT:
            count = f"{LIMIT} problems or more"
        return "\n".join([*(p.render(self.source, self.lines) for p in self.problems), f"{count}, {outcome}."])


def differ_in_case(one: str, other: str) -> str:
    return f"'{one}' and '{other}' differ only in case"


def did_you_mean(word: object, known: Iterable[str], otherwise: str = "") -> str:
    """A hint with the most similar known word; `otherwise` if none is similar, or if there are too many to compare."""
    names = {name.lower(): name for name in known}
    if sum(map(len, names)) > SEARCHED_CHARACTERS:
        return otherwise
    near = get_close_matches(str(word)[:100].lower(), names, n=1, cutoff=0.6)
    return f"did you mean '{names[near[0]]}'?" if near else otherwise


def show(value: object) -> str:
    """A value in a message: short, on one line, and harmless on a terminal."""
    if isinstance(value, str):
        text = value
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 256):
        text = repr(value)
    else:
        text = "a number with too many digits" if isinstance(value, int) else kind(value)
    text = inert(text[: SHOWN_OF_VALUE + 1])
    return text if len(text) <= SHOWN_OF_VALUE else text[: SHOWN_OF_VALUE - 3] + "..."


def kind(value: object) -> str:
    """The type of a value, in words: `a list`, `a number`."""
    return _KINDS.get(type(value), "a mapping")


def _window(text: str, column: int, width: int) -> tuple[str, str, str]:
    """What is before the wrong part of a line, that part, and what is after it. A long line is cut on both sides."""
    start, end = 0, len(text)
    if end > SHOWN + SHOWN_ANYWAY:
        start = max(0, min(column - SHOWN // 2, end - SHOWN))
        end = start + SHOWN
    stop = max(column + 1, min(column + width, end))
    lead, tail = "..." if start else "", "..." if end < len(text) else ""
    return lead + inert(text[start:column]), inert(text[column:stop]), inert(text[stop:end]) + tail


def _cells(text: str) -> int:
    """How many cells the text occupies on a terminal."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)
