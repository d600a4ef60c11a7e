"""The coordinator is killed after a commit and before its answer is read: the repeated request has no second effect."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import requests

from support.coordinator import Client, CoordinatorProcess
from support.scripted_worker import ROOM, ScriptedWorker
from support.waiting import wait_until


class Lossy:
    """Sends a request, waits until its effect is there, kills the coordinator, and sends the request again."""

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.coordinator = coordinator

    def send(
        self, client: Client, method: str, path: str, body: Any, done: Callable[[], Any], **headers: str
    ) -> requests.Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        if not isinstance(body, bytes) and body is not None:
            given["Content-Type"] = "application/json"
        head = "".join(f"{key}: {value}\r\n" for key, value in given.items())
        host, _, port = self.coordinator.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n{head}"
                f"Content-Length: {len(raw)}\r\n\r\n".encode()
                + raw
            )
            wait_until(done)
            self.coordinator.restart()
        assert done(), "what was done is still done"
        answer = client.request(method, path, data=raw, headers=given)
        assert answer.status_code < 300, answer.text
        assert done()
        return answer


def test_fault_02_a_kill_between_commit_and_answer_on_every_endpoint_has_no_double_effect(tmp_path: Path) -> None:
    """Seen to fail when a repeated claim gets other jobs."""
    with CoordinatorProcess(tmp_path, lease_seconds=120) as coordinator:
        lossy = Lossy(coordinator)
        admin = coordinator.client("admin")
        desk = coordinator.client("worker", "desk-3")
        path = "/v1/workers/desk-3"

        def worker_is(**fields: Any) -> bool:
            answer = admin.get(path)
            return answer.status_code == 200 and all(answer.json()[key] == value for key, value in fields.items())

        hello = {"session": "s1", "labels": {"runner.process": True}, "capacity": ROOM}
        lossy.send(desk, "PUT", path, hello, lambda: worker_is(state="open"))

        document = {"run": "true", "sweep": {"grid": {"n": [1, 2]}}}
        answer = lossy.send(
            admin, "POST", "/v1/runs", document, lambda: admin.get("/v1/runs/1").status_code == 200,
            Idempotency_Key="once",
        )  # fmt: skip
        assert (answer.status_code, answer.json()["id"]) == (200, 1)
        assert len(admin.get("/v1/runs").json()["items"]) == 1

        def job(name: str) -> dict[str, Any]:
            return dict(admin.get(f"/v1/jobs/{name}").json())

        claim = {"session": "s1", "request_id": "c1", "free": ROOM, "max": 1}
        answer = lossy.send(desk, "POST", f"{path}/claim", claim, lambda: job("1.1")["state"] == "running")
        assert [a["attempt"] for a in answer.json()["assignments"]] == ["1.1/1"]
        assert job("1.2")["state"] == "queued", "the repeat got the same, not more"

        beat = {"session": "s1", "holding": [{"attempt": "1.1/1", "progress": 0.5}]}
        lossy.send(desk, "POST", f"{path}/heartbeat", beat, lambda: job("1.1")["progress"] == 0.5)

        def log() -> bytes:
            return admin.get("/v1/jobs/1.1/log").content

        append = "/v1/jobs/1.1/attempts/1/log?offset=0&session=s1"
        lossy.send(desk, "POST", append, b"hello", lambda: log() == b"hello")

        def own_events() -> list[str]:
            items = admin.get("/v1/events?job=1.1&limit=1000").json()["items"]
            return [each["data"]["type"] for each in items if each["type"] == "job.event"]

        wrote = {"session": "s1", "first": 0, "events": [{"type": "one"}, {"type": "two"}]}
        append = "/v1/jobs/1.1/attempts/1/events"
        lossy.send(desk, "POST", append, wrote, lambda: own_events() == ["one", "two"])

        digest = hashlib.sha256(b"artifact").hexdigest()
        blob = f"/v1/blobs/{digest}"
        lossy.send(desk, "PUT", blob, b"artifact", lambda: admin.get(blob).content == b"artifact")

        result = {
            "attempt": "1.1/1", "outcome": "succeeded", "exit_code": 0, "log_size": 5, "seconds": 1,
            "artifacts": [{"path": "a", "sha256": digest, "size": 8}],
        }  # fmt: skip
        finish = {"session": "s1", "results": [result]}
        answer = lossy.send(desk, "POST", f"{path}/finish", finish, lambda: job("1.1")["state"] == "succeeded")
        assert answer.json()["results"] == {"1.1/1": "already_recorded"}
        assert len(job("1.1")["history"]) == 1
        events = admin.get("/v1/events?job=1.1&limit=1000").json()["items"]
        assert [event["type"] for event in events].count("job.succeeded") == 1

        answer = lossy.send(admin, "POST", "/v1/runs/1/cancel", {}, lambda: job("1.2")["state"] == "canceled")
        assert answer.json()["jobs"] == {"1.1": "already_terminal", "1.2": "already_terminal"}

        answer = lossy.send(
            admin, "POST", "/v1/runs/1/retry", {"only": "canceled"},
            lambda: admin.get("/v1/runs/2").status_code == 200, Idempotency_Key="again",
        )  # fmt: skip
        assert (answer.status_code, answer.json()["id"]) == (200, 2)
        assert len(admin.get("/v1/runs").json()["items"]) == 2

        lossy.send(admin, "PATCH", path, {"paused": True}, lambda: worker_is(paused=True))
        lossy.send(desk, "DELETE", path, None, lambda: worker_is(state="left"))

        made = admin.post("/v1/tokens", json={"role": "viewer", "name": "guest"}).json()
        lossy.send(
            admin, "DELETE", f"/v1/tokens/{made['id']}", None,
            lambda: made["id"] not in admin.get("/v1/tokens").text,
        )  # fmt: skip
        for kind, count in (("run.submitted", 2), ("worker.left", 1), ("token.revoked", 1)):
            types = [event["type"] for event in admin.get("/v1/events?limit=1000").json()["items"]]
            assert types.count(kind) == count, kind


def test_a_job_is_not_given_to_a_waiting_claim_whose_worker_was_killed(tmp_path: Path) -> None:
    """The job would stay there until its lease expires. Seen to fail when nobody checks the connection."""
    with CoordinatorProcess(tmp_path, lease_seconds=120, max_waiters=1) as coordinator:
        here, dead = coordinator.client("worker", "here"), coordinator.client("worker", "dead")
        for client, name in ((here, "here"), (dead, "dead")):
            hello = {"session": "s1", "labels": {"runner.process": True}, "capacity": ROOM}
            assert client.put(f"/v1/workers/{name}", json=hello).status_code == 200
        body = json.dumps({"session": "s1", "request_id": "c", "free": ROOM, "wait_seconds": 60}).encode()
        numbers = itertools.count()

        def claim() -> requests.Response:
            asked = {"session": "s1", "request_id": f"c{next(numbers)}", "free": ROOM, "wait_seconds": 0.1}
            return here.post("/v1/workers/here/claim", json=asked)

        host, _, port = coordinator.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            request = (
                f"POST /v1/workers/dead/claim HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {dead.token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            connection.sendall(request)
            connection.setblocking(False)

            def waits() -> bool:
                """Whether the dead worker's claim waits in the only place: then another claim is sent away at once.
                If the dead worker's claim was itself sent away, send it again."""
                with contextlib.suppress(BlockingIOError):
                    if connection.recv(4096):
                        connection.sendall(request)
                return claim().headers["Retry-After"] != "0"

            wait_until(waits)
        assert coordinator.client("admin").post("/v1/runs", json={"run": "true"}).status_code == 201
        answer = wait_until(lambda: (found := claim()).status_code == 200 and found)
        assert [each["attempt"] for each in answer.json()["assignments"]] == ["1.1/1"]


def test_fault_84_a_coordinator_killed_between_work_and_check_makes_each_round_once(tmp_path: Path) -> None:
    """Seen to fail when the next job of a loop is not made together with the result."""
    with CoordinatorProcess(tmp_path, lease_seconds=120) as coordinator:
        lossy = Lossy(coordinator)
        admin, worker = coordinator.client("admin"), ScriptedWorker(coordinator)
        loop = {"run": "true", "repeat": {"until": "true", "most": 3}}
        assert admin.post("/v1/runs", json=loop).status_code == 201

        def is_recorded(job: str) -> bool:
            return bool(admin.get(f"/v1/jobs/{job}").json()["state"] in ("succeeded", "failed"))

        expected = [(phase, number) for number in (1, 2, 3) for phase in ("work", "verify")]
        for index, (phase, number) in enumerate(expected, 1):
            [given] = worker.claim()
            assert (given["job"], given["phase"], given["round"]) == (f"1.{index}", phase, number)
            ended = (
                {"outcome": "succeeded", "exit_code": 0} if phase == "work" else {"outcome": "failed", "exit_code": 1}
            )
            finish = {"session": worker.session, "results": [{"attempt": given["attempt"], **ended}]}
            done = partial(is_recorded, given["job"])
            answer = lossy.send(worker.http, "POST", f"/v1/workers/{worker.name}/finish", finish, done)
            assert answer.json()["results"] == {given["attempt"]: "already_recorded"}
        assert worker.claim() == []
        run = admin.get("/v1/runs/1").json()
        assert (run["state"], run["jobs"]["succeeded"], run["jobs"]["failed"]) == ("failed", 5, 1)
        assert admin.get("/v1/jobs/1.6").json()["reason"] == "not verified after 3 rounds"
