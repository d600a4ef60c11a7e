"""What is wrong with text that is not YAML, in words for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from deborgen_shared.jobfile.problems import Problem, show


def explain(error: Any, text: str, lines: Sequence[str]) -> Problem:
    """The parser's error as a problem."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    said = (error.problem or error.context or "it cannot be read").strip()
    here = lines[line] if line < len(lines) else ""
    if re.match(r" *\t", here):
        column = here.index("\t")
        return Problem((), "a tab indents this line", "indent with spaces", line + 1, column + 1)
    return Problem((), f"this is not YAML: {show(said)}", "", line + 1, column + 1)
