"""Bugs to plant in a simulation, each by replacing functions of the product while a test runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import structs

from planted.leases import count_late_checks, count_on_the_wall_clock
from planted.operations import (
    NO_FENCE,
    NO_IDEMPOTENT_CLAIM,
    all_bytes_are_fresh,
    count_as_named,
    new_digest_each_time,
)
from planted.patch import Patch, gives, nothing, planted_here
from planted.restarts import notice_no_reboot
from planted.worker import ignore_stop, start_at_any_time

OPERATIONS = "deborgen_coordinator.operations"
LEASES = "deborgen_coordinator.leases"
STORAGE = "deborgen_coordinator.storage"
WORKER = "deborgen_worker"


def requeue_any_job(original: Any) -> Any:
    statement = (
        "UPDATE job SET state = 'queued', ready = ?, wait_clock = ?, avoid = ?, avoid_clock = ?, reason = ?,"
        " attempts = attempts - ?, started_at = NULL WHERE id = ?"
    )

    def requeue(tx: Any, job: int, number: int, *, reason: str, refund: bool, wait_clock: Any, **more: Any) -> Any:
        avoid_clock = more["avoid_clock"] if more["avoid"] else None
        ready = 1 if wait_clock is None else 0
        return tx.run(statement, (ready, wait_clock, more["avoid"], avoid_clock, reason, int(refund), job))

    return requeue


def complete_without_artifacts(original: Any) -> Any:
    import msgspec

    return lambda self, attempt, result: original(self, attempt, msgspec.structs.replace(result, artifacts=[]))


def start_without_renewal(original: Any) -> Any:
    from deborgen_coordinator.leases import ClockMove

    def clock_move(elapsed: float | None, lease_seconds: float, late_checks: int = 0) -> ClockMove:
        found: ClockMove = original(elapsed, lease_seconds)
        return ClockMove(elapsed or 55.0, regrant=False) if found.regrant else found

    return clock_move


def forget_the_cancel(original: Any) -> Any:
    return lambda ended: original(ended._replace(cancel_requested=False))


def refund_nothing(original: Any) -> Any:
    return lambda ended: dataclasses.replace(original(ended), refund=False)


def hold_nothing(original: Any) -> Any:
    def recover(*args: Any) -> Any:
        found = original(*args)
        found.held = []
        return found

    return recover


def resume_whatever_became_of_the_job(original: Any) -> Any:
    from deborgen_shared.states import State

    def may_resume(held: Any, worker_id: int, session: str) -> Any:
        resumable = structs.replace(held, job_state=State.QUEUED, job_last_attempt=held.number)
        return original(resumable, worker_id, session)

    return may_resume


def resume_any_job(original: Any) -> Any:
    statement = (
        "UPDATE job SET state = 'running', ready = 0, avoid = 0, avoid_clock = NULL, wait_clock = NULL, worker_id = ?,"
        " started_at = ?, reason = '' WHERE id = ?"
    )

    def resume(tx: Any, job: int, number: int, worker_id: int, started_at: float, *, count: bool) -> Any:
        return tx.run(statement, (worker_id, started_at, job))

    return resume


def go_on_after_a_cancel(original: Any) -> Any:
    def add_jobs(work: Any, run: int, step: int, due: Any) -> Any:
        wanted = [each._replace(after=structs.replace(each.after, cancel_requested=False)) for each in due]
        return original(work, run, step, wanted)

    return add_jobs


def take_the_first_round(original: Any) -> Any:
    return lambda reader, owner, place: original(reader, owner, place._replace(round=1))


BUGS: dict[str, tuple[Patch, ...]] = {
    "a loop is not continued together with the result": (Patch(f"{OPERATIONS}.steps:add_jobs", nothing),),
    "a loop goes on after a cancel": (Patch(f"{OPERATIONS}.steps:add_jobs", go_on_after_a_cancel),),
    "every round of a loop gets the artifacts of the first": (
        Patch(f"{OPERATIONS}.workers.inputs:find_work", take_the_first_round),
    ),
    "no fence: a result is accepted from any session": (
        *NO_FENCE,
        Patch(f"{STORAGE}.jobs:requeue", requeue_any_job),
    ),
    "no idempotent claim: a repeated request gets other jobs": NO_IDEMPOTENT_CLAIM,
    "no boot check: a program that ran before a reboot counts as succeeded": (
        Patch(f"{WORKER}.recovery:recover", notice_no_reboot),
    ),
    "result before artifacts: a result is accepted while its blobs are missing": (
        Patch(f"{OPERATIONS}.workers.finish:_missing_blobs", gives([])),
        Patch(f"{WORKER}.outbox:Outbox._is_complete", complete_without_artifacts),
    ),
    "lease counted while stopped: time in which no request was answered counts": (
        Patch(f"{LEASES}:clock_move", count_late_checks),
    ),
    "lease not renewed at a start: it may expire before a worker can renew it": (
        Patch(f"{LEASES}:clock_move", start_without_renewal),
    ),
    "a result is sent before it is durable": (Patch(f"{WORKER}.spool:Spool.commit", nothing),),
    "cancel forgotten: a lost job whose cancel was requested is tried again": (
        Patch(f"{LEASES}:verdict", forget_the_cancel),
    ),
    "a released attempt is charged": (Patch(f"{LEASES}:verdict", refund_nothing),),
    "log bytes that were sent twice are stored twice": (
        Patch(f"{OPERATIONS}.attempts.logs:_fresh", all_bytes_are_fresh),
    ),
    "events that were sent twice are recorded twice": (
        Patch(f"{OPERATIONS}.attempts.program_events:_fresh", all_bytes_are_fresh),
    ),
    "a result does not wait for the events of its program": (Patch(f"{WORKER}.outbox:Outbox._upload_events", nothing),),
    "a restarted worker does not say what it holds": (Patch(f"{WORKER}.recovery:recover", hold_nothing),),
    "a worker does not stop an attempt when told to": (Patch(f"{WORKER}.agent:Agent.apply_answers", ignore_stop),),
    "an attempt that was never named counts as lost": (
        Patch(f"{OPERATIONS}.attempts.outcomes:give_up", count_as_named),
    ),
    "a machine that keeps failing gets all that it asks for": (
        Patch("deborgen_coordinator.blame:on_probation", gives(False)),
    ),
    "a worker blames a program that it has killed itself": (Patch(f"{WORKER}.spool:Spool.stopped", nothing),),
    "any worker may resume a lost attempt, even when another has claimed its job": (
        Patch(f"{OPERATIONS}.attempts.outcomes:may_resume", resume_whatever_became_of_the_job),
        Patch(f"{STORAGE}.jobs:resume", resume_any_job),
    ),
}

#: Bugs that other tests find. The simulation is not expected to find them.
MORE: dict[str, tuple[Patch, ...]] = {
    "a repeated result counts as a new one": (Patch(f"{OPERATIONS}.workers.finish:_digest", new_digest_each_time),),
    "the lease clock is the wall clock": (
        Patch(f"{OPERATIONS}.maintenance.lease_check:LeaseChecker._now", count_on_the_wall_clock),
        Patch(f"{LEASES}:clock_move", count_late_checks),
    ),
    "no check of the lease: a program is started when its lease may be over": (
        Patch(f"{WORKER}.leases:start_by", start_at_any_time),
    ),
    "no job is ever poison": (Patch(f"{OPERATIONS}.attempts.outcomes:lost_on", gives(0)),),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The product with this bug in it."""
    with planted_here((BUGS | MORE)[name]):
        yield
