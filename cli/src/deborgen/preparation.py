"""Reading a job file: everything that can be wrong with it is found here, at its line, before anything is sent."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deborgen import files
from deborgen.errors import DeborgenError, InvalidJob
from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.model import JobFile
from deborgen_shared.jobfile.overriding import override
from deborgen_shared.jobfile.paths import check_path
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem
from deborgen_shared.jobfile.reading import load, parse, parse_document

ProblemPath = tuple[str | int, ...]


class BadParameter(DeborgenError):
    exit_code = 2


@dataclass
class Prepared:
    """A job file that is right as far as can be known here: what to upload, and what to send."""

    jobfile: JobFile
    data: dict[str, Any]
    document: Document | None
    collections: dict[ProblemPath, files.Collection] = field(default_factory=dict)

    @property
    def files(self) -> list[files.LocalFile]:
        unique = {file.source: file for each in self.collections.values() for file in each.files}
        return list(unique.values())

    @property
    def skipped(self) -> list[str]:
        return [text for each in self.collections.values() for text in each.skipped]

    @property
    def upload_size(self) -> int:
        return sum(file.size for file in self.files)


def prepare_file(path: Path, params: Mapping[str, Any], *, outcome: str = "nothing was submitted") -> Prepared:
    """Read and check a job file. InvalidJob has the whole report."""
    try:
        with path.open("rb") as file:
            # Whoever names their data instead of their job file should not have to wait until it is read.
            text = file.read(64 * limits.DOCUMENT_BYTES)
    except FileNotFoundError:
        raise InvalidJob(f"there is no file {path}", "deborgen init writes a first one") from None
    except IsADirectoryError:
        raise InvalidJob(f"{path} is a folder", "name the job file in it") from None
    except OSError as why:
        raise InvalidJob(f"{path} cannot be read: {why.strerror}") from None
    return prepare_text(text, str(path), path.stem, path.parent, params, outcome=outcome)


def prepare_text(
    text: bytes,
    source: str,
    default_name: str,
    base: Path,
    params: Mapping[str, Any],
    *,
    outcome: str = "nothing was submitted",
) -> Prepared:
    """The same for the text of a job file; `base` is the folder that its files are in."""
    try:
        document = load(text, source)
        document.data = _overridden(document.data, params)
        problems: list[Problem] = []
        jobfile = None
        try:
            jobfile = parse_document(document, default_name=default_name)
            problems += jobfile.not_yet
        except JobFileInvalid as invalid:
            problems += invalid.problems
        collections = _collect(document.data, base, problems, document.locate)
        if problems or jobfile is None:
            raise JobFileInvalid(problems, source, document.lines)
    except JobFileInvalid as invalid:
        raise refused(invalid, outcome) from None
    return Prepared(jobfile, _named(document.data, jobfile.name), document, collections)


def prepare_data(data: dict[str, Any], base: Path, params: Mapping[str, Any]) -> Prepared:
    """The same for a job file that is data already, from Python."""
    data = _overridden(data, params)
    try:
        jobfile = parse(data, wire=False)
        problems = list(jobfile.not_yet)
        collections = _collect(data, base, problems, lambda problem: problem)
        if problems:
            raise JobFileInvalid(problems)
    except JobFileInvalid as invalid:
        invalid.source = "job"
        raise refused(invalid, "nothing was submitted") from None
    return Prepared(jobfile, _named(data, jobfile.name), None, collections)


def _named(data: dict[str, Any], name: str) -> dict[str, Any]:
    return data if "name" in data else {"name": name, **data}


def refused(invalid: JobFileInvalid, outcome: str) -> InvalidJob:
    return InvalidJob(str(invalid), details={"report": invalid.render(outcome), "problems": invalid.problems})


def _overridden(data: Any, params: Mapping[str, Any]) -> Any:
    axes = {
        name: list(value) if isinstance(value, list | tuple | range) else value if isinstance(value, dict) else [value]
        for name, value in params.items()
    }
    try:
        return override(data, axes)
    except ValueError as why:
        raise BadParameter(str(why), "the names of parameters stand under sweep:") from None


def _levels(data: Any) -> Iterator[tuple[ProblemPath, dict[str, Any]]]:
    """The job file and its steps: everything that may have files of its own."""
    if isinstance(data, dict):
        yield (), data
        steps = data.get("steps")
        for index, step in enumerate(steps if isinstance(steps, list) else []):
            if isinstance(step, dict):
                yield ("steps", index), step


def _collect(
    data: Any, base: Path, problems: list[Problem], locate: Callable[[Problem], Problem]
) -> dict[ProblemPath, files.Collection]:
    found: dict[ProblemPath, files.Collection] = {}
    wrong = {problem.path for problem in problems}
    for path, level in _levels(data):
        entries = level.get("files")
        if not isinstance(entries, list):
            continue
        collection = files.Collection()
        for index, entry in enumerate(entries):
            where = (*path, "files", index)
            if not isinstance(entry, str) or where in wrong:
                continue
            try:
                one = files.collect(base, [entry])
            except files.FileMissing as missing:
                message = f"the file {missing.entry!r} {missing.why}"
                problems.append(locate(Problem(where, message, _nearby(base, entry))))
                continue
            collection.files += one.files
            collection.skipped += one.skipped
            for file in one.files:
                if wrong_path := check_path(file.path):
                    problems.append(
                        locate(Problem(where, f"the path of the file {file.path!r} {wrong_path}", _EXCLUDE))
                    )
        if len(collection.files) > limits.FILES:
            message = f"these are {len(collection.files):,} files, and the limit is {limits.FILES:,}"
            problems.append(locate(Problem((*path, "files"), message, _EXCLUDE)))
        found[path] = collection
    return found


_EXCLUDE = "rename or pack them, or exclude them in a .deborgenignore file"


def _nearby(base: Path, entry: str) -> str:
    from difflib import get_close_matches

    path = base / entry
    try:
        names = [child.name for child in path.parent.iterdir()]
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"paths start at {base}/" if str(base) != "." else ""


def braces_to_template(command: str) -> str:
    """`sim --x {x}` as the job file writes it: `sim --x ${{ x }}`. Doubled braces are braces."""
    text = ""
    try:
        for literal, name, spec, conversion in string.Formatter().parse(command):
            text += literal
            if name is not None:
                if spec or conversion or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
                    raise ValueError(f"{{{name}}} is not a name")
                text += "${{ " + name + " }}"
    except ValueError as why:
        hint = "write {name}, and {{ for a brace"
        raise BadParameter(f"the command {command!r} is not a template: {why}", hint) from None
    return text
