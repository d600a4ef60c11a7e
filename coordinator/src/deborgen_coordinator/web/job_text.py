"""A job file as a person pastes it: checked as the command checks it, with the same problems at the same lines.

The browser has the files that the person chose. It sends their paths, sizes and digests, and the job file's `files`
choose among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec

from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.runs import submit
from deborgen_shared.errors import Refusal
from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.globs import Glob
from deborgen_shared.jobfile.model import JobFile
from deborgen_shared.jobfile.paths import check_file
from deborgen_shared.jobfile.plan import idle_excludes
from deborgen_shared.jobfile.problems import JobFileInvalid, Path, Problem
from deborgen_shared.jobfile.reading import load, parse_document
from deborgen_shared.messages import Sha256, Size

WILDCARDS = frozenset("*?[")
#: A browser does not tell whether a file is executable.
MODE = 0o644


class ChosenFile(msgspec.Struct, frozen=True):
    """A file that a person chose in the browser."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    sha256: Sha256
    size: Size


ChosenFiles = Annotated[list[ChosenFile], msgspec.Meta(max_length=limits.FILES)]


@dataclass
class CheckedText:
    """A job file that can be submitted: the data to submit, the files that it needs, and what to warn of."""

    jobfile: JobFile
    data: dict[str, Any]
    files: list[ChosenFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_text(ctx: Context, actor: Actor, text: str, source: str, chosen: Sequence[ChosenFile]) -> CheckedText:
    """The checked job file, or JobFileInvalid with all its problems."""
    document = load(text.encode("utf-8", "surrogatepass"), source)
    problems: list[Problem] = []
    jobfile = None
    try:
        jobfile = parse_document(document, default_name=PurePosixPath(source).stem or "job")
        problems += jobfile.not_yet
    except JobFileInvalid as invalid:
        problems += invalid.problems
    data, files = _with_files(document.data, chosen, problems)
    if problems or jobfile is None:
        raise _located(document, problems)
    if "name" not in data:
        data = {"name": jobfile.name, **data}
    try:
        checked = submit.check(ctx, actor, data)
    except Refusal as refusal:
        raise _located(document, _problems_in(refusal)) from None
    return CheckedText(jobfile, data, files, [*idle_excludes(jobfile), *checked.warnings])


def _located(document: Document, problems: Sequence[Problem]) -> JobFileInvalid:
    return JobFileInvalid(map(document.locate, problems), document.source, document.lines)


#: One part of a path like `steps[0].run`: an index or a name.
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def _problems_in(refusal: Refusal) -> list[Problem]:
    """The problems that only the coordinator finds. Any other refusal stays one."""
    found = (refusal.details or {}).get("problems")
    if not found:
        raise refusal
    return [
        Problem(tuple(int(m[1]) if m[1] else m[2] for m in _PART.finditer(each["path"])), each["message"], each["hint"])
        for each in found
    ]


def _with_files(
    data: Any, chosen: Sequence[ChosenFile], problems: list[Problem]
) -> tuple[dict[str, Any], list[ChosenFile]]:
    """The data of the job file with the chosen files instead of local paths, and the files that it uses."""
    if not isinstance(data, dict):
        return {}, []
    data = dict(data)
    if isinstance(data.get("steps"), list):
        data["steps"] = [dict(step) if isinstance(step, dict) else step for step in data["steps"]]
    wrong = {problem.path for problem in problems}
    used: dict[str, ChosenFile] = {}
    for path, level in _levels(data):
        entries = level.get("files")
        if not isinstance(entries, list):
            continue
        found: dict[str, ChosenFile] = {}
        for index, entry in enumerate(entries):
            where: Path = (*path, "files", index)
            if isinstance(entry, str) and where not in wrong:
                found |= _choose(entry, chosen, where, problems)
        if len(found) > limits.FILES:
            message = f"there are {len(found):,} files, but the limit is {limits.FILES:,}"
            problems.append(Problem((*path, "files"), message, "put them into an archive"))
        level["files"] = [
            {"path": name, "sha256": file.sha256, "size": file.size, "mode": MODE} for name, file in found.items()
        ]
        used |= {file.sha256: file for file in found.values()}
    return data, list(used.values())


def _levels(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The job file itself and its steps: every level that may have `files`."""
    yield (), data
    steps = data.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        if isinstance(step, dict):
            yield ("steps", index), step


def _choose(entry: str, chosen: Sequence[ChosenFile], where: Path, problems: list[Problem]) -> dict[str, ChosenFile]:
    """The chosen files that an entry of `files` means, by their paths in the workspace."""
    name = str(PurePosixPath(entry))
    glob = Glob(name) if WILDCARDS & set(entry) else None
    found: dict[str, ChosenFile] = {}
    for file in chosen:
        for path in _paths(file.path):
            if ".git" in PurePosixPath(path).parts:
                continue
            inside = name == "." or path == name or path.startswith(name + "/")
            if glob.matches(path) if glob else inside:
                found.setdefault(path, file)
                break
    if not found and not glob and len(same := [f for f in chosen if PurePosixPath(f.path).name == _last(name)]) == 1:
        found = {name: same[0]}  # a file that was chosen alone has no folder
    if not found:
        problems.append(Problem(where, f"no file was chosen for {entry!r}", "choose it below the job file"))
    for path in found:
        if wrong := check_file(path):
            hint = "rename it, or put it into an archive"
            problems.append(Problem(where, f"the path of the file {path!r} {wrong}", hint))
    return dict(sorted(found.items()))


def _last(name: str) -> str:
    return PurePosixPath(name).name


def _paths(path: str) -> list[str]:
    """What a chosen path may be relative to the job file: a chosen folder is the job file's own folder, or is in it."""
    path = str(PurePosixPath(path))
    inner = path.partition("/")[2]
    return [path, inner] if inner else [path]
