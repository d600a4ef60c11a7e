"""Kinds of values that name paths: files, artifacts, the result."""

from __future__ import annotations

import re
from typing import Any

from deborgen_shared.jobfile import limits, shapes
from deborgen_shared.jobfile.kinds import Kind, shaped, shown, template_refused
from deborgen_shared.jobfile.model import ArtifactPattern, File
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.jobfile.problems import Path, Problems, did_you_mean, show, subject
from deborgen_shared.jobfile.structure import sequence, unknown_key
from deborgen_shared.jobfile.template import without_references

SHA256 = re.compile(r"[0-9a-f]{64}")
PATH = shapes.PATH


def file_path(example: str, *, templates: bool = False, folder: bool = False, beside: bool = False) -> Kind:
    """A path in the workspace, or `beside` the job file, stored without a leading `./`.

    With `folder` it may end with a slash.
    """
    hint = f"write a path inside the workspace, as in {example}"
    if beside:
        hint = "files lie beside the job file or below it: copy or link it there"

    def check(value: Any, path: Path, problems: Problems) -> str:
        if not isinstance(value, str):
            problems.wrong_kind(value, path, "a path", f"write for example {example}")
            return ""
        if not templates and template_refused(value, path, problems):
            return ""
        done = value
        while done.startswith("./"):
            done = done[2:].lstrip("/")
        if folder and len(done) > 1:
            done = done.removesuffix("/")
        reason = check_path(without_references(done, "x"))
        if beside and done.startswith("~"):
            reason = "starts with '~', which is not expanded here"
        if reason:
            problems.add(path, f"the path '{show(value)}' {reason}", "" if reason.endswith("bytes") else hint)
        return done

    return Kind(check, PATH)


result = file_path("metrics.json", templates=True)
inner_path = file_path("data/state", folder=True)
_local_path = file_path("sim.py", folder=True, beside=True)
_wire_path = file_path("data/a.csv")
_artifact_path = file_path("out/*.png", templates=True, folder=True)


@shaped(
    {
        "type": "array",
        "items": {"anyOf": [PATH, {"enum": [".", "./"]}]},
        "maxItems": limits.FILES,
        "uniqueItems": True,
    }
)
def local_files(value: Any, path: Path, problems: Problems) -> list[str]:
    """The hand-written form: files and folders beside the job file. `.` is the folder of the job file."""
    if not sequence(value, path, problems, "[sim.py, data/]", limits.FILES):
        return []
    before = len(problems)
    done = [
        "." if item in (".", "./") else _local_path.check(item, (*path, index), problems)
        for index, item in enumerate(value)
    ]
    if len(problems) == before:
        _no_twins(done, path, problems)
    return done


@shaped(
    {
        "type": "array",
        "maxItems": limits.FILES,
        "items": shapes.record(
            {
                "path": {**PATH, "pattern": shapes.RELATIVE.replace("/?$", "$")},
                "sha256": {"type": "string", "pattern": f"^{SHA256.pattern}$", "minLength": 64, "maxLength": 64},
                "size": shapes.integer(0, limits.FILE_BYTES),
                "mode": shapes.integer(0, 0o777)
                | {"default": 0o644, "description": "Permissions as a number: 420 is 0644."},
            },
            ("path", "sha256", "size"),
        ),
    }
)
def wire_files(value: Any, path: Path, problems: Problems) -> list[File]:
    """The form on the wire: each file with the digest of its blob."""
    if not sequence(value, path, problems, '[{"path", "sha256", "size", "mode"}]', limits.FILES):
        return []
    before = len(problems)
    done = [_wire_file(item, (*path, index), problems) for index, item in enumerate(value)]
    files = [file for file in done if file]
    if len(problems) == before:
        _no_twins([file.path for file in files], path, problems)
    return files


def _wire_file(item: Any, here: Path, problems: Problems) -> File | None:
    if not isinstance(item, dict):
        hint = 'write {"path", "sha256", "size", "mode"} after the blob was put'
        problems.wrong_kind(item, here, "a mapping", hint)
        return None
    before = len(problems)
    for key in item:
        if key not in ("path", "sha256", "size", "mode"):
            unknown_key(key, ("path", "sha256", "size", "mode"), here, problems)
    found = _wire_path.check(item.get("path"), (*here, "path"), problems)
    digest, count, mode = item.get("sha256"), item.get("size"), item.get("mode", 0o644)
    if not isinstance(digest, str) or not SHA256.fullmatch(digest):
        problems.about((*here, "sha256"), "is not 64 hexadecimal digits")
    for key, amount, most in (("size", count, limits.FILE_BYTES), ("mode", mode, 0o777)):
        if not isinstance(amount, int) or isinstance(amount, bool) or not 0 <= amount <= most:
            problems.about((*here, key), f"is not a whole number from 0 to {most}")
    if len(problems) > before:
        return None
    return File(path=found, sha256=str(digest), size=int(count or 0), mode=mode)


def _no_twins(paths: list[str], path: Path, problems: Problems) -> None:
    for first, second in find_twins(paths):
        here = (*path, len(paths) - 1 - paths[::-1].index(second))
        if first == second:
            problems.add(here, f"'{show(second)}' is listed twice in {subject(path)}")
        elif second.lower().startswith(first.lower() + "/"):
            problems.add(here, f"'{show(second)}' lies in '{show(first)}', which is listed too", "remove one of them")
        else:
            message = f"'{show(first)}' and '{show(second)}' are one file on some machines"
            problems.add(here, message, "rename one of them")


@shaped(
    {
        "type": "array",
        "maxItems": limits.ARTIFACTS,
        "items": {"anyOf": [PATH, shapes.record({"path": PATH, "when": {"enum": ["success", "always"]}}, ("path",))]},
    }
)
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
                    unknown_key(key, ("path", "when"), here, problems)
            when = item.get("when", "success")
            if when not in ("success", "always"):
                hint = did_you_mean(when, ("success", "always"), "write success or always")
                problems.about((*here, "when"), f"must be success or always, not {shown(when)}", hint)
            if "path" not in item:
                problems.about(here, "has no 'path'", "write {path: out/*.png, when: always}")
                continue
            item, here = item["path"], (*here, "path")
        found = _artifact_path.check(item, here, problems)
        if isinstance(item, str) and item.endswith("/"):
            found += "/**"
        done.append(ArtifactPattern(path=found, when="always" if when == "always" else "success"))
    return done
