"""What a job finds in its workspace besides its own files: artifacts of the steps that it needs and, in a loop, of an
earlier job. If these jobs were not retried with it, they belong to an earlier run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.paths import INPUTS, PREVIOUS
from deborgen_shared.messages import Input
from deborgen_shared.states import Phase

from ... import ids
from ...loops import Place
from ...storage import blobs, jobs, rounds, specs
from ...storage.rows import RunRow, StepRow
from ...storage.transactions import Tx
from ..rounds import find_work, lineage
from ..work import Work

#: The artifacts of a job: the index of the job, or of the first job of its loop, and then job, path, digest and size.
Made = tuple[int, int, str, str, int]


def of_needed_steps(work: Work, owner: RunRow, number: int) -> list[Input]:
    """The artifacts of the steps that this step needs."""
    own = next(step for step in specs.steps(work.tx, owner.id) if step.number == number)
    return [each for need in own.needs for each in _of_step(work, owner, need)]


def of_round(tx: Tx, owner: RunRow, spec: JobSpec, place: Place) -> list[Input]:
    """What a job of a loop gets from the loop: the work of the previous round, or a check, the work that it checks."""
    if place.phase is Phase.WORK:
        made = _of_work(tx, owner, place._replace(round=place.round - 1)) if place.round > 1 else ()
        return [_input(PREVIOUS, each, f"{INPUTS}/{PREVIOUS}/") for each in made]
    if spec.workspace is not None and spec.workspace.shared:
        return []  # the check finds in that folder what the work has written there
    return [_input("", each) for each in _of_work(tx, owner, place)]  # laid over the files of the job


def _of_work(tx: Tx, owner: RunRow, place: Place) -> Iterator[Made]:
    """The artifacts of the work of a round, without those of the previous round: a pattern like `**` finds them too."""
    job = find_work(tx, owner, place)
    for row in blobs.artifacts_of_span(tx, job, job) if job is not None else ():
        if not row[1].startswith(f"{INPUTS}/{PREVIOUS}/"):
            yield ids.index_of(place.point), *row


def _input(step: str, made: Made, folder: str = "") -> Input:
    _, job, path, digest, size = made
    return Input(step=step, job=ids.name(job), path=path, target=folder + path, sha256=digest, size=size)


def _of_step(work: Work, owner: RunRow, need: str) -> Iterator[Input]:
    """The artifacts of a step. If a job of it was not retried, its artifacts come from an earlier run."""
    found: dict[tuple[int, str], Made] = {}
    retried: set[int] = set()
    is_sweep = False
    for run in lineage(work.tx, owner):
        for step in specs.steps(work.tx, run.id):
            if step.name == need:
                is_sweep = is_sweep or step.last_index > step.first_index
                made = _of_loops(work.tx, run, step) if _repeats(work, run, step) else _of_jobs(work.tx, step)
                found |= {(each[0], each[2]): each for each in made if each[0] not in retried}
                retried.update(ids.index_of(job) for job in jobs.ids_in_span(work.tx, *_span(step)))
    for (index, _), each in sorted(found.items()):
        yield _input(need, each, f"{INPUTS}/{need}/{index}/" if is_sweep else f"{INPUTS}/{need}/")


def _span(step: StepRow) -> tuple[int, int]:
    return ids.key(step.run, step.first_index), ids.key(step.run, step.last_index)


def _repeats(work: Work, run: RunRow, step: StepRow) -> bool:
    return run.next_index > 0 and work.ctx.spec_cache.spec(work.tx, step.spec_id).job.repeat is not None


def _of_jobs(tx: Tx, step: StepRow) -> Iterable[Made]:
    """The artifacts of a step's jobs that have succeeded."""
    return ((ids.index_of(row[0]), *row) for row in blobs.artifacts_of_span(tx, *_span(step)))


def _of_loops(tx: Tx, run: RunRow, step: StepRow) -> Iterator[Made]:
    """The artifacts of the last round of each loop of a step."""
    for point, job, path, digest, size in rounds.artifacts_of_verified(tx, *_span(step)):
        yield ids.index_of(point), job, path, digest, size
    for place, verified in rounds.checked_elsewhere(tx, *_span(step)) if run.retry_of is not None else ():
        if verified:
            yield from _of_work(tx, run, place)
