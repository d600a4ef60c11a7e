"""The two ways in for text: `load` gives its data and places, `parse_document` its meaning."""

from __future__ import annotations

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.loader import compose
from deborgen_shared.jobfile.model import JobFile
from deborgen_shared.jobfile.parser import check
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem, Problems


def load(text: str | bytes, source: str = "job.yml") -> Document:
    """The document of a job file's text.

    A text that breaks the rules of YAML, or of this subset of it, is refused; and with it, where the document could be
    read all the same, everything else that is wrong in it.
    """
    document = compose(text, source)
    if document.problems:
        raise JobFileInvalid(_problems(document, "job", limits.JOBS)[1], source, document.lines)
    return document


def parse_document(document: Document, *, default_name: str = "job", max_jobs: int = limits.JOBS) -> JobFile:
    """The meaning of a document. Its problems have lines and columns."""
    jobfile, problems = _problems(document, default_name, max_jobs)
    if problems or jobfile is None:
        raise JobFileInvalid(problems, document.source, document.lines)
    return jobfile


def _problems(document: Document, default_name: str, max_jobs: int) -> tuple[JobFile | None, list[Problem]]:
    found = Problems()
    jobfile = check(document.data, found, wire=False, default_name=default_name, max_jobs=max_jobs)
    if jobfile:
        jobfile.not_yet[:] = map(document.locate, jobfile.not_yet)
    # What was refused already is not complained about again.
    places = {(problem.line, problem.column) for problem in document.problems}
    located = [problem for problem in map(document.locate, found) if (problem.line, problem.column) not in places]
    return jobfile, [*document.problems, *located]
