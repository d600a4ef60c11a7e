"""Whatever is sent: a refusal in the usual shape, never a 500, never a partial write."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
from typing import Any

import pytest
import requests

from support.coordinator import CoordinatorProcess
from support.scripted_worker import ScriptedWorker


def refusal(answer: requests.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == code
    assert set(error) >= {"code", "message", "hint"}
    return error


def exchange(coordinator: CoordinatorProcess, request: bytes, *, half_close: bool = True) -> bytes:
    """Send raw bytes; return everything that comes back until the coordinator closes the connection."""
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def raw_post(coordinator: CoordinatorProcess, path: str, headers: str, body: bytes = b"") -> bytes:
    token = coordinator.token("submitter")
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
    return exchange(coordinator, head.encode() + body)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1", 404, "not_found"),
        ("/v1/run", 404, "not_found"),
        ("/v2/runs", 404, "not_found"),
        ("/v1/runs/x", 404, "not_found"),
        ("/v1/runs/0", 404, "not_found"),
        ("/v1/runs/0042", 404, "not_found"),
        ("/v1/runs/-1", 404, "not_found"),
        ("/v1/runs/4.0", 404, "not_found"),
        ("/v1/runs/99999999999999999999999999", 404, "not_found"),
        ("/v1/runs/99999999999", 404, "not_found"),
        ("/v1/runs/١", 404, "not_found"),
        ("/v1/jobs/42", 404, "not_found"),
        ("/v1/jobs/42.0", 404, "not_found"),
        ("/v1/jobs/42.07", 404, "not_found"),
        ("/v1/jobs/42.7.1", 404, "not_found"),
        ("/v1/jobs/42.99999999999999999999", 404, "not_found"),
        ("/v1/jobs/999999.7/why", 404, "not_found"),
        ("/v1/jobs/999999.7/log", 404, "not_found"),
        ("/v1/jobs/999999.7/artifacts", 404, "not_found"),
        ("/v1/jobs/999999.7/artifacts/..%2f..%2fetc%2fpasswd", 404, "not_found"),
        ("/v1/jobs/999999.7/artifacts/a%00b", 404, "not_found"),
        ("/v1/runs/42%0a", 404, "not_found"),
        ("/v1/workers/nobody", 404, "not_found"),
        ("/v1/workers/a%20b", 404, "not_found"),
        ("/v1/workers/%ff", 404, "not_found"),
        ("/v1/blobs/abc", 404, "not_found"),
        ("/v1/blobs/" + "A" * 64, 404, "not_found"),
        ("/v1/blobs/" + "a" * 64, 404, "not_found"),
        ("/v1/runs?limit=0", 400, "malformed"),
        ("/v1/runs?limit=1001", 400, "malformed"),
        ("/v1/runs?limit=ten", 400, "malformed"),
        ("/v1/runs?limit=1e2", 400, "malformed"),
        ("/v1/runs?limit=%2010", 400, "malformed"),
        ("/v1/runs?limit=" + "9" * 30, 400, "malformed"),
        ("/v1/runs?limit=1&limit=2", 400, "malformed"),
        ("/v1/runs?limit", 400, "malformed"),
        ("/v1/runs?state=done", 400, "malformed"),
        ("/v1/runs?stat=failed", 400, "malformed"),
        ("/v1/runs?cursor=%00", 400, "malformed"),
        ("/v1/runs?cursor=nonsense", 400, "malformed"),
        ("/v1/runs?label=%ff", 400, "malformed"),
        ("/v1/runs?label=", 400, "malformed"),
        ("/v1/jobs?cursor=nonsense", 400, "malformed"),
        ("/v1/jobs?run=0", 400, "malformed"),
        ("/v1/events?after=-1", 400, "malformed"),
        ("/v1/events?job=42", 400, "malformed"),
        ("/v1/workers?state=open", 400, "malformed"),
        ("/health?x=1", 400, "malformed"),
        ("/v1/runs?" + "&".join(f"a{n}=1" for n in range(100)), 400, "malformed"),
    ],
)  # fmt: skip
def test_a_path_or_query_that_names_nothing_is_refused(
    coordinator: CoordinatorProcess, path: str, status: int, code: str
) -> None:
    refusal(coordinator.client("viewer").get(path), status, code)


def test_a_misspelt_query_parameter_gets_a_suggestion(coordinator: CoordinatorProcess) -> None:
    error = refusal(coordinator.client("viewer").get("/v1/runs?submiter=ada"), 400, "malformed")
    assert error["hint"] == "did you mean 'submitter'?"


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/v1/runs"), ("PUT", "/v1/runs/1"), ("OPTIONS", "/v1/runs"), ("TRACE", "/health"), ("POST", "/health")],
)
def test_a_method_that_a_path_does_not_accept_is_405(coordinator: CoordinatorProcess, method: str, path: str) -> None:
    answer = coordinator.client("admin").request(method, path)
    refusal(answer, 405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


BAD_JSON = {
    "empty": b"",
    "cut": b'{"run": "true"',
    "two values": b'{"run": "true"} {}',
    "duplicate key": b'{"run": "true", "run": "false"}',
    "duplicate key inside": b'{"run": "true", "env": {"A": 1, "A": 2}}',
    "deep": b'{"run": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "deep objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "not a number": b'{"run": "true", "priority": NaN}',
    "infinite": b'{"run": "true", "priority": 1e999}',
    "long number": b'{"run": "true", "priority": ' + b"1" * 4000 + b"}",
    "NUL": b'{"run": "true\\u0000"}',
    "half a surrogate pair": b'{"run": "\\ud800"}',
    "latin-1": '{"run": "é"}'.encode("latin-1"),
    "UTF-16": '{"run": "true"}'.encode("utf-16"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_fault_62_malformed_json_is_400_and_submits_nothing(coordinator: CoordinatorProcess, name: str) -> None:
    """Seen to fail when the last of two equal keys counts."""
    submitter = coordinator.client("submitter")
    before = submitter.get("/v1/runs?limit=1").json()
    answer = submitter.post("/v1/runs", data=BAD_JSON[name], headers={"Content-Type": "application/json"})
    refusal(answer, 400, "malformed")
    assert submitter.get("/v1/runs?limit=1").json() == before


@pytest.mark.parametrize(
    "body", ["null", "[]", "1", '"run"', "{}", '{"run": 7}', '{"rn": "true"}', '{"run": "true", "x": 1}']
)
def test_fault_62_json_that_is_not_a_job_file_is_422_with_all_problems(
    coordinator: CoordinatorProcess, body: str
) -> None:
    """Seen to fail when an invalid job file is an internal error of the coordinator."""
    answer = coordinator.client("submitter").post("/v1/runs", data=body, headers={"Content-Type": "application/json"})
    error = refusal(answer, 422, "invalid_job")
    assert error["problems"]
    assert all({"path", "message"} <= set(problem) for problem in error["problems"])


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/yaml"]
)
def test_another_content_type_is_415(coordinator: CoordinatorProcess, kind: str | None) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = coordinator.client("submitter").post("/v1/runs", data=b'{"run": "true"}', headers=headers)
    refusal(answer, 415, "unsupported_media_type")


def test_json_may_name_its_charset(coordinator: CoordinatorProcess) -> None:
    answer = coordinator.client("submitter").post(
        "/v1/runs", data=b'{"run": "true"}', headers={"Content-Type": "application/json; charset=utf-8"}
    )
    assert answer.status_code == 201, answer.text


def test_fault_63_a_body_over_the_limit_is_413_before_it_is_read(coordinator: CoordinatorProcess) -> None:
    """Seen to fail when a body may have any length."""
    answer = raw_post(
        coordinator, "/v1/runs", f"Content-Type: application/json\r\nContent-Length: {2**40}\r\n", b"{" * 1000
    )
    assert answer.startswith(b"HTTP/1.1 413"), answer
    assert b'"too_large"' in answer
    assert b"1048576" in answer


def test_fault_63_a_body_that_is_sent_in_full_and_too_large_is_413(coordinator: CoordinatorProcess) -> None:
    """Seen to fail when a body may have any length."""
    body = json.dumps({"run": "x" * 1_100_000}).encode()
    answer = raw_post(
        coordinator, "/v1/runs", f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n", body
    )
    assert answer.startswith(b"HTTP/1.1 413"), answer[:200]


def test_fault_63_no_content_length_is_411(coordinator: CoordinatorProcess) -> None:
    """Seen to fail when a body needs no Content-Length."""
    answer = raw_post(coordinator, "/v1/runs", "Content-Type: application/json\r\n", b'{"run": "true"}')
    assert answer.startswith(b"HTTP/1.1 411"), answer
    assert b'"length_required"' in answer


def test_fault_63_a_chunked_body_is_411(coordinator: CoordinatorProcess) -> None:
    """Seen to fail when a body needs no Content-Length."""
    headers = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    answer = raw_post(coordinator, "/v1/runs", headers, b'f\r\n{"run": "true"}\r\n0\r\n\r\n')
    assert answer.startswith(b"HTTP/1.1 411"), answer


def test_fault_63_a_body_shorter_than_its_length_is_400(coordinator: CoordinatorProcess) -> None:
    """Seen to fail when half a body counts as the whole body."""
    headers = "Content-Type: application/json\r\nContent-Length: 200000\r\n"
    answer = raw_post(coordinator, "/v1/runs", headers, b'{"run": "true"}' + b" " * 100_000)
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert b'"malformed"' in answer


@pytest.mark.parametrize("length", ["-1", "abc", "1.5", "+5", "0x10", " ", "5, 5", "9" * 40])
def test_fault_63_a_content_length_that_is_not_a_number_is_refused(
    coordinator: CoordinatorProcess, length: str
) -> None:
    """Seen to fail when an invalid HTTP request is an internal error of the coordinator."""
    headers = f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
    answer = raw_post(coordinator, "/v1/runs", headers, b'{"run": "true"}')
    assert answer[9:12] in (b"400", b"411", b"413"), answer
    assert b'{"error"' in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
        b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 1000 + b"\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)  # fmt: skip
def test_fault_73_ambiguous_framing_and_bad_http_is_400_in_the_usual_shape(
    coordinator: CoordinatorProcess, request_bytes: bytes
) -> None:
    """Seen to fail when an invalid HTTP request is an internal error of the coordinator."""
    answer = exchange(coordinator, request_bytes)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    _, _, body = answer.partition(b"\r\n\r\n")
    assert json.loads(body)["error"]["code"] == "malformed"
    assert answer.count(b"HTTP/1.1 4") == 1, "nothing behind it was taken for a second request"


def test_fault_73_a_forged_host_or_origin_changes_no_answer(coordinator: CoordinatorProcess) -> None:
    """Seen to fail when pages of any origin may read the answers."""
    viewer = coordinator.client("viewer")
    forged = {"Host": "evil.example", "Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"}
    answer = viewer.get("/v1/runs", headers=forged)
    assert answer.status_code == 200
    assert "evil" not in answer.text + str(answer.headers)
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert viewer.get("/health", headers={"SCRIPT_NAME": "/x", "X-Forwarded-Proto": "https"}).status_code == 200


@pytest.mark.parametrize(("asked", "answered"), [("1.0", "1.0"), ("1.1", "1.1"), ("1.2", "1.1"), ("1.9", "1.1")])
def test_an_answer_has_a_version_of_http_that_the_coordinator_speaks(
    coordinator: CoordinatorProcess, asked: str, answered: str
) -> None:
    """Found by `make fuzz`, and seen to fail: the answer to HTTP/1.2 was HTTP/1.2."""
    for _ in range(2):  # the second request has a head that is already known
        answer = exchange(coordinator, f"GET /health HTTP/{asked}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith(f"HTTP/{answered} 200 ".encode()), answer


def test_pipelined_requests_are_answered_in_order(coordinator: CoordinatorProcess) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = exchange(coordinator, one + one + last, half_close=False)
    assert [line[9:12] for line in answer.split(b"HTTP/1.1")[1:] for line in [b"HTTP/1.1" + line]] == [
        b"200",
        b"200",
        b"404",
    ]


def test_a_client_that_expects_100_continue_gets_it(coordinator: CoordinatorProcess) -> None:
    token = coordinator.token("submitter")
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    body = b'{"run": "true"}'
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "tab\there"])
def test_an_invalid_idempotency_key_is_400(coordinator: CoordinatorProcess, key: str) -> None:
    answer = coordinator.client("submitter").post("/v1/runs", json={"run": "true"}, headers={"Idempotency-Key": key})
    refusal(answer, 400, "malformed")


def file_at(coordinator: CoordinatorProcess, path: str) -> dict[str, Any]:
    """An uploaded file, so that only its path can be wrong."""
    data = b"a file"
    digest = hashlib.sha256(data).hexdigest()
    assert coordinator.client("submitter").put(f"/v1/blobs/{digest}", data=data).status_code in (200, 201)
    return {"path": path, "sha256": digest, "size": len(data), "mode": 420}


def test_a_file_that_was_uploaded_is_accepted(coordinator: CoordinatorProcess) -> None:
    person = coordinator.client("submitter")
    answer = person.post("/v1/runs", json={"run": "true", "files": [file_at(coordinator, "./data/a.txt")]})
    assert answer.status_code == 201
    (stored,) = person.get(f"/v1/jobs/{answer.json()['id']}.1").json()["spec"]["files"]
    assert stored["path"] == "data/a.txt"


@pytest.mark.parametrize(
    "path",
    [
        "../a",
        "/etc/passwd",
        "a/../../b",
        "a\\b",
        "C:\\x",
        "C:/x",
        "a//b",
        "a/.",
        "",
        "x" * 300,
        "a/" * 600 + "a",
    ],
)
def test_fault_64_a_file_path_that_leaves_its_folder_is_422(coordinator: CoordinatorProcess, path: str) -> None:
    """Seen to fail when '..' is a name like any other."""
    body = {"run": "true", "files": [file_at(coordinator, path)]}
    answer = coordinator.client("submitter").post("/v1/runs", json=body)
    refusal(answer, 422, "invalid_job")


@pytest.mark.parametrize("twin", ["A.txt", "a\u0301.txt"])
def test_fault_64_file_paths_that_are_equal_on_some_machines_are_422(
    coordinator: CoordinatorProcess, twin: str
) -> None:
    """Seen to fail when names are compared byte by byte."""
    paths = [twin, twin.lower() if twin == "A.txt" else "\u00e1.txt"]
    files = [file_at(coordinator, path) for path in paths]
    answer = coordinator.client("submitter").post("/v1/runs", json={"run": "true", "files": files})
    refusal(answer, 422, "invalid_job")


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/check"])
def test_a_lookup_in_quotes_is_422(coordinator: CoordinatorProcess, path: str) -> None:
    body = {"run": "echo '${{ a }}'", "sweep": {"grid": {"a": ["x; echo INJECTED"]}}}
    error = refusal(coordinator.client("submitter").post(path, json=body), 422, "invalid_job")
    assert [problem["path"] for problem in error["problems"]] == ["run"]
    assert "$DEBORGEN_PARAM_A" in error["hint"]


#: What a worker might say of itself by mistake, or to do harm.
NONSENSE_OF_A_WORKER = [
    b'"metrics": {"load": NaN}',
    b'"metrics": {"load": Infinity}',
    b'"metrics": {"temperature": -Infinity}',
    b'"metrics": {"load": 1e999}',
    b'"metrics": {"load": "NaN"}',
    b'"metrics": {"load": -1}',
    b'"metrics": {"memory_free": -5}',
    b'"metrics": {"memory_free": 0.5}',
    b'"metrics": {"disk_free": 99999999999999999999}',
    b'"metrics": {"disk_free": 999999999999999999999999}',
    b'"metrics": {"temperature": 1e300}',
    b'"metrics": {"gpus": [' + b"{}," * 64 + b"{}]}",
    b'"metrics": {"gpus": [{"name": "\\u0000"}]}',
    b'"metrics": {"gpus": [{"busy": 100}]}',
    b'"metrics": []',
    b'"metrics": ' + b'{"gpus": ' * 100 + b"1" + b"}" * 100,
    b'"state": "left"',
    b'"state": "offline"',
    b'"state": null',
    b'"until": "soon"',
    b'"until": 1800000000',
    b'"until": "2030-01-31T18:00:00"',
    b'"until": "9999-12-31T23:59:59-14:00"',
    b'"until": "0001-01-01T00:00:00+14:00"',
]


@pytest.mark.parametrize("said", NONSENSE_OF_A_WORKER)
def test_an_invalid_report_of_a_worker_is_400_and_changes_nothing(coordinator: CoordinatorProcess, said: bytes) -> None:
    """Seen to fail when a time of any year is accepted."""
    worker, viewer = ScriptedWorker(coordinator, "odd"), coordinator.client("viewer")
    before = viewer.get("/v1/workers/odd").json()
    body = b'{"session": "' + worker.session.encode() + b'", ' + said + b"}"
    json_type = {"Content-Type": "application/json"}
    refusal(worker.http.post("/v1/workers/odd/heartbeat", data=body, headers=json_type), 400, "malformed")
    if said.startswith(b'"metrics"'):
        refusal(worker.http.put("/v1/workers/odd", data=body, headers=json_type), 400, "malformed")
    assert viewer.get("/v1/workers/odd").json() == before


def test_a_gzip_bomb_of_a_log_is_413(coordinator: CoordinatorProcess) -> None:
    worker = coordinator.client("worker", "w1")
    bomb = gzip.compress(b"\0" * 20_000_000)
    answer = worker.post(
        "/v1/jobs/1.1/attempts/1/log?offset=0&session=s1", data=bomb, headers={"Content-Encoding": "gzip"}
    )
    refusal(answer, 413, "too_large")


@pytest.mark.parametrize(
    ("encoding", "status", "code"), [("br", 415, "unsupported_media_type"), ("gzip", 400, "malformed")]
)
def test_a_log_in_another_encoding_is_refused(
    coordinator: CoordinatorProcess, encoding: str, status: int, code: str
) -> None:
    answer = coordinator.client("worker", "w1").post(
        "/v1/jobs/1.1/attempts/1/log?offset=0&session=s1", data=b"plain", headers={"Content-Encoding": encoding}
    )
    refusal(answer, status, code)
