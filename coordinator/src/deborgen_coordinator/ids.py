"""Numbers and names of jobs and attempts: `42.7` is the seventh job of run 42, `42.7/2` its second attempt.

A job's key in the database is the run's number times 2^20 plus the index, so that the jobs of a run are adjacent and
the order of keys is the order of submission.
"""

from __future__ import annotations

from collections.abc import Iterable

#: The index of a job takes this many bits at the end of its key. The bits before them are the number of its run.
SHIFT = 20
MOST_JOBS = (1 << SHIFT) - 1


def key(run: int, index: int) -> int:
    return run << SHIFT | index


def run_of(job: int) -> int:
    return job >> SHIFT


def index_of(job: int) -> int:
    return job & MOST_JOBS


def span(run: int) -> tuple[int, int]:
    """The first and the last key that a job of this run can have."""
    return key(run, 1), key(run, MOST_JOBS)


def name(job: int) -> str:
    return f"{job >> SHIFT}.{job & MOST_JOBS}"


def names_in_spans(jobs: Iterable[int]) -> str:
    """The names of many jobs, with adjacent jobs as spans: `42.7-42.12,42.15`."""
    found: list[list[int]] = []
    for job in sorted(jobs):
        if found and job == found[-1][-1] + 1:
            found[-1][1:] = [job]
        else:
            found.append([job])
    return ",".join("-".join(map(name, ends)) for ends in found)


def attempt_name(job: int, number: int) -> str:
    return f"{job >> SHIFT}.{job & MOST_JOBS}/{number}"


def parse_attempt(text: str) -> tuple[int, int]:
    """The job's key and the attempt's number. The caller has checked the form of the name.

    If no job can have that index, both are 0, which no attempt has.
    """
    job, number = text.split("/")
    run, index = job.split(".")
    if int(index) > MOST_JOBS:
        return 0, 0
    return key(int(run), int(index)), int(number)
