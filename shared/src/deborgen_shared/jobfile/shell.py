"""Finds lookups that stand where the shell would read their value as code, for example inside quotes.

Each value is inserted with quotes around it. Inside other quotes, these would end the outer ones, and the rest of the
value would be a command. The scan follows the quotes and brackets of the script from left to right, once, as bash does.
It may refuse a lookup that is harmless, but it never allows one in quotes, in a here-document, or in arithmetic.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from deborgen_shared.jobfile.problems import show
from deborgen_shared.jobfile.template import LOOKUP, OPEN

_UNQUOTE = "take it out of the quotes"
#: Where a lookup is refused: the piece before it or around it, what messages call that place, and what to do instead.
#: If the latter is empty, the hint is to use a variable.
PLACES = {
    '"': ("in double quotes", _UNQUOTE),
    '"${': ("in double quotes", _UNQUOTE),
    "'": ("in single quotes", _UNQUOTE),
    "$'": ("in single quotes", _UNQUOTE),
    "`": ("in backquotes", "write $(...) instead of the backquotes"),
    "<<": ("in a here-document", ""),
    "#": ("in a comment", "remove it"),
    "((": ("in arithmetic", ""),
    "(((": ("in arithmetic", ""),
    "$[": ("in arithmetic", ""),
    "${": ("in ${...}", ""),
    "[": ("in square brackets", ""),
    "\\": ("after a backslash", "remove the backslash"),
    "$": ("after a dollar sign", "remove the dollar sign"),
    "": ("in a script with a quote or bracket that is not closed, or is ambiguous", ""),
}
#: A place where the shell reads a lookup as plain words; and the place of a lookup in a script that may be ambiguous.
ALLOWED, UNCLEAR = "(", ""

#: A lookup, with the character before it if that changes its meaning; or a piece that changes how the rest is read. A
#: `#` inside a word does not begin a comment.
_PIECE = re.compile(
    rf"(?P<before>[\\$]?)(?P<lookup>{LOOKUP.pattern})"
    r"|\\.|\$\$|\$\(\(|\$[({\['\"]|<<<|<<-?|\(\(|(?<![^ \t\n;&|<>()])\#|['\"`()[}\]\n]",
    re.DOTALL,
)
#: The word after `<<`, which ends a here-document.
_DELIMITER = re.compile(
    rf"[ \t]*((?:[\\$]?{LOOKUP.pattern}|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^ \t\n;&|<>()'\"\\])*)", re.DOTALL
)
#: Pieces that begin a text in which nothing else has a meaning: the pattern of that text, and what ends it.
_SKIPPED = {
    "'": (re.compile(r"[^']*"), "'"),
    "$'": (re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL), "'"),
    "`": (re.compile(r"[^`\\]*(?:\\.[^`\\]*)*", re.DOTALL), "`"),
    "#": (re.compile(r"[^\n]*"), ""),
}
_CLOSING = {"(": ")", "((": ")", "(((": ")", "${": "}", '"${': "}", "$[": "]", "[": "]", '"': '"'}
#: The pieces that have a meaning even in double quotes.
_EXPANSIONS = {'"', '$"', "`", "$((", "$(", "${", "$["}
#: Which pieces have a meaning inside each of these. Everywhere else, all pieces do.
_MEANT = {
    '"': _EXPANSIONS,
    "${": {*_EXPANSIONS, "'", "$'", "}"},
    '"${': {*_EXPANSIONS, "}"},  # in double quotes an apostrophe is a plain character: "${name:-it's}"
    "((": {*_EXPANSIONS, "'", "$'", "((", "(", ")"},
    "(((": {*_EXPANSIONS, "'", "$'", "((", "(", ")"},
    "$[": {*_EXPANSIONS, "'", "$'", "((", "[", "]"},
}


class PlacedLookup(NamedTuple):
    """A lookup as it is written, its name, how often the same text stands before it, and its place in `PLACES`."""

    written: str
    name: str
    nth: int
    place: str

    def explain(self) -> tuple[str, str]:
        """What is wrong, and what to write instead."""
        where, instead = PLACES[self.place]
        message = f"{show(self.written)} stands {where}, where its value could run as a command"
        variable = _variable(self.name)
        if variable and self.place not in ("#", "\\", "$"):
            used = f"write ${variable}" + (" in double quotes" if self.place in ("'", "$'") else "")
            instead = f"{instead}, or {used}" if instead else used
        return message, instead or f"write x={show(self.written)} on a line before it, and $x here"


def find_misplaced(script: str) -> Iterator[PlacedLookup]:
    """The lookups of a script that the shell would not read as plain words, in their order."""
    count = sum(1 for _ in LOOKUP.finditer(script))
    if count and count == script.count(OPEN):  # a malformed lookup is a problem of its own
        scan = _Scan(script)
        last = None
        for last in scan.lookups():
            if last.place != ALLOWED:
                yield last
        if last is not None and last.place == ALLOWED and not scan.clear:
            yield last._replace(place=UNCLEAR)


def _variable(name: str) -> str:
    """The variable in which the program finds the same value; empty if there is none."""
    if "." in name:
        return "DEBORGEN_JOB_ID" if name == "job.id" else ""
    return "DEBORGEN_ATTEMPT" if name == "attempt" else f"DEBORGEN_PARAM_{name.upper()}"


class _Scan:
    """Reads a script piece by piece, and knows what is open."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0
        #: The quotes and brackets that are open, innermost last.
        self._open: list[str] = []
        #: The here-documents that begin after this line: the word that ends each, as written, and whether tabs may
        #: precede it.
        self._documents: list[tuple[str, bool]] = []
        #: Text at this index continues a word, because the character before it is escaped.
        self._joined = -1
        self._seen: Counter[str] = Counter()
        self._sure = True

    @property
    def clear(self) -> bool:
        """Whether every quote and bracket is closed, and all shells read the script in the same way."""
        return self._sure and not self._open

    def lookups(self) -> Iterator[PlacedLookup]:
        """Every lookup, also those in an allowed place."""
        while piece := _PIECE.search(self._script, self._at):
            self._at = piece.end()
            if piece["lookup"]:
                yield self._found(piece["lookup"], piece["before"] or self._inner)
            elif piece[0][0] == "\\":
                self._note_escape(piece.start())
            elif piece[0] == "#" and piece.start() == self._joined:
                continue
            elif self._inner not in _MEANT or piece[0] in _MEANT[self._inner]:
                yield from self._follow(piece[0].replace('$"', '"'))

    @property
    def _inner(self) -> str:
        """The innermost open quote or bracket. Outside of all of them, it is as if in round brackets."""
        return self._open[-1] if self._open else "("

    def _follow(self, piece: str) -> Iterator[PlacedLookup]:
        """Open or close what a piece opens or closes. Yields the lookups in text that is skipped."""
        while piece in (")", "\n") and self._inner == "[":  # it was a plain character
            self._open.pop()
        inner = self._inner
        # Not every shell knows `$[`. Whether a `[` is a plain character is known only at the end of the line. What `#`
        # means after a bracket depends on the kind of bracket. Arithmetic ends with both brackets at once.
        self._sure &= piece != "$[" and not (inner == "[" and piece in ("#", "<<", "<<-"))
        self._sure &= not (piece == ")" and self._script.startswith("#", self._at))
        self._sure &= not (piece == ")" and inner == "(((" and self._script[self._at - 2] != ")")
        if self._open and piece == _CLOSING[inner]:
            self._open.pop()
        elif piece in _SKIPPED:
            yield from self._skip(piece)
        elif piece in ("$((", "(("):
            self._open += ["(((", "(("]
        elif piece == "${":
            self._open.append('"${' if inner.startswith('"') else "${")
        elif piece in ("$(", "$[", '"'):
            self._open.append(piece.replace("$(", "("))
        elif piece == "[" and self._is_index():
            self._open.append(inner if inner == "$[" else "[")
        elif piece == "(":
            self._open.append("(" if inner == "(" else "((")
        elif piece in ("<<", "<<-"):
            yield from self._announce_document(tabs=piece == "<<-")
        elif piece == "\n":
            yield from self._read_documents()

    def _note_escape(self, start: int) -> None:
        """Note that the text after an escape continues a word. The shell removes an escaped line break."""
        before = self._script[max(0, start - 1) : start]
        if self._script[start + 1] != "\n" or start == self._joined or before not in ("", *" \t\n;&|<>()"):
            self._joined = self._at

    def _is_index(self) -> bool:
        """Whether a square bracket is the beginning of an index, and not the command `[` or `[[`."""
        before, after = self._script[max(0, self._at - 2) : self._at - 1], self._script[self._at : self._at + 1]
        return self._inner != "(" or before.isalnum() or before == "_" or after not in ("", " ", "\t", "\n", "[")

    def _skip(self, piece: str) -> Iterator[PlacedLookup]:
        content, end = _SKIPPED[piece]
        text = content.match(self._script, self._at)
        assert text
        yield from self._inside(text[0], piece)
        self._sure &= self._script.startswith(end, text.end()) and not (piece == "$'" and "\\'" in text[0])
        self._at = text.end() + len(end)

    def _announce_document(self, *, tabs: bool) -> Iterator[PlacedLookup]:
        word = _DELIMITER.match(self._script, self._at)
        assert word
        self._at = word.end()
        yield from self._inside(word[1], "<<")
        self._sure &= "\n" not in word[1]
        self._documents.append((word[1], tabs))

    def _read_documents(self) -> Iterator[PlacedLookup]:
        for written, tabs in self._documents:
            word = re.sub(r"\\(.)|['\"]", r"\1", written)
            continued = False
            while self._at < len(self._script):
                end = self._script.find("\n", self._at) + 1 or len(self._script) + 1
                line, self._at = self._script[self._at : end - 1], end
                ended = (line.lstrip("\t") if tabs else line) == word
                self._sure &= not (ended and continued)
                if ended and not continued:
                    break
                yield from self._inside(line, "<<")
                # Unless its word is quoted, a here-document joins a line that ends with a backslash with the next one.
                continued = word == written and (len(line) - len(line.rstrip("\\"))) % 2 == 1
        self._documents.clear()

    def _inside(self, text: str, place: str) -> Iterator[PlacedLookup]:
        for lookup in LOOKUP.finditer(text):
            yield self._found(lookup[0], place)

    def _found(self, written: str, place: str) -> PlacedLookup:
        self._seen[written] += 1
        return PlacedLookup(written, str(LOOKUP.sub(r"\1", written)), self._seen[written] - 1, place)
