"""Loads the text of a job file: YAML, with the position of every key and value.

PyYAML only splits the text into events. This module builds the tree, interprets scalars and reports problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document, Node, decode, split_lines
from deborgen_shared.jobfile.problems import JobFileInvalid, Path, Problem, Problems, TooManyProblems, kind, show
from deborgen_shared.jobfile.syntax import explain

#: Mappings whose values are text. A number in them is kept as written, so that 3.10 stays 3.10.
_VERBATIM = ("env", "labels", "requires")

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
#: Text with more characters than this is not meant as a number, and Python may refuse to convert it.
_LONGEST_NUMBER = 400


def compose(text: str | bytes, source: str = "job.yml") -> Document:
    """Read the text. Text that is not YAML raises; smaller problems are stored in the document."""
    return _Composer(decode(text, source), source).document()


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a scalar without quotes, by the rules of YAML 1.2.

    `1e-4` is a number; `no`, `22:00` and `017` are text.
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Composer:
    """Builds the tree from the parser's events, down to the maximum depth of a job file."""

    def __init__(self, text: str, source: str) -> None:
        import yaml

        self.yaml: Any = yaml
        self.text = text
        self.source = source
        self.problems = Problems()
        self.anchors: dict[str, Node | None] = {}
        self.events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.depth = 0
        self.total = 0

    def document(self) -> Document:
        try:
            root = self._root()
        except self.yaml.MarkedYAMLError as error:
            raise self._refusal(explain(error, split_lines(self.text))) from None
        except TooManyProblems:
            raise JobFileInvalid(self.problems, self.source, split_lines(self.text)) from None
        except self.yaml.YAMLError as error:
            raise self._refusal(Problem((), f"the file is not YAML: {show(str(error))}")) from None
        if root is None:
            raise self._refusal(Problem((), "the job file is empty", "a complete job file is: run: echo hello"))
        return Document(self.text, self.source, root, self.problems)

    def _refusal(self, problem: Problem) -> JobFileInvalid:
        return JobFileInvalid([*self.problems, problem], self.source, split_lines(self.text))

    def _stop(self, event: Any, message: str, hint: str = "") -> JobFileInvalid:
        return self._refusal(self._problem(event, message, hint))

    def _problem(self, piece: Any, message: str, hint: str = "") -> Problem:
        """A problem at the position of an event or a node."""
        start, end = piece.start_mark, piece.end_mark
        width = end.column - start.column if end.line == start.line else 1
        return Problem((), message, hint, start.line + 1, start.column + 1, max(1, width))

    def _root(self) -> Node | None:
        root: Node | None = None
        for event in self.events:
            if isinstance(event, self.yaml.NodeEvent):
                root = self._read(event, ())
            elif isinstance(event, self.yaml.DocumentStartEvent) and root is not None:
                raise self._stop(event, "the file has a second document", "one file is one run: split it at ---")
        return root

    def _read(self, event: Any, path: Path) -> Node:
        """Read the node that begins with this event. `path` is empty if the node is a key."""
        self.total += 1
        if isinstance(event, self.yaml.AliasEvent):
            return self._alias(event)
        node = self._scalar(event, path) if isinstance(event, self.yaml.ScalarEvent) else self._collection(event, path)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _scalar(self, event: Any, path: Path) -> Node:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            self._check_tag(event)
        value: Any = event.value
        if event.implicit[0] and not event.tag:
            value = resolve(event.value)
            if isinstance(value, (int, float)) and _is_verbatim(path):
                value = event.value
        return Node(value, event, scalar=True)

    def _alias(self, event: Any) -> Node:
        target = self.anchors.get(event.anchor)
        if target is None:
            if event.anchor in self.anchors:
                raise self._stop(event, f"the alias *{show(event.anchor)} refers to itself", "write the value out")
            raise self._stop(event, f"there is no anchor &{show(event.anchor)} above", "write the value out")
        self._check_depth(event, self.depth + target.depth)
        self.total += target.size
        if self.total > limits.DOCUMENT_NODES:
            message = f"the aliases expand to more than {limits.DOCUMENT_NODES:,} values"
            raise self._stop(event, message, "write the values out")
        node = Node(target.value, event)
        node.children, node.keys, node.size, node.depth = target.children, target.keys, target.size, target.depth
        return node

    def _collection(self, event: Any, path: Path) -> Node:
        self.depth += 1
        self._check_depth(event, self.depth)
        self._check_tag(event)
        if event.anchor:
            self.anchors[event.anchor] = None
        is_mapping = isinstance(event, self.yaml.MappingStartEvent)
        node = Node({} if is_mapping else [], event, block=not event.flow_style)
        while not isinstance(event := next(self.events), self.yaml.CollectionEndEvent):
            if is_mapping:
                self._entry(node, self._key(event), path)
            else:
                index = len(node.value)
                node.children[index] = self._read(event, (*path, index))
                node.value.append(node.children[index].value)
        self.depth -= 1
        node.end_mark = event.end_mark
        node.size = 1 + sum(child.size for child in node.children.values())
        node.depth = 1 + max((child.depth for child in node.children.values()), default=0)
        return node

    def _key(self, event: Any) -> Node:
        key = self._read(event, ())
        if isinstance(key.value, (list, dict)):
            raise self._refusal(self._strange_key(key))
        if not isinstance(key.value, str):
            written = self.text[key.start_mark.index : key.end_mark.index]
            problem = self._problem(key, f"the key {show(written)} is not a name", f'write "{show(written)}"')
            self.problems.append(problem)
            key.value = written
        return key

    def _entry(self, holder: Node, key: Node, path: Path) -> None:
        """Read the value of a key, and add both to the mapping."""
        name = key.value
        node = self._read(next(self.events), (*path, name))
        if name in holder.children:
            line = holder.keys[name].start_mark.line + 1
            self.problems.append(
                self._problem(key, f"the key '{show(name)}' is given twice", f"it is also on line {line}")
            )
            return
        holder.keys[name] = key
        holder.children[name] = node
        holder.value[name] = node.value

    def _check_depth(self, event: Any, depth: int) -> None:
        if depth > limits.DOCUMENT_DEPTH:
            message = f"the file is nested more than {limits.DOCUMENT_DEPTH} levels deep"
            raise self._stop(event, message, "no key of a job file is that deep")

    def _check_tag(self, event: Any) -> None:
        if event.tag:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            problem = self._problem(event, f"the tag {show(tag)} is not allowed", "remove it: values are plain YAML")
            self.problems.append(problem)

    def _strange_key(self, node: Node) -> Problem:
        """The problem of a key that is a list or a mapping: most often a lookup without its dollar sign."""
        start = node.start_mark
        if self.text.startswith("{{", start.index - 1):
            written = self.text[start.index - 1 : self.text.find("}}", start.index - 1) + 2]
            problem = Problem((), "a lookup is written with a dollar sign", f'write "${show(written)}"')
            return problem.at(start.line + 1, start.column, len(written))
        return self._problem(node, f"a key must be a name, not {kind(node.value)}", "write it as text, in quotes")


def _is_verbatim(path: Path) -> bool:
    """Whether a scalar is always text, even if it looks like a number: a value in `env`, an argument in `run`."""
    if path[:1] == ("steps",) and len(path) == 4 and isinstance(path[1], int):
        path = path[2:]
    return len(path) == 2 and (path[0] == "run" if isinstance(path[1], int) else path[0] in _VERBATIM)
