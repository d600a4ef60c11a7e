"""Job files from text: YAML with the place of everything that was written.

PyYAML only splits the text into events. The tree, the meaning of scalars, and every refusal are made here.
"""

from __future__ import annotations

import re
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.problems import JobFileInvalid, Path, Problem, kind, show
from deborgen_shared.jobfile.resolver import resolve
from deborgen_shared.jobfile.syntax import explain

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")
#: Mappings whose values are text: a number in them is kept as it was written, so that 3.10 stays 3.10.
_VERBATIM = ("env", "labels", "requires")


class _Node:
    """A piece of the document and where it stands: start and end as (index, line, column), from 0."""

    __slots__ = ("block", "children", "depth", "end", "keys", "size", "start", "value")

    def __init__(self, value: Any, start: Any, end: Any, block: bool = False) -> None:
        self.value = value
        self.start = (start.index, start.line, start.column)
        self.end = (end.index, end.line, end.column)
        self.block = block
        self.children: dict[Any, _Node] = {}
        self.keys: dict[Any, _Node] = {}
        self.size = 1
        self.depth = 0


class Document:
    """A job file that was read: its plain data, and the place of every key and value in it."""

    def __init__(self, text: str, source: str, root: _Node, problems: list[Problem]) -> None:
        self.source = source
        self.text = text
        self.lines = _BREAK.split(text)
        self.data: Any = root.value
        self.problems = problems
        self._root = root

    def where(self, path: Path, *, key: bool = False, find: str = "", nth: int = 0) -> tuple[int, int, int]:
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
            index = self.text.find(find, node.start[0], node.end[0])
            for _ in range(nth):
                index = max(index, self.text.find(find, index + 1, node.end[0]))
            if index >= 0:
                before = _BREAK.split(self.text[:index])
                return len(before), len(before[-1]) + 1, len(_BREAK.split(find)[0])
        if name is not None and (key or (node.block and node.children)):
            node = name
        return self._span(node)

    def locate(self, problem: Problem) -> Problem:
        """The problem with its line and column. What is wrong with the file as a whole has none."""
        if not problem.path and isinstance(self.data, dict):
            return problem
        return problem.at(*self.where(problem.path, key=problem.key, find=problem.find, nth=problem.nth))

    def _span(self, node: _Node) -> tuple[int, int, int]:
        _, line, column = node.start
        text = self.lines[line] if line < len(self.lines) else ""
        stop = node.end[2] if node.end[1] == line else len(text.rstrip())
        return line + 1, column + 1, max(1, stop - column)


def compose(text: str | bytes, source: str = "job.yml") -> Document:
    """The document of a text. Text that is no document is refused; lesser problems are kept in it."""
    decoded = _decode(text, source)
    return _Composer(decoded, source).document()


def _decode(text: str | bytes, source: str) -> str:
    """The text, when it is text of an acceptable size."""
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if size > limits.DOCUMENT_BYTES:
        message = f"the file has {size:,} bytes, and the limit is {limits.DOCUMENT_BYTES:,}"
        raise JobFileInvalid([Problem((), message, "data belongs in 'files', long lists in ranges")], source)
    if isinstance(text, bytes):
        if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise JobFileInvalid([Problem((), "the file is UTF-16, not UTF-8", "save it as UTF-8")], source)
        if b"\0" in text:
            raise JobFileInvalid(
                [Problem((), "the file is binary, not text", "name the job file, as in job.yml")], source
            )
        raw = text
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            message = f"byte 0x{raw[error.start]:02x} in line {line} is not UTF-8"
            raise JobFileInvalid([Problem((), message, "save the file as UTF-8")], source) from None
    text = text.removeprefix("\ufeff")
    bad = _CONTROL.search(text) or re.search("[\ud800-\udfff]", text)
    if bad:
        lines = _BREAK.split(text)
        before = _BREAK.split(text[: bad.start()])
        message = f"the character U+{ord(bad[0]):04X} is not allowed in a job file"
        problem = Problem((), message, "remove it", line=len(before), column=len(before[-1]) + 1)
        raise JobFileInvalid([problem], source, lines)
    return text


class _Composer:
    """Builds the tree from the parser's events, without recursion."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.problems: list[Problem] = []
        self.anchors: dict[str, _Node | None] = {}

    def document(self) -> Document:
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        root: _Node | None = None
        try:
            root = self._build(yaml, yaml.parse(self.text, Loader=loader))
        except yaml.MarkedYAMLError as error:
            raise self._refusal(explain(error, _BREAK.split(self.text))) from None
        except yaml.YAMLError as error:
            raise self._refusal(Problem((), f"the file is not YAML: {show(str(error))}")) from None
        if root is None:
            raise self._refusal(Problem((), "the job file is empty", "a complete job is: run: echo hello"))
        return Document(self.text, self.source, root, self.problems)

    def _refusal(self, problem: Problem) -> JobFileInvalid:
        return JobFileInvalid([*self.problems, problem], self.source, _BREAK.split(self.text))

    def _stop(self, event: Any, message: str, hint: str = "") -> JobFileInvalid:
        return self._refusal(self._problem(event, message, hint))

    def _problem(self, event: Any, message: str, hint: str = "") -> Problem:
        start, end = event.start_mark, event.end_mark
        width = end.column - start.column if end.line == start.line else 1
        return Problem((), message, hint, start.line + 1, start.column + 1, max(1, width))

    def _build(self, yaml: Any, events: Any) -> _Node | None:
        root: _Node | None = None
        stack: list[_Open] = []
        total = 0
        for event in events:
            sort = type(event)
            if sort is yaml.ScalarEvent:
                node = self._scalar(event, stack)
            elif sort is yaml.AliasEvent:
                node = self._alias(event)
                self._check_depth(event, len(stack) + node.depth)
                total += node.size
                if total > limits.DOCUMENT_NODES:
                    message = f"the aliases expand to more than {limits.DOCUMENT_NODES:,} values"
                    raise self._stop(event, message, "write out what is needed")
            elif sort in (yaml.MappingStartEvent, yaml.SequenceStartEvent):
                self._check_depth(event, len(stack) + 1)
                self._check_tag(event)
                node = _Node({} if sort is yaml.MappingStartEvent else [], event.start_mark, event.end_mark)
                node.block = not event.flow_style
                if event.anchor:
                    self.anchors[event.anchor] = None
                stack.append(_Open(node, event.anchor, sort is yaml.MappingStartEvent))
                continue
            elif sort in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
                opened = stack.pop()
                node = opened.node
                node.end = (event.end_mark.index, event.end_mark.line, event.end_mark.column)
                node.size = 1 + sum(child.size for child in node.children.values())
                node.depth = 1 + max((child.depth for child in node.children.values()), default=0)
                if opened.anchor:
                    self.anchors[opened.anchor] = node
            elif sort is yaml.DocumentStartEvent and root is not None:
                raise self._stop(event, "the file holds a second document", "one file is one run: split it at ---")
            else:
                continue
            total += 1
            if stack:
                self._attach(event, stack, node)
            else:
                root = node
        return root

    def _scalar(self, event: Any, stack: list[_Open]) -> _Node:
        plain = event.implicit[0] and not event.tag
        if event.tag and event.tag not in ("!", "tag:yaml.org,2002:str"):
            self._check_tag(event)
        value: Any = event.value
        if plain:
            value = resolve(event.value)
            if isinstance(value, (int, float)) and stack and stack[-1].is_verbatim(stack):
                value = event.value
        node = _Node(value, event.start_mark, event.end_mark)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> _Node:
        target = self.anchors.get(event.anchor)
        if target is None:
            if event.anchor in self.anchors:
                raise self._stop(event, f"the alias *{show(event.anchor)} stands inside of itself", "write it out")
            raise self._stop(event, f"there is no anchor &{show(event.anchor)} above", "write the value out")
        node = _Node(target.value, event.start_mark, event.end_mark)
        node.children, node.keys, node.size, node.depth = target.children, target.keys, target.size, target.depth
        return node

    def _check_depth(self, event: Any, depth: int) -> None:
        if depth > limits.DOCUMENT_DEPTH:
            message = f"the file is nested more than {limits.DOCUMENT_DEPTH} levels deep"
            raise self._stop(event, message, "no key of a job file is that deep")

    def _check_tag(self, event: Any) -> None:
        if event.tag:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            problem = self._problem(event, f"the tag {show(tag)} is not allowed", "remove it: values are plain YAML")
            self.problems.append(problem)

    def _strange_key(self, node: _Node) -> Problem:
        index, line, column = node.start
        problem = Problem((), f"a key must be a name, not {kind(node.value)}", "write it as text, in quotes")
        if self.text.startswith("{{", index - 1):
            index, column = index - 1, column - 1
            written = self.text[index : self.text.find("}}", index) + 2]
            problem = Problem((), "a lookup is written with a dollar sign", f'write "${show(written)}"')
            return problem.at(line + 1, column + 1, len(written))
        return problem.at(line + 1, column + 1, max(1, node.end[0] - index) if node.end[1] == line else 1)

    def _attach(self, event: Any, stack: list[_Open], node: _Node) -> None:
        opened = stack[-1]
        holder = opened.node
        if not opened.mapping:
            holder.children[len(holder.value)] = node
            holder.value.append(node.value)
        elif opened.key is None:
            if not isinstance(node.value, str):
                if isinstance(node.value, (list, dict)):
                    raise self._refusal(self._strange_key(node))
                written = self.text[node.start[0] : node.end[0]]
                self.problems.append(
                    self._problem(event, f"the key {show(written)} is not a name", f'write "{show(written)}"')
                )
                node.value = written
            opened.key = node
        else:
            key, opened.key = opened.key, None
            name = key.value
            if name in holder.children:
                line = holder.keys[name].start[1] + 1
                problem = Problem((), f"the key '{show(name)}' is given twice", f"it is also in line {line}")
                _, at, column = key.start
                self.problems.append(problem.at(at + 1, column + 1, max(1, key.end[2] - column)))
                return
            holder.keys[name] = key
            holder.children[name] = node
            holder.value[name] = node.value


class _Open:
    """A collection that is being read; `key` is the key whose value comes next."""

    __slots__ = ("anchor", "key", "mapping", "node")

    def __init__(self, node: _Node, anchor: str | None, mapping: bool) -> None:
        self.node = node
        self.anchor = anchor
        self.mapping = mapping
        self.key: _Node | None = None

    def is_verbatim(self, stack: list[_Open]) -> bool:
        """Whether the scalar that comes now is a value of a mapping whose values are text."""
        if len(stack) < 2 or (self.mapping and self.key is None):
            return False
        holder = stack[-2].key
        name = holder.value if holder else None
        depth = len(stack) if stack[0].mapping and len(stack) == 2 else 2 if _in_step(stack) else 0
        return depth == 2 and (name in _VERBATIM if self.mapping else name == "run")


def _in_step(stack: list[_Open]) -> bool:
    return len(stack) == 4 and stack[0].key is not None and stack[0].key.value == "steps"
