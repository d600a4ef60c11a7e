"""Hints that name routes belong to the HTTP layer: the API's refusals have them, the operations have none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from deborgen_coordinator import operations
from support.coordinator import Client, CoordinatorProcess

#: A method with a path, or the name of a header.
SPEAKS_HTTP = re.compile(r"\b(GET|HEAD|POST|PUT|PATCH|DELETE) /|Authorization|Idempotency-Key")
MISSING = "0" * 64


@pytest.fixture(scope="module")
def ada(coordinator: CoordinatorProcess) -> Client:
    return coordinator.client("submitter", "hints")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/runs/999999", "GET /v1/runs lists all runs"),
        ("/v1/runs/last", "POST /v1/runs submits a run"),
        ("/v1/jobs/999999.7", "GET /v1/runs/999999/jobs lists the run's jobs"),
        ("/v1/workers/nobody", "GET /v1/workers lists all workers"),
    ],
)
def test_a_missing_thing_is_refused_with_the_route_that_lists_it(ada: Client, path: str, hint: str) -> None:
    """Seen to fail when the HTTP layer adds no hint."""
    assert ada.get(path).json()["error"]["hint"] == hint


def test_a_missing_attempt_or_artifact_is_refused_with_the_route_that_lists_it(ada: Client) -> None:
    job = f"{ada.post('/v1/runs', json={'run': 'true'}).json()['id']}.1"
    attempt = ada.get(f"/v1/jobs/{job}/artifacts", params={"attempt": 3})
    assert attempt.json()["error"]["hint"] == f"GET /v1/jobs/{job} lists the job's attempts"
    artifact = ada.get(f"/v1/jobs/{job}/artifacts/out.txt")
    assert artifact.json()["error"]["hint"] == f"GET /v1/jobs/{job}/artifacts lists the job's artifacts"


def test_a_missing_token_is_refused_with_the_route_that_lists_them(coordinator: CoordinatorProcess) -> None:
    answer = coordinator.client("admin").delete("/v1/tokens/0000")
    assert answer.json()["error"]["hint"] == "GET /v1/tokens lists all tokens"


def test_a_request_without_a_token_is_told_how_to_send_one(coordinator: CoordinatorProcess) -> None:
    for token in (None, "dbg_admin_0_0"):
        hint = Client(coordinator, token).get("/v1/runs").json()["error"]["hint"]
        assert hint.startswith("send the header Authorization: Bearer TOKEN")


def test_a_missing_file_is_refused_with_the_route_that_takes_it(ada: Client) -> None:
    file = {"path": "sim.py", "sha256": MISSING, "size": 3, "mode": 0o644}
    error = ada.post("/v1/runs", json={"run": "true", "files": [file]}).json()["error"]
    assert error["message"] == "the job file is not valid: files[0]: the file 'sim.py' was not uploaded"
    assert error["hint"] == "PUT each missing file to /v1/blobs/{sha256} first"


def test_a_worker_that_is_not_registered_is_told_how_to_register(coordinator: CoordinatorProcess) -> None:
    worker = coordinator.client("worker", "unregistered")
    answer = worker.post("/v1/workers/unregistered/heartbeat", json={"session": "s" * 16, "holding": []})
    assert answer.json()["error"]["hint"] == "register the worker first: PUT /v1/workers/unregistered"


def test_no_message_or_hint_of_an_operation_speaks_http() -> None:
    """Seen to fail with a route in the hint of an operation."""
    found = [
        f"{path.name}: {node.value}"
        for path in sorted(Path(operations.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SPEAKS_HTTP.search(node.value)
    ]
    assert found == []
