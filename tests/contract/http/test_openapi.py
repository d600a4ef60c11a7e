"""The published contract is valid and complete, and the coordinator conforms to it whatever is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from deborgen_coordinator.http import application
from deborgen_coordinator.http.openapi import document
from deborgen_coordinator.http.routes import ROUTES
from deborgen_shared.calls import HELLO
from deborgen_shared.contract import CALLS
from deborgen_shared.errors import Code
from deborgen_shared.states import Role
from support.coordinator import CoordinatorProcess
from support.scripted_worker import ScriptedWorker

assert application.NOUNS, "importing them fills the table of routes"
CONTRACT = document(ROUTES, "0")
# JSON Schema cannot say everything: a text without NUL, a number of at most 20 digits, a cursor that came from a page,
# a template that names a parameter. So what is valid by the schema may still be refused, as 400 or 422.
CONFIG = schemathesis.Config.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ["2xx", 304, 400, 403, 404, 409, 413, 416, 422, 429]},
            "negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 409, 411, 413, 415, 422, 429]},
        },
        # To test every boundary of the job file's schema takes very many documents, so these two get only random ones.
        "operations": [
            {"include-name": f"POST {path}", "phases": {"coverage": {"enabled": False}}}
            for path in ("/v1/runs", "/v1/runs/check")
        ],
    }
)
schema = schemathesis.openapi.from_dict(document(ROUTES, "0"), config=CONFIG)


def test_every_route_is_in_the_contract() -> None:
    written = {(method.upper(), path) for path, methods in CONTRACT["paths"].items() for method in methods}  # type: ignore[attr-defined]
    assert written == {(call.method, call.path) for call in CALLS}


def test_the_contract_is_published(coordinator: CoordinatorProcess) -> None:
    published = coordinator.client("viewer").get("/v1/openapi.json").json()
    assert published["paths"] == CONTRACT["paths"]
    assert published["components"] == CONTRACT["components"]
    assert published["openapi"] == "3.1.0"


def test_every_reference_in_the_contract_leads_somewhere() -> None:
    text = json.dumps(CONTRACT)
    schemas = CONTRACT["components"]["schemas"]  # type: ignore[index]
    names = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert names <= set(schemas)
    assert '"#/$defs/' not in text


def test_every_refusal_has_the_same_shape() -> None:
    codes = {str(code) for code in Code}
    for path, methods in CONTRACT["paths"].items():  # type: ignore[attr-defined]
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert answer["content"] == {
                        "application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}
                    }, (path, method, status)
                    assert set(answer["description"].split(", ")) <= codes


def test_the_schema_of_the_job_file_is_published(coordinator: CoordinatorProcess) -> None:
    published = coordinator.client("worker", "w1").get("/v1/schema/job.json").json()
    assert "run" in published["properties"]
    assert "sweep" in published["properties"]


@pytest.fixture(scope="module", autouse=True)
def what_the_examples_name(coordinator: CoordinatorProcess) -> None:
    """Run 1, job 1.1 with a log and an artifact, worker desk-3 and the blob of the examples all exist."""
    worker = ScriptedWorker(coordinator, "desk-3")
    assert worker.http.put(f"/v1/blobs/{HELLO}", data=b"hello").status_code == 201
    run = coordinator.client("admin", "desk-3").post("/v1/runs", json={"run": "true"}).json()
    (assignment,) = worker.claim()
    worker.write_log(assignment["attempt"], 0, b"hello")
    artifact = {"path": "out/plot.png", "sha256": HELLO, "size": 5}
    assert worker.finish(assignment["attempt"], artifacts=[artifact], log_size=5) == "accepted"
    assert run["id"] == 1


@schema.auth(refresh_interval=None)
class Roles:
    """Requests are built before there is a coordinator: each carries a role, which the test replaces by a token."""

    def get(self, case: schemathesis.Case[Any], context: schemathesis.AuthContext) -> str:
        roles = {call.by for call in CALLS if (call.method, call.path) == (case.method.upper(), case.path)}
        return "worker" if roles == {frozenset({Role.WORKER})} else "admin"

    def set(self, case: schemathesis.Case[Any], data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = data


@schema.parametrize()
@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_conforms_to_the_contract_whatever_is_sent(
    case: schemathesis.Case[Any], coordinator: CoordinatorProcess
) -> None:
    """All checks of schemathesis: no 5xx, no undocumented status, type, header or body, no way around the token."""
    if "x-schemathesis-unknown-property" in case.headers:
        return  # HTTP requires that unknown headers are ignored, not refused
    role = case.headers.get("Authorization")
    if role in ("admin", "worker"):
        case.headers["Authorization"] = f"Bearer {coordinator.token(role, 'desk-3')}"
    case.call_and_validate(base_url=coordinator.url, timeout=30)
