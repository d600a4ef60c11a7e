"""The entry points: `load` reads a text, `parse_document` and `parse` turn a document or plain data into a JobFile."""

from __future__ import annotations

from contextlib import suppress

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.loader import compose
from deborgen_shared.jobfile.model import OLD_MAX_ATTEMPTS, JobFile
from deborgen_shared.jobfile.parser import check
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem, Problems, TooManyProblems


def load(text: str | bytes, source: str = "job.yml") -> Document:
    """Read the text of a job file.

    Text that breaks the rules of YAML, or of the subset used here, raises JobFileInvalid. If the document can be read
    anyway, the exception lists all its other problems too.
    """
    document = compose(text, source)
    if document.problems:
        raise JobFileInvalid(_located(document, "job", limits.JOBS)[1], source, document.lines)
    return document


def parse_document(document: Document, *, default_name: str = "job", max_jobs: int = limits.JOBS) -> JobFile:
    """The job file of a document, or JobFileInvalid with all problems, which have lines and columns."""
    jobfile, problems = _located(document, default_name, max_jobs)
    if jobfile is None or problems:
        raise JobFileInvalid(problems, document.source, document.lines)
    return jobfile


def parse(
    data: object,
    *,
    wire: bool,
    default_name: str = "job",
    max_jobs: int = limits.JOBS,
    default_max_attempts: int = OLD_MAX_ATTEMPTS,
) -> JobFile:
    """The job file, or JobFileInvalid with all its problems.

    With `wire`, `files` are blobs, as in a submission to the coordinator; otherwise they are local paths.
    `max_jobs` limits the jobs of one run; a larger sweep is refused without generating its combinations.
    `default_max_attempts` is the pool's setting for jobs without `max_attempts`. Only the coordinator knows it; other
    callers do not need the number.
    """
    jobfile, problems = _checked(data, wire, default_name, max_jobs, default_max_attempts)
    if jobfile is None:
        raise JobFileInvalid(problems)
    return jobfile


def _located(document: Document, default_name: str, max_jobs: int) -> tuple[JobFile | None, list[Problem]]:
    """The job file, or None if it has problems; and the problems, with lines and columns."""
    jobfile, found = _checked(document.data, False, default_name, max_jobs)
    if jobfile:
        jobfile.not_yet[:] = map(document.locate, jobfile.not_yet)
    # Do not report a second problem at the same position.
    places = {(problem.line, problem.column) for problem in document.problems}
    located = [problem for problem in map(document.locate, found) if (problem.line, problem.column) not in places]
    return jobfile, [*document.problems, *located]


def _checked(
    data: object, wire: bool, default_name: str, max_jobs: int, max_attempts: int = OLD_MAX_ATTEMPTS
) -> tuple[JobFile | None, Problems]:
    problems = Problems()
    defaults = {"name": default_name[: limits.NAME], "max_attempts": max_attempts}
    with suppress(TooManyProblems):
        return check(data, problems, wire, defaults, max_jobs), problems
    return None, problems
