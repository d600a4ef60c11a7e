"""A worker that speaks the contract and runs nothing: the test decides how everything ends."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import requests

from support.coordinator import CoordinatorProcess

GIB = 2**30
ROOM = {"cpus": 64, "memory": 256 * GIB, "gpus": 8, "disk": 1024 * GIB}


class ScriptedWorker:
    """Registers when it is made, and takes jobs of every kind."""

    def __init__(self, coordinator: CoordinatorProcess, name: str = "w1", **labels: Any) -> None:
        self.name = name
        self.http = coordinator.client("worker", name)
        self.session = uuid.uuid4().hex
        self._requests = itertools.count(1)
        self.labels = {"runner.process": True, "runner.container": True, "network.internet": True, **labels}
        self.register()

    def post(self, verb: str, body: dict[str, Any]) -> requests.Response:
        return self.http.post(f"/v1/workers/{self.name}/{verb}", json={"session": self.session, **body})

    def register(self, holding: list[str] | None = None) -> dict[str, Any]:
        body = {"session": self.session, "labels": self.labels, "capacity": ROOM, "holding": holding or []}
        answer = self.http.put(f"/v1/workers/{self.name}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def claim(self, most: int = 1, wait: float = 0, request_id: str | None = None) -> list[dict[str, Any]]:
        """Claim assignments, and name them in a heartbeat."""
        request_id = request_id or f"{self.session}-{next(self._requests)}"
        answer = self.post("claim", {"request_id": request_id, "free": ROOM, "max": most, "wait_seconds": wait})
        if answer.status_code == 204:
            return []
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["assignments"]
        self.heartbeat(*(a["attempt"] for a in found))
        return found

    def heartbeat(self, *attempts: str) -> dict[str, Any]:
        answer = self.post("heartbeat", {"holding": [{"attempt": attempt} for attempt in attempts]})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def write_log(self, attempt: str, offset: int, data: bytes, **options: Any) -> requests.Response:
        job, _, number = attempt.partition("/")
        path = f"/v1/jobs/{job}/attempts/{number}/log?offset={offset}&session={self.session}"
        return self.http.post(path, data=data, **options)

    def send_events(self, attempt: str, events: Any, **more: Any) -> requests.Response:
        """Send events of the attempt's program; `first` is the number of the first one."""
        job, _, number = attempt.partition("/")
        body = {"session": self.session, "events": events, **more}
        return self.http.post(f"/v1/jobs/{job}/attempts/{number}/events", json=body)

    def finish(self, attempt: str, outcome: str = "succeeded", **more: Any) -> str:
        if outcome == "succeeded":
            more.setdefault("exit_code", 0)
        answer = self.post("finish", {"results": [{"attempt": attempt, "outcome": outcome, "seconds": 1.5, **more}]})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["results"][attempt])
