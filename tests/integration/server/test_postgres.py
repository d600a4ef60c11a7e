"""Several coordinators on one PostgreSQL database."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.coordinator import CoordinatorProcess
from support.postgres import PostgresCluster
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until

pytestmark = pytest.mark.postgres


def test_a_waiting_claim_on_one_coordinator_wakes_for_a_submit_on_another(tmp_path: Path, postgres_url: str) -> None:
    with (
        CoordinatorProcess(tmp_path, database=postgres_url) as one,
        CoordinatorProcess(tmp_path, database=postgres_url) as other,
    ):
        worker = ScriptedWorker(one, "w1")
        found: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: found.extend(worker.claim(1, wait=30)), daemon=True)
        thread.start()
        wait_until(lambda: other.client("admin").get("/v1/workers/w1").status_code == 200)
        run = other.client("admin").post("/v1/runs", json={"run": "true"}).json()
        thread.join(10)
        assert [a["job"] for a in found] == [f"{run['id']}.1"]
        worker.write_log(found[0]["attempt"], 0, b"hello")
        assert other.client("admin").get(f"/v1/jobs/{run['id']}.1/log").content == b"hello"


def test_an_event_of_one_coordinator_is_streamed_by_another(tmp_path: Path, postgres_url: str) -> None:
    with (
        CoordinatorProcess(tmp_path, database=postgres_url) as one,
        CoordinatorProcess(tmp_path, database=postgres_url) as other,
    ):
        headers = {"Accept": "text/event-stream"}
        with other.client("admin").get("/v1/events", headers=headers, stream=True, timeout=20) as answer:
            one.client("admin").post("/v1/runs", json={"run": "true"})
            for line in answer.iter_lines(chunk_size=1):
                if line == b"event: run.submitted":
                    break
            else:
                pytest.fail("the stream ended before it told of the run")


def test_fault_45_a_restart_of_postgres_loses_nothing_and_nobody_notices(
    tmp_path: Path, own_postgres: PostgresCluster
) -> None:
    """Seen to fail when work that the database interrupted counts as done."""
    with CoordinatorProcess(tmp_path, database=own_postgres.database(), lease_seconds=60) as coordinator:
        admin = coordinator.client("admin")
        acknowledged: list[int] = []
        stop = threading.Event()

        def submit() -> None:
            client, number = coordinator.client("submitter", "ada"), 0
            while not stop.is_set():
                key = {"Idempotency-Key": f"run-{number}"}
                answer = client.post("/v1/runs", json={"run": "true", "name": f"run-{number}"}, headers=key)
                assert answer.status_code in (200, 201, 503), answer.text
                if answer.status_code != 503:
                    acknowledged.append(answer.json()["id"])
                    number += 1

        coordinator.token("submitter", "ada")
        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        try:
            for mode in ("fast", "immediate"):
                seen = len(acknowledged)
                wait_until(lambda: len(acknowledged) > seen + 20)  # noqa: B023
                own_postgres.restart(mode)
            seen = len(acknowledged)
            wait_until(lambda: len(acknowledged) > seen + 20)
        finally:
            stop.set()
            thread.join()
        assert len(set(acknowledged)) == len(acknowledged)
        for run in acknowledged:
            assert admin.get(f"/v1/runs/{run}").status_code == 200


def test_a_database_without_a_locale_keeps_every_character(tmp_path: Path, postgres: PostgresCluster) -> None:
    """As `createdb` creates it on a server with LANG=C: it has no encoding, and stores bytes as they come."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0")
    with CoordinatorProcess(tmp_path, database=postgres.url("plain")) as coordinator:
        admin = coordinator.client("admin")
        run = admin.post("/v1/runs", json={"run": "echo grüße", "name": "größe"}).json()
        assert admin.get(f"/v1/runs/{run['id']}").json()["name"] == "größe"
