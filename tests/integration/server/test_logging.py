"""The coordinator's log: every action with its run, job and worker, and never a secret."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.logs import JsonFormatter, masked
from support.coordinator import CoordinatorProcess, family_of
from support.scripted_worker import ScriptedWorker


def live_through_a_job(coordinator: CoordinatorProcess) -> ScriptedWorker:
    """Let a worker run a job, from its submit to its end."""
    worker = ScriptedWorker(coordinator, "w1")
    coordinator.client("submitter", "ada").post("/v1/runs", json={"run": "true"})
    (assignment,) = worker.claim()
    worker.write_log(assignment["attempt"], 0, b"hello")
    worker.finish(assignment["attempt"], log_size=5)
    return worker


def test_every_action_is_logged_with_its_run_job_and_worker(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, log_format="json") as coordinator:
        live_through_a_job(coordinator)
        coordinator.stop()
        lines: list[dict[str, Any]] = [json.loads(line) for line in coordinator.logged().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    started = [line for line in lines if line.get("job") == "1.1" and "lease.granted" in str(line)]
    assert started, lines
    assert started[0]["attempt"] == "1.1/1"
    assert started[0]["worker"] == "w1"
    assert str(started[0]["run"]) == "1"
    assert started[0]["lease"]
    ended = [line for line in lines if line.get("job") == "1.1" and "job.succeeded" in str(line)]
    assert ended[0]["attempt"] == "1.1/1"
    assert (ended[0]["old_state"], ended[0]["new_state"]) == ("running", "succeeded")
    assert "old_state" not in started[0], "a lease is not a state of a job"
    assert any("run.submitted" in str(line) and str(line.get("run")) == "1" for line in lines)


def test_equal_events_of_a_sweeps_jobs_share_a_log_line(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, log_format="json") as coordinator:
        worker = ScriptedWorker(coordinator, "w1")
        sweep = {"grid": {"seed": {"from": 1, "to": 4}}}
        coordinator.client("submitter", "ada").post("/v1/runs", json={"run": "true", "sweep": sweep})
        given = worker.claim(most=4)
        codes = (0, 0, 3, 0)
        results = [
            {"attempt": each["attempt"], "outcome": "failed" if code else "succeeded", "exit_code": code, "seconds": 1}
            for each, code in zip(given, codes, strict=True)
        ]
        assert worker.post("finish", {"results": results}).status_code == 200
        coordinator.stop()
        lines: list[dict[str, Any]] = [json.loads(line) for line in coordinator.logged().splitlines()]
    seen = {line["message"]: line for line in lines if "job" in line or "jobs" in line}
    assert seen["lease.granted"]["jobs"] == "1.1-1.4"
    assert seen["lease.granted"]["attempt_number"] == 1
    assert seen["job.succeeded"]["jobs"] == "1.1-1.2,1.4"
    assert (seen["job.succeeded"]["old_state"], seen["job.succeeded"]["new_state"]) == ("running", "succeeded")
    assert seen["job.failed"]["job"] == "1.3"
    assert "exit code 3" in seen["job.failed"]["data"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_fault_69_no_secret_is_in_any_log_whatever_is_sent(tmp_path: Path, log_format: str) -> None:
    """Seen to fail when tokens in messages are not masked."""
    with CoordinatorProcess(tmp_path, log_format=log_format, log_level="debug") as coordinator:
        live_through_a_job(coordinator)
        admin = coordinator.client("admin")
        minted = admin.post("/v1/tokens", json={"role": "viewer", "name": "guest"}).json()["token"]
        tokens = [minted, *coordinator._tokens.values()]
        guessed = "dbg_admin_0123456789ab_" + "secret-that-somebody-guessed"
        anybody = coordinator.client(None)
        for token in [*tokens, guessed]:
            anybody.get("/v1/runs", headers={"Authorization": f"Bearer {token}"})
            anybody.get("/v1/runs", headers={"Authorization": token})
            anybody.get(f"/v1/runs?token={token}")
            anybody.get(f"/v1/{token}")
            admin.get(f"/v1/runs?submitter={token}")
            admin.delete(f"/v1/tokens/{token}")
            admin.post("/v1/runs", json={"run": "true", token: token})
            admin.post("/v1/runs", data=f'{{"token": "{token}', headers={"Content-Type": "application/json"})
            admin.post("/v1/tokens", json={"role": token, "name": token})
            host, _, port = coordinator.url.removeprefix("http://").partition(":")
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(f"GET /{token} HTTP/1.1\r\nAuthorization : {token}\r\n\r\n".encode())
                connection.recv(1000)
        coordinator.stop()
        log = coordinator.logged()
    assert "GET /v1/runs" in log, "requests are logged, so this test can fail"
    for token in [*tokens, guessed]:
        assert token not in log
        assert token.rpartition("_")[2] not in log
    if log_format == "json":
        for line in log.splitlines():
            json.loads(line)


def test_fault_69_no_secret_is_in_a_process_list_or_a_variable(own_coordinator: CoordinatorProcess) -> None:
    """Seen to fail when a new token is an argument of a program that the coordinator starts."""
    live_through_a_job(own_coordinator)
    minted = (
        own_coordinator.client("admin").post("/v1/tokens", json={"role": "viewer", "name": "guest"}).json()["token"]
    )
    secrets = [token.rpartition("_")[2].encode() for token in [minted, *own_coordinator._tokens.values()]]
    assert own_coordinator.process is not None
    family = family_of(own_coordinator.process.pid)
    assert len(family) > 1
    for pid in family:
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{pid}/{name}").read_bytes()
            assert shown or name == "environ"
            assert not any(secret in shown for secret in secrets)


def test_no_other_user_can_read_the_data_directory(own_coordinator: CoordinatorProcess) -> None:
    live_through_a_job(own_coordinator)
    for path in [own_coordinator.data_dir, *own_coordinator.data_dir.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_line_break_in_a_name_does_not_forge_a_line_of_the_log(own_coordinator: CoordinatorProcess) -> None:
    admin = own_coordinator.client("admin")
    forged = "a\n2026-01-01T00:00:00.000Z info deborgen.history token.created actor=admin:evil"
    admin.post("/v1/runs", json={"run": "true", "name": forged})
    admin.post("/v1/runs/1/cancel", json={"reason": forged})
    assert not [line for line in own_coordinator.logged().splitlines() if line.startswith("2026-01-01T00:00:00.000Z")]


@pytest.mark.parametrize("reason", ["the ring bearer frodo", 'a "bearer x" in quotes', "bearer \\\\"])
def test_a_masked_json_line_is_still_json(reason: str) -> None:
    """Seen to fail when the mask takes the quotes after a word along."""
    record = logging.makeLogRecord({"name": "deborgen.history", "levelname": "INFO"})
    record.lines = [("job.canceled", {"data": reason}), ("job.canceled", {"data": "no"})]
    lines = [json.loads(line) for line in JsonFormatter().format(record).splitlines()]
    assert [line["message"] for line in lines] == ["job.canceled", "job.canceled"]
    assert "frodo" not in lines[0]["data"]


def test_what_looks_like_a_token_is_masked() -> None:
    assert masked("got dbg_worker_0a1b_Se-cr_et!") == "got dbg_worker_0a1b_***!"
    assert masked("Authorization: Bearer abc.def") == "Authorization: Bearer ***"
    assert masked("nothing here") == "nothing here"
