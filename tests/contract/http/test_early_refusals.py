"""A refusal that leaves a part of the body unread closes the connection, so that no client reuses it."""

from __future__ import annotations

import socket

import pytest

from support.coordinator import CoordinatorProcess

SHA = "a" * 64
LARGE = 2_000_000


def head_of_answer(coordinator: CoordinatorProcess, line: str, headers: list[str], body: bytes = b"") -> list[str]:
    """The status line and the headers of the answer to a request of which only this part is sent."""
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    request = "\r\n".join([f"{line} HTTP/1.1", "Host: x", *headers, "", ""]).encode() + body
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            received = connection.recv(65536)
            assert received, f"the connection ended after {answer!r}"
            answer += received
    return answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")


def token(coordinator: CoordinatorProcess, role: str) -> str:
    return f"Authorization: Bearer {coordinator.token(role)}"


@pytest.mark.parametrize(
    ("line", "role", "headers", "status"),
    [
        (f"PUT /v1/blobs/{SHA}", None, [], 401),
        (f"PUT /v1/blobs/{SHA}", "viewer", [], 403),
        ("PUT /v1/blobs/no-digest", "submitter", [], 404),
        ("PUT /v1/nothing", "submitter", [], 404),
        ("PUT /v1/runs", "submitter", [], 405),
        (f"PATCH /v1/blobs/{SHA}", "submitter", [], 400),
        ("POST /v1/runs", "submitter", ["Content-Type: text/plain"], 415),
        ("POST /v1/runs?nothing=1", "submitter", ["Content-Type: application/json"], 400),
    ],
)
def test_a_refusal_with_most_of_the_body_unread_closes_the_connection(
    coordinator: CoordinatorProcess, line: str, role: str | None, headers: list[str], status: int
) -> None:
    sent = [*headers, *([token(coordinator, role)] if role else []), "Content-Length: 500000"]
    answer = head_of_answer(coordinator, line, sent, b"y" * 70_000)
    assert answer[0].split()[1] == str(status), answer
    assert "Connection: close" in answer


def test_a_body_over_the_limit_closes_the_connection(coordinator: CoordinatorProcess) -> None:
    sent = ["Content-Type: application/json", token(coordinator, "submitter"), "Content-Length: 500000000"]
    answer = head_of_answer(coordinator, "POST /v1/runs", sent, b"y" * 70_000)
    assert answer[0].split()[1] == "413"
    assert "Connection: close" in answer


def test_a_chunked_body_closes_the_connection(coordinator: CoordinatorProcess) -> None:
    sent = ["Content-Type: application/json", token(coordinator, "submitter"), "Transfer-Encoding: chunked"]
    answer = head_of_answer(coordinator, "POST /v1/runs", sent, b"1\r\ny\r\n")
    assert answer[0].split()[1] == "411"
    assert "Connection: close" in answer


def test_a_refusal_whose_whole_body_has_arrived_keeps_the_connection(coordinator: CoordinatorProcess) -> None:
    sent = ["Content-Type: text/plain", token(coordinator, "submitter"), "Content-Length: 5"]
    answer = head_of_answer(coordinator, "POST /v1/runs", sent, b"hello")
    assert answer[0].split()[1] == "415"
    assert "Connection: keep-alive" in answer


def test_a_client_that_keeps_its_connection_is_served_after_every_refusal(coordinator: CoordinatorProcess) -> None:
    """Like workers and the command: one session, a refused upload, and at once the next request."""
    viewer = coordinator.client("viewer")
    for _ in range(50):
        assert viewer.put(f"/v1/blobs/{SHA}", data=b"y" * LARGE).status_code == 403
        assert viewer.get("/v1/runs").status_code == 200
