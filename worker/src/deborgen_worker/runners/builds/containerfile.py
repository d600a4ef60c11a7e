"""Reads what a Containerfile is made from. This module uses only the standard library.

The worker pulls the base images itself, from registries that its owner allows, and Podman pulls none. If an image is
missed here, the build fails because the image is not on this machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
_FROM = re.compile(r"(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_MOUNT = re.compile(r"--mount=\S*?\bfrom=([^,\s]+)")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction, in capital letters, with its arguments. An `ONBUILD` is followed by the instruction in it."""
    escape, directives, held = "\\", True, ""
    for line in text.splitlines():
        stripped = line.strip()
        if directives and (found := _ESCAPE.fullmatch(stripped)):
            escape = found[1]
        directives = directives and stripped.startswith("#")
        if stripped.startswith("#") or not stripped:
            continue
        if stripped.endswith(escape):
            held += stripped[:-1] + " "
            continue
        yield from _split(held + stripped)
        held = ""
    if held:
        yield from _split(held)


def _split(line: str) -> Iterator[tuple[str, str]]:
    word, _, rest = line.strip().partition(" ")
    word, _, more = word.partition("\t")
    word, rest = word.upper(), f"{more} {rest}".strip()
    if word == "ONBUILD":
        yield from _split(rest)
    else:
        yield word, rest


def base_images(text: str, arguments: Mapping[str, str]) -> list[str]:
    """The images that the build needs and does not make itself, in their order."""
    values: dict[str, str] = {}
    stages: set[str] = set()
    found: dict[str, None] = {}
    for word, rest in instructions(text):
        if word == "ARG" and not stages:
            name, _, default = rest.strip().partition("=")
            values[name] = arguments.get(name, default.strip("\"'"))
        elif word == "FROM" and (match := _FROM.fullmatch(rest)):
            found[_filled(match[1], values)] = None
            stages |= {match[2].lower() if match[2] else "", str(len(stages))}
        elif word in {"COPY", "ADD"}:
            found |= dict.fromkeys(each[7:] for each in rest.split() if each.startswith("--from="))
        elif word == "RUN":
            found |= dict.fromkeys(_MOUNT.findall(rest))
    made_here = stages | {"scratch"}
    return [each for each in found if each.lower() not in made_here and not each.isdigit() and "$" not in each]


def _filled(text: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        known = values.get(match[1] or match[2], "")
        if match[3] == "-":
            return known or match[4]
        return match[4] if match[3] == "+" and known else "" if match[3] == "+" else known

    return _VARIABLE.sub(value, text)


def remote_source(text: str) -> str:
    """The first source of an `ADD` that Podman would fetch itself, past the job's network; empty if there is none."""
    for word, rest in instructions(text):
        if word == "ADD":
            try:
                sources = shlex.split(rest.replace("[", " ").replace("]", " ").replace(",", " "))
            except ValueError:
                return rest[:100]
            for source in sources:
                if "://" in source or source.startswith("git@") or "$" in source:
                    return source[:100]
    return ""
