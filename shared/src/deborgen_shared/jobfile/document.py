"""A document that was read: its plain data, and where each piece of it is in the text."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from deborgen_shared.jobfile.decoding import line_starts, split_lines
from deborgen_shared.jobfile.problems import Path, Problem


class Node:
    """A piece of the document and where it stands: marks of the parser, with index, line and column from 0."""

    __slots__ = ("block", "children", "depth", "end_mark", "keys", "size", "start_mark", "value")

    #: A scalar has none of either, and there are many of them.
    NONE: dict[Any, Node] = {}  # noqa: RUF012 - never written to

    def __init__(self, value: Any, event: Any, *, scalar: bool = False, block: bool = False) -> None:
        self.value = value
        self.start_mark, self.end_mark = event.start_mark, event.end_mark
        self.block = block
        self.children: dict[Any, Node] = Node.NONE if scalar else {}
        self.keys: dict[Any, Node] = Node.NONE if scalar else {}
        self.size = 1
        self.depth = 0


class Document:
    """A job file that was read: its plain data, and the place of every key and value in it."""

    def __init__(self, text: str, source: str, root: Node, problems: list[Problem]) -> None:
        self.source = source
        self.text = text
        self.lines = split_lines(text)
        self._starts = line_starts(text)
        self.data: Any = root.value
        self.problems = problems
        self._root = root

    def where(self, path: Path, *, key: bool = False, find: str = "", last: bool = False) -> tuple[int, int, int]:
        """Line and column, from 1, and width of the value at a path, or of its key.

        The place of what is not there is that of the nearest thing around it. `find` narrows it to a piece of the text.
        """
        node, name = self._root, None
        for part in path:
            if part not in node.children:
                key = False
                break
            name = node.keys.get(part)
            node = node.children[part]
        if find and not key:
            search = self.text.rfind if last else self.text.find
            index = search(find, node.start_mark.index, node.end_mark.index)
            if index >= 0:
                line = bisect_right(self._starts, index)
                return line, index - self._starts[line - 1] + 1, len(split_lines(find)[0])
        if name is not None and (key or (node.block and node.children)):
            node = name
        return self._span(node)

    def locate(self, problem: Problem) -> Problem:
        """The problem with its line and column. What is wrong with the file as a whole has none."""
        if not problem.path and isinstance(self.data, dict):
            return problem
        return problem.at(*self.where(problem.path, key=problem.key, find=problem.find, last=problem.last))

    def _span(self, node: Node) -> tuple[int, int, int]:
        line, column = node.start_mark.line, node.start_mark.column
        text = self.lines[line] if line < len(self.lines) else ""
        stop = node.end_mark.column if node.end_mark.line == line else len(text.rstrip())
        return line + 1, column + 1, max(1, stop - column)
