"""Checks of the values that name paths: files, artifacts, the result."""

from __future__ import annotations

import re
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.checks import shown, subject, template_refused, wrong_kind
from deborgen_shared.jobfile.model import ArtifactPattern, File
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.jobfile.problems import Path, Problem, Problems, did_you_mean, show
from deborgen_shared.jobfile.structure import sequence, unknown_key
from deborgen_shared.jobfile.template import without_references

SHA256 = re.compile(r"[0-9a-f]{64}")


def path_of(value: str) -> str:
    """A path as it is stored: without a leading `./`."""
    while value.startswith("./"):
        value = value[2:].lstrip("/")
    return value


def workspace_path(
    value: Any, path: Path, problems: Problems, example: str, *, templates: bool, folder: bool = False
) -> str:
    """A path in the workspace. With `folder` it may end with a slash."""
    if not isinstance(value, str):
        wrong_kind(value, path, problems, "a path", f"write for example {example}")
        return ""
    if not templates and template_refused(value, path, problems):
        return ""
    done = path_of(value)
    if folder and len(done) > 1:
        done = done.removesuffix("/")
    reason = check_path(without_references(done, "x"))
    if reason:
        hint = "" if reason.endswith("bytes") else f"write a path inside the workspace, as in {example}"
        problems.append(Problem(path, f"the path '{show(value)}' {reason}", hint))
    return done


def local_files(value: Any, path: Path, problems: Problems) -> list[str]:
    """The hand-written form: files and folders beside the job file. `.` is the folder of the job file."""
    done: list[str] = []
    if not sequence(value, path, problems, "[sim.py, data/]", limits.FILES):
        return done
    for index, item in enumerate(value):
        if item in (".", "./"):
            done.append(".")
            continue
        before = len(problems)
        found = local_path(item, (*path, index), problems)
        if len(problems) == before:
            done.append(found)
    if len(done) == len(value):
        _no_twins(done, path, problems)
    return done


def local_path(value: Any, path: Path, problems: Problems) -> str:
    """A path beside the job file."""
    if not isinstance(value, str):
        wrong_kind(value, path, problems, "a path", "write for example sim.py")
        return ""
    if template_refused(value, path, problems):
        return ""
    done = path_of(value)
    done = done.removesuffix("/") if len(done) > 1 else done
    reason = "starts with '~', which is not expanded here" if done.startswith("~") else check_path(done)
    if reason:
        hint = "files lie beside the job file or below it: copy or link it there"
        problems.append(Problem(path, f"the path '{show(value)}' {reason}", "" if reason.endswith("bytes") else hint))
    return done


def wire_files(value: Any, path: Path, problems: Problems) -> list[File]:
    """The form on the wire: each file with the digest of its blob."""
    done: list[File] = []
    if not sequence(value, path, problems, '[{"path", "sha256", "size", "mode"}]', limits.FILES):
        return done
    for index, item in enumerate(value):
        here = (*path, index)
        if not isinstance(item, dict):
            hint = 'write {"path", "sha256", "size", "mode"} after the blob was put'
            wrong_kind(item, here, problems, "a mapping", hint)
            continue
        before = len(problems)
        for key in item:
            if key not in ("path", "sha256", "size", "mode"):
                unknown_key(key, ("path", "sha256", "size", "mode"), here, problems, f" in {subject(here)}")
        found = workspace_path(item.get("path"), (*here, "path"), problems, "data/a.csv", templates=False)
        digest, count, mode = item.get("sha256"), item.get("size"), item.get("mode", 0o644)
        if not isinstance(digest, str) or not SHA256.fullmatch(digest):
            problems.append(Problem((*here, "sha256"), f"{subject((*here, 'sha256'))} is not 64 hexadecimal digits"))
        for key, amount, most in (("size", count, limits.FILE_BYTES), ("mode", mode, 0o777)):
            if not isinstance(amount, int) or isinstance(amount, bool) or not 0 <= amount <= most:
                message = f"{subject((*here, key))} is not a whole number from 0 to {most}"
                problems.append(Problem((*here, key), message))
        if len(problems) == before:
            done.append(File(path=found, sha256=str(digest), size=int(count or 0), mode=mode))
    if len(done) == len(value):
        _no_twins([file.path for file in done], path, problems)
    return done


def _no_twins(paths: list[str], path: Path, problems: Problems) -> None:
    for first, second in find_twins(paths):
        place = len(paths) - 1 - paths[::-1].index(second)
        if first == second:
            problems.append(Problem((*path, place), f"'{show(second)}' is listed twice in {subject(path)}"))
        elif second.lower().startswith(first.lower() + "/"):
            message = f"'{show(second)}' lies in '{show(first)}', which is listed too"
            problems.append(Problem((*path, place), message, "remove one of them"))
        else:
            message = f"'{show(first)}' and '{show(second)}' are one file on some machines"
            problems.append(Problem((*path, place), message, "rename one of them"))


def artifacts(value: Any, path: Path, problems: Problems) -> list[ArtifactPattern]:
    done: list[ArtifactPattern] = []
    if not sequence(value, path, problems, "[out/*.png, best.json]", limits.ARTIFACTS):
        return done
    for index, item in enumerate(value):
        here: Path = (*path, index)
        when = "success"
        if isinstance(item, dict):
            for key in item:
                if key not in ("path", "when"):
                    unknown_key(key, ("path", "when"), here, problems, f" in {subject(here)}")
            when = item.get("when", "success")
            if when not in ("success", "always"):
                hint = did_you_mean(when, ("success", "always"), "write success or always")
                problems.append(
                    Problem(
                        (*here, "when"),
                        f"{subject((*here, 'when'))} must be success or always, not {shown(when)}",
                        hint,
                    )
                )
            if "path" not in item:
                problems.append(
                    Problem(here, f"{subject(here)} has no 'path'", "write {path: out/*.png, when: always}")
                )
                continue
            item, here = item["path"], (*here, "path")
        found = workspace_path(item, here, problems, "out/*.png", templates=True, folder=True)
        if isinstance(item, str) and item.endswith("/"):
            found += "/**"
        done.append(ArtifactPattern(path=found, when="always" if when == "always" else "success"))
    return done


def result(value: Any, path: Path, problems: Problems) -> str:
    return workspace_path(value, path, problems, "metrics.json", templates=True)


def inner_path(value: Any, path: Path, problems: Problems) -> str:
    return workspace_path(value, path, problems, "data/state", templates=False, folder=True)
