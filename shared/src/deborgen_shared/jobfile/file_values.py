"""Kinds of values that are paths: files, artifacts, the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.globs import check_glob
from deborgen_shared.jobfile.kinds import Shape, ValueKind, choice, refuse_template, shaped
from deborgen_shared.jobfile.model import ArtifactPattern, File
from deborgen_shared.jobfile.paths import OWN, check_file, check_path, check_state, find_twins
from deborgen_shared.jobfile.problems import Path, Problems, show, subject
from deborgen_shared.jobfile.structure import check_mapping, listed, record, record_shape, report_unknown_key
from deborgen_shared.jobfile.template import without_references

SHA256 = re.compile(r"[0-9a-f]{64}")
#: A relative path without a backslash or drive letter. No part may be empty, `.` or `..`, except that the path may
#: start with `./` and end with a slash.
RELATIVE = r"^(\./)?(?![A-Za-z]:)(?!\.{1,2}(/|$))[^/\\\u0000]+(/(?!\.{1,2}(/|$))[^/\\\u0000]+)*/?$"
PATH = {"type": "string", "minLength": 1, "maxLength": limits.PATH_BYTES, "pattern": RELATIVE}
#: The same, except for paths in deborgen's own folder, whose name may be in capital or small letters.
_OWN = "".join(f"[{letter}{letter.upper()}]" for letter in OWN[1:])
NOT_OWN = RELATIVE.replace(r"(\./)?", rf"(\./)?(?!\.{_OWN}(/|$))")


def file_path(
    example: str,
    *,
    templates: bool = False,
    folder: str | None = None,
    beside: bool = False,
    glob: bool = False,
    check_one: Callable[[str], str | None] = check_path,
) -> ValueKind:
    """A path in the workspace or, with `beside`, in the job file's folder. A leading `./` is removed.

    With `folder`, the path may end with a slash, which is replaced by that text. With `glob`, it is a pattern of paths.
    """
    hint = f"write a path inside the workspace, for example {example}"
    if beside:
        hint = "files must be in the folder of the job file or below it: copy or link it there"

    def check(value: Any, path: Path, problems: Problems) -> str:
        if not isinstance(value, str):
            problems.wrong_kind(value, path, "a path", f"write for example {example}")
            return ""
        if not templates and refuse_template(value, path, problems):
            return ""
        done, end = value, ""
        while done.startswith("./"):
            done = done[2:].lstrip("/")
        if folder is not None and len(done) > 1 and done.endswith("/"):
            done, end = done[:-1], folder
        filled = without_references(done, "x")
        reason = check_one(filled)
        if beside and done.startswith("~"):
            reason = "starts with '~', which is not expanded here"
        if reason:
            # A path that is too long needs no hint, and one in deborgen's own folder is already inside the workspace.
            advice = "choose another name" if reason.endswith("deborgen") else hint
            problems.add(path, f"the path '{show(value)}' {reason}", "" if reason.endswith("bytes") else advice)
        elif glob and (broken := check_glob(filled)) is not None:
            problems.add(path, f"the pattern '{show(value)}' {show(broken[0])}", show(broken[1]))
        return done + end

    return ValueKind(check, PATH)


result = file_path("metrics.json", templates=True)
inner_path = file_path("data/state", folder="")
state_path = file_path("state/", folder="", check_one=check_state)
_beside_path = file_path("sim.py", folder="", beside=True, check_one=check_file)
_wire_path = file_path("data/a.csv", check_one=check_file)
_artifact_path = file_path("out/*.png", templates=True, folder="/**", glob=True)


@shaped({"anyOf": [PATH | {"pattern": NOT_OWN}, {"enum": [".", "./"]}]})
def _local_file(value: Any, path: Path, problems: Problems) -> str:
    """A file or folder next to the job file. `.` is the folder of the job file itself."""
    return "." if value in (".", "./") else str(_beside_path.check(value, path, problems))


_WIRE_FILE: dict[str, Shape] = {
    "path": {**PATH, "pattern": NOT_OWN.replace("/?$", "$")},
    "sha256": {"type": "string", "pattern": f"^{SHA256.pattern}$", "minLength": 64, "maxLength": 64},
    "size": {"type": "integer", "minimum": 0, "maximum": limits.FILE_BYTES},
    "mode": {
        "type": "integer", "minimum": 0, "maximum": 0o777, "default": 0o644,
        "description": "Permissions as a number: 420 is 0644.",
    },
}  # fmt: skip


@shaped(record_shape(_WIRE_FILE, ("path", "sha256", "size")))
def _wire_file(value: Any, path: Path, problems: Problems) -> File | None:
    """A file with the digest of its blob. There may be thousands, so paths for problems are built only when needed."""
    if not check_mapping(value, path, problems, 'upload the blob, then write {"path", "sha256", "size", "mode"}'):
        return None
    before = len(problems)
    for key in value:
        if key not in _WIRE_FILE:
            report_unknown_key(key, _WIRE_FILE, path, problems)
    found = _wire_path.check(value.get("path"), (*path, "path"), problems)
    digest, count, mode = value.get("sha256"), value.get("size"), value.get("mode", 0o644)
    if not isinstance(digest, str) or not SHA256.fullmatch(digest):
        problems.about((*path, "sha256"), "is not 64 hexadecimal digits")
    for key, amount, most in (("size", count, limits.FILE_BYTES), ("mode", mode, 0o777)):
        if not isinstance(amount, int) or isinstance(amount, bool) or not 0 <= amount <= most:
            problems.about((*path, key), f"is not a whole number from 0 to {most}")
    return File(path=found, sha256=str(digest), size=count or 0, mode=mode) if len(problems) == before else None


def _without_twins(files: ValueKind, path_of: Callable[[Any], str]) -> ValueKind:
    """A list of files without twins: no two paths may be the same file, or a file and a folder, on any machine."""

    def check(value: Any, path: Path, problems: Problems) -> list[Any]:
        before = len(problems)
        done: list[Any] = files.check(value, path, problems)
        if len(problems) > before:
            return done
        paths = [path_of(file) for file in done]
        for first, second in find_twins(paths):
            here = (*path, len(paths) - 1 - paths[::-1].index(second))
            message = f"'{show(first)}' and '{show(second)}' are the same file on some machines"
            hint = "rename one of them"
            if first == second:
                message, hint = f"'{show(second)}' is listed twice in {subject(path)}", ""
            elif second.lower().startswith(first.lower() + "/"):
                message, hint = f"'{show(second)}' is in '{show(first)}', which is listed too", "remove one of them"
            problems.add(here, message, hint)
        return done

    return ValueKind(check, files.shape)


#: The hand-written form: files and folders next to the job file.
_LOCAL = listed(_local_file, limits.FILES, "[sim.py, data/]")
local_files = _without_twins(ValueKind(_LOCAL.check, _LOCAL.shape | {"uniqueItems": True}), str)
#: The wire form: each file with the digest of its blob.
_WIRE = listed(_wire_file, limits.FILES, '[{"path", "sha256", "size", "mode"}]')
wire_files = _without_twins(_WIRE, attrgetter("path"))

_ARTIFACT = record(
    {"path": _artifact_path, "when": choice("success", "always")},
    "write {path: out/*.png, when: always}",
    ("path",),
    ArtifactPattern,
)


@shaped({"anyOf": [PATH, _ARTIFACT.shape]})
def _artifact(value: Any, path: Path, problems: Problems) -> Any:
    if isinstance(value, dict):
        return _ARTIFACT.check(value, path, problems)
    return ArtifactPattern(path=_artifact_path.check(value, path, problems))


artifacts = listed(_artifact, limits.ARTIFACTS, "[out/*.png, best.json]")
