"""The audit finds nothing in a sound database, and finds every kind of inconsistency that is planted in one."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.maintenance.audit import AuditReport, examine
from deborgen_coordinator.storage import audit as checks
from deborgen_coordinator.storage.transactions import Tx
from deborgen_shared.messages import Artifact
from support.in_process import InProcessCoordinator

STEPS = {"steps": [{"id": "make", "run": "true"}, {"id": "use", "needs": ["make"], "run": "true"}]}
#: It goes before the other jobs.
LOOP = {"run": "true", "repeat": {"until": "true", "most": 5}, "priority": 1}
DATA = b"an artifact"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCoordinator]:
    """A coordinator with a bit of everything: ended, running, queued, lost, released and blocked jobs, and a loop."""
    url = request.getfixturevalue("postgres").database() if request.param == "postgres" else ""
    coordinator = InProcessCoordinator(tmp_path_factory.mktemp("audit"), url)
    try:
        fill(coordinator)
        yield coordinator
    finally:
        coordinator.stop()


def fill(coordinator: InProcessCoordinator) -> None:
    first = coordinator.worker("w1")
    coordinator.submit({"run": "true", "max_attempts": 3, "sweep": {"grid": {"x": [1, 2, 3, 4, 5, 6]}}})
    coordinator.submit(STEPS)
    done = first.take()
    assert done == "1.1/1"
    blobs.put(coordinator.ctx, DIGEST, [DATA])
    first.write_log(done, b"hello ", 0)
    first.write_log(done, b"world\n", 6)
    assert first.finish(done, artifacts=[Artifact(path="a", sha256=DIGEST, size=len(DATA))], log_size=12) == "accepted"
    assert coordinator.lease_checker._cleaner.seal_logs() == 1
    failed = first.take()
    assert first.finish(failed, "failed", exit_code=3) == "accepted"
    lost = first.take()
    first.write_log(lost, b"first piece, ", 0)
    first.write_log(lost, b"second piece", 13)
    assert first.restart() == [lost]
    released = first.take()
    assert first.finish(released, "released") == "accepted"
    running = first.take()
    first.write_log(running, b"begun", 0)
    coordinator.submit(LOOP)
    assert first.finish(first.take()) == "accepted"
    assert first.finish(first.take(), "failed") == "accepted"


class UndoError(Exception):
    """Raised to roll back what was planted."""


def plant(tx: Tx, sql: str) -> None:
    """Change the database behind the coordinator's back."""
    for statement in sql.split(";"):
        assert tx.run(statement) != 0, f"nothing was planted: {statement}"


def found(report: AuditReport) -> set[str]:
    return {finding.check for finding in report.findings}


def key(run: int, index: int) -> int:
    return run << 20 | index


def test_the_audit_finds_nothing_in_a_sound_database(story: InProcessCoordinator) -> None:
    report = story.audit()
    assert report.findings == []
    assert report.counts == {"lost": 0, "duplicated": 0, "unexpected": 0}
    assert report.totals["jobs"] == 11
    assert report.totals["attempts"] == 7


ATTEMPT = (
    "INSERT INTO attempt (job_id, number, worker_id, session, claim_id, granted_clock, deadline_clock, started_at,"
    " finished_at, outcome) SELECT job_id, {number}, worker_id, session, claim_id, 0, 0, 0, 0, '{outcome}' FROM attempt"
    " WHERE job_id = {job} AND number = 1"
)
EVENT = (
    "INSERT INTO event (time, type, job_id, attempt, actor, old_state, new_state)"
    " VALUES (0, '{type}', {job}, {attempt}, 'somebody', {old}, {new})"
)
CHECKPOINT = "INSERT INTO checkpoint (job_id, attempt, number, saved_at) VALUES ({job}, 1, 1, 0)"
#: The jobs that `fill` makes. Job 1.4 runs in its second attempt: the first was released.
DONE, FAILED, LOST, RUNNING, BLOCKED = key(1, 1), key(1, 2), key(1, 3), key(1, 4), key(2, 2)

PLANTS: dict[str, str] = {
    "image_blob": "INSERT INTO image (name, digest, archive, size, job_id, number, seconds, created_at, standing)"
    f" VALUES ('a:1', 'x', 'gone', 1, {DONE}, 1, 0, 0, 'current')",
    "jobs_missing": f"DELETE FROM event WHERE job_id = {key(1, 6)};DELETE FROM job WHERE id = {key(1, 6)}",
    "jobs_too_many": f"UPDATE job SET id = {key(2, 9)} WHERE id = {key(1, 6)}",
    "run_counts": "UPDATE run SET succeeded = succeeded + 1, failed = failed - 1 WHERE id = 1",
    "step_counts": "UPDATE step SET unfinished = unfinished - 1 WHERE run_id = 1",
    "attempts_missing": f"DELETE FROM attempt WHERE job_id = {FAILED}",
    "attempts_beyond": ATTEMPT.format(number=2, outcome="failed", job=FAILED),
    "attempts_charged": f"UPDATE job SET attempts = 0 WHERE id = {LOST}",
    "live_twice": "DROP INDEX attempt_live;"
    + f"INSERT INTO attempt (job_id, number, worker_id, session, claim_id, granted_clock, deadline_clock, started_at,"
    f" lease_clock) SELECT job_id, 3, worker_id, session, claim_id, 0, 0, 0, 99 FROM attempt WHERE job_id = {RUNNING}"
    " AND number = 2",
    "succeeded_twice": ATTEMPT.format(number=2, outcome="succeeded", job=DONE),
    "running_without_attempt": f"UPDATE attempt SET outcome = 'lost', lease_clock = NULL, finished_at = 1"
    f" WHERE job_id = {RUNNING} AND number = 2",
    "held_without_running": f"UPDATE job SET state = 'failed', finished_at = 1, wait_clock = NULL, avoid_clock = NULL"
    f" WHERE id = {RUNNING}",
    "state_and_outcome": f"UPDATE job SET state = 'failed' WHERE id = {DONE}",
    "after_the_end": ATTEMPT.format(number=2, outcome="failed", job=DONE)
    + f";UPDATE job SET last_attempt = 2, attempts = 2, state = 'failed' WHERE id = {DONE}",
    "exit_code": f"UPDATE attempt SET exit_code = 7 WHERE job_id = {DONE}",
    "stuck": f"UPDATE job SET ready = 0 WHERE id = {key(1, 5)}",
    "ahead_of_its_need": f"UPDATE job SET ready = 1 WHERE id = {BLOCKED}",
    "grant_not_recorded": f"DELETE FROM event WHERE type = 'lease.granted' AND job_id = {FAILED}",
    "granted_twice": EVENT.format(type="lease.granted", job=FAILED, attempt=1, old="NULL", new="NULL"),
    "grant_without_attempt": EVENT.format(type="lease.granted", job=FAILED, attempt=9, old="NULL", new="NULL"),
    "ended_twice": EVENT.format(type="job.failed", job=FAILED, attempt=1, old="'running'", new="'failed'"),
    "log_hole": f"UPDATE log_chunk SET first = first + 1 WHERE job_id = {LOST} AND first > 0",
    "log_overlap": f"UPDATE log_chunk SET first = first - 1 WHERE job_id = {LOST} AND first > 0",
    "log_size": f"DELETE FROM log_chunk WHERE job_id = {LOST} AND first > 0",
    "log_unfinished": f"UPDATE attempt SET log_told = 99 WHERE job_id = {DONE}",
    "log_beyond": f"UPDATE attempt SET log_told = 3 WHERE job_id = {DONE}",
    "log_sealed_and_not": f"UPDATE log_chunk SET job_id = {DONE} WHERE job_id = {LOST}",
    "log_blob": f"UPDATE attempt SET log_digest = '{'0' * 64}' WHERE job_id = {DONE}",
    "artifact_blob": f"UPDATE artifact SET size = 3 WHERE job_id = {DONE}",
    "artifact_of_nothing": f"UPDATE artifact SET job_id = {LOST} WHERE job_id = {DONE}",
    "checkpoint_blob": CHECKPOINT.format(job=FAILED)
    + f";INSERT INTO checkpoint_file (job_id, path, digest, size, mode) VALUES ({FAILED}, 'a', '{'0' * 64}', 1, 420)",
    "checkpoint_after_success": CHECKPOINT.format(job=DONE),
    "loop_stopped": f"DELETE FROM event WHERE job_id = {key(3, 3)};DELETE FROM job WHERE id = {key(3, 3)}",
    "loop_continued": f"UPDATE job SET verified = 1 WHERE id = {key(3, 2)}",
    "answer": f"UPDATE job SET verified = 0 WHERE id = {key(3, 1)}",
    "next_index": "UPDATE run SET next_index = 3 WHERE id = 3",
    "input_blob": f"INSERT INTO spec_file (spec_id, digest) SELECT spec_id, '{'0' * 64}' FROM job"
    f" WHERE id = {key(1, 5)}",
    "program_events": EVENT.format(type="job.event", job=FAILED, attempt=1, old="NULL", new="NULL"),
    "submitted_twice": EVENT.format(type="run.submitted", job=key(1, 0), attempt="NULL", old="NULL", new="'queued'"),
    "run_missing": EVENT.format(type="run.submitted", job=key(7, 0), attempt="NULL", old="NULL", new="'queued'"),
    "no_history": f"DELETE FROM event WHERE job_id = {key(1, 6)}",
    "no_beginning": f"DELETE FROM event WHERE job_id = {FAILED} AND type = 'job.queued'",
    "history_jumps": f"DELETE FROM event WHERE job_id = {FAILED} AND type = 'job.started'",
    "illegal_move": f"UPDATE event SET old_state = 'queued', new_state = 'queued' WHERE job_id = {DONE}"
    " AND type = 'job.started'",
    "history_and_state": f"DELETE FROM event WHERE job_id = {FAILED} AND type = 'job.failed'",
    "blockers": "UPDATE step SET blockers = 0 WHERE run_id = 2 AND number = 2",
}


def test_every_check_has_a_planted_inconsistency() -> None:
    assert {check.name for check in checks.CHECKS} <= set(PLANTS)


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_inconsistency_is_found(story: InProcessCoordinator, name: str) -> None:
    reports = []

    def work(tx: Tx) -> None:
        plant(tx, PLANTS[name])
        reports.append(examine(tx.connection))
        raise UndoError

    with pytest.raises(UndoError):
        story.ctx.store.write(work)
    assert name in found(reports[-1]), list(reports[-1].lines())
    assert story.audit().clean


@pytest.mark.parametrize(
    ("damage", "name"),
    [("remove", "blob_missing"), ("truncate", "blob_size"), ("flip", "blob_damaged")],
)
def test_a_damaged_blob_is_found(story: InProcessCoordinator, damage: str, name: str) -> None:
    path = story.settings.blob_dir / DIGEST[:2] / DIGEST
    path.write_bytes(DATA)
    if damage == "remove":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(DATA[:-1])
    else:
        path.write_bytes(bytes([DATA[0] ^ 1]) + DATA[1:])
    assert found(story.audit()) == {name}
    assert story.audit().counts == {"lost": 1, "duplicated": 0, "unexpected": 0}
    path.write_bytes(DATA)
    assert story.audit().clean


def test_the_command_prints_the_counts_and_its_exit_code_says_whether_the_database_is_sound(tmp_path: Path) -> None:
    coordinator = InProcessCoordinator(tmp_path)
    fill(coordinator)
    command = [sys.executable, "-m", "deborgen_coordinator", "audit", "--data-dir", coordinator.settings.data_dir]
    sound = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (sound.returncode, sound.stdout.splitlines()[-1]) == (0, "lost 0, duplicated 0, unexpected 0"), sound
    coordinator.ctx.store.write(lambda tx: plant(tx, PLANTS["ended_twice"]))
    coordinator.stop()
    unsound = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=60)
    report = json.loads(unsound.stdout)
    assert unsound.returncode == 1
    assert report["duplicated"] >= 1
    assert {"kind": "duplicated", "check": "ended_twice"}.items() <= report["findings"][0].items()
    assert report["findings"][0]["where"] == "1.2"
