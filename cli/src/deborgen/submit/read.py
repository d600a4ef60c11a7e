"""Reads a job file and finds everything that is wrong with it, with line numbers, before anything is sent."""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deborgen import files
from deborgen.errors import InvalidJob, WrongUsage
from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.model import JobFile
from deborgen_shared.jobfile.overriding import override
from deborgen_shared.jobfile.paths import check_path
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem, did_you_mean
from deborgen_shared.jobfile.reading import load, parse, parse_document

ProblemPath = tuple[str | int, ...]

NOT_SUBMITTED = "nothing was submitted"


@dataclass
class Prepared:
    """A job file without local problems: the files to upload, and the data to send."""

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


def prepare(file: str, params: Mapping[str, Any], *, outcome: str = NOT_SUBMITTED) -> Prepared:
    """Read and check the job file that was given to a command; `-` is standard input."""
    if file == "-":
        return prepare_text(sys.stdin.buffer.read(), "<stdin>", "stdin", Path(), params, outcome=outcome)
    return prepare_file(Path(file), params, outcome=outcome)


def prepare_file(path: Path, params: Mapping[str, Any], *, outcome: str = NOT_SUBMITTED) -> Prepared:
    """Read and check a job file. InvalidJob carries the whole report."""
    try:
        with path.open("rb") as file:
            # Do not read a huge file to its end: it is data that was named by mistake.
            text = file.read(64 * limits.DOCUMENT_BYTES)
    except FileNotFoundError:
        raise InvalidJob(f"there is no file {path}", "deborgen init writes an example") from None
    except IsADirectoryError:
        raise InvalidJob(f"{path} is a folder", "name the job file in it") from None
    except OSError as why:
        raise InvalidJob(f"{path} cannot be read: {why.strerror}") from None
    return prepare_text(text, str(path), path.stem, path.parent, params, outcome=outcome)


def prepare_text(
    text: bytes, source: str, default_name: str, base: Path, params: Mapping[str, Any], *, outcome: str = NOT_SUBMITTED
) -> Prepared:
    """The same for the text of a job file. `base` is the folder of its files."""
    try:
        document = load(text, source)
    except JobFileInvalid as invalid:
        raise refused(invalid, outcome) from None
    document.data = data = _overridden(document.data, params)
    jobfile, problems = None, []
    try:
        jobfile = parse_document(document, default_name=default_name)
        problems += jobfile.not_yet
    except JobFileInvalid as invalid:
        problems += invalid.problems
    return _prepared(data, jobfile, problems, base, document, outcome)


def prepare_data(data: dict[str, Any], base: Path, params: Mapping[str, Any]) -> Prepared:
    """The same for a job file given as data, from Python."""
    data = _overridden(data, params)
    try:
        jobfile = parse(data, wire=False)
    except JobFileInvalid as invalid:  # files are checked only if the data itself is valid
        raise located(invalid.problems, None) from None
    return _prepared(data, jobfile, list(jobfile.not_yet), base, None, NOT_SUBMITTED)


def _prepared(
    data: Any, jobfile: JobFile | None, problems: list[Problem], base: Path, document: Document | None, outcome: str
) -> Prepared:
    collections = _collect(data, base, problems)
    if problems or jobfile is None:
        raise located(problems, document, outcome)
    named = data if "name" in data else {"name": jobfile.name, **data}
    return Prepared(jobfile, named, document, collections)


def located(problems: list[Problem], document: Document | None, outcome: str = NOT_SUBMITTED) -> InvalidJob:
    """The report of all problems. If there is a document, each problem has its line in it."""
    if document is None:
        return refused(JobFileInvalid(problems, "job"), outcome)
    return refused(JobFileInvalid(map(document.locate, problems), document.source, document.lines), outcome)


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
        raise WrongUsage(str(why), "the parameters are listed under sweep: in the job file") from None


def _levels(data: Any) -> Iterator[tuple[ProblemPath, dict[str, Any]]]:
    """The job file itself and its steps: every level that may have `files`."""
    if isinstance(data, dict):
        yield (), data
        steps = data.get("steps")
        for index, step in enumerate(steps if isinstance(steps, list) else []):
            if isinstance(step, dict):
                yield ("steps", index), step


def _collect(data: Any, base: Path, problems: list[Problem]) -> dict[ProblemPath, files.Collection]:
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
                one = files.collect(base, entry)
            except files.FileMissing as missing:
                problems.append(Problem(where, f"the file {missing}", _nearby(base, entry)))
                continue
            collection.files += one.files
            collection.skipped += one.skipped
            for file in one.files:
                if wrong_path := check_path(file.path):
                    problems.append(Problem(where, f"the path of the file {file.path!r} {wrong_path}", _EXCLUDE))
        if len(collection.files) > limits.FILES:
            message = f"there are {len(collection.files):,} files, but the limit is {limits.FILES:,}"
            problems.append(Problem((*path, "files"), message, _EXCLUDE))
        found[path] = collection
    return found


_EXCLUDE = "rename them, put them into an archive, or exclude them in a .deborgenignore file"


def _nearby(base: Path, entry: str) -> str:
    path = base / entry
    try:
        names = [child.name for child in path.parent.iterdir()]
    except OSError:
        names = []
    return did_you_mean(path.name, names, f"paths are relative to {base}/" if str(base) != "." else "")


def braces_to_template(command: str) -> str:
    """Turn `sim --x {x}` into the job file's `sim --x ${{ x }}`. Doubled braces become single ones."""
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
        raise WrongUsage(f"the command {command!r} is not a valid template: {why}", hint) from None
    return text
