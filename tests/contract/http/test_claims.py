"""Claims and finishes over HTTP: the shapes that other people's workers rely on."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Any

import pytest

from support.coordinator import Client, CoordinatorProcess
from support.scripted_worker import ROOM, ScriptedWorker
from support.waiting import wait_until


@pytest.fixture
def ada(coordinator: CoordinatorProcess) -> Client:
    return coordinator.client("submitter", "ada")


def labeled(coordinator: CoordinatorProcess, name: str) -> ScriptedWorker:
    """A worker that gets only the jobs of its own test."""
    return ScriptedWorker(coordinator, name, only=name)


def submit(ada: Client, name: str) -> str:
    return f"{ada.post('/v1/runs', json={'run': 'true', 'requires': {'only': name}}).json()['id']}.1"


def test_the_answer_to_a_claim_contains_its_waiting_time_and_the_end_of_each_lease(
    coordinator: CoordinatorProcess, ada: Client
) -> None:
    """Seen to fail when the answer does not contain the waiting time."""
    worker = labeled(coordinator, "patient")
    answers: list[Any] = []
    claim = {"request_id": "r1", "free": ROOM, "wait_seconds": 30}
    thread = threading.Thread(target=lambda: answers.append(worker.post("claim", claim)))
    began = time.monotonic()
    thread.start()
    wait_until(lambda: time.monotonic() - began > 1.0)
    job = submit(ada, "patient")
    thread.join(60)
    body = answers[0].json()
    assert 0.1 < body["waited_seconds"] < time.monotonic() - began
    [assignment] = body["assignments"]
    [attempt] = ada.get(f"/v1/jobs/{job}").json()["history"]
    promised = datetime.fromisoformat(assignment["lease_expires_at"])
    shown = datetime.fromisoformat(attempt["lease_expires_at"])
    assert (promised - datetime.fromisoformat(attempt["claimed_at"])).total_seconds() == pytest.approx(
        assignment["lease_seconds"]
    )
    assert abs((shown - promised).total_seconds()) < assignment["lease_seconds"], "shown to people by another clock"
    assert attempt["started_at"] is None


def test_a_finish_with_a_claim_answers_with_results_and_assignments(
    coordinator: CoordinatorProcess, ada: Client
) -> None:
    worker = labeled(coordinator, "busy")
    first, second = submit(ada, "busy"), submit(ada, "busy")
    [given] = worker.claim()
    result = {"attempt": given["attempt"], "outcome": "succeeded", "exit_code": 0, "began_seconds_ago": 0.5}
    body = {"results": [result], "claim": {"request_id": "next", "free": ROOM, "max": 1}}
    for word in ("accepted", "already_recorded"):
        answer = worker.post("finish", body).json()
        assert set(answer) == {"results", "missing", "assignments", "waited_seconds"}
        assert answer["results"] == {f"{first}/1": word}
        assert [each["attempt"] for each in answer["assignments"]] == [f"{second}/1"]
        assert answer["waited_seconds"] == 0
    events = ada.get(f"/v1/events?job={first}").json()["items"]
    assert [each["type"] for each in events][-2:] == ["attempt.started", "job.succeeded"]


def test_a_finish_without_a_claim_is_answered_as_in_release_0_1(coordinator: CoordinatorProcess, ada: Client) -> None:
    worker = labeled(coordinator, "plain")
    submit(ada, "plain")
    [given] = worker.claim()
    answer = worker.post("finish", {"results": [{"attempt": given["attempt"], "outcome": "succeeded"}]}).json()
    assert set(answer) == {"results", "missing"}
