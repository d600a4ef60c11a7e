"""Bugs in the coordinator's operations: submitting, claiming, finishing, logs."""

from __future__ import annotations

import html
import uuid
from typing import Any

from msgspec import structs

from planted.bug import CHAOS, HTTP_BLOBS, HTTP_LOGS, INPUT, LIVE, SERVER, Planted
from planted.patch import Patch, gives, nothing

OPERATIONS = "deborgen_coordinator.operations"
STORAGE = "deborgen_coordinator.storage"


def count_as_named(original: Any) -> Any:
    def give_up(work: Any, held: Any, *more: Any, **named: Any) -> Any:
        return original(work, [structs.replace(each, named=True) for each in held], *more, **named)

    return give_up


def end_any_attempt(original: Any) -> Any:
    statement = (
        "UPDATE attempt SET outcome = ?, reason = ?, finished_at = ?, lease_clock = NULL, digest = ?, log_told = ?"
        " WHERE job_id = ? AND number = ?"
    )

    def end(tx: Any, job: int, number: int, outcome: Any, *, reason: str, now: float, **more: Any) -> Any:
        values = (outcome.value, reason, now, more.get("digest"), more.get("log_told"), job, number)
        return tx.run(statement, values)

    return end


def finish_any_job(original: Any) -> Any:
    statement = "UPDATE job SET state = ?, reason = ?, exit_code = ?, result = ?, finished_at = ? WHERE id = ?"

    def finish(tx: Any, job: int, number: int, state: Any, *, reason: str, now: float, **more: Any) -> Any:
        return tx.run(statement, (state.value, reason, more["exit_code"], more["result"], now, job))

    return finish


#: Neither the operation nor its statements check that the session which sends a result holds the lease.
NO_FENCE = (
    Patch(f"{OPERATIONS}.workers.finish:_holds", gives(True)),
    Patch(f"{STORAGE}.attempts:end", end_any_attempt),
    Patch(f"{STORAGE}.jobs:finish", finish_any_job),
)


def claim_under_a_new_name(original: Any) -> Any:
    def new_claim(tx: Any, worker_id: int, request_id: str, now: float) -> Any:
        return original(tx, worker_id, f"{request_id}-{uuid.uuid4().hex}", now)

    return new_claim


#: A claim that was answered is not found again, and a repeat of its request is stored as another one.
NO_IDEMPOTENT_CLAIM = (
    Patch(f"{STORAGE}.attempts:claim_of", nothing),
    Patch(f"{STORAGE}.attempts:new_claim", claim_under_a_new_name),
)


def new_digest_each_time(original: Any) -> Any:
    return lambda result: uuid.uuid4().hex


def take_any_body(original: Any) -> Any:
    return lambda tx, before, body_digest: original(tx, before, before[0])


def all_bytes_are_fresh(original: Any) -> Any:
    return lambda data, offset, size: data


def drop_nul(original: Any) -> Any:
    return lambda *place: original(*place).replace(b"\0", b"")


def write_reason_as_html(original: Any) -> Any:
    import msgspec

    def record(work: Any, held: Any, result: Any, *more: Any) -> Any:
        escaped = msgspec.structs.replace(result, reason=html.escape(result.reason))
        return original(work, held, escaped, *more)

    return record


PLANTED: list[Planted] = [
    Planted(
        "an attempt that was never named counts as lost",
        (Patch(f"{OPERATIONS}.attempts.outcomes:give_up", count_as_named),),
        (f"{CHAOS}_07_a_claim_whose_answer_and_spool_are_lost_uses_up_no_attempt",),
        "'lost'",
    ),
    Planted(
        "a result that is already known is treated like a new one",
        (Patch(f"{OPERATIONS}.workers.finish:_digest", new_digest_each_time),),
        (f"{CHAOS}_21_a_result_that_is_sent_twice_is_accepted_once_and_recorded_once",),
        "'stale'",
    ),
    Planted(
        "a result is accepted from any session",
        NO_FENCE,
        (
            f"{CHAOS}_22_another_result_after_the_first_is_refused_and_the_first_is_kept",
            f"{CHAOS}_23_a_stale_result_leaves_the_second_attempt_unharmed",
            f"{CHAOS}_24_a_result_that_races_the_lease_check_and_a_cancel_has_exactly_one_winner",
        ),
        "accepted|job cannot be|invalid_transition|InvalidTransition|Refusal|Unavailable",
    ),
    Planted(
        "a repeated claim gets other jobs",
        NO_IDEMPOTENT_CLAIM,
        (
            f"{CHAOS}_71_replayed_and_reordered_old_requests_have_no_effect",
            f"{LIVE}_06_a_claim_whose_answer_is_lost_gets_the_same_attempts_and_each_runs_once",
            f"{SERVER}/test_lost_answers.py::test_fault_02_a_kill_between_commit_and_answer_on_every_endpoint_has_no_double_effect",
        ),
    ),
    Planted(
        "no job is ever poison",
        (Patch(f"{OPERATIONS}.attempts.outcomes:lost_on", gives(0)),),
        (f"{CHAOS}_75_a_job_that_kills_every_worker_is_poison_and_the_workers_recover",),
        "'queued'",
    ),
    Planted(
        "an idempotency key is not tied to its body",
        (Patch(f"{OPERATIONS}.runs.submit:find_repeated", take_any_body),),
        (
            "contract/coordinator/test_steps.py::test_fault_05_the_same_key_with_another_body_is_refused_and_nothing_is_stored",
            "contract/http/test_runs.py::test_fault_05_another_body_under_the_same_key_is_409_and_stores_nothing",
        ),
        "DID NOT RAISE|KeyError: 'error'",
    ),
    Planted(
        "the idempotency key is ignored",
        (Patch(f"{STORAGE}.runs:submission", nothing), Patch(f"{OPERATIONS}.runs.submit:remember", nothing)),
        (
            "contract/http/test_runs.py::test_fault_04_five_repeats_of_a_submit_in_parallel_are_one_run",
            "integration/cli/test_submit.py::test_fault_04_a_submit_whose_answer_was_lost_is_one_run",
        ),
    ),
    Planted(
        "known log bytes are stored again",
        (Patch(f"{OPERATIONS}.attempts.logs:_fresh", all_bytes_are_fresh),),
        (
            "contract/coordinator/test_keeping.py::test_fault_20_log_uploads_dropped_repeated_and_reordered_store_exactly_the_written_bytes",
            f"{HTTP_LOGS}_20_repeated_log_bytes_are_skipped_and_a_gap_is_409_with_the_size",
        ),
    ),
    Planted(
        "NUL is dropped from logs",
        (Patch(f"{OPERATIONS}.attempts.logs:read", drop_nul),),
        (f"{HTTP_LOGS}_36_log_bytes_come_back_as_they_were_written",),
    ),
    Planted(
        "the paths of artifacts are not checked",
        (Patch(f"{OPERATIONS}.workers.finish:check_path", nothing),),
        (f"{HTTP_BLOBS}_64_a_result_with_a_bad_artifact_path_is_refused",),
        "200",
    ),
    Planted(
        "a reason is written as HTML",
        (Patch(f"{OPERATIONS}.workers.finish:_record", write_reason_as_html),),
        (f"{INPUT}_68_hostile_text_is_stored_unchanged_and_is_inert_everywhere",),
        "&lt;|&#x27;|&quot;",
    ),
    Planted(
        "the next job of a loop is not made together with the result",
        (Patch(f"{OPERATIONS}.steps:add_jobs", nothing),),
        (
            "integration/worker/test_loops.py::test_fault_84_a_worker_killed_between_work_and_check_in_every_round_repeats_none",
            "integration/server/test_lost_answers.py::test_fault_84_a_coordinator_killed_between_work_and_check_makes_each_round_once",
        ),
    ),
]
