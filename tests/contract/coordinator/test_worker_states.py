"""The state that a worker reports: whether it gets jobs, what is recorded, and what people see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.coordinator.test_migrations import first_schema, migrate_to
from deborgen_coordinator.blame import FAILURES_BEFORE_REST
from deborgen_coordinator.operations.jobs.why import why
from deborgen_coordinator.operations.workers import heartbeat as heartbeats
from deborgen_coordinator.operations.workers import steer as steering
from deborgen_coordinator.operations.workers.look import get_worker
from deborgen_coordinator.storage.database import database_for
from deborgen_coordinator.storage.schema import migrate
from deborgen_shared import messages as m
from deborgen_shared.states import WORKING, WorkerState
from support.in_process import LEASE, InProcessCoordinator, InProcessWorker

#: The states that a worker may report, and how `state` shows each of them: with a word of the first release.
OLD_STATES = {
    "open": "open",
    "limited": "open",
    "yielding": "paused",
    "paused": "paused",
    "closed": "paused",
    "asleep": "paused",
    "draining": "draining",
}
IN_TWO_HOURS = datetime.now(UTC) + timedelta(hours=2)


def shown(pool: InProcessCoordinator, name: str = "pc1") -> m.Worker:
    return get_worker(pool.ctx, name)


def steer(pool: InProcessCoordinator, worker: InProcessWorker, **order: bool) -> None:
    steering.steer(pool.ctx, worker.actor, worker.name, m.SteerWorker(**order))


@pytest.mark.parametrize("state", OLD_STATES)
def test_only_an_open_or_a_limited_worker_gets_jobs(pool: InProcessCoordinator, state: str) -> None:
    """Seen to fail when only a paused worker gets nothing."""
    pool.submit()
    worker = pool.worker()
    worker.beat(state=state)
    assert worker.claim() == (["1.1/1"] if state in ("open", "limited") else [])


@pytest.mark.parametrize("state", OLD_STATES)
def test_every_state_is_shown_with_its_reason_and_its_end(pool: InProcessCoordinator, state: str) -> None:
    worker = pool.worker()
    worker.beat(state=state, reason="for a reason", until=IN_TWO_HOURS)
    seen = shown(pool)
    assert (seen.availability, seen.state, seen.reason) == (
        "free" if state == "open" else state,
        OLD_STATES[state],
        "for a reason",
    )
    assert seen.until == IN_TWO_HOURS
    worker.beat(state=state)
    assert (shown(pool).reason, shown(pool).until) == ("", None), "a heartbeat without an end has none"


def test_a_worker_is_free_until_no_other_job_fits_and_then_busy(pool: InProcessCoordinator) -> None:
    worker = pool.worker(cpus=4, memory=8 << 30, disk=1 << 40)
    assert shown(pool).availability == "free"
    for free, expected in [
        (m.Resources(cpus=0.5, memory=1, disk=1), "free"),
        (m.Resources(cpus=0, memory=8 << 30, disk=1 << 40), "busy"),
        (m.Resources(cpus=4, memory=0, disk=1 << 40), "busy"),
        (m.Resources(cpus=4, memory=8 << 30, disk=0), "busy"),
    ]:
        worker.beat(free=free)
        assert (shown(pool).availability, shown(pool).state) == (expected, "open"), free


def test_a_resource_that_a_worker_does_not_offer_does_not_make_it_busy(pool: InProcessCoordinator) -> None:
    worker = pool.worker(cpus=1, memory=0)
    worker.beat(free=m.Resources(cpus=1))
    assert shown(pool).availability == "free"


def test_an_admins_pause_and_drain_are_shown_before_the_worker_knows_of_them(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    worker.beat(state="limited", reason="on battery")
    steer(pool, worker, paused=True)
    assert (shown(pool).availability, shown(pool).state, shown(pool).reason) == (
        "paused",
        "paused",
        "paused by an admin",
    )
    steer(pool, worker, drain=True)
    assert (shown(pool).availability, shown(pool).reason) == ("draining", "drained by an admin")
    worker.beat(state="paused", reason="drained by an admin", until=IN_TWO_HOURS)
    assert (shown(pool).availability, shown(pool).state) == ("draining", "draining")
    assert shown(pool).until is None, "the end of a pause is not the end of a drain"


def test_the_reason_why_a_worker_is_closed_is_shown_before_an_admins_pause(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    steer(pool, worker, paused=True)
    worker.beat(state="closed", reason="its owner offers it at 22:00-07:00 only")
    assert (shown(pool).availability, shown(pool).reason) == ("closed", "its owner offers it at 22:00-07:00 only")


def test_a_worker_that_rests_is_closed_and_says_why(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 20}}})
    worker = pool.worker()
    for _ in range(FAILURES_BEFORE_REST):
        worker.finish(worker.take(), "error", reason="no disk")
    seen = shown(pool)
    assert (seen.availability, seen.state) == ("closed", "resting")
    assert "infrastructure failures" in seen.reason


def test_a_worker_that_is_silent_or_has_left_is_offline(pool: InProcessCoordinator) -> None:
    silent, gone = pool.worker("pc1"), pool.worker("pc2")
    silent.beat(state="paused", until=IN_TWO_HOURS)
    gone.leave()
    pool.sleep(2 * LEASE)
    assert (shown(pool).availability, shown(pool).state, shown(pool).until) == ("offline", "offline", None)
    left = shown(pool, "pc2")
    assert (left.availability, left.state, left.reason) == ("offline", "left", "left the pool")


def test_why_names_the_state_that_keeps_a_job_from_a_worker(pool: InProcessCoordinator) -> None:
    pool.submit()
    for name, state, reason in [
        ("pc1", "closed", "only 200MiB of disk are free"),
        ("pc2", "yielding", "its owner is at the keyboard"),
        ("pc3", "asleep", ""),
        ("pc4", "limited", "on battery"),
    ]:
        pool.worker(name).beat(state=state, reason=reason)
    assert [(line.fits, line.reason) for line in why(pool.ctx, 1, 1).workers] == [
        (False, "closed: only 200MiB of disk are free"),
        (False, "yielding: its owner is at the keyboard"),
        (False, "asleep"),
        (True, "can run it with its next claim"),
    ]


def test_the_history_records_when_a_worker_stops_and_resumes_taking_jobs(pool: InProcessCoordinator) -> None:
    """Seen to fail when every change of state is recorded."""
    worker = pool.worker()
    for state in ("open", "limited", "yielding", "yielding", "paused", "limited", "open"):
        worker.beat(state=state, reason=f"it is {state}")
    events = [(event.type, event.data) for event in pool.events(worker="pc1")][2:]
    assert events == [
        ("worker.paused", {"state": "yielding", "reason": "it is yielding"}),
        ("worker.paused", {"state": "paused", "reason": "it is paused"}),
        ("worker.resumed", {}),
    ]


def test_a_new_session_begins_open_and_with_no_end(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    worker.beat(state="paused", reason="lunch", until=IN_TWO_HOURS)
    worker.restart()
    assert (shown(pool).availability, shown(pool).reason, shown(pool).until) == ("free", "", None)


@pytest.mark.parametrize(
    "body",
    [
        {"session": "S"},
        {"session": "S", "holding": [{"attempt": "1.1/1", "progress": 0.5, "message": "half"}]},
        {"session": "S", "state": "paused", "reason": "lunch", "free": {"cpus": 1, "memory": 1}},
        {"session": "S", "state": "draining", "reason": "stopping"},
    ],
)
def test_a_heartbeat_of_the_previous_release_is_understood(pool: InProcessCoordinator, body: Any) -> None:
    pool.submit()
    worker = pool.worker()
    worker.start()
    heartbeat = msgspec.convert({**body, "session": worker.session}, m.Heartbeat)
    answer = heartbeats.heartbeat(pool.ctx, worker.actor, worker.name, heartbeat)
    assert set(answer.attempts) == {each.attempt for each in heartbeat.holding}
    state = body.get("state", "open")
    assert (shown(pool).state, shown(pool).availability) == (state, "free" if state == "open" else state)


def test_the_workers_of_an_older_database_keep_their_states(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when the column is created again without its values."""
    opened = database_for(database, tmp_path)
    connection = opened.connect(readonly=False)
    first_schema(connection)
    migrate_to(connection, 2, monkeypatch)
    before = [("pc1", "open"), ("pc2", "paused"), ("pc3", "draining"), ("pc4", "left")]
    for name, state in before:
        connection.run(
            "INSERT INTO worker (name, session, hostname, version, labels, capacity, free, state, reason, online,"
            " seen_clock, seen_at) VALUES (?, 's', '', '', '{}', '{}', '{}', ?, '', 1, 0, 0)",
            (name, state),
        )
    connection.run("INSERT INTO session (worker_id, id, started_at, lost) SELECT id, 's', 0, '[]' FROM worker")
    migrate(connection)
    assert connection.rows("SELECT name, state FROM worker ORDER BY name") == before
    assert connection.rows("SELECT DISTINCT until_at FROM worker") == [(None,)]
    assert connection.rows("SELECT count(*) FROM session JOIN worker ON worker.id = session.worker_id") == [(4,)]
    connection.close()


def test_the_states_in_this_module_are_those_of_the_contract() -> None:
    assert set(OLD_STATES) == set(WorkerState) - {WorkerState.RESTING, WorkerState.OFFLINE, WorkerState.LEFT}
    assert {state for state in OLD_STATES if state in WORKING} == {"open", "limited"}
