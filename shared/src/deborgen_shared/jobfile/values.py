"""Checks of the values that have a meaning of their own: scripts, images, environments, files, artifacts."""

from __future__ import annotations

import re
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.checks import Check, pattern, scalar, subject, template_refused, unstorable, wrong_kind
from deborgen_shared.jobfile.problems import Path, Problem, Problems, show
from deborgen_shared.jobfile.structure import mapping, sequence
from deborgen_shared.jobfile.template import text_of, without_references

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
RESERVED = "DEBORGEN_"


def run(value: Any, path: Path, problems: Problems) -> str | list[str]:
    """A script for the shell, or a list of arguments."""
    if isinstance(value, str):
        if not value.strip():
            problems.append(Problem(path, f"{subject(path)} is empty", "write for example run: echo hello"))
        elif len(value) > limits.RUN_BYTES or len(value.encode(errors="replace")) > limits.RUN_BYTES:
            problems.append(
                Problem(
                    path,
                    f"{subject(path)} is longer than {limits.RUN_BYTES:,} bytes",
                    "put the script in a file and name it in 'files'",
                )
            )
        elif (reason := unstorable(value)) is not None:
            problems.append(Problem(path, f"{subject(path)} {reason}"))
        return value
    if not isinstance(value, list):
        wrong_kind(value, path, problems, "a script or a list of arguments", "write for example run: echo hello")
        return ""
    if not value:
        problems.append(Problem(path, f"{subject(path)} is an empty list", "write for example [python, sim.py]"))
    if not sequence(value, path, problems, "[python, sim.py]", limits.ARGUMENTS):
        return ""
    arguments = [
        text_of(item) for index, item in enumerate(value) if scalar(item, (*path, index), problems, limits.RUN_BYTES)
    ]
    if sum(map(len, arguments)) > limits.RUN_BYTES:
        problems.append(Problem(path, f"{subject(path)} is longer than {limits.RUN_BYTES:,} bytes"))
    return arguments


def image(value: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(value, str) or not value:
        wrong_kind(value, path, problems, "the name of an image", "write for example python:3.12-slim")
    elif len(value) > limits.IMAGE:
        problems.append(
            Problem(path, f"{subject(path)} has {len(value):,} characters, and the limit is {limits.IMAGE:,}")
        )
    elif not IMAGE.fullmatch(without_references(value, "x")):
        problems.append(
            Problem(path, f"'{show(value)}' is not the name of an image", "write for example python:3.12-slim")
        )
    return value


def env(value: Any, path: Path, problems: Problems) -> dict[str, str]:
    done: dict[str, str] = {}
    if not mapping(value, path, problems, "{OMP_NUM_THREADS: 8}", limits.ENV):
        return done
    for name, item in value.items():
        here = (*path, name)
        env_name(name, here, problems)
        if scalar(item, here, problems, limits.ENV_BYTES):
            done[name] = text_of(item)
    return done


def env_name(name: Any, path: Path, problems: Problems, key: bool = True) -> None:
    if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
        hint = "use letters, digits and _, and no digit first"
        problems.append(Problem(path, f"'{show(name)}' is not a name for a variable", hint, key=key))
    elif len(name) > limits.ENV_NAME:
        message = f"the name of a variable has {len(name):,} characters, and the limit is {limits.ENV_NAME}"
        problems.append(Problem(path, message, key=key))
    elif name.startswith(RESERVED):
        message = f"'{show(name)}' is not free: names that start with {RESERVED} are deborgen's own"
        problems.append(Problem(path, message, "choose another name", key=key))


def secrets(value: Any, path: Path, problems: Problems) -> list[str]:
    if not sequence(value, path, problems, "[LICENSE_KEY]", limits.SECRETS):
        return []
    for index, name in enumerate(value):
        env_name(name, (*path, index), problems, key=False)
        if name in value[:index]:
            problems.append(Problem((*path, index), f"'{show(name)}' is listed twice in {subject(path)}"))
    return list(value)


def words(limit: int, example: str) -> Check:
    """A mapping from label names to short texts; numbers and booleans become text."""

    def check(value: Any, path: Path, problems: Problems) -> dict[str, str]:
        done: dict[str, str] = {}
        if not mapping(value, path, problems, example, limit):
            return done
        for name, item in value.items():
            here = (*path, name)
            if not isinstance(name, str) or len(name) > limits.LABEL_KEY or not LABEL_KEY.fullmatch(name):
                hint = f"use at most {limits.LABEL_KEY} letters, digits and . _ / -"
                problems.append(Problem(here, f"'{show(name)}' is not a name for a label", hint, key=True))
            if scalar(item, here, problems, limits.LABEL_VALUE):
                done[name] = text_of(item)
                template_refused(item, here, problems)
        return done

    return check


git_url = pattern(
    limits.URL,
    r"(https?|ssh|git|file)://[^\s]+|[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:[^\s]+",
    "the URL of a repository",
    example="https://example.org/team/solver.git",
)
git_ref = pattern(limits.REF, r"[A-Za-z0-9_][A-Za-z0-9._/@+-]*", "a branch, a tag or a commit", example="main")
shared_name = pattern(63, r"[A-Za-z0-9][A-Za-z0-9._-]*", "the name of a shared folder", example="datasets")
