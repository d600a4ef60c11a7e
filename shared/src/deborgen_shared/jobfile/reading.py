"""The ways in: `load` reads a text, `parse_document` gives its meaning, `parse` that of plain data."""

from __future__ import annotations

from contextlib import suppress

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.loader import compose
from deborgen_shared.jobfile.model import UNSAID_MAX_ATTEMPTS, JobFile
from deborgen_shared.jobfile.parser import check
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem, Problems, TooManyProblems


def load(text: str | bytes, source: str = "job.yml") -> Document:
    """The document of a job file's text.

    A text that breaks the rules of YAML, or of this subset of it, is refused; and with it, where the document could be
    read all the same, everything else that is wrong in it.
    """
    document = compose(text, source)
    if document.problems:
        raise JobFileInvalid(_located(document, "job", limits.JOBS)[1], source, document.lines)
    return document


def parse_document(document: Document, *, default_name: str = "job", max_jobs: int = limits.JOBS) -> JobFile:
    """The meaning of a document. Its problems have lines and columns."""
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
    default_max_attempts: int = UNSAID_MAX_ATTEMPTS,
) -> JobFile:
    """The job file, or JobFileInvalid with all its problems.

    `wire` is the form that the coordinator takes, where `files` are blobs; otherwise they are paths beside the file.
    `max_jobs` is the limit on the jobs of one run; a sweep over it is found without making its combinations.
    `default_max_attempts` is the pool's setting, for jobs that say nothing about `max_attempts`. Only the coordinator
    knows it: what others parse has no use for the number.
    """
    jobfile, problems = _checked(data, wire, default_name, max_jobs, default_max_attempts)
    if jobfile is None:
        raise JobFileInvalid(problems)
    return jobfile


def _located(document: Document, default_name: str, max_jobs: int) -> tuple[JobFile | None, list[Problem]]:
    jobfile, found = _checked(document.data, False, default_name, max_jobs)
    if jobfile:
        jobfile.not_yet[:] = map(document.locate, jobfile.not_yet)
    # What was refused already is not complained about again.
    places = {(problem.line, problem.column) for problem in document.problems}
    located = [problem for problem in map(document.locate, found) if (problem.line, problem.column) not in places]
    return jobfile, [*document.problems, *located]


def _checked(
    data: object, wire: bool, default_name: str, max_jobs: int, max_attempts: int = UNSAID_MAX_ATTEMPTS
) -> tuple[JobFile | None, Problems]:
    problems = Problems()
    defaults = {"name": default_name[: limits.NAME], "max_attempts": max_attempts}
    with suppress(TooManyProblems):
        return check(data, problems, wire, defaults, max_jobs), problems
    return None, problems
