"""Globs: checks a pattern, and matches paths with it."""

from __future__ import annotations

import re

#: Each wildcard becomes one or more positions of the pattern. The list says what each position matches. The bits mark
#: positions that repeat: they match any number of characters, even none. So `**` matches at least one character. `**/`
#: matches any number of folders, even none, each with its slash. Its first position matches no character: from there,
#: all three positions can be skipped.
WILD = {"*": (["?"], 0b1), "**": (["**", "**"], 0b10), "**/": (["", "**", "/"], 0b11)}
#: A wildcard, a class such as `[a-z]` (it ends at the first `]` and has no slash), or any other character.
_PIECE = re.compile(r"\*\*/|\*\*|\[[^]/]*\]|.", re.DOTALL)
#: `**/` several times in a row means the same as once.
_FOLDERS = re.compile(r"(?:\*\*/)+")


def check_glob(pattern: str) -> tuple[str, str] | None:
    """What is wrong with a pattern, as the end of a sentence, and what to write instead; None if it is valid.

    A wrong pattern can still be used: an empty class, or a range that runs backwards, matches nothing.
    """
    for piece in _PIECE.findall(pattern):
        if piece == "[":
            return "has a '[' that is never closed", "write [[] for the character ["
        if len(piece) == 1 or not piece.startswith("["):
            continue
        _, ranges = _members(piece)
        if not ranges:
            return f"has the empty class '{piece}'", "write the characters between the brackets, for example [a-z]"
        for first, last in ranges:
            if first > last:
                return f"has the range '{first}-{last}', which runs backwards", f"write {last}-{first}"
    return None


class Glob:
    """A pattern for whole paths: `*` and `?` stay within a name, `**` crosses folders, `dir/` means all files below it.

    The plain name of a folder also means all files below it. People write the patterns and jobs choose the paths, so
    matching must not backtrack. All ways to match are followed at once, with one bit per position in the pattern. The
    work is at most the length of the pattern times the length of the path.
    """

    def __init__(self, pattern: str) -> None:
        pattern = _FOLDERS.sub("**/", pattern.removeprefix("./"))
        if pattern.endswith("/"):
            pattern += "**"
        #: What each position matches, with one bit per position that repeats, and per position where a `**/` begins.
        self._takes: list[str] = []
        self._repeated = self._folders = 0
        for piece in _PIECE.findall(pattern):
            here = len(self._takes)
            takes, repeated = WILD.get(piece, ([piece], 0))
            self._takes += takes
            self._repeated |= repeated << here
            self._folders |= (piece == "**/") << here
        self._end = 1 << len(self._takes)
        #: For each character met so far: one bit per position that matches it.
        self._takers: dict[str, int] = {}

    def matches(self, path: str) -> bool:
        positions = self._with_skips(1)
        for letter in path:
            if letter == "/" and positions & self._end:
                return True  # the pattern names a folder that contains this path
            if letter not in self._takers:
                takers = [1 << at for at, what in enumerate(self._takes) if _can_take(what, letter)]
                self._takers[letter] = sum(takers)
            taken = positions & self._takers[letter]
            positions = self._with_skips((taken & ~self._repeated) << 1 | taken & self._repeated)
            if not positions:
                return False
        return bool(positions & self._end)

    def _with_skips(self, positions: int) -> int:
        """These positions, and the positions that can be reached from them without a character."""
        before = 0
        while before != positions:
            before = positions
            positions |= (positions & self._repeated) << 1 | (positions & self._folders) << 3
        return positions


def _can_take(what: str, letter: str) -> bool:
    """Whether a position that matches `what` matches this character."""
    if what == "**" or "/" in (what, letter):
        return what in ("**", letter)
    if len(what) > 1:
        negated, ranges = _members(what)
        return negated != any(first <= letter <= last for first, last in ranges)
    return what in ("?", letter)


def _members(piece: str) -> tuple[bool, list[tuple[str, str]]]:
    """Whether a class such as `[!a-z_]` means all other characters, and its ranges of characters."""
    negated, body = piece[1] in "!^", piece[1:-1]
    body = body[negated:]
    ranges, at = [], 0
    while at < len(body):
        width = 3 if body[at + 1 : at + 2] == "-" and at + 2 < len(body) else 1
        ranges.append((body[at], body[at + width - 1]))
        at += width
    return negated, ranges
