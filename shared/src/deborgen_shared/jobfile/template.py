"""`${{ name }}`: lookups of parameters and of the job's own facts. No expressions.

In a `run` script the value is quoted for the shell; everywhere else it stands as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from shlex import quote
from typing import Any

import msgspec

from deborgen_shared.jobfile.problems import Path

Scalar = str | int | float | bool

OPEN = "${{"
#: What can be looked up besides parameters, in every job; and where a repository is checked out.
FACTS = ("run.id", "job.id", "job.index", "attempt")
GIT_FACTS = ("git.sha", "git.short_sha", "git.ref")

_REFERENCE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*\}\}")
_OPENED = re.compile(r"\$\{\{(?:[^}\n]|\}(?!\}))*(\}\})?")


def text_of(value: Scalar) -> str:
    """A value as a program reads it: shortest floats, `true` and `false`, text as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def references(text: str) -> Iterator[tuple[str, str]]:
    """Each `${{ … }}` in the text, as written, with the name that it looks up; no name when it is not a lookup."""
    for match in _OPENED.finditer(text):
        whole = match[0]
        reference = _REFERENCE.fullmatch(whole)
        yield whole, reference[1] if reference else ""


def without_references(text: str, by: str = "*") -> str:
    """The text with every lookup replaced."""
    return _REFERENCE.sub(by, text)


def has_templates(spec: Mapping[str, Any] | msgspec.Struct) -> bool:
    """Whether anything in the spec is looked up. Cheap, and never wrongly false."""
    return b"${{" in msgspec.json.encode(spec)


def replace_texts(job: Mapping[str, Any], change: Callable[[Any, Path], Any]) -> dict[str, Any]:
    """The keys of a job, with each value in which something can be looked up given to `change`, and its path with it.

    The job that was given is not changed. It need not make sense.
    """
    done = dict(job)
    for key in ("name", "image", "result"):
        if key in done:
            done[key] = change(done[key], (key,))
    if isinstance(run := done.get("run"), list):
        done["run"] = [change(argument, ("run", index)) for index, argument in enumerate(run)]
    elif "run" in done:
        done["run"] = change(run, ("run",))
    if isinstance(env := done.get("env"), dict):
        done["env"] = {name: change(value, ("env", name)) for name, value in env.items()}
    if isinstance(artifacts := done.get("artifacts"), list):
        done["artifacts"] = [
            {**item, "path": change(item.get("path"), ("artifacts", index, "path"))}
            if isinstance(item, dict)
            else change(item, ("artifacts", index))
            for index, item in enumerate(artifacts)
        ]
    if isinstance(build := done.get("build"), dict):
        done["build"] = {**build, "tag": change(build.get("tag"), ("build", "tag"))}
    return done


def render(spec: Mapping[str, Any], params: Mapping[str, Scalar], context: Mapping[str, str]) -> dict[str, Any]:
    """The spec, in its JSON form, with every lookup filled in. `context` holds the job's own facts by their names.

    The spec that was given is not changed. What cannot be found stays as it is written.
    """
    values = {**context, **{name: text_of(value) for name, value in params.items()}}

    def found(match: re.Match[str]) -> str:
        return values.get(match[1], match[0])

    def quoted(match: re.Match[str]) -> str:
        return quote(values[match[1]]) if match[1] in values else match[0]

    def fill(value: Any, path: Path) -> Any:
        if not isinstance(value, str) or OPEN not in value:
            return value
        return _REFERENCE.sub(quoted if path == ("run",) else found, value)

    return replace_texts(spec, fill)
