"""The transport and the blob client, against servers that are slow or send only half an answer."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deborgen_shared import contract
from deborgen_shared.client import blobs
from deborgen_shared.client.transport import Refused, Transport
from deborgen_shared.queries import LogQuery

HEALTHY = b'HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{"status": "ok", "version": "1"}'
STORED = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that hands each connection to the function."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head of a request, and the bytes of its body that arrived with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            raise EOFError
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def test_sending_a_part_may_take_longer_than_the_connect_timeout(tmp_path: Path) -> None:
    """Python applies the connect timeout to each piece that it sends, however long the piece is."""
    content = bytes(6 << 20)
    path = tmp_path / "slow"
    path.write_bytes(content)
    got = []

    def read_slowly(client: socket.socket) -> None:
        with client, contextlib.suppress(EOFError):
            _, body = read_head(client)
            while len(body) < len(content):
                time.sleep(0.02)  # the slowness is the fault
                body += client.recv(128 << 10)
            got.append(hashlib.sha256(body).hexdigest())
            client.sendall(STORED)

    sha256 = hashlib.sha256(content).hexdigest()
    with serving(read_slowly) as url:
        blobs.upload(Transport(url, lambda: "t", connect_seconds=0.3), path, sha256, len(content), resume=False)
    assert got == [sha256]


@pytest.mark.parametrize("size", [1000, 3 * blobs.PART])
def test_a_file_that_has_become_shorter_is_refused_immediately(tmp_path: Path, size: int) -> None:
    path = tmp_path / "shrunk"
    path.write_bytes(b"x" * 10)

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(EOFError, OSError):
            while True:
                head, _ = read_head(client)
                if head.startswith(b"HEAD"):
                    client.sendall(b"HTTP/1.1 204 No Content\r\nUpload-Offset: 10\r\n\r\n")

    with serving(serve) as url, pytest.raises(Refused, match="shorter than it was"):
        blobs.upload(Transport(url, lambda: "t"), path, "a" * 64, size)


def test_every_byte_is_reported_once_even_if_it_is_sent_again() -> None:
    heard: list[int] = []
    progress = blobs.Progress(heard.append)
    for position in (4, 8, 2, 4, 8, 10):
        progress.reached(position)
    assert sum(heard) == 10


def test_a_connection_with_an_unread_answer_is_not_reused() -> None:
    """The head has arrived but the body has not: the next request would get a wrong answer, or none."""
    connections: list[bytes] = []

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(EOFError, OSError):
            head, _ = read_head(client)
            connections.append(head.split()[1])
            if b"/log" in head:
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nDeborgen-Log-Size: 100000\r\n\r\n")
                client.recv(65536)
            else:
                client.sendall(HEALTHY)

    with serving(serve) as url:
        transport = Transport(url, lambda: "t", resend=False)
        with transport.open(contract.READ_LOG, None, LogQuery(), job="1.1") as answer:
            assert answer.status == 200
        assert transport.call(contract.HEALTH).status == "ok"
    assert connections == [b"/v1/jobs/1.1/log", b"/health"]
