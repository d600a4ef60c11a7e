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
from deborgen_shared.jobfile.overriding import near_miss, override
from deborgen_shared.jobfile.paths import check_file
from deborgen_shared.jobfile.plan import idle_excludes
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem, did_you_mean
from deborgen_shared.jobfile.reading import load, parse, parse_document

ProblemPath = tuple[str | int, ...]

#: The end of a report: "2 problems, nothing was submitted."
NOT_SUBMITTED = "nothing was submitted"


@dataclass
class PreparedJobFile:
    """A job file that passed all local checks: the files to upload, and the data to send."""

    jobfile: JobFile
    data: dict[str, Any]
    document: Document | None
    collections: dict[ProblemPath, files.Collection] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[files.LocalFile]:
        unique = {file.source: file for each in self.collections.values() for file in each.files}
        return list(unique.values())

    @property
    def skipped(self) -> list[str]:
        return [text for each in self.collections.values() for text in each.skipped]


def prepare(
    file: str, params: Mapping[str, Any], keys: Mapping[str, Any] | None = None, *, consequence: str = NOT_SUBMITTED
) -> PreparedJobFile:
    """Read and check the job file that was given to a command; `-` is standard input. `keys` replace those of the
    file and of its steps."""
    if file == "-":
        return prepare_text(sys.stdin.buffer.read(), "<stdin>", "stdin", Path(), params, keys, consequence=consequence)
    return prepare_file(Path(file), params, keys, consequence=consequence)


def prepare_file(
    path: Path, params: Mapping[str, Any], keys: Mapping[str, Any] | None = None, *, consequence: str = NOT_SUBMITTED
) -> PreparedJobFile:
    """Read and check a job file. InvalidJob carries the whole report."""
    try:
        with path.open("rb") as file:
            # Do not read a huge file to its end: it is not a job file.
            text = file.read(64 * limits.DOCUMENT_BYTES)
    except FileNotFoundError:
        raise InvalidJob(f"there is no file {path}", "deborgen init writes an example") from None
    except IsADirectoryError:
        raise InvalidJob(f"{path} is a folder", "name the job file in it") from None
    except OSError as why:
        raise InvalidJob(f"{path} cannot be read: {why.strerror}") from None
    return prepare_text(text, str(path), path.stem, path.parent, params, keys, consequence=consequence)


def prepare_text(
    text: bytes,
    source: str,
    default_name: str,
    base: Path,
    params: Mapping[str, Any],
    keys: Mapping[str, Any] | None = None,
    *,
    consequence: str = NOT_SUBMITTED,
) -> PreparedJobFile:
    """Check the text of a job file. `base` is the folder of its files."""
    try:
        document = load(text, source)
    except JobFileInvalid as invalid:
        raise error_from(invalid, consequence) from None
    warnings = _new_axes(document.data, params)
    document.data = data = _with_keys(_overridden(document.data, params), keys or {})
    jobfile, problems = None, []
    try:
        jobfile = parse_document(document, default_name=default_name)
        problems += jobfile.not_yet
    except JobFileInvalid as invalid:
        problems += invalid.problems
    prepared = _prepared(data, jobfile, problems, base, document, consequence)
    prepared.warnings = warnings + idle_excludes(prepared.jobfile)
    return prepared


def _new_axes(data: Any, params: Mapping[str, Any]) -> list[str]:
    """A warning for each parameter that the job file does not have, if it has one with a similar name."""
    meant = {name: near_miss(data, name) for name in params}
    return [
        f"-p {name} adds a parameter that the job file does not use; did you mean {near}?"
        for name, near in meant.items()
        if near
    ]


def prepare_data(data: dict[str, Any], base: Path, params: Mapping[str, Any]) -> PreparedJobFile:
    """Check a job file that is given as a dict, from Python."""
    data = _overridden(data, params)
    try:
        jobfile = parse(data, wire=False)
    except JobFileInvalid as invalid:  # files are checked only if the data itself is valid
        raise error_with_lines(invalid.problems, None) from None
    return _prepared(data, jobfile, list(jobfile.not_yet), base, None, NOT_SUBMITTED)


def _prepared(
    data: Any, jobfile: JobFile | None, problems: list[Problem], base: Path, document: Document | None, consequence: str
) -> PreparedJobFile:
    collections = _collect(data, base, problems)
    if problems or jobfile is None:
        raise error_with_lines(problems, document, consequence)
    named = data if "name" in data else {"name": jobfile.name, **data}
    return PreparedJobFile(jobfile, named, document, collections)


def error_with_lines(
    problems: list[Problem], document: Document | None, consequence: str = NOT_SUBMITTED
) -> InvalidJob:
    """An error that reports all problems. If there is a document, it shows each problem with its line."""
    if document is None:
        return error_from(JobFileInvalid(problems, "job"), consequence)
    return error_from(JobFileInvalid(map(document.locate, problems), document.source, document.lines), consequence)


def error_from(invalid: JobFileInvalid, consequence: str) -> InvalidJob:
    sentences = [f"{each.path_text}: {each.message}" if each.path else each.message for each in invalid.problems]
    hints = [f" ({each.hint})" if each.hint else "" for each in invalid.problems]
    message = "; ".join(f"{sentence}{hint}" for sentence, hint in zip(sentences, hints, strict=True))
    return InvalidJob(message, details={"report": invalid.render(consequence), "problems": invalid.problems})


def _overridden(data: Any, params: Mapping[str, Any]) -> Any:
    try:
        return override(data, {name: _as_axis(value) for name, value in params.items()})
    except ValueError as why:
        raise WrongUsage(str(why), "the parameters are listed under sweep: in the job file") from None


def _with_keys(data: Any, keys: Mapping[str, Any]) -> Any:
    """The data with these keys, also in the steps that set them themselves."""
    if not keys or not isinstance(data, dict):
        return data
    changed = {**data, **keys}
    if isinstance(steps := data.get("steps"), list):
        changed["steps"] = [
            {**step, **{name: keys[name] for name in keys if name in step}} if isinstance(step, dict) else step
            for step in steps
        ]
    return changed


def _as_axis(value: Any) -> Any:
    """A list is swept over, a dict is a range as in the job file, and anything else is a single value."""
    if isinstance(value, list | tuple | range):
        return list(value)
    return value if isinstance(value, dict) else [value]


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
                if wrong_path := check_file(file.path):
                    problems.append(Problem(where, f"the path of the file {file.path!r} {wrong_path}", _EXCLUDE_ONE))
        if len(collection.files) > limits.FILES:
            message = f"there are {len(collection.files):,} files, but the limit is {limits.FILES:,}"
            problems.append(Problem((*path, "files"), message, _EXCLUDE_SOME))
        found[path] = collection
    return found


_EXCLUDE_ONE = "rename it, put it into an archive, or exclude it in a .deborgenignore file"
_EXCLUDE_SOME = "put them into an archive, or exclude some in a .deborgenignore file"


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
