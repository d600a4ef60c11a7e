"""What the ends of attempts say about their machine: what works there, and whether it needs a pause."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.template import OPEN, Scalar, filled, text_of
from deborgen_shared.states import INFRASTRUCTURE_FAILURES, Cause, Outcome

from ...blame import (
    MOST_REMEMBERED,
    Failure,
    avoid_seconds,
    count_own_failures,
    image_subject,
    on_probation,
    pause_after,
    workspace_subject,
)
from ...storage import experiences, workers
from ...storage.experiences import TroubleRow
from ...storage.rows import HeldAttempt, WorkerRow
from ..work import About, Work

_decode = msgspec.json.Decoder(list[Failure]).decode
_decode_params = msgspec.json.Decoder(dict[str, Scalar]).decode
_encode = msgspec.json.Encoder().encode


class MachineOutcome(NamedTuple):
    """How an attempt ended on its machine, with the cause and the image that the worker named."""

    held: HeldAttempt
    outcome: Outcome
    reason: str = ""
    cause: str = ""
    image: str = ""

    @property
    def known_cause(self) -> Cause | None:
        return Cause(self.cause) if self.cause in Cause._value2member_map_ else None


def count_failures(work: Work, worker: WorkerRow, ended: Sequence[MachineOutcome]) -> WorkerRow:
    """Count the worker's infrastructure failures in a row. Return the worker as it is then.

    If several attempts were lost together, for example because the machine fell asleep, the caller passes one of them.
    """
    before = worker
    worked: set[str] = set()
    for end in ended:
        if end.outcome in INFRASTRUCTURE_FAILURES:
            worker = _count_failure(work, worker, end)
        elif end.outcome not in (Outcome.RELEASED, Outcome.CANCELED):
            worked |= subjects_of_program(work, end)
            worker = _clear_failures(work, worker)
    experiences.note_success(work.tx, worker.id, sorted(worked), work.now)
    if worker != before:
        workers.set_failures(work.tx, worker)
    return worker


def subjects_of_program(work: Work, end: MachineOutcome) -> set[str]:
    """What a program has run with. The worker reports the image with its digest."""
    image = end.image.rpartition("@")[0] or end.image
    return {_workspace(work, end.held), *([image_subject(image)] if image else [])}


def subjects_of_job(spec_id: int, spec: JobSpec, params: str) -> set[str]:
    """What a job needs of a machine before its program can run."""
    found = {_workspace_of(spec_id, spec)}
    if spec.image:
        values = _decode_params(params) if OPEN in spec.image else {}
        found.add(image_subject(filled(spec.image, lambda name: text_of(values.get(name, "")))))
    return found


def _workspace(work: Work, held: HeldAttempt) -> str:
    return _workspace_of(held.spec_id, work.ctx.spec_cache.spec(work.tx, held.spec_id).job)


def _workspace_of(spec_id: int, spec: JobSpec) -> str:
    return workspace_subject(spec_id if spec.files or spec.workspace else None)


def _count_failure(work: Work, worker: WorkerRow, end: MachineOutcome) -> WorkerRow:
    cause, held = end.known_cause, end.held
    spec = work.ctx.spec_cache.spec(work.tx, held.spec_id).job
    if (cause is None and spec.image) or (cause is not None and cause.about_image):
        subject = image_subject(end.image if cause is not None else spec.image or "")
    else:
        subject = _workspace(work, held)
    if cause is not None:
        _note_trouble(work, worker, subject, end.reason)
    failed = [*_decode(worker.failed), Failure(subject, held.submitter_id, cause or end.outcome)][-MOST_REMEMBERED:]
    failures = worker.failures + 1
    own = count_own_failures(failed, partial(_works_elsewhere, work, worker.id)) if on_probation(failures) else 0
    pause = pause_after(failures, own, worker.rests)
    if pause.rest or on_probation(failures) != on_probation(worker.failures):
        words = "these failures are its own" if pause.rest else "it gets one job at a time"
        data = {"reason": f"{failures} infrastructure failures in a row; {words}", "rest_seconds": pause.seconds}
        work.record("worker.paused", About(worker=worker.name), data=data)
    return msgspec.structs.replace(
        worker,
        failures=failures,
        failed=_encode(failed).decode(),
        rests=worker.rests + pause.rest,
        rest_clock=max(worker.rest_clock, work.clock + pause.seconds) if pause.seconds else worker.rest_clock,
    )


def _works_elsewhere(work: Work, worker_id: int, subject: str) -> bool:
    return experiences.works_elsewhere(work.tx, subject, worker_id)


def _note_trouble(work: Work, worker: WorkerRow, subject: str, reason: str) -> None:
    count = experiences.failures(work.tx, worker.id, subject) + 1
    trouble = TroubleRow(worker.id, subject, reason, work.now, work.clock + avoid_seconds(count))
    experiences.note_failure(work.tx, trouble, count)


def _clear_failures(work: Work, worker: WorkerRow) -> WorkerRow:
    """The worker after a program has run there to its end: it gets jobs as before."""
    if not worker.failures:
        return worker
    if on_probation(worker.failures):
        work.record("worker.resumed", About(worker=worker.name))
        work.wake("jobs")
    return msgspec.structs.replace(worker, failures=0, failed="[]", rests=0, rest_clock=0.0)
