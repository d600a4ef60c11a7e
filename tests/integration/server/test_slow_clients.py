"""Clients that send nothing, or one byte per second, do not delay others."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections import Counter

from support.coordinator import CoordinatorProcess
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1000) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_fault_41_idle_sockets_and_trickling_bodies_do_not_delay_heartbeats(
    own_coordinator: CoordinatorProcess,
) -> None:
    """Seen to fail when a request gets a thread before its body has arrived."""
    worker = ScriptedWorker(own_coordinator, "w1")
    token = own_coordinator.token("submitter")
    host, _, port = own_coordinator.url.removeprefix("http://").partition(":")
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n{"
    ).encode()
    idle = [socket.create_connection((host, int(port))) for _ in range(500)]
    slow = [socket.create_connection((host, int(port))) for _ in range(250)]
    half = [socket.create_connection((host, int(port))) for _ in range(250)]
    for connection in slow:
        connection.sendall(head)
    for connection in half:
        connection.sendall(head[:40])
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(1):
            for connection in slow + half:
                with contextlib.suppress(OSError):
                    connection.send(b" ")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        worst, deadline = 0.0, time.monotonic() + 10
        while time.monotonic() < deadline:
            begin = time.monotonic()
            worker.heartbeat()
            worst = max(worst, time.monotonic() - begin)
        assert worst < 2, f"a heartbeat took {worst:.2f} s"
        wait_until(lambda: all(closed(c) for c in idle + slow + half), 40, every=0.5)
    finally:
        stop.set()
        thread.join()
        for connection in idle + slow + half:
            connection.close()
    worker.heartbeat()


def test_readers_that_do_not_read_occupy_a_limited_number_of_slots(own_coordinator: CoordinatorProcess) -> None:
    admin = own_coordinator.client("admin")
    data = os.urandom(30_000_000)
    digest = hashlib.sha256(data).hexdigest()
    assert admin.put(f"/v1/blobs/{digest}", data=data).status_code == 201
    host, _, port = own_coordinator.url.removeprefix("http://").partition(":")
    request = f"GET /v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {admin.token}\r\n\r\n"
    lazy = []
    for _ in range(120):
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request.encode())
        lazy.append(connection)
    try:
        statuses = Counter(connection.recv(12)[9:] for connection in lazy)
        assert statuses == {b"200": 4, b"429": 116}, "a quarter of the slots"
        begin = time.monotonic()
        assert admin.get("/health").status_code == 200
        assert time.monotonic() - begin < 2
        assert own_coordinator.client("viewer").get(f"/v1/blobs/{digest}").content == data
    finally:
        for connection in lazy:
            connection.close()
    wait_until(lambda: admin.get(f"/v1/blobs/{digest}").content == data, 30, every=0.2)
