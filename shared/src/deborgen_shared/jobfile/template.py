"""`${{ name }}`: lookups of parameters and of the job's own facts. No expressions.

In a `run` script the value is quoted for the shell; everywhere else it stands as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

import msgspec

Scalar = str | int | float | bool

OPEN = "${{"
#: What can be looked up besides parameters, in every job; and where a repository is checked out.
FACTS = ("run.id", "job.id", "job.index", "attempt")
GIT_FACTS = ("git.sha", "git.short_sha", "git.ref")

_REFERENCE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*\}\}")
_OPENED = re.compile(r"\$\{\{(?:[^}\n]|\}(?!\}))*(\}\})?")


def text_of(value: Scalar) -> str:
    """A value as a program reads it: shortest floats, `true` and `false`, text as it is."""
    if value is True:
        return "true"
    if value is False:
        return "false"
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


def has_templates(spec: Mapping[str, Any] | msgspec.Struct | bytes | str) -> bool:
    """Whether anything in the spec, or in its JSON, is looked up. Cheap, and never wrongly false."""
    if isinstance(spec, bytes):
        return b"${{" in spec
    if isinstance(spec, str):
        return OPEN in spec
    return b"${{" in msgspec.json.encode(spec)


def render(spec: Mapping[str, Any], params: Mapping[str, Scalar], context: Mapping[str, str]) -> dict[str, Any]:
    """The spec, in its JSON form, with every lookup filled in. `context` holds the job's own facts by their names.

    The spec that was given is not changed. What cannot be found stays as it is written.
    """

    def found(match: re.Match[str]) -> str:
        name = match[1]
        if name in params:
            return text_of(params[name])
        return context.get(name, match[0])

    def quoted(match: re.Match[str]) -> str:
        name = match[1]
        return quote(text_of(params[name])) if name in params else quote(context[name]) if name in context else match[0]

    def fill(value: Any) -> Any:
        return _REFERENCE.sub(found, value) if isinstance(value, str) and OPEN in value else value

    done = dict(spec)
    run = done.get("run")
    if isinstance(run, str):
        done["run"] = _REFERENCE.sub(quoted, run) if OPEN in run else run
    elif run:
        done["run"] = [fill(argument) for argument in run]
    for key in ("name", "image", "result"):
        if key in done:
            done[key] = fill(done[key])
    if env := done.get("env"):
        done["env"] = {name: fill(value) for name, value in env.items()}
    if artifacts := done.get("artifacts"):
        done["artifacts"] = [{**artifact, "path": fill(artifact["path"])} for artifact in artifacts]
    if build := done.get("build"):
        done["build"] = {**build, "tag": fill(build["tag"])}
    return done
