"""Kinds of values with a special meaning: scripts, images, environments, labels, repositories."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.images import EXAMPLE, check_image, registry_of
from deborgen_shared.jobfile.kinds import ValueKind, check_scalar, pattern, scalar_shape, shaped, text_shape, unstorable
from deborgen_shared.jobfile.problems import Path, Problem, Problems, show
from deborgen_shared.jobfile.shell import find_misplaced
from deborgen_shared.jobfile.structure import listed, texts
from deborgen_shared.jobfile.template import FACTS, OPEN, filled, text_of
from deborgen_shared.repositories import parse_address

#: Names of environment variables that start like this belong to deborgen.
RESERVED = "DEBORGEN_"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_LOOKUP = r"\$\{\{\s*[A-Za-z_][A-Za-z0-9_.-]*\s*\}\}"


@shaped(
    {
        "oneOf": [
            text_shape(limits.RUN_BYTES),
            {"type": "array", "minItems": 1, "maxItems": limits.ARGUMENTS, "items": scalar_shape(limits.RUN_BYTES)},
        ]
    }
)
def run(value: Any, path: Path, problems: Problems) -> str | list[str]:
    """A script for the shell, or a list of arguments."""
    too_long = f"is longer than {limits.RUN_BYTES:,} bytes"
    if isinstance(value, str):
        if not value.strip():
            problems.about(path, "is empty", "write for example run: echo hello")
        elif len(value) > limits.RUN_BYTES or len(value.encode(errors="replace")) > limits.RUN_BYTES:
            problems.about(path, too_long, "put the script in a file and name it in 'files'")
        elif (reason := unstorable(value)) is not None:
            problems.about(path, reason)
        else:
            for lookup in find_misplaced(value):
                problems.append(Problem(path, *lookup.explain(), find=lookup.written, nth=lookup.nth))
        return value
    if not isinstance(value, list):
        problems.wrong_kind(value, path, "a script or a list of arguments", "write for example run: echo hello")
        return ""
    if not value:
        problems.about(path, "is an empty list", "write for example [python, sim.py]")
    if problems.exceeds(path, len(value), limits.ARGUMENTS):
        return ""
    arguments = [
        text_of(item)
        for index, item in enumerate(value)
        if check_scalar(item, (*path, index), problems, limits.RUN_BYTES)
    ]
    if sum(map(len, arguments)) > limits.RUN_BYTES:
        problems.about(path, too_long)
    return arguments


@shaped(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": limits.IMAGE,
        "pattern": rf"^([A-Za-z0-9]|{_LOOKUP})([A-Za-z0-9._/:@-]|{_LOOKUP})*$",
    }
)
def image(value: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(value, str) or not value:
        problems.wrong_kind(value, path, "the name of an image", EXAMPLE)
    elif problems.exceeds(path, len(value), limits.IMAGE, "characters"):
        pass
    elif wrong := check_image(image_with(value, lambda _: "1")):
        because, hint = map(show, wrong)
        problems.add(path, f"'{show(value)}' is not the name of an image{because and f': {because}'}", hint)
    return value


@shaped(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": limits.TAG,
        "pattern": rf"^([a-z0-9]|{_LOOKUP})([A-Za-z0-9._/:-]|{_LOOKUP})*$",
    }
)
def image_tag(value: Any, path: Path, problems: Problems) -> Any:
    """The name and tag of an image that a job builds: no registry, no digest."""
    hint = "write a name and a tag, for example solver:1"
    if not isinstance(value, str) or not value:
        problems.wrong_kind(value, path, "the name and tag of an image", hint)
    elif problems.exceeds(path, len(value), limits.TAG, "characters"):
        pass
    elif wrong := check_image(filled(value, lambda _: "1")):
        because, better = map(show, wrong)
        problems.add(path, f"'{show(value)}' is not the name and tag of an image{because and f': {because}'}", better)
    elif "@" in value or registry_of(filled(value, lambda _: "1")):
        reason = "has a digest" if "@" in value else "names a registry"
        problems.add(path, f"'{show(value)}' {reason}, which the pool chooses", hint)
    return value


def image_with(text: str, value_of: Callable[[str], str]) -> str:
    """The name of an image with its lookups filled in. A digest that is looked up is left out: it cannot be checked."""
    name, _, digest = text.partition("@")
    return filled(name if OPEN in digest else text, value_of)


def _variable(*, key: bool) -> ValueKind:
    """The name of an environment variable; `key` tells whether the name is a key of the document."""

    def check(name: Any, path: Path, problems: Problems) -> Any:
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
            hint = "use letters, digits and _, and do not start with a digit"
            problems.add(path, f"'{show(name)}' is not a valid variable name", hint, key=key)
        elif len(name) > limits.ENV_NAME:
            message = f"the name of a variable has {len(name):,} characters, but the limit is {limits.ENV_NAME}"
            problems.add(path, message, key=key)
        elif name.startswith(RESERVED):
            message = f"'{show(name)}' is reserved: names that start with {RESERVED} belong to deborgen"
            problems.add(path, message, "choose another name", key=key)
        return name

    shape = {"pattern": rf"^(?!{RESERVED}){_IDENTIFIER.pattern}$", "maxLength": limits.ENV_NAME}
    return ValueKind(check, shape if key else {"type": "string", **shape})


@shaped({"pattern": f"^{_IDENTIFIER.pattern}$", "maxLength": limits.ENV_NAME})
def _argument_name(name: Any, path: Path, problems: Problems) -> None:
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or len(name) > limits.ENV_NAME:
        hint = f"use at most {limits.ENV_NAME} letters, digits and _, and do not start with a digit"
        problems.add(path, f"'{show(name)}' is not a valid name of a build argument", hint, key=True)


build_args = texts(
    _argument_name, limits.ENV_BYTES, limits.ENV, "write for example {VERSION: 3}", templates=True
)  # fmt: skip
env = texts(_variable(key=True), limits.ENV_BYTES, limits.ENV, "write for example {OMP_NUM_THREADS: 8}", templates=True)
secrets = listed(_variable(key=False), limits.SECRETS, "[LICENSE_KEY]", unique=True)


@shaped({"pattern": f"^{_LABEL_KEY.pattern}$", "maxLength": limits.LABEL_KEY})
def _label_name(name: Any, path: Path, problems: Problems) -> None:
    if not isinstance(name, str) or len(name) > limits.LABEL_KEY or not _LABEL_KEY.fullmatch(name):
        hint = f"use at most {limits.LABEL_KEY} letters, digits and . _ / -"
        problems.add(path, f"'{show(name)}' is not a valid label name", hint, key=True)


def labels(hint: str) -> ValueKind:
    return texts(_label_name, limits.LABEL_VALUE, limits.LABELS, hint)


@shaped({"pattern": rf"^(?!attempt$){_IDENTIFIER.pattern}$", "maxLength": limits.PARAMETER_NAME})
def parameter_name(name: Any, path: Path, problems: Problems) -> None:
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        better = re.sub(r"[^A-Za-z0-9_]", "_", str(name))
        hint = f"write {show(better)}" if _IDENTIFIER.fullmatch(better) else "use letters, digits and _"
        problems.add(path, f"'{show(name)}' is not a valid parameter name", hint, key=True)
    elif len(name) > limits.PARAMETER_NAME:
        message = f"the name of a parameter has {len(name)} characters, but the limit is {limits.PARAMETER_NAME}"
        problems.add(path, message, key=True)
    elif name in FACTS:
        message = f"'{name}' cannot be a parameter: ${{{{ {name} }}}} is predefined"
        problems.add(path, message, "choose another name", key=True)


GIT_EXAMPLE = "https://example.org/team/solver.git"
_git_text = pattern(
    limits.URL,
    r"((https?|ssh|git|file)://[!-~]+|[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:[!-~]+)",
    "the URL of a repository",
    GIT_EXAMPLE,
)


@shaped(_git_text.shape)
def git_url(value: Any, path: Path, problems: Problems) -> Any:
    """The URL of a repository, without a password: everybody reads job files."""
    before = len(problems)
    _git_text.check(value, path, problems)
    if len(problems) == before:
        try:
            parse_address(value)
        except ValueError as why:
            secret = (
                "remove it, and name a secret as key" if "password" in str(why) else f"write for example {GIT_EXAMPLE}"
            )
            problems.about(path, str(why), secret)
    return value


git_commit = pattern(64, r"([0-9a-f]{40}|[0-9a-f]{64})", "the full name of a commit", "3f2c1ab and all that follows")
secret = _variable(key=False)
git_ref = pattern(limits.REF, r"[A-Za-z0-9_][A-Za-z0-9._/@+-]*", "a branch, a tag or a commit", "main")
shared_name = pattern(63, r"[A-Za-z0-9][A-Za-z0-9._-]*", "the name of a shared folder", "datasets")
stage = pattern(63, r"[A-Za-z0-9][A-Za-z0-9._-]*", "the name of a stage in the Containerfile", "runtime")
platform = pattern(63, r"[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?", "a platform", "linux/arm64")
