"""A program's own events over HTTP: stored exactly, streamed at once, and refused clearly if they are hostile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from deborgen_shared.program_events import EVENT_BYTES, EVENTS_PER_REQUEST
from support.coordinator import Client, CoordinatorProcess
from support.postgres import postgres
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until

__all__ = ["postgres"]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def coordinator(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CoordinatorProcess]:
    url = request.getfixturevalue("postgres").database() if request.param == "postgres" else ""
    with CoordinatorProcess(tmp_path_factory.mktemp("coordinator"), database=url) as process:
        yield process


@pytest.fixture
def worker(coordinator: CoordinatorProcess) -> ScriptedWorker:
    return ScriptedWorker(coordinator, "w1")


@pytest.fixture
def ada(coordinator: CoordinatorProcess) -> Client:
    return coordinator.client("submitter", "ada")


@pytest.fixture
def attempt(ada: Client, worker: ScriptedWorker) -> Iterator[str]:
    """A running attempt."""
    ada.post("/v1/runs", json={"run": "true"})
    (assignment,) = worker.claim()
    yield assignment["attempt"]
    worker.finish(assignment["attempt"])


def recorded(ada: Client, attempt: str) -> list[dict[str, Any]]:
    items = ada.get(f"/v1/events?job={attempt.partition('/')[0]}&limit=1000").json()["items"]
    return [each["data"] for each in items if each["type"] == "job.event"]


def error_of(answer: requests.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == code, error
    return error


def test_events_are_recorded_and_their_repeats_are_not(ada: Client, worker: ScriptedWorker, attempt: str) -> None:
    events = [{"type": "epoch", "payload": {"number": 1, "loss": 0.5}}, {"type": "saved"}]
    assert worker.send_events(attempt, events, first=0).json() == {"count": 2, "dropped": 0}
    assert worker.send_events(attempt, events, first=0).json() == {"count": 2, "dropped": 0}
    assert worker.send_events(attempt, [{"type": "more"}]).json() == {"count": 3, "dropped": 0}
    assert recorded(ada, attempt) == [
        {"type": "epoch", "payload": {"number": 1, "loss": 0.5}, "number": 0},
        {"type": "saved", "payload": {}, "number": 1},
        {"type": "more", "payload": {}, "number": 2},
    ]


def test_a_gap_is_409_with_the_count(worker: ScriptedWorker, attempt: str) -> None:
    worker.send_events(attempt, [{"type": "a"}], first=0)
    error = error_of(worker.send_events(attempt, [{"type": "c"}], first=2), 409, "event_gap")
    assert error["count"] == 1
    assert error["hint"] == "send the events from number 1"


def test_an_event_is_streamed_exactly_as_it_was_written(
    coordinator: CoordinatorProcess, ada: Client, worker: ScriptedWorker, attempt: str
) -> None:
    payload = {"é\u2028": "\x1b[31m\x9b<script>\r\n\t'\"\\", "n": 2**64 - 1, "deep": [[[{"x": None}]]], "f": 1e300}
    job = attempt.partition("/")[0]
    headers = {"Accept": "text/event-stream"}
    with coordinator.client("viewer").get(f"/v1/events?job={job}&after=now", headers=headers, stream=True) as answer:
        lines = answer.iter_lines(chunk_size=1)
        next(lines)  # the stream is open
        worker.send_events(attempt, [{"type": "odd\nid: 1", "payload": payload}], first=0)
        data = next(line for line in lines if line.startswith(b"data: "))
    event = json.loads(data.removeprefix(b"data: "))
    assert event["type"] == "job.event"
    assert event["data"] == {"type": "odd\nid: 1", "payload": payload, "number": 0}
    assert recorded(ada, attempt) == [event["data"]]


HOSTILE: dict[str, tuple[int, str, bytes]] = {
    "no list of events": (400, "malformed", b"{}"),
    "a text for an event": (400, "malformed", b'["epoch"]'),
    "no type": (400, "malformed", b'[{"payload": {}}]'),
    "an empty type": (400, "malformed", b'[{"type": ""}]'),
    "a number for a type": (400, "malformed", b'[{"type": 7}]'),
    "a type of 201 characters": (400, "malformed", b'[{"type": "%s"}]' % (b"x" * 201)),
    "a list for a payload": (400, "malformed", b'[{"type": "a", "payload": []}]'),
    "null for a payload": (400, "malformed", b'[{"type": "a", "payload": null}]'),
    "a NUL": (400, "malformed", b'[{"type": "a", "payload": {"x": "\\u0000"}}]'),
    "a NUL in a key": (400, "malformed", b'[{"type": "a", "payload": {"\\u0000": 1}}]'),
    "a NUL in the type": (400, "malformed", b'[{"type": "\\u0000"}]'),
    "half of a surrogate pair": (400, "malformed", b'[{"type": "a", "payload": {"x": "\\ud800"}}]'),
    "bytes that are not UTF-8": (400, "malformed", b'[{"type": "\xff"}]'),
    "a key twice": (400, "malformed", b'[{"type": "a", "payload": {"x": 1, "x": 2}}]'),
    "a number that JSON does not know": (400, "malformed", b'[{"type": "a", "payload": {"x": NaN}}]'),
    "a huge number": (400, "malformed", b'[{"type": "a", "payload": {"x": %s}}]' % (b"9" * 400)),
    "a huge decimal": (400, "malformed", b'[{"type": "a", "payload": {"x": 1e999}}]'),
    "deep nesting": (400, "malformed", b'[{"type": "a", "payload": {"x": %s}}]' % (b"[" * 70 + b"]" * 70)),
    "very deep nesting": (400, "malformed", b'[{"type": "a", "payload": {"x": %s}}]' % (b"[" * 90_000)),
    "too large an event": (413, "too_large", b'[{"type": "a", "payload": {"x": "%s"}}]' % (b"x" * EVENT_BYTES)),
    "too many events": (400, "malformed", b"[%s]" % b",".join([b'{"type": "a"}'] * (EVENTS_PER_REQUEST + 1))),
    "too large a body": (413, "too_large", b'[{"type": "a", "payload": {"x": "%s"}}]' % (b"x" * (9 << 20))),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_events_are_refused_and_nothing_is_recorded(
    ada: Client, worker: ScriptedWorker, attempt: str, what: str
) -> None:
    status, code, events = HOSTILE[what]
    job, _, number = attempt.partition("/")
    body = b'{"session": "%s", "first": 0, "events": %s}' % (worker.session.encode(), events)
    answer = worker.http.post(
        f"/v1/jobs/{job}/attempts/{number}/events", data=body, headers={"Content-Type": "application/json"}
    )
    error_of(answer, status, code)
    assert recorded(ada, attempt) == []
    assert worker.send_events(attempt, [{"type": "fine"}], first=0).json()["count"] == 1


@pytest.mark.parametrize("first", [-1, 1.5, "0", 2**60, True])
def test_a_first_number_of_another_shape_is_400(worker: ScriptedWorker, attempt: str, first: Any) -> None:
    error_of(worker.send_events(attempt, [], first=first), 400, "malformed")


def test_a_request_with_the_maximum_number_of_events_is_accepted(
    ada: Client, worker: ScriptedWorker, attempt: str
) -> None:
    many = [{"type": "a", "payload": {"x": "x" * (EVENT_BYTES - 40)}}] * EVENTS_PER_REQUEST
    assert worker.send_events(attempt, many, first=0).json()["count"] == EVENTS_PER_REQUEST
    assert len(recorded(ada, attempt)) == EVENTS_PER_REQUEST


def test_a_long_event_is_shortened_in_the_coordinators_log(
    coordinator: CoordinatorProcess, worker: ScriptedWorker, attempt: str
) -> None:
    worker.send_events(attempt, [{"type": "long", "payload": {"x": "y" * 3000}}], first=0)

    def logged() -> list[str]:
        lines = coordinator.logged().splitlines()
        return [each for each in lines if f"attempt={attempt}" in each and '"long"' in each]

    (line,) = wait_until(logged, what="the event in the log", log=coordinator.log)
    assert len(line) < 1500


def test_events_of_an_ended_attempt_are_409(ada: Client, worker: ScriptedWorker, attempt: str) -> None:
    worker.finish(attempt)
    error_of(worker.send_events(attempt, [{"type": "late"}], first=0), 409, "stale_attempt")
    worker.session, old = "another-session", worker.session
    error_of(worker.send_events(attempt, [{"type": "late"}], first=0), 409, "superseded")
    worker.session = old
    assert recorded(ada, attempt) == []
    types = [each["type"] for each in ada.get(f"/v1/events?job={attempt.partition('/')[0]}").json()["items"]]
    assert types.count("result.stale") == 1
