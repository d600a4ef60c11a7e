"""The roles that may use each route. A route without a row in this matrix fails the test, and so does a row without a
route."""

from __future__ import annotations

import pytest

from deborgen_coordinator.http import application
from deborgen_coordinator.http.routes import ROUTES
from deborgen_shared.calls import PATH_NAMES
from deborgen_shared.contract import CALLS
from deborgen_shared.states import Role
from support.coordinator import CoordinatorProcess
from support.waiting import wait_until

assert application.NOUNS, "importing them fills the table of routes"

A, S, V, W = Role.ADMIN, Role.SUBMITTER, Role.VIEWER, Role.WORKER
PEOPLE = {A, S, V}
NO_TOKEN_NEEDED: set[Role] = set()

MATRIX: dict[str, set[Role]] = {
    "GET /health": NO_TOKEN_NEEDED,
    "GET /metrics": PEOPLE,
    "GET /v1/openapi.json": {A, S, V, W},
    "GET /v1/schema/job.json": {A, S, V, W},
    "GET /v1/me": {A, S, V, W},
    "GET /v1/images": PEOPLE,
    "DELETE /v1/images/{image}": {A, S},
    "PUT /v1/secrets/{secret}": {A, S},
    "GET /v1/secrets": {A, S},
    "GET /v1/ledger": PEOPLE,
    "DELETE /v1/secrets/{secret}": {A, S},
    "POST /v1/runs": {A, S},
    "POST /v1/runs/check": {A, S},
    "GET /v1/runs": PEOPLE,
    "GET /v1/runs/last": PEOPLE,
    "GET /v1/runs/{run}": PEOPLE,
    "GET /v1/runs/{run}/overview": PEOPLE,
    "GET /v1/runs/{run}/steps": PEOPLE,
    "GET /v1/runs/{run}/jobs": PEOPLE,
    "GET /v1/runs/{run}/results": PEOPLE,
    "GET /v1/runs/{run}/artifacts": PEOPLE,
    "POST /v1/runs/{run}/cancel": {A, S},
    "POST /v1/runs/{run}/retry": {A, S},
    "GET /v1/jobs": PEOPLE,
    "GET /v1/jobs/{job}": PEOPLE,
    "POST /v1/jobs/{job}/cancel": {A, S},
    "GET /v1/jobs/{job}/why": PEOPLE,
    "GET /v1/jobs/{job}/log": PEOPLE,
    "GET /v1/jobs/{job}/artifacts": PEOPLE,
    "GET /v1/jobs/{job}/artifacts/{path}": PEOPLE,
    "POST /v1/jobs/{job}/attempts/{number}/log": {W},
    "POST /v1/jobs/{job}/attempts/{number}/events": {W},
    "PUT /v1/jobs/{job}/attempts/{number}/commit": {W},
    "PUT /v1/jobs/{job}/attempts/{number}/checkpoint": {W},
    "POST /v1/blobs/missing": {A, S, W},
    "PUT /v1/blobs/{sha256}": {A, S, W},
    "PATCH /v1/blobs/{sha256}": {A, S, W},
    "HEAD /v1/blobs/{sha256}": {A, S, V, W},
    "GET /v1/blobs/{sha256}": {A, S, V, W},
    "POST /v1/blobs/{sha256}/complete": {A, S, W},
    "POST /v1/blobs/{sha256}/damaged": {A, S, V, W},
    "GET /v1/events": PEOPLE,
    "GET /v1/cursors/{cursor}": {A, S},
    "PUT /v1/cursors/{cursor}": {A, S},
    "GET /v1/workers": PEOPLE,
    "GET /v1/workers/{name}": PEOPLE,
    "PATCH /v1/workers/{name}": {A},
    "PUT /v1/workers/{name}": {W},
    "POST /v1/workers/{name}/claim": {W},
    "POST /v1/workers/{name}/heartbeat": {W},
    "POST /v1/workers/{name}/finish": {W},
    "DELETE /v1/workers/{name}": {W},
    "POST /v1/tokens": {A},
    "GET /v1/tokens": {A},
    "DELETE /v1/tokens/{token}": {A},
    "POST /v1/sign-in-links": PEOPLE,
}

WORKER = PATH_NAMES["name"].example


def test_every_call_is_in_the_matrix_with_its_roles() -> None:
    assert {f"{call.method} {call.path}": set(call.by) for call in CALLS} == MATRIX


def test_every_call_is_served_once() -> None:
    assert sorted(f"{route.call.method} {route.call.path}" for route in ROUTES) == sorted(MATRIX)


def path_of(row: str) -> str:
    path = row.partition(" ")[2]
    for name, kind in PATH_NAMES.items():
        path = path.replace("{" + name + "}", kind.example)
    return path


@pytest.mark.parametrize("row", MATRIX)
def test_fault_72_a_token_of_the_wrong_role_is_403_and_no_token_is_401(
    coordinator: CoordinatorProcess, row: str
) -> None:
    """Seen to fail when any role may do anything."""
    method, path = row.partition(" ")[0], path_of(row)
    for token in (None, "nonsense", "dbg_admin_AAAAAAAA_" + "A" * 43):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = coordinator.client(None).request(method, path, headers=headers)
        assert (answer.status_code == 401) == bool(MATRIX[row]), (token, answer.text)
        if answer.status_code == 401:
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    for role in Role:
        answer = coordinator.client(role, WORKER).request(method, path)
        assert answer.status_code < 500, answer.text
        assert answer.status_code != 401, answer.text
        if MATRIX[row]:
            assert (answer.status_code == 403) == (role not in MATRIX[row]), (role, answer.text)
            if answer.status_code == 403 and method != "HEAD":
                assert answer.json()["error"]["code"] == "forbidden"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "bearer  \t",
        "Bearer a b",
        "Bearer \u00e9",
        "Bearer " + "x" * 5000,
        "dbg_admin_x_y",
    ],
)
def test_an_authorization_that_is_not_a_bearer_token_is_401(coordinator: CoordinatorProcess, header: str) -> None:
    answer = coordinator.client(None).get("/v1/runs", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthenticated"


def test_a_revoked_token_is_refused(coordinator: CoordinatorProcess) -> None:
    admin = coordinator.client("admin")
    made = admin.post("/v1/tokens", json={"role": "viewer", "name": "guest"})
    assert made.status_code == 201
    headers = {"Authorization": "Bearer " + made.json()["token"]}
    guest = coordinator.client(None)
    assert guest.get("/v1/runs", headers=headers).status_code == 200
    assert admin.delete(f"/v1/tokens/{made.json()['id']}").status_code == 204
    assert guest.get("/v1/runs", headers=headers).status_code == 401
    assert admin.delete(f"/v1/tokens/{made.json()['id']}").status_code in (204, 404)


def test_an_expired_token_is_refused(coordinator: CoordinatorProcess) -> None:
    body = {"role": "viewer", "name": "brief", "expires_in_seconds": 0.05}
    made = coordinator.client("admin").post("/v1/tokens", json=body).json()
    headers = {"Authorization": "Bearer " + made["token"]}
    wait_until(lambda: coordinator.client(None).get("/v1/runs", headers=headers).status_code == 401)


def test_a_secret_is_shown_once_and_only_its_digest_is_kept(coordinator: CoordinatorProcess) -> None:
    admin = coordinator.client("admin")
    made = admin.post("/v1/tokens", json={"role": "viewer", "name": "once"}).json()
    role, identity, secret = made["token"].removeprefix("dbg_").split("_", 2)
    assert (role, identity) == ("viewer", made["id"])
    listed = admin.get("/v1/tokens").text
    assert made["id"] in listed
    assert secret not in listed
    for file in coordinator.data_dir.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


def test_a_worker_token_is_bound_to_its_name(coordinator: CoordinatorProcess) -> None:
    stranger = coordinator.client("worker", "stranger")
    for method, path, body in [
        ("PUT", "/v1/workers/desk-3", {"session": "s"}),
        ("POST", "/v1/workers/desk-3/claim", {"session": "s", "request_id": "r", "free": {}}),
        ("POST", "/v1/workers/desk-3/heartbeat", {"session": "s"}),
        ("POST", "/v1/workers/desk-3/finish", {"session": "s", "results": []}),
        ("DELETE", "/v1/workers/desk-3", None),
    ]:
        answer = stranger.request(method, path, json=body)
        assert answer.status_code == 403, (method, path, answer.text)
