"""A program's own events through a real worker: they arrive while it runs, each once, whatever crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess
from support.podman import IMAGE
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]


def emit(type_: str, **payload: Any) -> str:
    """A shell command that appends one event."""
    return f"echo '{json.dumps({'type': type_, 'payload': payload})}' >> $DEBORGEN_EVENTS"


def count_to(number: int, gate: Path) -> str:
    """A script that appends the first half of the events e1, e2 … at once, and the rest when the gate opens."""
    each = """echo "{\\"type\\": \\"e$n\\"}" >> $DEBORGEN_EVENTS; n=$((n+1))"""
    return (
        f"n=1; while [ $n -le {number // 2} ]; do {each}; done; touch {gate}.half;"
        f" while [ ! -e {gate} ]; do sleep 0.02; done; while [ $n -le {number} ]; do {each}; done"
    )


def events_of(pool: Pool, run: int) -> list[dict[str, Any]]:
    items = pool.admin.get(f"/v1/events?job={run}.1&limit=1000").json()["items"]
    return [each for each in items if each["type"] == "job.event"]


def types_of(pool: Pool, run: int) -> list[str]:
    return [each["data"]["type"] for each in events_of(pool, run)]


def test_events_are_in_the_history_while_the_program_runs(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run = pool.submit(
        run=f"{emit('began')}; while [ ! -e {gate} ]; do sleep 0.02; done; {emit('epoch', loss=0.5)}; exit 3"
    )
    worker = new_worker().start()
    wait_until(lambda: types_of(pool, run) == ["began"], what="the first event", log=worker.log)
    assert pool.job(run)["state"] == "running"
    gate.touch()
    assert pool.until(run)["state"] == "failed"
    (_, last) = events_of(pool, run)
    assert last["data"] == {"type": "epoch", "payload": {"loss": 0.5}, "number": 1}
    assert (last["attempt"], last["worker"], last["actor"]) == (f"{run}.1/1", worker.name, f"worker:{worker.name}")
    types = [each["type"] for each in pool.admin.get(f"/v1/events?job={run}.1&limit=1000").json()["items"]]
    assert types.index("job.failed") > max(at for at, type_ in enumerate(types) if type_ == "job.event")


def test_lines_that_are_not_events_are_a_warning_and_keep_their_numbers(new_worker: Make, pool: Pool) -> None:
    run = pool.submit(
        run=f"{emit('a')}; echo nonsense >> $DEBORGEN_EVENTS; {emit('c')}; printf half >> $DEBORGEN_EVENTS"
    )
    new_worker().start()
    job = pool.until(run)
    assert [(each["data"]["number"], each["data"]["type"]) for each in events_of(pool, run)] == [(0, "a"), (2, "c")]
    (warning,) = job["warnings"]
    assert warning.startswith("$DEBORGEN_EVENTS: 2 lines were left out: line 2 is not JSON")
    assert b"[deborgen: $DEBORGEN_EVENTS: 2 lines" in pool.log(run)


@pytest.mark.parametrize(
    "make", ["mkfifo $DEBORGEN_EVENTS", "ln -s /etc/passwd $DEBORGEN_EVENTS", "mkdir $DEBORGEN_EVENTS"]
)
def test_a_job_that_replaces_its_event_file_ends_normally(make: str, new_worker: Make, pool: Pool) -> None:
    run = pool.submit(run=f"{make}; sleep 1.2")
    new_worker().start()
    job = pool.until(run)
    assert job["state"] == "succeeded"
    assert job["warnings"] == ["$DEBORGEN_EVENTS: is not a regular file"]
    assert events_of(pool, run) == []


def test_a_killed_worker_neither_loses_nor_repeats_an_event(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    """Seen to fail when a later session numbers events from the first one that it reads itself."""
    gate = tmp_path / "gate"
    run = pool.submit(run=count_to(900, gate))
    worker = new_worker().start()
    wait_until(lambda: len(events_of(pool, run)) > 100, what="some events", log=worker.log)
    worker.kill()
    wait_until(Path(f"{gate}.half").exists)
    worker.start()
    wait_until(lambda: len(events_of(pool, run)) == 450, what="the first half", log=worker.log)
    worker.kill()
    gate.touch()
    worker.start()
    assert pool.until(run)["state"] == "succeeded"
    assert types_of(pool, run) == [f"e{number}" for number in range(1, 901)]
    assert [each["data"]["number"] for each in events_of(pool, run)] == list(range(900))


def test_a_coordinator_that_was_down_gets_every_event_before_the_result(tmp_path: Path) -> None:
    with Pool(CoordinatorProcess(tmp_path, lease_seconds=60, heartbeat_seconds=0.5)) as pool:
        gate = tmp_path / "gate"
        run = pool.submit(run=count_to(600, gate))
        worker = pool.add_worker("box")
        wait_until(lambda: len(events_of(pool, run)) > 10, what="some events", log=worker.log)
        pool.coordinator.kill()
        gate.touch()
        wait_until(lambda: worker.stages() == ["ended"], what="the job to end", log=worker.log)
        pool.coordinator.start()
        assert pool.until(run)["state"] == "succeeded"
        assert types_of(pool, run) == [f"e{number}" for number in range(1, 601)]


@pytest.mark.podman
@pytest.mark.root
def test_events_of_a_program_in_a_container_arrive_while_it_runs(container_worker: Make, pool: Pool) -> None:
    worker = container_worker().start()
    wait = "while [ ! -e /job/go ]; do sleep 0.05; done"
    run = pool.submit(image=IMAGE, run=f"{emit('began')}; {wait}; {emit('done', n=7)}; echo $DEBORGEN_EVENTS")
    wait_until(lambda: types_of(pool, run) == ["began"], what="the first event", log=worker.log)
    (workspace,) = worker.state.glob("attempts/*/work")
    (workspace / "go").touch()
    assert pool.until(run)["state"] == "succeeded"
    assert [(each["data"]["type"], each["data"]["payload"]) for each in events_of(pool, run)] == [
        ("began", {}),
        ("done", {"n": 7}),
    ]
    assert pool.log(run) == b"/deborgen/events.jsonl\n"
