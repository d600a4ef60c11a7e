"""Find the run, job or worker that a call names, and check whether the caller may change it."""

from __future__ import annotations

from enum import Enum, auto

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import Role

from .. import ids
from ..storage import jobs, runs, specs, workers
from ..storage.database import DatabaseConnection
from ..storage.rows import JobRow, RunRow, StepRow, WorkerRow
from ..storage.transactions import Tx
from .context import Actor

#: The numbers of runs stay below this, so that a job's key, which contains the number of its run, fits into 64 bits.
MOST_RUNS = 2**40


class Noun(Enum):
    """What a name can stand for."""

    RUN = auto()
    LAST_RUN = auto()
    JOB = auto()
    ATTEMPT = auto()
    ARTIFACT = auto()
    WORKER = auto()
    TOKEN = auto()
    SECRET = auto()
    PAGE = auto()
    CURSOR = auto()
    IMAGE = auto()


class UnknownName(Refusal):
    """A call names something that does not exist. `noun` says what, so that http/ can say where to look."""

    def __init__(self, noun: Noun, message: str) -> None:
        super().__init__(Code.NOT_FOUND, message)
        self.noun = noun


def find_run(reader: Tx | DatabaseConnection, run: int) -> RunRow:
    row = runs.get(reader, run) if run < MOST_RUNS else None
    if row is None:
        raise UnknownName(Noun.RUN, f"there is no run {run}")
    return row


def find_job(reader: Tx | DatabaseConnection, run: int, index: int) -> JobRow:
    row = jobs.get(reader, ids.key(run, index)) if run < MOST_RUNS and 0 < index <= ids.MOST_JOBS else None
    if row is None:
        raise UnknownName(Noun.JOB, f"there is no job {run}.{index}")
    return row


def find_step(reader: Tx | DatabaseConnection, job: JobRow) -> StepRow:
    return next(step for step in specs.steps(reader, ids.run_of(job.id)) if step.number == job.step)


def find_worker(reader: Tx | DatabaseConnection, name: str, *, lock: bool = False) -> WorkerRow:
    row = workers.get(reader, name, lock=lock)
    if row is None:
        raise UnknownName(Noun.WORKER, f"there is no worker {name}")
    return row


def check_may_change(actor: Actor, run: RunRow) -> None:
    if actor.role is not Role.ADMIN and actor.name != run.submitter:
        raise Refusal(
            Code.FORBIDDEN,
            f"run {run.id} was submitted by {run.submitter}",
            "only its submitter or an admin may change it",
        )


def parse_cursor(text: str | None) -> int | None:
    """The position in a list where a page begins: the `next` of the previous page."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refusal(Code.MALFORMED, f"{text[:40]!r} is not a cursor", "take it from `next` of the previous page")
    return int(text)
