"""A proxy between a worker and the coordinator that misbehaves on purpose, at a given rate and from a seed.

It knows enough of HTTP to see where a request ends, so that each fault affects exactly one request:

- `drop_before`: the request never arrives;
- `drop_after`: the request is executed, and its answer is lost;
- `delay`: the answer comes late;
- `duplicate`: the request is executed twice, and the second answer is returned;
- `cut`: the answer ends in the middle of its body;
- `cut_request`: the request ends in the middle of its body;
- `flip`: a bit of the request's body is flipped.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

FAULTS = ("drop_before", "drop_after", "delay", "duplicate", "cut")


class FaultProxy:
    """Listens on a port of its own; the worker is given its `url` instead of the coordinator's."""

    def __init__(
        self, target: str, rate: float = 0.1, seed: int = 0, faults: tuple[str, ...] = FAULTS, delay: float = 0.3
    ) -> None:
        host, _, port = target.removeprefix("http://").rpartition(":")
        self._target = (host, int(port))
        self.rate, self.faults, self._delay = rate, faults, delay
        self._random = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        #: While this is set, nothing gets through: a partition.
        self.cut_off = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            self._relay(client)

    def _relay(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = client.makefile("rb")
        while True:
            request = read_message(reader)
            if self.cut_off.is_set():
                return None
            fault = self._choose()
            if fault == "drop_before":
                return None
            if fault == "cut_request":
                return self._send_part(request)
            answer = self._send(flipped(request) if fault == "flip" else request)
            if fault == "duplicate":
                answer = self._send(request)
            if fault == "drop_after" or self.cut_off.is_set():
                return None
            if fault == "delay":
                time.sleep(self._delay)
            if fault == "cut":
                client.sendall(answer[: max(1, len(answer) - 3)])
                return None
            client.sendall(answer)

    def _choose(self) -> str:
        with self._lock:
            self.seen["requests"] += 1
            if self._random.random() >= self.rate:
                return ""
            fault = self._random.choice(self.faults)
            self.seen[fault] += 1
            return fault

    def _send_part(self, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        with self._lock:
            kept = self._random.randrange(len(body) + 1)
        with socket.create_connection(self._target, 10) as server:
            server.sendall(head + b"\r\n\r\n" + body[:kept])

    def _send(self, request: bytes) -> bytes:
        """Use one connection per request: the coordinator closes it, so the answer is complete."""
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection(self._target, 10) as server:
            server.settimeout(90)
            server.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            return read_message(server.makefile("rb"), head=request.startswith(b"HEAD"))


def flipped(request: bytes) -> bytes:
    """The request with the last bit of its body flipped; a request without a body is unchanged."""
    return request if request.endswith(b"\r\n\r\n") else request[:-1] + bytes([request[-1] ^ 1])


def read_message(reader: object, head: bool = False) -> bytes:
    """One request or answer: its head, and as many bytes of body as the head says."""
    lines = []
    length = 0
    chunked = False
    while True:
        line = reader.readline(65536)  # type: ignore[attr-defined]
        if not line:
            raise EOFError
        lines.append(line)
        lower = line.lower()
        if lower.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        chunked |= lower.startswith(b"transfer-encoding:") and b"chunked" in lower
        if line == b"\r\n":
            break
    first = lines[0]
    if head or first.startswith((b"HTTP/1.1 204", b"HTTP/1.1 304")):
        length = 0
    if chunked:  # only Podman answers in chunks, and then closes the connection, as it was asked to
        return b"".join(lines) + reader.read()  # type: ignore[attr-defined,no-any-return]
    data: bytes = reader.read(length)  # type: ignore[attr-defined]
    if len(data) < length:
        raise EOFError
    return b"".join(lines) + data
