"""kill -9, thirty times, under load: every acknowledged change is there, exactly once."""

from __future__ import annotations

import itertools
import random
import sqlite3
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from support.coordinator import Client, CoordinatorProcess, clean_environment
from support.scripted_worker import ROOM
from support.waiting import wait_until


class Traffic:
    """People who submit and workers that work until they are stopped. They repeat requests without an answer."""

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.coordinator = coordinator
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.pause = threading.Event()
        self.sent: set[str] = set()
        self.runs: dict[str, int] = {}
        self.claims: dict[str, str] = {}
        self.logs: dict[str, int] = {}
        self.results: dict[str, int] = {}
        self.refusals: list[str] = []
        clients = [coordinator.client("submitter", f"person-{n}") for n in range(2)]
        workers = [coordinator.client("worker", f"worker-{n}") for n in range(3)]
        self.threads = [
            threading.Thread(target=self.submit, args=(client, n), daemon=True) for n, client in enumerate(clients)
        ]
        self.threads += [
            threading.Thread(target=self.work, args=(client, n), daemon=True) for n, client in enumerate(workers)
        ]
        for thread in self.threads:
            thread.start()

    def acknowledged(self) -> int:
        return len(self.runs) + len(self.claims) + len(self.logs) + len(self.results)

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive()

    def send(self, client: Client, method: str, path: str, **options: Any) -> requests.Response:
        """Repeat the request until it gets a final answer."""
        while True:
            try:
                answer = client.request(method, path, **options)
            except requests.RequestException:
                self.pause.wait(0.05)  # every client should pause: it leaves the processor to the starting coordinator
                continue
            if answer.status_code < 500:
                if answer.status_code >= 400:
                    with self.lock:
                        self.refusals.append(f"{method} {path}: {answer.text}")
                return answer

    def submit(self, client: Client, number: int) -> None:
        for count in itertools.count():
            if self.stopping.is_set():
                return
            key = f"{number}-{count}"
            self.sent.add(key)
            body = {"run": "true", "name": key, "sweep": {"grid": {"n": {"from": 1, "to": 3}}}}
            answer = self.send(client, "POST", "/v1/runs", json=body, headers={"Idempotency-Key": key})
            with self.lock:
                self.runs[key] = answer.json()["id"]

    def work(self, client: Client, number: int) -> None:
        name, session = f"worker-{number}", f"session-{number}"
        path = f"/v1/workers/{name}"
        hello = {"session": session, "labels": {"runner.process": True}, "capacity": ROOM}
        self.send(client, "PUT", path, json=hello)
        for count in itertools.count():
            request = {"session": session, "request_id": f"{name}-{count}", "free": ROOM, "max": 2, "wait_seconds": 1}
            answer = self.send(client, "POST", f"{path}/claim", json=request)
            assignments = answer.json()["assignments"] if answer.status_code == 200 else []
            if not assignments and self.stopping.is_set():
                return
            for assignment in assignments:
                self.run(client, name, session, assignment)

    def run(self, client: Client, name: str, session: str, assignment: dict[str, Any]) -> None:
        attempt, job = assignment["attempt"], assignment["job"]
        with self.lock:
            assert attempt not in self.claims, f"{attempt} was given to {name} and to {self.claims[attempt]}"
            self.claims[attempt] = name
        held = {"session": session, "holding": [{"attempt": attempt}]}
        self.send(client, "POST", f"/v1/workers/{name}/heartbeat", json=held)
        text = (attempt * 100).encode()
        for offset in range(0, len(text), 200):
            path = f"/v1/jobs/{job}/attempts/{assignment['number']}/log?offset={offset}&session={session}"
            answer = self.send(client, "POST", path, data=text[offset : offset + 200])
            with self.lock:
                self.logs[attempt] = answer.json()["size"]
        value = random.getrandbits(40)
        result = {
            "attempt": attempt, "outcome": "succeeded", "exit_code": 0, "seconds": 0.1, "log_size": len(text),
            "result": {"value": value},
        }  # fmt: skip
        body = {"session": session, "results": [result]}
        answer = self.send(client, "POST", f"/v1/workers/{name}/finish", json=body)
        with self.lock:
            assert answer.json()["results"][attempt] in ("accepted", "already_recorded"), answer.text
            self.results[attempt] = value


def check(coordinator: CoordinatorProcess, traffic: Traffic) -> None:
    """Every acknowledged change is there, and nothing is there twice."""
    admin = coordinator.client("admin")
    assert traffic.refusals == []
    runs: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = admin.get("/v1/runs?limit=1000" + cursor).json()
        runs += page["items"]
        if not page["next"]:
            break
        cursor = f"&cursor={page['next']}"
    names = [run["name"] for run in runs]
    assert len(names) == len(set(names)), "no submit was done twice"
    assert set(names) == traffic.sent
    assert {run["name"]: run["id"] for run in runs} == traffic.runs
    assert {run["state"] for run in runs} == {"succeeded"}
    for attempt, worker in traffic.claims.items():
        job, _, number = attempt.partition("/")
        detail = admin.get(f"/v1/jobs/{job}").json()
        found = {str(a["number"]): a for a in detail["history"]}
        assert found[number]["worker"] == worker
        assert detail["attempts"] == 1, "no attempt was lost"
        assert detail["result"] == {"value": traffic.results[attempt]}
        assert admin.get(f"/v1/jobs/{job}/log").content == (attempt * 100).encode()
        assert traffic.logs[attempt] == len(attempt) * 100
    assert len(traffic.claims) == 3 * len(runs)


def storm(coordinator: CoordinatorProcess, kills: int) -> Traffic:
    chance = random.Random(30)
    traffic = Traffic(coordinator)
    try:
        for _ in range(kills):
            before, more = traffic.acknowledged(), chance.randrange(1, 40)
            wait_until(lambda: traffic.acknowledged() >= before + more, every=0.001)  # noqa: B023
            coordinator.restart()
    finally:
        traffic.stop()
    return traffic


@pytest.mark.timeout(600)
def test_fault_01_thirty_kills_in_the_middle_of_everything_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Seen to fail when an answer is sent before the commit."""
    with CoordinatorProcess(tmp_path, lease_seconds=120) as coordinator:
        traffic = storm(coordinator, 30)
        check(coordinator, traffic)
        coordinator.kill()
        (file,) = coordinator.data_dir.glob("*.sqlite")
        with sqlite3.connect(file) as connection:
            assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        audit = subprocess.run(
            coordinator.command("audit"), capture_output=True, text=True, env=clean_environment(), timeout=120
        )
        assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_fault_01_kills_lose_nothing_on_postgres_either(tmp_path: Path, postgres_url: str) -> None:
    """Seen to fail when an answer is sent before the commit."""
    with CoordinatorProcess(tmp_path, database=postgres_url, lease_seconds=120) as coordinator:
        check(coordinator, storm(coordinator, 10))
