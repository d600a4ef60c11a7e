"""Logs byte by byte, and events one by one, while things happen."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from support.coordinator import Client, CoordinatorProcess
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until


@pytest.fixture(scope="module")
def worker(coordinator: CoordinatorProcess) -> ScriptedWorker:
    return ScriptedWorker(coordinator, "w1")


@pytest.fixture
def ada(coordinator: CoordinatorProcess) -> Client:
    return coordinator.client("submitter", "ada")


def started(ada: Client, worker: ScriptedWorker) -> tuple[str, str]:
    """A job that runs: its name, and its attempt's."""
    run = ada.post("/v1/runs", json={"run": "true"}).json()["id"]
    (assignment,) = worker.claim()
    assert assignment["job"] == f"{run}.1"
    return assignment["job"], assignment["attempt"]


def test_fault_36_log_bytes_come_back_as_they_were_written(ada: Client, worker: ScriptedWorker) -> None:
    """Seen to fail when NUL is dropped from logs."""
    job, attempt = started(ada, worker)
    data = os.urandom(50_000) + b"\0\xff\xfe\r\n\x1b[31mred\x1b[0m<script>"
    assert worker.write_log(attempt, 0, data[:20_000]).json() == {"size": 20_000}
    packed = gzip.compress(data[20_000:])
    answer = worker.write_log(attempt, 20_000, packed, headers={"Content-Encoding": "gzip"})
    assert answer.json() == {"size": len(data)}
    got = ada.get(f"/v1/jobs/{job}/log")
    assert got.content == data
    assert (got.headers["Deborgen-Log-Size"], got.headers["Deborgen-Log-Attempt"]) == (str(len(data)), "1")
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert ada.get(f"/v1/jobs/{job}/log?offset=49990&attempt=1").content == data[49_990:]
    assert ada.get(f"/v1/jobs/{job}/log?offset=99999999").content == b""
    assert ada.get(f"/v1/jobs/{job}/log?attempt=2").status_code == 404
    worker.finish(attempt, log_size=len(data))
    wait_until(lambda: ada.get(f"/v1/jobs/{job}/log").content == data)


def test_the_origin_of_a_run_is_a_json_object_in_a_header(ada: Client) -> None:
    def submit(origin: str) -> requests.Response:
        return ada.post("/v1/runs", json={"run": "true"}, headers={"Deborgen-Origin": origin})

    run = submit('{"bridge": "rabbitmq", "correlation_id": "\\u00fc"}').json()
    assert run["origin"] == {"bridge": "rabbitmq", "correlation_id": "ü"}
    for wrong in (
        "rabbitmq",
        '{"bridge": "a b"}',
        '{"bridge": "x", "more": 1}',
        '{"bridge": "x", "reply_to": "\\u0000"}',
    ):
        answer = submit(wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed"), wrong
    ada.post(f"/v1/runs/{run['id']}/cancel")


def test_fault_20_repeated_log_bytes_are_skipped_and_a_gap_is_409_with_the_size(
    ada: Client, worker: ScriptedWorker
) -> None:
    """Seen to fail when known log bytes are stored again."""
    job, attempt = started(ada, worker)
    worker.write_log(attempt, 0, b"hello ")
    assert worker.write_log(attempt, 0, b"hello world").json() == {"size": 11}
    assert worker.write_log(attempt, 3, b"lo").json() == {"size": 11}
    gap = worker.write_log(attempt, 12, b"!")
    assert (gap.status_code, gap.json()["error"]["code"], gap.json()["error"]["size"]) == (409, "log_gap", 11)
    assert ada.get(f"/v1/jobs/{job}/log").content == b"hello world"
    worker.finish(attempt, log_size=11)
    late = worker.write_log(attempt, 11, b"late")
    assert (late.status_code, late.json()["error"]["code"]) == (409, "stale_attempt")


@pytest.mark.parametrize("spelling", ["query", "header"])
def test_log_bytes_of_a_superseded_session_are_refused_and_not_stored(
    coordinator: CoordinatorProcess, ada: Client, spelling: str
) -> None:
    """Seen to fail when the coordinator reads the session only in the query."""
    worker = ScriptedWorker(coordinator, f"twin-{spelling}")
    job, attempt = started(ada, worker)
    path = f"/v1/jobs/{job}/attempts/1/log"
    old = worker.session
    worker.session = "the-newer-one"
    worker.register(holding=[attempt])

    def send(session: str, data: bytes) -> requests.Response:
        if spelling == "query":
            return worker.http.post(f"{path}?offset=0&session={session}", data=data)
        return worker.http.post(f"{path}?offset=0", headers={"Deborgen-Session": session}, data=data)

    late = send(old, b"late")
    assert (late.status_code, late.json()["error"]["code"]) == (409, "superseded")
    assert ada.get(f"/v1/jobs/{job}/log").content == b""
    assert send(worker.session, b"mine").json() == {"size": 4}
    assert ada.get(f"/v1/jobs/{job}/log").content == b"mine"
    worker.finish(attempt, log_size=4)


@pytest.mark.parametrize("headers", [{}, {"Deborgen-Session": ""}, {"Deborgen-Session": "no token!"}])
def test_log_bytes_without_a_session_are_400(ada: Client, worker: ScriptedWorker, headers: dict[str, str]) -> None:
    job, attempt = started(ada, worker)
    answer = worker.http.post(f"/v1/jobs/{job}/attempts/1/log?offset=0", headers=headers, data=b"whose?")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")
    assert "session" in answer.json()["error"]["message"]
    assert ada.get(f"/v1/jobs/{job}/log").content == b""
    worker.finish(attempt)


def test_a_followed_log_streams_until_the_attempt_ends(ada: Client, worker: ScriptedWorker) -> None:
    job, attempt = started(ada, worker)
    worker.write_log(attempt, 0, b"one ")
    answer = ada.get(f"/v1/jobs/{job}/log?follow=1", stream=True)
    pieces = answer.iter_content(None)
    assert next(pieces) == b"one "
    worker.write_log(attempt, 4, b"two ")
    assert next(pieces) == b"two "
    worker.write_log(attempt, 8, b"three")
    worker.finish(attempt, log_size=13)
    assert b"".join(pieces) == b"three"
    assert ada.get(f"/v1/jobs/{job}/log?follow=1").content == b"one two three"


def test_the_log_of_a_job_that_never_ran_is_empty(ada: Client) -> None:
    run = ada.post("/v1/runs", json={"run": "true", "requires": {"gpu": "none"}}).json()["id"]
    assert ada.get(f"/v1/jobs/{run}.1/log").content == b""
    ada.post(f"/v1/runs/{run}/cancel")


def stream(answer: requests.Response) -> Iterator[dict[str, Any]]:
    """The events of a server-sent stream."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/event-stream"
    fields: dict[str, str] = {}
    for raw in answer.iter_lines(chunk_size=1):
        line = raw.decode()
        if not line and "data" in fields:
            event = json.loads(fields["data"])
            assert (fields["id"], fields["event"]) == (str(event["seq"]), event["type"])
            yield event
        if not line:
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def test_the_history_is_read_in_pages(ada: Client, worker: ScriptedWorker) -> None:
    job, attempt = started(ada, worker)
    worker.finish(attempt)
    page = ada.get(f"/v1/events?job={job}").json()
    types = [event["type"] for event in page["items"]]
    for name in ("job.queued", "lease.granted", "job.succeeded"):
        assert name in types
    assert [e["seq"] for e in page["items"]] == sorted(e["seq"] for e in page["items"])
    end = next(e for e in page["items"] if e["type"] == "job.succeeded")
    assert (end["job"], end["attempt"], end["worker"]) == (job, attempt, "w1")
    assert (end["old_state"], end["new_state"]) == ("running", "succeeded")
    seen, after = [], 0
    while True:
        part = ada.get(f"/v1/events?job={job}&after={after}&limit=1").json()
        if not part["items"]:
            break
        seen += part["items"]
        after = part["items"][-1]["seq"]
    assert seen == page["items"]


def test_a_stream_sends_events_and_resumes_without_loss(
    coordinator: CoordinatorProcess, ada: Client, worker: ScriptedWorker
) -> None:
    start = ada.get("/v1/events?limit=1000").json()["items"][-1]["seq"]
    live = {"Accept": "text/event-stream"}
    with coordinator.client("viewer").get(f"/v1/events?after={start}", headers=live, stream=True) as answer:
        events = stream(answer)
        job, attempt = started(ada, worker)
        first = [next(events), next(events)]
    worker.finish(attempt)
    resumed = {**live, "Last-Event-ID": str(first[-1]["seq"])}
    with coordinator.client("viewer").get("/v1/events", headers=resumed, stream=True) as answer:
        rest = []
        for event in stream(answer):
            rest.append(event)
            if event["type"] == "job.succeeded" and event["job"] == job:
                break
    kept = ada.get(f"/v1/events?after={start}&limit=1000").json()["items"]
    assert first + rest == kept[: len(first + rest)]


def test_a_filtered_stream_sends_only_matching_events(
    coordinator: CoordinatorProcess, ada: Client, worker: ScriptedWorker
) -> None:
    one, attempt = started(ada, worker)
    headers = {"Accept": "text/event-stream"}
    with coordinator.client("viewer").get(f"/v1/events?job={one}", headers=headers, stream=True) as answer:
        events = stream(answer)
        assert next(events)["job"] == one
        _, other = started(ada, worker)
        worker.finish(other)
        worker.finish(attempt)
        for event in events:
            assert event["job"] == one
            if event["type"] == "job.succeeded":
                break


def test_a_page_after_now_is_empty_and_returns_the_cursor_of_the_next_event(
    ada: Client, worker: ScriptedWorker
) -> None:
    page = ada.get("/v1/events?after=now").json()
    newest = max(event["seq"] for event in ada.get("/v1/events?limit=1000").json()["items"])
    assert page == {"items": [], "next": str(newest)}
    job, attempt = started(ada, worker)
    worker.finish(attempt)
    fresh = ada.get(f"/v1/events?after={page['next']}").json()["items"]
    assert [event["type"] for event in fresh][:2] == ["run.submitted", "job.queued"]
    assert fresh[1]["job"] == job
    refused = ada.get("/v1/events?after=later")
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        400,
        "the query parameter 'after' must be a whole number or the word now",
    )


def test_a_stream_after_now_sends_only_new_events(
    coordinator: CoordinatorProcess, ada: Client, worker: ScriptedWorker
) -> None:
    live = {"Accept": "text/event-stream"}
    with coordinator.client("viewer").get("/v1/events?after=now", headers=live, stream=True) as answer:
        events = stream(answer)
        job, attempt = started(ada, worker)
        first = next(events)
        assert (first["type"], f"{first['run']}.1") == ("run.submitted", job)
    worker.finish(attempt)


@pytest.mark.parametrize("last", ["-1", "x", "1.5", "9" * 30])
def test_a_last_event_id_that_is_not_a_number_is_400(ada: Client, last: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
    assert ada.get("/v1/events", headers=headers).status_code == 400


def test_a_followed_log_of_a_queued_job_waits_for_its_first_attempt(ada: Client, worker: ScriptedWorker) -> None:
    """Seen to fail when only an attempt can be followed: the answer was 500."""
    run = ada.post("/v1/runs", json={"run": "true"}).json()["id"]
    with ada.get(f"/v1/jobs/{run}.1/log?follow=1", stream=True) as answer:
        (assignment,) = worker.claim()
        worker.write_log(assignment["attempt"], 0, b"here")
        worker.finish(assignment["attempt"], log_size=4)
        assert answer.content == b"here"


def test_a_followed_log_ends_when_its_queued_job_is_canceled(ada: Client) -> None:
    run = ada.post("/v1/runs", json={"run": "true", "requires": {"gpu": "none"}}).json()["id"]
    with ada.get(f"/v1/jobs/{run}.1/log?follow=1", stream=True) as answer:
        ada.post(f"/v1/runs/{run}/cancel")
        assert answer.content == b""


def test_a_stream_ends_when_its_token_is_revoked_or_expires(
    coordinator: CoordinatorProcess, worker: ScriptedWorker
) -> None:
    """Seen to fail when only the start of a stream asked whether the token is valid."""
    admin = coordinator.client("admin")
    run = admin.post("/v1/runs", json={"run": "ls"}).json()["id"]
    (assignment,) = worker.claim()
    for path, lasts in (("/v1/events?after=now", None), (f"/v1/jobs/{run}.1/log?follow=1", None), ("/v1/events", 3)):
        made = admin.post("/v1/tokens", json={"role": "viewer", "name": "guest", "expires_in_seconds": lasts}).json()
        headers = {"Accept": "text/event-stream, */*", "Authorization": f"Bearer {made['token']}"}
        with requests.get(coordinator.url + path, headers=headers, stream=True, timeout=30) as answer:
            assert answer.status_code == 200
            if lasts is None:
                assert admin.delete(f"/v1/tokens/{made['id']}").status_code == 204
            deadline = time.monotonic() + 30
            for _ in answer.iter_content(None):
                assert time.monotonic() < deadline, "the stream goes on"
        assert requests.get(coordinator.url + path, headers=headers, stream=True, timeout=60).status_code == 401
    worker.finish(assignment["attempt"])


def test_a_head_request_occupies_no_stream_slot(own_coordinator: CoordinatorProcess) -> None:
    viewer = own_coordinator.client("viewer")
    headers = {"Accept": "text/event-stream"}
    for _ in range(20):
        assert viewer.head("/v1/events", headers=headers).status_code == 200
    with viewer.get("/v1/events", headers=headers, stream=True) as answer:
        assert answer.status_code == 200
