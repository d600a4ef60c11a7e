"""Job files from text: YAML with the place of everything that was written.

PyYAML only splits the text into events. The tree, the meaning of scalars, and every refusal are made here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document, Node, decode, split_lines
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem, Problems, TooManyProblems, kind, show
from deborgen_shared.jobfile.resolver import resolve
from deborgen_shared.jobfile.syntax import explain

#: Mappings whose values are text: a number in them is kept as it was written, so that 3.10 stays 3.10.
_VERBATIM = ("env", "labels", "requires")


def compose(text: str | bytes, source: str = "job.yml") -> Document:
    """The document of a text. Text that is no document is refused; lesser problems are kept in it."""
    return _Composer(decode(text, source), source).document()


class _Composer:
    """Builds the tree from the parser's events, without recursion."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.problems = Problems()
        self.anchors: dict[str, Node | None] = {}

    def document(self) -> Document:
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        root: Node | None = None
        try:
            root = self._build(yaml, yaml.parse(self.text, Loader=loader))
        except yaml.MarkedYAMLError as error:
            raise self._refusal(explain(error, split_lines(self.text))) from None
        except TooManyProblems:
            raise JobFileInvalid(self.problems, self.source, split_lines(self.text)) from None
        except yaml.YAMLError as error:
            raise self._refusal(Problem((), f"the file is not YAML: {show(str(error))}")) from None
        if root is None:
            raise self._refusal(Problem((), "the job file is empty", "a complete job is: run: echo hello"))
        return Document(self.text, self.source, root, self.problems)

    def _refusal(self, problem: Problem) -> JobFileInvalid:
        return JobFileInvalid([*self.problems, problem], self.source, split_lines(self.text))

    def _stop(self, event: Any, message: str, hint: str = "") -> JobFileInvalid:
        return self._refusal(self._problem(event, message, hint))

    def _problem(self, piece: Any, message: str, hint: str = "") -> Problem:
        """A problem with what an event or a node stands for."""
        start, end = piece.start_mark, piece.end_mark
        width = end.column - start.column if end.line == start.line else 1
        return Problem((), message, hint, start.line + 1, start.column + 1, max(1, width))

    def _build(self, yaml: Any, events: Any) -> Node | None:
        root: Node | None = None
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
                node = Node({} if sort is yaml.MappingStartEvent else [], event, block=not event.flow_style)
                if event.anchor:
                    self.anchors[event.anchor] = None
                stack.append(_Open(node, event.anchor, sort is yaml.MappingStartEvent))
                continue
            elif sort in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
                opened = stack.pop()
                node = opened.node
                node.end_mark = event.end_mark
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

    def _scalar(self, event: Any, stack: list[_Open]) -> Node:
        plain = event.implicit[0] and not event.tag
        if event.tag and event.tag not in ("!", "tag:yaml.org,2002:str"):
            self._check_tag(event)
        value: Any = event.value
        if plain:
            value = resolve(event.value)
            if isinstance(value, (int, float)) and stack and stack[-1].is_verbatim(stack):
                value = event.value
        node = Node(value, event, scalar=True)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        target = self.anchors.get(event.anchor)
        if target is None:
            if event.anchor in self.anchors:
                raise self._stop(event, f"the alias *{show(event.anchor)} stands inside of itself", "write it out")
            raise self._stop(event, f"there is no anchor &{show(event.anchor)} above", "write the value out")
        node = Node(target.value, event)
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

    def _strange_key(self, node: Node) -> Problem:
        start = node.start_mark
        if self.text.startswith("{{", start.index - 1):
            written = self.text[start.index - 1 : self.text.find("}}", start.index - 1) + 2]
            problem = Problem((), "a lookup is written with a dollar sign", f'write "${show(written)}"')
            return problem.at(start.line + 1, start.column, len(written))
        return self._problem(node, f"a key must be a name, not {kind(node.value)}", "write it as text, in quotes")

    def _attach(self, event: Any, stack: list[_Open], node: Node) -> None:
        opened = stack[-1]
        holder = opened.node
        if not opened.mapping:
            holder.children[len(holder.value)] = node
            holder.value.append(node.value)
        elif opened.key is None:
            if not isinstance(node.value, str):
                if isinstance(node.value, (list, dict)):
                    raise self._refusal(self._strange_key(node))
                written = self.text[node.start_mark.index : node.end_mark.index]
                self.problems.append(
                    self._problem(event, f"the key {show(written)} is not a name", f'write "{show(written)}"')
                )
                node.value = written
            opened.key = node
        else:
            key, opened.key = opened.key, None
            name = key.value
            if name in holder.children:
                line = holder.keys[name].start_mark.line + 1
                message = f"the key '{show(name)}' is given twice"
                self.problems.append(self._problem(key, message, f"it is also in line {line}"))
                return
            holder.keys[name] = key
            holder.children[name] = node
            holder.value[name] = node.value


@dataclass(slots=True)
class _Open:
    """A collection that is being read; `key` is the key whose value comes next."""

    node: Node
    anchor: str | None
    mapping: bool
    key: Node | None = None

    def is_verbatim(self, stack: list[_Open]) -> bool:
        """Whether the scalar that comes now is text whatever it looks like: a value in `env`, an argument in `run`."""
        if self.mapping and self.key is None:
            return False
        names = [opened.key.value if opened.key else None for opened in stack]
        of_a_job = len(stack) == 2 or (len(stack) == 4 and names[0] == "steps" and names[1] is None)
        return of_a_job and (names[-2] in _VERBATIM if self.mapping else names[-2] == "run")
