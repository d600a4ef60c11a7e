"""Templates: `${{ name }}` looks up a parameter or a predefined fact of the job. There are no expressions.

In a script, `run` or `repeat.until`, the value is quoted for the shell; everywhere else it is inserted unchanged.
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
#: Names that can be looked up besides parameters: in every job, and in jobs that check out a repository.
FACTS = ("run.id", "job.id", "job.index", "attempt")
GIT_FACTS = ("git.sha", "git.short_sha", "git.ref")
#: Where a text is a script, in which values are quoted for the shell.
SCRIPTS: tuple[Path, ...] = (("run",), ("repeat", "until"))

#: The name under which a later step looks up the image that a step has built.
STEP_IMAGE = re.compile(r"steps\.([A-Za-z0-9][A-Za-z0-9_-]*)\.image")

#: A well-formed lookup, and its name.
LOOKUP = re.compile(
    r"\$\{\{\s*(steps\.[A-Za-z0-9][A-Za-z0-9_-]*\.image|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*\}\}"
)
#: An opened lookup, up to where it is closed, another one opens, or the line ends.
_OPENED = re.compile(r"\$\{\{(?:[^}$\n]|\}(?!\})|\$(?!\{\{))*(\}\})?")


def text_of(value: Scalar) -> str:
    """A value as a program reads it: floats in their shortest form, `true` and `false`, text unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def references(text: str) -> Iterator[tuple[str, str]]:
    """Each `${{ … }}` in the text, as written, with the name that it looks up; an empty name if it is malformed."""
    for match in _OPENED.finditer(text):
        whole = match[0]
        reference = LOOKUP.fullmatch(whole)
        yield whole, reference[1] if reference else ""


def without_references(text: str, by: str = "*") -> str:
    """The text with every lookup replaced by the text `by`."""
    return LOOKUP.sub(by, text)


def filled(text: str, value_of: Callable[[str], str]) -> str:
    """The text with every lookup replaced by the value of its name."""
    return LOOKUP.sub(lambda match: value_of(match[1]), text)


def has_templates(spec: Mapping[str, Any] | msgspec.Struct) -> bool:
    """Whether the spec may have a lookup. Cheap: a yes may be wrong, a no never is."""
    return b"${{" in msgspec.json.encode(spec)


def replace_texts(job: Mapping[str, Any], change: Callable[[Any, Path], Any]) -> dict[str, Any]:
    """A copy of the job, in which `change(value, path)` replaces each value that may contain lookups.

    The job need not be valid.
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
    if isinstance(repeat := done.get("repeat"), dict) and isinstance(until := repeat.get("until"), str | list):
        place = ("repeat", "until")
        parts = [change(part, (*place, index)) for index, part in enumerate(until)] if isinstance(until, list) else []
        done["repeat"] = {**repeat, "until": parts or change(until, place)}
    if isinstance(build := done.get("build"), dict):
        done["build"] = {**build, "tag": change(build.get("tag"), ("build", "tag"))}
        if isinstance(args := build.get("args"), dict):
            done["build"]["args"] = {name: change(value, ("build", "args", name)) for name, value in args.items()}
    return done


def render(spec: Mapping[str, Any], params: Mapping[str, Scalar], context: Mapping[str, str]) -> dict[str, Any]:
    """A copy of the spec, in its JSON form, with every lookup filled in. `context` has the predefined facts by name.

    An undefined lookup is left as written.
    """
    values = {**context, **{name: text_of(value) for name, value in params.items()}}

    def found(match: re.Match[str]) -> str:
        return values.get(match[1], match[0])

    def quoted(match: re.Match[str]) -> str:
        return quote(values[match[1]]) if match[1] in values else match[0]

    def fill(value: Any, path: Path) -> Any:
        if not isinstance(value, str) or OPEN not in value:
            return value
        return LOOKUP.sub(quoted if path in SCRIPTS else found, value)

    return replace_texts(spec, fill)
