"""One person with one token cannot take the coordinator from the others, however hard they try."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from support.coordinator import Client, CoordinatorProcess, children_of
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until

#: A request of somebody else that takes longer than this many seconds was held up.
PATIENCE = 8


@pytest.fixture
def short_leases(tmp_path: Path) -> Iterator[CoordinatorProcess]:
    """A coordinator whose leases end soon."""
    with CoordinatorProcess(tmp_path, lease_seconds=3, heartbeat_seconds=0.5) as coordinator:
        yield coordinator


def connect(coordinator: CoordinatorProcess, stack: contextlib.ExitStack) -> socket.socket:
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    return stack.enter_context(socket.create_connection((host, int(port)), timeout=30))


def head(call: str, token: str, *lines: str) -> bytes:
    return "\r\n".join([f"{call} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *lines, "", ""]).encode()


class Onlookers:
    """A worker with a job, and a person: both go on, while somebody else misbehaves."""

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.worker = ScriptedWorker(coordinator, "w1")
        self.person: Client = coordinator.client("submitter", "grace")
        self.run = self.person.post("/v1/runs", json={"run": "true", "max_attempts": 1}).json()["id"]
        (assignment,) = self.worker.claim()
        self.attempt = assignment["attempt"]

    def go_on(self) -> None:
        body = {"session": self.worker.session, "holding": [{"attempt": self.attempt}]}
        answer = self.worker.http.post("/v1/workers/w1/heartbeat", json=body, timeout=PATIENCE)
        assert answer.json()["attempts"] == {self.attempt: "continue"}
        for path in ("/health", "/v1/runs"):
            assert self.person.get(path, timeout=PATIENCE).status_code == 200

    def finish(self) -> None:
        assert self.worker.finish(self.attempt) == "accepted"
        events = [event["type"] for event in self.person.get(f"/v1/events?run={self.run}").json()["items"]]
        assert "lease.expired" not in events


class Trickle:
    """Sends a little on every connection each second, while the block runs."""

    def __init__(self, connections: list[socket.socket], piece: bytes) -> None:
        self._connections, self._piece = connections, piece
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.rounds = 0

    def __enter__(self) -> Trickle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stop.wait(1):
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.send(self._piece)
            self.rounds += 1


def test_fault_92_slow_bodies_of_one_submitter_hold_up_nobody_else(short_leases: CoordinatorProcess) -> None:
    """Seen to fail when a thread reads a body while it arrives."""
    others, token = Onlookers(short_leases), short_leases.token("submitter", "mallory")
    length = ("Content-Type: application/json", "Content-Length: 200000")
    beginnings = [
        head("POST /v1/runs", token, *length) + b" " * 70_000,
        head("POST /v1/runs", token, *length, "Expect: 100-continue") + b" ",
        head(f"PUT /v1/blobs/{'0' * 64}", token, *length) + b" " * 70_000,
        head(f"PUT /v1/blobs/{'1' * 64}", token, "Content-Length: 200", "Expect: 100-continue"),
    ]
    with contextlib.ExitStack() as stack:
        slow = []
        for beginning in beginnings:
            for _ in range(110):
                slow.append(connect(short_leases, stack))
                slow[-1].sendall(beginning)
        with Trickle(slow, b" " * 1024) as trickle:
            while trickle.rounds < 8:
                others.go_on()
    others.finish()


def test_fault_92_answers_that_one_viewer_does_not_read_hold_up_nobody_else(short_leases: CoordinatorProcess) -> None:
    """Seen to fail when a thread waits until a client has read its answer."""
    others, data = Onlookers(short_leases), b"x" * 60_000
    digest = hashlib.sha256(data).hexdigest()
    assert others.person.put(f"/v1/blobs/{digest}", data=data).status_code == 201
    unread = head(f"GET /v1/blobs/{digest}", short_leases.token("viewer", "mallory")) * 150
    with contextlib.ExitStack() as stack:
        for _ in range(110):
            connect(short_leases, stack).sendall(unread)
        for _ in range(30):
            others.go_on()
    others.finish()


def test_fault_92_a_person_with_all_streams_that_one_can_have_leaves_streams_to_others(tmp_path: Path) -> None:
    """Seen to fail when one person may take everything."""
    live = {"Accept": "text/event-stream"}
    with CoordinatorProcess(tmp_path, max_streams=8) as coordinator, contextlib.ExitStack() as stack:

        def stream_of(viewer: Client) -> requests.Response:
            return stack.enter_context(viewer.get("/v1/events", headers=live, stream=True))

        mallory, grace = coordinator.client("viewer", "mallory"), coordinator.client("viewer", "grace")
        answers = [stream_of(mallory) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
        refusal = answers[-1].json()["error"]
        assert refusal["code"] == "slow_down"
        assert refusal["message"] == "too many live streams are open: one person may have 2 of the 8"
        assert refusal["hint"] == "close one of yours, or try again later"
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert stream_of(grace).status_code == 200
        answers[0].close()
        wait_until(lambda: stream_of(mallory).status_code == 200, what="the place of a closed stream")


def test_300_streams_tell_what_happens_while_workers_and_people_go_on(short_leases: CoordinatorProcess) -> None:
    """Seen to fail when each stream occupies a thread."""
    others = Onlookers(short_leases)
    with contextlib.ExitStack() as stack:
        streams = [connect(short_leases, stack) for _ in range(300)]
        for number, stream in enumerate(streams):
            query = "" if number % 2 else f"?run={others.run}"
            token = short_leases.token("viewer", f"viewer-{number % 5}")
            stream.sendall(head(f"GET /v1/events{query}", token, "Accept: text/event-stream"))
            stream.setblocking(False)
        heard = dict.fromkeys(streams, b"")

        def have_all_heard(event: bytes) -> bool:
            for stream in streams:
                with contextlib.suppress(BlockingIOError):
                    heard[stream] += stream.recv(1_000_000)
            return all(event in said for said in heard.values())

        def meanwhile(event: bytes) -> bool:
            others.go_on()
            return have_all_heard(event)

        wait_until(lambda: meanwhile(b"event: lease.granted\n"), what="the history of the run on all streams")
        assert threads_of(short_leases) < 150
        others.finish()
        wait_until(lambda: have_all_heard(b"event: job.succeeded\n"), what="the news on all streams")


def threads_of(coordinator: CoordinatorProcess) -> int:
    assert coordinator.process is not None
    (child,) = children_of(coordinator.process.pid)
    return len(list(Path(f"/proc/{child}/task").iterdir()))


def test_fault_92_silent_sockets_do_not_keep_anybody_from_connecting(tmp_path: Path) -> None:
    """Without a token there is no share to limit. Seen to fail when silent clients keep their places."""
    with (
        CoordinatorProcess(tmp_path, lease_seconds=3, heartbeat_seconds=0.5, max_connections=64) as coordinator,
        contextlib.ExitStack() as stack,
    ):
        onlookers = Onlookers(coordinator)
        silent = [connect(coordinator, stack) for _ in range(300)]
        for connection in silent[::2]:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /health HT")
        for _ in range(5):
            assert requests.get(f"{coordinator.url}/health", timeout=PATIENCE).status_code == 200
            onlookers.go_on()
        onlookers.finish()
