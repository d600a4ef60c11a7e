"""Clients that send one request after another keep their thread, and do not delay others."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess


@pytest.fixture
def connection(coordinator: CoordinatorProcess) -> Iterator[socket.socket]:
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as made:
        yield made


def request_for(coordinator: CoordinatorProcess, name: str, *more: str, blanks: int = 0) -> bytes:
    """A submit of a run with that name. Names of the same length make heads that are the same, byte by byte."""
    body = " " * blanks + json.dumps({"run": "true", "name": name})
    lines = [
        "POST /v1/runs HTTP/1.1", "Host: x", f"Authorization: Bearer {coordinator.token('submitter')}",
        "Content-Type: application/json", f"Content-Length: {len(body)}", *more,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", body]).encode()


def names_in(connection: socket.socket, count: int) -> list[str]:
    """The names of the runs in that many answers."""
    found = []
    with connection.makefile("rb") as stream:
        for _ in range(count):
            assert stream.readline().startswith(b"HTTP/1.1 201 ")
            headers = http.client.parse_headers(stream)
            found.append(json.loads(stream.read(int(headers["Content-Length"])))["name"])
    return found


def test_requests_with_the_same_head_keep_their_own_bodies(
    coordinator: CoordinatorProcess, connection: socket.socket
) -> None:
    names = [f"run-{number}" for number in range(8)]
    for name in names:
        connection.sendall(request_for(coordinator, name))
        assert names_in(connection, 1) == [name]


def test_requests_that_come_in_one_piece_are_answered_in_their_order(
    coordinator: CoordinatorProcess, connection: socket.socket
) -> None:
    names = [f"run-{number:02}" for number in range(40)]
    connection.sendall(b"".join(request_for(coordinator, name) for name in names))
    assert names_in(connection, len(names)) == names


def test_the_rest_of_a_long_body_is_awaited_after_a_cached_head_too(
    coordinator: CoordinatorProcess, connection: socket.socket
) -> None:
    for name in ("first", "later"):
        request = request_for(coordinator, name, blanks=200_000)
        connection.sendall(request[:-5])
        assert coordinator.client(None).get("/health").ok, "the coordinator goes on meanwhile"
        connection.sendall(request[-5:])
        assert names_in(connection, 1) == [name]


def test_every_request_that_expects_100_continue_gets_it(
    coordinator: CoordinatorProcess, connection: socket.socket
) -> None:
    for name in ("one", "two"):
        head, _, body = request_for(coordinator, name, "Expect: 100-continue").partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert names_in(connection, 1) == [name]


def test_clients_that_never_pause_leave_threads_to_the_others(tmp_path: Path) -> None:
    few: dict[str, Any] = {"threads": 8, "max_waiters": 2, "max_streams": 2, "max_transfers": 2}
    with CoordinatorProcess(tmp_path, **few) as coordinator, contextlib.ExitStack() as stack:
        host, _, port = coordinator.url.removeprefix("http://").partition(":")
        busy = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(12)]
        for each in busy:
            # These are more bytes than the buffers hold: the rest is sent while the first requests are served.
            threading.Thread(target=send_until_closed, args=(each,), daemon=True).start()
            threading.Thread(target=read_until_closed, args=(each,), daemon=True).start()
            stack.callback(each.shutdown, socket.SHUT_RDWR)
        for _ in range(3):
            assert coordinator.client(None).get("/health", timeout=20).ok


def send_until_closed(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"GET /v1/me HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)


def read_until_closed(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass
