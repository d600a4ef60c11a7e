"""A job file as text: decoding it, and finding the line and column of each part."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.problems import JobFileInvalid, Path, Problem

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_UNWANTED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def split_lines(text: str) -> list[str]:
    """The lines of a text, as the YAML parser counts them."""
    return _BREAK.split(text)


def decode(text: str | bytes, source: str) -> str:
    """Decode the text. Raises `JobFileInvalid` if it is too large, not UTF-8, or has control characters."""

    def refusal(message: str, hint: str) -> JobFileInvalid:
        return JobFileInvalid([Problem((), message, hint)], source)

    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if size > limits.DOCUMENT_BYTES:
        message = f"the file has {size:,} bytes, but the limit is {limits.DOCUMENT_BYTES:,}"
        raise refusal(message, "put data into 'files', and write long lists as ranges")
    if isinstance(text, bytes):
        if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise refusal("the file is UTF-16, not UTF-8", "save it as UTF-8")
        if b"\0" in text:
            raise refusal("the file is binary, not text", "is this the right file? A job file is YAML text")
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = f"byte 0x{error.object[error.start]:02x} on line {line} is not UTF-8"
            raise refusal(message, "save the file as UTF-8") from None
    text = text.removeprefix("\ufeff")
    if bad := _UNWANTED.search(text):
        before = split_lines(text[: bad.start()])
        message = f"the character U+{ord(bad[0]):04X} is not allowed in a job file"
        problem = Problem((), message, "remove it", line=len(before), column=len(before[-1]) + 1)
        raise JobFileInvalid([problem], source, split_lines(text))
    return text


class Node:
    """A part of the document and its position: the parser's marks, with index, line and column counted from 0.

    `size` is the number of nodes in it, including itself, and `depth` how deep they are nested. `block` is true for a
    mapping or list in block style, which is written without brackets.
    """

    __slots__ = ("block", "children", "depth", "end_mark", "keys", "size", "start_mark", "value")

    #: Scalars have neither children nor keys. There are many scalars, so they share this empty mapping.
    EMPTY: dict[Any, Node] = {}  # noqa: RUF012 - never written to

    def __init__(self, value: Any, event: Any, *, scalar: bool = False, block: bool = False) -> None:
        self.value = value
        self.start_mark, self.end_mark = event.start_mark, event.end_mark
        self.block = block
        self.children: dict[Any, Node] = Node.EMPTY if scalar else {}
        self.keys: dict[Any, Node] = Node.EMPTY if scalar else {}
        self.size = 1
        self.depth = 0


class Document:
    """A job file that was read: its plain data, and the position of every key and value."""

    def __init__(self, text: str, source: str, root: Node, problems: list[Problem]) -> None:
        self.source = source
        self.text = text
        self.lines = split_lines(text)
        self._starts = [0, *(found.end() for found in _BREAK.finditer(text))]
        self.data: Any = root.value
        self.problems = problems
        self._root = root

    def where(self, path: Path, *, key: bool = False, find: str = "", nth: int = 0) -> tuple[int, int, int]:
        """The line, the column and the width of the value at a path, or of its key. Lines and columns count from 1.

        If there is nothing at the path, the position is that of the nearest enclosing value. `find` narrows it to
        an occurrence of this text in the value: `nth` is its number, counted from 0.
        """
        node, key_node = self._root, None
        for part in path:
            if part not in node.children:
                key = False
                break
            key_node = node.keys.get(part)
            node = node.children[part]
        if find and not key:
            index = self._occurrence(find, nth, node.start_mark.index, node.end_mark.index)
            if index >= 0:
                line = bisect_right(self._starts, index)
                return line, index - self._starts[line - 1] + 1, len(split_lines(find)[0])
        # A block may be many lines long: point at its key instead.
        if key_node is not None and (key or (node.block and node.children)):
            node = key_node
        return self._span(node)

    def _occurrence(self, text: str, nth: int, start: int, end: int) -> int:
        """The index of an occurrence of a text between two indexes; -1 if there is none."""
        index = self.text.find(text, start, end)
        while index >= 0 and nth > 0:
            index, nth = self.text.find(text, index + len(text), end), nth - 1
        return index

    def locate(self, problem: Problem) -> Problem:
        """The problem with its line and column. A problem of the whole file gets neither."""
        if not problem.path and isinstance(self.data, dict):
            return problem
        return problem.at(*self.where(problem.path, key=problem.key, find=problem.find, nth=problem.nth))

    def _span(self, node: Node) -> tuple[int, int, int]:
        line, column = node.start_mark.line, node.start_mark.column
        text = self.lines[line] if line < len(self.lines) else ""
        stop = node.end_mark.column if node.end_mark.line == line else len(text.rstrip())
        return line + 1, column + 1, max(1, stop - column)
